// Package managed keeps what the server makes of Tenants by itself as it is: bindings, and quotas. Whoever else creates, changes or deletes such an object is refused, the cluster's admins too: the next look would put it back.
package managed

import (
	"context"
	"errors"
	"strings"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"

	"github.com/kubetenant/kubetenant/plugins"
	"github.com/kubetenant/kubetenant/tenant"
)

// Name of the plugin.
const Name = "TenantManaged"

const (
	// NamePrefix begins the names of bindings that are managed. Nobody else makes a RoleBinding of such a name.
	NamePrefix = "kubetenant:"
	// SourceTenant is the value of [tenant.ManagedLabel] on what a Tenant gives.
	SourceTenant = "tenant"
)

var (
	errManaged  = errors.New("the object comes from a Tenant (label " + tenant.ManagedLabel + "): change spec.admins, spec.bindings or spec.quota there")
	errLabel    = errors.New("the label " + tenant.ManagedLabel + " is the server's own")
	errName     = errors.New("names that begin with " + NamePrefix + " are the server's own")
	errPrepared = errors.New("the annotation " + tenant.PreparedAnnotation + " is the server's own")
)

// Options configure the plugin. Both fields are required.
type Options struct {
	Subject plugins.SubjectFunc
	// Terminating reports whether a namespace is known to be going: then what is in it may go.
	Terminating func(namespace string) bool
}

// New returns the plugin. It governs bindings and TenantQuotas with [tenant.ManagedLabel], and [tenant.PreparedAnnotation] of Namespaces.
func New(o Options) plugins.Interface {
	return &plugin{admission.NewHandler(admission.Create, admission.Update, admission.Delete), o}
}

type plugin struct {
	*admission.Handler
	Options
}

// Governs reports whether the plugin looks at an operation on a resource.
func Governs(r schema.GroupResource, operation admission.Operation) bool {
	return mayBeManaged(r) || r == corev1.Resource("namespaces") && operation != admission.Delete
}

// mayBeManaged reports whether objects of a resource may be.
func mayBeManaged(r schema.GroupResource) bool {
	return r.Group == rbacv1.GroupName && (r.Resource == "rolebindings" || r.Resource == "clusterrolebindings") || r == quotas
}

// quotas are one for each tenant, whose status is written by whoever counts.
var quotas = schema.GroupResource{Group: tenant.Domain, Resource: "tenantquotas"}

// Admit implements [admission.MutationInterface]: it leaves the annotation of a Namespace as it was.
func (p *plugin) Admit(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	resource := a.GetResource().GroupResource()
	if mayBeManaged(resource) || !Governs(resource, a.GetOperation()) || p.Subject.IsManager(ctx, a) {
		return nil
	}
	was, is, err := plugins.Stored(a)
	if err != nil || is == nil {
		return admission.NewForbidden(a, plugins.ErrObject)
	}
	if was == nil {
		plugins.SetAnnotation(is, tenant.PreparedAnnotation, nil) // exported, and made anew
		return nil
	}
	plugins.Keep(ctx, was, is, tenant.PreparedAnnotation)
	return nil
}

// Validate implements [admission.ValidationInterface].
func (p *plugin) Validate(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	resource := a.GetResource().GroupResource()
	if !Governs(resource, a.GetOperation()) {
		return nil
	}
	if a.GetSubresource() != "" && resource == quotas {
		return nil // its metadata stays as it is
	}
	check := p.checkNamespace
	if mayBeManaged(resource) {
		check = p.check
	}
	if err := check(ctx, a); err != nil {
		return admission.NewForbidden(a, err)
	}
	return nil
}

func (p *plugin) checkNamespace(ctx context.Context, a admission.Attributes) error {
	was, is, err := plugins.Stored(a)
	if err != nil || is == nil {
		return plugins.ErrObject
	}
	if was == nil {
		was = &metav1.ObjectMeta{}
	}
	if was.GetAnnotations()[tenant.PreparedAnnotation] != is.GetAnnotations()[tenant.PreparedAnnotation] && !p.Subject.IsManager(ctx, a) {
		return errPrepared
	}
	return nil
}

// check holds the writes of what is managed.
func (p *plugin) check(ctx context.Context, a admission.Attributes) error {
	was, had := labelled(a.GetOldObject())
	is, has := labelled(a.GetObject())
	switch {
	case a.GetOperation() == admission.Create && is == nil, a.GetOperation() != admission.Create && was == nil, a.GetOperation() == admission.Update && is == nil:
		return plugins.ErrObject
	case a.GetOperation() == admission.Create && !has && (a.GetNamespace() == "" || !strings.HasPrefix(is.GetName(), NamePrefix) && !strings.HasPrefix(is.GetGenerateName(), NamePrefix)):
		return nil
	case a.GetOperation() != admission.Create && !had && !has, p.Subject.IsManager(ctx, a):
		return nil
	}
	switch a.GetOperation() {
	case admission.Delete:
		if a.GetNamespace() != "" && p.Terminating(a.GetNamespace()) {
			return nil
		}
	case admission.Update:
		if sameObject(a.GetOldObject(), a.GetObject()) { // as a migration of what is stored writes it
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
