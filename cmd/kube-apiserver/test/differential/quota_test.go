package differential

import (
	"math/rand/v2"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	upstreamquota "k8s.io/apiserver/pkg/quota/v1"
	"k8s.io/kubernetes/pkg/quota/v1/evaluator/core"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	"github.com/kubetenant/kubetenant/plugins/quota"
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

// TestUsage: what an object uses of a quota is what upstream's evaluators say.
func TestUsage(t *testing.T) {
	evaluators := map[schema.GroupResource]upstreamquota.Evaluator{}
	for _, e := range []upstreamquota.Evaluator{
		core.NewPodEvaluator(nil, clock.RealClock{}), core.NewServiceEvaluator(nil),
		core.NewPersistentVolumeClaimEvaluator(nil),
	} {
		evaluators[e.GroupResource()] = e
	}
	r := rand.New(rand.NewPCG(1, 2))
	for range 30000 {
		for of, obj := range map[schema.GroupResource]runtime.Object{
			{Resource: "pods"}:                   randomPod(r),
			{Resource: "services"}:               randomService(r),
			{Resource: "persistentvolumeclaims"}: randomClaim(r),
		} {
			want, err := evaluators[of].Usage(obj)
			if err != nil {
				t.Fatal(err)
			}
			got, err := quota.Usage(of, obj, nil, time.Now())
			if err != nil || !upstreamquota.Equals(upstreamquota.RemoveZeros(got), upstreamquota.RemoveZeros(want)) {
				t.Fatalf("%s: %v, upstream %v: %v; %+v", of.Resource, got, want, err, obj)
			}
			for name := range want {
				if resource, known := quota.Resource(name); !known || resource != of {
					t.Errorf("%s is of %v, %t; upstream's of %v", name, resource, known, of)
				}
			}
		}
	}
}
