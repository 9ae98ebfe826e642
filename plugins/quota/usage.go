// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package quota

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	upstream "k8s.io/apiserver/pkg/quota/v1"
	resourcehelper "k8s.io/component-helpers/resource"

	"github.com/kubetenant/kubetenant/plugins"
)

const storageClassSuffix = ".storageclass.storage.k8s.io/"

var (
	pods     = schema.GroupResource{Resource: "pods"}
	services = schema.GroupResource{Resource: "services"}
	claims   = schema.GroupResource{Resource: "persistentvolumeclaims"}

	namespaces = schema.GroupResource{Resource: "namespaces"}
)

// aliases are the older limit names of some counted resources (k8s.io/kubernetes
// pkg/quota/v1/evaluator/core, v1.37.1).
var aliases = map[schema.GroupResource]corev1.ResourceName{
	{Resource: "configmaps"}:             corev1.ResourceConfigMaps,
	{Resource: "resourcequotas"}:         corev1.ResourceQuotas,
	{Resource: "replicationcontrollers"}: corev1.ResourceReplicationControllers,
	{Resource: "secrets"}:                corev1.ResourceSecrets,
}

// uncounted are resources that cannot be limited. Their objects are not stored, or are numerous and
// short-lived.
var uncounted = map[string]bool{"bindings": true, "componentstatuses": true, "events": true}

// NamespaceCount is the name of the limit for the number of a tenant's namespaces.
const NamespaceCount corev1.ResourceName = "count/namespaces"

var one = resource.MustParse("1")

// Usage returns the usage of an object, like upstream's evaluators (k8s.io/kubernetes pkg/quota/v1,
// v1.37.1). The usage of a finished Pod is only count/pods. [Classes.Extend] adds the other names
// of devices.
func Usage(
	of schema.GroupResource, obj runtime.Object, o admission.ObjectInterfaces, now time.Time,
) (corev1.ResourceList, error) {
	out := corev1.ResourceList{corev1.ResourceName("count/" + of.String()): one}
	switch of {
	case pods:
		pod, err := plugins.Versioned[corev1.Pod](obj, corev1.SchemeGroupVersion.WithKind("Pod"), o)
		if err != nil {
			return nil, err
		}
		addPod(out, pod, now)
	case services:
		service, err := plugins.Versioned[corev1.Service](obj, corev1.SchemeGroupVersion.WithKind("Service"), o)
		if err != nil {
			return nil, err
		}
		addService(out, service)
	case claims:
		kind := corev1.SchemeGroupVersion.WithKind("PersistentVolumeClaim")
		claim, err := plugins.Versioned[corev1.PersistentVolumeClaim](obj, kind, o)
		if err != nil {
			return nil, err
		}
		addClaim(out, claim)
	case deviceClaims:
		claim, err := readDevices(obj, o)
		if err != nil {
			return nil, err
		}
		addDevices(out, claim)
	default:
		if alias, ok := aliases[of]; ok {
			out[alias] = one
		}
	}
	return out, nil
}

func isFinished(pod *corev1.Pod, now time.Time) bool {
	if pod.Status.Phase == corev1.PodFailed || pod.Status.Phase == corev1.PodSucceeded {
		return true
	}
	// The kubelet that should have stopped the Pod may be unavailable.
	return pod.DeletionTimestamp != nil && pod.DeletionGracePeriodSeconds != nil &&
		now.After(pod.DeletionTimestamp.Add(time.Duration(*pod.DeletionGracePeriodSeconds)*time.Second))
}

func addPod(out corev1.ResourceList, pod *corev1.Pod, now time.Time) {
	if isFinished(pod, now) {
		return
	}
	o := resourcehelper.PodResourcesOptions{UseStatusResources: true}
	addCompute(out, resourcehelper.PodRequests(pod, o), resourcehelper.PodLimits(pod, o))
}

func addCompute(out, requests, limits corev1.ResourceList) {
	out[corev1.ResourcePods] = one
	for name, quantity := range requests {
		switch {
		case name == corev1.ResourceCPU, name == corev1.ResourceMemory, name == corev1.ResourceEphemeralStorage,
			isHugePages(name):
			out[name] = quantity
			out[corev1.DefaultResourceRequestsPrefix+name] = quantity
		case isExtended(name):
			out[corev1.DefaultResourceRequestsPrefix+name] = quantity
		}
	}
	for name, quantity := range limits {
		if name == corev1.ResourceCPU || name == corev1.ResourceMemory || name == corev1.ResourceEphemeralStorage {
			out["limits."+name] = quantity
		}
	}
}

func isHugePages(name corev1.ResourceName) bool {
	return strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix)
}

func isExtended(name corev1.ResourceName) bool {
	text := string(name)
	return strings.HasPrefix(text, "deviceclass.resource.kubernetes.io/") ||
		strings.Contains(text, "/") && !strings.Contains(text, corev1.ResourceDefaultNamespacePrefix) &&
			!strings.HasPrefix(text, corev1.DefaultResourceRequestsPrefix)
}

func addService(out corev1.ResourceList, service *corev1.Service) {
	ports := len(service.Spec.Ports)
	var balancers int64
	switch service.Spec.Type {
	case corev1.ServiceTypeNodePort:
	case corev1.ServiceTypeLoadBalancer:
		balancers = 1
		if allocate := service.Spec.AllocateLoadBalancerNodePorts; allocate != nil && !*allocate {
			ports = 0
			for _, p := range service.Spec.Ports {
				if p.NodePort != 0 {
					ports++
				}
			}
		}
	default:
		ports = 0
	}
	out[corev1.ResourceServices] = one
	out[corev1.ResourceServicesLoadBalancers] = *resource.NewQuantity(balancers, resource.DecimalSI)
	out[corev1.ResourceServicesNodePorts] = *resource.NewQuantity(int64(ports), resource.DecimalSI)
}

func addClaim(out corev1.ResourceList, claim *corev1.PersistentVolumeClaim) {
	class := claim.Annotations[corev1.BetaStorageClassAnnotation]
	if _, old := claim.Annotations[corev1.BetaStorageClassAnnotation]; !old && claim.Spec.StorageClassName != nil {
		class = *claim.Spec.StorageClassName
	}
	add := func(name corev1.ResourceName, quantity resource.Quantity) {
		out[name] = quantity
		if class != "" {
			out[corev1.ResourceName(class+storageClassSuffix)+name] = quantity
		}
	}
	add(corev1.ResourcePersistentVolumeClaims, one)
	storage, ok := claim.Spec.Resources.Requests[corev1.ResourceStorage]
	if !ok {
		return
	}
	storage = wholeBytes(storage)
	if allocated, ok := claim.Status.AllocatedResources[corev1.ResourceStorage]; ok && allocated.Cmp(storage) > 0 {
		storage = wholeBytes(allocated) // a failed expansion
	}
	add(corev1.ResourceRequestsStorage, storage)
}

func wholeBytes(q resource.Quantity) resource.Quantity {
	rounded := q.DeepCopy()
	rounded.RoundUp(0)
	return rounded
}

// Resources returns the resources whose objects use a limit name. It returns none if no objects use
// the name. Pods and ResourceClaims both use devices.
func Resources(name corev1.ResourceName) []schema.GroupResource {
	if IsDevice(name) {
		return []schema.GroupResource{pods, deviceClaims}
	}
	of, ok := resourceOf(name)
	if !ok {
		return nil
	}
	return []schema.GroupResource{of}
}

// isUsedBy reports whether objects of a resource use a limit name.
func isUsedBy(name corev1.ResourceName, of schema.GroupResource) bool {
	if IsDevice(name) {
		return of == pods || of == deviceClaims
	}
	r, ok := resourceOf(name)
	return ok && r == of
}

// resourceOf returns the resource whose objects use a limit name. The name must not limit devices.
func resourceOf(name corev1.ResourceName) (of schema.GroupResource, ok bool) {
	text := string(name)
	if counted, found := strings.CutPrefix(text, "count/"); found {
		of = schema.ParseGroupResource(counted)
		isReview := of.Group == "authentication.k8s.io" || of.Group == "authorization.k8s.io"
		return of, of.Resource != "" && !uncounted[of.Resource] && !isReview
	}
	for of, alias := range aliases {
		if name == alias {
			return of, true
		}
	}
	if class, rest, found := strings.Cut(text, storageClassSuffix); found {
		name = corev1.ResourceName(rest)
		text = rest
		if class == "" || name != corev1.ResourcePersistentVolumeClaims && name != corev1.ResourceRequestsStorage {
			return of, false
		}
	}
	switch name {
	case corev1.ResourcePersistentVolumeClaims, corev1.ResourceRequestsStorage:
		return claims, true
	case corev1.ResourceServices, corev1.ResourceServicesLoadBalancers, corev1.ResourceServicesNodePorts:
		return services, true
	case corev1.ResourcePods:
		return pods, true
	}
	requested, _ := strings.CutPrefix(text, corev1.DefaultResourceRequestsPrefix)
	limited, isLimit := strings.CutPrefix(text, "limits.")
	if isLimit {
		requested = limited
	}
	switch compute := corev1.ResourceName(requested); {
	case compute == corev1.ResourceCPU, compute == corev1.ResourceMemory, compute == corev1.ResourceEphemeralStorage:
		return pods, true
	case isHugePages(compute):
		return pods, !isLimit
	}
	return of, false
}

// handles reports whether a write can increase the usage of a quota.
func handles(a admission.Attributes) bool {
	of := a.GetResource().GroupResource()
	if plugins.IsVirtual(a) || uncounted[of.Resource] {
		return false
	}
	switch a.GetOperation() {
	case admission.Create:
		return a.GetSubresource() == ""
	case admission.Update:
		switch of {
		case pods:
			return a.GetSubresource() == "resize"
		case services:
			return a.GetSubresource() == ""
		case claims:
			return a.GetSubresource() == "" || a.GetSubresource() == "status"
		}
	}
	return false
}

// checkRequired denies a Pod that does not specify requests or limits for a limited resource,
// because its usage would be zero. Upstream does the same (k8s.io/kubernetes
// pkg/quota/v1/evaluator/core/pods.go, Constraints, v1.37.1).
func checkRequired(pod *corev1.Pod, hard []corev1.ResourceName) error {
	if resourcehelper.IsPodLevelResourcesSet(pod) {
		return nil
	}
	var missing []string
	for _, name := range hard {
		switch name {
		case corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceRequestsCPU, corev1.ResourceRequestsMemory,
			corev1.ResourceLimitsCPU, corev1.ResourceLimitsMemory:
		default:
			continue
		}
		var without []string
		for _, containers := range [][]corev1.Container{pod.Spec.Containers, pod.Spec.InitContainers} {
			for i := range containers {
				specified := corev1.ResourceList{}
				addCompute(specified, containers[i].Resources.Requests, containers[i].Resources.Limits)
				if _, ok := specified[name]; !ok {
					without = append(without, containers[i].Name)
				}
			}
		}
		if len(without) > 0 {
			missing = append(missing, fmt.Sprintf("%s for: %s", name, strings.Join(without, ",")))
		}
	}
	if len(missing) == 0 {
		return nil
	}
	slices.Sort(missing)
	return fmt.Errorf("must specify %s", strings.Join(missing, "; "))
}

// limitNames returns the sorted names of the limits that apply to objects of a resource.
func limitNames(hard corev1.ResourceList, of schema.GroupResource) []corev1.ResourceName {
	var out []corev1.ResourceName
	for _, name := range upstream.ResourceNames(hard) {
		if isUsedBy(name, of) {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}
