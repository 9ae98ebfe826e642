// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apiserver/pkg/admission"

	"github.com/kubetenant/kubetenant/plugins"
	"github.com/kubetenant/kubetenant/tenant"
)

var (
	errRetiredSpec      = errors.New("spec: only the server may change a RetiredTenant")
	errDeletionCanceled = errors.New("spec.takenBack: only the server may record that a deletion was canceled")
)

// Record is the content of a RetiredTenant.
type Record struct {
	ID  tenant.ID
	UID string
	// DeletionCanceled reports whether the deletion of the tenant's namespaces and objects was canceled.
	DeletionCanceled bool
	Spec             any
}

// checkRetired denies a new RetiredTenant that would revoke the credentials of an existing tenant.
// Such an object has the ID of a Tenant that is not being deleted, and a UID that this Tenant did
// not replace. Only the server may change the spec of a RetiredTenant.
func (p *plugin) checkRetired(ctx context.Context, a admission.Attributes) error {
	if p.ReadRetired == nil || a.GetOperation() == admission.Delete || p.Subject.IsManager(ctx, a) {
		return nil
	}
	if _, obj, err := plugins.StoredMetadata(a); err != nil || obj == nil {
		return plugins.ErrObject
	}
	record, err := p.ReadRetired(a.GetObject())
	if err != nil {
		return err
	}
	if a.GetOperation() == admission.Update {
		before, err := p.ReadRetired(a.GetOldObject())
		if err != nil || !equality.Semantic.DeepEqual(before.Spec, record.Spec) {
			return errRetiredSpec
		}
		return nil
	}
	if p.Lineage == nil {
		return nil
	}
	lineage, known := p.Lineage(record.ID)
	switch {
	case !known:
		return errLineageUnknown
	case record.DeletionCanceled && lineage.UID != "": // the server would use it as its own record
		return errDeletionCanceled
	case lineage.UID == "" || lineage.Terminating || slices.ContainsFunc(lineage.Retired, hasUID(record.UID)):
		return nil
	}
	return fmt.Errorf("spec.uid: the Tenant with this ID does not replace %q, so its credentials would be revoked: "+
		"delete the Tenant first, or set its spec.replaces when you create it", record.UID)
}

func hasUID(uid string) func(tenant.Retired) bool {
	return func(r tenant.Retired) bool { return r.UID == uid }
}
