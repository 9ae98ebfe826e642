// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package managed

import (
	"context"
	"errors"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/warning"

	"github.com/kubetenant/kubetenant/plugins"
	"github.com/kubetenant/kubetenant/tenant"
)

const (
	warnNotSystem = "the annotation " + tenant.PublishAnnotation +
		" has no effect: only objects in namespaces of the system tenant can be published"
	warnNotPublishable = "the annotation " + tenant.PublishAnnotation +
		" has no effect: objects of this kind cannot be published"

	publishPath = "metadata.annotations[" + tenant.PublishAnnotation + "]"
)

var errGenerated = errors.New(publishPath +
	": an object with metadata.generateName cannot be published, set metadata.name")

// admitSource records the hash of a published object if its author may publish the object. In all
// other cases, it restores the old value of [tenant.PublishedAnnotation].
func (p *plugin) admitSource(ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces) error {
	old, obj, err := plugins.StoredMetadata(a)
	if err != nil || obj == nil || isManaged(old) || isManaged(obj) {
		return nil //nolint:nilerr // Validate refuses it
	}
	marked := hasPublishAnnotation(obj) || old != nil && hasPublishAnnotation(old)
	if a.GetSubresource() != "" {
		if marked {
			plugins.RestoreAnnotations(ctx, a, old, obj, tenant.PublishAnnotation, tenant.PublishedAnnotation)
		}
		return nil
	}
	isSource := p.isSource(ctx, a)
	if !marked && !isSource {
		return nil
	}
	named, replace, known := p.isNamed(a)
	switch {
	case !marked && known && !named:
		return nil
	case !isSource:
		p.restorePublished(ctx, a, old, obj)
		if changesPublishAnnotation(old, obj) {
			warning.AddWarning(ctx, "", warnNotSystem)
		}
		return nil
	}
	_, annotated := obj.GetAnnotations()[tenant.PublishAnnotation]
	_, sent := obj.GetAnnotations()[tenant.PublishedAnnotation]
	switch {
	case annotated && a.GetName() == "" && obj.GetName() == "":
		return admission.NewForbidden(a, errGenerated)
	case known && !named && !annotated && !sent:
		return nil // a caller may remove the annotation of an object that is no longer published
	}
	isNew := old == nil || requestsCheck(old, obj) || addsPublishAnnotation(old, obj)
	p.restorePublished(ctx, a, old, obj)
	if !known || !named && !annotated || p.Subject.IsManager(ctx, a) || !isNew && p.sameContent(ctx, a, o) {
		return nil
	}
	switch hash, err := p.sourceContent(ctx, a, o, replace); {
	case err == nil:
		setPublished(obj, hash)
	case !changesPublishAnnotation(old, obj): // otherwise Validate denies the write
		warning.AddWarning(ctx, "", "the object is published, but the server does not copy this content: "+err.Error())
	}
	return nil
}

// warnNotPublished warns a caller that annotates an object that cannot be published.
func warnNotPublished(ctx context.Context, a admission.Attributes) {
	if a.GetSubresource() != "" || a.GetObject() == nil {
		return
	}
	old, obj, err := plugins.StoredMetadata(a)
	if err == nil && obj != nil && changesPublishAnnotation(old, obj) {
		warning.AddWarning(ctx, "", warnNotPublishable)
	}
}

// checkSource denies a write that publishes an object by annotation if the caller may not publish
// it. It also denies a value of [tenant.PublishedAnnotation] that another admission plugin set.
func (p *plugin) checkSource(ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces) error {
	old, obj, err := plugins.StoredMetadata(a)
	if err != nil {
		return plugins.ErrObject
	}
	if obj == nil || !hasPublishAnnotation(obj) || isManaged(old) || isManaged(obj) {
		return nil
	}
	hash, ok := obj.GetAnnotations()[tenant.PublishedAnnotation]
	_, annotated := obj.GetAnnotations()[tenant.PublishAnnotation]
	changed := ok && (old == nil || plugins.CheckUnchanged(old, obj, tenant.PublishedAnnotation) != nil)
	isSource := p.isSource(ctx, a)
	publish := changesPublishAnnotation(old, obj) && isSource
	switch {
	case !changed && !publish:
		return nil
	case !isSource, a.GetSubresource() != "", p.Subject.IsManager(ctx, a):
		return errPublished
	case publish:
		if err := checkTenants(obj.GetAnnotations()[tenant.PublishAnnotation]); err != nil {
			return err
		}
	}
	named, replace, known := p.isNamed(a)
	want, err := p.sourceContent(ctx, a, o, replace)
	switch {
	case publish && err != nil:
		return err
	case changed && (err != nil || hash != want || !known || !named && !annotated):
		return errPublished
	}
	return nil
}

// sourceContent returns the hash of an object in a namespace of the system tenant. It returns an
// error if the caller may not publish the object.
func (p *plugin) sourceContent(
	ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces, replace bool,
) (string, error) {
	if p.Publishing == nil {
		return "", errPublication
	}
	u, err := contentOf(a.GetObject(), a.GetKind(), o)
	if err != nil {
		return "", plugins.ErrObject
	}
	u.SetNamespace(a.GetNamespace())
	resource, err := p.Publishing.Resource(a.GetKind())
	if err != nil {
		return "", inAnnotation(err)
	}
	publication := Publication{
		Source:  Source{a.GetKind(), resource, a.GetNamespace(), u.GetName()},
		Replace: replace,
	}
	author := author{plugin: p, user: a.GetUserInfo(), path: publishPath}
	if err := author.mayWrite(ctx, &publication); err != nil {
		return "", err
	}
	content, err := p.Publishing.Content(ctx, u)
	if err != nil {
		return "", inAnnotation(err)
	}
	return content.Hash, author.mayGrant(ctx, content)
}

// inAnnotation rewrites an error about the source of a Publication as an error about the
// annotation.
func inAnnotation(err error) error {
	text := strings.TrimPrefix(err.Error(), "spec.from")
	for _, field := range []string{".name", ": "} {
		text = strings.TrimPrefix(text, field)
	}
	return fmt.Errorf("%s: %s", publishPath, strings.TrimPrefix(text, ": "))
}

// checkTenants returns an error if a value of [tenant.PublishAnnotation] does not specify tenants.
func checkTenants(value string) error {
	if value == tenant.AnyName {
		return nil
	}
	for text := range strings.SplitSeq(value, ",") {
		if id, err := tenant.Parse(text); err != nil || id.IsSystem() {
			return fmt.Errorf("%s: must be \"*\" or a list of tenant IDs, separated by commas: %q is not the ID of a tenant",
				publishPath, text)
		}
	}
	return nil
}

// isNamed calls [Publishing.IsNamed] for the object of a write.
func (p *plugin) isNamed(a admission.Attributes) (named, replace, known bool) {
	if p.Publishing == nil || a.GetName() == "" {
		return false, false, true
	}
	return p.Publishing.IsNamed(a.GetResource().GroupResource(), a.GetNamespace(), a.GetName())
}

// isSource reports whether an object is known to be in a namespace of the system tenant.
func (p *plugin) isSource(ctx context.Context, a admission.Attributes) bool {
	if p.Publishing == nil {
		return false
	}
	owner, err := p.Publishing.Owner(ctx, a.GetNamespace())
	return err == nil && owner.IsSystem()
}

// isManaged reports whether the server manages an object.
func isManaged(m metav1.Object) bool {
	if m == nil {
		return false
	}
	labels := m.GetLabels()
	if len(labels) == 0 {
		return false
	}
	_, managed := labels[tenant.ManagedLabel]
	_, published := labels[tenant.PublicationLabel]
	return managed || published
}

// hasPublishAnnotation reports whether an object has [tenant.PublishAnnotation] or
// [tenant.PublishedAnnotation].
func hasPublishAnnotation(m metav1.Object) bool {
	annotations := m.GetAnnotations()
	if len(annotations) == 0 {
		return false
	}
	_, publish := annotations[tenant.PublishAnnotation]
	_, published := annotations[tenant.PublishedAnnotation]
	return publish || published
}

// changesPublishAnnotation reports whether a write adds or changes [tenant.PublishAnnotation]. old
// is nil if the object is created.
func changesPublishAnnotation(old, obj metav1.Object) bool {
	now, ok := obj.GetAnnotations()[tenant.PublishAnnotation]
	if old == nil || !ok {
		return ok
	}
	before, oldOK := old.GetAnnotations()[tenant.PublishAnnotation]
	return !oldOK || before != now
}

// addsPublishAnnotation reports whether an update adds [tenant.PublishAnnotation].
func addsPublishAnnotation(old, obj metav1.Object) bool {
	_, oldOK := old.GetAnnotations()[tenant.PublishAnnotation]
	_, ok := obj.GetAnnotations()[tenant.PublishAnnotation]
	return ok && !oldOK
}

// sameContent reports whether an update leaves all copied fields unchanged. Such an update does not
// confirm the content, because the caller may not have read it.
func (p *plugin) sameContent(ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces) bool {
	var hashes [2]string
	for i, obj := range []runtime.Object{a.GetOldObject(), a.GetObject()} {
		u, err := contentOf(obj, a.GetKind(), o)
		if err != nil {
			return false
		}
		u.SetNamespace(a.GetNamespace())
		content, err := p.Publishing.Content(ctx, u)
		if err != nil {
			return false
		}
		hashes[i] = content.Hash
	}
	return hashes[0] == hashes[1]
}

// contentOf returns a copy of an object as the server returns it to clients. The server returns an
// empty list of a built-in kind as null.
func contentOf(
	obj runtime.Object, kind schema.GroupVersionKind, o admission.ObjectInterfaces,
) (*unstructured.Unstructured, error) {
	if obj == nil {
		return nil, plugins.ErrObject
	}
	out := &unstructured.Unstructured{}
	if custom, ok := obj.(runtime.Unstructured); ok {
		out.Object = runtime.DeepCopyJSON(custom.UnstructuredContent())
		out.SetGroupVersionKind(kind)
		return out, nil
	}
	if o != nil {
		var err error
		if obj, err = admission.ConvertToGVK(obj, kind, o); err != nil {
			return nil, err
		}
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	if err != nil {
		return nil, err
	}
	withoutEmpty(content)
	out.Object = content
	out.SetGroupVersionKind(kind)
	return out, nil
}

// withoutEmpty replaces empty lists with null.
func withoutEmpty(value any) {
	switch value := value.(type) {
	case map[string]any:
		for key, element := range value {
			if list, ok := element.([]any); ok && len(list) == 0 {
				value[key] = nil
				continue
			}
			withoutEmpty(element)
		}
	case []any:
		for _, element := range value {
			withoutEmpty(element)
		}
	}
}
