// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package policy_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"sigs.k8s.io/yaml"

	"github.com/kubetenant/kubetenant/plugins"
	"github.com/kubetenant/kubetenant/plugins/policy"
	"github.com/kubetenant/kubetenant/plugins/workload"
	"github.com/kubetenant/kubetenant/tenant"
)

// read parses an object of a kind from YAML without the kind.
func read(t *testing.T, apiVersion, kind, text string) *unstructured.Unstructured {
	t.Helper()
	u := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(text), &u.Object); err != nil {
		t.Fatal(err)
	}
	u.SetAPIVersion(apiVersion)
	u.SetKind(kind)
	return u
}

// wantDenied fails the test unless the error denies exactly the items in want. Each has the form
// "field path=value".
func wantDenied(t *testing.T, name string, err error, want ...string) {
	t.Helper()
	got := fmt.Sprint(err)
	if n := strings.Count(got, "admission.policy."); n != len(want) || (err == nil) != (len(want) == 0) {
		t.Errorf("%s: %d refused, want %d: %s", name, n, len(want), got)
	}
	for _, w := range want {
		field, rest, _ := strings.Cut(w, " ")
		path, value, _ := strings.Cut(rest, "=")
		text := fmt.Sprintf("%s: Unsupported value: %q: admission.policy.%s allows", path, value, field)
		if value == "" {
			text = fmt.Sprintf("%s: Required value: admission.policy.%s allows", path, field)
		}
		if !strings.Contains(got, text) {
			t.Errorf("%s: %s, want %s", name, got, text)
		}
	}
}

// TestCheckedFields checks which fields of each kind are denied if nothing is allowed.
func TestCheckedFields(t *testing.T) {
	const gateways, experimental = "gateway.networking.k8s.io/v1", "gateway.networking.x-k8s.io/v1alpha1"
	p := plugin(acme(t), nil, plugins.Rules{})
	for _, c := range []struct {
		name, apiVersion, kind, text string
		want                         []string
	}{
		{"a Service of the default type", "v1", "Service", `{spec: {type: ClusterIP}}`, nil},
		{"a Service without a type", "v1", "Service", `{spec: {}}`, nil},
		{
			"a Service of type NodePort",
			"v1", "Service", `{spec: {type: NodePort}}`,
			[]string{"serviceTypes spec.type=NodePort"},
		},
		{
			"a Service with host annotations",
			"v1",
			"Service",
			`{metadata: {annotations: {external-dns.alpha.kubernetes.io/hostname: "a.example.com, b.example.com,", ` +
				`external-dns.io/internal-hostname: c, external-dns.io/ttl: d, other.io/hostname: e}}}`,
			[]string{
				"hosts metadata.annotations[external-dns.alpha.kubernetes.io/hostname]=a.example.com",
				"hosts metadata.annotations[external-dns.alpha.kubernetes.io/hostname]=b.example.com",
				"hosts metadata.annotations[external-dns.io/internal-hostname]=c",
			},
		},
		{
			"a claim with a storage class",
			"v1",
			"PersistentVolumeClaim",
			`{spec: {storageClassName: fast}}`,
			[]string{"storageClasses spec.storageClassName=fast"},
		},
		{
			"a claim without a storage class",
			"v1", "PersistentVolumeClaim", `{spec: {}}`,
			[]string{"storageClasses spec.storageClassName="},
		},
		{
			"a claim with a storage class in an annotation",
			"v1",
			"PersistentVolumeClaim",
			`{metadata: {annotations: {volume.beta.kubernetes.io/storage-class: slow}}, spec: {storageClassName: fast}}`,
			[]string{"storageClasses metadata.annotations[volume.beta.kubernetes.io/storage-class]=slow"},
		},
		{
			"an Ingress with a class",
			"networking.k8s.io/v1",
			"Ingress",
			`{spec: {ingressClassName: c}}`,
			[]string{"ingressClasses spec.ingressClassName=c"},
		},
		{
			"an Ingress without a class",
			"networking.k8s.io/v1", "Ingress", `{}`,
			[]string{"ingressClasses spec.ingressClassName="},
		},
		{
			"an Ingress with a class in an annotation",
			"networking.k8s.io/v1",
			"Ingress",
			`{metadata: {annotations: {kubernetes.io/ingress.class: o}}}`,
			[]string{"ingressClasses metadata.annotations[kubernetes.io/ingress.class]=o"},
		},
		{
			"an Ingress with two classes and a default backend",
			"networking.k8s.io/v1",
			"Ingress",
			`{metadata: {annotations: {kubernetes.io/ingress.class: o}}, spec: {ingressClassName: c, defaultBackend: {}}}`,
			[]string{
				"ingressClasses metadata.annotations[kubernetes.io/ingress.class]=o", "ingressClasses spec.ingressClassName=c",
				"hosts spec.defaultBackend=",
			},
		},
		{
			"an Ingress with hosts in rules, TLS and an annotation",
			"networking.k8s.io/v1",
			"Ingress",
			`{metadata: {annotations: {nginx.ingress.kubernetes.io/server-alias: "x y,z"}}, ` +
				`spec: {ingressClassName: c, rules: [{host: h}, {}], tls: [{hosts: [s]}, {}]}}`,
			[]string{
				"ingressClasses spec.ingressClassName=c", "hosts spec.rules[0].host=h", "hosts spec.rules[1].host=",
				"hosts spec.tls[0].hosts[0]=s", "hosts spec.tls[1].hosts=",
				"hosts metadata.annotations[nginx.ingress.kubernetes.io/server-alias]=x",
				"hosts metadata.annotations[nginx.ingress.kubernetes.io/server-alias]=y",
				"hosts metadata.annotations[nginx.ingress.kubernetes.io/server-alias]=z",
			},
		},
		{"a NetworkPolicy", "networking.k8s.io/v1", "NetworkPolicy", `{}`, nil},
		{"a Gateway without a class", gateways, "Gateway", `{spec: {}}`, []string{"gatewayClasses spec.gatewayClassName="}},
		{
			"a Gateway with listeners and an annotation",
			gateways,
			"Gateway",
			`{spec: {gatewayClassName: c, infrastructure: {annotations: {external-dns.io/hostname: i}}, ` +
				`listeners: [{hostname: h, protocol: HTTP}, {protocol: TLS}, {hostname: t, protocol: TCP}, {protocol: UDP}]}}`,
			[]string{
				"gatewayClasses spec.gatewayClassName=c", "hosts spec.listeners[0].hostname=h", "hosts spec.listeners[1].hostname=",
				"hosts spec.infrastructure.annotations[external-dns.io/hostname]=i",
			},
		},
		{
			"a ListenerSet with a host",
			gateways, "ListenerSet", `{spec: {listeners: [{hostname: h}]}}`,
			[]string{"hosts spec.listeners[0].hostname=h"},
		},
		{
			"an experimental ListenerSet with a host",
			experimental, "XListenerSet", `{spec: {listeners: [{hostname: h}]}}`,
			[]string{"hosts spec.listeners[0].hostname=h"},
		},
		{
			"an HTTPRoute with two hosts",
			gateways,
			"HTTPRoute",
			`{spec: {hostnames: [h, i]}}`,
			[]string{"hosts spec.hostnames[0]=h", "hosts spec.hostnames[1]=i"},
		},
		{"a GRPCRoute without a host", gateways, "GRPCRoute", `{spec: {}}`, []string{"hosts spec.hostnames="}},
		{
			"a TLSRoute with a host and an annotation",
			gateways,
			"TLSRoute",
			`{metadata: {annotations: {external-dns.io/hostname: a}}, spec: {hostnames: [h]}}`,
			[]string{"hosts spec.hostnames[0]=h", "hosts metadata.annotations[external-dns.io/hostname]=a"},
		},
		{"an HTTPRoute of a Service", gateways, "HTTPRoute", `{spec: {parentRefs: [{group: "", kind: Service}]}}`, nil},
		{
			"an HTTPRoute of a Service with a host",
			gateways,
			"HTTPRoute",
			`{spec: {hostnames: [h], parentRefs: [{group: "", kind: Service}]}}`,
			[]string{"hosts spec.hostnames[0]=h"},
		},
		{
			"an HTTPRoute of a Service in the default group",
			gateways, "HTTPRoute", `{spec: {parentRefs: [{kind: Service}]}}`,
			[]string{"hosts spec.hostnames="},
		},
		{
			"an HTTPRoute of a Gateway in the core group",
			gateways, "HTTPRoute", `{spec: {parentRefs: [{group: "", kind: Gateway}]}}`,
			[]string{"hosts spec.hostnames="},
		},
		{
			"an HTTPRoute of a Service and a Gateway",
			gateways,
			"HTTPRoute",
			`{spec: {parentRefs: [{group: "", kind: Service}, {name: g}]}}`,
			[]string{"hosts spec.hostnames="},
		},
		{
			"an HTTPRoute with an empty list of parents",
			gateways, "HTTPRoute", `{spec: {parentRefs: []}}`,
			[]string{"hosts spec.hostnames="},
		},
		{"a TCPRoute with hosts", gateways, "TCPRoute", `{spec: {hostnames: [h]}}`, nil},
		{
			"a UDPRoute with a host annotation",
			gateways,
			"UDPRoute",
			`{metadata: {annotations: {external-dns.io/hostname: a}}}`,
			[]string{"hosts metadata.annotations[external-dns.io/hostname]=a"},
		},
		{"a ReferenceGrant with hosts", gateways, "ReferenceGrant", `{spec: {hostnames: [h]}}`, nil},
		{"a Gateway of another API group", "example.com/v1", "Gateway", `{spec: {gatewayClassName: c}}`, nil},
		{
			"a Binding with a host annotation",
			"v1",
			"Binding",
			`{metadata: {annotations: {external-dns.io/hostname: a}}}`,
			[]string{"hosts metadata.annotations[external-dns.io/hostname]=a"},
		},
		{
			"a Pod with a host annotation",
			"v1",
			"Pod",
			`{metadata: {annotations: {external-dns.io/hostname: a}}}`,
			[]string{"hosts metadata.annotations[external-dns.io/hostname]=a"},
		},
		{
			"a template with a host annotation",
			"v1", "ReplicationController", `{spec: {template: {metadata: {annotations: {external-dns.io/hostname: a}}}}}`, nil,
		},
		{
			"a Pod with images and pull policies",
			"v1",
			"Pod",
			`{spec: {initContainers: [{image: i, imagePullPolicy: Never}], containers: [{image: c}, {}], ` +
				`ephemeralContainers: [{image: e}], volumes: [{name: v, image: {reference: r, pullPolicy: Always}}, {name: w}]}}`,
			[]string{
				"imageRegistries spec.initContainers[0].image=i", "imagePullPolicies spec.initContainers[0].imagePullPolicy=Never",
				"imageRegistries spec.containers[0].image=c", "imageRegistries spec.ephemeralContainers[0].image=e",
				"imageRegistries spec.volumes[0].image.reference=r", "imagePullPolicies spec.volumes[0].image.pullPolicy=Always",
			},
		},
		{
			"a Deployment with an image and ephemeral volumes",
			"apps/v1",
			"Deployment",
			`{spec: {template: {spec: {containers: [{image: c}], volumes: [{ephemeral: {volumeClaimTemplate: {spec: ` +
				`{storageClassName: fast}}}}, {ephemeral: {volumeClaimTemplate: {spec: {}}}}]}}}}`,
			[]string{
				"imageRegistries spec.template.spec.containers[0].image=c",
				"storageClasses spec.template.spec.volumes[0].ephemeral.volumeClaimTemplate.spec.storageClassName=fast",
			},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			obj := read(t, c.apiVersion, c.kind, c.text)
			wantDenied(t, c.text, p.Validate(t.Context(), creating(obj, caller("a")), nil), c.want...)
		})
	}
}

// TestUnreadableObjectsAreDenied checks that an object that cannot be read is denied.
func TestUnreadableObjectsAreDenied(t *testing.T) {
	const gateways = "gateway.networking.k8s.io/v1"
	open := plugins.Rules{}
	for _, field := range []string{
		policy.ImageRegistries, policy.Hosts, policy.GatewayClasses, policy.StorageClasses, policy.ServiceTypes,
	} {
		open[field] = plugins.Rule{Policy: plugins.Ignore}
	}
	p := plugin(acme(t), nil, open)
	for _, c := range [][3]string{
		{gateways, "Gateway", `{spec: {gatewayClassName: 1}}`},
		{gateways, "Gateway", `{spec: {listeners: x}}`},
		{gateways, "Gateway", `{spec: {listeners: [x]}}`},
		{gateways, "Gateway", `{spec: {listeners: [{hostname: 1}]}}`},
		{gateways, "Gateway", `{spec: {listeners: [{hostname: 1, protocol: TCP}]}}`},
		{gateways, "Gateway", `{spec: {infrastructure: {annotations: {x: 1}}}}`},
		{gateways, "HTTPRoute", `{spec: {hostnames: x}}`},
		{gateways, "HTTPRoute", `{spec: {hostnames: [1]}}`},
		{"v1", "Service", `{spec: {type: 1}}`},
		{"v1", "PersistentVolumeClaim", `{spec: x}`},
		{"v1", "Pod", `{spec: {containers: [{image: 1}]}}`},
		{"apps/v1", "StatefulSet", `{spec: {template: {spec: {}}, volumeClaimTemplates: x}}`},
	} {
		if err := p.Validate(t.Context(), creating(read(t, c[0], c[1], c[2]), caller("a")), nil); err == nil {
			t.Errorf("%s %s is admitted", c[1], c[2])
		}
	}
	for _, obj := range []runtime.Object{nil, &metav1.Status{}} {
		a := admission.NewAttributesRecord(obj, nil, corev1.SchemeGroupVersion.WithKind("Binding"), "ns", "x",
			corev1.SchemeGroupVersion.WithResource("pods"), "binding", admission.Create, nil, false, caller("a"))
		if err := p.Validate(t.Context(), a, nil); err == nil {
			t.Errorf("a binding that is %v is admitted", obj)
		}
	}
}

// TestUpdatesMayRetainValues checks that an update may use a value that the same field of the old
// object had in any element of a list.
func TestUpdatesMayRetainValues(t *testing.T) {
	p := plugin(acme(t), nil, plugins.Rules{})
	service := func(kind corev1.ServiceType) *corev1.Service {
		return &corev1.Service{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Service"},
			Spec:     corev1.ServiceSpec{Type: kind},
		}
	}
	two := pod("b")
	two.Spec.Containers = append(two.Spec.Containers, corev1.Container{Image: "a"})
	always := pod("")
	always.Spec.Containers[0].ImagePullPolicy = corev1.PullAlways
	wantDenied(t, "the same", p.Validate(t.Context(), writing(service("NodePort"), service("NodePort"), caller("a")), nil))
	wantDenied(
		t,
		"another",
		p.Validate(t.Context(), writing(service("NodePort"), service("LoadBalancer"), caller("a")), nil),
		"serviceTypes spec.type=NodePort",
	)
	wantDenied(t, "another element", p.Validate(t.Context(), writing(two, pod("a"), caller("a")), nil),
		"imageRegistries spec.containers[0].image=b")
	wantDenied(
		t,
		"the same value in another field",
		p.Validate(t.Context(), writing(pod("Always"), always, caller("a")), nil),
		"imageRegistries spec.containers[0].image=Always",
	)
}

// TestSubresources checks that only the annotations are checked in the status of a Pod, and that
// nothing is checked in the status of other workloads.
func TestSubresources(t *testing.T) {
	p := plugin(acme(t), nil, plugins.Rules{})
	annotated := pod("x")
	annotated.Annotations = map[string]string{"external-dns.io/hostname": "h"}
	deployment := &appsv1.Deployment{Spec: appsv1.DeploymentSpec{Template: corev1.PodTemplateSpec{Spec: annotated.Spec}}}
	for name, c := range map[string]struct {
		kind                   schema.GroupVersionKind
		subresource, namespace string
		is                     runtime.Object
		want                   []string
	}{
		"the status of a Pod": {
			corev1.SchemeGroupVersion.WithKind("Pod"),
			"status",
			"ns",
			annotated,
			[]string{"hosts metadata.annotations[external-dns.io/hostname]=h"},
		},
		"the ephemeral containers of a Pod": {
			corev1.SchemeGroupVersion.WithKind("Pod"),
			"ephemeralcontainers",
			"ns",
			annotated,
			[]string{"hosts metadata.annotations[external-dns.io/hostname]=h", "imageRegistries spec.containers[0].image=x"},
		},
		"the status of a Deployment": {appsv1.SchemeGroupVersion.WithKind("Deployment"), "status", "ns", deployment, nil},
		"a Deployment": {
			appsv1.SchemeGroupVersion.WithKind("Deployment"),
			"",
			"ns",
			deployment,
			[]string{"imageRegistries spec.template.spec.containers[0].image=x"},
		},
		"a Deployment without a namespace": {appsv1.SchemeGroupVersion.WithKind("Deployment"), "", "", deployment, nil},
	} {
		t.Run(name, func(t *testing.T) {
			was := runtime.Object(&corev1.Pod{})
			if c.kind.Kind == "Deployment" {
				was = &appsv1.Deployment{}
			}
			a := admission.NewAttributesRecord(c.is, was, c.kind, c.namespace, "x", schema.GroupVersionResource{},
				c.subresource, admission.Update, nil, false, caller("a"))
			wantDenied(t, "an update", p.Validate(t.Context(), a, nil), c.want...)
		})
	}
}

// TestReads checks for which kinds [policy.Reads] returns true.
func TestReads(t *testing.T) {
	for kind, want := range map[schema.GroupKind]bool{
		{Group: "gateway.networking.k8s.io", Kind: "Gateway"}:        true,
		{Group: "gateway.networking.x-k8s.io", Kind: "XListenerSet"}: true,
		{Group: "gateway.networking.k8s.io", Kind: "TCPRoute"}:       true,
		{Group: "gateway.networking.k8s.io", Kind: "ReferenceGrant"}: false,
		{Group: "example.com", Kind: "Gateway"}:                      false,
		{Kind: "Pod"}:                                                false,
	} {
		t.Run(kind.String(), func(t *testing.T) {
			if got := policy.Reads(kind); got != want {
				t.Errorf("Reads() = %t", got)
			}
		})
	}
}

// TestEntries checks which values an entry of each list allows, for tenant a and for a tenant whose
// name is not a DNS label.
func TestEntries(t *testing.T) {
	for _, c := range []struct {
		field, value, entry string
		a, dotted           bool
	}{
		{policy.ImageRegistries, "nginx", "docker.io", true, true},
		{policy.ImageRegistries, "nginx", "docker.io/library/nginx", true, true},
		{policy.ImageRegistries, "nginx", "docker.io/library/ngin", false, false},
		{policy.ImageRegistries, "r.example.com/a/x:1", "r.example.com/{tenant}", true, false},
		{policy.ImageRegistries, "r.example.com/ab/x", "r.example.com/{tenant}", false, false},
		{policy.ImageRegistries, "R.example.com/x", "r.example.com", true, true},
		{policy.ImageRegistries, "r.example.com:5000/x", "r.example.com", false, false},
		{policy.ImageRegistries, "sha256:" + strings.Repeat("a", 64), "docker.io", false, false},
		{policy.ImageRegistries, "sha256", "docker.io", false, false},
		{policy.ImageRegistries, "sha384:x", "docker.io", false, false},
		{policy.ImageRegistries, "sha512", "docker.io/library/sha512", false, false},
		{policy.ImageRegistries, "Not An Image", "docker.io", false, false},
		{policy.Hosts, "x.example.com", "x.example.com", true, true},
		{policy.Hosts, "X.example.com", "x.example.com", true, true},
		{policy.Hosts, "y.x.example.com", "x.example.com", false, false},
		{policy.Hosts, "y.x.example.com", "*.x.example.com", true, true},
		{policy.Hosts, "*.x.example.com", "*.x.example.com", true, true},
		{policy.Hosts, "*", "*", false, false},
		{policy.Hosts, "x.a.example.com", "*.{tenant}.example.com", true, false},
		{policy.Hosts, "x.example.com,y", "*", false, false},
		{policy.IngressClasses, "a", "{tenant}", true, false},
		{policy.IngressClasses, "nginx", "nginx", true, true},
		{policy.IngressClasses, "nginx-2", "nginx", false, false},
	} {
		obj := runtime.Object(pod(c.value))
		switch c.field {
		case policy.Hosts:
			obj = read(t, "gateway.networking.k8s.io/v1", "HTTPRoute", fmt.Sprintf("{spec: {hostnames: [%q]}}", c.value))
		case policy.IngressClasses:
			obj = read(t, "networking.k8s.io/v1", "Ingress", fmt.Sprintf("{spec: {ingressClassName: %q}}", c.value))
		}
		for name, want := range map[string]bool{"a": c.a, "x.y": c.dotted} {
			t.Run(name, func(t *testing.T) {
				err := newPlugin(name, plugins.Rules{c.field: {Policy: plugins.AllowListed, Allowed: []string{"else", c.entry}}}).
					Validate(t.Context(), creating(obj, caller("system")), nil)
				if (err == nil) != want {
					t.Errorf("%s, %q by %q for %s: %v", c.field, c.value, c.entry, name, err)
				}
				if name == "x.y" && err != nil && strings.Contains(err.Error(), "{tenant}") {
					t.Errorf("the error contains an entry that does not apply to the tenant: %v", err)
				}
			})
		}
	}
}

// newPlugin returns the plugin for a tenant with the given name.
func newPlugin(name string, rules plugins.Rules) admission.ValidationInterface {
	return policy.New(policy.Options{
		Kinds:   workload.New(nil),
		Subject: func(context.Context, user.Info) (tenant.ID, error) { return tenant.System(), nil },
		Rules:   func(tenant.ID) plugins.Rules { return rules },
		Owner:   func(context.Context, string) (tenant.ID, error) { return tenant.Parse(name) },
	})
}

// TestDefaultGateways checks that a route that is attached to the default Gateways is not a mesh
// route. A tenant with a list of hosts may not define a default Gateway. A value that is not a
// string is treated as a value other than None.
func TestDefaultGateways(t *testing.T) {
	services := []any{map[string]any{"group": "", "kind": "Service", "name": "web"}}
	for _, c := range []struct {
		value    any
		defaults bool
	}{
		{nil, false},
		{"", false},
		{"None", false},
		{"All", true},
		{"all", true},
		{"none", true},
		{"Zone", true},
		{true, true},
		{map[string]any{}, true},
	} {
		for kind, spec := range map[string]map[string]any{
			"HTTPRoute": {"parentRefs": services, "useDefaultGateways": c.value},
			"GRPCRoute": {"parentRefs": services, "useDefaultGateways": c.value},
			"TLSRoute":  {"parentRefs": services, "useDefaultGateways": c.value},
			"Gateway":   {"defaultScope": c.value},
		} {
			t.Run(kind, func(t *testing.T) {
				for _, group := range []string{"gateway.networking.k8s.io/v1", "gateway.networking.x-k8s.io/v1alpha1"} {
					u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": group, "kind": kind, "spec": spec}}
					rules := plugins.Rules{
						policy.Hosts:          {Policy: plugins.AllowListed, Allowed: []string{"*.example.com", "all", "*"}},
						policy.GatewayClasses: {Policy: plugins.Ignore},
					}
					err := plugin(acme(t), nil, rules).Validate(t.Context(), creating(u, caller("a")), nil)
					if (err != nil) != c.defaults {
						t.Errorf("%s %s with %v: %v", group, kind, c.value, err)
					}
					rules[policy.Hosts] = plugins.Rule{Policy: plugins.Ignore}
					if err = plugin(acme(t), nil, rules).Validate(t.Context(), creating(u, caller("a")), nil); err != nil {
						t.Errorf("%s %s with %v, any host: %v", group, kind, c.value, err)
					}
				}
			})
		}
	}
}
