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
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/kubetenant/kubetenant/plugins/rolebinding"
	"github.com/kubetenant/kubetenant/tenant/tenanttest"
)

// given is a ConfigMap that says which roles a Tenant gives to whom.
func given(roles ...rolebinding.SpreadRole) *spread {
	s := &spread{roles: roles}
	s.Name = "a"
	return s
}

// misnamed is one in another's place.
func misnamed(roles ...rolebinding.SpreadRole) *spread {
	s := given(roles...)
	s.Name = "b"
	return s
}

type spread struct {
	corev1.ConfigMap
	roles []rolebinding.SpreadRole
}

// DeepCopyObject implements [runtime.Object].
func (s *spread) DeepCopyObject() runtime.Object { return s }

func admins(names ...string) rolebinding.SpreadRole { return role("spec.admins", "admin", names...) }

func role(path, name string, users ...string) rolebinding.SpreadRole {
	r := rolebinding.SpreadRole{Path: path, ClusterRole: name}
	for _, u := range users {
		r.Subjects = append(r.Subjects, rbacv1.Subject{Kind: "User", Name: u})
	}
	return r
}

// TestTenants: whoever adds somebody to a Tenant must be allowed to bind what he gets, and nobody gets anything whom the tenant could
// not bind; what was there before is nobody's matter.
func TestTenants(t *testing.T) {
	p := holding(func(o *rolebinding.Options) {
		o.Spread = func(obj runtime.Object) (*rolebinding.Spread, error) {
			s, is := obj.(*spread)
			if !is {
				return nil, errors.New("no Tenant")
			}
			return &rolebinding.Spread{Tenant: tenanttest.ID(t, "a"), Roles: s.roles}, nil
		}
		o.Authorizer = authorizer.AuthorizerFunc(func(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
			if a.GetVerb() != "bind" || a.GetAPIGroup() != rbacv1.GroupName || a.GetResource() != "clusterroles" || a.GetNamespace() != "" || !a.IsResourceRequest() {
				return authorizer.DecisionDeny, "", fmt.Errorf("asked for %s %s", a.GetVerb(), a.GetResource())
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
	for name, c := range map[string]struct {
		by, sub string
		was, is runtime.Object
		want    string
	}{
		"admins":                         {"system:admin", "", nil, given(admins("peter")), ""},
		"who may not bind that":          {"system:x", "", nil, given(admins("peter")), "spec.admins: the caller itself may not bind the ClusterRole admin"},
		"another, who may bind":          {"system:x", "", nil, given(role("spec.bindings[0].subjects", "view", "peter")), ""},
		"nobody knows":                   {"system:unsure", "", nil, given(admins("peter")), "cannot be told now"},
		"a reserved name":                {"system:admin", "", nil, given(admins("peter", "system:x")), "spec.admins[1] is a reserved name"},
		"one more":                       {"system:x", "", given(admins("peter")), given(admins("peter", "mary")), "may not bind"},
		"one less":                       {"system:x", "", given(admins("peter", "mary")), given(admins("peter")), ""},
		"as it was":                      {"system:x", "", given(admins("peter", "system:x")), given(admins("peter", "system:x")), ""},
		"the same role by another list":  {"system:x", "", given(admins("peter")), given(role("spec.bindings[0].subjects", "admin", "peter")), ""},
		"another role":                   {"system:x", "", given(role("spec.bindings[0].subjects", "view", "peter")), given(role("spec.bindings[0].subjects", "edit", "peter")), "may not bind the ClusterRole edit"},
		"after what was not understood":  {"system:x", "", &corev1.ConfigMap{}, given(admins("peter")), "may not bind"},
		"what is not understood":         {"system:admin", "", nil, &corev1.ConfigMap{}, "no Tenant"},
		"a status":                       {"system:x", "status", given(), given(admins("peter")), ""},
		"of another's name":              {"system:admin", "", nil, misnamed(), "metadata.name must be a"},
		"one of another's name as it is": {"system:x", "", misnamed(), misnamed(), ""},
		"nothing":                        {"system:x", "", nil, given(), ""},
	} {
		op := admission.Create
		if c.was != nil {
			op = admission.Update
		}
		got := fmt.Sprint(p.Validate(t.Context(), admission.NewAttributesRecord(c.is, c.was, schema.GroupVersionKind{}, "", "a",
			schema.GroupVersionResource{Group: "kubetenant.dev", Version: "v1alpha1", Resource: "tenants"}, c.sub, op, nil, false, &user.DefaultInfo{Name: c.by}), nil))
		if (got == "<nil>") != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s: %s, want %q", name, got, c.want)
		}
	}
}
