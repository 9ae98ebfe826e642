// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package rolebinding

import (
	"context"
	"errors"
	"fmt"
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/kubetenant/kubetenant/plugins"
	"github.com/kubetenant/kubetenant/tenant"
)

var (
	tenants = schema.GroupResource{Group: tenant.Domain, Resource: "tenants"}
	members = schema.GroupResource{Group: tenant.Domain, Resource: "tenantmembers"}
)

var (
	errForeignMembers = errors.New("spec.id: " +
		"only callers of this tenant and of the system tenant may change its members")
	errOtherTenant = errors.New("spec.id is immutable")
	errSystemOnly  = errors.New("may only be added by callers of the system tenant")
)

// Bindings contains the roles and templates that a Tenant or TenantMembers specify for the tenant's
// namespaces.
type Bindings struct {
	Tenant tenant.ID
	Roles  []RoleBinding
	// MemberRoles are the ClusterRoles that the tenant itself may bind. They have no subjects.
	MemberRoles []RoleBinding
	// Templates are the names of the NamespaceTemplates that the Tenant uses.
	Templates []string
	// DefinedRoles are the Roles of TenantMembers.
	DefinedRoles []DefinedRole
}

// RoleBinding is a ClusterRole and its subjects. Path is the path of the field that contains the
// subjects.
type RoleBinding struct {
	Path, ClusterRole string
	// Tenantwide is a ClusterRole that the subjects get once for the whole tenant. If empty, there
	// is none.
	Tenantwide string
	Subjects   []rbacv1.Subject
}

// checkMembers checks TenantMembers. The writer must belong to the tenant or to the system tenant.
// The writer may bind only roles that the Tenant object allows, and only to subjects that the
// tenant may bind. RBAC decides which callers may write TenantMembers. The server creates the
// bindings with its own permissions.
func (p *plugin) checkMembers(ctx context.Context, a admission.Attributes) error {
	if p.ReadMembers == nil {
		return nil
	}
	if err := p.checkFinalizersAndOwners(ctx, a); err != nil {
		return admission.NewForbidden(a, err)
	}
	if a.GetSubresource() != "" {
		return nil
	}
	obj, err := p.ReadMembers(a.GetObject())
	if err != nil {
		return admission.NewForbidden(a, err)
	}
	old := &Bindings{}
	if a.GetOperation() == admission.Update {
		if old, err = p.ReadMembers(a.GetOldObject()); err != nil {
			old = &Bindings{} // the old object had no effect
		} else if old.Tenant != obj.Tenant {
			return admission.NewForbidden(a, errOtherTenant)
		}
	}
	caller, unknown := p.Subject(ctx, a.GetUserInfo())
	switch {
	case unknown != nil, !caller.IsSystem() && caller != obj.Tenant:
		err = errForeignMembers
	default:
		if err = checkName(a.GetObject(), obj.Tenant); err == nil {
			err = p.checkMemberSpec(ctx, a, old, obj)
		}
	}
	if err != nil {
		return admission.NewForbidden(a, err)
	}
	return nil
}

// checkMemberSpec checks the bindings and the Roles that a write adds.
func (p *plugin) checkMemberSpec(ctx context.Context, a admission.Attributes, old, obj *Bindings) error {
	before, now, err := plugins.StoredMetadata(a)
	if err != nil {
		return err
	}
	if before == nil || now == nil || !sameTenant(before.GetAnnotations(), now.GetAnnotations()) {
		old = &Bindings{Roles: old.Roles}
	}
	var errs plugins.Errors
	errs.Add(p.checkMemberRoles(ctx, old, obj))
	errs.Add(p.checkDefined(ctx, a.GetUserInfo(), old, obj))
	return errs.Err()
}

// checkFinalizersAndOwners denies finalizers and ownerReferences that a caller outside the system
// tenant adds to TenantMembers. With a finalizer, TenantMembers would still exist after the
// deletion of the tenant.
func (p *plugin) checkFinalizersAndOwners(ctx context.Context, a admission.Attributes) error {
	if p.Subject.IsSystem(ctx, a.GetUserInfo()) {
		return nil
	}
	oldObj, newObj, err := plugins.StoredMetadata(a)
	if err != nil || newObj == nil {
		return err
	}
	var finalizers []string
	var owners []metav1.OwnerReference
	if oldObj != nil {
		finalizers, owners = oldObj.GetFinalizers(), oldObj.GetOwnerReferences()
	}
	for i, f := range newObj.GetFinalizers() {
		if !slices.Contains(finalizers, f) {
			return fmt.Errorf("metadata.finalizers[%d]: %q %w", i, f, errSystemOnly)
		}
	}
	for i, ref := range newObj.GetOwnerReferences() {
		if !slices.ContainsFunc(owners, func(old metav1.OwnerReference) bool {
			return equality.Semantic.DeepEqual(old, ref)
		}) {
			return fmt.Errorf("metadata.ownerReferences[%d]: %s %q %w", i, ref.Kind, ref.Name, errSystemOnly)
		}
	}
	return nil
}

// checkMemberRoles checks the bindings that a write adds.
func (p *plugin) checkMemberRoles(ctx context.Context, old, obj *Bindings) error {
	allowed := p.MemberRoles(obj.Tenant)
	var errs plugins.Errors
	for i, role := range obj.Roles {
		before := old.subjects(&role)
		for k, s := range role.Subjects {
			if slices.Contains(before, s) {
				continue
			}
			if !slices.Contains(allowed, role.ClusterRole) {
				errs.Add(fmt.Errorf("spec.bindings[%d].clusterRole: %q is not listed in spec.memberRoles of the Tenant",
					i, role.ClusterRole))
				break
			}
			if err := p.subjects.Check(ctx, obj.Tenant, s); err != nil {
				errs.Add(fmt.Errorf("%s[%d] %w", role.Path, k, err))
			}
		}
	}
	return errs.Err()
}

// subjects returns the subjects that already have a role.
func (s *Bindings) subjects(role *RoleBinding) (all []rbacv1.Subject) {
	for _, r := range s.Roles {
		if r.ClusterRole == role.ClusterRole && (role.Tenantwide == "" || role.Tenantwide == r.Tenantwide) {
			all = append(all, r.Subjects...)
		}
	}
	return all
}

// checkTenant checks a Tenant, even if a caller of the system tenant writes it. The tenant must be
// allowed to bind the subjects. The writer must be allowed to bind the roles in all namespaces,
// because the server binds them with its own permissions.
func (p *plugin) checkTenant(ctx context.Context, a admission.Attributes) error {
	if p.ReadTenant == nil || a.GetSubresource() != "" {
		return nil
	}
	obj, err := p.ReadTenant(a.GetObject())
	if err == nil && a.GetOperation() == admission.Create {
		err = checkName(a.GetObject(), obj.Tenant)
	}
	if err == nil {
		old := &Bindings{}
		if a.GetOperation() == admission.Update {
			if old, err = p.ReadTenant(a.GetOldObject()); err != nil {
				old = &Bindings{} // the old object had no effect
			}
		}
		err = p.checkBindings(ctx, a.GetUserInfo(), old, obj)
	}
	if err != nil {
		return admission.NewForbidden(a, err)
	}
	return nil
}

// checkName checks that an object has the name that belongs to its tenant. The schema cannot check
// the name for an ID that is not a DNS label. An object with the name that belongs to another
// tenant would block that tenant's own object.
func checkName(obj runtime.Object, id tenant.ID) error {
	m, err := meta.Accessor(obj)
	if err != nil {
		return err
	}
	if m.GetName() != id.ObjectName() {
		return fmt.Errorf("metadata.name must be %s", id.ObjectName())
	}
	return nil
}

func (p *plugin) checkBindings(ctx context.Context, writer user.Info, old, obj *Bindings) error {
	var errs plugins.Errors
	for _, role := range obj.Roles {
		before := old.subjects(&role)
		added := false
		for i, s := range role.Subjects {
			if slices.Contains(before, s) {
				continue
			}
			added = true
			if err := p.subjects.Check(ctx, obj.Tenant, s); err != nil {
				errs.Add(fmt.Errorf("%s[%d] %w", role.Path, i, err))
			}
		}
		if !added {
			continue
		}
		for _, name := range []string{role.ClusterRole, role.Tenantwide} {
			errs.Add(p.checkBind(ctx, writer, role.Path, name))
		}
	}
	for _, role := range obj.MemberRoles {
		if slices.ContainsFunc(old.MemberRoles, func(r RoleBinding) bool { return r.ClusterRole == role.ClusterRole }) {
			continue
		}
		errs.Add(p.checkBind(ctx, writer, role.Path, role.ClusterRole))
	}
	p.checkUse(ctx, writer, old, obj, &errs)
	return errs.Err()
}

// checkUse checks that the writer may use the templates that it adds or removes. The objects of a
// removed template are deleted.
func (p *plugin) checkUse(ctx context.Context, writer user.Info, old, obj *Bindings, errs *plugins.Errors) {
	for _, name := range slices.Concat(old.Templates, obj.Templates) {
		if slices.Contains(old.Templates, name) && slices.Contains(obj.Templates, name) {
			continue
		}
		may, _, err := p.Authorizer.Authorize(ctx, authorizer.AttributesRecord{
			User:            writer,
			Verb:            "use",
			ResourceRequest: true,
			APIGroup:        tenant.Domain,
			APIVersion:      "*",
			Resource:        "namespacetemplates",
			Name:            name,
		})
		if err != nil {
			errs.Add(fmt.Errorf("spec.namespaces.templates: "+
				"cannot check now whether the caller may use the NamespaceTemplate %s: %w", name, err))
		} else if may != authorizer.DecisionAllow {
			errs.Add(fmt.Errorf("spec.namespaces.templates: the caller may not use the NamespaceTemplate %s", name))
		}
	}
}

// checkBind checks that the writer may bind a role in all namespaces. An empty name means no role.
func (p *plugin) checkBind(ctx context.Context, writer user.Info, path, name string) error {
	if name == "" {
		return nil
	}
	may, _, err := p.Authorizer.Authorize(ctx, authorizer.AttributesRecord{
		User:            writer,
		Verb:            "bind",
		ResourceRequest: true,
		APIGroup:        rbacv1.GroupName,
		APIVersion:      "*",
		Resource:        "clusterroles",
		Name:            name,
	})
	if err != nil {
		return fmt.Errorf("%s: cannot check now whether the caller may bind the ClusterRole %s: %w", path, name, err)
	}
	if may != authorizer.DecisionAllow {
		return fmt.Errorf("%s: the caller may not bind the ClusterRole %s", path, name)
	}
	return nil
}
