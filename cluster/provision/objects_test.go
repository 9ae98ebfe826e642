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

// template writes a NamespaceTemplate with the given objects. Without objects, it deletes the
// template.
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

// setTemplates sets the templates that acme's Tenant names.
func (w *fixture) setTemplates(templates ...string) {
	w.t.Helper()
	w.tenant(func(s *v1alpha1.TenantSpec) { s.Namespaces.Templates = templates })
}

// objects returns the ConfigMaps and NetworkPolicies in a namespace. Each has the name of its
// template and the field data.who, if they are set.
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

// TestTemplates checks that the objects of a template exist in each namespace, including
// namespaces that are created later. An object is deleted if the template no longer defines it,
// or if the Tenant no longer names the template. If the Tenant is deleted, the objects remain,
// because they still protect the namespaces.
func TestTemplates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFixture(t)
		w.namespace("acme--web", "acme", nil)
		w.namespace("globex--web", "globex", nil)
		w.template("std", denyAll, settings)
		w.setTemplates("std")
		w.expectObjects("at first", "acme--web", "configmaps/of-acme std acme in acme--web", "networkpolicies/deny std")
		w.expectObjects("another tenant", "globex--web")
		w.expectStatus("at first", "Prepared 1/1/0 of generation 1")
		w.namespace("acme--db", "acme", map[string]string{tenant.HeldAnnotation: "true"})
		w.settle()
		w.expectObjects("later namespace", "acme--db", "configmaps/of-acme std acme in acme--db", "networkpolicies/deny std")
		ns, err := w.kube.CoreV1().Namespaces().Get(t.Context(), "acme--db", metav1.GetOptions{})
		w.must(err)
		if _, held := ns.Annotations[tenant.HeldAnnotation]; held {
			t.Error("Pods still wait in a prepared namespace")
		}
		w.stop()
		w.writes()
		w.start()
		if n := w.writes(); n != 0 {
			t.Errorf("a new leader writes %d times", n)
		}
		w.template("std", settings)
		w.expectObjects("object removed", "acme--web", "configmaps/of-acme std acme in acme--web")
		w.expectObjects("object removed", "acme--db", "configmaps/of-acme std acme in acme--db")
		w.template("std", strings.Replace(settings, " in ", " at ", 1))
		w.expectObjects("object changed", "acme--web", "configmaps/of-acme std acme at acme--web")
		w.setTemplates()
		w.expectObjects("template no longer named", "acme--web")
		if got := w.prepared("acme--web"); got != "" {
			t.Errorf("prepared without content: %s", got)
		}
		w.setTemplates("std")
		w.must(w.dynamic.Resource(resource).Delete(t.Context(), "acme", metav1.DeleteOptions{}))
		w.settle()
		w.expectObjects("without a Tenant", "acme--web", "configmaps/of-acme std acme at acme--web")
	})
}

// TestMissingTemplates checks that, if a Tenant names a missing template, no namespace is marked
// as prepared, but all other objects are created. Existing objects of the template remain.
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
			t.Errorf("the namespace is marked as prepared: %s", got)
		}
		w.writes()
		time.Sleep(5 * time.Minute)
		if n := w.writes(); n != 0 {
			t.Errorf("%d writes although retries cannot succeed", n)
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
		w.expectObjects("no longer named", "acme--web", "configmaps/of-acme later acme in acme--web")
		w.expectStatus("no longer named", "Prepared 1/1/0 of generation 3")
	})
}

// TestInvalidTemplates checks that the Tenant reports templates that define the same object or an
// invalid object. The object of the older template is created. An existing object of another
// caller remains.
func TestInvalidTemplates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFixture(t)
		w.namespace("acme--web", "acme", nil)
		w.template("old", denyAll)
		time.Sleep(time.Minute)
		w.template("a-young-one", denyAll, settings)
		w.setTemplates("a-young-one", "old")
		w.expectObjects("same object", "acme--web",
			"configmaps/of-acme a-young-one acme in acme--web", "networkpolicies/deny old")
		w.expectStatus("same object", "TemplateRefused 1/0/1 of generation 1")
		w.template("a-young-one", `{ apiVersion: v1, kind: ConfigMap, metadata: { name: "${tenant}_x" } }`)
		w.expectStatus("invalid name", "TemplateRefused 1/0/1 of generation 1")
		w.expectObjects(
			"invalid name",
			"acme--web",
			"configmaps/of-acme a-young-one acme in acme--web",
			"networkpolicies/deny old",
		)
		w.setTemplates("old")
		w.expectObjects("one template", "acme--web", "networkpolicies/deny old")
		w.setTemplates()
		_, err := w.dynamic.Resource(policies).Namespace("acme--web").Create(t.Context(),
			&unstructured.Unstructured{Object: map[string]any{
				"apiVersion": "networking.k8s.io/v1",
				"kind":       "NetworkPolicy",
				"metadata":   map[string]any{"name": "deny"},
			}}, metav1.CreateOptions{})
		w.must(err)
		w.setTemplates("old")
		w.expectObjects("object of another caller", "acme--web", "networkpolicies/deny")
		w.expectStatus("object of another caller", "Failed 1/0/1 of generation 4")
	})
}

// TestTemplateDrift checks that objects that were changed or deleted without admission are
// restored, and that added objects are deleted.
func TestTemplateDrift(t *testing.T) {
	for name, change := range map[string]func(w *fixture, u *unstructured.Unstructured) *unstructured.Unstructured{
		"deleted": func(*fixture, *unstructured.Unstructured) *unstructured.Unstructured { return nil },
		"another field manager": func(_ *fixture, u *unstructured.Unstructured) *unstructured.Unstructured {
			w := []metav1.ManagedFieldsEntry{{Manager: "kubetenant"}, {Manager: "kubectl"}}
			u.SetManagedFields(w) // kubectl may own a field that is not compared
			return u
		},
		"changed content": func(_ *fixture, u *unstructured.Unstructured) *unstructured.Unstructured {
			_ = unstructured.SetNestedField(u.Object, "x", "data", "who")
			return u
		},
		"owner reference": func(_ *fixture, u *unstructured.Unstructured) *unstructured.Unstructured {
			u.SetOwnerReferences([]metav1.OwnerReference{{
				APIVersion: "v1",
				Kind:       "ConfigMap",
				Name:       "x",
				UID:        "x",
			}})
			return u
		},
		"finalizer": func(_ *fixture, u *unstructured.Unstructured) *unstructured.Unstructured {
			u.SetFinalizers([]string{"x/y"})
			return u
		},
		"outdated annotation": func(_ *fixture, u *unstructured.Unstructured) *unstructured.Unstructured {
			u.SetAnnotations(map[string]string{tenant.TemplateAnnotation: "std/0123"})
			return u
		},
		"additional object": func(w *fixture, u *unstructured.Unstructured) *unstructured.Unstructured {
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
				w.expectObjects("restored", "acme--web", "configmaps/of-acme std acme in acme--web")
				is, err := all.Get(t.Context(), "of-acme", metav1.GetOptions{})
				w.must(err)
				if slices.ContainsFunc(is.GetManagedFields(), func(m metav1.ManagedFieldsEntry) bool {
					return m.Manager == "kubectl"
				}) {
					t.Errorf("another field manager remains: %v", is.GetManagedFields())
				}
				if len(is.GetOwnerReferences())+len(is.GetFinalizers()) > 0 ||
					strings.HasSuffix(is.GetAnnotations()[tenant.TemplateAnnotation], "/0123") {
					t.Errorf("unexpected metadata: %v", is.Object["metadata"])
				}
				w.expectStatus("restored", "Prepared 1/1/0 of generation 1")
			})
		})
	}
}

// TestTemplateImmutable checks that an object is deleted and created again if the server rejects
// an update, for example of an immutable field. It is not deleted if the server would reject the
// new object.
func TestTemplateImmutable(t *testing.T) {
	for name, taken := range map[string]bool{"immutable field": true, "invalid object": false} {
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

// TestTemplateForbidden checks that a forbidden write is retried for a while, and then only by
// the drift check, because all tenants share the write rate.
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
			t.Errorf("%d attempts of a forbidden write in a minute", n)
		}
		time.Sleep(8 * time.Minute) // before the next drift check
		if n := w.writes(); n != 0 {
			t.Errorf("%d attempts of a forbidden write in the next eight minutes", n)
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
		w.expectStatus("unavailable", "Failed 1/0/1 of generation 1")
		if got := w.prepared("acme--web"); got != "" {
			t.Errorf("the namespace is marked as prepared: %s", got)
		}
		back.Store(true)
		time.Sleep(2 * time.Minute)
		w.settle()
		w.expectObjects("available again", "acme--web", "configmaps/of-acme std acme in acme--web",
			"networkpolicies/deny std")
		w.expectStatus("available again", "Prepared 1/1/0 of generation 1")
	})
}

// TestTemplateNameTaken checks that, while an existing object has the name of a template's
// object, only the drift check retries the creation. Other content of the namespace is written.
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
		if n := w.writes(); n > 6*2 { // each drift check creates the object and writes the labels
			t.Errorf("%d writes in an hour although the name is taken", n)
		}
		w.must(others.Delete(t.Context(), "deny", metav1.DeleteOptions{}))
		time.Sleep(11 * time.Minute)
		w.settle()
		w.expectObjects("free", "acme--web", "networkpolicies/deny std")
		w.expectStatus("free", "Prepared 1/1/0 of generation 1")
	})
}

// TestStaleTenantReleasesNoPods checks that an engine does not release waiting Pods if its cached
// Tenant is not the current Tenant on the server.
func TestStaleTenantReleasesNoPods(t *testing.T) {
	for name, answer := range map[string]func(u *unstructured.Unstructured) (runtime.Object, error){
		"another UID": func(u *unstructured.Unstructured) (runtime.Object, error) { u.SetUID("t2"); return u, nil },
		"a later generation": func(u *unstructured.Unstructured) (runtime.Object, error) {
			u.SetGeneration(9)
			return u, nil
		},
		"read fails": func(*unstructured.Unstructured) (runtime.Object, error) { return nil, errors.New("away") },
		"no Tenant": func(*unstructured.Unstructured) (runtime.Object, error) {
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
					t.Error("Pods do not wait")
				}
				heard.Store(true)
				time.Sleep(time.Minute)
				if held() {
					t.Error("Pods still wait")
				}
			})
		})
	}
}
