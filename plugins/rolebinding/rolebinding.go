// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

// Package rolebinding keeps what a tenant writes from naming what is not the tenant's: subjects of
// RoleBindings, subjects of certificates, owners of objects that block the deletion of what all
// share, sources of volumes, and, where that is switched on, addresses and volumes.
package rolebinding

import (
	"context"
	"fmt"
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/kubetenant/kubetenant/plugins"
	"github.com/kubetenant/kubetenant/plugins/workload"
	"github.com/kubetenant/kubetenant/tenant"
)

// Name of the plugin.
const Name = "TenantRoleBinding"

// Options configure the plugin. Subject, Owner and Names are required.
type Options struct {
	Subject plugins.SubjectFunc
	Owner   plugins.OwnerFunc
	// Named returns the owner of a namespace that an object of a tenant names: it
	// may be made up. Required.
	Named func(ctx context.Context, by tenant.ID, namespace string) (tenant.ID, error)
	// Names are the reserved ones.
	Names *tenant.SystemNames
	// QualifiedNames says that the names of a tenant's callers begin with the tenant and a colon.
	QualifiedNames bool
	// ForbidExternalIPs refuses externalIPs in a tenant's Services, by which another's traffic
	// is taken (CVE-2020-8554).
	ForbidExternalIPs bool
	// ForbidVolumeNames refuses to claim a volume by its name or labels, in templates of claims too.
	ForbidVolumeNames bool
	// Kinds hold templates of claims.
	Kinds workload.Kinds
	// Objects returns the metadata at least of what ownerReferences name, an apierrors.IsForbidden
	// error where it may not be read. Nil: UIDs are believed.
	Objects plugins.ObjectFunc
	// Namespaced reports whether a kind is known to be of objects in namespaces. Nil knows of none.
	Namespaced func(schema.GroupKind) bool
	// Spread reads what a Tenant gives in the tenant's namespaces. Nil:
	// nothing, and no Tenant is held.
	Spread func(runtime.Object) (*Spread, error)
	// Members reads TenantMembers, and MemberRoles returns the ClusterRoles that a tenant itself may
	// give; it is required with Members. Nil Members: none are held.
	Members     func(runtime.Object) (*Spread, error)
	MemberRoles func(tenant.ID) []string
	// Namespaces returns the namespaces of a tenant, without those that are being deleted. If nil, only
	// rights in the whole cluster let a caller define Roles in TenantMembers.
	Namespaces func(tenant.ID) ([]string, error)
	// Authorizer is the server's. It decides about the rights of the writer of a Tenant or of the Roles
	// of TenantMembers. Required with Spread and Members.
	Authorizer authorizer.Authorizer
}

// New returns the plugin. It holds everybody but the system tenant's callers; of these, controllers
// that make claims from what a tenant wrote, and who writes a Tenant or TenantMembers. An update is
// held to what it adds; a certificate request's subject never changes.
func New(o Options) admission.ValidationInterface {
	return &plugin{
		admission.NewHandler(admission.Create, admission.Update), o, Subjects{o.Named, o.Names, o.QualifiedNames},
	}
}

type plugin struct {
	*admission.Handler
	Options
	subjects Subjects
}

// Validate implements [admission.ValidationInterface]. It checks the owners of an object before the
// rules of its kind, so that the rules of no kind replace that check.
func (p *plugin) Validate(ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces) error {
	resource, check, refers := a.GetResource().GroupResource(), p.checkOf(a), refers(a)
	if check == nil && !refers && resource != tenants && resource != members {
		return nil // the caller is identified only if a rule needs it
	}
	held := !p.Subject.IsSystem(ctx, a.GetUserInfo())
	var refused plugins.Refusals
	if held && refers {
		refused.Add(p.checkOwners(ctx, a))
	}
	switch {
	case refused.Err() != nil: // this refusal names the owner, whatever else is wrong
	case resource == tenants:
		return p.checkTenant(ctx, a)
	case resource == members:
		return p.checkMembers(ctx, a)
	}
	if check != nil && !held && a.GetKind().GroupKind() == claimKind.GroupKind() {
		var err error
		held, err = p.isFromTemplate(ctx, a)
		refused.Add(err)
	}
	if check != nil && held {
		refused.Add(check(ctx, a, o))
	}
	if err := refused.Err(); err != nil {
		return admission.NewForbidden(a, err)
	}
	return nil
}

// checkOf returns what holds objects of the kind of a write, nil for nothing.
func (p *plugin) checkOf(
	a admission.Attributes,
) func(context.Context, admission.Attributes, admission.ObjectInterfaces) error {
	switch kind := a.GetKind().GroupKind(); kind {
	case rbacv1.SchemeGroupVersion.WithKind("RoleBinding").GroupKind():
		return p.checkRoleBinding
	case requestKind.GroupKind():
		return p.checkRequest
	case serviceKind.GroupKind():
		if p.ForbidExternalIPs {
			return p.checkService
		}
	case claimKind.GroupKind():
		return p.checkClaim
	case secretKind.GroupKind():
		return p.checkSecret
	default:
		// What a Pod's ephemeral volumes claim is held, all but its choice of a
		// volume, when the claim is made.
		_, describes := p.Kinds[kind]
		if describes && a.GetSubresource() != "status" && (p.ForbidVolumeNames || kind == statefulSetKind.GroupKind()) {
			return p.checkTemplates
		}
	}
	return nil
}

func (p *plugin) checkRoleBinding(ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces) error {
	owner, err := p.Owner(ctx, a.GetNamespace()) // whoever writes it: a guest's names are not the owner's
	if err != nil {
		return err
	}
	kind := rbacv1.SchemeGroupVersion.WithKind("RoleBinding")
	is, err := plugins.Versioned[rbacv1.RoleBinding](a.GetObject(), kind, o)
	if err != nil {
		return err
	}
	var before []rbacv1.Subject
	if a.GetOperation() == admission.Update {
		was, err := plugins.Versioned[rbacv1.RoleBinding](a.GetOldObject(), kind, o)
		if err != nil {
			return err
		}
		if was.RoleRef == is.RoleRef { // with another role an old subject is a new one
			before = was.Subjects
		}
	}
	var refused plugins.Refusals
	for i, s := range is.Subjects {
		if slices.Contains(before, s) {
			continue
		}
		if err := p.subjects.Check(ctx, owner, s); err != nil {
			refused.Add(fmt.Errorf("subjects[%d] %w", i, err))
		}
	}
	return refused.Err()
}
