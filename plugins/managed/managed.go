// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

// Package managed protects the objects that the server itself writes. These are the bindings and
// quotas of Tenants, the objects of NamespaceTemplates and the copies of Publications. No other
// caller may create, change or delete them, not even an administrator of the cluster, because the
// server would restore them. Only controllers may delete them, in a namespace that is being
// deleted.
//
// The package denies Pods in namespaces that do not have these objects yet. It also checks the
// authors of NamespaceTemplates, of Publications and of published objects.
package managed

import (
	"context"
	"errors"
	"fmt"
	"slices"
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

// Name is the name of the plugin.
const Name = "TenantManaged"

const (
	// NamePrefix is the prefix of the names of managed bindings. Other callers may not create a
	// RoleBinding with this prefix.
	NamePrefix = "kubetenant:"
	// SourceTenant is the value of [tenant.ManagedLabel] on the objects of a Tenant.
	SourceTenant = "tenant"
	// SourceTemplate is the value of [tenant.ManagedLabel] on the objects of a NamespaceTemplate.
	SourceTemplate = "template"
	// SourcePublication is the value of [tenant.ManagedLabel] on the copies of a Publication.
	SourcePublication = "publication"
)

var (
	errManaged = errors.New("the object is managed by a Tenant (label " + tenant.ManagedLabel + "): change spec.admins, " +
		"spec.bindings or spec.quota of the Tenant, its TenantMembers or the NamespaceTemplate instead")
	errManagedLabel     = errors.New("only the server may set the label " + tenant.ManagedLabel)
	errPublicationLabel = errors.New("only the server may set the label " + tenant.PublicationLabel)
	errNameProvided     = errors.New(
		"a NamespaceTemplate of the Tenant or a Publication provides an object with this name",
	)
	errName             = errors.New("names that begin with " + NamePrefix + " are reserved for the server")
	errServerAnnotation = errors.New("only the server may set the annotations " + strings.Join(serverAnnotations, ", "))
	errNotWaiting       = errors.New("a new namespace of this tenant must have the annotation " + tenant.HeldAnnotation +
		": its Tenant changed during the request, or a webhook removed the annotation")
)

// Options configure the plugin. Subject and Terminating are required.
type Options struct {
	Subject plugins.SubjectFunc
	// Terminating reports whether a namespace is known to be terminating. The controllers that
	// empty such a namespace may delete managed objects in it. Other callers may not, because Pods
	// may still run there.
	Terminating func(namespace string) bool
	// MustWait reports whether Pods must wait in a new namespace of a tenant until the namespace
	// has all objects that its Tenant specifies. If nil, Pods never wait.
	MustWait func(context.Context, tenant.ID) bool
	// Waiting reports whether an existing namespace still lacks objects that its Tenant specifies,
	// so that new Pods must wait. Required if MustWait is set.
	Waiting func(ctx context.Context, namespace string) (bool, error)
	// Provides reports whether a template or a Publication provides an object with this name in a
	// namespace. Other callers may not create it. If nil, no names are reserved.
	Provides func(ctx context.Context, namespace string, resource schema.GroupResource, name string) (bool, error)
	// ReadTemplate reads a NamespaceTemplate. It returns the resources of its objects, or an error
	// if the template is invalid. If nil, NamespaceTemplates are not checked.
	ReadTemplate func(runtime.Object) ([]schema.GroupVersionResource, error)
	// Removed returns the resources of the objects that an update removes from a NamespaceTemplate.
	// Required if ReadTemplate is set.
	Removed func(was, is runtime.Object) []schema.GroupVersionResource
	// Authorizer is the server's authorizer. It decides whether authors of NamespaceTemplates and
	// Publications have the required permissions. Required if ReadTemplate or Publishing is set.
	Authorizer authorizer.Authorizer
	// Publishing reads Publications and the objects that they copy. If nil, no caller may write a
	// Publication.
	Publishing *Publishing
	// MayPublish reports whether the configuration allows the publication of objects of a resource.
	// It is called only for resources for which [MayBeManaged] returns false. If nil, it allows
	// none.
	MayPublish func(schema.GroupResource) bool
}

// creationAnnotations are the annotations that no creator of a Namespace may set, except the server
// itself.
var creationAnnotations = []string{
	tenant.PreparedAnnotation, tenant.HeldAnnotation, tenant.ReleasingAnnotation, tenant.KeystoneAnnotation,
}

// serverAnnotations are the annotations of a Namespace that only the server itself may change.
// TenantNamespace sets [tenant.GivenLabelsAnnotation] when a Namespace is created.
var serverAnnotations = append(
	creationAnnotations[:len(creationAnnotations):len(creationAnnotations)],
	tenant.GivenLabelsAnnotation,
)

// New returns the plugin. It protects objects with [tenant.ManagedLabel] and the server's own
// annotations of Namespaces. It also checks NamespaceTemplates, Publications, the objects that they
// copy, and the creation of Pods.
func New(o Options) plugins.Interface {
	return &plugin{admission.NewHandler(admission.Create, admission.Update, admission.Delete), o}
}

type plugin struct {
	*admission.Handler
	Options
}

// Governs reports whether the plugin may deny an operation on a resource. It ignores resources
// that may be published only because of the configuration.
func Governs(r schema.GroupResource, operation admission.Operation) bool {
	return MayBeManaged(r) ||
		(r == corev1.Resource("namespaces") || r == templates || r == publications) && operation != admission.Delete ||
		r == corev1.Resource("pods") && operation == admission.Create
}

// MayBeManaged reports whether objects of a resource may have [tenant.ManagedLabel] in every
// configuration. The plugin protects such objects.
func MayBeManaged(r schema.GroupResource) bool {
	switch r.Group {
	case rbacv1.GroupName:
		return r.Resource == "rolebindings" || r.Resource == "clusterrolebindings" || r.Resource == "roles"
	case corev1.GroupName:
		return r.Resource == "configmaps" || r.Resource == "limitranges" || r.Resource == "resourcequotas" ||
			r.Resource == "secrets"
	case networkingv1.GroupName:
		return r.Resource == "networkpolicies"
	}
	return r == quotas
}

// mayBeManaged is [MayBeManaged] plus the resources that the configuration allows.
func (p *plugin) mayBeManaged(r schema.GroupResource) bool {
	return MayBeManaged(r) || p.MayPublish != nil && p.MayPublish(r)
}

var (
	// quotas is the resource of TenantQuotas. The quota controller writes their status.
	quotas    = schema.GroupResource{Group: tenant.Domain, Resource: "tenantquotas"}
	templates = schema.GroupResource{Group: tenant.Domain, Resource: "namespacetemplates"}
)

// Admit implements [admission.MutationInterface]. It protects the server's own annotations, and
// records the content that an author may publish.
func (p *plugin) Admit(ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces) error {
	switch resource := a.GetResource().GroupResource(); {
	case a.GetOperation() == admission.Delete:
		return nil
	case resource == corev1.Resource("namespaces"):
		return p.admitNamespace(ctx, a)
	case resource == publications:
		return p.admitPublication(ctx, a)
	case a.GetNamespace() != "" && p.mayBeManaged(resource):
		return p.admitSource(ctx, a, o)
	}
	warnNotPublished(ctx, a)
	return nil
}

// admitNamespace restores the server's annotations. If Pods must wait in a new Namespace, it sets
// the annotation that denies them.
func (p *plugin) admitNamespace(ctx context.Context, a admission.Attributes) error {
	old, obj, err := plugins.StoredMetadata(a)
	if err != nil || obj == nil {
		return admission.NewForbidden(a, plugins.ErrObject)
	}
	manager := p.Subject.IsManager(ctx, a)
	switch {
	case old == nil && !manager:
		sent := obj.GetAnnotations()
		for _, key := range creationAnnotations { // an export of another Namespace has them
			plugins.SetAnnotation(obj, key, nil)
		}
		plugins.WarnRewritten(ctx, sent, obj, creationAnnotations...)
	case !manager:
		plugins.RestoreAnnotations(ctx, a, old, obj, serverAnnotations...)
	}
	if old == nil && p.mustWait(ctx, obj) { // also for the manager, which creates the namespaces of Keystone projects
		plugins.SetAnnotation(obj, tenant.HeldAnnotation, new("true"))
	}
	return nil
}

// Validate implements [admission.ValidationInterface].
func (p *plugin) Validate(ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces) error {
	resource := a.GetResource().GroupResource()
	var check func(context.Context, admission.Attributes) error
	switch isDelete := a.GetOperation() == admission.Delete; {
	case p.mayBeManaged(resource):
		if a.GetSubresource() != "" && resource == quotas {
			return nil // a status update does not change the metadata
		}
		check = func(ctx context.Context, a admission.Attributes) error {
			if err := p.check(ctx, a); err != nil || isDelete || a.GetNamespace() == "" {
				return err
			}
			return p.checkSource(ctx, a, o)
		}
	case resource == corev1.Resource("pods"):
		return p.checkPod(ctx, a)
	case isDelete:
		return nil
	case resource == corev1.Resource("namespaces"):
		check = p.checkNamespace
	case resource == templates:
		check = p.checkTemplate
	case resource == publications:
		check = p.checkPublication
	default:
		return nil
	}
	switch err := check(ctx, a); {
	case errors.Is(err, errNotWaiting): // the next attempt succeeds, unless a webhook is the cause
		return tryAgain(a, err.Error())
	case err != nil:
		return admission.NewForbidden(a, err)
	}
	return nil
}

func (p *plugin) checkNamespace(ctx context.Context, a admission.Attributes) error {
	old, obj, err := plugins.StoredMetadata(a)
	if err != nil || obj == nil {
		return plugins.ErrObject
	}
	manager := p.Subject.IsManager(ctx, a)
	if old != nil {
		if !manager && plugins.CheckUnchanged(old, obj, serverAnnotations...) != nil {
			return errServerAnnotation
		}
		return nil
	}
	_, waiting := obj.GetAnnotations()[tenant.HeldAnnotation]
	switch {
	case !manager && slices.ContainsFunc(creationAnnotations, func(key string) bool {
		return key != tenant.HeldAnnotation && obj.GetAnnotations()[key] != ""
	}):
		return errServerAnnotation
	case !waiting && p.mustWait(ctx, obj):
		return errNotWaiting
	}
	return nil
}

// check denies writes of managed objects, unless the server itself sends them. It also reserves the
// names of managed objects.
func (p *plugin) check(ctx context.Context, a admission.Attributes) error {
	old, wasManaged := managedObject(a.GetOldObject())
	obj, managed := managedObject(a.GetObject())
	switch {
	case plugins.IsVirtual(a):
		// A Scale has no labels. The name shows whether it belongs to a copy.
		if p.Subject.IsManager(ctx, a) {
			return nil
		}
		return p.checkName(ctx, a, a.GetName())
	case a.GetOperation() == admission.Create && obj == nil,
		a.GetOperation() != admission.Create && old == nil,
		a.GetOperation() == admission.Update && obj == nil:
		return plugins.ErrObject
	case a.GetOperation() == admission.Create && !managed &&
		(a.GetNamespace() == "" ||
			!strings.HasPrefix(obj.GetName(), NamePrefix) && !strings.HasPrefix(obj.GetGenerateName(), NamePrefix)):
		return p.checkName(ctx, a, obj.GetName()) // the name has already been generated
	case a.GetOperation() != admission.Create && !wasManaged && !managed, p.Subject.IsManager(ctx, a):
		return nil
	}
	switch a.GetOperation() {
	case admission.Delete:
		if a.GetNamespace() != "" && p.Terminating(a.GetNamespace()) && plugins.EmptiesNamespaces(a.GetUserInfo()) &&
			p.Subject.IsSystem(ctx, a.GetUserInfo()) {
			return nil
		}
	case admission.Update:
		if a.GetSubresource() == "status" && sameMetadata(old, obj) { // such an update cannot change the spec
			return nil
		}
		// An update without changes is allowed, for example during a storage migration. A tenant's
		// caller may not even change managedFields, because the server compares them to find
		// objects that other callers wrote.
		if sameObject(a.GetOldObject(), a.GetObject()) && (sameManagedFields(old, obj) ||
			p.Subject.IsSystem(ctx, a.GetUserInfo())) {
			return nil
		}
		if !wasManaged {
			return labelError(obj)
		}
	case admission.Create:
		if !managed {
			return errName
		}
		return labelError(obj)
	}
	return managedError(old)
}

// labelError returns the error for a caller that sets a label that only the server may set.
func labelError(obj metav1.Object) error {
	if _, managed := obj.GetLabels()[tenant.ManagedLabel]; !managed {
		return errPublicationLabel
	}
	return errManagedLabel
}

// managedError returns the error for a caller that writes an object that the server manages.
func managedError(old metav1.Object) error {
	if name, ok := old.GetLabels()[tenant.PublicationLabel]; ok {
		return fmt.Errorf("the object belongs to the Publication %s of the platform (label %s): "+
			"only the platform can change or delete it", name, tenant.PublicationLabel)
	}
	return errManaged
}

// managedObject returns the metadata of an object, or nil if there is none, and reports whether the
// server manages the object.
func managedObject(obj runtime.Object) (metav1.Object, bool) {
	if obj == nil {
		return nil, false
	}
	m, err := meta.Accessor(obj)
	if err != nil {
		return nil, false
	}
	return m, isManaged(m)
}

// sameObject reports whether a write changes only managedFields and resourceVersion.
func sameObject(oldObj, newObj runtime.Object) bool {
	before, now := oldObj.DeepCopyObject(), newObj.DeepCopyObject()
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

// sameManagedFields reports whether a write leaves managedFields unchanged.
func sameManagedFields(old, obj metav1.Object) bool {
	return equality.Semantic.DeepEqual(old.GetManagedFields(), obj.GetManagedFields())
}

// sameMetadata reports whether labels, annotations, owners and finalizers are the same.
func sameMetadata(old, obj metav1.Object) bool {
	return equality.Semantic.DeepEqual(old.GetLabels(), obj.GetLabels()) &&
		equality.Semantic.DeepEqual(old.GetAnnotations(), obj.GetAnnotations()) &&
		equality.Semantic.DeepEqual(old.GetOwnerReferences(), obj.GetOwnerReferences()) &&
		equality.Semantic.DeepEqual(old.GetFinalizers(), obj.GetFinalizers())
}
