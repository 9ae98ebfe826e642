// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package managed

import (
	"context"
	"errors"
	"fmt"
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"

	"github.com/kubetenant/kubetenant/plugins"
	"github.com/kubetenant/kubetenant/tenant"
)

var (
	publications = schema.GroupResource{Group: tenant.Domain, Resource: "publications"}

	errPublication = errors.New("this server cannot check Publications")
	errFinalizer   = errors.New("the finalizer " + tenant.PublicationFinalizer +
		" may only be removed by the server: it does so after all copies are deleted")
	errStatus    = errors.New("only the server may write the status of a Publication")
	errPublished = errors.New("only the server may set the annotation " + tenant.PublishedAnnotation)
)

// Publication is the part of a Publication that the plugin checks.
type Publication struct {
	Source
	// Replace reports whether the server may delete existing objects that have the same name as a
	// copy.
	Replace bool
}

// Source identifies an object of the system tenant that is published.
type Source struct {
	Kind            schema.GroupVersionKind
	Resource        schema.GroupVersionResource
	Namespace, Name string
}

// Content describes the content of a source.
type Content struct {
	// Hash identifies the content, see [tenant.PublishedAnnotation].
	Hash string
	// Ref is the role that a RoleBinding refers to. It is nil for other objects.
	Ref *rbacv1.RoleRef
	// Rules are the rules that the copies grant. They are the rules of a Role, or of the role that
	// a RoleBinding refers to.
	Rules []rbacv1.PolicyRule
	// UnknownRules reports whether the role of a RoleBinding does not exist.
	UnknownRules bool
}

// Publishing reads Publications and the objects that they copy. All fields are required.
type Publishing struct {
	// Owner returns the tenant that owns a namespace.
	Owner plugins.OwnerFunc
	// Read reads a Publication. It returns an error if the kind of its source may not be published.
	// The error contains the path of the field.
	Read func(runtime.Object) (*Publication, error)
	// Resource returns the resource of a kind, or an error if its objects may not be published.
	Resource func(schema.GroupVersionKind) (schema.GroupVersionResource, error)
	// IsNamed reports whether Publications name an object, and whether one of them has the conflict
	// policy Replace. known is false if the Publications are not known.
	IsNamed func(of schema.GroupResource, namespace, name string) (named, replace, known bool)
	// Object reads a source from the server. It returns nil if the source does not exist.
	Object func(context.Context, *Source) (*unstructured.Unstructured, error)
	// Content returns the content of a source. It reads the role of a RoleBinding from the server.
	// It returns an error if the object may not be published.
	Content func(context.Context, *unstructured.Unstructured) (*Content, error)
}

// admitPublication records the content that the author of a Publication may publish. It restores
// the finalizer if an update omits it.
func (p *plugin) admitPublication(ctx context.Context, a admission.Attributes) error {
	old, obj, err := plugins.StoredMetadata(a)
	switch {
	case err != nil:
		return admission.NewForbidden(a, plugins.ErrObject)
	case obj == nil:
		return nil
	case a.GetSubresource() != "":
		p.restorePublished(ctx, a, old, obj)
		return nil
	}
	manager := p.Subject.IsManager(ctx, a)
	if !manager && removesFinalizer(old, obj) {
		obj.SetFinalizers(append(slices.Clip(obj.GetFinalizers()), tenant.PublicationFinalizer))
	}
	isNew := old == nil || requestsCheck(old, obj)
	p.restorePublished(ctx, a, old, obj)
	if manager || !isNew && sameSource(a.GetOldObject(), a.GetObject()) {
		return nil // any other change does not confirm that the author has read the content
	}
	if hash, err := p.checkedContent(ctx, a); err == nil { // Validate returns the error
		setPublished(obj, hash)
	}
	return nil
}

// sameSource reports whether an update leaves the source of a Publication unchanged.
func sameSource(was, is runtime.Object) bool {
	source := func(object runtime.Object) any {
		u, is := object.(runtime.Unstructured)
		if !is {
			return nil
		}
		from, _, _ := unstructured.NestedMap(u.UnstructuredContent(), "spec", "from")
		return from
	}
	before, now := source(was), source(is)
	return before != nil && equality.Semantic.DeepEqual(before, now)
}

// requestsCheck reports whether an update adds or removes [tenant.PublishedAnnotation]. An author
// does this to confirm content that another caller wrote. Any other update confirms only its own
// changes, because a tool that rewrites an object has not read its content.
func requestsCheck(old, obj metav1.Object) bool {
	_, oldOK := old.GetAnnotations()[tenant.PublishedAnnotation]
	_, ok := obj.GetAnnotations()[tenant.PublishedAnnotation]
	return oldOK != ok
}

// restorePublished removes [tenant.PublishedAnnotation] from a new object and restores it in an
// update.
func (p *plugin) restorePublished(ctx context.Context, a admission.Attributes, old, obj metav1.Object) {
	if old != nil {
		plugins.RestoreAnnotations(ctx, a, old, obj, tenant.PublishedAnnotation)
		return
	}
	sent := obj.GetAnnotations()
	plugins.SetAnnotation(obj, tenant.PublishedAnnotation, nil)
	plugins.WarnRewritten(ctx, sent, obj, tenant.PublishedAnnotation)
}

// setPublished sets [tenant.PublishedAnnotation], or removes it if the hash is empty.
func setPublished(obj metav1.Object, hash string) {
	if hash == "" {
		plugins.SetAnnotation(obj, tenant.PublishedAnnotation, nil)
		return
	}
	plugins.SetAnnotation(obj, tenant.PublishedAnnotation, &hash)
}

// removesFinalizer reports whether an update removes the finalizer of a Publication.
func removesFinalizer(old, obj metav1.Object) bool {
	return old != nil && slices.Contains(old.GetFinalizers(), tenant.PublicationFinalizer) &&
		!slices.Contains(obj.GetFinalizers(), tenant.PublicationFinalizer)
}

// changesManagedLabel reports whether a write adds, changes or removes [tenant.ManagedLabel] on a
// Publication. The server sets this label on the Publications that it creates for annotated
// objects. old is nil if the Publication is created.
func changesManagedLabel(old, obj metav1.Object) bool {
	now, ok := obj.GetLabels()[tenant.ManagedLabel]
	if old == nil {
		return ok
	}
	before, oldOK := old.GetLabels()[tenant.ManagedLabel]
	return oldOK != ok || before != now
}

// checkPublication denies an invalid Publication. It also denies a Publication if its author may
// not publish the source. It applies to every caller. For [tenant.ManagerUser], it checks only the
// validity. This user creates Publications for annotated objects, and the authors of these objects
// are checked instead.
func (p *plugin) checkPublication(ctx context.Context, a admission.Attributes) error {
	old, obj, err := plugins.StoredMetadata(a)
	if err != nil || obj == nil {
		return plugins.ErrObject
	}
	manager := p.Subject.IsManager(ctx, a)
	if a.GetSubresource() != "" {
		switch {
		case !p.Subject.IsSystem(ctx, a.GetUserInfo()):
			return errStatus
		case plugins.CheckUnchanged(old, obj, tenant.PublishedAnnotation) != nil, !manager && removesFinalizer(old, obj):
			return errPublished
		}
		return nil
	}
	switch {
	case !manager && removesFinalizer(old, obj):
		return errFinalizer
	case !manager && changesManagedLabel(old, obj):
		return errManagedLabel
	}
	published := obj.GetAnnotations()[tenant.PublishedAnnotation]
	isUnchanged := old != nil && plugins.CheckUnchanged(old, obj, tenant.PublishedAnnotation) == nil
	unchanged := old != nil && sameSpec(a.GetOldObject(), a.GetObject())
	if manager {
		if !isUnchanged && (old != nil || published != "") {
			return errPublished
		}
		if unchanged {
			return nil
		}
		_, err := p.readPublication(ctx, a)
		return err
	}
	if unchanged && (isUnchanged || published == "") {
		return nil
	}
	hash, err := p.checkedContent(ctx, a)
	switch {
	case err != nil && unchanged:
		return errPublished
	case err != nil:
		return err
	case published != "" && published != hash && !isUnchanged:
		return errPublished
	}
	return nil
}

// readPublication reads a Publication. It returns an error if the source is not in a namespace of
// the system tenant.
func (p *plugin) readPublication(ctx context.Context, a admission.Attributes) (*Publication, error) {
	if p.Publishing == nil {
		return nil, errPublication
	}
	publication, err := p.Publishing.Read(a.GetObject())
	if err != nil {
		return nil, err
	}
	owner, err := p.Publishing.Owner(ctx, publication.Namespace)
	switch {
	case err != nil:
		return nil, fmt.Errorf("spec.from.namespace: cannot check now which tenant owns the namespace: %w", err)
	case !owner.IsSystem():
		return nil, errors.New("spec.from.namespace: must be a namespace of the system tenant")
	}
	return publication, nil
}

// checkedContent returns the hash of the source of a Publication if the caller may publish it. The
// hash is empty if the source does not exist.
func (p *plugin) checkedContent(ctx context.Context, a admission.Attributes) (string, error) {
	publication, err := p.readPublication(ctx, a)
	if err != nil {
		return "", err
	}
	author := author{plugin: p, user: a.GetUserInfo(), path: "spec.from"}
	if err := author.mayWrite(ctx, publication); err != nil {
		return "", err
	}
	object, err := p.Publishing.Object(ctx, &publication.Source)
	switch {
	case err != nil:
		return "", fmt.Errorf("spec.from: cannot read the object now: %w", err)
	case object == nil:
		return "", nil
	}
	content, err := p.Publishing.Content(ctx, object)
	if err != nil {
		return "", err
	}
	return content.Hash, author.mayGrant(ctx, content)
}
