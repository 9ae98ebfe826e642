// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

// Package rolebinding denies references from a tenant's objects to certain objects that the tenant
// does not own. It checks the subjects of RoleBindings, certificate requests, Secrets for service
// account tokens, the data sources of volumes, and owner references that block the deletion of
// shared objects. It also checks the permissions that Tenants and TenantMembers grant. If
// configured, it checks external IP addresses and volume names.
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

// Name is the name of the plugin.
const Name = "TenantRoleBinding"

// Options configure the plugin. Subject, Owner and Names are required.
type Options struct {
	Subject plugins.SubjectFunc
	Owner   plugins.OwnerFunc
	// ReferencedOwner returns the tenant that owns a namespace. by is the tenant whose object names
	// the namespace. The namespace may not exist yet. Required.
	ReferencedOwner func(ctx context.Context, by tenant.ID, namespace string) (tenant.ID, error)
	// Names are the reserved names.
	Names *tenant.SystemNames
	// QualifiedNames reports whether the names of a tenant's callers begin with the tenant and a
	// colon.
	QualifiedNames bool
	// ForbidExternalIPs denies externalIPs in a tenant's Services. With them, a tenant could
	// intercept the traffic of other tenants (CVE-2020-8554).
	ForbidExternalIPs bool
	// ForbidVolumeNames denies claims, and templates of claims, that select a volume by name or
	// labels.
	ForbidVolumeNames bool
	// Kinds are the kinds of objects that can contain templates of claims.
	Kinds workload.Kinds
	// Objects returns at least the metadata of an object that an ownerReference names. If the
	// server may not read the object, it returns an error for which apierrors.IsForbidden is true.
	// If nil, UIDs are not checked.
	Objects plugins.ObjectFunc
	// Namespaced reports whether a kind is known to be namespaced. If nil, every kind is treated as
	// cluster-scoped.
	Namespaced func(schema.GroupKind) bool
	// ReadTenant reads a Tenant. If nil, Tenants are not checked.
	ReadTenant func(runtime.Object) (*Bindings, error)
	// ReadMembers reads TenantMembers. If nil, TenantMembers are not checked.
	ReadMembers func(runtime.Object) (*Bindings, error)
	// MemberRoles returns the ClusterRoles that a tenant itself may bind. Required with
	// ReadMembers.
	MemberRoles func(tenant.ID) []string
	// Namespaces returns the namespaces of a tenant, without those that are being deleted. If nil,
	// a caller needs permissions in the whole cluster to define Roles in TenantMembers.
	Namespaces func(tenant.ID) ([]string, error)
	// Authorizer is the server's authorizer. It decides whether the author of a Tenant or of
	// TenantMembers has the required permissions. Required with ReadTenant and ReadMembers.
	Authorizer authorizer.Authorizer
}

// New returns the plugin. It checks all callers outside the system tenant. Among the callers of the
// system tenant, it checks controllers that create claims from a tenant's templates, and the
// authors of Tenants and TenantMembers. In an update, it normally checks only what the update adds.
// Certificate requests and Secrets are always checked.
func New(o Options) admission.ValidationInterface {
	return &plugin{
		admission.NewHandler(admission.Create, admission.Update), o, Subjects{o.ReferencedOwner, o.Names, o.QualifiedNames},
	}
}

type plugin struct {
	*admission.Handler
	Options
	subjects Subjects
}

// Validate implements [admission.ValidationInterface]. It checks the ownerReferences of an object
// first, so that no check of a kind can skip them.
func (p *plugin) Validate(ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces) error {
	resource := a.GetResource().GroupResource()
	check := p.checkFor(a)
	hasOwners := hasOwnerReferences(a)
	if check == nil && !hasOwners && resource != tenants && resource != members {
		return nil // the caller is identified only if a rule needs it
	}
	limited := !p.Subject.IsSystem(ctx, a.GetUserInfo())
	var errs plugins.Errors
	if limited && hasOwners {
		errs.Add(p.checkOwners(ctx, a))
	}
	validOwners := errs.Err() == nil // if false, the error is only about ownerReferences
	if validOwners && resource == tenants {
		return p.checkTenant(ctx, a)
	}
	if validOwners && resource == members {
		return p.checkMembers(ctx, a)
	}
	if check != nil && !limited && a.GetKind().GroupKind() == claimKind.GroupKind() {
		var err error
		limited, err = p.isFromTemplate(ctx, a)
		errs.Add(err)
	}
	if check != nil && limited {
		errs.Add(check(ctx, a, o))
	}
	if err := errs.Err(); err != nil {
		return admission.NewForbidden(a, err)
	}
	return nil
}

// checkFor returns the check for objects of the kind of a write, or nil if there is none.
func (p *plugin) checkFor(
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
		// The claim of a Pod's ephemeral volume is also checked when a controller creates the
		// claim. For Pods, that check suffices unless ForbidVolumeNames is set.
		_, hasTemplates := p.Kinds[kind]
		if hasTemplates && a.GetSubresource() != "status" && (p.ForbidVolumeNames || kind == statefulSetKind.GroupKind()) {
			return p.checkTemplates
		}
	}
	return nil
}

func (p *plugin) checkRoleBinding(ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces) error {
	owner, err := p.Owner(ctx, a.GetNamespace()) // the namespace's owner limits the subjects, not the caller's tenant
	if err != nil {
		return err
	}
	kind := rbacv1.SchemeGroupVersion.WithKind("RoleBinding")
	obj, err := plugins.Versioned[rbacv1.RoleBinding](a.GetObject(), kind, o)
	if err != nil {
		return err
	}
	var before []rbacv1.Subject
	if a.GetOperation() == admission.Update {
		old, err := plugins.Versioned[rbacv1.RoleBinding](a.GetOldObject(), kind, o)
		if err != nil {
			return err
		}
		if old.RoleRef == obj.RoleRef { // if the role changes, all subjects are new
			before = old.Subjects
		}
	}
	var errs plugins.Errors
	for i, s := range obj.Subjects {
		if slices.Contains(before, s) {
			continue
		}
		if err := p.subjects.Check(ctx, owner, s); err != nil {
			errs.Add(fmt.Errorf("subjects[%d] %w", i, err))
		}
	}
	return errs.Err()
}
