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

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubetenant/kubetenant/cluster/template"
	"github.com/kubetenant/kubetenant/plugins/managed"
	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

// errTemplate reports that a template is the cause of an error. Another attempt fails too, until
// the template changes.
var errTemplate = errors.New("spec.namespaces.templates")

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

// object identifies an object of a template in a namespace.
type object struct {
	resource schema.GroupVersionResource
	name     string
}

// objects are what the templates of a Tenant give in a namespace. The zero value is nothing.
type objects struct {
	wanted map[object]*unstructured.Unstructured
	// kept are templates of which nothing is known now: what was made of them stays.
	kept []string
	all  bool // of every template
	// mayBe says that there may be some: where a namespace has drifted there may be more than it says.
	mayBe bool
	// wrong says why there is something that is not given.
	wrong error
}

// objects returns the objects that a namespace of a tenant should have.
func (g *given) objects(id tenant.ID, ns *corev1.Namespace) objects {
	namespace := ns.Name
	out := objects{wanted: map[object]*unstructured.Unstructured{}, all: g.uid == ""}
	for _, t := range g.templates {
		if t.is == nil {
			out.kept = append(out.kept, t.name)
			out.wrong = errors.Join(out.wrong, fmt.Errorf("%w: NamespaceTemplate %s does not exist", errTemplate, t.name))
			continue
		}
		all, err := t.is.Render(id, namespace)
		if err != nil {
			out.kept = append(out.kept, t.name)
			out.wrong = errors.Join(out.wrong, fmt.Errorf("%w: NamespaceTemplate %s: %w", errTemplate, t.name, err))
			continue
		}
		for _, o := range all {
			key := object{o.Resource, o.Object.GetName()}
			if by, has := out.wanted[key]; has {
				other, _, _ := strings.Cut(by.GetAnnotations()[tenant.TemplateAnnotation], "/")
				out.wrong = errors.Join(out.wrong,
					fmt.Errorf("%w: NamespaceTemplate %s has the same %s %s as the older template %s",
						errTemplate, t.name, o.Object.GetKind(), key.name, other))
				continue
			}
			out.wanted[key] = asWritten(o.Object, id, namespace, t.name)
		}
	}
	return out
}

// asWritten returns an object of a template in the form in which the engine writes it.
func asWritten(u *unstructured.Unstructured, id tenant.ID, namespace, template string) *unstructured.Unstructured {
	text, err := json.Marshal(u.Object)
	if err != nil {
		panic(err) // it came as JSON
	}
	sum := sha256.Sum256(text)
	u.SetNamespace(namespace)
	all := map[string]string{tenant.ManagedLabel: managed.SourceTemplate, tenant.Label: id.String()}
	maps.Copy(all, u.GetLabels())
	u.SetLabels(all)
	said := map[string]string{tenant.TemplateAnnotation: template + "/" + hex.EncodeToString(sum[:16])}
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

// withObjects ends the hash of a namespace that has objects of templates: where it does not stand
// there are none to look for.
const withObjects = "+"

// hasObjects reports whether a namespace says that templates have given something in it.
func hasObjects(ns *corev1.Namespace) bool {
	return strings.HasSuffix(ns.Annotations[tenant.PreparedAnnotation], withObjects)
}

// objectsThere returns the objects of templates that a namespace has. It lists all kinds at the
// same time, because each list waits for the watch cache of its kind (KEP-2340).
func (e *Engine) objectsThere(
	ctx context.Context, ns *corev1.Namespace,
) (map[object]*unstructured.Unstructured, error) {
	kinds := slices.Collect(maps.Values(template.Kinds()))
	lists := make([]*unstructured.UnstructuredList, len(kinds))
	all, ctx := errgroup.WithContext(ctx)
	for i, of := range kinds {
		all.Go(func() (err error) {
			lists[i], err = e.Dynamic.Resource(of).Namespace(ns.Name).List(ctx,
				metav1.ListOptions{LabelSelector: tenant.ManagedLabel})
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

// applyObjects creates, updates and deletes the objects of templates in a namespace.
func (e *Engine) applyObjects(
	ctx context.Context, ns *corev1.Namespace, is map[object]*unstructured.Unstructured, gives *objects,
) error {
	var failed error
	for key, u := range is {
		by, _, _ := strings.Cut(u.GetAnnotations()[tenant.TemplateAnnotation], "/")
		if gives.wanted[key] == nil && !gives.all && !slices.Contains(gives.kept, by) {
			failed = errors.Join(failed, e.removeObject(ctx, key, u))
		}
	}
	byName := func(a, b object) int {
		return strings.Compare(a.resource.Resource+a.name, b.resource.Resource+b.name)
	}
	for _, key := range slices.SortedFunc(maps.Keys(gives.wanted), byName) {
		err := e.putObject(ctx, key, is[key], gives.wanted[key])
		if err == nil {
			continue
		}
		err = fmt.Errorf("%s %s: %w", gives.wanted[key].GetKind(), key.name, err)
		if errors.Is(err, errTaken) || apierrors.IsInvalid(err) || apierrors.IsForbidden(err) && e.hasTried(ns.Name) {
			gives.wrong = errors.Join(gives.wrong, err) // all tenants share what may be written
		} else {
			failed = errors.Join(failed, err)
		}
	}
	return failed
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
func (e *Engine) putObject(ctx context.Context, key object, is, want *unstructured.Unstructured) error {
	if is != nil {
		return e.updateObject(ctx, key, is, want)
	}
	if err := e.writes.wait(ctx, tenantOf(want), adds); err != nil {
		return err
	}
	all := e.Dynamic.Resource(key.resource).Namespace(want.GetNamespace())
	_, err := all.Create(ctx, want, metav1.CreateOptions{FieldManager: v1alpha1.FieldManager})
	if !apierrors.IsAlreadyExists(err) {
		return err
	}
	there, getErr := all.Get(ctx, key.name, metav1.GetOptions{})
	switch {
	case getErr != nil:
		return err // gone again
	case there.GetLabels()[tenant.ManagedLabel] == "":
		return errTaken
	}
	return e.updateObject(ctx, key, there, want)
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

// objectsPage is how many objects of templates, which may be large, are read at once.
const objectsPage = 50

// lookForObjects queues the namespaces in which an object of a template has changed, does not
// exist, or should not exist.
func (e *Engine) lookForObjects(ctx context.Context, ofTenant func(tenant.ID) *given) {
	right := map[string]int{} // the number of correct objects by namespace
	wrong := map[string]bool{}
	for _, of := range template.Kinds() {
		next := metav1.ListOptions{LabelSelector: tenant.ManagedLabel, Limit: objectsPage}
		var last string
		var gives *objects
		for {
			list, err := e.Dynamic.Resource(of).List(ctx, next)
			if err != nil {
				e.notLooked(ctx, err)
				return
			}
			for i := range list.Items {
				is := &list.Items[i]
				if gives == nil || is.GetNamespace() != last { // the list is ordered by namespace
					last, gives = is.GetNamespace(), e.objectsIn(is.GetNamespace(), ofTenant)
				}
				if gives == nil {
					continue
				}
				if want := gives.wanted[object{of, is.GetName()}]; want != nil && isGiven(is, want) {
					right[last]++
				} else if want != nil || !gives.all {
					wrong[last] = true
				}
			}
			if next.Continue = list.GetContinue(); next.Continue == "" {
				break
			}
		}
	}
	all, err := e.lister.List(labels.Everything())
	if err != nil {
		return
	}
	for _, ns := range all {
		if gives := e.objectsIn(ns.Name, ofTenant); gives != nil && right[ns.Name] != len(gives.wanted) {
			wrong[ns.Name] = true
		}
	}
	for name := range wrong {
		e.looksDrifted(name)
		e.later.Add(name)
	}
}

// objectsIn returns the objects that a namespace should have. It returns nil if they are not known,
// or if the namespace has no tenant or is being deleted.
func (e *Engine) objectsIn(namespace string, ofTenant func(tenant.ID) *given) *objects {
	ns, err := e.lister.Get(namespace)
	if err != nil || ns.DeletionTimestamp != nil {
		return nil
	}
	id := e.OwnerOf(ns)
	if id.IsZero() || id.IsSystem() {
		return nil
	}
	g := ofTenant(id)
	if g == nil {
		return nil
	}
	out := g.objects(id, ns)
	return &out
}
