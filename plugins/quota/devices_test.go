// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package quota_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	resourcev1beta1 "k8s.io/api/resource/v1beta1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/kubetenant/kubetenant/plugins/quota"
	"github.com/kubetenant/kubetenant/tenant"
)

var deviceClaims = resourcev1.Resource("resourceclaims")

func exactly(class string, mode resourcev1.DeviceAllocationMode, count int64) resourcev1.DeviceRequest {
	return resourcev1.DeviceRequest{Exactly: &resourcev1.ExactDeviceRequest{
		DeviceClassName: class,
		AllocationMode:  mode,
		Count:           count,
	}}
}

func claimOf(requests ...resourcev1.DeviceRequest) *resourcev1.ResourceClaim {
	return &resourcev1.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Name: "p", UID: "u"},
		Spec:       resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{Requests: requests}},
	}
}

// markedAsPodClaim returns a claim that is marked as the claim for the extended resources of a Pod.
func markedAsPodClaim(
	claim *resourcev1.ResourceClaim, annotation string, owners ...metav1.OwnerReference,
) *resourcev1.ResourceClaim {
	claim.Annotations = map[string]string{resourcev1.ExtendedResourceClaimAnnotation: annotation}
	claim.OwnerReferences = owners
	return claim
}

func untyped(t *testing.T, obj runtime.Object) *unstructured.Unstructured {
	t.Helper()
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	if err != nil {
		t.Fatal(err)
	}
	return &unstructured.Unstructured{Object: content}
}

func formatUsage(usage corev1.ResourceList) string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(usage)) {
		quantity := usage[name]
		out = append(out, string(name)+"="+quantity.String())
	}
	return strings.Join(out, " ")
}

// TestUsageOfDevices checks the maximum number of devices of each class for a ResourceClaim, in
// each version of the kind.
func TestUsageOfDevices(t *testing.T) {
	const exact, all = resourcev1.DeviceAllocationModeExactCount, resourcev1.DeviceAllocationModeAll
	controller := func(version, kind string) metav1.OwnerReference {
		return metav1.OwnerReference{
			APIVersion: version,
			Kind:       kind,
			Name:       "p",
			Controller: new(true),
		}
	}
	pod, job := controller("v1", "Pod"), controller("batch/v1", "Job")
	first := resourcev1.DeviceRequest{FirstAvailable: []resourcev1.DeviceSubRequest{
		{DeviceClassName: "gpu", AllocationMode: exact, Count: 2},
		{DeviceClassName: "gpu", AllocationMode: exact, Count: 5},
		{DeviceClassName: "big", AllocationMode: all},
	}}
	old := &resourcev1beta1.ResourceClaim{Spec: resourcev1beta1.ResourceClaimSpec{Devices: resourcev1beta1.DeviceClaim{
		Requests: []resourcev1beta1.DeviceRequest{
			{DeviceClassName: "gpu", AllocationMode: resourcev1beta1.DeviceAllocationModeExactCount, Count: 3},
			{DeviceClassName: "gpu", AllocationMode: resourcev1beta1.DeviceAllocationModeAll},
			{FirstAvailable: []resourcev1beta1.DeviceSubRequest{{DeviceClassName: "big", Count: 2}}},
		},
	}}}
	for name, c := range map[string]struct {
		claim runtime.Object
		want  string
	}{
		"none":            {claimOf(), ""},
		"eight":           {claimOf(exactly("gpu", exact, 8)), "gpu=8"},
		"the default":     {claimOf(exactly("gpu", "", 0)), "gpu=1"},
		"all":             {claimOf(exactly("gpu", all, 0)), "gpu=32"},
		"an unknown mode": {claimOf(exactly("gpu", "Most", 1)), "gpu=32"},
		"several requests": {
			claimOf(exactly("gpu", exact, 8), exactly("gpu", exact, 1), exactly("big", exact, 1)), "big=1 gpu=9",
		},
		"alternatives":         {claimOf(first, exactly("gpu", exact, 1)), "big=32 gpu=6"},
		"an unknown request":   {claimOf(resourcev1.DeviceRequest{}), ""},
		"an older version":     {untyped(t, old), "big=2 gpu=35"},
		"of a Pod":             {markedAsPodClaim(claimOf(exactly("gpu", exact, 8)), "true", pod), ""},
		"of a Pod, not marked": {markedAsPodClaim(claimOf(exactly("gpu", exact, 8)), "false", pod), "gpu=8"},
		"without an owner":     {markedAsPodClaim(claimOf(exactly("gpu", exact, 8)), "true"), "gpu=8"},
		"of a Job":             {markedAsPodClaim(claimOf(exactly("gpu", exact, 8)), "true", job), "gpu=8"},
	} {
		t.Run(name, func(t *testing.T) {
			want := "count/resourceclaims.resource.k8s.io=1"
			for i, class := range strings.Fields(c.want) {
				class, number, _ := strings.Cut(class, "=")
				item := class + ".deviceclass.resource.k8s.io/devices=" + number
				if i == 0 && class < "count" {
					want = item + " " + want
				} else {
					want += " " + item
				}
			}
			for _, obj := range []runtime.Object{c.claim, untyped(t, c.claim)} {
				got, err := quota.Usage(deviceClaims, obj, nil, time.Now())
				if err != nil || formatUsage(got) != want {
					t.Errorf("%s as %T: %s, %v; want %s", name, obj, formatUsage(got), err, want)
				}
			}
		})
	}
	for _, obj := range []runtime.Object{
		nil, &corev1.Pod{}, &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"devices": "x"}}},
	} {
		o := admission.NewObjectInterfacesFromScheme(runtime.NewScheme())
		if got, err := quota.Usage(deviceClaims, obj, o, time.Now()); err == nil {
			t.Errorf("%T: %s", obj, formatUsage(got))
		}
	}
}

// TestDeviceNames checks that [quota.Classes.Extend] returns the same names of devices whether a
// Pod or a claim requests them.
func TestDeviceNames(t *testing.T) {
	classes := quota.Classes{
		{Name: "gpu", Extended: "example.com/gpu"}, {Name: "other", Extended: "example.com/gpu"}, {Name: "nic"},
	}
	const gpu, implicit, devices = "requests.example.com/gpu", "requests.deviceclass.resource.kubernetes.io/",
		".deviceclass.resource.k8s.io/devices"
	type list = map[corev1.ResourceName]int64
	for name, c := range map[string]struct{ is, want list }{
		"no devices":        {list{"requests.cpu": 1, "count/pods": 1}, list{"requests.cpu": 1, "count/pods": 1}},
		"the extended name": {list{gpu: 2}, list{gpu: 2, implicit + "gpu": 2, "gpu" + devices: 2}},
		"the implicit name": {list{implicit + "gpu": 2}, list{gpu: 2, implicit + "gpu": 2, "gpu" + devices: 2}},
		"a claim":           {list{"gpu" + devices: 2}, list{gpu: 2, implicit + "gpu": 2, "gpu" + devices: 2}},
		"both names":        {list{gpu: 2, implicit + "gpu": 3}, list{gpu: 5, implicit + "gpu": 5, "gpu" + devices: 5}},
		"another class":     {list{"other" + devices: 2}, list{gpu: 2, implicit + "other": 2, "other" + devices: 2}},
		"two classes": {
			list{"other" + devices: 2, gpu: 3},
			list{
				gpu:                5,
				implicit + "other": 2,
				"other" + devices:  2,
				implicit + "gpu":   3,
				"gpu" + devices:    3,
			},
		},
		"a class without an extended name": {list{"nic" + devices: 2}, list{implicit + "nic": 2, "nic" + devices: 2}},
		"a missing class":                  {list{"gone" + devices: 2}, list{implicit + "gone": 2, "gone" + devices: 2}},
		"another extended resource":        {list{"requests.example.com/x": 2}, list{"requests.example.com/x": 2}},
	} {
		t.Run(name, func(t *testing.T) {
			quantities := func(l list) corev1.ResourceList {
				out := corev1.ResourceList{}
				for name, number := range l {
					out[name] = *resource.NewQuantity(number, resource.DecimalSI)
				}
				return out
			}
			obj := quantities(c.is)
			if got, want := formatUsage(classes.Extend(obj)), formatUsage(quantities(c.want)); got != want {
				t.Errorf("%s, want %s", got, want)
			}
			if formatUsage(obj) != formatUsage(quantities(c.is)) {
				t.Errorf("the usage was changed to %s", formatUsage(obj))
			}
		})
	}
}

// TestDevicesAreLimited checks that a limit under one name of a device also applies to Pods and
// claims that request the device under another name. If the classes are unknown, every request for
// devices is denied.
func TestDevicesAreLimited(t *testing.T) {
	claiming := func(class string, mode resourcev1.DeviceAllocationMode, count int64) write {
		kind := resourcev1.SchemeGroupVersion.WithKind("ResourceClaim")
		return write{resource: deviceClaims.String(), kind: kind, obj: claimOf(exactly(class, mode, count))}
	}
	requesting := func(name corev1.ResourceName, number string) runtime.Object {
		return podOf(container(amounts{name: number}, amounts{name: number}))
	}
	for _, of := range []corev1.ResourceName{
		"requests.example.com/gpu", "requests.deviceclass.resource.kubernetes.io/gpu",
		"gpu.deviceclass.resource.k8s.io/devices",
	} {
		for name, c := range map[string]struct {
			write   write
			refused bool
		}{
			"a Pod":                       {write{obj: requesting("example.com/gpu", "2")}, false},
			"a Pod of eight":              {write{obj: requesting("example.com/gpu", "8")}, true},
			"a Pod by the class":          {write{obj: requesting("deviceclass.resource.kubernetes.io/gpu", "2")}, false},
			"a Pod of eight by the class": {write{obj: requesting("deviceclass.resource.kubernetes.io/gpu", "8")}, true},
			"a Pod of others":             {write{obj: requesting("example.com/nic", "8")}, false},
			"a claim":                     {claiming("gpu", "", 2), false},
			"a claim of eight":            {claiming("gpu", "", 8), true},
			"a claim of all":              {claiming("gpu", "All", 0), true},
			"a claim of another class":    {claiming("nic", "", 8), false},
		} {
			t.Run(name, func(t *testing.T) {
				known := func() (quota.Classes, error) {
					return quota.Classes{{Name: "gpu", Extended: "example.com/gpu"}}, nil
				}
				away := func() (quota.Classes, error) { return nil, errors.New("away") }
				for _, classes := range []func() (quota.Classes, error){known, away} {
					store := &ledger{states: []*quota.State{limited("q", amounts{of: "2"}, amounts{of: "0"})}}
					p := newPlugin(store, func(o *quota.Options) { o.Classes = classes })
					err := p.Validate(t.Context(), c.write.attributes(), nil)
					if _, e := classes(); e != nil {
						if err == nil {
							t.Errorf("%s of %s: admitted, although the classes are unknown", name, of)
						}
					} else if (err != nil) != c.refused || err != nil && !strings.Contains(err.Error(), "exceeded quota") {
						t.Errorf("%s of %s: %v", name, of, err)
					}
				}
			})
		}
	}
}

// TestOnlyTheSchedulerMarksPodClaims checks that a tenant cannot mark a claim, or a template from
// which a controller creates claims, as the claim of a Pod.
func TestOnlyTheSchedulerMarksPodClaims(t *testing.T) {
	by := func(name, id string) user.Info {
		return &user.DefaultInfo{Name: name, Extra: map[string][]string{tenant.ExtraKey: {id}}}
	}
	marked := map[string]string{resourcev1.ExtendedResourceClaimAnnotation: "true"}
	template := func(annotations map[string]string) runtime.Object {
		return &resourcev1.ResourceClaimTemplate{Spec: resourcev1.ResourceClaimTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Annotations: annotations},
		}}
	}
	claim := func(annotations map[string]string) runtime.Object {
		return &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Annotations: annotations}}
	}
	const controller = "system:serviceaccount:kube-system:resource-claim-controller"
	p := newPlugin(&ledger{}, func(o *quota.Options) {
		o.Subject = func(_ context.Context, u user.Info) (tenant.ID, error) { return tenant.Of(u) }
	})
	for kind, make := range map[string]func(map[string]string) runtime.Object{
		"ResourceClaim": claim, "ResourceClaimTemplate": template,
	} {
		t.Run(kind, func(t *testing.T) {
			for name, c := range map[string]struct {
				by      user.Info
				is, was map[string]string
				update  bool
				refused bool
			}{
				"the scheduler":                      {by("system:kube-scheduler", "system"), marked, nil, false, false},
				"a tenant":                           {by("alice", "a"), marked, nil, false, true},
				"a tenant with the scheduler's name": {by("system:kube-scheduler", "a"), marked, nil, false, true},
				"no tenant":                          {&user.DefaultInfo{Name: "system:kube-scheduler"}, marked, nil, false, true},
				"a controller":                       {by(controller, "system"), marked, nil, false, true},
				"kube-controller-manager":            {by("system:kube-controller-manager", "system"), marked, nil, false, true},
				"a tenant, in an update":             {by("alice", "a"), marked, nil, true, true},
				"a tenant, unchanged":                {by("alice", "a"), marked, marked, true, false},
				"a tenant removes it":                {by("alice", "a"), nil, marked, true, false},
				"a tenant without it":                {by("alice", "a"), map[string]string{"x": "true"}, nil, false, false},
			} {
				t.Run(name, func(t *testing.T) {
					gvk := resourcev1.SchemeGroupVersion.WithKind(kind)
					is, was, op := make(c.is), runtime.Object(nil), admission.Create
					if c.update {
						was, op = make(c.was), admission.Update
					}
					for _, untype := range []bool{false, true} {
						if untype {
							if is = untyped(t, is); was != nil {
								was = untyped(t, was)
							}
						}
						of := gvk.GroupVersion().WithResource(strings.ToLower(kind) + "s")
						a := admission.NewAttributesRecord(is, was, gvk, "a--web", "x", of, "", op, nil, false, c.by)
						if got := fmt.Sprint(p.Validate(t.Context(), a, nil)); (got != "<nil>") != c.refused ||
							c.refused && !strings.Contains(got, resourcev1.ExtendedResourceClaimAnnotation) {
							t.Errorf("untyped %t: %s", untype, got)
						}
					}
				})
			}
		})
	}
}
