// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package attribution

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apiserver/pkg/admission"
	kjson "sigs.k8s.io/json"

	"github.com/kubetenant/kubetenant/plugins"
	"github.com/kubetenant/kubetenant/tenant"
)

var revisionKind = appsv1.SchemeGroupVersion.WithKind("ControllerRevision")

// checkRevision checks the user in the data of a ControllerRevision. The controllers of
// StatefulSets and DaemonSets create Pods from the template in the data. If these controllers may
// supply a user, the user in the data becomes the user of the Pods.
func (p *plugin) checkRevision(
	ctx context.Context, c *caller, a admission.Attributes, o admission.ObjectInterfaces,
) error {
	if c.controller {
		return nil
	}
	revision, err := plugins.Versioned[appsv1.ControllerRevision](a.GetObject(), revisionKind, o)
	if err != nil {
		return err
	}
	raw := revision.Data.Raw
	if raw == nil && revision.Data.Object != nil {
		if raw, err = json.Marshal(revision.Data.Object); err != nil {
			return err
		}
	}
	if len(raw) == 0 {
		return nil
	}
	annotations, err := annotationsOf(raw)
	if err != nil {
		return err
	}
	value, ok := annotations[tenant.WorkloadUserAnnotation]
	if own, err := callerValue(c); !ok || err == nil && value == own {
		return nil
	}
	err = p.maySupply(c, value)
	if err == nil || a.GetOperation() == admission.Create && p.mayRetainUser(ctx, c, a, value) {
		return nil
	}
	// The server does not rewrite the data, because the name of the revision contains its hash.
	return fmt.Errorf("%w. Exclude controllerrevisions from a restore: the controllers create them again", err)
}

var errRevision = errors.New("the data of the revision has a field twice or in the wrong case")

// annotationsOf returns the annotations of the template in the data of a revision. It returns an
// error if a field name on the path to the annotations occurs twice or in another case. In such
// data, another JSON decoder could find other annotations.
func annotationsOf(raw []byte) (map[string]string, error) {
	data := raw
	for _, name := range []string{"spec", "template", "metadata", "annotations"} {
		var fields map[string]json.RawMessage
		strict, err := kjson.UnmarshalStrict(data, &fields, kjson.DisallowDuplicateFields)
		if err != nil || len(strict) > 0 {
			return nil, errRevision
		}
		for key := range fields {
			if key != name && strings.EqualFold(key, name) {
				return nil, errRevision
			}
		}
		if data = fields[name]; data == nil || string(data) == "null" {
			return nil, nil
		}
	}
	var annotations map[string]string
	strict, err := kjson.UnmarshalStrict(data, &annotations, kjson.DisallowDuplicateFields)
	if err != nil || len(strict) > 0 {
		return nil, errRevision
	}
	return annotations, nil
}
