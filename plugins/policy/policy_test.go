// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package policy_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/distribution/reference"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/kubetenant/kubetenant/plugins"
	"github.com/kubetenant/kubetenant/plugins/policy"
	"github.com/kubetenant/kubetenant/plugins/workload"
	"github.com/kubetenant/kubetenant/tenant"
)

// acme returns the ID of tenant a.
func acme(t testing.TB) tenant.ID {
	t.Helper()
	id, err := tenant.Parse("a")
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func plugin(owner tenant.ID, ownerErr error, rules plugins.Rules) admission.ValidationInterface {
	return policy.New(policy.Options{
		Subject: func(_ context.Context, u user.Info) (tenant.ID, error) { return tenant.Of(u) },
		Owner:   func(context.Context, string) (tenant.ID, error) { return owner, ownerErr },
		Kinds:   workload.New(nil),
		Rules:   func(tenant.ID) plugins.Rules { return rules },
	})
}

func caller(id string, groups ...string) user.Info {
	return &user.DefaultInfo{Name: "x", Groups: groups, Extra: map[string][]string{tenant.ExtraKey: {id}}}
}

func creating(obj runtime.Object, u user.Info) admission.Attributes {
	return writing(obj, nil, u)
}

func writing(obj, old runtime.Object, u user.Info) admission.Attributes {
	kind := corev1.SchemeGroupVersion.WithKind("Pod")
	if k := obj.GetObjectKind().GroupVersionKind(); k.Kind != "" {
		kind = k
	}
	op := admission.Create
	if old != nil {
		op = admission.Update
	}
	return admission.NewAttributesRecord(obj, old, kind, "ns", "x",
		schema.GroupVersionResource{Version: kind.Version, Group: kind.Group}, "", op, nil, false, u)
}

func pod(image string) *corev1.Pod {
	return &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Image: image}}}}
}

// TestCheckedCallers checks that every caller except a kubelet is checked in a tenant's namespace.
// If the owner of the namespace is unknown, the write is denied.
func TestCheckedCallers(t *testing.T) {
	a := acme(t)
	zero := plugins.Rules{}
	for name, c := range map[string]struct {
		plugin admission.ValidationInterface
		by     user.Info
		held   bool
	}{
		"a tenant":                        {plugin(a, nil, zero), caller("a"), true},
		"the system tenant":               {plugin(a, nil, zero), caller("system"), true},
		"a kubelet":                       {plugin(a, nil, zero), caller("system", user.NodesGroup), false},
		"a tenant in the kubelets' group": {plugin(a, nil, zero), caller("a", user.NodesGroup), true},
		"no tenant, kubelets' group": {
			plugin(a, nil, zero), &user.DefaultInfo{Name: "x", Groups: []string{user.NodesGroup}}, true,
		},
		"the system tenant's namespace": {plugin(tenant.System(), nil, zero), caller("a"), false},
		"an unowned namespace":          {plugin(tenant.ID{}, nil, zero), caller("a"), true},
		"a failed owner lookup":         {plugin(tenant.System(), errors.New("away"), zero), caller("system"), true},
		"a tenant without rules":        {plugin(a, nil, nil), caller("a"), false},
	} {
		t.Run(name, func(t *testing.T) {
			err := c.plugin.Validate(t.Context(), creating(pod("nginx"), c.by), nil)
			if (err != nil) != c.held {
				t.Errorf("%v", err)
			}
		})
	}
}

// TestZeroRulesAllowNothing checks that each field is denied if there are no rules.
func TestZeroRulesAllowNothing(t *testing.T) {
	p := plugin(acme(t), nil, plugins.Rules{})
	object := func(apiVersion, kind string, spec map[string]any) runtime.Object {
		return &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": apiVersion,
			"kind":       kind,
			"metadata":   map[string]any{},
			"spec":       spec,
		}}
	}
	for field, obj := range map[string]runtime.Object{
		policy.ImageRegistries: pod("nginx"),
		policy.ImagePullPolicies: &corev1.Pod{
			Spec: corev1.PodSpec{Containers: []corev1.Container{{ImagePullPolicy: corev1.PullAlways}}},
		},
		policy.IngressClasses: object("networking.k8s.io/v1", "Ingress", map[string]any{"ingressClassName": "c"}),
		policy.GatewayClasses: object("gateway.networking.k8s.io/v1", "Gateway", map[string]any{"gatewayClassName": "c"}),
		policy.Hosts: object("gateway.networking.k8s.io/v1", "HTTPRoute",
			map[string]any{"hostnames": []any{"h.example.com"}}),
		policy.StorageClasses: object("v1", "PersistentVolumeClaim", map[string]any{"storageClassName": "c"}),
		policy.ServiceTypes:   object("v1", "Service", map[string]any{"type": "LoadBalancer"}),
	} {
		t.Run(field, func(t *testing.T) {
			err := p.Validate(t.Context(), creating(obj, caller("a")), nil)
			if err == nil || !strings.Contains(err.Error(), "admission.policy."+field+" allows none") {
				t.Errorf("%v", err)
			}
		})
	}
}

// TestErrorsNameAllDeniedFields checks that an error names all denied fields.
func TestErrorsNameAllDeniedFields(t *testing.T) {
	p := plugin(acme(t), nil,
		plugins.Rules{policy.ImageRegistries: {Policy: plugins.AllowListed, Allowed: []string{"docker.io/{tenant}"}}})
	obj := pod("nginx")
	obj.Spec.InitContainers = []corev1.Container{{Image: "busybox", ImagePullPolicy: corev1.PullNever}}
	err := p.Validate(t.Context(), creating(obj, caller("a")), nil)
	for _, want := range []string{
		`spec.containers[0].image: Unsupported value: "nginx": admission.policy.imageRegistries allows docker.io/a`,
		`spec.initContainers[0].image: Unsupported value: "busybox"`, "spec.initContainers[0].imagePullPolicy",
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not contain %s", err, want)
		}
	}
}

// TestFinalizersOfUnreadableObjects checks that the finalizers of an object that cannot be read may
// be removed while the object is being deleted. All other updates of the object are denied.
func TestFinalizersOfUnreadableObjects(t *testing.T) {
	p := plugin(acme(t), nil, plugins.Rules{})
	now := metav1.Now()
	broken := func(deleted *metav1.Time) runtime.Object {
		u := &unstructured.Unstructured{
			Object: map[string]any{
				"apiVersion": "gateway.networking.k8s.io/v1",
				"kind":       "Gateway",
				"spec":       map[string]any{"listeners": "x", "gatewayClassName": "c"},
			},
		}
		u.SetDeletionTimestamp(deleted)
		return u
	}
	if err := p.Validate(t.Context(), writing(broken(&now), broken(&now), caller("a")), nil); err != nil {
		t.Error(err)
	}
	changed := broken(&now).(*unstructured.Unstructured)
	changed.SetFinalizers([]string{"example.com/x"})
	if err := p.Validate(t.Context(), writing(broken(&now), changed, caller("a")), nil); err != nil {
		t.Error(err)
	}
	changed.Object["spec"].(map[string]any)["gatewayClassName"] = "other"
	if err := p.Validate(t.Context(), writing(broken(&now), changed, caller("a")), nil); err == nil {
		t.Error("another class was admitted, because the object is being deleted")
	}
	if err := p.Validate(t.Context(), writing(broken(nil), broken(nil), caller("a")), nil); err == nil {
		t.Error("an unreadable object was admitted")
	}
	unknown := admission.NewAttributesRecord(pod(""), nil, corev1.SchemeGroupVersion.WithKind("Pod"), "ns", "x",
		corev1.SchemeGroupVersion.WithResource("pods"), "", admission.Update, nil, false, caller("a"))
	if err := p.Validate(t.Context(), unknown, nil); err == nil {
		t.Error("an update without an old object was admitted")
	}
	metadata := &metav1.PartialObjectMetadata{
		TypeMeta: metav1.TypeMeta{APIVersion: "gateway.networking.k8s.io/v1", Kind: "Gateway"},
	}
	if err := p.Validate(t.Context(), creating(metadata, caller("a")), nil); err == nil {
		t.Error("metadata alone was admitted")
	}
}

// FuzzImages checks that an image that an entry for a repository allows belongs to that repository.
func FuzzImages(f *testing.F) {
	for _, image := range []string{
		"nginx", "r.example.com/a/x:1", "r.example.com/a", "R.example.com/a/x", "r.example.com/ab", "r.example.com:5000/a",
		"r.example.com/a@sha256:x", "r.example.com/../a",
	} {
		f.Add(image)
	}
	p := plugin(acme(f), nil,
		plugins.Rules{policy.ImageRegistries: {Policy: plugins.AllowListed, Allowed: []string{"r.example.com/{tenant}"}}})
	f.Fuzz(func(t *testing.T, image string) {
		if err := p.Validate(t.Context(), creating(pod(image), caller("a")), nil); err != nil || image == "" {
			return
		}
		named, err := reference.ParseNormalizedNamed(image)
		if err != nil || !strings.EqualFold(reference.Domain(named), "r.example.com") ||
			reference.Path(named) != "a" && !strings.HasPrefix(reference.Path(named), "a/") {
			t.Errorf("%q: %v, %v", image, named, err)
		}
	})
}

// FuzzHosts checks that a host that an entry allows is below the entry's domain, and is exactly one
// host.
func FuzzHosts(f *testing.F) {
	for _, host := range []string{
		"a.example.com", "x.a.example.com", "*.a.example.com", "x.A.example.com", "xa.example.com", "x.a.example.com.",
		"~^x.a.example.com", "x,y.a.example.com", "",
	} {
		f.Add(host)
	}
	p := plugin(acme(f), nil,
		plugins.Rules{policy.Hosts: {Policy: plugins.AllowListed, Allowed: []string{"*.{tenant}.example.com"}}})
	f.Fuzz(func(t *testing.T, host string) {
		route := &unstructured.Unstructured{
			Object: map[string]any{
				"apiVersion": "gateway.networking.k8s.io/v1",
				"kind":       "HTTPRoute",
				"spec":       map[string]any{"hostnames": []any{host}},
			},
		}
		if err := p.Validate(t.Context(), creating(route, caller("a")), nil); err != nil {
			return
		}
		if !strings.HasSuffix(strings.ToLower(host), ".a.example.com") ||
			strings.Trim(strings.ToLower(host), "*abcdefghijklmnopqrstuvwxyz0123456789.-") != "" ||
			strings.LastIndex(host, "*") > 0 {
			t.Errorf("%q is admitted", host)
		}
	})
}
