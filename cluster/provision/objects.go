// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package provision

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubetenant/kubetenant/cluster/template"
	"github.com/kubetenant/kubetenant/plugins/managed"
	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

// errTemplate reports an error in a template. Retries fail until the template changes.
var errTemplate = errors.New("spec.namespaces.templates")

// errUnread reports that the current versions of the Publications have not been read.
var errUnread = errors.New("the Publications have not been read")

// namedTemplate is a NamespaceTemplate that a Tenant names.
type namedTemplate struct {
	name     string
	template *template.Template // nil if the template does not exist
	digest   string
}

// templatesOf returns the templates with the given names, oldest first. The second result is false
// if the templates have not been read.
func (e *Engine) templatesOf(names []string) (out []namedTemplate, known bool) {
	for _, name := range names {
		parsed, known := e.Tenants.Template(name)
		if !known {
			return nil, false
		}
		t := namedTemplate{name: name, template: parsed}
		if parsed != nil {
			t.digest = parsed.Digest
		}
		out = append(out, t)
	}
	slices.SortStableFunc(out, func(a, b namedTemplate) int {
		if a.template == nil || b.template == nil || a.template.Created.Equal(b.template.Created) {
			return strings.Compare(a.name, b.name)
		}
		return a.template.Created.Compare(b.template.Created)
	})
	return out, true
}

// object identifies an object in a namespace that a template or a Publication defines.
type object struct {
	resource schema.GroupVersionResource
	name     string
}

// wanted is an object that a namespace should have, in the form in which the engine writes it.
type wanted struct {
	*unstructured.Unstructured
	publication *published // nil if a template defines the object
}

// objects are the objects that templates and Publications define for a namespace. The zero value
// has no objects.
type objects struct {
	wanted map[object]wanted
	// keptTemplates has the names of the templates that do not exist or cannot be rendered. Their
	// existing objects remain.
	keptTemplates []string
	keepAll       bool // the existing objects of all templates remain
	// publication returns the current state of the Publication with the given name, or nil if it is
	// not known. The copies of an unknown Publication remain.
	publication func(publication string) *published
	// selects reports whether a Publication currently selects the namespace.
	selects func(*published) bool
	// selecting has the states of the Publications that select the namespace, keyed by name. Their
	// copies are in wanted.
	selecting map[string]*published
	// mayExist reports whether the namespace may already have managed objects. drifted reports
	// whether these objects may be of any kind, including kinds that the annotation does not
	// list.
	mayExist, drifted bool
	// applied reports whether all objects were written, except those with a permanent error.
	applied bool
	// err is the error that the status of the Tenant reports, because the namespace lacks an
	// object.
	err error
	// refused has the errors that prevent copies in the namespace, keyed by the name of the
	// Publication.
	refused map[string]error
}

// objectSource is a template or a Publication with its objects for a namespace.
type objectSource struct {
	kind, name  string
	created     time.Time
	objects     []template.Object
	publication *published
}

// objects returns the objects that a namespace of a tenant should have. If two templates or
// Publications define the same object, the object from the older one is used.
func (g *desiredState) objects(id tenant.ID, ns *corev1.Namespace) objects {
	return g.objectsOf(id, ns, schema.GroupVersionResource{})
}

// objectsOf is like [desiredState.objects], but returns only the objects of the given resource. If
// the resource is the zero value, it returns all objects.
func (g *desiredState) objectsOf(id tenant.ID, ns *corev1.Namespace, of schema.GroupVersionResource) objects {
	out := objects{
		wanted:      map[object]wanted{},
		keepAll:     g.uid == "",
		publication: g.publication,
		selects: func(p *published) bool {
			return g.selects(p) && p.publication.SelectsNamespace(ns.Name, g.namespaceLabels)
		},
		selecting: map[string]*published{},
		refused:   map[string]error{},
	}
	if g.unread {
		out.err = errUnread
	}
	var objectSources []objectSource
	for _, t := range g.templates {
		if t.template == nil {
			out.keptTemplates = append(out.keptTemplates, t.name)
			out.err = errors.Join(out.err, fmt.Errorf("%w: NamespaceTemplate %s does not exist", errTemplate, t.name))
			continue
		}
		all, err := t.template.Render(id, ns.Name)
		if err != nil {
			out.keptTemplates = append(out.keptTemplates, t.name)
			out.err = errors.Join(out.err, fmt.Errorf("%w: NamespaceTemplate %s: %w", errTemplate, t.name, err))
			continue
		}
		all = slices.DeleteFunc(all, func(o template.Object) bool { return !of.Empty() && o.Resource != of })
		objectSources = append(objectSources,
			objectSource{v1alpha1.KindNamespaceTemplate, t.name, t.template.Created, all, nil})
	}
	for _, p := range g.published {
		if p.gone || !p.publication.SelectsNamespace(ns.Name, g.namespaceLabels) {
			continue
		}
		out.selecting[p.publication.Name] = p
		if p.content != nil && !of.Empty() && p.content.Resource != of {
			continue
		}
		switch {
		case p.content != nil:
			all := []template.Object{{Resource: p.content.Resource, Object: p.content.Render(id, ns.Name)}}
			objectSources = append(objectSources,
				objectSource{v1alpha1.KindPublication, p.publication.Name, p.publication.Created, all, p})
		case p.publication.Hold && !p.publication.Deleting && isHeld(ns):
			out.err = errors.Join(out.err, fmt.Errorf("%s %s: %s", v1alpha1.KindPublication, p.publication.Name, p.message))
		}
	}
	slices.SortStableFunc(objectSources, func(a, b objectSource) int { return a.created.Compare(b.created) })
	for _, from := range objectSources {
		out.add(from, id, ns)
	}
	return out
}

// add adds the objects of a source, which must be newer than the sources added before. It records
// an error for each object that an older source also defines.
func (o *objects) add(from objectSource, id tenant.ID, ns *corev1.Namespace) {
	for _, item := range from.objects {
		key := object{item.Resource, item.Object.GetName()}
		older, ok := o.wanted[key]
		if !ok {
			o.wanted[key] = wanted{withMetadata(item.Object, id, ns.Name, from), from.publication}
			continue
		}
		err := fmt.Errorf("%s %s has the same %s %s as the older %s",
			from.kind, from.name, item.Object.GetKind(), key.name, sourceOf(older.Unstructured))
		if from.publication == nil {
			o.err = errors.Join(o.err, fmt.Errorf("%w: %w", errTemplate, err))
		} else {
			o.refused[from.name] = fmt.Errorf("%w: %w", errConflict, err)
		}
	}
}

// sourceOf returns the kind and the name of the template or Publication of a managed object.
func sourceOf(u *unstructured.Unstructured) string {
	if name := u.GetLabels()[tenant.PublicationLabel]; name != "" {
		return v1alpha1.KindPublication + " " + name
	}
	return v1alpha1.KindNamespaceTemplate + " " + templateOf(u)
}

// templateOf returns the name of the template of a managed object.
func templateOf(u *unstructured.Unstructured) string {
	name, _, _ := strings.Cut(u.GetAnnotations()[tenant.TemplateAnnotation], "/")
	return name
}

// removes reports whether a stored object of a template or a Publication must be deleted. It
// returns false if the state of the template or Publication is not known, or is newer than the
// wanted objects. Another pass follows in these cases.
func (o *objects) removes(key object, u *unstructured.Unstructured) bool {
	if _, ok := o.wanted[key]; ok {
		return false
	}
	if u.GetLabels()[tenant.ManagedLabel] == managed.SourcePublication {
		name := u.GetLabels()[tenant.PublicationLabel]
		p := o.publication(name)
		known := o.selecting[name]
		isWanted := known != nil && p != nil && !p.differs(known)
		if p == nil || !p.gone && !isWanted && o.selects(p) {
			return false // its copies are not in wanted, because it was read later
		}
		return p.prunes(isWanted)
	}
	return !o.keepAll && !slices.Contains(o.keptTemplates, templateOf(u))
}

// withMetadata sets the metadata that the engine writes on an object of a source, and returns the
// object.
func withMetadata(
	u *unstructured.Unstructured,
	id tenant.ID,
	namespace string,
	from objectSource,
) *unstructured.Unstructured {
	text, err := json.Marshal(u.Object)
	if err != nil {
		panic(err) // impossible, u was decoded from JSON
	}
	sum := sha256.Sum256(text)
	hash := hex.EncodeToString(sum[:16])
	u.SetNamespace(namespace)
	labels := map[string]string{tenant.ManagedLabel: managed.SourceTemplate, tenant.Label: id.String()}
	annotations := map[string]string{tenant.TemplateAnnotation: from.name + "/" + hash}
	if from.publication != nil {
		labels[tenant.ManagedLabel], labels[tenant.PublicationLabel] = managed.SourcePublication, from.name
		annotations = map[string]string{tenant.PublishedAnnotation: hash}
	}
	maps.Copy(labels, u.GetLabels())
	u.SetLabels(labels)
	maps.Copy(annotations, u.GetAnnotations())
	u.SetAnnotations(annotations)
	return u
}

// isSameObject reports whether a stored object has the wanted content and metadata, and whether
// the engine is its only field manager. It ignores the field managers of subresources, and fields
// that the server sets by default, because the defaults depend on the release.
func isSameObject(stored, want *unstructured.Unstructured) bool {
	metadata := func(u *unstructured.Unstructured) *metav1.ObjectMeta {
		return &metav1.ObjectMeta{
			Labels:          u.GetLabels(),
			Annotations:     u.GetAnnotations(),
			OwnerReferences: u.GetOwnerReferences(),
			Finalizers:      u.GetFinalizers(),
		}
	}
	return hasMetadata(metadata(stored), metadata(want)) && contains(stored.Object, withoutMetadata(want)) &&
		!slices.ContainsFunc(stored.GetManagedFields(), func(m metav1.ManagedFieldsEntry) bool {
			return m.Subresource == "" && m.Manager != v1alpha1.FieldManager
		})
}

// withoutMetadata returns an object without its metadata.
func withoutMetadata(u *unstructured.Unstructured) map[string]any {
	out := maps.Clone(u.Object)
	delete(out, "metadata")
	return out
}

// contains reports whether got contains all fields of want. The server may add defaults to got, and
// may write quantities in another form.
func contains(got, want any) bool {
	switch want := want.(type) {
	case map[string]any:
		have, ok := got.(map[string]any)
		if !ok && len(want) > 0 {
			return false
		}
		for key, value := range want {
			if !contains(have[key], value) {
				return false
			}
		}
		return true
	case []any:
		have, ok := got.([]any)
		return (ok || got == nil) && slices.EqualFunc(have, want, contains)
	}
	if equality.Semantic.DeepEqual(got, want) || want == nil {
		return true
	}
	return isQuantity(got, want)
}

// isQuantity reports whether two values are the same quantity.
func isQuantity(got, want any) bool {
	have, err := resource.ParseQuantity(fmt.Sprint(got))
	wanted, wantedErr := resource.ParseQuantity(fmt.Sprint(want))
	return err == nil && wantedErr == nil && have.Cmp(wanted) == 0
}

// withObjects separates the hash in [tenant.PreparedAnnotation] from the list of the resources of
// the objects of templates and Publications. An empty list element means all resources that
// templates may contain. If the annotation does not contain withObjects, the namespace has no
// such objects.
const withObjects = "+"

// kindsOf returns withObjects and the list of resources for a namespace with copies of the given
// Publications. It returns "" if the tenant has no templates and published is empty.
func (g *desiredState) kindsOf(published []*published) string {
	var kinds []string
	if len(g.templates) > 0 {
		kinds = append(kinds, "")
	}
	for _, p := range published {
		r := p.resource
		if text := strings.Join([]string{r.Group, r.Version, r.Resource}, "/"); !slices.Contains(kinds, text) {
			kinds = append(kinds, text)
		}
	}
	if len(kinds) == 0 {
		return ""
	}
	slices.Sort(kinds)
	return withObjects + strings.Join(kinds, ",")
}

// hasObjects reports whether a namespace may have objects of templates or Publications, according
// to its annotation.
func hasObjects(ns *corev1.Namespace) bool {
	return strings.Contains(ns.Annotations[tenant.PreparedAnnotation], withObjects)
}

// kindsIn returns the resources of the objects that a namespace may have. These are the resources
// in its annotation and the resources of the objects that it should have. If desired.drifted is
// set, kindsIn returns all resources of [Engine.kinds].
func (e *Engine) kindsIn(ns *corev1.Namespace, desired *objects) []schema.GroupVersionResource {
	if desired.drifted {
		return e.kinds()
	}
	kinds := map[schema.GroupVersionResource]bool{}
	if _, had, ok := strings.Cut(ns.Annotations[tenant.PreparedAnnotation], withObjects); ok {
		for _, text := range strings.Split(had, ",") {
			if part := strings.Split(text, "/"); len(part) == 3 {
				kinds[schema.GroupVersionResource{Group: part[0], Version: part[1], Resource: part[2]}] = true
				continue
			}
			for _, of := range template.Kinds() {
				kinds[of] = true
			}
		}
	}
	for key := range desired.wanted {
		kinds[key.resource] = true
	}
	return slices.Collect(maps.Keys(kinds))
}

// provisionedSelector selects the objects of templates and Publications.
const provisionedSelector = tenant.ManagedLabel +
	" in (" + managed.SourceTemplate + "," + managed.SourcePublication + ")"

// listObjects returns the stored objects of templates and Publications in a namespace. It lists
// the kinds concurrently, because each list waits for the server's watch cache of its kind
// (KEP-2340).
func (e *Engine) listObjects(
	ctx context.Context, ns *corev1.Namespace, kinds []schema.GroupVersionResource,
) (map[object]*unstructured.Unstructured, error) {
	lists := make([]*unstructured.UnstructuredList, len(kinds))
	all, ctx := errgroup.WithContext(ctx)
	for i, of := range kinds {
		all.Go(func() (err error) {
			lists[i], err = e.Dynamic.Resource(of).Namespace(ns.Name).List(ctx,
				metav1.ListOptions{LabelSelector: provisionedSelector})
			if apierrors.IsNotFound(err) { // the kind is no longer defined
				lists[i] = &unstructured.UnstructuredList{}
				return nil
			}
			return err
		})
	}
	if err := all.Wait(); err != nil {
		return nil, err
	}
	stored := map[object]*unstructured.Unstructured{}
	for i, list := range lists {
		for j := range list.Items {
			stored[object{kinds[i], list.Items[j].GetName()}] = &list.Items[j]
		}
	}
	return stored, nil
}
