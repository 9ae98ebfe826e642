// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"

	"github.com/kubetenant/kubetenant/plugins"
	"github.com/kubetenant/kubetenant/plugins/workload"
)

// The fields that are governed, by the names of their lists.
const (
	// ImageRegistries are of the images of containers and volumes: registries, or
	// repositories with all beneath them.
	ImageRegistries = "imageRegistries"
	// ImagePullPolicies are of those images too. One that is not said yet
	// passes: the server writes it.
	ImagePullPolicies = "imagePullPolicies"
	// IngressClasses are demanded of every Ingress, by spec.ingressClassName or the older annotation.
	IngressClasses = "ingressClasses"
	// GatewayClasses are demanded of every Gateway.
	GatewayClasses = "gatewayClasses"
	// Hosts are of ingresses, gateways and their routes. What names none
	// serves all, and is on no list.
	Hosts = "hosts"
	// StorageClasses are demanded of every PersistentVolumeClaim; the templates
	// of claims may name none.
	StorageClasses = "storageClasses"
	// ServiceTypes are those of Services but ClusterIP, which every tenant may have.
	ServiceTypes = "serviceTypes"
)

// item is one thing that an object asks for.
type item struct {
	field, path string
	value       string // empty where the object leaves it to the cluster
}

// reader returns what an object asks for. An error means that it MUST be refused.
type reader func(runtime.Object, admission.ObjectInterfaces) ([]item, error)

// serverAlias names hosts beside those of the spec, for ingress-nginx (v1.15).
const serverAlias = "nginx.ingress.kubernetes.io/server-alias"

// isExternalDNS reports whether external-dns (v0.23) reads hosts from an annotation, whatever
// prefix it is configured with: external-dns.kubernetes.io by default,
// external-dns.alpha.kubernetes.io before v0.22.
func isExternalDNS(key string) bool {
	domain, name, _ := strings.Cut(key, "/")
	return strings.HasPrefix(domain, "external-dns.") && (name == "hostname" || name == "internal-hostname")
}

// storageClassAnnotation is the older place of a claim's class, which takes precedence
// (k8s.io/component-helpers storage/volume, v0.37.1).
const storageClassAnnotation = corev1.BetaStorageClassAnnotation

// ingressClassAnnotation is the older place of an Ingress's class (k8s.io/api
// networking/v1, v0.37.1).
const ingressClassAnnotation = "kubernetes.io/ingress.class"

// gatewayAPI are the groups of the Gateway API, whose kinds are custom resources.
var gatewayAPI = map[string]bool{"gateway.networking.k8s.io": true, "gateway.networking.x-k8s.io": true}

// Reads reports whether the plugin looks into the objects of a custom kind, whatever the
// configuration says of workloads.
func Reads(kind schema.GroupKind) bool { return gatewayAPI[kind.Group] && gateway(kind.Kind) != nil }

// reader returns what reads the object of a write, nil where nothing of it is governed. A
// status is among what is read, since annotations may be changed with it; but nothing else of
// pods and their templates is.
func (p *plugin) reader(a admission.Attributes) reader {
	kind := a.GetKind()
	switch kind.GroupKind() {
	case schema.GroupKind{Kind: "Service"}:
		return versioned(kind, service)
	case schema.GroupKind{Kind: "PersistentVolumeClaim"}:
		return versioned(kind, claim)
	case schema.GroupKind{Group: networkingv1.GroupName, Kind: "Ingress"}:
		return versioned(kind, ingress)
	}
	if gatewayAPI[kind.Group] {
		return gateway(kind.Kind)
	}
	isPod := workload.IsPod(kind.GroupKind())
	if kind.GroupKind() == (schema.GroupKind{Kind: "Binding"}) || isPod && a.GetSubresource() == "status" {
		return annotated // which a pod takes over
	}
	if _, describes := p.Kinds[kind.GroupKind()]; describes && a.GetSubresource() != "status" {
		return func(obj runtime.Object, o admission.ObjectInterfaces) ([]item, error) { return p.pods(obj, kind, o) }
	}
	return nil
}

func versioned[T any](kind schema.GroupVersionKind, read func(*T) []item) reader {
	return func(obj runtime.Object, o admission.ObjectInterfaces) ([]item, error) {
		is, err := plugins.Versioned[T](obj, kind, o)
		if err != nil {
			return nil, err
		}
		return read(is), nil
	}
}

// pods are the images in a Pod or the templates of pods in an object, and the classes of the
// claims that are made of it.
func (p *plugin) pods(obj runtime.Object, kind schema.GroupVersionKind, o admission.ObjectInterfaces) ([]item, error) {
	is, err := p.Kinds.Read(obj, kind, o)
	if err != nil {
		return nil, err
	}
	if is == nil {
		return nil, plugins.ErrObject
	}
	var items []item
	if workload.IsPod(kind.GroupKind()) {
		items = annotatedHosts(is.Templates[0].Meta)
	}
	for _, t := range is.Templates {
		for _, i := range images(t.Spec) {
			i.path = t.Field("spec." + i.path)
			items = append(items, i)
		}
	}
	claims, err := is.Claims()
	if err != nil {
		return nil, err
	}
	for _, c := range claims {
		if i := storageClass(c.Path+".", c.Meta, c.Spec); i.value != "" {
			items = append(items, i)
		}
	}
	return items, nil
}

func images(s *corev1.PodSpec) []item {
	var items []item
	add := func(path, name, image string, policy corev1.PullPolicy) {
		if image != "" { // what comes here with none gets it by an update
			items = append(items, item{ImageRegistries, path + "." + name, image})
		}
		if policy != "" {
			items = append(items, item{ImagePullPolicies, path + "." + pullPolicy[name], string(policy)})
		}
	}
	for i := range s.InitContainers {
		add(fmt.Sprintf("initContainers[%d]", i), "image", s.InitContainers[i].Image, s.InitContainers[i].ImagePullPolicy)
	}
	for i := range s.Containers {
		add(fmt.Sprintf("containers[%d]", i), "image", s.Containers[i].Image, s.Containers[i].ImagePullPolicy)
	}
	for i := range s.EphemeralContainers {
		add(fmt.Sprintf("ephemeralContainers[%d]", i), "image", s.EphemeralContainers[i].Image,
			s.EphemeralContainers[i].ImagePullPolicy)
	}
	for i := range s.Volumes {
		if image := s.Volumes[i].Image; image != nil {
			add(fmt.Sprintf("volumes[%d].image", i), "reference", image.Reference, image.PullPolicy)
		}
	}
	return items
}

// pullPolicy is the name of the policy beside an image's.
var pullPolicy = map[string]string{"image": "imagePullPolicy", "reference": "pullPolicy"}

func claim(c *corev1.PersistentVolumeClaim) []item {
	return []item{storageClass("", c, &c.Spec)}
}

func storageClass(path string, m metav1.Object, s *corev1.PersistentVolumeClaimSpec) item {
	if class, has := m.GetAnnotations()[storageClassAnnotation]; has {
		return item{StorageClasses, path + "metadata.annotations[" + storageClassAnnotation + "]", class}
	}
	i := item{field: StorageClasses, path: path + "spec.storageClassName"}
	if s.StorageClassName != nil {
		i.value = *s.StorageClassName
	}
	return i
}

func service(s *corev1.Service) []item {
	items := annotatedHosts(s)
	if s.Spec.Type != "" && s.Spec.Type != corev1.ServiceTypeClusterIP {
		items = append(items, item{ServiceTypes, "spec.type", string(s.Spec.Type)})
	}
	return items
}

// annotated are the hosts in the annotations of any object.
func annotated(obj runtime.Object, _ admission.ObjectInterfaces) ([]item, error) {
	m, err := meta.Accessor(obj)
	if err != nil {
		return nil, plugins.ErrObject
	}
	return annotatedHosts(m), nil
}

func annotatedHosts(m metav1.Object) []item {
	return hostsOf("metadata.annotations", m.GetAnnotations())
}

// hostsOf are the hosts in annotations, as each controller separates them.
func hostsOf(path string, annotations map[string]string) []item {
	var items []item
	for _, key := range slices.Sorted(maps.Keys(annotations)) {
		var all []string
		switch {
		case key == serverAlias:
			all = strings.FieldsFunc(annotations[key], func(r rune) bool { return r == ',' || r == ' ' })
		case isExternalDNS(key): // v0.23 source/annotations
			all = strings.Split(strings.ReplaceAll(annotations[key], " ", ""), ",")
		}
		for _, host := range all {
			if host != "" {
				items = append(items, item{Hosts, path + "[" + key + "]", host})
			}
		}
	}
	return items
}

func ingress(g *networkingv1.Ingress) []item {
	items := annotatedHosts(g)
	class, annotated := g.Annotations[ingressClassAnnotation]
	if annotated {
		items = append(items, item{IngressClasses, "metadata.annotations[" + ingressClassAnnotation + "]", class})
	}
	if g.Spec.IngressClassName != nil {
		items = append(items, item{IngressClasses, "spec.ingressClassName", *g.Spec.IngressClassName})
	} else if !annotated {
		items = append(items, item{IngressClasses, "spec.ingressClassName", ""})
	}
	if g.Spec.DefaultBackend != nil {
		items = append(items, item{Hosts, "spec.defaultBackend", ""})
	}
	for i := range g.Spec.Rules {
		items = append(items, item{Hosts, fmt.Sprintf("spec.rules[%d].host", i), g.Spec.Rules[i].Host})
	}
	for i := range g.Spec.TLS {
		items = append(items, hosts(fmt.Sprintf("spec.tls[%d].hosts", i), g.Spec.TLS[i].Hosts)...)
	}
	return items
}

// hosts are those of a list; an empty one is all hosts.
func hosts(path string, list []string) []item {
	if len(list) == 0 {
		return []item{{Hosts, path, ""}}
	}
	items := make([]item, 0, len(list))
	for i, host := range list {
		items = append(items, item{Hosts, fmt.Sprintf("%s[%d]", path, i), host})
	}
	return items
}

// gateway returns what reads objects of a kind of the Gateway API (v1.4), nil where
// nothing of it is governed.
func gateway(kind string) reader {
	var read func(map[string]any) ([]item, error)
	switch kind {
	case "Gateway":
		read = func(object map[string]any) ([]item, error) {
			class, _, err := unstructured.NestedString(object, "spec", "gatewayClassName")
			if err != nil {
				return nil, plugins.ErrObject
			}
			items, err := listeners(object)
			if err != nil {
				return nil, err
			}
			// of what the controller makes
			made, _, err := unstructured.NestedStringMap(object, "spec", "infrastructure", "annotations")
			if err != nil {
				return nil, plugins.ErrObject
			}
			items = append(items, hostsOf("spec.infrastructure.annotations", made)...)
			if usesDefault(object, "defaultScope") {
				items = append(items, item{Hosts, "spec.defaultScope", allHosts})
			}
			return append(items, item{GatewayClasses, "spec.gatewayClassName", class}), nil
		}
	case "ListenerSet", "XListenerSet":
		read = listeners
	case "HTTPRoute", "GRPCRoute", "TLSRoute":
		read = func(object map[string]any) ([]item, error) {
			list, _, err := unstructured.NestedStringSlice(object, "spec", "hostnames")
			if err != nil {
				return nil, plugins.ErrObject
			}
			if len(list) == 0 && isMesh(object) {
				return nil, nil
			}
			return hosts("spec.hostnames", list), nil
		}
	case "TCPRoute", "UDPRoute": // which have annotations
		read = func(map[string]any) ([]item, error) { return nil, nil }
	default:
		return nil
	}
	return func(obj runtime.Object, _ admission.ObjectInterfaces) ([]item, error) {
		u, is := obj.(runtime.Unstructured)
		if !is {
			return nil, plugins.ErrObject
		}
		m, err := meta.Accessor(obj)
		if err != nil {
			return nil, plugins.ErrObject
		}
		items, err := read(u.UnstructuredContent())
		return append(items, annotatedHosts(m)...), err
	}
}

// isMesh reports whether a route is attached to Services alone, not to a Gateway: it serves requests
// within the cluster (GEP-1294).
func isMesh(object map[string]any) bool {
	if usesDefault(object, "useDefaultGateways") {
		return false
	}
	parents, _, err := unstructured.NestedSlice(object, "spec", "parentRefs")
	return err == nil && len(parents) > 0 && !slices.ContainsFunc(parents, func(p any) bool {
		parent, _ := p.(map[string]any)
		return parent["group"] != "" || parent["kind"] != "Service" // a group that is left out is the Gateway API's
	})
}

// usesDefault reports whether a field of the spec has another value than None. The fields are
// useDefaultGateways of a route, which attaches it to every default Gateway, and defaultScope of a
// Gateway, which makes it a default one (GEP-3793).
func usesDefault(object map[string]any, field string) bool {
	value, has, err := unstructured.NestedFieldNoCopy(object, "spec", field)
	return err != nil || has && value != nil && value != "" && value != "None"
}

// allHosts is the value of an item that takes the hosts of every route. It is on no list.
const allHosts = "*"

// listeners are the hosts of a gateway's listeners; those of protocols that
// know no hosts have none.
func listeners(object map[string]any) ([]item, error) {
	list, _, err := unstructured.NestedSlice(object, "spec", "listeners")
	if err != nil {
		return nil, plugins.ErrObject
	}
	var items []item
	for i, l := range list {
		listener, is := l.(map[string]any)
		if !is {
			return nil, plugins.ErrObject
		}
		host, _, err := unstructured.NestedString(listener, "hostname")
		if err != nil {
			return nil, plugins.ErrObject
		}
		if protocol := listener["protocol"]; protocol == "TCP" || protocol == "UDP" {
			continue
		}
		items = append(items, item{Hosts, fmt.Sprintf("spec.listeners[%d].hostname", i), host})
	}
	return items, nil
}
