// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package tenantquota_test

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/informers"
	kubefake "k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/cache"

	"github.com/kubetenant/kubetenant/cluster/tenantquota"
	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/tenanttest"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

// mapper maps pods, resourceclaims and, if secrets is set, secrets. It fails for configmaps.
type mapper struct {
	meta.RESTMapper
	mu      sync.Mutex
	secrets bool // whether secrets are served after the next reset
	fresh   bool // whether secrets are served
}

var errMapper = errors.New("away")

func (m *mapper) ResourceFor(of schema.GroupVersionResource) (schema.GroupVersionResource, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case of.Resource == "configmaps":
		return of, errMapper
	case of.Resource == "resourceclaims":
		return resourcev1.SchemeGroupVersion.WithResource("resourceclaims"), nil
	case of.Resource == "pods", of.Resource == "secrets" && m.fresh:
		return schema.GroupVersionResource{Version: "v1", Resource: of.Resource}, nil
	}
	return of, &meta.NoResourceMatchError{PartialResource: of}
}

func (m *mapper) Reset() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.fresh = m.secrets
}

func namespaces(t testing.TB, owners map[string]string) *tenantquota.Namespaces {
	t.Helper()
	informer := cache.NewSharedIndexInformer(&cache.ListWatch{}, &corev1.Namespace{}, 0, cache.Indexers{})
	all, err := tenantquota.NewNamespaces(informer)
	if err != nil {
		t.Fatal(err)
	}
	for name, owner := range owners {
		if err := informer.GetIndexer().Add(&corev1.Namespace{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{tenant.Label: owner}},
		}); err != nil {
			t.Fatal(err)
		}
	}
	return all
}

// counting runs a counter for a cluster with two namespaces of tenant a and one namespace of
// tenant b.
func counting(t *testing.T, quotas *tenantquota.Store, m *mapper) {
	t.Helper()
	c := tenantquota.NewCounter(quotas, m, namespaces(t, map[string]string{"a--web": "a", "a--db": "a", "b--web": "b"}))
	running(t, c.Run)
}

// running runs f until the test ends.
func running(t *testing.T, f func(context.Context)) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	var over sync.WaitGroup
	over.Go(func() { f(ctx) })
	t.Cleanup(func() {
		stop()
		over.Wait()
		synctest.Wait()
	})
}

// thing returns an object whose UID is its name.
func thing(kind, namespace, name string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": kind}}
	u.SetNamespace(namespace)
	u.SetName(name)
	u.SetUID(types.UID(name))
	u.SetResourceVersion("1")
	return u
}

func pod(namespace, name, phase string) *unstructured.Unstructured {
	u := thing("Pod", namespace, name)
	u.Object["status"] = map[string]any{"phase": phase}
	return u
}

// limiting returns a quota of tenant a with the given limits and reservations.
func limiting(t *testing.T, hard map[string]string, reserved ...v1alpha1.QuotaReservation) *unstructured.Unstructured {
	t.Helper()
	u := object(t, "q", "a", false, "")
	limits := map[string]any{}
	for name, amount := range hard {
		limits[name] = amount
	}
	text, err := json.Marshal(v1alpha1.TenantQuotaStatus{
		Reserved: reserved,
		Used:     corev1.ResourceList{"configmaps": resource.MustParse("7")},
	})
	if err != nil {
		t.Fatal(err)
	}
	status := map[string]any{}
	if err := json.Unmarshal(text, &status); err != nil {
		t.Fatal(err)
	}
	u.Object["spec"].(map[string]any)["hard"], u.Object["status"] = limits, status
	return u
}

// expectUsage waits in the fake time of synctest. It then checks the usage in the status of the
// quota q, and the number of namespaces in the status.
func expectUsage(
	t *testing.T, client *fake.FakeDynamicClient, after time.Duration, when string, want map[string]string, in int,
) {
	t.Helper()
	time.Sleep(after)
	synctest.Wait()
	u, err := client.Resource(v1alpha1.SchemeGroupVersion.WithResource(v1alpha1.ResourceTenantQuotas)).
		Get(t.Context(), "q", metav1.GetOptions{})
	if err != nil {
		t.Fatal(when, err)
	}
	used, _, _ := unstructured.NestedStringMap(u.Object, "status", "used")
	each, _, _ := unstructured.NestedSlice(u.Object, "status", "namespaces")
	for name, amount := range want {
		if used[name] != amount {
			t.Errorf("%s: %v, want %v", when, used, want)
			break
		}
	}
	if len(used) != len(want) || len(each) != in {
		t.Errorf("%s: %v, want %v; of %v", when, used, want, each)
	}
}

// TestCounter checks that the usage is updated soon after objects change. The usage of a resource
// that the server does not serve is zero. The usage of a resource that cannot be read does not
// change.
func TestCounter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first := pod("a--web", "one", "Running")
		quotas, client := store(t, limiting(t, map[string]string{
			"pods":       "5",
			"count/pods": "9",
			"secrets":    "5",
			"configmaps": "9",
			"wood":       "1",
		}), first,
			pod("a--web", "over", "Succeeded"), pod("b--web", "other", "Running"), thing("Secret", "a--db", "s"))
		m := &mapper{}
		counting(t, quotas, m)
		pods := client.Resource(schema.GroupVersionResource{Version: "v1", Resource: "pods"}).Namespace("a--web")
		used := func(pods, all, secrets string) map[string]string {
			return map[string]string{
				"pods":       pods,
				"count/pods": all,
				"secrets":    secrets,
				"configmaps": "7",
			}
		}
		expectUsage(t, client, 8*time.Second, "at the start", used("1", "2", "0"), 1)
		if _, err := pods.Create(t.Context(), pod("a--web", "two", "Pending"), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		expectUsage(t, client, time.Second, "pod created", used("2", "3", "0"), 1)
		if _, err := pods.Update(t.Context(), pod("a--web", "one", "Failed"), metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		expectUsage(t, client, time.Second, "pod failed", used("1", "3", "0"), 1)
		if err := pods.Delete(t.Context(), "two", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		expectUsage(t, client, time.Second, "pod deleted", used("0", "2", "0"), 1)
		m.mu.Lock()
		m.secrets = true
		m.mu.Unlock()
		expectUsage(t, client, 90*time.Second, "secrets are served", used("0", "2", "1"), 2)
	})
}

// TestCountOfNamespaces checks that the usage is correct after a tenant's namespaces are created,
// change their owner, or are deleted. A namespace that is being deleted is still counted.
func TestCountOfNamespaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		quotas, client := store(t, limiting(t, map[string]string{"count/namespaces": "5"},
			v1alpha1.QuotaReservation{
				UID:     "u1",
				Expires: metav1.NewTime(time.Now().Add(time.Hour)),
				Used:    corev1.ResourceList{"count/namespaces": resource.MustParse("1")},
			}))
		kube := kubefake.NewClientset()
		factory := informers.NewSharedInformerFactory(kube, 0)
		all, err := tenantquota.NewNamespaces(factory.Core().V1().Namespaces().Informer())
		if err != nil {
			t.Fatal(err)
		}
		running(t, func(ctx context.Context) {
			factory.StartWithContext(ctx)
			factory.WaitForCacheSync(ctx.Done())
			tenantquota.NewCounter(quotas, &mapper{}, all).Run(ctx)
			factory.Shutdown()
		})
		ns := func(name, uid, of string) *corev1.Namespace {
			return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
				Name:            name,
				UID:             types.UID(uid),
				ResourceVersion: "2",
				Labels:          map[string]string{tenant.Label: of},
			}}
		}
		used := func(n string) map[string]string { return map[string]string{"count/namespaces": n} }
		expectUsage(t, client, time.Second, "only a reservation", used("1"), 0)
		ending := ns("a--two", "u2", "a")
		ending.DeletionTimestamp = &metav1.Time{Time: time.Now()}
		for _, one := range []*corev1.Namespace{ns("a--one", "u1", "a"), ending, ns("b--one", "u3", "b")} {
			if _, err := kube.CoreV1().Namespaces().Create(t.Context(), one, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		expectUsage(t, client, time.Second, "two namespaces", used("2"), 0)
		if _, err := kube.CoreV1().Namespaces().Update(t.Context(),
			ns("b--one", "u3", "a"), metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		expectUsage(t, client, time.Second, "owner changed", used("3"), 0)
		if _, err := kube.CoreV1().Namespaces().Update(t.Context(),
			ns("b--one", "u3", "b"), metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		expectUsage(t, client, time.Second, "owner changed back", used("2"), 0)
		if err := kube.CoreV1().Namespaces().Delete(t.Context(), "a--two", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		expectUsage(t, client, time.Second, "namespace deleted", used("1"), 0)
	})
}

// TestReservations checks that a reservation applies until its object is counted or deleted, or
// until the reservation expires, even if no object changes.
func TestReservations(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reserve := func(uid types.UID, after time.Duration) v1alpha1.QuotaReservation {
			return v1alpha1.QuotaReservation{
				UID:     uid,
				Expires: metav1.NewTime(time.Now().Add(after)),
				Used:    corev1.ResourceList{"pods": resource.MustParse("1")},
			}
		}
		two, gone := reserve("two", time.Hour), reserve("gone", time.Hour) // larger than the usage of the objects
		two.Used = corev1.ResourceList{"pods": resource.MustParse("2")}
		gone.Used = two.Used
		quotas, client := store(t,
			limiting(t, map[string]string{"pods": "9"}, two, reserve("lost", 20*time.Second), reserve("later", 30*time.Second),
				gone, reserve("one", time.Hour)),
			pod("a--web", "one", "Running"), pod("a--web", "two", "Running"))
		counting(t, quotas, &mapper{})
		pods := client.Resource(schema.GroupVersionResource{Version: "v1", Resource: "pods"}).Namespace("a--web")
		expectUsage(t, client, 10*time.Second, "at the start", map[string]string{"pods": "7"}, 1)
		if _, err := pods.Create(t.Context(), pod("a--web", "gone", "Running"), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		expectUsage(t, client, time.Second, "object created", map[string]string{"pods": "7"}, 1)
		if err := pods.Delete(t.Context(), "gone", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		expectUsage(t, client, time.Second, "object deleted", map[string]string{"pods": "5"}, 1)
		expectUsage(t, client, 8*time.Second, "reservation expired", map[string]string{"pods": "4"}, 1)
		expectUsage(t, client, 10*time.Second, "another reservation expired", map[string]string{"pods": "3"}, 1)
		anew := pod("a--web", "two", "Running")
		anew.SetUID("another")
		if _, err := pods.Update(t.Context(), anew, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		expectUsage(t, client, time.Second, "object replaced", map[string]string{"pods": "2"}, 1)
		was := singleState(t, quotas, tenanttest.ID(t, "a"))
		if err := quotas.Charge(t.Context(), was, was); err != nil {
			t.Fatal(err)
		}
		expectUsage(t, client, 0, "a charge does not change the namespaces", map[string]string{"pods": "2"}, 1)
	})
}

// TestTerminatingPodIsNotCounted checks that a Pod is not counted after its grace period, even
// without an event.
func TestTerminatingPodIsNotCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		leaving := pod("a--web", "one", "Running")
		leaving.SetDeletionTimestamp(new(metav1.Now()))
		leaving.SetDeletionGracePeriodSeconds(new(int64(30)))
		quotas, client := store(t, limiting(t, map[string]string{"pods": "9", "count/pods": "9"}), leaving)
		counting(t, quotas, &mapper{})
		expectUsage(t, client, 10*time.Second, "during the grace period",
			map[string]string{"pods": "1", "count/pods": "1"}, 1)
		expectUsage(t, client, 100*time.Second, "after the grace period",
			map[string]string{"pods": "0", "count/pods": "1"}, 1)
	})
}

// TestDefaultIsDeletedIfTenantHasQuota checks that a default quota is deleted only if its tenant
// has its own quota.
func TestDefaultIsDeletedIfTenantHasQuota(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		quotas, client := store(t, object(t, "q", "a", false, ""), object(t, "a", "a", true, ""),
			object(t, "b", "b", true, ""))
		counting(t, quotas, &mapper{})
		expectUsage(t, client, 10*time.Second, "own quota", map[string]string{"pods": "0"}, 0)
		for name, there := range map[string]bool{"a": false, "b": true} {
			if _, err := client.Resource(v1alpha1.SchemeGroupVersion.WithResource(v1alpha1.ResourceTenantQuotas)).
				Get(t.Context(),
					name, metav1.GetOptions{}); (err == nil) != there {
				t.Errorf("the default of %s: %v", name, err)
			}
		}
	})
}
