package provision_test

import (
	"maps"
	"strings"
	"testing"
	"testing/synctest"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clienttesting "k8s.io/client-go/testing"

	"github.com/kubetenant/kubetenant/plugins/namespace"
	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

// TestLabels: namespaces have the labels that the Tenant says, whoever writes others, until it does
// not say them any more; those of others stay.
func TestLabels(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
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
		expect("put back", map[string]string{
			"a":                    "1",
			"b":                    "2",
			"x":                    "y",
			namespace.EnforceLabel: "restricted",
		})
		w.tenant(func(s *v1alpha1.TenantSpec) {
			s.Namespaces = v1alpha1.TenantNamespacesSpec{Labels: map[string]v1alpha1.LabelValue{"b": "3"}}
		})
		expect("others", map[string]string{"b": "3", "x": "y"})
		w.tenant(func(s *v1alpha1.TenantSpec) { s.Namespaces.Labels = map[string]v1alpha1.LabelValue{"b": "3", "c": "4"} })
		w.tenant(func(s *v1alpha1.TenantSpec) { s.Namespaces.Labels = map[string]v1alpha1.LabelValue{"b": "3"} })
		expect("one less", map[string]string{"b": "3", "x": "y"})
		if w.prepared("acme--web") == "" {
			t.Error("it is not prepared")
		}
		w.writes()
		w.stop()
		w.start()
		if n := w.writes(); n > 0 {
			t.Errorf("%d writes at a restart", n)
		}
		w.tenant(func(s *v1alpha1.TenantSpec) { s.Namespaces = v1alpha1.TenantNamespacesSpec{} })
		expect("none", map[string]string{"x": "y"})
		if w.prepared("acme--web") != "" {
			t.Error("it is prepared for nothing")
		}
	})
}

// TestStricterLevels checks that a stricter level of PodSecurity stays if another manager set it. A
// level that the Tenant set follows the Tenant.
func TestStricterLevels(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
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
		expect("a level that does not exist is replaced", "baseline")
		set("restricted")
		expect("a Tenant raises its level", "restricted")
		w.writes()
		set("baseline")
		for _, a := range w.kube.Actions() {
			patch, is := a.(clienttesting.PatchAction)
			if is && patch.GetPatchType() == types.ApplyPatchType && a.GetResource().Resource == "namespaces" &&
				!strings.Contains(string(patch.GetPatch()), namespace.EnforceLabel) {
				t.Errorf("the level is removed before it is lowered: %s", patch.GetPatch())
			}
		}
		expect("a Tenant lowers its level", "baseline")
		write("restricted")
		expect("a stricter level stays", "restricted")
		set("privileged")
		expect("a stricter level stays where the Tenant lowers its own", "restricted")
		w.tenant(func(s *v1alpha1.TenantSpec) { s.Namespaces.Labels = map[string]v1alpha1.LabelValue{"b": "3"} })
		expect("a stricter level stays where another label changes", "restricted")
		w.writes()
		w.stop()
		w.start()
		if n := w.writes(); n > 0 {
			t.Errorf("%d writes at a restart", n)
		}
		expect("a stricter level stays after a restart", "restricted")
	})
}

// TestPrefix: namespaces that do not begin as the Tenant demands stay, and it says so.
func TestPrefix(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
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
			t.Errorf("Ready where none is demanded: %s", got)
		}
	})
}
