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
	errHolder      = errors.New("may only be added by callers of the system tenant")
)

// Spread contains the roles and templates that a Tenant or TenantMembers specify for the tenant's
// namespaces.
type Spread struct {
	Tenant tenant.ID
	Roles  []SpreadRole
	// Members are the ClusterRoles that the tenant itself may bind. They have no subjects.
	Members []SpreadRole
	// Templates are the names of the NamespaceTemplates that the Tenant uses.
	Templates []string
	// Defined are the Roles of TenantMembers.
	Defined []DefinedRole
}

// SpreadRole is a ClusterRole and its subjects. Path is the path of the field of the subjects.
type SpreadRole struct {
	Path, ClusterRole string
	// Tenantwide is a ClusterRole that the subjects get once for the whole tenant. If empty, there
	// is none.
	Tenantwide string
	Subjects   []rbacv1.Subject
}

// checkMembers checks TenantMembers. The writer must belong to the tenant or to the system tenant.
// It may bind only roles that the Tenant allows, and only to subjects that the tenant may bind.
// RBAC decides which callers may write TenantMembers. The server creates the bindings with its own
// permissions.
func (p *plugin) checkMembers(ctx context.Context, a admission.Attributes) error {
	if p.Members == nil {
		return nil
	}
	if err := p.checkHolders(ctx, a); err != nil {
		return admission.NewForbidden(a, err)
	}
	if a.GetSubresource() != "" {
		return nil
	}
	is, err := p.Members(a.GetObject())
	if err != nil {
		return admission.NewForbidden(a, err)
	}
	was := &Spread{}
	if a.GetOperation() == admission.Update {
		if was, err = p.Members(a.GetOldObject()); err != nil {
			was = &Spread{} // the old object had no effect
		} else if was.Tenant != is.Tenant {
			return admission.NewForbidden(a, errOtherTenant)
		}
	}
	caller, unknown := p.Subject(ctx, a.GetUserInfo())
	switch {
	case unknown != nil, !caller.IsSystem() && caller != is.Tenant:
		err = errForeignMembers
	default:
		if err = checkName(a.GetObject(), is.Tenant); err == nil {
			err = p.checkMemberSpec(ctx, a, was, is)
		}
	}
	if err != nil {
		return admission.NewForbidden(a, err)
	}
	return nil
}

// checkMemberSpec checks the bindings and the Roles that a write adds.
func (p *plugin) checkMemberSpec(ctx context.Context, a admission.Attributes, was, is *Spread) error {
	before, now, err := plugins.Stored(a)
	if err != nil {
		return err
	}
	if before == nil || now == nil || !sameTenant(before.GetAnnotations(), now.GetAnnotations()) {
		was = &Spread{Roles: was.Roles}
	}
	var refused plugins.Refusals
	refused.Add(p.checkMemberRoles(ctx, was, is))
	refused.Add(p.checkDefined(ctx, a.GetUserInfo(), was, is))
	return refused.Err()
}

// checkHolders denies finalizers and owners that a tenant's caller adds to TenantMembers. With a
// finalizer, TenantMembers would remain after the deletion of the tenant.
func (p *plugin) checkHolders(ctx context.Context, a admission.Attributes) error {
	if p.Subject.IsSystem(ctx, a.GetUserInfo()) {
		return nil
	}
	was, is, err := plugins.Stored(a)
	if err != nil || is == nil {
		return err
	}
	var finalizers []string
	var owners []metav1.OwnerReference
	if was != nil {
		finalizers, owners = was.GetFinalizers(), was.GetOwnerReferences()
	}
	for i, f := range is.GetFinalizers() {
		if !slices.Contains(finalizers, f) {
			return fmt.Errorf("metadata.finalizers[%d]: %q %w", i, f, errHolder)
		}
	}
	for i, ref := range is.GetOwnerReferences() {
		if !slices.ContainsFunc(owners, func(old metav1.OwnerReference) bool {
			return equality.Semantic.DeepEqual(old, ref)
		}) {
			return fmt.Errorf("metadata.ownerReferences[%d]: %s %q %w", i, ref.Kind, ref.Name, errHolder)
		}
	}
	return nil
}

// checkMemberRoles checks the bindings that a write adds.
func (p *plugin) checkMemberRoles(ctx context.Context, was, is *Spread) error {
	allowed := p.MemberRoles(is.Tenant)
	var refused plugins.Refusals
	for i, role := range is.Roles {
		before := was.subjects(&role)
		for k, s := range role.Subjects {
			if slices.Contains(before, s) {
				continue
			}
			if !slices.Contains(allowed, role.ClusterRole) {
				refused.Add(fmt.Errorf("spec.bindings[%d].clusterRole: %q is not listed in spec.memberRoles of the Tenant",
					i, role.ClusterRole))
				break
			}
			if err := p.subjects.Check(ctx, is.Tenant, s); err != nil {
				refused.Add(fmt.Errorf("%s[%d] %w", role.Path, k, err))
			}
		}
	}
	return refused.Err()
}

// subjects returns the subjects that already have a role.
func (s *Spread) subjects(role *SpreadRole) (all []rbacv1.Subject) {
	for _, r := range s.Roles {
		if r.ClusterRole == role.ClusterRole && (role.Tenantwide == "" || role.Tenantwide == r.Tenantwide) {
			all = append(all, r.Subjects...)
		}
	}
	return all
}

// checkTenant checks a Tenant, also if a caller of the system tenant writes it. The subjects must
// be ones that the tenant may bind. The writer must be allowed to bind the roles in all namespaces,
// because the server binds them with its own permissions.
func (p *plugin) checkTenant(ctx context.Context, a admission.Attributes) error {
	if p.Spread == nil || a.GetSubresource() != "" {
		return nil
	}
	is, err := p.Spread(a.GetObject())
	if err == nil && a.GetOperation() == admission.Create {
		err = checkName(a.GetObject(), is.Tenant)
	}
	if err == nil {
		was := &Spread{}
		if a.GetOperation() == admission.Update {
			if was, err = p.Spread(a.GetOldObject()); err != nil {
				was = &Spread{} // the old object had no effect
			}
		}
		err = p.checkSpread(ctx, a.GetUserInfo(), was, is)
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
	is, err := meta.Accessor(obj)
	if err != nil {
		return err
	}
	if is.GetName() != id.ObjectName() {
		return fmt.Errorf("metadata.name must be %s", id.ObjectName())
	}
	return nil
}

func (p *plugin) checkSpread(ctx context.Context, writer user.Info, was, is *Spread) error {
	var refused plugins.Refusals
	for _, role := range is.Roles {
		before := was.subjects(&role)
		added := false
		for i, s := range role.Subjects {
			if slices.Contains(before, s) {
				continue
			}
			added = true
			if err := p.subjects.Check(ctx, is.Tenant, s); err != nil {
				refused.Add(fmt.Errorf("%s[%d] %w", role.Path, i, err))
			}
		}
		if !added {
			continue
		}
		for _, name := range []string{role.ClusterRole, role.Tenantwide} {
			refused.Add(p.checkBind(ctx, writer, role.Path, name))
		}
	}
	for _, role := range is.Members {
		if slices.ContainsFunc(was.Members, func(r SpreadRole) bool { return r.ClusterRole == role.ClusterRole }) {
			continue
		}
		refused.Add(p.checkBind(ctx, writer, role.Path, role.ClusterRole))
	}
	p.checkUse(ctx, writer, was, is, &refused)
	return refused.Err()
}

// checkUse checks that the writer may use the templates that it adds or removes. The objects of a
// removed template are deleted.
func (p *plugin) checkUse(ctx context.Context, writer user.Info, was, is *Spread, refused *plugins.Refusals) {
	for _, name := range slices.Concat(was.Templates, is.Templates) {
		if slices.Contains(was.Templates, name) && slices.Contains(is.Templates, name) {
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
			refused.Add(fmt.Errorf("spec.namespaces.templates: "+
				"cannot check now whether the caller may use the NamespaceTemplate %s: %w", name, err))
		} else if may != authorizer.DecisionAllow {
			refused.Add(fmt.Errorf("spec.namespaces.templates: the caller may not use the NamespaceTemplate %s", name))
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
