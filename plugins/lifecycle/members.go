// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"context"
	"errors"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apiserver/pkg/admission"

	"github.com/kubetenant/kubetenant/plugins"
	"github.com/kubetenant/kubetenant/tenant"
)

var (
	errTenantUID = errors.New("the annotation " + tenant.TenantUIDAnnotation + " is immutable")
	errMembers   = errors.New("spec.id: cannot check yet which Tenant has this ID: try again")
)

// admitMembers records the UID of the Tenant for which the spec of TenantMembers is written. A
// later tenant of the same name does not inherit TenantMembers with another UID.
func (p *plugin) admitMembers(ctx context.Context, a admission.Attributes) error {
	if p.ReadMembers == nil || p.Lineage == nil || a.GetOperation() == admission.Delete {
		return nil
	}
	old, obj, err := plugins.StoredMetadata(a)
	if err != nil || obj == nil {
		return admission.NewForbidden(a, plugins.ErrObject)
	}
	uid, changesSpec, err := p.membersUID(a)
	switch {
	case err != nil:
		return admission.NewForbidden(a, err)
	case !changesSpec:
		plugins.RestoreAnnotations(ctx, a, old, obj, tenant.TenantUIDAnnotation)
	case uid == "":
		plugins.SetAnnotation(obj, tenant.TenantUIDAnnotation, nil)
	default:
		plugins.SetAnnotation(obj, tenant.TenantUIDAnnotation, &uid)
	}
	return nil
}

// validateMembers denies TenantMembers with the UID of another Tenant. A missing UID is valid. If
// an earlier tenant had the same ID, TenantMembers without a UID have no effect.
func (p *plugin) validateMembers(a admission.Attributes) error {
	if p.ReadMembers == nil || p.Lineage == nil || a.GetOperation() == admission.Delete {
		return nil
	}
	old, obj, err := plugins.StoredMetadata(a)
	if err != nil || obj == nil {
		return admission.NewForbidden(a, plugins.ErrObject)
	}
	uid, changesSpec, err := p.membersUID(a)
	if err == nil && !changesSpec {
		err = plugins.CheckUnchanged(old, obj, tenant.TenantUIDAnnotation)
	} else if now := obj.GetAnnotations()[tenant.TenantUIDAnnotation]; err == nil && now != "" && now != uid {
		err = errTenantUID
	}
	if err != nil {
		return admission.NewForbidden(a, err)
	}
	return nil
}

// membersUID returns the UID of the Tenant to which TenantMembers belong, or "" if there is no
// Tenant. changesSpec reports whether the request creates the TenantMembers or changes their spec.
func (p *plugin) membersUID(a admission.Attributes) (uid string, changesSpec bool, err error) {
	id, spec, err := p.ReadMembers(a.GetObject())
	if err != nil {
		return "", false, err
	}
	if a.GetOperation() == admission.Update {
		if _, before, err := p.ReadMembers(a.GetOldObject()); err == nil && equality.Semantic.DeepEqual(before, spec) {
			return "", false, nil
		}
	}
	lineage, known := p.Lineage(id)
	if !known {
		return "", false, errMembers
	}
	return lineage.UID, true, nil
}
