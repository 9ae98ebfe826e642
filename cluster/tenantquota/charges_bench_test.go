// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package tenantquota_test

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"

	"github.com/kubetenant/kubetenant/cluster/tenantquota"
	"github.com/kubetenant/kubetenant/plugins/quota"
	"github.com/kubetenant/kubetenant/tenant/tenanttest"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

// BenchmarkCharge measures how long the store takes to read the quota of a tenant, and to write
// the quota with 50 reservations. The API server is a fake that takes almost no time.
func BenchmarkCharge(b *testing.B) {
	client := fake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), map[schema.GroupVersionResource]string{
		v1alpha1.SchemeGroupVersion.WithResource(v1alpha1.ResourceTenantQuotas): "TenantQuotaList",
	}, object(b, "a", "a", false, "1"))
	version := 1
	client.PrependReactor("update", "*", func(action clienttesting.Action) (bool, runtime.Object, error) {
		u := action.(clienttesting.UpdateAction).GetObject().(*unstructured.Unstructured)
		version++
		u.SetResourceVersion(strconv.Itoa(version))
		return true, u, nil
	})
	quotas, err := tenantquota.New(client, nil)
	if err != nil {
		b.Fatal(err)
	}
	go quotas.Run(b.Context())
	if !cache.WaitForCacheSync(b.Context().Done(), quotas.HasSynced) {
		b.Fatal("the store has not synced")
	}
	a := tenanttest.ID(b, "a")
	one := corev1.ResourceList{corev1.ResourcePods: resource.MustParse("1")}
	var reserved []quota.Reservation
	for i := range 50 {
		reserved = append(reserved, quota.Reservation{
			UID:     types.UID(fmt.Sprint(i)),
			Key:     fmt.Sprintf("pods/a--web/p%d", i),
			Expires: time.Unix(1_800_000_000, 0),
			Usage:   one,
		})
	}
	charge := func() {
		states, err := quotas.States(b.Context(), a)
		if err != nil || len(states) != 1 {
			b.Fatal(states, err)
		}
		next := *states[0]
		next.Used, next.Reserved = one, reserved
		if err := quotas.Charge(b.Context(), states[0], &next); err != nil {
			b.Fatal(err)
		}
		client.ClearActions()
	}
	charge()
	b.Run("Of", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := quotas.States(b.Context(), a); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("Charge", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			charge()
		}
	})
}
