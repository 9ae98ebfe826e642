// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package tenantquota_test

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/kubetenant/kubetenant/cluster/tenantquota"
	"github.com/kubetenant/kubetenant/plugins/quota"
	"github.com/kubetenant/kubetenant/tenant/tenanttest"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

func deviceClass(name, extended string, created time.Time) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{}}}
	u.SetGroupVersionKind(resourcev1.SchemeGroupVersion.WithKind("DeviceClass"))
	u.SetName(name)
	u.SetCreationTimestamp(metav1.NewTime(created))
	if extended != "" {
		u.Object["spec"] = map[string]any{"extendedResourceName": extended}
	}
	return u
}

func devices(objects ...runtime.Object) *fake.FakeDynamicClient {
	return fake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), map[schema.GroupVersionResource]string{
		v1alpha1.SchemeGroupVersion.WithResource("tenantquotas"):     "TenantQuotaList",
		resourcev1.SchemeGroupVersion.WithResource("deviceclasses"):  "DeviceClassList",
		resourcev1.SchemeGroupVersion.WithResource("resourceclaims"): "ResourceClaimList",
		corev1.SchemeGroupVersion.WithResource("pods"):               "PodList",
	}, objects...)
}

// TestClasses checks that the DeviceClasses are unknown until they have been read. The newest
// class for an extended resource is first, because the scheduler prefers this class. If the
// server does not serve the kind, the result is empty.
func TestClasses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now := time.Now()
		client := devices(deviceClass("old", "example.com/gpu", now), deviceClass("b", "example.com/gpu", now.Add(time.Hour)),
			deviceClass("a", "example.com/gpu", now.Add(time.Hour)), deviceClass("nic", "", now.Add(-time.Hour)))
		quotas, err := tenantquota.New(client, nil)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := quotas.Classes(); !errors.Is(err, quota.ErrUnknown) {
			t.Errorf("before the store runs: %v, %v", got, err)
		}
		running(t, quotas.Run)
		synctest.Wait()
		got, err := quotas.Classes()
		want := quota.Classes{
			{Name: "a", Extended: "example.com/gpu"},
			{Name: "b", Extended: "example.com/gpu"},
			{Name: "old", Extended: "example.com/gpu"},
			{Name: "nic"},
		}
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%v, %v; want %v", got, err, want)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		client := devices()
		unserved := true
		client.PrependReactor("list", "deviceclasses", func(clienttesting.Action) (bool, runtime.Object, error) {
			return unserved, nil, apierrors.NewNotFound(resourcev1.Resource("deviceclasses"), "")
		})
		quotas, err := tenantquota.New(client, nil)
		if err != nil {
			t.Fatal(err)
		}
		running(t, quotas.Run)
		_, _ = quotas.Classes()
		synctest.Wait()
		if got, err := quotas.Classes(); err != nil || len(got) > 0 {
			t.Errorf("not served: %v, %v", got, err)
		}
	})
}

// TestDevicesAreCounted checks that the usage of a device class includes the devices that Pods
// and ResourceClaims request.
func TestDevicesAreCounted(t *testing.T) {
	var used corev1.ResourceList
	synctest.Test(t, func(t *testing.T) {
		claim := thing("ResourceClaim", "a--db", "c")
		claim.SetAPIVersion("resource.k8s.io/v1")
		claim.Object["spec"] = map[string]any{"devices": map[string]any{"requests": []any{map[string]any{
			"name":    "r",
			"exactly": map[string]any{"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": int64(3)},
		}}}}
		requests := pod("a--web", "p", "Running")
		requests.Object["spec"] = map[string]any{"containers": []any{map[string]any{
			"name":      "c",
			"resources": map[string]any{"requests": map[string]any{"example.com/gpu": "2"}},
		}}}
		client := devices(requests, claim, deviceClass("gpu", "example.com/gpu", time.Now()), limiting(t, map[string]string{
			"requests.example.com/gpu":                        "8",
			"gpu.deviceclass.resource.k8s.io/devices":         "8",
			"requests.deviceclass.resource.kubernetes.io/gpu": "8",
			"requests.example.com/other":                      "8",
		}))
		quotas, err := tenantquota.New(client, nil)
		if err != nil {
			t.Fatal(err)
		}
		running(t, quotas.Run)
		counting(t, quotas, &mapper{})
		time.Sleep(2 * time.Minute) // longer than countCycle
		synctest.Wait()
		used = singleState(t, quotas, tenanttest.ID(t, "a")).Used
	})
	for name, want := range map[corev1.ResourceName]string{
		"requests.example.com/gpu":                        "5",
		"gpu.deviceclass.resource.k8s.io/devices":         "5",
		"requests.deviceclass.resource.kubernetes.io/gpu": "5",
		"requests.example.com/other":                      "0",
	} {
		t.Run(string(name), func(t *testing.T) {
			if got, counted := used[name]; !counted || got.String() != want {
				t.Errorf("%s, want %s", got.String(), want)
			}
		})
	}
}
