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

// The names of the checked fields. They are also the names of the lists in the configuration.
const (
	// ImageRegistries applies to the images of containers and volumes. An entry is a registry, or a
	// repository with everything below it.
	ImageRegistries = "imageRegistries"
	// ImagePullPolicies applies to the images of containers and volumes. A missing policy is
	// allowed, because the server sets it.
	ImagePullPolicies = "imagePullPolicies"
	// IngressClasses applies to Ingresses. Each must have a class in spec.ingressClassName or in
	// the older annotation.
	IngressClasses = "ingressClasses"
	// GatewayClasses applies to Gateways. Each must have a class.
	GatewayClasses = "gatewayClasses"
	// Hosts applies to Ingresses, to Gateways and their routes, and to annotations with hosts. An
	// Ingress, a listener or a route that names no host serves all hosts, so it is always
	// rejected if this rule applies. Exceptions are TCP and UDP listeners and routes, and routes
	// that are attached only to Services.
	Hosts = "hosts"
	// StorageClasses applies to PersistentVolumeClaims. Each must have a class. A template of
	// claims may omit it.
	StorageClasses = "storageClasses"
	// ServiceTypes applies to the types of Services. ClusterIP is always allowed.
	ServiceTypes = "serviceTypes"
)

// item is a value of an object that the plugin checks.
type item struct {
	field, path string
	value       string // empty if the object leaves the value to the cluster
}

// reader returns the items of an object. If it returns an error, the object MUST be denied.
type reader func(runtime.Object, admission.ObjectInterfaces) ([]item, error)

// serverAlias is an annotation with additional hosts, for ingress-nginx (v1.15).
const serverAlias = "nginx.ingress.kubernetes.io/server-alias"

// isExternalDNS reports whether external-dns (v0.23) can read hosts from an annotation. The domain
// of the annotation is configurable, so every domain that begins with "external-dns." matches. The
// default is external-dns.kubernetes.io. Before v0.22, it was external-dns.alpha.kubernetes.io.
func isExternalDNS(key string) bool {
	domain, name, _ := strings.Cut(key, "/")
	return strings.HasPrefix(domain, "external-dns.") && (name == "hostname" || name == "internal-hostname")
}

// storageClassAnnotation is the older form of the class of a claim. It takes precedence over
// spec.storageClassName (k8s.io/component-helpers storage/volume, v0.37.1).
const storageClassAnnotation = corev1.BetaStorageClassAnnotation

// ingressClassAnnotation is the older form of the class of an Ingress (k8s.io/api networking/v1,
// v0.37.1).
const ingressClassAnnotation = "kubernetes.io/ingress.class"

// gatewayAPI are the groups of the Gateway API. Its kinds are custom resources.
var gatewayAPI = map[string]bool{"gateway.networking.k8s.io": true, "gateway.networking.x-k8s.io": true}

// Reads reports whether the plugin reads the objects of a custom kind in every configuration.
func Reads(kind schema.GroupKind) bool { return gatewayAPI[kind.Group] && gateway(kind.Kind) != nil }

// reader returns the reader for the object of a write, or nil if nothing is checked. A status
// update can change annotations. For the status of a Pod, only the annotations are read. For the
// status of other workloads, nothing is read.
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
		return readAnnotations // the Pod gets these annotations
	}
	if _, describes := p.Kinds[kind.GroupKind()]; describes && a.GetSubresource() != "status" {
		return func(obj runtime.Object, o admission.ObjectInterfaces) ([]item, error) { return p.pods(obj, kind, o) }
	}
	return nil
}

func versioned[T any](kind schema.GroupVersionKind, read func(*T) []item) reader {
	return func(obj runtime.Object, o admission.ObjectInterfaces) ([]item, error) {
		typed, err := plugins.Versioned[T](obj, kind, o)
		if err != nil {
			return nil, err
		}
		return read(typed), nil
	}
}

// pods returns the images in a Pod or in the Pod templates of an object, and the classes of the
// claims that are created from it.
func (p *plugin) pods(obj runtime.Object, kind schema.GroupVersionKind, o admission.ObjectInterfaces) ([]item, error) {
	object, err := p.Kinds.Read(obj, kind, o)
	if err != nil {
		return nil, err
	}
	if object == nil {
		return nil, plugins.ErrObject
	}
	var items []item
	if workload.IsPod(kind.GroupKind()) {
		items = annotatedHosts(object.Templates[0].Meta)
	}
	for _, t := range object.Templates {
		for _, i := range images(t.Spec) {
			i.path = t.Field("spec." + i.path)
			items = append(items, i)
		}
	}
	claims, err := object.Claims()
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
		if image != "" { // an update sets a missing image later
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

// pullPolicy maps the name of an image field to the name of its policy field.
var pullPolicy = map[string]string{"image": "imagePullPolicy", "reference": "pullPolicy"}

func claim(c *corev1.PersistentVolumeClaim) []item {
	return []item{storageClass("", c, &c.Spec)}
}

func storageClass(path string, m metav1.Object, s *corev1.PersistentVolumeClaimSpec) item {
	if class, ok := m.GetAnnotations()[storageClassAnnotation]; ok {
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

// readAnnotations returns the hosts in the annotations of any object.
func readAnnotations(obj runtime.Object, _ admission.ObjectInterfaces) ([]item, error) {
	m, err := meta.Accessor(obj)
	if err != nil {
		return nil, plugins.ErrObject
	}
	return annotatedHosts(m), nil
}

func annotatedHosts(m metav1.Object) []item {
	return hostsInAnnotations("metadata.annotations", m.GetAnnotations())
}

// hostsInAnnotations returns the hosts in annotations. Each controller has its own separators.
func hostsInAnnotations(path string, annotations map[string]string) []item {
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

// hosts returns the hosts in a list. An empty list means all hosts.
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

// gateway returns the reader for a kind of the Gateway API (v1.4), or nil if nothing is checked.
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
			// The controller sets these annotations on the objects that it creates.
			infrastructure, _, err := unstructured.NestedStringMap(object, "spec", "infrastructure", "annotations")
			if err != nil {
				return nil, plugins.ErrObject
			}
			items = append(items, hostsInAnnotations("spec.infrastructure.annotations", infrastructure)...)
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
	case "TCPRoute", "UDPRoute": // only their annotations are checked
		read = func(map[string]any) ([]item, error) { return nil, nil }
	default:
		return nil
	}
	return func(obj runtime.Object, _ admission.ObjectInterfaces) ([]item, error) {
		u, ok := obj.(runtime.Unstructured)
		if !ok {
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

// isMesh reports whether a route is attached only to Services and to no Gateway. Such a route
// serves requests within the cluster (GEP-1294).
func isMesh(object map[string]any) bool {
	if usesDefault(object, "useDefaultGateways") {
		return false
	}
	parents, _, err := unstructured.NestedSlice(object, "spec", "parentRefs")
	return err == nil && len(parents) > 0 && !slices.ContainsFunc(parents, func(p any) bool {
		parent, _ := p.(map[string]any)
		return parent["group"] != "" || parent["kind"] != "Service" // a missing group is the group of the Gateway API
	})
}

// usesDefault reports whether a field of the spec has a value other than None. The field
// useDefaultGateways attaches a route to every default Gateway. The field defaultScope makes a
// Gateway a default Gateway (GEP-3793).
func usesDefault(object map[string]any, field string) bool {
	value, ok, err := unstructured.NestedFieldNoCopy(object, "spec", field)
	return err != nil || ok && value != nil && value != "" && value != "None"
}

// allHosts is the value of an item that applies to the hosts of every route. No list allows it.
const allHosts = "*"

// listeners returns the hosts of a gateway's listeners. It ignores listeners with a protocol that
// has no hosts.
func listeners(object map[string]any) ([]item, error) {
	list, _, err := unstructured.NestedSlice(object, "spec", "listeners")
	if err != nil {
		return nil, plugins.ErrObject
	}
	var items []item
	for i, l := range list {
		listener, ok := l.(map[string]any)
		if !ok {
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
