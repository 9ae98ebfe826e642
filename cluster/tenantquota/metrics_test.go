// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package tenantquota_test

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic/fake"
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/testutil"

	"github.com/kubetenant/kubetenant/cluster/tenantquota"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
	"github.com/kubetenant/kubetenant/test/waittest"
)

// TestMetrics checks that the metrics show the current limits and usage of quotas. A quota that
// does not decode has no metrics, and does not affect the metrics of other quotas.
func TestMetrics(t *testing.T) {
	quota := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": v1alpha1.GroupVersion,
		"kind":       "TenantQuota",
		"metadata":   map[string]any{"name": "q"},
		"spec": map[string]any{
			"tenant": "acme",
			"hard": map[string]any{
				"pods":            "10",
				"requests.memory": "2Ki",
				"count/secrets":   int64(3),
			},
		},
		"status": map[string]any{"used": map[string]any{"pods": "4"}},
	}}
	invalid := quota.DeepCopy()
	invalid.SetName("invalid")
	invalid.Object["spec"] = map[string]any{"tenant": "globex", "hard": map[string]any{"pods": "3", "secrets": "x"}}
	of := v1alpha1.SchemeGroupVersion.WithResource(v1alpha1.ResourceTenantQuotas)
	client := fake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(),
		map[schema.GroupVersionResource]string{of: "TenantQuotaList"}, quota, invalid)
	store, err := tenantquota.New(client, nil)
	if err != nil {
		t.Fatal(err)
	}
	all, err := store.Metrics()
	if err != nil {
		t.Fatal(err)
	}
	registry := metrics.NewKubeRegistry()
	for _, m := range all {
		if err := registry.Register(m); err != nil {
			t.Fatal(err)
		}
	}
	go store.Run(t.Context())
	is := func(want string) {
		t.Helper()
		waittest.Until(t, func() error {
			return testutil.GatherAndCompare(registry, strings.NewReader(want), "kubetenant_quota_hard", "kubetenant_quota_used")
		})
	}
	const hard = "# HELP kubetenant_quota_hard [ALPHA] Limit that a tenant's TenantQuota sets, in the base unit of the " +
		"resource (cores, bytes, objects). At most 1,000 TenantQuotas have metrics.\n# TYPE kubetenant_quota_hard gauge\n"
	const used = "# HELP kubetenant_quota_used [ALPHA] Usage that a tenant's TenantQuota records, in the base unit of " +
		"the resource (cores, bytes, objects). At most 1,000 TenantQuotas have metrics.\n# TYPE " +
		"kubetenant_quota_used gauge\n"
	is(hard + `kubetenant_quota_hard{resource="count/secrets",tenant="acme"} 3
kubetenant_quota_hard{resource="pods",tenant="acme"} 10
kubetenant_quota_hard{resource="requests.memory",tenant="acme"} 2048
` + used + `kubetenant_quota_used{resource="pods",tenant="acme"} 4
`)
	limit := func(pods any) {
		t.Helper()
		quota = quota.DeepCopy()
		quota.Object["spec"].(map[string]any)["hard"] = map[string]any{"pods": pods}
		if _, err := client.Resource(of).Update(t.Context(), quota, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	limit("many")
	is("")
	limit("20")
	is(hard + `kubetenant_quota_hard{resource="pods",tenant="acme"} 20
` + used + `kubetenant_quota_used{resource="pods",tenant="acme"} 4
`)
	if err := client.Resource(of).Delete(t.Context(), "q", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	is("")
}
