// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package provision_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	metadatafake "k8s.io/client-go/metadata/fake"
	clienttesting "k8s.io/client-go/testing"
	"sigs.k8s.io/yaml"

	"github.com/kubetenant/kubetenant/cluster/publication"
	"github.com/kubetenant/kubetenant/internal/typed"
	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

var (
	publicationResource = v1alpha1.SchemeGroupVersion.WithResource(v1alpha1.ResourcePublications)
	secrets             = corev1.SchemeGroupVersion.WithResource("secrets")
)

// followSources creates a metadata client that returns the objects that [fixture.source] writes,
// the copies and the Publications.
func (w *fixture) followSources() {
	scheme := metadatafake.NewTestScheme()
	w.must(metav1.AddMetaToScheme(scheme))
	w.generations()
	w.metadata = metadatafake.NewSimpleMetadataClient(scheme)
	prepend(&w.metadata.Fake, "list", "*", func(a clienttesting.Action) (bool, runtime.Object, error) {
		selector := a.(clienttesting.ListAction).GetListRestrictions().Labels
		out := &metav1.List{}
		if a.GetResource() == publicationResource {
			list := w.storedPublications()
			for i := range list.Items {
				out.Items = append(out.Items, runtime.RawExtension{Object: partial(&list.Items[i])})
			}
			return true, out, nil
		}
		if selector.Empty() {
			return false, nil, nil
		}
		list, err := w.dynamic.Resource(a.GetResource()).List(w.t.Context(),
			metav1.ListOptions{LabelSelector: selector.String()})
		for i := range list.Items {
			out.Items = append(out.Items, runtime.RawExtension{Object: partial(&list.Items[i])})
		}
		return true, out, err
	})
}

// generations increments the generation of a Publication if a patch changes its spec, as the server
// does.
func (w *fixture) generations() {
	prepend(&w.dynamic.Fake, "patch", "publications", func(a clienttesting.Action) (bool, runtime.Object, error) {
		patch := a.(clienttesting.PatchAction)
		stored, err := w.dynamic.Tracker().Get(publicationResource, "", patch.GetName())
		if err != nil {
			return true, nil, err
		}
		u := stored.(*unstructured.Unstructured)
		before, err := u.MarshalJSON()
		w.must(err)
		after, err := jsonpatch.MergePatch(before, patch.GetPatch())
		w.must(err)
		now := &unstructured.Unstructured{}
		w.must(now.UnmarshalJSON(after))
		if !equality.Semantic.DeepEqual(now.Object["spec"], u.Object["spec"]) {
			now.SetGeneration(u.GetGeneration() + 1)
		}
		return true, now, w.dynamic.Tracker().Update(publicationResource, now, "")
	})
}

// storedPublications returns the Publications on the server.
func (w *fixture) storedPublications() *unstructured.UnstructuredList {
	w.t.Helper()
	stored, err := w.dynamic.Tracker().List(publicationResource, v1alpha1.SchemeGroupVersion.WithKind("Publication"), "")
	w.must(err)
	return stored.(*unstructured.UnstructuredList)
}

func partial(u *unstructured.Unstructured) *metav1.PartialObjectMetadata {
	return &metav1.PartialObjectMetadata{
		TypeMeta: metav1.TypeMeta{APIVersion: u.GetAPIVersion(), Kind: u.GetKind()},
		ObjectMeta: metav1.ObjectMeta{
			Namespace:       u.GetNamespace(),
			Name:            u.GetName(),
			UID:             u.GetUID(),
			Generation:      u.GetGeneration(),
			ResourceVersion: u.GetResourceVersion(),
			Labels:          u.GetLabels(),
			Annotations:     u.GetAnnotations(),

			DeletionTimestamp: u.GetDeletionTimestamp(),
		},
	}
}

// addSharedNamespace creates the namespace shared of the system tenant.
func (w *fixture) addSharedNamespace() {
	w.t.Helper()
	_, err := w.kube.CoreV1().Namespaces().Create(w.t.Context(),
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shared"}}, metav1.CreateOptions{})
	w.must(err)
}

// source writes an object in the namespace shared, as an author whose rights were checked. An
// empty text deletes the ConfigMap shared/ca.
func (w *fixture) source(text string) {
	w.t.Helper()
	w.sourceBy(text, true)
}

func (w *fixture) sourceBy(text string, checked bool) {
	w.t.Helper()
	defer w.settle()
	objects, all := w.dynamic.Resource(configMaps).Namespace("shared"), w.metadata.Resource(configMaps).Namespace("shared")
	if text == "" {
		w.must(objects.Delete(w.t.Context(), "ca", metav1.DeleteOptions{}))
		w.must(all.Delete(w.t.Context(), "ca", metav1.DeleteOptions{}))
		return
	}
	u := w.parse(text)
	if checked {
		content, err := (&publication.Rules{}).Content(u, nil)
		w.must(err)
		annotations := u.GetAnnotations()
		if annotations == nil {
			annotations = map[string]string{}
		}
		annotations[tenant.PublishedAnnotation] = content.Hash
		u.SetAnnotations(annotations)
	}
	metadata := w.metadata.Resource(configMaps).Namespace("shared").(metadatafake.MetadataClient)
	if _, err := objects.Get(w.t.Context(), u.GetName(), metav1.GetOptions{}); err == nil {
		_, err = objects.Update(w.t.Context(), u, metav1.UpdateOptions{})
		w.must(err)
		_, err = metadata.UpdateFake(partial(u), metav1.UpdateOptions{})
		w.must(err)
		return
	}
	_, err := objects.Create(w.t.Context(), u, metav1.CreateOptions{})
	w.must(err)
	_, err = metadata.CreateFake(partial(u), metav1.CreateOptions{})
	w.must(err)
}

// parse decodes an object and sets its namespace to shared.
func (w *fixture) parse(text string) *unstructured.Unstructured {
	w.t.Helper()
	u := &unstructured.Unstructured{}
	w.must(yaml.Unmarshal([]byte(text), &u.Object))
	u.SetNamespace("shared")
	return u
}

// publish writes the Publication ca of the ConfigMap shared/ca.
func (w *fixture) publish(change func(*v1alpha1.Publication)) {
	w.t.Helper()
	w.publishAs("ca", change)
}

// publishAs writes a Publication of the ConfigMap with the same name, and waits for the engine.
func (w *fixture) publishAs(name string, change func(*v1alpha1.Publication)) {
	w.t.Helper()
	w.writePublication(name, change)
	w.settle()
}

// writePublication writes a Publication of the ConfigMap with the same name.
func (w *fixture) writePublication(name string, change func(*v1alpha1.Publication)) {
	w.t.Helper()
	all := w.dynamic.Resource(publicationResource)
	u, err := all.Get(w.t.Context(), name, metav1.GetOptions{})
	exists := err == nil
	p := &v1alpha1.Publication{
		TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion, Kind: v1alpha1.KindPublication},
		ObjectMeta: metav1.ObjectMeta{
			Name:              name,
			UID:               types.UID("p-" + name),
			CreationTimestamp: metav1.Now(),
		},
		Spec: v1alpha1.PublicationSpec{
			From: v1alpha1.PublicationSource{
				APIVersion: "v1",
				Kind:       "ConfigMap",
				Namespace:  "shared",
				Name:       name,
			},
			Tenants: v1alpha1.PublicationTenants{All: true},
		},
	}
	if exists {
		p, err = typed.Decode[v1alpha1.Publication](u)
		w.must(err)
	}
	change(p)
	p.Generation++
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(p)
	w.must(err)
	if exists {
		_, err = all.Update(w.t.Context(), &unstructured.Unstructured{Object: content}, metav1.UpdateOptions{})
	} else {
		_, err = all.Create(w.t.Context(), &unstructured.Unstructured{Object: content}, metav1.CreateOptions{})
	}
	w.must(err)
}

// published returns the status of the Publication ca in the form "reason
// desired/current/failed/conflicts", followed by the namespaces of the examples.
func (w *fixture) published() string {
	w.t.Helper()
	time.Sleep(6 * time.Second) // in the fake time of synctest
	synctest.Wait()
	u, err := w.dynamic.Resource(publicationResource).Get(w.t.Context(), "ca", metav1.GetOptions{})
	w.must(err)
	p, err := typed.Decode[v1alpha1.Publication](u)
	w.must(err)
	c := meta.FindStatusCondition(p.Status.Conditions, v1alpha1.ConditionReady)
	if c == nil {
		return "nothing"
	}
	said := fmt.Sprintf("%s %d/%d/%d/%d",
		c.Reason, p.Status.Desired, p.Status.Current, p.Status.Failed, p.Status.Conflicts)
	for _, e := range p.Status.Examples {
		said += " " + e.Namespace
	}
	return said
}

func (w *fixture) publishedIs(what, want string) {
	w.t.Helper()
	if got := w.published(); got != want {
		w.t.Errorf("%s: the status is %q, want %q", what, got, want)
	}
}

const (
	authority = `{ apiVersion: v1, kind: ConfigMap, metadata: { name: ca, labels: { app: x } }, data: { who: first } }`
	changed   = `{ apiVersion: v1, kind: ConfigMap, metadata: { name: ca }, data: { who: second } }`
)

// unchanged is a change function that does not change the Publication.
func unchanged(*v1alpha1.Publication) {}

// TestPublication checks that every namespace of every tenant has a copy, including namespaces
// that are created later. A change of the source updates the copies. The copies are deleted if
// the source or the Publication is deleted.
func TestPublication(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFixture(t)
		w.define()
		w.addSharedNamespace()
		w.namespace("acme--web", "acme", nil)
		w.namespace("globex--web", "globex", nil)
		w.tenant(func(*v1alpha1.TenantSpec) {})
		w.source(authority)
		w.publish(unchanged)
		w.expectObjects("at first", "acme--web", "configmaps/ca  first")
		w.expectObjects("without a Tenant", "globex--web", "configmaps/ca  first")
		w.expectObjects("the source", "shared", "configmaps/ca  first")
		w.publishedIs("at first", "Published 2/2/0/0")
		copied, err := w.dynamic.Resource(configMaps).Namespace("acme--web").Get(t.Context(), "ca", metav1.GetOptions{})
		w.must(err)
		if got := fmt.Sprint(copied.GetLabels()); got !=
			"map[kubetenant.dev/managed:publication kubetenant.dev/publication:ca kubetenant.dev/tenant:acme]" {
			t.Errorf("the labels of the copy are %s", got)
		}
		w.stop()
		w.writes()
		w.start()
		if n := w.writes(); n != 0 {
			t.Errorf("a new leader writes %d times", n)
		}
		w.namespace("acme--db", "acme", nil)
		w.settle()
		w.expectObjects("a later namespace", "acme--db", "configmaps/ca  first")
		w.source(changed)
		w.expectObjects("after a change", "acme--db", "configmaps/ca  second")
		w.publishedIs("after a change", "Published 3/3/0/0")
		w.source("")
		w.expectObjects("without the source", "acme--db")
		w.publishedIs("without the source", "SourceMissing 3/0/0/0")
		w.source(authority)
		w.expectObjects("with a new source", "acme--db", "configmaps/ca  first")
		w.publish(func(p *v1alpha1.Publication) { p.DeletionTimestamp = new(metav1.Now()) })
		w.settle()
		w.expectObjects("after the deletion", "acme--db")
		u, err := w.dynamic.Resource(publicationResource).Get(t.Context(), "ca", metav1.GetOptions{})
		w.must(err)
		if len(u.GetFinalizers()) > 0 {
			t.Errorf("the deleted Publication has the finalizers %s", u.GetFinalizers())
		}
	})
}

// TestPublicationSelects checks that a Publication selects namespaces by the tenant's ID, by the
// labels of its Tenant, and by the labels that the Tenant specifies for them. The copy in a
// namespace that is no longer selected is deleted.
func TestPublicationSelects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFixture(t)
		w.addSharedNamespace()
		w.namespace("acme--web", "acme", nil)
		w.namespace("acme--db", "acme", nil)
		w.namespace("globex--web", "globex", nil)
		w.tenant(func(s *v1alpha1.TenantSpec) {
			s.Namespaces.Labels = map[string]v1alpha1.LabelValue{"stage": "test"}
		})
		w.source(authority)
		there, gone := []string{"configmaps/ca  first"}, []string{}
		for _, c := range []struct {
			name      string
			change    func(*v1alpha1.PublicationSpec)
			web, db   []string
			elsewhere []string
		}{
			{"one tenant", func(s *v1alpha1.PublicationSpec) {
				s.Tenants = v1alpha1.PublicationTenants{IDs: []string{"acme"}}
			}, there, there, gone},
			{"one namespace", func(s *v1alpha1.PublicationSpec) {
				s.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: "acme--web"}}
			}, there, gone, gone},
			{"a label that the Tenant specifies", func(s *v1alpha1.PublicationSpec) {
				s.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"stage": "test"}}
			}, there, there, gone},
			{"a label of the namespace itself", func(s *v1alpha1.PublicationSpec) {
				s.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{tenant.Label: "acme"}}
			}, gone, gone, gone},
			{"labels of Tenants", func(s *v1alpha1.PublicationSpec) {
				s.NamespaceSelector = nil
				s.Tenants = v1alpha1.PublicationTenants{Selector: &metav1.LabelSelector{}}
			}, there, there, gone},
			{"other labels of Tenants", func(s *v1alpha1.PublicationSpec) {
				s.Tenants.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"x": "y"}}
			}, gone, gone, gone},
			{"all", func(s *v1alpha1.PublicationSpec) {
				s.Tenants = v1alpha1.PublicationTenants{All: true}
			}, there, there, there},
		} {
			w.publish(func(p *v1alpha1.Publication) { c.change(&p.Spec) })
			w.expectObjects(c.name, "acme--web", c.web...)
			w.expectObjects(c.name, "acme--db", c.db...)
			w.expectObjects(c.name, "globex--web", c.elsewhere...)
		}
	})
}

// TestPublicationKeepsCopies checks that the copies remain unchanged if the source cannot be
// published, or if the definition of Publications is deleted.
func TestPublicationKeepsCopies(t *testing.T) {
	for _, c := range []struct {
		name, reason string
		do           func(*fixture)
	}{
		{"the author of a change was not checked", "AuthorNotChecked", func(w *fixture) { w.sourceBy(changed, false) }},
		{"the namespace of the source has a tenant", "SourceRefused", func(w *fixture) {
			ns, err := w.kube.CoreV1().Namespaces().Get(w.t.Context(), "shared", metav1.GetOptions{})
			w.must(err)
			ns.Labels = map[string]string{tenant.Label: "globex"}
			_, err = w.kube.CoreV1().Namespaces().Update(w.t.Context(), ns, metav1.UpdateOptions{})
			w.must(err)
			w.settle()
			w.publish(unchanged)
		}},
		{"the kind cannot be published", "SourceRefused", func(w *fixture) {
			w.publish(func(p *v1alpha1.Publication) { p.Spec.From.Kind = "Pod" })
		}},
		{"the copies are too large", "TooLarge", func(w *fixture) {
			for i := range 300 {
				of := []string{"acme", "globex", "stark"}[i%3]
				w.namespace(fmt.Sprint(of, "--", i), of, nil)
			}
			large := strings.Replace(changed, "second", strings.Repeat("x", 1<<20), 1)
			w.source(large)
		}},
		{"the definition is deleted", "DefinitionMissing", func(w *fixture) {
			w.publish(func(p *v1alpha1.Publication) {
				p.DeletionTimestamp = new(metav1.Now())
				p.UID = "without"
			})
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newFixture(t)
				if c.reason != "DefinitionMissing" {
					w.define()
				}
				w.addSharedNamespace()
				w.namespace("acme--web", "acme", nil)
				w.source(authority)
				w.publish(unchanged)
				w.expectObjects("at first", "acme--web", "configmaps/ca  first")
				c.do(w)
				w.expectObjects("now", "acme--web", "configmaps/ca  first")
				if got, _, _ := strings.Cut(w.published(), " "); got != c.reason && c.reason != "DefinitionMissing" {
					t.Errorf("the reason is %s, want %s", got, c.reason)
				}
			})
		})
	}
}

// TestPublicationConflicts checks that an existing object with the kind and name of a copy
// remains and is reported, unless spec.onConflict is Replace. If a template defines the same
// object, the older of the two applies.
func TestPublicationConflicts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFixture(t)
		w.define()
		w.addSharedNamespace()
		w.namespace("acme--web", "acme", nil)
		w.namespace("acme--db", "acme", nil)
		older := &unstructured.Unstructured{}
		w.must(yaml.Unmarshal([]byte(authority), &older.Object))
		older.SetFinalizers([]string{"example.com/x"})
		w.must(unstructured.SetNestedField(older.Object, "the tenant's", "data", "who"))
		_, err := w.dynamic.Resource(configMaps).Namespace("acme--web").Create(t.Context(), older, metav1.CreateOptions{})
		w.must(err)
		w.source(authority)
		w.publish(unchanged)
		w.expectObjects("reported", "acme--web", "configmaps/ca  the tenant's")
		w.expectObjects("reported", "acme--db", "configmaps/ca  first")
		w.publishedIs("reported", "Conflict 2/1/0/1 acme--web")
		w.publish(func(p *v1alpha1.Publication) { p.Spec.OnConflict = v1alpha1.PublicationReplace })
		w.expectObjects("replaced", "acme--web", "configmaps/ca  first")
		w.publishedIs("replaced", "Published 2/2/0/0")

		w.tenant(func(s *v1alpha1.TenantSpec) { s.Namespaces.Templates = []string{"std"} })
		w.template("std", strings.Replace(authority, "first", "of the template", 1))
		w.expectObjects("newer template", "acme--web", "configmaps/ca  first")
		w.publish(func(p *v1alpha1.Publication) { p.DeletionTimestamp = new(metav1.Now()) })
		w.expectObjects("without the Publication", "acme--web", "configmaps/ca std of the template")
	})
}

// TestPublicationHolds checks that the copies of a deleted source remain until the deletion is
// confirmed, if there are many. In a new namespace, Pods wait while a Publication with spec.hold
// has no content.
func TestPublicationHolds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFixture(t)
		w.define()
		w.addSharedNamespace()
		for i := range 21 {
			w.namespace(fmt.Sprint("acme--", i), "acme", nil)
		}
		w.source(authority)
		w.publish(func(p *v1alpha1.Publication) { p.Spec.Hold = true })
		w.source("")
		w.expectObjects("many copies", "acme--7", "configmaps/ca  first")
		w.publishedIs("many copies", "SourceMissing 21/0/0/0")
		w.namespace("acme--new", "acme", map[string]string{tenant.HeldAnnotation: "true"})
		w.settle()
		if !w.held() {
			t.Error("Pods do not wait for a copy without content")
		}
		w.publish(func(p *v1alpha1.Publication) { p.Annotations = map[string]string{tenant.PruneAnnotation: "true"} })
		w.expectObjects("confirmed", "acme--7")
		w.source(authority)
		if w.held() {
			t.Error("Pods still wait after the copy was made")
		}
		w.expectObjects("again", "acme--new", "configmaps/ca  first")
	})
}

// held reports whether Pods wait in the namespace acme--new.
func (w *fixture) held() bool {
	w.t.Helper()
	ns, err := w.kube.CoreV1().Namespaces().Get(w.t.Context(), "acme--new", metav1.GetOptions{})
	w.must(err)
	_, held := ns.Annotations[tenant.HeldAnnotation]
	return held
}

// TestPublicationDrift checks that a changed or deleted copy is restored. An additional copy is
// deleted only if the Publication that it names is known.
func TestPublicationDrift(t *testing.T) {
	withCopy := func(t *testing.T) (*fixture, dynamic.ResourceInterface) {
		t.Helper()
		w := newFixture(t)
		w.define()
		w.addSharedNamespace()
		w.namespace("acme--web", "acme", nil)
		w.source(authority)
		w.publish(unchanged)
		return w, w.dynamic.Resource(configMaps).Namespace("acme--web")
	}
	for name, forge := range map[string]func(u *unstructured.Unstructured){
		"data":  func(u *unstructured.Unstructured) { _ = unstructured.SetNestedField(u.Object, "forged", "data", "who") },
		"owner": func(u *unstructured.Unstructured) { u.SetOwnerReferences([]metav1.OwnerReference{{Name: "x"}}) },
		"label": nil, // as if the copy had been deleted
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, copies := withCopy(t)
				want, err := copies.Get(t.Context(), "ca", metav1.GetOptions{})
				w.must(err)
				if forge == nil {
					w.must(copies.Delete(t.Context(), "ca", metav1.DeleteOptions{}))
				} else {
					u := want.DeepCopy()
					forge(u)
					_, err = copies.Update(t.Context(), u, metav1.UpdateOptions{})
					w.must(err)
				}
				time.Sleep(11 * time.Minute)
				synctest.Wait()
				got, err := copies.Get(t.Context(), "ca", metav1.GetOptions{})
				w.must(err)
				for _, u := range []*unstructured.Unstructured{want, got} {
					u.SetResourceVersion("")
					u.SetManagedFields(nil)
				}
				if !equality.Semantic.DeepEqual(want.Object, got.Object) {
					t.Errorf("the copy is %v, want %v", got.Object, want.Object)
				}
			})
		})
	}
	t.Run("additional copies", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w, copies := withCopy(t)
			for name, of := range map[string]string{"unknown": "other", "stray": "ca"} {
				u := &unstructured.Unstructured{}
				w.must(yaml.Unmarshal([]byte(authority), &u.Object))
				u.SetName(name)
				u.SetLabels(map[string]string{
					tenant.ManagedLabel:     "publication",
					tenant.PublicationLabel: of,
					tenant.Label:            "acme",
				})
				_, err := copies.Create(t.Context(), u, metav1.CreateOptions{})
				w.must(err)
			}
			time.Sleep(11 * time.Minute)
			synctest.Wait()
			w.expectObjects("restored", "acme--web", "configmaps/ca  first", "configmaps/unknown  first")
		})
	})
}

// TestAnnotatedObject checks that the engine creates, changes and deletes the Publication of an
// object when its annotation [tenant.PublishAnnotation] changes.
func TestAnnotatedObject(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFixture(t)
		w.define()
		w.addSharedNamespace()
		w.namespace("acme--web", "acme", nil)
		w.namespace("globex--web", "globex", nil)
		annotated := func(value string) string {
			return strings.Replace(authority, "labels:", `annotations: { "kubetenant.dev/publish": "`+value+`" }, labels:`, 1)
		}
		all := w.dynamic.Resource(publicationResource)
		for _, c := range []struct {
			value        string
			acme, globex bool
		}{
			{"acme", true, false},
			{"*", true, true},
			{"acme, globex", true, true},
			{"globex", false, true},
			{"acme, system", false, true}, // ignored, because admission refuses it
		} {
			w.source(annotated(c.value))
			w.settle()
			for namespace, want := range map[string]bool{"acme--web": c.acme, "globex--web": c.globex} {
				if got := len(w.objects(namespace)) == 1; got != want {
					t.Errorf("%q: %s has a copy: %t, want %t", c.value, namespace, got, want)
				}
			}
		}
		list, err := all.List(t.Context(), metav1.ListOptions{})
		w.must(err)
		if len(list.Items) != 1 || list.Items[0].GetName() != "configmap-shared-91a61754" {
			t.Errorf("the Publications are %v", list.Items)
		}
		w.source(authority)
		w.settle()
		if list, err = all.List(t.Context(), metav1.ListOptions{}); err != nil || len(list.Items) != 0 {
			t.Errorf("without the annotation, the Publications are %v, %v", list.Items, err)
		}
	})
}

// define creates the definition of Publications.
func (w *fixture) define() {
	w.t.Helper()
	u := &unstructured.Unstructured{
		Object: map[string]any{"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition"},
	}
	u.SetName("publications.kubetenant.dev")
	u.SetUID(types.UID("d1"))
	_, err := w.dynamic.Resource(definitions).Create(w.t.Context(), u, metav1.CreateOptions{})
	w.must(err)
}
