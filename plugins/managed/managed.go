// Package managed keeps what the server makes of Tenants by itself as it is: bindings, quotas, and
// what templates give. Whoever else creates, changes or deletes such an object is refused, the
// cluster's admins too: the next look would put it back. It holds Pods in namespaces that have none
// of it yet, and who writes what is given.
package managed

import (
	"context"
	"errors"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/kubetenant/kubetenant/plugins"
	"github.com/kubetenant/kubetenant/tenant"
)

// Name of the plugin.
const Name = "TenantManaged"

const (
	// NamePrefix begins the names of bindings that are managed. Nobody else makes a
	// RoleBinding of such a name.
	NamePrefix = "kubetenant:"
	// SourceTenant is the value of [tenant.ManagedLabel] on what a Tenant gives.
	SourceTenant = "tenant"
	// SourceTemplate is its value on what a NamespaceTemplate gives.
	SourceTemplate = "template"
)

var (
	errManaged = errors.New("the object is managed by a Tenant (label " + tenant.ManagedLabel + "): change spec.admins, " +
		"spec.bindings or spec.quota of the Tenant, its TenantMembers or the NamespaceTemplate instead")
	errLabel    = errors.New("only the server may set the label " + tenant.ManagedLabel)
	errGiven    = errors.New("a NamespaceTemplate of the Tenant provides an object with this name")
	errName     = errors.New("names that begin with " + NamePrefix + " are reserved for the server")
	errPrepared = errors.New("only the server may set the annotations " + strings.Join(annotations, ", "))
	errNotHeld  = errors.New("a new namespace of this tenant must have the annotation " + tenant.HeldAnnotation +
		": its Tenant changed during the request, or a webhook removed the annotation")
)

// Options configure the plugin. Subject and Terminating are required.
type Options struct {
	Subject plugins.SubjectFunc
	// Terminating reports whether a namespace is known to be deleted. The controllers that empty such
	// a namespace may delete managed objects in it. Nobody else may: Pods may still run there.
	Terminating func(namespace string) bool
	// Holds reports whether Pods wait in a new namespace of a tenant until it has all that its Tenant
	// says, and Held whether they do in a namespace. Held is required with Holds; nil Holds: nowhere.
	Holds func(context.Context, tenant.ID) bool
	Held  func(ctx context.Context, namespace string) (bool, error)
	// Gives reports whether a template gives an object of a name in a namespace: nobody else
	// makes one. Nil: none does.
	Gives func(ctx context.Context, namespace string, resource schema.GroupResource, name string) (bool, error)
	// Template reads a NamespaceTemplate: the resources of its objects, and what is wrong with
	// them. Nil: none is held.
	Template func(runtime.Object) ([]schema.GroupVersionResource, error)
	// Dropped returns the resources of the objects that an update removes from a NamespaceTemplate.
	// Required with Template.
	Dropped func(was, is runtime.Object) []schema.GroupVersionResource
	// Authorizer is the server's. It decides about the rights of the writer of a NamespaceTemplate.
	// Required with Template.
	Authorizer authorizer.Authorizer
}

// created are the annotations of a Namespace that a new Namespace never has from its creator.
var created = []string{tenant.PreparedAnnotation, tenant.HeldAnnotation, tenant.ReleasingAnnotation}

// annotations are the annotations of a Namespace that only the server's own identity may change.
// TenantNamespace writes [tenant.GivenLabelsAnnotation] when a Namespace is created.
var annotations = append(created[:len(created):len(created)], tenant.GivenLabelsAnnotation)

// New returns the plugin. It protects objects with [tenant.ManagedLabel] and the server's own
// annotations of Namespaces. It also checks NamespaceTemplates and the creation of Pods.
func New(o Options) plugins.Interface {
	return &plugin{admission.NewHandler(admission.Create, admission.Update, admission.Delete), o}
}

type plugin struct {
	*admission.Handler
	Options
}

// Governs reports whether the plugin looks at an operation on a resource.
func Governs(r schema.GroupResource, operation admission.Operation) bool {
	return MayBeManaged(r) || (r == corev1.Resource("namespaces") || r == templates) && operation != admission.Delete ||
		r == corev1.Resource("pods") && operation == admission.Create
}

// MayBeManaged reports whether objects of a resource may have [tenant.ManagedLabel], which the
// plugin then keeps from everybody.
func MayBeManaged(r schema.GroupResource) bool {
	switch r.Group {
	case rbacv1.GroupName:
		return r.Resource == "roles" || r.Resource == "rolebindings" || r.Resource == "clusterrolebindings"
	case corev1.GroupName:
		return r.Resource == "configmaps" || r.Resource == "limitranges" || r.Resource == "resourcequotas"
	case networkingv1.GroupName:
		return r.Resource == "networkpolicies"
	}
	return r == quotas
}

var (
	// quotas are one for each tenant, whose status is written by whoever counts.
	quotas    = schema.GroupResource{Group: tenant.Domain, Resource: "tenantquotas"}
	templates = schema.GroupResource{Group: tenant.Domain, Resource: "namespacetemplates"}
)

// Admit implements [admission.MutationInterface]: it leaves the annotations of a Namespace as they
// were, and holds a new one.
func (p *plugin) Admit(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if a.GetResource().GroupResource() != corev1.Resource("namespaces") || a.GetOperation() == admission.Delete ||
		p.Subject.IsManager(ctx, a) {
		return nil
	}
	was, is, err := plugins.Stored(a)
	if err != nil || is == nil {
		return admission.NewForbidden(a, plugins.ErrObject)
	}
	if was == nil {
		sent := is.GetAnnotations()
		for _, key := range created { // they come from an export of another Namespace
			plugins.SetAnnotation(is, key, nil)
		}
		plugins.WarnRewritten(ctx, sent, is, created...)
		if p.holds(ctx, is) {
			plugins.SetAnnotation(is, tenant.HeldAnnotation, new("true"))
		}
		return nil
	}
	plugins.Keep(ctx, a, was, is, annotations...)
	return nil
}

// Validate implements [admission.ValidationInterface].
func (p *plugin) Validate(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	resource := a.GetResource().GroupResource()
	if !Governs(resource, a.GetOperation()) {
		return nil
	}
	check := p.checkNamespace
	switch {
	case resource == corev1.Resource("pods"):
		return p.checkPod(ctx, a)
	case a.GetSubresource() != "" && resource == quotas:
		return nil // its metadata stays as it is
	case MayBeManaged(resource):
		check = p.check
	case resource == templates:
		check = p.checkTemplate
	}
	switch err := check(ctx, a); {
	case errors.Is(err, errNotHeld): // the next attempt succeeds, unless a webhook is the cause
		return tryAgain(a, err.Error())
	case err != nil:
		return admission.NewForbidden(a, err)
	}
	return nil
}

func (p *plugin) checkNamespace(ctx context.Context, a admission.Attributes) error {
	was, is, err := plugins.Stored(a)
	if err != nil || is == nil {
		return plugins.ErrObject
	}
	if p.Subject.IsManager(ctx, a) {
		return nil
	}
	if was != nil {
		if plugins.Kept(was, is, annotations...) != nil {
			return errPrepared
		}
		return nil
	}
	_, held := is.GetAnnotations()[tenant.HeldAnnotation]
	switch {
	case is.GetAnnotations()[tenant.PreparedAnnotation] != "", is.GetAnnotations()[tenant.ReleasingAnnotation] != "":
		return errPrepared
	case !held && p.holds(ctx, is):
		return errNotHeld
	}
	return nil
}

// check holds the writes of what is managed.
func (p *plugin) check(ctx context.Context, a admission.Attributes) error {
	was, had := labelled(a.GetOldObject())
	is, has := labelled(a.GetObject())
	switch {
	case a.GetOperation() == admission.Create && is == nil,
		a.GetOperation() != admission.Create && was == nil,
		a.GetOperation() == admission.Update && is == nil:
		return plugins.ErrObject
	case a.GetOperation() == admission.Create && !has &&
		(a.GetNamespace() == "" ||
			!strings.HasPrefix(is.GetName(), NamePrefix) && !strings.HasPrefix(is.GetGenerateName(), NamePrefix)):
		return p.checkName(ctx, a)
	case a.GetOperation() != admission.Create && !had && !has, p.Subject.IsManager(ctx, a):
		return nil
	}
	switch a.GetOperation() {
	case admission.Delete:
		if a.GetNamespace() != "" && p.Terminating(a.GetNamespace()) && plugins.EmptiesNamespaces(a.GetUserInfo()) &&
			p.Subject.IsSystem(ctx, a.GetUserInfo()) {
			return nil
		}
	case admission.Update:
		if a.GetSubresource() == "status" && sameMetadata(was, is) { // whose spec stays
			return nil
		}
		// A migration of stored objects changes nothing. A tenant may not change managedFields either: the
		// server compares them to find objects that other callers have written.
		if sameObject(a.GetOldObject(), a.GetObject()) && (sameFields(was, is) ||
			p.Subject.IsSystem(ctx, a.GetUserInfo())) {
			return nil
		}
		if !had {
			return errLabel
		}
	case admission.Create:
		if !has {
			return errName
		}
		return errLabel
	}
	return errManaged
}

// labelled returns the metadata of an object, nil where there is none, and whether it is managed.
func labelled(obj runtime.Object) (metav1.Object, bool) {
	if obj == nil {
		return nil, false
	}
	m, err := meta.Accessor(obj)
	if err != nil {
		return nil, false
	}
	_, has := m.GetLabels()[tenant.ManagedLabel]
	return m, has
}

// sameObject reports whether a write changes nothing but who says to manage which fields.
func sameObject(was, is runtime.Object) bool {
	before, now := was.DeepCopyObject(), is.DeepCopyObject()
	for _, obj := range []runtime.Object{before, now} {
		m, err := meta.Accessor(obj)
		if err != nil {
			return false
		}
		m.SetManagedFields(nil)
		m.SetResourceVersion("")
	}
	return equality.Semantic.DeepEqual(before, now)
}

// sameFields reports whether a write leaves the owners of fields as they were.
func sameFields(was, is metav1.Object) bool {
	return equality.Semantic.DeepEqual(was.GetManagedFields(), is.GetManagedFields())
}

// sameMetadata reports whether labels, annotations, owners and finalizers are the same.
func sameMetadata(was, is metav1.Object) bool {
	return equality.Semantic.DeepEqual(was.GetLabels(), is.GetLabels()) &&
		equality.Semantic.DeepEqual(was.GetAnnotations(), is.GetAnnotations()) &&
		equality.Semantic.DeepEqual(was.GetOwnerReferences(), is.GetOwnerReferences()) &&
		equality.Semantic.DeepEqual(was.GetFinalizers(), is.GetFinalizers())
}
