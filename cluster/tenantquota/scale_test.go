// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package tenantquota_test

import (
	"context"
	"fmt"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/tools/cache"

	"github.com/kubetenant/kubetenant/cluster/tenantquota"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

// BenchmarkQuiet measures the CPU time that default quotas and counting take while nothing
// changes, in milliseconds per second. The cluster has 10,000 tenants with default quotas and
// 30,000 namespaces.
func BenchmarkQuiet(b *testing.B) {
	const tenants, each, watched = 10_000, 3, 2 * time.Minute
	owners, objects := map[string]string{}, []runtime.Object{}
	for i := range tenants {
		id := fmt.Sprintf("t%d", i)
		objects = append(objects, object(b, id, id, true, "0"))
		for k := range each {
			owners[fmt.Sprintf("%s--%d", id, k)] = id
		}
	}
	client := fake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), map[schema.GroupVersionResource]string{
		v1alpha1.SchemeGroupVersion.WithResource(v1alpha1.ResourceTenantQuotas): "TenantQuotaList",
		{Version: "v1", Resource: "pods"}:                                       "PodList",
	}, objects...)
	quotas, err := tenantquota.New(client, nil)
	if err != nil {
		b.Fatal(err)
	}
	all := namespaces(b, owners)
	ctx, stop := context.WithCancel(b.Context())
	defer stop()
	go quotas.Run(ctx)
	if !cache.WaitForCacheSync(ctx.Done(), quotas.HasSynced) {
		b.Fatal("not synced")
	}
	hard := corev1.ResourceList{corev1.ResourcePods: resource.MustParse("5")}
	go quotas.EnsureDefaults(ctx, all, func() corev1.ResourceList { return hard })
	go tenantquota.NewCounter(quotas, &mapper{}, all).Run(ctx)
	time.Sleep(30 * time.Second) // until the first count is complete
	for b.Loop() {
		before := processor(b)
		time.Sleep(watched)
		b.ReportMetric(float64(processor(b)-before)/float64(time.Millisecond)/watched.Seconds(), "cpu-ms/s")
	}
}

// processor returns the CPU time that this process has used.
func processor(b *testing.B) time.Duration {
	b.Helper()
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		b.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}
