// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package rolebinding_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/kubetenant/kubetenant/plugins/rolebinding"
	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/tenanttest"
)

// tenantWith returns a fake Tenant that binds roles.
func tenantWith(roles ...rolebinding.RoleBinding) *fakeTenant {
	s := &fakeTenant{roles: roles}
	s.Name = "a"
	return s
}

// misnamed returns a fake Tenant of tenant a with the object name of another tenant.
func misnamed(roles ...rolebinding.RoleBinding) *fakeTenant {
	s := tenantWith(roles...)
	s.Name = "b"
	return s
}

type fakeTenant struct {
	corev1.ConfigMap
	roles, members []rolebinding.RoleBinding
	otherTenant    string // the tenant's ID, if it is not a
	templates      []string
}

// templated returns a fake Tenant that uses templates.
func templated(names ...string) *fakeTenant {
	s := tenantWith()
	s.templates = names
	return s
}

// withMemberRoles returns a fake Tenant that allows the tenant to bind the given roles.
func withMemberRoles(roles ...string) *fakeTenant {
	s := tenantWith()
	for i, r := range roles {
		s.members = append(s.members, rolebinding.RoleBinding{Path: fmt.Sprintf("spec.memberRoles[%d]", i), ClusterRole: r})
	}
	return s
}

// DeepCopyObject implements [runtime.Object].
func (s *fakeTenant) DeepCopyObject() runtime.Object { return s }

func admins(names ...string) rolebinding.RoleBinding { return role("spec.admins", "admin", names...) }

func role(path, name string, users ...string) rolebinding.RoleBinding {
	r := rolebinding.RoleBinding{Path: path, ClusterRole: name}
	for _, u := range users {
		r.Subjects = append(r.Subjects, rbacv1.Subject{Kind: "User", Name: u})
	}
	return r
}

// TestTenants checks that the writer of a Tenant must be allowed to bind the roles that it adds,
// and that the tenant must be allowed to bind the added subjects. Existing subjects are not checked
// again.
func TestTenants(t *testing.T) {
	p := newPlugin(func(o *rolebinding.Options) {
		o.ReadTenant = func(obj runtime.Object) (*rolebinding.Bindings, error) {
			s, is := obj.(*fakeTenant)
			if !is {
				return nil, errors.New("no Tenant")
			}
			return &rolebinding.Bindings{
				Tenant:      tenanttest.ID(t, "a"),
				Roles:       s.roles,
				MemberRoles: s.members,
				Templates:   s.templates,
			}, nil
		}
		o.Authorizer = authorizer.AuthorizerFunc(func(
			_ context.Context, a authorizer.Attributes,
		) (authorizer.Decision, string, error) {
			if a.GetVerb() == "use" && a.GetAPIGroup() == "kubetenant.dev" && a.GetResource() == "namespacetemplates" &&
				a.GetNamespace() == "" && a.IsResourceRequest() {
				switch {
				case a.GetName() == "unsure":
					return authorizer.DecisionNoOpinion, "", errors.New("away")
				case a.GetName() == "std" || a.GetUser().GetName() == "system:admin":
					return authorizer.DecisionAllow, "", nil
				}
				return authorizer.DecisionNoOpinion, "", nil
			}
			if a.GetVerb() != "bind" || a.GetAPIGroup() != rbacv1.GroupName || a.GetResource() != "clusterroles" ||
				a.GetNamespace() != "" || !a.IsResourceRequest() {
				return authorizer.DecisionDeny, "", fmt.Errorf("unexpected check of %s %s", a.GetVerb(), a.GetResource())
			}
			switch {
			case a.GetUser().GetName() == "system:unsure":
				return authorizer.DecisionNoOpinion, "", errors.New("away")
			case a.GetUser().GetName() == "system:admin" || slices.Contains([]string{"view"}, a.GetName()):
				return authorizer.DecisionAllow, "", nil
			}
			return authorizer.DecisionNoOpinion, "", nil
		})
	})
	both := tenantWith(admins("peter"))
	both.templates = []string{"other"}
	for name, c := range map[string]struct {
		by, sub string
		was, is runtime.Object
		want    string
	}{
		"admins": {"system:admin", "", nil, tenantWith(admins("peter")), ""},
		"without bind": {
			"system:x", "", nil, tenantWith(admins("peter")), "spec.admins: the caller may not bind the ClusterRole admin",
		},
		"with bind":    {"system:x", "", nil, tenantWith(role("spec.bindings[0].subjects", "view", "peter")), ""},
		"failed check": {"system:unsure", "", nil, tenantWith(admins("peter")), "cannot check now"},
		"a reserved name": {
			"system:admin", "", nil, tenantWith(admins("peter", "system:x")), "spec.admins[1] is a reserved name",
		},
		"two reserved names, by a caller that may not bind": {
			"system:x", "", nil, tenantWith(admins("system:x", "system:y")),
			"[spec.admins[0] is a reserved name, spec.admins[1] is a reserved name, " +
				"spec.admins: the caller may not bind the ClusterRole admin]",
		},
		"a role and a template, without rights": {
			"system:x", "", nil, both,
			"[spec.admins: the caller may not bind the ClusterRole admin, " +
				"spec.namespaces.templates: the caller may not use the NamespaceTemplate other]",
		},
		"added":     {"system:x", "", tenantWith(admins("peter")), tenantWith(admins("peter", "mary")), "may not bind"},
		"removed":   {"system:x", "", tenantWith(admins("peter", "mary")), tenantWith(admins("peter")), ""},
		"unchanged": {"system:x", "", tenantWith(admins("peter", "system:x")), tenantWith(admins("peter", "system:x")), ""},
		"the same role by another list": {
			"system:x", "", tenantWith(admins("peter")), tenantWith(role("spec.bindings[0].subjects", "admin", "peter")), "",
		},
		"another role": {
			"system:x",
			"",
			tenantWith(role("spec.bindings[0].subjects", "view", "peter")),
			tenantWith(role("spec.bindings[0].subjects", "edit", "peter")),
			"may not bind the ClusterRole edit",
		},
		"unreadable old Tenant": {"system:x", "", &corev1.ConfigMap{}, tenantWith(admins("peter")), "may not bind"},
		"unreadable Tenant":     {"system:admin", "", nil, &corev1.ConfigMap{}, "no Tenant"},
		"a status":              {"system:x", "status", tenantWith(), tenantWith(admins("peter")), ""},
		"wrong name":            {"system:admin", "", nil, misnamed(), "metadata.name must be a"},
		"unchanged wrong name":  {"system:x", "", misnamed(), misnamed(), ""},
		"no roles":              {"system:x", "", nil, tenantWith(), ""},
		"roles of members":      {"system:x", "", nil, withMemberRoles("view"), ""},
		"a member role without bind": {
			"system:x",
			"",
			nil,
			withMemberRoles("view", "edit"),
			"spec.memberRoles[1]: the caller may not bind the ClusterRole edit",
		},
		"a member role added without bind": {
			"system:x",
			"",
			withMemberRoles("view"),
			withMemberRoles("view", "edit"),
			"spec.memberRoles[1]",
		},
		"a template": {"system:x", "", nil, templated("std"), ""},
		"a template without use": {
			"system:x",
			"",
			nil,
			templated("std", "other"),
			"spec.namespaces.templates: the caller may not use the NamespaceTemplate other",
		},
		"a template with use": {"system:admin", "", nil, templated("std", "other"), ""},
		"failed check of a template": {
			"system:x", "", nil, templated("unsure"), "cannot check now whether the caller may use",
		},
		"a template without use, removed": {
			"system:x", "", templated("std", "other"), templated("std"), "may not use the NamespaceTemplate other",
		},
		"a usable template removed": {"system:x", "", templated("other", "std"), templated("other"), ""},
		"reordered roles":           {"system:x", "", withMemberRoles("view", "edit"), withMemberRoles("edit", "view"), ""},
	} {
		t.Run(name, func(t *testing.T) {
			op := admission.Create
			if c.was != nil {
				op = admission.Update
			}
			attributes := admission.NewAttributesRecord(c.is, c.was, schema.GroupVersionKind{}, "", "a",
				schema.GroupVersionResource{Group: "kubetenant.dev", Version: "v1alpha1", Resource: "tenants"},
				c.sub, op, nil, false, &user.DefaultInfo{Name: c.by})
			got := fmt.Sprint(p.Validate(t.Context(), attributes, nil))
			if (got == "<nil>") != (c.want == "") || !strings.Contains(got, c.want) {
				t.Errorf("%s, want %q", got, c.want)
			}
		})
	}
}

// membersWithFinalizer returns fake TenantMembers with a finalizer, an owner or both.
func membersWithFinalizer(finalizer, owner string) *fakeTenant {
	s := tenantWith()
	if finalizer != "" {
		s.Finalizers = []string{finalizer}
	}
	if owner != "" {
		s.OwnerReferences = []metav1.OwnerReference{{Kind: "ConfigMap", Name: owner, UID: "1"}}
	}
	return s
}

// TestFinalizersAndOwnersOfMembers checks that only callers of the system tenant may add finalizers
// and owners to TenantMembers. Any writer may remove them.
func TestFinalizersAndOwnersOfMembers(t *testing.T) {
	p := newPlugin(func(o *rolebinding.Options) {
		o.ReadMembers = func(runtime.Object) (*rolebinding.Bindings, error) {
			return &rolebinding.Bindings{Tenant: tenanttest.ID(t, "a")}, nil
		}
		o.MemberRoles = func(tenant.ID) []string { return nil }
	})
	for name, c := range map[string]struct {
		was, is *fakeTenant
		want    string
	}{
		"neither": {nil, tenantWith(), ""},
		"a finalizer": {
			nil, membersWithFinalizer("example.com/mine", ""), "metadata.finalizers[0]: \"example.com/mine\" may only be",
		},
		"deletion":          {nil, membersWithFinalizer("foregroundDeletion", ""), "metadata.finalizers[0]"},
		"an owner":          {nil, membersWithFinalizer("", "x"), "metadata.ownerReferences[0]: ConfigMap \"x\" may only be"},
		"a finalizer added": {tenantWith(), membersWithFinalizer("example.com/mine", ""), "metadata.finalizers[0]"},
		"an owner added":    {tenantWith(), membersWithFinalizer("", "x"), "metadata.ownerReferences[0]"},
		"another finalizer": {
			membersWithFinalizer("example.com/a", ""),
			membersWithFinalizer("example.com/b", ""),
			"metadata.finalizers[0]",
		},
		"another owner":  {membersWithFinalizer("", "x"), membersWithFinalizer("", "y"), "metadata.ownerReferences[0]"},
		"both unchanged": {membersWithFinalizer("example.com/a", "x"), membersWithFinalizer("example.com/a", "x"), ""},
		"both removed":   {membersWithFinalizer("example.com/a", "x"), tenantWith(), ""},
	} {
		t.Run(name, func(t *testing.T) {
			for _, sub := range []string{"", "status"} {
				for by, want := range map[string]string{"a": c.want, "system:x": ""} {
					op, was := admission.Create, runtime.Object(nil)
					if c.was != nil {
						op, was = admission.Update, c.was
					}
					if sub != "" && op == admission.Create {
						continue
					}
					attributes := admission.NewAttributesRecord(c.is, was, schema.GroupVersionKind{}, "", "a",
						schema.GroupVersionResource{Group: "kubetenant.dev", Version: "v1alpha1", Resource: "tenantmembers"},
						sub, op, nil, false, &user.DefaultInfo{Name: by})
					got := fmt.Sprint(p.Validate(t.Context(), attributes, nil))
					if (got == "<nil>") != (want == "") || !strings.Contains(got, want) {
						t.Errorf("%s by %s %s: %s, want %q", name, by, sub, got, want)
					}
				}
			}
		})
	}
}

// TestMembers checks that only callers of the tenant and of the system tenant may write
// TenantMembers. These callers may bind only roles that the Tenant object lists, and only to
// subjects that the tenant may bind.
func TestMembers(t *testing.T) {
	p := newPlugin(func(o *rolebinding.Options) {
		o.ReadMembers = func(obj runtime.Object) (*rolebinding.Bindings, error) {
			s, is := obj.(*fakeTenant)
			if !is {
				return nil, errors.New("no TenantMembers")
			}
			id := "a"
			if s.otherTenant != "" {
				id = s.otherTenant
			}
			return &rolebinding.Bindings{Tenant: tenanttest.ID(t, id), Roles: s.roles}, nil
		}
		o.MemberRoles = func(id tenant.ID) []string {
			if id.String() == "a" {
				return []string{"view", "edit"}
			}
			return nil
		}
	})
	const path = "spec.bindings[0].subjects"
	others := func(roles ...rolebinding.RoleBinding) *fakeTenant {
		s := misnamed(roles...)
		s.otherTenant = "b"
		return s
	}
	for name, c := range map[string]struct {
		by      string
		was, is runtime.Object
		want    string
	}{
		"a role":                      {"a", nil, tenantWith(role(path, "view", "peter")), ""},
		"by the system tenant":        {"system:x", nil, tenantWith(role(path, "view", "peter")), ""},
		"by another tenant":           {"b", nil, tenantWith(role(path, "view", "peter")), "only callers of this tenant"},
		"by another tenant, no roles": {"b", nil, tenantWith(), "only callers of this tenant"},
		"changed by another tenant": {
			"b",
			tenantWith(role(path, "view", "peter")),
			tenantWith(),
			"only callers of this tenant",
		},
		"by an invalid tenant": {"A B", nil, tenantWith(), "only callers of this tenant"},
		"another role": {
			"a",
			nil,
			tenantWith(role(path, "view"), role("spec.bindings[1].subjects", "admin", "peter")),
			"spec.bindings[1].clusterRole: \"admin\" is not listed in spec.memberRoles of the Tenant",
		},
		"another role, by the system tenant": {
			"system:x",
			nil,
			tenantWith(role(path, "admin", "peter")),
			"spec.bindings[0].clusterRole",
		},
		"a reserved name": {
			"a",
			nil,
			tenantWith(role(path, "view", "peter", "system:masters")),
			"spec.bindings[0].subjects[1] is a reserved name",
		},
		"two roles and a reserved name": {
			"a",
			nil,
			tenantWith(role(path, "admin", "peter", "mary"), role(path, "view", "system:masters")),
			"[spec.bindings[0].clusterRole: \"admin\" is not listed in spec.memberRoles of the Tenant, " +
				"spec.bindings[0].subjects[0] is a reserved name]",
		},
		"subject added for an unlisted role": {
			"a",
			tenantWith(role(path, "admin", "peter")),
			tenantWith(role(path, "admin", "peter", "mary")),
			"spec.bindings[0].clusterRole",
		},
		"subject removed for an unlisted role": {
			"a", tenantWith(role(path, "admin", "peter", "mary")), tenantWith(role(path, "admin", "peter")), "",
		},
		"wrong name":            {"a", nil, misnamed(), "metadata.name must be a"},
		"no member roles":       {"b", nil, others(role(path, "view", "peter")), "spec.bindings[0].clusterRole"},
		"changed tenant":        {"system:x", tenantWith(), others(), "spec.id is immutable"},
		"unreadable object":     {"system:x", nil, &corev1.ConfigMap{}, "no TenantMembers"},
		"unreadable old object": {"a", &corev1.ConfigMap{}, tenantWith(role(path, "view", "peter")), ""},
		"unreadable old object, another tenant": {
			"b", &corev1.ConfigMap{}, tenantWith(role(path, "view", "peter")), "only callers of this tenant",
		},
	} {
		t.Run(name, func(t *testing.T) {
			op := admission.Create
			if c.was != nil {
				op = admission.Update
			}
			attributes := admission.NewAttributesRecord(c.is, c.was, schema.GroupVersionKind{}, "", "a",
				schema.GroupVersionResource{Group: "kubetenant.dev", Version: "v1alpha1", Resource: "tenantmembers"},
				"", op, nil, false, &user.DefaultInfo{Name: c.by})
			got := fmt.Sprint(p.Validate(t.Context(), attributes, nil))
			if (got == "<nil>") != (c.want == "") || !strings.Contains(got, c.want) {
				t.Errorf("%s, want %q", got, c.want)
			}
		})
	}
}
