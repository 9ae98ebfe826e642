// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package tenancy_test

import (
	"errors"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/kubetenant/kubetenant/cluster/tenants"
	"github.com/kubetenant/kubetenant/internal/cli/tenancy"
	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/tenanttest"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

// TestCheckExists checks that the error for a misspelled tenant suggests a similar name. If the
// caller may not read the objects, there is no error.
func TestCheckExists(t *testing.T) {
	retired := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"id": "hooli", "uid": "1"}}}
	retired.SetGroupVersionKind(v1alpha1.SchemeGroupVersion.WithKind(v1alpha1.KindRetiredTenant))
	retired.SetName(tenants.RetiredName("hooli", "1"))
	for name, c := range map[string]struct {
		of, refused, want string // refused is the resource that the caller may not read
	}{
		"Tenant":                              {of: "acme"},
		"namespace":                           {of: "globex"},
		"retired":                             {of: "hooli"},
		"one letter too many":                 {of: "acmee", want: "did you mean acme?"},
		"two letters swapped in a short name": {of: "amce", want: "did you mean acme?"},
		"two letters swapped":                 {of: "glboex", want: "did you mean globex?"},
		"upper case":                          {of: "Acme", want: "did you mean acme?"},
		"no similar name":                     {of: "initech", want: "tenant initech: there is no such tenant"},
		"short name": {
			of:   "x",
			want: "tenant x: there is no such tenant: to list the tenants, run kubectl tenant tenants",
		},
		"read of the Tenant denied":         {of: "acmee", refused: "tenants"},
		"list of namespaces denied":         {of: "acmee", refused: "namespaces"},
		"list of RetiredTenants denied":     {of: "acmee", refused: "retiredtenants"},
		"system tenant":                     {of: "system"},
		"name similar to the system tenant": {of: "system0", want: "there is no such tenant"},
	} {
		t.Run(name, func(t *testing.T) {
			k, d := fake.NewClientset(namespace("globex--shop", "globex")),
				objects(tenancy.Object(tenanttest.ID(t, "acme")), runtime.Object(retired))
			forbidden := apierrors.NewForbidden(schema.GroupResource{}, "", errors.New("no"))
			if c.refused != "" {
				refuse(&k.Fake, "*", c.refused, forbidden)
				refuse(&d.Fake, "*", c.refused, forbidden)
			}
			err := tenancy.CheckExists(t.Context(), k, d, tenanttest.ID(t, c.of))
			if c.want == "" && err != nil ||
				c.want != "" && (!errors.Is(err, tenancy.ErrNoTenant) || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("%v; want %q", err, c.want)
			}
		})
	}
	if err := tenancy.CheckExists(t.Context(), fake.NewClientset(), objects(), tenant.ID{}); err != nil {
		t.Errorf("zero ID: %v", err)
	}
	d := objects()
	refuse(&d.Fake, "*", "tenants", errors.New("away"))
	if err := tenancy.CheckExists(t.Context(), fake.NewClientset(), d, tenanttest.ID(t, "acme")); err == nil ||
		errors.Is(err, tenancy.ErrNoTenant) {
		t.Errorf("server error: %v", err)
	}
}

// TestHasAny checks that a tenant with a Tenant object or a namespace exists, and that a Forbidden
// error is returned.
func TestHasAny(t *testing.T) {
	acme := tenanttest.ID(t, "acme")
	for name, c := range map[string]struct {
		tenants, namespaces []runtime.Object
		want                bool
	}{
		"no objects": {
			nil, []runtime.Object{namespace("acme--x", ""), namespace("globex--x", "globex")}, false,
		},
		"namespace":                {nil, []runtime.Object{namespace("legacy", "acme")}, true},
		"Tenant":                   {[]runtime.Object{tenancy.Object(acme)}, nil, true},
		"Tenant of another tenant": {[]runtime.Object{tenancy.Object(tenanttest.ID(t, "globex"))}, nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := tenancy.HasAny(t.Context(), fake.NewClientset(c.namespaces...), objects(c.tenants...), acme)
			if err != nil || got != c.want {
				t.Errorf("%t, %v", got, err)
			}
		})
	}
	k, d := fake.NewClientset(), objects()
	forbidden := apierrors.NewForbidden(schema.GroupResource{}, "", nil)
	refuse(&k.Fake, "list", "namespaces", forbidden)
	if _, err := tenancy.HasAny(t.Context(), k, d, acme); !errors.Is(err, tenancy.ErrRefused) {
		t.Errorf("list of namespaces denied: %v", err)
	}
	refuse(&d.Fake, "get", "tenants", forbidden)
	if _, err := tenancy.HasAny(t.Context(), k, d, acme); !errors.Is(err, tenancy.ErrRefused) {
		t.Errorf("read of the Tenant denied: %v", err)
	}
}
