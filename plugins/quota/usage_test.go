// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package quota_test

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubetenant/kubetenant/plugins/quota"
)

type amounts = map[corev1.ResourceName]string

func listOf(all amounts) corev1.ResourceList {
	if all == nil {
		return nil
	}
	out := corev1.ResourceList{}
	for name, text := range all {
		out[name] = resource.MustParse(text)
	}
	return out
}

func textOf(all corev1.ResourceList) amounts {
	out := amounts{}
	for name, quantity := range all {
		out[name] = quantity.String()
	}
	return out
}

func container(requests, limits amounts) corev1.Container {
	return corev1.Container{
		Name:      "c",
		Resources: corev1.ResourceRequirements{Requests: listOf(requests), Limits: listOf(limits)},
	}
}

func podOf(containers ...corev1.Container) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "a--web"},
		Spec:       corev1.PodSpec{Containers: containers},
	}
}

func groupResource(name string) schema.GroupResource { return schema.GroupResource{Resource: name} }

func used(t *testing.T, of schema.GroupResource, obj runtime.Object, now time.Time) amounts {
	t.Helper()
	usage, err := quota.Usage(of, obj, nil, now)
	if err != nil {
		t.Fatal(err)
	}
	return textOf(usage)
}

// TestUsageOfPods checks that the usage of a Pod has the requests of its containers under the short
// and the long names. Extended resources and huge pages have no names for limits.
func TestUsageOfPods(t *testing.T) {
	now := time.Unix(1000, 0)
	for name, c := range map[string]struct {
		requests, limits, want amounts
	}{
		"nothing": {nil, nil, amounts{}},
		"requests": {
			amounts{"cpu": "1", "memory": "2Gi", "ephemeral-storage": "3"},
			nil,
			amounts{
				"cpu":                        "1",
				"requests.cpu":               "1",
				"memory":                     "2Gi",
				"requests.memory":            "2Gi",
				"ephemeral-storage":          "3",
				"requests.ephemeral-storage": "3",
			},
		},
		"limits": {
			nil,
			amounts{"cpu": "1", "memory": "2Gi", "ephemeral-storage": "3"},
			amounts{"limits.cpu": "1", "limits.memory": "2Gi", "limits.ephemeral-storage": "3"},
		},
		"huge pages": {
			amounts{"hugepages-2Mi": "4Mi"},
			amounts{"hugepages-2Mi": "4Mi"},
			amounts{"hugepages-2Mi": "4Mi", "requests.hugepages-2Mi": "4Mi"},
		},
		"extended": {
			amounts{"example.com/gpu": "2"}, amounts{"example.com/gpu": "2"}, amounts{"requests.example.com/gpu": "2"},
		},
		"a DeviceClass": {
			amounts{"deviceclass.resource.kubernetes.io/gpu": "2"},
			nil,
			amounts{"requests.deviceclass.resource.kubernetes.io/gpu": "2"},
		},
		"unknown names": {amounts{"wood": "2", "kubernetes.io/wood": "2"}, amounts{"wood": "2"}, amounts{}},
	} {
		t.Run(name, func(t *testing.T) {
			c.want["count/pods"], c.want["pods"] = "1", "1"
			got := used(t, groupResource("pods"), podOf(container(c.requests, c.limits)), now)
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	two := used(
		t,
		groupResource("pods"),
		podOf(container(amounts{"cpu": "1"}, nil), container(amounts{"cpu": "2"}, nil)),
		now,
	)
	if two["requests.cpu"] != "3" {
		t.Errorf("two containers: %v", two)
	}
	resized := podOf(container(amounts{"cpu": "1"}, nil))
	resized.Status.ContainerStatuses = []corev1.ContainerStatus{
		{
			Name:               "c",
			AllocatedResources: listOf(amounts{"cpu": "3"}),
			Resources:          &corev1.ResourceRequirements{Requests: listOf(amounts{"cpu": "4"})},
		},
	}
	if got := used(t, groupResource("pods"), resized, now); got["requests.cpu"] != "4" {
		t.Errorf("a Pod with more resources than it requests: %v", got)
	}
}

// TestFinishedPods checks that the usage of a finished Pod is only count/pods. This also applies to
// a Pod that its kubelet should have stopped.
func TestFinishedPods(t *testing.T) {
	now := time.Unix(1000, 0)
	at := func(seconds int64) *metav1.Time { return new(metav1.Unix(seconds, 0)) }
	for name, c := range map[string]struct {
		phase   corev1.PodPhase
		deleted *metav1.Time
		grace   *int64
		over    bool
	}{
		"running":               {corev1.PodRunning, nil, nil, false},
		"pending":               {corev1.PodPending, nil, nil, false},
		"succeeded":             {corev1.PodSucceeded, nil, nil, true},
		"failed":                {corev1.PodFailed, nil, nil, true},
		"deleted, within grace": {corev1.PodRunning, at(990), new(int64(10)), false},
		"deleted, after grace":  {corev1.PodRunning, at(990), new(int64(9)), true},
		"deleted, no grace":     {corev1.PodRunning, at(10), nil, false},
		"grace, not deleted":    {corev1.PodRunning, nil, new(int64(1)), false},
	} {
		t.Run(name, func(t *testing.T) {
			pod := podOf(container(amounts{"cpu": "1"}, nil))
			pod.Status.Phase, pod.DeletionTimestamp, pod.DeletionGracePeriodSeconds = c.phase, c.deleted, c.grace
			want := amounts{"count/pods": "1"}
			if !c.over {
				want = amounts{
					"count/pods":   "1",
					"pods":         "1",
					"cpu":          "1",
					"requests.cpu": "1",
				}
			}
			if diff := cmp.Diff(want, used(t, groupResource("pods"), pod, now)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", name, diff)
			}
		})
	}
}

// TestUsageOfServices checks the numbers of node ports and load balancers of Services.
func TestUsageOfServices(t *testing.T) {
	ports := []corev1.ServicePort{{Port: 1, NodePort: 30001}, {Port: 2}, {Port: 3}}
	for name, c := range map[string]struct {
		spec            corev1.ServiceSpec
		balancers, node string
	}{
		"ClusterIP":    {corev1.ServiceSpec{Type: corev1.ServiceTypeClusterIP}, "0", "0"},
		"no type":      {corev1.ServiceSpec{}, "0", "0"},
		"ExternalName": {corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName}, "0", "0"},
		"NodePort":     {corev1.ServiceSpec{Type: corev1.ServiceTypeNodePort}, "0", "3"},
		"NodePort, with the flag of a LoadBalancer": {
			corev1.ServiceSpec{Type: corev1.ServiceTypeNodePort, AllocateLoadBalancerNodePorts: new(false)}, "0", "3",
		},
		"LoadBalancer": {corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer}, "1", "3"},
		"LoadBalancer, with ports": {
			corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer, AllocateLoadBalancerNodePorts: new(true)}, "1", "3",
		},
		"LoadBalancer, without": {
			corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer, AllocateLoadBalancerNodePorts: new(false)}, "1", "1",
		},
	} {
		t.Run(name, func(t *testing.T) {
			c.spec.Ports = ports
			want := amounts{
				"count/services":         "1",
				"services":               "1",
				"services.loadbalancers": c.balancers,
				"services.nodeports":     c.node,
			}
			got := used(t, groupResource("services"), &corev1.Service{Spec: c.spec}, time.Time{})
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", name, diff)
			}
		})
	}
}

// TestUsageOfClaims checks that a claim is counted in total and by storage class. The annotation
// takes precedence over spec.storageClassName. During an expansion, the larger size applies.
func TestUsageOfClaims(t *testing.T) {
	classes := func(class, storage string) amounts {
		out := amounts{"count/persistentvolumeclaims": "1", "persistentvolumeclaims": "1"}
		if storage != "" {
			out["requests.storage"] = storage
		}
		if class != "" {
			out[corev1.ResourceName(class+".storageclass.storage.k8s.io/persistentvolumeclaims")] = "1"
		}
		if class != "" && storage != "" {
			out[corev1.ResourceName(class+".storageclass.storage.k8s.io/requests.storage")] = storage
		}
		return out
	}
	for name, c := range map[string]struct {
		class, older       *string
		storage, allocated string
		want               amounts
	}{
		"no class":                 {nil, nil, "1Gi", "", classes("", "1Gi")},
		"a class":                  {new("fast"), nil, "1Gi", "", classes("fast", "1Gi")},
		"an annotation":            {new("fast"), new("slow"), "1Gi", "", classes("slow", "1Gi")},
		"an empty annotation":      {new("fast"), new(""), "1Gi", "", classes("", "1Gi")},
		"no size":                  {new("fast"), nil, "", "", classes("fast", "")},
		"a fraction of a byte":     {nil, nil, "1500m", "", classes("", "2")},
		"a failed expansion":       {nil, nil, "1Gi", "2Gi", classes("", "2Gi")},
		"a fractional expansion":   {nil, nil, "1", "1500m", classes("", "2")},
		"an expansion in progress": {nil, nil, "2Gi", "1Gi", classes("", "2Gi")},
		"no size, but allocated":   {nil, nil, "", "1Gi", classes("", "")},
	} {
		t.Run(name, func(t *testing.T) {
			claim := &corev1.PersistentVolumeClaim{Spec: corev1.PersistentVolumeClaimSpec{StorageClassName: c.class}}
			if c.older != nil {
				claim.Annotations = map[string]string{corev1.BetaStorageClassAnnotation: *c.older}
			}
			if c.storage != "" {
				claim.Spec.Resources.Requests = listOf(amounts{"storage": c.storage})
			}
			if c.allocated != "" {
				claim.Status.AllocatedResources = listOf(amounts{"storage": c.allocated})
			}
			if diff := cmp.Diff(c.want, used(t, groupResource("persistentvolumeclaims"), claim, time.Time{})); diff != "" {
				t.Errorf("%s (-want +got):\n%s", name, diff)
			}
		})
	}
}

// TestUsageOfOtherObjects checks that any other object is counted as one, and also under the older
// name of its resource. For an object that cannot be read, Usage returns an error.
func TestUsageOfOtherObjects(t *testing.T) {
	for of, want := range map[schema.GroupResource]amounts{
		groupResource("secrets"):                    {"count/secrets": "1", "secrets": "1"},
		groupResource("endpoints"):                  {"count/endpoints": "1"},
		{Group: "apps", Resource: "deployments"}:    {"count/deployments.apps": "1"},
		{Group: "example.com", Resource: "secrets"}: {"count/secrets.example.com": "1"},
	} {
		t.Run(of.String(), func(t *testing.T) {
			if diff := cmp.Diff(want, used(t, of, &corev1.Secret{}, time.Time{})); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	for _, of := range []string{"pods", "services", "persistentvolumeclaims"} {
		if usage, err := quota.Usage(groupResource(of), nil, nil, time.Time{}); err == nil || usage != nil {
			t.Errorf("no object of %s: %v, %v", of, usage, err)
		}
	}
}

// TestResources checks which resources use a limit name.
func TestResources(t *testing.T) {
	none, devices := schema.GroupResource{}, schema.GroupResource{Resource: "devices"}
	for name, want := range map[corev1.ResourceName]schema.GroupResource{
		"count/pods":                 groupResource("pods"),
		"count/deployments.apps":     {Group: "apps", Resource: "deployments"},
		"count/":                     none,
		"count":                      none,
		"count/bindings":             none,
		"count/events":               none,
		"count/events.events.k8s.io": none,
		"count/componentstatuses":    none,
		"count/tokenreviews.authentication.k8s.io":        none,
		"count/subjectaccessreviews.authorization.k8s.io": none,
		"count/roles.rbac.authorization.k8s.io":           {Group: "rbac.authorization.k8s.io", Resource: "roles"},
		"configmaps":                                      groupResource("configmaps"),
		"secrets":                                         groupResource("secrets"),
		"resourcequotas":                                  groupResource("resourcequotas"),
		"replicationcontrollers":                          groupResource("replicationcontrollers"),
		"deployments":                                     none,
		"pods":                                            groupResource("pods"),
		"cpu":                                             groupResource("pods"),
		"memory":                                          groupResource("pods"),
		"ephemeral-storage":                               groupResource("pods"),
		"hugepages-2Mi":                                   groupResource("pods"),
		"requests.cpu":                                    groupResource("pods"),
		"requests.memory":                                 groupResource("pods"),
		"requests.ephemeral-storage":                      groupResource("pods"),
		"requests.hugepages-2Mi":                          groupResource("pods"),
		"limits.cpu":                                      groupResource("pods"),
		"limits.memory":                                   groupResource("pods"),
		"limits.ephemeral-storage":                        groupResource("pods"),
		"limits.hugepages-2Mi":                            none,
		"limits.pods":                                     none,
		"requests.example.com/gpu":                        devices,
		"limits.example.com/gpu":                          none,
		"example.com/gpu":                                 none,
		"gpu":                                             none,
		"requests.gpu":                                    none,
		"requests.deviceclass.resource.kubernetes.io/x":           devices,
		"x.deviceclass.resource.k8s.io/devices":                   devices,
		"x.deviceclass.resource.k8s.io/other":                     none,
		".deviceclass.resource.k8s.io/devices":                    none,
		"count/resourceclaims.resource.k8s.io":                    {Group: "resource.k8s.io", Resource: "resourceclaims"},
		"requests.kubernetes.io/gpu":                              none,
		"requests.requests.example.com/gpu":                       none,
		"services":                                                groupResource("services"),
		"services.loadbalancers":                                  groupResource("services"),
		"services.nodeports":                                      groupResource("services"),
		"services.other":                                          none,
		"persistentvolumeclaims":                                  groupResource("persistentvolumeclaims"),
		"requests.storage":                                        groupResource("persistentvolumeclaims"),
		"storage":                                                 none,
		"fast.storageclass.storage.k8s.io/requests.storage":       groupResource("persistentvolumeclaims"),
		"fast.storageclass.storage.k8s.io/persistentvolumeclaims": groupResource("persistentvolumeclaims"),
		"fast.storageclass.storage.k8s.io/pods":                   none,
		".storageclass.storage.k8s.io/requests.storage":           none,
	} {
		t.Run(string(name), func(t *testing.T) {
			all := []schema.GroupResource{want}
			switch want {
			case none:
				all = nil
			case devices:
				all = []schema.GroupResource{groupResource("pods"), {Group: "resource.k8s.io", Resource: "resourceclaims"}}
			}
			if got := quota.Resources(name); !slices.Equal(got, all) {
				t.Errorf("%v, want %v", got, all)
			}
		})
	}
}
