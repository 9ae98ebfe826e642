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

// errTemplate reports that a template is the cause of an error. Another attempt fails too, until
// the template changes.
var errTemplate = errors.New("spec.namespaces.templates")

// errUnread reports that the engine may not read Publications, or has not read them yet.
var errUnread = errors.New("the Publications have not been read")

// named is a NamespaceTemplate that a Tenant names.
type named struct {
	name   string
	is     *template.Template // nil: there is none
	digest string
}

// templatesOf returns the templates with these names, the oldest first. The second result is false
// if they are not known.
func (e *Engine) templatesOf(names []string) (out []named, known bool) {
	for _, name := range names {
		is, known := e.Tenants.Template(name)
		if !known {
			return nil, false
		}
		t := named{name: name, is: is}
		if is != nil {
			t.digest = is.Digest
		}
		out = append(out, t)
	}
	slices.SortStableFunc(out, func(a, b named) int {
		if a.is == nil || b.is == nil || a.is.Created.Equal(b.is.Created) {
			return strings.Compare(a.name, b.name)
		}
		return a.is.Created.Compare(b.is.Created)
	})
	return out, true
}

// object identifies an object of a template or a Publication in a namespace.
type object struct {
	resource schema.GroupVersionResource
	name     string
}

// wanted is an object that a namespace should have, in the form in which the engine writes it.
type wanted struct {
	*unstructured.Unstructured
	by *published // nil: a template
}

// objects are the objects that templates and Publications give in a namespace. The zero value has
// none.
type objects struct {
	wanted map[object]wanted
	// kept are templates of which nothing is known now: their objects remain.
	kept []string
	all  bool // every template is kept
	// found reports the state of a Publication, or nil if it is not known: its copies remain.
	found func(publication string) *published
	// selecting has the names of the Publications that select the namespace.
	selecting map[string]bool
	// mayBe reports that the namespace may have other objects, and drifted that they may be of any kind.
	mayBe, drifted bool
	// wrong reports why a namespace lacks an object, if that also concerns its Tenant.
	wrong error
	// refused reports why a Publication has no copy in the namespace, by its name.
	refused map[string]error
}

// giver is a template or a Publication with its objects for a namespace.
type giver struct {
	kind, name string
	created    time.Time
	objects    []template.Object
	by         *published
}

// objects returns the objects that a namespace of a tenant should have. If two sources define one
// object, the older source gives it.
func (g *given) objects(id tenant.ID, ns *corev1.Namespace) objects {
	out := objects{
		wanted:    map[object]wanted{},
		all:       g.uid == "",
		found:     g.publication,
		selecting: map[string]bool{},
		refused:   map[string]error{},
	}
	if g.unread {
		out.wrong = errUnread
	}
	var givers []giver
	for _, t := range g.templates {
		if t.is == nil {
			out.kept = append(out.kept, t.name)
			out.wrong = errors.Join(out.wrong, fmt.Errorf("%w: NamespaceTemplate %s does not exist", errTemplate, t.name))
			continue
		}
		all, err := t.is.Render(id, ns.Name)
		if err != nil {
			out.kept = append(out.kept, t.name)
			out.wrong = errors.Join(out.wrong, fmt.Errorf("%w: NamespaceTemplate %s: %w", errTemplate, t.name, err))
			continue
		}
		givers = append(givers, giver{v1alpha1.KindNamespaceTemplate, t.name, t.is.Created, all, nil})
	}
	for _, p := range g.published {
		if p.gone || !p.of.SelectsNamespace(ns.Name, g.spaceLabels) {
			continue
		}
		out.selecting[p.of.Name] = true
		switch {
		case p.content != nil:
			all := []template.Object{{Resource: p.content.Resource, Object: p.content.Render(id, ns.Name)}}
			givers = append(givers, giver{v1alpha1.KindPublication, p.of.Name, p.of.Created, all, p})
		case p.of.Hold && isHeld(ns):
			out.wrong = errors.Join(out.wrong, fmt.Errorf("Publication %s: %s", p.of.Name, p.message))
		}
	}
	slices.SortStableFunc(givers, func(a, b giver) int { return a.created.Compare(b.created) })
	for _, from := range givers {
		out.add(from, id, ns)
	}
	return out
}

// add adds the objects of a source that no older source gives.
func (o *objects) add(from giver, id tenant.ID, ns *corev1.Namespace) {
	for _, given := range from.objects {
		key := object{given.Resource, given.Object.GetName()}
		older, has := o.wanted[key]
		if !has {
			o.wanted[key] = wanted{asWritten(given.Object, id, ns.Name, from), from.by}
			continue
		}
		err := fmt.Errorf("%s %s has the same %s %s as the older %s",
			from.kind, from.name, given.Object.GetKind(), key.name, sourceOf(older.Unstructured))
		if from.by == nil {
			o.wrong = errors.Join(o.wrong, fmt.Errorf("%w: %w", errTemplate, err))
		} else {
			o.refused[from.name] = fmt.Errorf("%w: %w", errConflict, err)
		}
	}
}

// sourceOf returns the kind and the name of the source of a managed object.
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

// removes reports whether an object of a template or a Publication is to be deleted. It is not if its
// source is not known.
func (o *objects) removes(key object, u *unstructured.Unstructured) bool {
	if _, is := o.wanted[key]; is {
		return false
	}
	if u.GetLabels()[tenant.ManagedLabel] == managed.SourcePublication {
		name := u.GetLabels()[tenant.PublicationLabel]
		p := o.found(name)
		return p != nil && (p.gone || p.content != nil || !o.selecting[name])
	}
	return !o.all && !slices.Contains(o.kept, templateOf(u))
}

// asWritten returns an object of a source in the form in which the engine writes it.
func asWritten(u *unstructured.Unstructured, id tenant.ID, namespace string, from giver) *unstructured.Unstructured {
	text, err := json.Marshal(u.Object)
	if err != nil {
		panic(err) // it came as JSON
	}
	sum := sha256.Sum256(text)
	hash := hex.EncodeToString(sum[:16])
	u.SetNamespace(namespace)
	all := map[string]string{tenant.ManagedLabel: managed.SourceTemplate, tenant.Label: id.String()}
	said := map[string]string{tenant.TemplateAnnotation: from.name + "/" + hash}
	if from.by != nil {
		all[tenant.ManagedLabel], all[tenant.PublicationLabel] = managed.SourcePublication, from.name
		said = map[string]string{tenant.PublishedAnnotation: hash}
	}
	maps.Copy(all, u.GetLabels())
	u.SetLabels(all)
	maps.Copy(said, u.GetAnnotations())
	u.SetAnnotations(said)
	return u
}

// isGiven reports whether an object is as it was written: nobody else has written it, and what it
// was written as is what it should be. What the server puts in by default is not compared so, which
// differs from release to release.
func isGiven(is, want *unstructured.Unstructured) bool {
	metadata := func(u *unstructured.Unstructured) *metav1.ObjectMeta {
		return &metav1.ObjectMeta{
			Labels:          u.GetLabels(),
			Annotations:     u.GetAnnotations(),
			OwnerReferences: u.GetOwnerReferences(),
			Finalizers:      u.GetFinalizers(),
		}
	}
	return hasMetadata(metadata(is), metadata(want)) && holds(is.Object, content(want)) &&
		!slices.ContainsFunc(is.GetManagedFields(), func(m metav1.ManagedFieldsEntry) bool {
			return m.Subresource == "" && m.Manager != v1alpha1.FieldManager
		})
}

// content is an object but for its metadata.
func content(u *unstructured.Unstructured) map[string]any {
	out := maps.Clone(u.Object)
	delete(out, "metadata")
	return out
}

// holds reports whether all of what is wanted is there: the server adds what it puts in by default,
// and writes quantities in its own way.
func holds(is, want any) bool {
	switch want := want.(type) {
	case map[string]any:
		have, same := is.(map[string]any)
		if !same && len(want) > 0 {
			return false
		}
		for key, value := range want {
			if !holds(have[key], value) {
				return false
			}
		}
		return true
	case []any:
		have, same := is.([]any)
		return (same || is == nil) && slices.EqualFunc(have, want, holds)
	}
	if equality.Semantic.DeepEqual(is, want) || want == nil {
		return true
	}
	return isQuantity(is, want)
}

// isQuantity reports whether two values are one quantity.
func isQuantity(is, want any) bool {
	have, err := resource.ParseQuantity(fmt.Sprint(is))
	wanted, wantedErr := resource.ParseQuantity(fmt.Sprint(want))
	return err == nil && wantedErr == nil && have.Cmp(wanted) == 0
}

// withObjects precedes the kinds of the objects of templates and Publications in the annotation of a
// prepared namespace. An empty element means the kinds of templates. A namespace without it has no
// such objects.
const withObjects = "+"

// kindsOf returns withObjects and the kinds for a namespace with copies of Publications, or "" if the
// namespace has no objects.
func (g *given) kindsOf(published []*published) string {
	var kinds []string
	if len(g.templates) > 0 {
		kinds = append(kinds, "")
	}
	for _, p := range published {
		r := p.last.Resource
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

// hasObjects reports whether a namespace may have objects of templates or Publications.
func hasObjects(ns *corev1.Namespace) bool {
	return strings.Contains(ns.Annotations[tenant.PreparedAnnotation], withObjects)
}

// kindsIn returns the kinds of the objects that a namespace may have: those that it had when it was
// prepared, and those that it should have. If it has drifted, it may have all kinds.
func (e *Engine) kindsIn(ns *corev1.Namespace, gives *objects) []schema.GroupVersionResource {
	if gives.drifted {
		return e.kinds()
	}
	kinds := map[schema.GroupVersionResource]bool{}
	if _, had, has := strings.Cut(ns.Annotations[tenant.PreparedAnnotation], withObjects); has {
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
	for key := range gives.wanted {
		kinds[key.resource] = true
	}
	return slices.Collect(maps.Keys(kinds))
}

// givenSelector selects the objects of templates and Publications.
const givenSelector = tenant.ManagedLabel + " in (" + managed.SourceTemplate + "," + managed.SourcePublication + ")"

// objectsThere returns the objects of templates and Publications that a namespace has. It lists all
// kinds at the same time, because each list waits for the watch cache of its kind (KEP-2340).
func (e *Engine) objectsThere(
	ctx context.Context, ns *corev1.Namespace, kinds []schema.GroupVersionResource,
) (map[object]*unstructured.Unstructured, error) {
	lists := make([]*unstructured.UnstructuredList, len(kinds))
	all, ctx := errgroup.WithContext(ctx)
	for i, of := range kinds {
		all.Go(func() (err error) {
			lists[i], err = e.Dynamic.Resource(of).Namespace(ns.Name).List(ctx,
				metav1.ListOptions{LabelSelector: givenSelector})
			if apierrors.IsNotFound(err) { // the kind is not defined any more
				lists[i] = &unstructured.UnstructuredList{}
				return nil
			}
			return err
		})
	}
	if err := all.Wait(); err != nil {
		return nil, err
	}
	is := map[object]*unstructured.Unstructured{}
	for i, list := range lists {
		for j := range list.Items {
			is[object{kinds[i], list.Items[j].GetName()}] = &list.Items[j]
		}
	}
	return is, nil
}

// applyObjects creates, updates and deletes the objects of templates and Publications in a namespace.
func (e *Engine) applyObjects(
	ctx context.Context, ns *corev1.Namespace, is map[object]*unstructured.Unstructured, gives *objects,
) error {
	var failed error
	for key, u := range is {
		if gives.removes(key, u) {
			failed = errors.Join(failed, e.removeObject(ctx, key, u))
		}
	}
	byName := func(a, b object) int {
		return strings.Compare(a.resource.Resource+a.name, b.resource.Resource+b.name)
	}
	for _, key := range slices.SortedFunc(maps.Keys(gives.wanted), byName) {
		want := gives.wanted[key]
		err := e.putObject(ctx, key, is[key], want)
		if err == nil {
			continue
		}
		err = fmt.Errorf("%s %s: %w", want.GetKind(), key.name, err)
		// Another attempt has the same result until somebody acts.
		stays := errors.Is(err, errTaken) || apierrors.IsInvalid(err) || apierrors.IsForbidden(err) && e.hasTried(ns.Name)
		if want.by != nil {
			gives.refused[want.by.of.Name] = err
		}
		switch {
		case !stays:
			failed = errors.Join(failed, err)
		case want.by == nil, want.by.of.Hold && isHeld(ns):
			gives.wrong = errors.Join(gives.wrong, err)
		}
	}
	return failed
}

// isHeld reports whether Pods wait in a namespace.
func isHeld(ns *corev1.Namespace) bool {
	_, held := ns.Annotations[tenant.HeldAnnotation]
	return held
}

// triesOfForbidden is how often in a row what somebody refuses is tried, before it is left to the
// look for what has drifted.
const triesOfForbidden = 8

// hasTried reports whether a namespace was tried often.
func (e *Engine) hasTried(namespace string) bool {
	return e.first.NumRequeues(namespace)+e.later.NumRequeues(namespace) >= triesOfForbidden
}

// removeObject deletes an object as it was seen, and none that was made anew by its name.
func (e *Engine) removeObject(ctx context.Context, key object, u *unstructured.Unstructured) error {
	if err := e.writes.wait(ctx, tenantOf(u), adds); err != nil {
		return err
	}
	err := e.Dynamic.Resource(key.resource).Namespace(u.GetNamespace()).Delete(ctx, key.name,
		metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(u.GetUID()))})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// putObject makes an object what it should be; is is nil where none was seen that is ours.
func (e *Engine) putObject(ctx context.Context, key object, is *unstructured.Unstructured, want wanted) error {
	if is != nil {
		return e.updateObject(ctx, key, is, want.Unstructured)
	}
	if err := e.writes.wait(ctx, tenantOf(want), adds); err != nil {
		return err
	}
	all := e.Dynamic.Resource(key.resource).Namespace(want.GetNamespace())
	_, err := all.Create(ctx, want.Unstructured, metav1.CreateOptions{FieldManager: v1alpha1.FieldManager})
	if !apierrors.IsAlreadyExists(err) {
		return err
	}
	there, getErr := all.Get(ctx, key.name, metav1.GetOptions{})
	switch {
	case getErr != nil:
		return err // gone again
	case isGivenKind(there):
	case there.GetLabels()[tenant.ManagedLabel] != "":
		return errTaken // by a Tenant or its TenantMembers
	case want.by != nil && want.by.of.Replace:
		if there, err = e.adopt(ctx, there, want); err != nil {
			return err
		}
	default:
		return errTaken
	}
	return e.updateObject(ctx, key, there, want.Unstructured)
}

// isGivenKind reports whether an object is of a template or a Publication.
func isGivenKind(u *unstructured.Unstructured) bool {
	source := u.GetLabels()[tenant.ManagedLabel]
	return source == managed.SourceTemplate || source == managed.SourcePublication
}

// adopt makes an older object a copy, so that the engine may then replace it. The policy of the webhook
// service does not let the engine delete an object without these labels.
func (e *Engine) adopt(
	ctx context.Context, is *unstructured.Unstructured, want wanted,
) (*unstructured.Unstructured, error) {
	if err := e.writes.wait(ctx, tenantOf(want), adds); err != nil {
		return nil, err
	}
	next := is.DeepCopy()
	all := map[string]string{}
	maps.Copy(all, is.GetLabels())
	for _, key := range []string{tenant.Label, tenant.ManagedLabel, tenant.PublicationLabel} {
		all[key] = want.GetLabels()[key]
	}
	next.SetLabels(all)
	said := map[string]string{}
	maps.Copy(said, is.GetAnnotations())
	said[tenant.PublishedAnnotation] = "replacing" // no hash: its content is not the copy's
	next.SetAnnotations(said)
	return e.Dynamic.Resource(want.by.content.Resource).Namespace(want.GetNamespace()).Update(ctx, next,
		metav1.UpdateOptions{FieldManager: v1alpha1.FieldManager})
}

// updateObject brings an object that is ours in line. One that cannot be changed is deleted and
// made anew, if the server would take the new one.
func (e *Engine) updateObject(ctx context.Context, key object, is, want *unstructured.Unstructured) error {
	if isGiven(is, want) {
		return nil
	}
	all := e.Dynamic.Resource(key.resource).Namespace(want.GetNamespace())
	next := want.DeepCopy()
	next.SetResourceVersion(is.GetResourceVersion())
	next.SetManagedFields([]metav1.ManagedFieldsEntry{{}}) // whoever wrote it before
	if err := e.writes.wait(ctx, tenantOf(want), adds); err != nil {
		return err
	}
	_, err := all.Update(ctx, next, metav1.UpdateOptions{FieldManager: v1alpha1.FieldManager})
	if !apierrors.IsInvalid(err) {
		return err
	}
	_, dry := all.Create(ctx, want, metav1.CreateOptions{
		FieldManager: v1alpha1.FieldManager,
		DryRun:       []string{metav1.DryRunAll},
	})
	if !apierrors.IsAlreadyExists(dry) {
		return err // it is no object at all
	}
	if err := e.removeObject(ctx, key, is); err != nil {
		return err
	}
	if err := e.writes.wait(ctx, tenantOf(want), adds); err != nil {
		return err
	}
	_, err = all.Create(ctx, want, metav1.CreateOptions{FieldManager: v1alpha1.FieldManager})
	if apierrors.IsAlreadyExists(err) {
		return errTaken
	}
	return err
}
