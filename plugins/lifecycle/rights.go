// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/kubetenant/kubetenant/plugins"
)

// Right is a permission in the whole cluster. The server uses this permission to apply a field of a
// Tenant, so the author of the field must have it.
type Right struct {
	// Field is the path of the field.
	Field string
	Verb  string
	schema.GroupResource
}

// checkRights denies a write of a Tenant if its author lacks a right that the server would use for
// the change.
func (p *plugin) checkRights(ctx context.Context, a admission.Attributes) error {
	var old runtime.Object
	if a.GetOperation() == admission.Update {
		old = a.GetOldObject()
	}
	rights, err := p.RequiredRights(old, a.GetObject())
	if err != nil {
		return err
	}
	for _, r := range rights {
		may, _, err := p.Authorizer.Authorize(ctx, authorizer.AttributesRecord{
			User:            a.GetUserInfo(),
			Verb:            r.Verb,
			ResourceRequest: true,
			APIGroup:        r.Group,
			APIVersion:      "*",
			Resource:        r.Resource,
			Name:            plugins.UnguessableName(),
		})
		if err != nil {
			return fmt.Errorf("%s: cannot check now whether the caller may %s %s: %w", r.Field, r.Verb, r.GroupResource, err)
		}
		if may != authorizer.DecisionAllow {
			return fmt.Errorf("%s: the caller may not %s %s in the whole cluster", r.Field, r.Verb, r.GroupResource)
		}
	}
	return nil
}
