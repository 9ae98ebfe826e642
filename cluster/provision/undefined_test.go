// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package provision_test

import (
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"github.com/kubetenant/kubetenant/internal/typed"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

// missingDefinitions is a fake [provision.Definitions]. It reports the definitions of resources
// as missing.
type missingDefinitions struct {
	mu        sync.Mutex
	resources []string
	changed   func()
}

func (d *missingDefinitions) Undefined(resource string) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	if slices.Contains(d.resources, resource) {
		return resource + " is missing"
	}
	return ""
}

func (d *missingDefinitions) OnChange(f func()) func() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.changed = f
	return func() {}
}

func (d *missingDefinitions) set(resources ...string) {
	d.mu.Lock()
	d.resources = resources
	changed := d.changed
	d.mu.Unlock()
	changed()
}

// reasons returns the status and reason of Ready and Prepared of acme's Tenant.
func (w *fixture) reasons() string {
	w.t.Helper()
	u, err := w.dynamic.Resource(resource).Get(w.t.Context(), "acme", metav1.GetOptions{})
	w.must(err)
	t, err := typed.Decode[v1alpha1.Tenant](u)
	w.must(err)
	var said []string
	for _, kind := range []string{v1alpha1.ConditionReady, v1alpha1.ConditionPrepared} {
		if c := meta.FindStatusCondition(t.Status.Conditions, kind); c != nil {
			said = append(said, kind+"="+string(c.Status)+"/"+c.Reason)
		}
	}
	return strings.Join(said, " ")
}

// TestDefinitionMissing checks that the conditions of a Tenant report a missing definition that
// the Tenant needs, with only one write. The Tenant is ready again after the definition is
// installed.
func TestDefinitionMissing(t *testing.T) {
	const ready, none = "Ready=True/Ready Prepared=True/Prepared", "DefinitionMissing"
	unready, unprepared := strings.Replace(ready, "True/Ready", "False/"+none, 1),
		"Ready=False/"+none+" Prepared=False/"+none
	one := int32(1)
	for name, c := range map[string]struct {
		resource string
		needs    func(*v1alpha1.TenantSpec)
		want     string
	}{
		"tenants":                     {v1alpha1.ResourceTenants, nil, unready},
		"retired tenants":             {v1alpha1.ResourceRetiredTenants, nil, unready},
		"grants":                      {v1alpha1.ResourceAccessGrants, nil, unready},
		"quotas of another tenant":    {v1alpha1.ResourceTenantQuotas, nil, unready},
		"templates of another tenant": {v1alpha1.ResourceNamespaceTemplates, nil, ready},
		"members of another tenant":   {v1alpha1.ResourceTenantMembers, nil, ready},
		"its members": {
			v1alpha1.ResourceTenantMembers, func(s *v1alpha1.TenantSpec) { s.MemberRoles = []string{"view"} }, unprepared,
		},
		"its quota": {v1alpha1.ResourceTenantQuotas, func(s *v1alpha1.TenantSpec) { s.Namespaces.Max = &one }, unprepared},
		"its templates": {v1alpha1.ResourceNamespaceTemplates, func(s *v1alpha1.TenantSpec) {
			s.Namespaces.Templates = []string{"std"}
		}, unprepared},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newFixture(t)
				w.namespace("web", "acme", nil)
				std := &unstructured.Unstructured{Object: map[string]any{
					"apiVersion": v1alpha1.GroupVersion,
					"kind":       v1alpha1.KindNamespaceTemplate,
					"spec":       map[string]any{"objects": []any{}},
				}}
				std.SetName("std")
				templates := v1alpha1.SchemeGroupVersion.WithResource(v1alpha1.ResourceNamespaceTemplates)
				_, err := w.dynamic.Resource(templates).Create(t.Context(), std, metav1.CreateOptions{})
				w.must(err)
				w.tenant(func(s *v1alpha1.TenantSpec) {
					if c.needs != nil {
						c.needs(s)
					}
				})
				if got := w.reasons(); got != ready {
					t.Fatalf("before: %s", got)
				}
				w.dynamic.ClearActions()
				w.missing.set(c.resource)
				w.settle()
				w.missing.set(c.resource) // the same problem causes no write
				w.settle()
				if got := w.reasons(); got != c.want {
					t.Errorf("while it is missing: %s; want %s", got, c.want)
				}
				writes := 0
				for _, a := range w.dynamic.Actions() {
					if a.GetVerb() == "patch" {
						writes++
					}
				}
				if most := map[bool]int{true: 0, false: 1}[c.want == ready]; writes != most {
					t.Errorf("%d writes; want %d", writes, most)
				}
				w.missing.set()
				w.settle()
				if got := w.reasons(); got != ready {
					t.Errorf("after the definition was installed: %s", got)
				}
				events, err := w.kube.CoreV1().Events(corev1.NamespaceAll).List(t.Context(), metav1.ListOptions{})
				w.must(err)
				for _, e := range events.Items {
					if e.Reason == none {
						t.Errorf("an event of a Tenant: %s", e.Message)
					}
				}
			})
		})
	}
}

// TestDefinitionMissingBeforeFirstRead checks that the conditions of a Tenant report a missing
// definition even if the TenantMembers were never read.
func TestDefinitionMissingBeforeFirstRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFixture(t)
		w.stop()
		var refused atomic.Bool
		refused.Store(true)
		prepend(&w.dynamic.Fake, "list", v1alpha1.ResourceTenantMembers,
			func(clienttesting.Action) (bool, runtime.Object, error) {
				return refused.Load(), nil,
					apierrors.NewNotFound(v1alpha1.Resource(v1alpha1.ResourceTenantMembers), "")
			})
		w.start()
		w.tenant(func(s *v1alpha1.TenantSpec) { s.MemberRoles = []string{"view"} })
		time.Sleep(time.Minute)
		w.missing.set(v1alpha1.ResourceTenantMembers)
		w.settle()
		if got, want := w.reasons(), "Ready=False/DefinitionMissing Prepared=False/DefinitionMissing"; got != want {
			t.Errorf("while it is missing: %q; want %q", got, want)
		}
		refused.Store(false)
		w.missing.set()
		time.Sleep(time.Minute)
		if got, want := w.reasons(), "Ready=True/Ready Prepared=True/Prepared"; got != want {
			t.Errorf("a minute after the definition was installed: %q; want %q", got, want)
		}
	})
}
