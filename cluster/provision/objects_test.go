// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package provision_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clienttesting "k8s.io/client-go/testing"
	"sigs.k8s.io/yaml"

	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

var (
	templateResource = v1alpha1.SchemeGroupVersion.WithResource(v1alpha1.ResourceNamespaceTemplates)
	configMaps       = corev1.SchemeGroupVersion.WithResource("configmaps")
	policies         = networkingv1.SchemeGroupVersion.WithResource("networkpolicies")
)

const (
	denyAll = `{ apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: { name: deny }, ` +
		`spec: { podSelector: {} } }`
	settings = `{ apiVersion: v1, kind: ConfigMap, metadata: { name: "of-${tenant}" }, ` +
		`data: { who: "${tenant} in ${namespace}" } }`
)

// template writes a NamespaceTemplate with these objects. Without objects, it deletes the template.
func (w *fixture) template(name string, objects ...string) {
	w.t.Helper()
	defer w.settle()
	all := w.dynamic.Resource(templateResource)
	_, err := all.Get(w.t.Context(), name, metav1.GetOptions{})
	exists := err == nil
	if len(objects) == 0 {
		w.must(all.Delete(w.t.Context(), name, metav1.DeleteOptions{}))
		return
	}
	u := &unstructured.Unstructured{}
	w.must(yaml.Unmarshal([]byte(`{ apiVersion: kubetenant.dev/v1alpha1, kind: NamespaceTemplate, metadata: { name: `+name+
		` }, spec: { objects: [ `+strings.Join(objects, ", ")+` ] } }`), &u.Object))
	u.SetCreationTimestamp(metav1.Now())
	if exists {
		_, err = all.Update(w.t.Context(), u, metav1.UpdateOptions{})
	} else {
		_, err = all.Create(w.t.Context(), u, metav1.CreateOptions{})
	}
	w.must(err)
}

// setTemplates sets the templates of acme's Tenant.
func (w *fixture) setTemplates(templates ...string) {
	w.t.Helper()
	w.tenant(func(s *v1alpha1.TenantSpec) { s.Namespaces.Templates = templates })
}

// objects returns the objects of a namespace that templates can define, each with its template.
func (w *fixture) objects(namespace string) (all []string) {
	w.t.Helper()
	for _, r := range []schema.GroupVersionResource{configMaps, policies} {
		list, err := w.dynamic.Resource(r).Namespace(namespace).List(w.t.Context(), metav1.ListOptions{})
		w.must(err)
		for _, u := range list.Items {
			template, _, _ := strings.Cut(u.GetAnnotations()[tenant.TemplateAnnotation], "/")
			data, _, _ := unstructured.NestedString(u.Object, "data", "who")
			all = append(all, strings.TrimSpace(fmt.Sprintf("%s/%s %s %s", r.Resource, u.GetName(), template, data)))
		}
	}
	slices.Sort(all)
	return all
}

func (w *fixture) expectObjects(what, namespace string, want ...string) {
	w.t.Helper()
	if got := w.objects(namespace); !slices.Equal(got, want) {
		w.t.Errorf("%s: %s has %q, want %q", what, namespace, got, want)
	}
}

func (w *fixture) expectStatus(what, want string) {
	w.t.Helper()
	if got := w.status(); got != want {
		w.t.Errorf("%s: the status %s, want %s", what, got, want)
	}
}

// TestTemplates checks that the objects of a template exist in each namespace, including later
// ones. An object is deleted if the template no longer defines it, or if the Tenant no longer names
// the template. If the Tenant is deleted, its objects remain, because they still protect the
// namespaces.
func TestTemplates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFixture(t)
		w.namespace("acme--web", "acme", nil)
		w.namespace("globex--web", "globex", nil)
		w.template("std", denyAll, settings)
		w.setTemplates("std")
		w.expectObjects("at first", "acme--web", "configmaps/of-acme std acme in acme--web", "networkpolicies/deny std")
		w.expectObjects("another tenant's", "globex--web")
		w.expectStatus("at first", "Prepared 1/1/0 of generation 1")
		w.namespace("acme--db", "acme", map[string]string{tenant.HeldAnnotation: "true"})
		w.settle()
		w.expectObjects("a later one", "acme--db", "configmaps/of-acme std acme in acme--db", "networkpolicies/deny std")
		ns, err := w.kube.CoreV1().Namespaces().Get(t.Context(), "acme--db", metav1.GetOptions{})
		w.must(err)
		if _, held := ns.Annotations[tenant.HeldAnnotation]; held {
			t.Error("it is prepared, and Pods wait")
		}
		w.stop()
		w.writes()
		w.start()
		if n := w.writes(); n != 0 {
			t.Errorf("a new leader writes %d times", n)
		}
		w.template("std", settings)
		w.expectObjects("with less", "acme--web", "configmaps/of-acme std acme in acme--web")
		w.expectObjects("with less", "acme--db", "configmaps/of-acme std acme in acme--db")
		w.template("std", strings.Replace(settings, " in ", " at ", 1))
		w.expectObjects("with another", "acme--web", "configmaps/of-acme std acme at acme--web")
		w.setTemplates()
		w.expectObjects("not named any more", "acme--web")
		if got := w.prepared("acme--web"); got != "" {
			t.Errorf("prepared with nothing: %s", got)
		}
		w.setTemplates("std")
		w.must(w.dynamic.Resource(resource).Delete(t.Context(), "acme", metav1.DeleteOptions{}))
		w.settle()
		w.expectObjects("without a Tenant", "acme--web", "configmaps/of-acme std acme at acme--web")
	})
}

// TestMissingTemplates checks a Tenant that names a missing template. No namespace is marked
// as prepared, Pods wait, and all other objects are created. Existing objects of the template
// remain.
func TestMissingTemplates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFixture(t)
		w.namespace("acme--web", "acme", map[string]string{tenant.HeldAnnotation: "true"})
		w.template("std", denyAll)
		w.tenant(func(s *v1alpha1.TenantSpec) {
			s.Admins = append(s.Admins, peter)
			s.Namespaces.Templates = []string{"std", "later"}
		})
		w.expectObjects("one is missing", "acme--web", "networkpolicies/deny std")
		w.expect("one is missing", "acme--web", "kubetenant:admins admin: peter")
		w.expectStatus("one is missing", "TemplateRefused 1/0/1 of generation 1")
		if got := w.prepared("acme--web"); got != "" {
			t.Errorf("it is said to be prepared: %s", got)
		}
		w.writes()
		time.Sleep(5 * time.Minute)
		if n := w.writes(); n != 0 {
			t.Errorf("what no other try mends is tried: %d writes", n)
		}
		w.template("later", settings)
		w.expectObjects("both", "acme--web", "configmaps/of-acme later acme in acme--web", "networkpolicies/deny std")
		w.expectStatus("both", "Prepared 1/1/0 of generation 1")
		w.template("std")
		w.tenant(func(s *v1alpha1.TenantSpec) { s.Admins = nil })
		w.expectObjects(
			"one was deleted",
			"acme--web",
			"configmaps/of-acme later acme in acme--web",
			"networkpolicies/deny std",
		)
		w.expect("one was deleted", "acme--web")
		w.expectStatus("one was deleted", "TemplateRefused 1/0/1 of generation 2")
		w.setTemplates("later")
		w.expectObjects("nobody names it", "acme--web", "configmaps/of-acme later acme in acme--web")
		w.expectStatus("nobody names it", "Prepared 1/1/0 of generation 3")
	})
}

// TestInvalidTemplates checks that the older of two templates defines an object, that an
// existing object of another caller remains, and that the Tenant reports invalid objects.
func TestInvalidTemplates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFixture(t)
		w.namespace("acme--web", "acme", nil)
		w.template("old", denyAll)
		time.Sleep(time.Minute)
		w.template("a-young-one", denyAll, settings)
		w.setTemplates("a-young-one", "old")
		w.expectObjects("of two", "acme--web", "configmaps/of-acme a-young-one acme in acme--web", "networkpolicies/deny old")
		w.expectStatus("of two", "TemplateRefused 1/0/1 of generation 1")
		w.template("a-young-one", `{ apiVersion: v1, kind: ConfigMap, metadata: { name: "${tenant}_x" } }`)
		w.expectStatus("a name", "TemplateRefused 1/0/1 of generation 1")
		w.expectObjects(
			"what cannot be made leaves what was",
			"acme--web",
			"configmaps/of-acme a-young-one acme in acme--web",
			"networkpolicies/deny old",
		)
		w.setTemplates("old")
		w.expectObjects("one", "acme--web", "networkpolicies/deny old")
		w.setTemplates()
		_, err := w.dynamic.Resource(policies).Namespace("acme--web").Create(t.Context(),
			&unstructured.Unstructured{Object: map[string]any{
				"apiVersion": "networking.k8s.io/v1",
				"kind":       "NetworkPolicy",
				"metadata":   map[string]any{"name": "deny"},
			}}, metav1.CreateOptions{})
		w.must(err)
		w.setTemplates("old")
		w.expectObjects("somebody else's", "acme--web", "networkpolicies/deny")
		w.expectStatus("somebody else's", "Failed 1/0/1 of generation 4")
	})
}

// TestTemplateDrift checks that objects that were changed or deleted without admission are
// restored, and that added objects are deleted.
func TestTemplateDrift(t *testing.T) {
	for name, change := range map[string]func(w *fixture, u *unstructured.Unstructured) *unstructured.Unstructured{
		"deleted": func(*fixture, *unstructured.Unstructured) *unstructured.Unstructured { return nil },
		"written by another": func(_ *fixture, u *unstructured.Unstructured) *unstructured.Unstructured {
			w := []metav1.ManagedFieldsEntry{{Manager: "kubetenant"}, {Manager: "kubectl"}}
			u.SetManagedFields(w) // owns a field that is not compared
			return u
		},
		"written by another in our name": func(_ *fixture, u *unstructured.Unstructured) *unstructured.Unstructured {
			_ = unstructured.SetNestedField(u.Object, "x", "data", "who")
			return u
		},
		"an owner": func(_ *fixture, u *unstructured.Unstructured) *unstructured.Unstructured {
			u.SetOwnerReferences([]metav1.OwnerReference{{
				APIVersion: "v1",
				Kind:       "ConfigMap",
				Name:       "x",
				UID:        "x",
			}})
			return u
		},
		"a finalizer": func(_ *fixture, u *unstructured.Unstructured) *unstructured.Unstructured {
			u.SetFinalizers([]string{"x/y"})
			return u
		},
		"of an older template": func(_ *fixture, u *unstructured.Unstructured) *unstructured.Unstructured {
			u.SetAnnotations(map[string]string{tenant.TemplateAnnotation: "std/0123"})
			return u
		},
		"one more": func(w *fixture, u *unstructured.Unstructured) *unstructured.Unstructured {
			more := u.DeepCopy()
			more.SetName("more")
			w.must(w.dynamic.Tracker().Create(configMaps, more, "acme--web"))
			return u
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newFixture(t)
				w.namespace("acme--web", "acme", nil)
				w.template("std", settings)
				w.setTemplates("std")
				all := w.dynamic.Resource(configMaps).Namespace("acme--web")
				u, err := all.Get(t.Context(), "of-acme", metav1.GetOptions{})
				w.must(err)
				if changed := change(w, u); changed != nil {
					w.must(w.dynamic.Tracker().Update(configMaps, changed, "acme--web"))
				} else {
					w.must(all.Delete(t.Context(), "of-acme", metav1.DeleteOptions{}))
				}
				time.Sleep(11 * time.Minute)
				w.settle()
				w.expectObjects("healed", "acme--web", "configmaps/of-acme std acme in acme--web")
				is, err := all.Get(t.Context(), "of-acme", metav1.GetOptions{})
				w.must(err)
				if slices.ContainsFunc(is.GetManagedFields(), func(m metav1.ManagedFieldsEntry) bool {
					return m.Manager == "kubectl"
				}) {
					t.Errorf("another manages it: %v", is.GetManagedFields())
				}
				if len(is.GetOwnerReferences())+len(is.GetFinalizers()) > 0 ||
					strings.HasSuffix(is.GetAnnotations()[tenant.TemplateAnnotation], "/0123") {
					t.Errorf("not whole: %v", is.Object["metadata"])
				}
				w.expectStatus("healed", "Prepared 1/1/0 of generation 1")
			})
		})
	}
}

// TestTemplateImmutable checks that an object with an immutable difference is created again, unless
// the server would reject the new object.
func TestTemplateImmutable(t *testing.T) {
	for name, taken := range map[string]bool{"immutable": true, "no object": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newFixture(t)
				invalid := apierrors.NewInvalid(schema.GroupKind{Kind: "ConfigMap"}, "of-acme", nil)
				prepend(&w.dynamic.Fake, "update", "configmaps", func(clienttesting.Action) (bool, runtime.Object, error) {
					return true, nil, invalid
				})
				prepend(&w.dynamic.Fake, "create", "configmaps", func(a clienttesting.Action) (bool, runtime.Object, error) {
					dry := len(a.(clienttesting.CreateActionImpl).CreateOptions.DryRun) > 0
					if dry && !taken {
						return true, nil, invalid
					}
					return false, nil, nil
				})
				w.namespace("acme--web", "acme", nil)
				w.template("std", settings)
				w.setTemplates("std")
				w.template("std", strings.Replace(settings, " in ", " at ", 1))
				want, says := "configmaps/of-acme std acme at acme--web", "Prepared 1/1/0 of generation 1"
				if !taken {
					want, says = "configmaps/of-acme std acme in acme--web", "Failed 1/0/1 of generation 1"
				}
				w.expectObjects("changed", "acme--web", want)
				w.expectStatus("changed", says)
			})
		})
	}
}

// TestTemplateForbidden checks that a forbidden write is retried for a while and then only by the
// drift pass, because all tenants share the write rate.
func TestTemplateForbidden(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFixture(t)
		var allowed atomic.Bool
		prepend(&w.dynamic.Fake, "create", "configmaps", func(clienttesting.Action) (bool, runtime.Object, error) {
			return !allowed.Load(), nil, apierrors.NewForbidden(configMaps.GroupResource(), "of-acme", errors.New("no"))
		})
		w.namespace("acme--web", "acme", nil)
		w.template("std", settings)
		w.setTemplates("std")
		time.Sleep(time.Minute)
		if n := w.writes(); n < 5 {
			t.Errorf("what is refused is tried %d times in a minute", n)
		}
		time.Sleep(8 * time.Minute) // before the next drift pass
		if n := w.writes(); n != 0 {
			t.Errorf("what is refused is written %d times in eight minutes more", n)
		}
		allowed.Store(true)
		time.Sleep(11 * time.Minute)
		w.settle()
		w.expectObjects("allowed", "acme--web", "configmaps/of-acme std acme in acme--web")
		w.expectStatus("allowed", "Prepared 1/1/0 of generation 1")
	})
}

// TestTemplateFails checks that failed writes are retried, and that a namespace is not marked as
// prepared until all objects exist.
func TestTemplateFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFixture(t)
		var back atomic.Bool
		prepend(&w.dynamic.Fake, "create", "networkpolicies", func(clienttesting.Action) (bool, runtime.Object, error) {
			return !back.Load(), nil, errors.New("away")
		})
		w.namespace("acme--web", "acme", map[string]string{tenant.HeldAnnotation: "true"})
		w.template("std", settings, denyAll)
		w.setTemplates("std")
		w.expectStatus("away", "Failed 1/0/1 of generation 1")
		if got := w.prepared("acme--web"); got != "" {
			t.Errorf("it is said to be prepared: %s", got)
		}
		back.Store(true)
		time.Sleep(2 * time.Minute)
		w.settle()
		w.expectObjects("there", "acme--web", "configmaps/of-acme std acme in acme--web", "networkpolicies/deny std")
		w.expectStatus("there", "Prepared 1/1/0 of generation 1")
	})
}

// TestTemplateNameTaken checks that an object whose name is taken is retried only by the drift
// pass, until the name is free. All other objects are created.
func TestTemplateNameTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFixture(t)
		others := w.dynamic.Resource(policies).Namespace("acme--web")
		_, err := others.Create(t.Context(), &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "networking.k8s.io/v1",
			"kind":       "NetworkPolicy",
			"metadata":   map[string]any{"name": "deny"},
		}}, metav1.CreateOptions{})
		w.must(err)
		w.template("std", denyAll)
		w.tenant(func(s *v1alpha1.TenantSpec) {
			s.Namespaces.Templates, s.Namespaces.Labels = []string{"std"}, map[string]v1alpha1.LabelValue{"cost": "42"}
		})
		w.namespace("acme--web", "acme", map[string]string{tenant.HeldAnnotation: "true"})
		w.settle()
		ns, err := w.kube.CoreV1().Namespaces().Get(t.Context(), "acme--web", metav1.GetOptions{})
		w.must(err)
		if ns.Labels["cost"] != "42" || ns.Annotations[tenant.HeldAnnotation] == "" {
			t.Errorf("labels %v, annotations %v", ns.Labels, ns.Annotations)
		}
		w.expectStatus("taken", "Failed 1/0/1 of generation 1")
		w.writes()
		time.Sleep(time.Hour)
		if n := w.writes(); n > 6*2 { // each drift pass creates the object and writes the labels
			t.Errorf("what no other try mends is written %d times in an hour", n)
		}
		w.must(others.Delete(t.Context(), "deny", metav1.DeleteOptions{}))
		time.Sleep(11 * time.Minute)
		w.settle()
		w.expectObjects("free", "acme--web", "networkpolicies/deny std")
		w.expectStatus("free", "Prepared 1/1/0 of generation 1")
	})
}

// TestStaleTenantReleasesNoPods checks that an engine with an old Tenant does not release Pods.
func TestStaleTenantReleasesNoPods(t *testing.T) {
	for name, answer := range map[string]func(u *unstructured.Unstructured) (runtime.Object, error){
		"another one":    func(u *unstructured.Unstructured) (runtime.Object, error) { u.SetUID("t2"); return u, nil },
		"a later one":    func(u *unstructured.Unstructured) (runtime.Object, error) { u.SetGeneration(9); return u, nil },
		"nobody answers": func(*unstructured.Unstructured) (runtime.Object, error) { return nil, errors.New("away") },
		"there is none": func(*unstructured.Unstructured) (runtime.Object, error) {
			return nil, apierrors.NewNotFound(resource.GroupResource(), "acme")
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newFixture(t)
				w.template("std", settings)
				w.setTemplates("std")
				var heard atomic.Bool
				prepend(&w.dynamic.Fake, "get", "tenants", func(clienttesting.Action) (bool, runtime.Object, error) {
					if heard.Load() {
						return false, nil, nil
					}
					u, err := w.dynamic.Tracker().Get(resource, "", "acme")
					w.must(err)
					obj, err := answer(u.(*unstructured.Unstructured).DeepCopy())
					return true, obj, err
				})
				w.namespace("acme--web", "acme", map[string]string{tenant.HeldAnnotation: "true"})
				w.settle()
				held := func() bool {
					ns, err := w.kube.CoreV1().Namespaces().Get(t.Context(), "acme--web", metav1.GetOptions{})
					w.must(err)
					_, is := ns.Annotations[tenant.HeldAnnotation]
					return is
				}
				if !held() {
					t.Error("it is let go")
				}
				heard.Store(true)
				time.Sleep(time.Minute)
				if held() {
					t.Error("it is held on")
				}
			})
		})
	}
}
