// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package provision_test

import (
	"maps"
	"strings"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clienttesting "k8s.io/client-go/testing"

	"github.com/kubetenant/kubetenant/plugins/namespace"
	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

// TestLabels checks that namespaces have the labels that the Tenant specifies, even after another
// caller changes them. Labels that the Tenant does not specify remain.
func TestLabels(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFixture(t)
		w.namespace("acme--web", "acme", nil)
		expect := func(what string, want map[string]string) {
			t.Helper()
			ns, err := w.kube.CoreV1().Namespaces().Get(t.Context(), "acme--web", metav1.GetOptions{})
			w.must(err)
			want[tenant.Label] = "acme"
			if !maps.Equal(ns.Labels, want) {
				t.Errorf("%s: %v, want %v", what, ns.Labels, want)
			}
		}
		w.tenant(func(s *v1alpha1.TenantSpec) {
			s.Namespaces = v1alpha1.TenantNamespacesSpec{
				Labels:      map[string]v1alpha1.LabelValue{"a": "1", "b": "2"},
				PodSecurity: "restricted",
			}
		})
		expect("given", map[string]string{"a": "1", "b": "2", namespace.EnforceLabel: "restricted"})
		ns, err := w.kube.CoreV1().Namespaces().Get(t.Context(), "acme--web", metav1.GetOptions{})
		w.must(err)
		ns.Labels["a"], ns.Labels["x"] = "other", "y"
		_, err = w.kube.CoreV1().Namespaces().Update(t.Context(), ns, metav1.UpdateOptions{FieldManager: "somebody"})
		w.must(err)
		w.settle()
		expect("restored", map[string]string{
			"a":                    "1",
			"b":                    "2",
			"x":                    "y",
			namespace.EnforceLabel: "restricted",
		})
		w.tenant(func(s *v1alpha1.TenantSpec) {
			s.Namespaces = v1alpha1.TenantNamespacesSpec{Labels: map[string]v1alpha1.LabelValue{"b": "3"}}
		})
		expect("other labels", map[string]string{"b": "3", "x": "y"})
		w.tenant(func(s *v1alpha1.TenantSpec) { s.Namespaces.Labels = map[string]v1alpha1.LabelValue{"b": "3", "c": "4"} })
		w.tenant(func(s *v1alpha1.TenantSpec) { s.Namespaces.Labels = map[string]v1alpha1.LabelValue{"b": "3"} })
		expect("label removed", map[string]string{"b": "3", "x": "y"})
		if w.prepared("acme--web") == "" {
			t.Error("the namespace is not prepared")
		}
		w.writes()
		w.stop()
		w.start()
		if n := w.writes(); n > 0 {
			t.Errorf("%d writes at a restart", n)
		}
		w.tenant(func(s *v1alpha1.TenantSpec) { s.Namespaces = v1alpha1.TenantNamespacesSpec{} })
		expect("no labels", map[string]string{"x": "y"})
		if w.prepared("acme--web") != "" {
			t.Error("the namespace is marked as prepared without content")
		}
	})
}

// TestStricterLevels checks that a stricter Pod Security level remains if another caller set it.
// A level that the Tenant specified changes when the Tenant changes.
func TestStricterLevels(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFixture(t)
		w.namespace("acme--web", "acme", nil)
		set := func(level string) {
			t.Helper()
			w.tenant(func(s *v1alpha1.TenantSpec) { s.Namespaces.PodSecurity = level })
		}
		write := func(level string) {
			t.Helper()
			ns, err := w.kube.CoreV1().Namespaces().Get(t.Context(), "acme--web", metav1.GetOptions{})
			w.must(err)
			ns.Labels[namespace.EnforceLabel] = level
			_, err = w.kube.CoreV1().Namespaces().Update(t.Context(), ns, metav1.UpdateOptions{FieldManager: "kubectl-label"})
			w.must(err)
			w.settle()
		}
		expect := func(what, want string) {
			t.Helper()
			ns, err := w.kube.CoreV1().Namespaces().Get(t.Context(), "acme--web", metav1.GetOptions{})
			w.must(err)
			if ns.Labels[namespace.EnforceLabel] != want || w.prepared("acme--web") == "" {
				t.Errorf("%s: %v, prepared %q", what, ns.Labels, w.prepared("acme--web"))
			}
		}
		set("baseline")
		expect("the Tenant's level", "baseline")
		write("privileged")
		expect("a laxer level is replaced", "baseline")
		write("nonsense")
		expect("an invalid level is replaced", "baseline")
		set("restricted")
		expect("the Tenant raises its level", "restricted")
		w.writes()
		set("baseline")
		for _, a := range w.kube.Actions() {
			patch, is := a.(clienttesting.PatchAction)
			if is && patch.GetPatchType() == types.ApplyPatchType && a.GetResource().Resource == "namespaces" &&
				!strings.Contains(string(patch.GetPatch()), namespace.EnforceLabel) {
				t.Errorf("the level is removed before it is lowered: %s", patch.GetPatch())
			}
		}
		expect("the Tenant lowers its level", "baseline")
		write("restricted")
		expect("a stricter level remains", "restricted")
		set("privileged")
		expect("a stricter level remains when the Tenant lowers its level", "restricted")
		w.tenant(func(s *v1alpha1.TenantSpec) { s.Namespaces.Labels = map[string]v1alpha1.LabelValue{"b": "3"} })
		expect("a stricter level remains when another label changes", "restricted")
		w.writes()
		w.stop()
		w.start()
		if n := w.writes(); n > 0 {
			t.Errorf("%d writes at a restart", n)
		}
		expect("a stricter level remains after a restart", "restricted")
	})
}

// TestPrefix checks that namespaces without the required prefix remain, and that the Tenant reports
// them.
func TestPrefix(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFixture(t)
		w.namespace("acme--web", "acme", nil)
		w.tenant(func(s *v1alpha1.TenantSpec) { s.Namespaces.Prefix = v1alpha1.NamespacePrefixRequired })
		if got := w.condition(v1alpha1.ConditionReady); got != "True Ready" {
			t.Errorf("Ready: %s", got)
		}
		w.namespace("web", "acme", nil)
		w.settle()
		if got := w.condition(v1alpha1.ConditionReady); got != "False OtherNames" {
			t.Errorf("Ready with another name: %s", got)
		}
		w.tenant(func(s *v1alpha1.TenantSpec) { s.Namespaces.Prefix = "" })
		if got := w.condition(v1alpha1.ConditionReady); got != "True Ready" {
			t.Errorf("Ready without a required prefix: %s", got)
		}
	})
}

// labels returns the labels of acme--web without the tenant label.
func (w *fixture) labels() map[string]string {
	w.t.Helper()
	ns, err := w.kube.CoreV1().Namespaces().Get(w.t.Context(), "acme--web", metav1.GetOptions{})
	w.must(err)
	out := maps.Clone(ns.Labels)
	delete(out, tenant.Label)
	return out
}

// change changes acme--web as another client.
func (w *fixture) change(change func(*corev1.Namespace)) {
	w.t.Helper()
	ns, err := w.kube.CoreV1().Namespaces().Get(w.t.Context(), "acme--web", metav1.GetOptions{})
	w.must(err)
	change(ns)
	_, err = w.kube.CoreV1().Namespaces().Update(w.t.Context(), ns, metav1.UpdateOptions{FieldManager: "kubectl"})
	w.must(err)
	w.settle()
}

// setLabels replaces the labels and the Pod Security level that acme's Tenant specifies.
func (w *fixture) setLabels(level string, labels map[string]v1alpha1.LabelValue) {
	w.t.Helper()
	w.tenant(func(s *v1alpha1.TenantSpec) {
		s.Namespaces = v1alpha1.TenantNamespacesSpec{Labels: labels, PodSecurity: level}
	})
}

// TestRemovedLabelsReturnToEarlierValues checks that a label that a Tenant no longer specifies
// returns to its earlier value. Neither managedFields nor a new leader affects this.
func TestRemovedLabelsReturnToEarlierValues(t *testing.T) {
	const adminAccess = "resource.kubernetes.io/admin-access"
	own := map[string]string{"team": "own", namespace.EnforceLabel: "baseline"}
	claims := map[string]func(*corev1.Namespace){
		"unchanged managedFields": func(*corev1.Namespace) {},
		"empty managedFields": func(ns *corev1.Namespace) {
			ns.ManagedFields = []metav1.ManagedFieldsEntry{{}}
		},
		"the tenant owns the labels": func(ns *corev1.Namespace) {
			ns.ManagedFields = append(ns.ManagedFields, metav1.ManagedFieldsEntry{
				Manager:    "kubectl",
				Operation:  metav1.ManagedFieldsOperationApply,
				APIVersion: "v1",
				FieldsType: "FieldsV1",
				FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{"f:labels":{"f:` + adminAccess + `":{},"f:` +
					namespace.EnforceLabel + `":{},"f:team":{}}}}`),
			})
		},
	}
	for name, claim := range claims {
		t.Run(name, func(t *testing.T) {
			for _, step := range []string{"", "new leader"} {
				synctest.Test(t, func(t *testing.T) {
					w := newFixture(t)
					w.namespace("acme--web", "acme", nil)
					w.change(func(ns *corev1.Namespace) { maps.Copy(ns.Labels, own) })
					w.tenant(func(s *v1alpha1.TenantSpec) { s.Admins = []v1alpha1.Subject{peter} })
					w.setLabels("privileged", map[string]v1alpha1.LabelValue{adminAccess: "true", "team": "given"})
					want := map[string]string{adminAccess: "true", "team": "given", namespace.EnforceLabel: "privileged"}
					if !maps.Equal(w.labels(), want) {
						t.Errorf("given %v, want %v", w.labels(), want)
					}
					w.change(claim)
					w.setLabels("restricted", nil)
					if want = map[string]string{"team": "own", namespace.EnforceLabel: "restricted"}; !maps.Equal(w.labels(), want) {
						t.Errorf("after another level %v, want %v", w.labels(), want)
					}
					w.change(claim)
					if step != "" {
						w.stop()
					}
					w.setLabels("", nil)
					if step != "" {
						w.start()
					}
					if !maps.Equal(w.labels(), own) {
						t.Errorf("%s, %s: in the end %v, want %v", name, step, w.labels(), own)
					}
					if got := w.condition(v1alpha1.ConditionPrepared); got != "True Prepared" {
						t.Errorf("Prepared is %s", got)
					}
				})
			}
		})
	}
}

// TestLabelsOfEarlierRelease checks that the engine records the labels that an earlier release
// set without a record. After the Tenant no longer specifies them, the engine removes these
// labels and sets the level to the default.
func TestLabelsOfEarlierRelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFixture(t)
		w.namespace("acme--web", "acme", nil)
		w.tenant(func(s *v1alpha1.TenantSpec) { s.Admins = []v1alpha1.Subject{peter} })
		w.setLabels("restricted", map[string]v1alpha1.LabelValue{"a": "1"})
		w.change(func(ns *corev1.Namespace) { ns.Labels["own"] = "x" })
		w.stop()
		w.change(func(ns *corev1.Namespace) { delete(ns.Annotations, tenant.GivenLabelsAnnotation) })
		w.start()
		w.setLabels("", map[string]v1alpha1.LabelValue{"own": "y"})
		w.setLabels("", nil)
		want := map[string]string{"own": "x", namespace.EnforceLabel: "baseline"}
		if !maps.Equal(w.labels(), want) {
			t.Errorf("the labels are %v, want %v", w.labels(), want)
		}
		// Without labels, only the annotation with the record is written.
		w.stop()
		w.change(func(ns *corev1.Namespace) { delete(ns.Annotations, tenant.GivenLabelsAnnotation) })
		w.writes()
		w.start()
		ns, err := w.kube.CoreV1().Namespaces().Get(t.Context(), "acme--web", metav1.GetOptions{})
		w.must(err)
		if n := w.writes(); n != 1 || ns.Annotations[tenant.GivenLabelsAnnotation] != "{}" {
			t.Errorf("%d writes, annotations %v", n, ns.Annotations)
		}
	})
}

// TestLabelsWithoutTenant checks that the labels that a Tenant set remain after the Tenant is
// deleted.
func TestLabelsWithoutTenant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFixture(t)
		w.namespace("acme--web", "acme", nil)
		w.setLabels("restricted", map[string]v1alpha1.LabelValue{"a": "1"})
		w.tenant(pods(5))
		want := w.labels()
		w.must(w.dynamic.Resource(resource).Delete(t.Context(), "acme", metav1.DeleteOptions{}))
		w.settle()
		w.stop()
		w.start()
		if !maps.Equal(w.labels(), want) || len(want) != 2 {
			t.Errorf("without a Tenant %v, before %v", w.labels(), want)
		}
		quotas := v1alpha1.SchemeGroupVersion.WithResource(v1alpha1.ResourceTenantQuotas)
		if _, err := w.dynamic.Resource(quotas).Get(t.Context(), "acme", metav1.GetOptions{}); err != nil {
			t.Errorf("without a Tenant, the quota does not exist: %v", err)
		}
		w.setLabels("", map[string]v1alpha1.LabelValue{"b": "2"})
		if got := w.labels(); !maps.Equal(got, map[string]string{"b": "2"}) {
			t.Errorf("with the next Tenant %v", got)
		}
	})
}
