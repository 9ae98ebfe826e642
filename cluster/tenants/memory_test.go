package tenants_test

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic/fake"

	"github.com/kubetenant/kubetenant/cluster/tenants"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

// BenchmarkMemory reports how much memory a store needs for a Tenant.
func BenchmarkMemory(b *testing.B) {
	const count = 10_000
	for name, rich := range map[string]bool{"small": false, "large": true} {
		b.Run(name, func(b *testing.B) {
			var objects []kruntime.Object
			for i := range count {
				objects = append(objects, stored(b, i, rich))
			}
			client := fake.NewSimpleDynamicClientWithCustomListKinds(kruntime.NewScheme(),
				map[schema.GroupVersionResource]string{
					resource: "TenantList",
					v1alpha1.SchemeGroupVersion.WithResource(v1alpha1.ResourceNamespaceTemplates): "NamespaceTemplateList",
					v1alpha1.SchemeGroupVersion.WithResource(v1alpha1.ResourceTenantMembers):      "TenantMembersList",
					v1alpha1.SchemeGroupVersion.WithResource(v1alpha1.ResourceRetiredTenants):     "RetiredTenantList",
					definitions: "CustomResourceDefinitionList",
				}, objects...)
			for b.Loop() {
				before := heap()
				store, err := tenants.New(client, func(schema.GroupResource) (bool, bool) { return true, true })
				if err != nil {
					b.Fatal(err)
				}
				go store.Run(b.Context())
				for !store.HasSynced() || len(store.IDs()) < count {
					time.Sleep(10 * time.Millisecond)
				}
				b.ReportMetric(float64(heap()-before)/count, "B/Tenant")
				runtime.KeepAlive(store)
			}
			runtime.KeepAlive(objects)
		})
	}
}

func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

func stored(b *testing.B, i int, rich bool) *unstructured.Unstructured {
	id := fmt.Sprintf("t%d", i)
	spec := map[string]any{"access": "Open", "deletionPolicy": "Protect"}
	if rich {
		spec["admins"] = []any{
			map[string]any{"kind": "User", "name": "alice@" + id},
			map[string]any{"kind": "Group", "name": "admins-" + id},
		}
		spec["bindings"] = []any{map[string]any{
			"clusterRole": "edit",
			"subjects":    []any{map[string]any{"kind": "Group", "name": "developers-" + id}},
		}}
		spec["quota"] = map[string]any{"pods": "100", "requests.cpu": "20", "requests.memory": "64Gi"}
		spec["namespaces"] = map[string]any{
			"labels":    map[string]any{"team": id, "cost-center": "c" + id},
			"templates": []any{"default", "network"},
			"max":       int64(10),
		}
	}
	u := object(id, id, spec)
	u.SetUID(types.UID(fmt.Sprintf("0d2c7c2f-5a43-4d6b-9f3c-%012d", i)))
	u.SetResourceVersion(fmt.Sprint(1000 + i))
	u.SetFinalizers([]string{"kubetenant.dev/tenant"})
	if rich {
		condition := func(kind string) any {
			return map[string]any{
				"type":               kind,
				"status":             "True",
				"reason":             kind,
				"message":            "every namespace has what the Tenant gives",
				"observedGeneration": int64(1),
				"lastTransitionTime": metav1.Now().UTC().Format(time.RFC3339),
			}
		}
		u.Object["status"] = map[string]any{
			"observedGeneration": int64(1),
			"namespaces":         map[string]any{"total": int64(3), "prepared": int64(3), "failed": int64(0)},
			"quota":              id,
			"conditions":         []any{condition("Prepared"), condition("Ready"), condition("Suspended")},
		}
	}
	// As from the network: no string is shared.
	text, err := u.MarshalJSON()
	if err != nil {
		b.Fatal(err)
	}
	out := &unstructured.Unstructured{}
	if err := out.UnmarshalJSON(text); err != nil {
		b.Fatal(err)
	}
	return out
}
