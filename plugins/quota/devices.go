// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package quota

import (
	"context"
	"errors"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/kubetenant/kubetenant/plugins"
)

var (
	deviceClaims   = resourcev1.Resource("resourceclaims")
	claimTemplates = resourcev1.Resource("resourceclaimtemplates")
)

const (
	// classSuffix is the suffix of the limit name for the devices of a class.
	classSuffix = corev1.ResourceClaimsPerClass
	// implicitPrefix is the prefix of the limit name for the devices of a class that Pods request
	// as an extended resource.
	implicitPrefix = corev1.ResourceImplicitExtendedClaimsPerClass
)

// Class is a DeviceClass.
type Class struct {
	Name string
	// Extended is the extended resource that Pods use to request devices of this class, or "" if
	// there is none.
	Extended corev1.ResourceName
}

// Classes are the DeviceClasses of a cluster. If several have the same extended resource, Pods get
// devices of the first class.
type Classes []Class

// IsDevice reports whether a limit with this name applies to devices. The DeviceClasses determine
// the names of devices, see [Classes.Extend].
func IsDevice(name corev1.ResourceName) bool {
	if class, ok := strings.CutSuffix(string(name), classSuffix); ok {
		return class != ""
	}
	requested, ok := strings.CutPrefix(string(name), corev1.DefaultResourceRequestsPrefix)
	return ok && isExtended(corev1.ResourceName(requested))
}

// Extend returns a usage from [Usage] with all names of its devices. A limit with any of these
// names then applies to the devices, even if a Pod requests them under one name and a ResourceClaim
// under another. Extend does not change its argument.
func (c Classes) Extend(usage corev1.ResourceList) corev1.ResourceList {
	if !slices.ContainsFunc(resourceNames(usage), IsDevice) {
		return usage
	}
	out := corev1.ResourceList{}
	devices := map[string]resource.Quantity{}
	for name, quantity := range usage {
		class, ofClass := strings.CutSuffix(string(name), classSuffix)
		implicit, isImplicit := strings.CutPrefix(string(name), implicitPrefix)
		switch {
		case ofClass:
			add(devices, class, quantity)
		case isImplicit:
			add(devices, implicit, quantity)
		default:
			if class := c.classOf(name); class != "" {
				add(devices, class, quantity)
			} else {
				add(out, name, quantity)
			}
		}
	}
	for class, quantity := range devices {
		out[corev1.ResourceName(class+classSuffix)], out[corev1.ResourceName(implicitPrefix+class)] = quantity, quantity
		if i := slices.IndexFunc(c, func(known Class) bool { return known.Name == class }); i >= 0 &&
			c[i].Extended != "" {
			add(out, corev1.DefaultResourceRequestsPrefix+c[i].Extended, quantity)
		}
	}
	return out
}

// classOf returns the name of the class from which Pods get an extended resource, or "".
func (c Classes) classOf(name corev1.ResourceName) string {
	i := slices.IndexFunc(c, func(known Class) bool {
		return known.Extended != "" && name == corev1.DefaultResourceRequestsPrefix+known.Extended
	})
	if i < 0 {
		return ""
	}
	return c[i].Name
}

func add[K ~string](to map[K]resource.Quantity, name K, quantity resource.Quantity) {
	sum := to[name]
	sum.Add(quantity)
	to[name] = sum
}

func resourceNames(l corev1.ResourceList) []corev1.ResourceName {
	names := make([]corev1.ResourceName, 0, len(l))
	for name := range l {
		names = append(names, name)
	}
	return names
}

// deviceRequest is a request for devices in a ResourceClaim, in any version of the kind.
type deviceRequest struct {
	exactRequest   `json:",inline"` // versions before v1beta2
	Exactly        *exactRequest    `json:"exactly,omitempty"`
	FirstAvailable []exactRequest   `json:"firstAvailable,omitempty"`
}

// alternatives returns the requests from which the scheduler chooses one.
func (r *deviceRequest) alternatives() []exactRequest {
	if len(r.FirstAvailable) > 0 {
		return r.FirstAvailable
	}
	if r.Exactly != nil {
		return []exactRequest{*r.Exactly}
	}
	if r.DeviceClassName != "" {
		return []exactRequest{r.exactRequest}
	}
	return nil
}

type exactRequest struct {
	DeviceClassName string `json:"deviceClassName,omitempty"`
	AllocationMode  string `json:"allocationMode,omitempty"`
	Count           int64  `json:"count,omitempty"`
}

// devices returns the maximum number of devices for a request. For the mode All and for unknown
// modes, it returns the maximum for a claim. Upstream returns 0 for unknown modes.
func (r *exactRequest) devices() int64 {
	switch resourcev1.DeviceAllocationMode(r.AllocationMode) {
	case resourcev1.DeviceAllocationModeExactCount, "":
		return max(r.Count, 1) // the default
	}
	return resourcev1.AllocationResultsMaxSize
}

// claimDevices contains the fields of a ResourceClaim that the quota uses.
type claimDevices struct {
	Metadata metav1.ObjectMeta `json:"metadata"`
	Spec     struct {
		Devices struct {
			Requests []deviceRequest `json:"requests"`
		} `json:"devices"`
	} `json:"spec"`
}

func readDevices(obj runtime.Object, o admission.ObjectInterfaces) (*claimDevices, error) {
	content, err := contentOf[resourcev1.ResourceClaim](obj, resourcev1.SchemeGroupVersion.WithKind("ResourceClaim"), o)
	if err != nil {
		return nil, err
	}
	out := &claimDevices{}
	return out, runtime.DefaultUnstructuredConverter.FromUnstructured(content, out)
}

// contentOf returns the unstructured content of an object. T is the Go type of kind.
func contentOf[T any](
	obj runtime.Object, kind schema.GroupVersionKind, o admission.ObjectInterfaces,
) (map[string]any, error) {
	if u, ok := obj.(runtime.Unstructured); ok {
		return u.UnstructuredContent(), nil
	}
	versioned, err := plugins.Versioned[T](obj, kind, o)
	if err != nil {
		return nil, err
	}
	return runtime.DefaultUnstructuredConverter.ToUnstructured(versioned)
}

// addDevices adds the devices of a claim for each class. For alternatives, it adds the highest
// number of each class. It ignores a claim that the scheduler creates for the extended resources
// of a Pod, because these devices are counted for the Pod.
func addDevices(out corev1.ResourceList, claim *claimDevices) {
	if isPodClaim(&claim.Metadata) {
		return
	}
	for _, request := range claim.Spec.Devices.Requests {
		highest := map[string]int64{}
		for _, alternative := range request.alternatives() {
			highest[alternative.DeviceClassName] = max(highest[alternative.DeviceClassName], alternative.devices())
		}
		for class, number := range highest {
			add(out, corev1.ResourceName(class+classSuffix), *resource.NewQuantity(number, resource.DecimalSI))
		}
	}
}

// isPodClaim reports whether the scheduler created a claim for the extended resources of a Pod.
// Tenants' callers and the claimControllers cannot add the annotation, see [plugin.checkClaim].
func isPodClaim(m *metav1.ObjectMeta) bool {
	owner := metav1.GetControllerOfNoCopy(m)
	return m.Annotations[resourcev1.ExtendedResourceClaimAnnotation] == "true" &&
		owner != nil && owner.APIVersion == "v1" && owner.Kind == "Pod"
}

var errExtendedClaim = errors.New("annotations[" + resourcev1.ExtendedResourceClaimAnnotation +
	"]: only the scheduler may set this annotation")

// claimControllers are the users of the controllers that create claims from templates of tenants.
var claimControllers = []string{
	"system:serviceaccount:kube-system:resource-claim-controller", user.KubeControllerManager,
}

// checkClaim denies a claim, or a template of claims, that a caller falsely marks as the claim of a
// Pod. The devices of such a claim would not be counted.
func (p *plugin) checkClaim(ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces) error {
	marked, err := marksPodClaim(a.GetObject(), a, o)
	if err != nil || !marked {
		return err
	}
	if a.GetOperation() == admission.Update {
		if wasMarked, err := marksPodClaim(a.GetOldObject(), a, o); err != nil || wasMarked {
			return err
		}
	}
	u := a.GetUserInfo()
	if p.Subject.IsSystem(ctx, u) && !slices.Contains(claimControllers, u.GetName()) {
		return nil
	}
	return errExtendedClaim
}

// marksPodClaim reports whether a claim has the annotation, or whether a template adds it to
// claims.
func marksPodClaim(obj runtime.Object, a admission.Attributes, o admission.ObjectInterfaces) (bool, error) {
	if a.GetResource().GroupResource() == deviceClaims {
		m, err := meta.Accessor(obj)
		if err != nil {
			return false, plugins.ErrObject
		}
		return m.GetAnnotations()[resourcev1.ExtendedResourceClaimAnnotation] == "true", nil
	}
	kind := resourcev1.SchemeGroupVersion.WithKind("ResourceClaimTemplate")
	content, err := contentOf[resourcev1.ResourceClaimTemplate](obj, kind, o)
	if err != nil {
		return false, err
	}
	annotations, _, err := unstructured.NestedStringMap(content, "spec", "metadata", "annotations")
	return annotations[resourcev1.ExtendedResourceClaimAnnotation] == "true", err
}
