// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package differential

import (
	"errors"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	upstreamquota "k8s.io/apiserver/pkg/quota/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/cache"
	"k8s.io/kubernetes/pkg/quota/v1/evaluator/core"
	"k8s.io/utils/ptr"

	"github.com/kubetenant/kubetenant/plugins/quota"
	"github.com/kubetenant/kubetenant/test/waittest"
)

func oneOf[T any](r *rand.Rand, from ...T) T { return from[r.IntN(len(from))] }

func quantities(r *rand.Rand) corev1.ResourceList {
	out := corev1.ResourceList{}
	for _, name := range []corev1.ResourceName{
		"cpu", "memory", "ephemeral-storage", "hugepages-2Mi", "example.com/gpu", "nvidia.com/gpu", "kubernetes.io/batch-cpu",
	} {
		if r.IntN(2) == 0 {
			out[name] = resource.MustParse(oneOf(r, "1", "100m", "0", "2Gi", "1500m"))
		}
	}
	return out
}

func randomContainer(r *rand.Rand) corev1.Container {
	c := corev1.Container{
		Name:      "c",
		Resources: corev1.ResourceRequirements{Requests: quantities(r), Limits: quantities(r)},
	}
	if r.IntN(4) == 0 {
		c.RestartPolicy = ptr.To(corev1.ContainerRestartPolicyAlways)
	}
	return c
}

func randomPod(r *rand.Rand) *corev1.Pod {
	pod := &corev1.Pod{
		Status: corev1.PodStatus{
			Phase: oneOf(r, corev1.PodPending, corev1.PodRunning, corev1.PodRunning, corev1.PodSucceeded, corev1.PodFailed),
		},
	}
	for range r.IntN(3) + 1 {
		c := randomContainer(r)
		c.RestartPolicy = nil
		pod.Spec.Containers = append(pod.Spec.Containers, c)
	}
	for range r.IntN(3) {
		pod.Spec.InitContainers = append(pod.Spec.InitContainers, randomContainer(r))
	}
	if r.IntN(3) == 0 {
		pod.Spec.Overhead = corev1.ResourceList{"cpu": resource.MustParse("10m")}
	}
	if r.IntN(3) == 0 {
		pod.Spec.Resources = &corev1.ResourceRequirements{
			Requests: corev1.ResourceList{"cpu": resource.MustParse("3")},
			Limits:   corev1.ResourceList{"memory": resource.MustParse("1Gi")},
		}
	}
	if r.IntN(4) == 0 {
		at := metav1.NewTime(time.Now().Add(time.Duration(r.IntN(240)-120) * time.Minute))
		pod.DeletionTimestamp, pod.DeletionGracePeriodSeconds = &at, ptr.To(int64(30))
	}
	return pod
}

func randomService(r *rand.Rand) *corev1.Service {
	s := &corev1.Service{
		Spec: corev1.ServiceSpec{
			Type: oneOf(r, corev1.ServiceTypeClusterIP, corev1.ServiceTypeNodePort, corev1.ServiceTypeLoadBalancer,
				corev1.ServiceTypeExternalName),
		},
	}
	for range r.IntN(4) {
		s.Spec.Ports = append(s.Spec.Ports, corev1.ServicePort{NodePort: oneOf(r, int32(0), 30000)})
	}
	if r.IntN(2) == 0 {
		s.Spec.AllocateLoadBalancerNodePorts = ptr.To(r.IntN(2) == 0)
	}
	return s
}

func randomClaim(r *rand.Rand) *corev1.PersistentVolumeClaim {
	c := &corev1.PersistentVolumeClaim{}
	if r.IntN(4) > 0 {
		c.Spec.Resources.Requests = corev1.ResourceList{"storage": resource.MustParse(oneOf(r, "1Gi", "1.5", "10M", "0"))}
	}
	if r.IntN(2) == 0 {
		c.Spec.StorageClassName = ptr.To(oneOf(r, "fast", ""))
	}
	if r.IntN(3) == 0 {
		c.Annotations = map[string]string{corev1.BetaStorageClassAnnotation: oneOf(r, "slow", "")}
	}
	if r.IntN(3) == 0 {
		c.Status.AllocatedResources = corev1.ResourceList{"storage": resource.MustParse(oneOf(r, "2Gi", "1"))}
	}
	return c
}

func randomDevices(r *rand.Rand) *resourcev1.ResourceClaim {
	mode := func() resourcev1.DeviceAllocationMode {
		return oneOf(r, resourcev1.DeviceAllocationModeExactCount, resourcev1.DeviceAllocationModeAll)
	}
	c := &resourcev1.ResourceClaim{}
	for range r.IntN(3) {
		request := resourcev1.DeviceRequest{}
		switch r.IntN(3) {
		case 0:
			request.Exactly = &resourcev1.ExactDeviceRequest{
				DeviceClassName: oneOf(r, "gpu", "nic"),
				AllocationMode:  mode(),
				Count:           r.Int64N(8) + 1,
			}
		case 1:
			for range r.IntN(3) + 1 {
				request.FirstAvailable = append(request.FirstAvailable, resourcev1.DeviceSubRequest{
					DeviceClassName: oneOf(r, "gpu", "nic"),
					AllocationMode:  mode(),
					Count:           r.Int64N(8) + 1,
				})
			}
		}
		c.Spec.Devices.Requests = append(c.Spec.Devices.Requests, request)
	}
	return c
}

// evaluators returns all of upstream's quota evaluators, with the DeviceClasses gpu and nic. Pods
// can request devices of the class gpu as the extended resource example.com/gpu.
func evaluators(t *testing.T) map[schema.GroupResource]upstreamquota.Evaluator {
	t.Helper()
	class := func(name string, extended *string) *resourcev1.DeviceClass {
		return &resourcev1.DeviceClass{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec:       resourcev1.DeviceClassSpec{ExtendedResourceName: extended},
		}
	}
	factory := informers.NewSharedInformerFactory(
		fake.NewClientset(class("gpu", ptr.To("example.com/gpu")), class("nic", nil)), 0)
	none := func(schema.GroupVersionResource) (cache.GenericLister, error) { return nil, nil }
	all, err := core.NewEvaluators(none, factory, nil)
	if err != nil {
		t.Fatal(err)
	}
	factory.Start(t.Context().Done())
	out := map[schema.GroupResource]upstreamquota.Evaluator{}
	for _, e := range all {
		out[e.GroupResource()] = e
	}
	waittest.Until(t, func() error { // wait until upstream's evaluator has read the DeviceClass
		if len(out[resourcev1.Resource("resourceclaims")].MatchingResources(
			[]corev1.ResourceName{"requests.example.com/gpu"})) == 0 {
			return errors.New("the DeviceClass has not been read")
		}
		return nil
	})
	return out
}

// TestUsage checks that [quota.Usage] returns the same usage of random objects as upstream's
// evaluators. The test fails if a later version of Kubernetes adds an evaluator.
func TestUsage(t *testing.T) {
	all := evaluators(t)
	objects := map[schema.GroupResource]func(*rand.Rand) runtime.Object{
		{Resource: "pods"}:                    func(r *rand.Rand) runtime.Object { return randomPod(r) },
		{Resource: "services"}:                func(r *rand.Rand) runtime.Object { return randomService(r) },
		{Resource: "persistentvolumeclaims"}:  func(r *rand.Rand) runtime.Object { return randomClaim(r) },
		resourcev1.Resource("resourceclaims"): func(r *rand.Rand) runtime.Object { return randomDevices(r) },
		{Resource: "configmaps"}:              func(*rand.Rand) runtime.Object { return &corev1.ConfigMap{} },
		{Resource: "resourcequotas"}:          func(*rand.Rand) runtime.Object { return &corev1.ResourceQuota{} },
		{Resource: "replicationcontrollers"}:  func(*rand.Rand) runtime.Object { return &corev1.ReplicationController{} },
		{Resource: "secrets"}:                 func(*rand.Rand) runtime.Object { return &corev1.Secret{} },
	}
	classes := quota.Classes{{Name: "gpu", Extended: "example.com/gpu"}, {Name: "nic"}}
	r := rand.New(rand.NewPCG(1, 2))
	for of, evaluator := range all {
		random, known := objects[of]
		if !known {
			t.Errorf("no object for the evaluator of %s", of)
			continue
		}
		for range 30000 {
			obj := random(r)
			want, err := evaluator.Usage(obj)
			if err != nil {
				t.Fatal(err)
			}
			got, err := quota.Usage(of, obj, nil, time.Now())
			if of == resourcev1.Resource("resourceclaims") {
				got = classes.Extend(got) // for a ResourceClaim, upstream returns the usage under all names of a device class
			}
			if err != nil || !upstreamquota.Equals(upstreamquota.RemoveZeros(got), upstreamquota.RemoveZeros(want)) {
				t.Fatalf("%s: %v, upstream %v: %v; %+v", of.Resource, got, want, err, obj)
			}
			for name := range want {
				if resources := quota.Resources(name); !slices.Contains(resources, of) {
					t.Errorf("quota name %s applies to %v; upstream also applies it to %v", name, resources, of)
				}
			}
		}
	}
}

// TestNames checks that [quota.Resources] returns the same resources for a quota name as upstream.
// The name of a device class may also limit resources that request its devices by another name.
func TestNames(t *testing.T) {
	for of, evaluator := range evaluators(t) {
		for _, name := range []corev1.ResourceName{
			"pods", "count/pods", "cpu", "memory", "ephemeral-storage", "hugepages-2Mi", "requests.cpu", "requests.memory",
			"requests.ephemeral-storage", "requests.hugepages-2Mi", "limits.cpu", "limits.memory", "limits.ephemeral-storage",
			"limits.hugepages-2Mi", "limits.example.com/gpu", "example.com/gpu", "requests.example.com/gpu",
			"requests.example.com/other", "requests.deviceclass.resource.kubernetes.io/gpu",
			"requests.deviceclass.resource.kubernetes.io/other", "gpu.deviceclass.resource.k8s.io/devices",
			"count/resourceclaims.resource.k8s.io", "resourceclaims", "services", "count/services", "services.nodeports",
			"services.loadbalancers", "services.other", "persistentvolumeclaims", "count/persistentvolumeclaims", "storage",
			"requests.storage", "fast.storageclass.storage.k8s.io/requests.storage",
			"fast.storageclass.storage.k8s.io/persistentvolumeclaims", "configmaps", "count/configmaps", "secrets",
			"count/secrets", "resourcequotas", "count/resourcequotas", "replicationcontrollers", "count/replicationcontrollers",
			"requests.kubernetes.io/batch-cpu", "nonsense",
		} {
			want := len(evaluator.MatchingResources([]corev1.ResourceName{name})) > 0
			got := slices.Contains(quota.Resources(name), of)
			if want && !got || got && !want && !quota.IsDevice(name) {
				t.Errorf("%s limits %s: %t, upstream %t", name, of, got, want)
			}
		}
	}
}
