package tenants_test

import (
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clienttesting "k8s.io/client-go/testing"

	"github.com/kubetenant/kubetenant/cluster/tenants"
	"github.com/kubetenant/kubetenant/tenant/tenanttest"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

func naming(id string, templates ...any) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": v1alpha1.GroupVersion,
		"kind":       v1alpha1.KindTenant,
		"spec":       map[string]any{"id": id, "namespaces": map[string]any{"templates": templates}},
	}}
	u.SetName(id)
	return u
}

func templateNamed(name string, hold bool) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": v1alpha1.GroupVersion,
		"kind":       v1alpha1.KindNamespaceTemplate,
		"spec": map[string]any{
			"hold": hold,
			"objects": []any{
				map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": name + "-of-${tenant}"}},
			},
		},
	}}
	u.SetName(name)
	return u
}

// TestHoldsAndGives: what is not known holds, and gives what nobody can tell.
func TestHoldsAndGives(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, naming("nothing"), naming("free", "open"), naming("held", "open", "holding"),
			naming("waits", "missing"), templateNamed("open", false), templateNamed("holding", true))
		w.run()
		configMaps := schema.GroupResource{Resource: "configmaps"}
		for id, want := range map[string]struct {
			holds bool
			gives string // the name of what is given
		}{
			"nobody":  {},
			"nothing": {},
			"free":    {false, "open-of-free"},
			"held":    {true, "holding-of-held"},
			"waits":   {holds: true},
		} {
			if got := w.store.Holds(t.Context(), tenanttest.ID(t, id)); got != want.holds {
				t.Errorf("%s: held is %t", id, got)
			}
			for _, name := range []string{"x", "open-of-x", want.gives} {
				got, err := w.store.Gives(tenanttest.ID(t, id), "ns", configMaps, name)
				if err != nil || got != (want.gives != "" && name == want.gives) {
					t.Errorf("%s gives %q: %t, %v", id, name, got, err)
				}
			}
			if got, err := w.store.Gives(tenanttest.ID(t, id), "ns", schema.GroupResource{Resource: "limitranges"},
				want.gives); got || err != nil {
				t.Errorf("%s gives another kind: %t, %v", id, got, err)
			}
		}
		w.client.PrependReactor("get", "tenants", func(clienttesting.Action) (bool, runtime.Object, error) {
			return true, nil, errors.New("away")
		})
		if !w.store.Holds(t.Context(), tenanttest.ID(t, "nothing")) {
			t.Error("the server is away, and nothing is held")
		}
	})
}

// TestUnreadTemplates: while templates cannot be read, whose Tenant names one is held, and
// nobody is told what it gives.
func TestUnreadTemplates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, naming("nothing"), naming("free", "open"), templateNamed("open", false))
		w.run() // the store that knows all
		var may atomic.Bool
		var err error
		if w.store, err = tenants.New(w.client, func(r schema.GroupResource) (is, known bool) {
			read := r.Resource != v1alpha1.ResourceNamespaceTemplates || may.Load()
			return read, read
		}); err != nil {
			t.Fatal(err)
		}
		w.run()
		for id, named := range map[string]bool{"nothing": false, "free": true} {
			_, err := w.store.Gives(tenanttest.ID(t, id), "ns", schema.GroupResource{Resource: "configmaps"}, "x")
			if got := w.store.Holds(t.Context(), tenanttest.ID(t, id)); got != named || (err != nil) != named {
				t.Errorf("%s: held is %t, %v", id, got, err)
			}
		}
		if !w.store.HasSynced() || w.store.GivenSynced() {
			t.Error("identity waits for templates, or they count as read")
		}
		may.Store(true)
		w.settle()
		if !w.store.GivenSynced() || w.store.Holds(t.Context(), tenanttest.ID(t, "free")) {
			t.Error("they can be read, and it is held on")
		}
	})
}
