// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package retirement_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/kubetenant/kubetenant/authz"
	"github.com/kubetenant/kubetenant/cluster/retirement"
	"github.com/kubetenant/kubetenant/cluster/tenants"
	"github.com/kubetenant/kubetenant/internal/typed"
	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/tenanttest"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

var (
	tenantObjects = v1alpha1.SchemeGroupVersion.WithResource(v1alpha1.ResourceTenants)
	retiredOnes   = v1alpha1.SchemeGroupVersion.WithResource(v1alpha1.ResourceRetiredTenants)
	quotas        = v1alpha1.SchemeGroupVersion.WithResource(v1alpha1.ResourceTenantQuotas)
	memberObjects = v1alpha1.SchemeGroupVersion.WithResource(v1alpha1.ResourceTenantMembers)
	definitions   = tenants.Definitions()
	namespaces    = corev1.SchemeGroupVersion.WithResource("namespaces")
	errKilled     = errors.New("killed")
)

// fixture is a fake cluster in virtual time and an engine that can be killed. A deleted namespace
// is removed after ten seconds.
type fixture struct {
	t       *testing.T
	kube    *fake.Clientset
	dynamic *dynamicfake.FakeDynamicClient
	store   *tenants.Store
	left    []string     // the result of References
	stuck   atomic.Bool  // whether deleted namespaces are not removed
	missing atomic.Bool  // whether the definition of RetiredTenants is missing
	writes  atomic.Int64 // the number of the engine's writes
	kill    atomic.Int64 // the number of the write at which the engine is killed, or 0
	dead    atomic.Bool
	stop    func()
}

func newFixture(t *testing.T, objects ...runtime.Object) *fixture {
	t.Helper()
	definition := &unstructured.Unstructured{
		Object: map[string]any{"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition"},
	}
	definition.SetName("tenants.kubetenant.dev")
	w := &fixture{
		t:    t,
		kube: fake.NewClientset(),
		dynamic: dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(),
			map[schema.GroupVersionResource]string{
				tenantObjects: "TenantList",
				v1alpha1.SchemeGroupVersion.WithResource(v1alpha1.ResourceNamespaceTemplates): "NamespaceTemplateList",
				v1alpha1.SchemeGroupVersion.WithResource(v1alpha1.ResourceTenantMembers):      "TenantMembersList",
				v1alpha1.SchemeGroupVersion.WithResource(v1alpha1.ResourcePublications):       "PublicationList",
				retiredOnes: "RetiredTenantList",
				quotas:      "TenantQuotaList",
				definitions: "CustomResourceDefinitionList",
			},
			append(objects, definition)...),
	}
	w.kube.PrependReactor("delete", "namespaces", w.deleteNamespace)
	w.dynamic.PrependReactor("patch", "tenants", w.reactToPatch)
	w.kube.PrependReactor("*", "*", w.killAtWrite)
	w.dynamic.PrependReactor("*", "*", w.killAtWrite)
	w.dynamic.PrependReactor("create", "retiredtenants", func(a clienttesting.Action) (bool, runtime.Object, error) {
		// The server sets the creation time.
		a.(clienttesting.CreateAction).GetObject().(*unstructured.Unstructured).SetCreationTimestamp(metav1.Now())
		return false, nil, nil
	})
	return w
}

// killAtWrite kills the engine at the write whose number is in kill. After that, all requests
// fail.
func (w *fixture) killAtWrite(a clienttesting.Action) (bool, runtime.Object, error) {
	if w.dead.Load() {
		return true, nil, errKilled
	}
	if slices.Contains([]string{"get", "list", "watch"}, a.GetVerb()) {
		return false, nil, nil
	}
	if w.writes.Add(1) == w.kill.Load() {
		w.dead.Store(true)
		return true, nil, errKilled
	}
	return false, nil, nil
}

// deleteNamespace marks a namespace as being deleted, and removes it later.
func (w *fixture) deleteNamespace(a clienttesting.Action) (bool, runtime.Object, error) {
	name := a.(clienttesting.DeleteAction).GetName()
	obj, err := w.kube.Tracker().Get(namespaces, "", name)
	if err != nil {
		return true, nil, err
	}
	ns := obj.(*corev1.Namespace).DeepCopy()
	if p := a.(clienttesting.DeleteActionImpl).DeleteOptions.Preconditions; p == nil || *p.UID != ns.UID {
		return true, nil, apierrors.NewConflict(corev1.Resource("namespaces"), name, errors.New("another UID"))
	}
	if ns.DeletionTimestamp == nil {
		at := metav1.Now()
		ns.DeletionTimestamp = &at
		if err := w.kube.Tracker().Update(namespaces, ns, ""); err != nil {
			return true, nil, err
		}
		go func() {
			time.Sleep(10 * time.Second)
			if !w.stuck.Load() {
				_ = w.kube.Tracker().Delete(namespaces, "", name)
			}
		}()
	}
	return true, nil, nil
}

// reactToPatch applies a patch to a Tenant. If no finalizer is left, it deletes the Tenant, as the
// server does.
func (w *fixture) reactToPatch(a clienttesting.Action) (bool, runtime.Object, error) {
	_, obj, err := clienttesting.ObjectReaction(w.dynamic.Tracker())(a)
	u, ok := obj.(*unstructured.Unstructured)
	if err == nil && ok && u.GetDeletionTimestamp() != nil && len(u.GetFinalizers()) == 0 {
		err = w.dynamic.Tracker().Delete(tenantObjects, "", u.GetName())
	}
	return true, obj, err
}

// start starts an engine, as a new leader does.
func (w *fixture) start() {
	w.t.Helper()
	ctx, cancel := context.WithCancel(w.t.Context())
	var err error
	if w.store, err = tenants.New(w.dynamic, func(schema.GroupResource) (bool, bool) { return true, true }); err != nil {
		w.t.Fatal(err)
	}
	undefined := func(resource string) string {
		if w.missing.Load() && resource == v1alpha1.ResourceRetiredTenants {
			return "retiredtenants is missing"
		}
		return ""
	}
	engine := retirement.New(retirement.Options{
		Client:     w.kube,
		Dynamic:    w.dynamic,
		Tenants:    w.store,
		IsReserved: func(name string) bool { return name == "kube-system" },
		Undefined:  undefined,
		References: func(context.Context, tenant.ID, []string) ([]string, error) { return w.left, nil },
	})
	var running sync.WaitGroup
	running.Go(func() { w.store.Run(ctx) })
	running.Go(func() {
		if err := engine.Run(ctx); err != nil && ctx.Err() == nil {
			w.t.Error(err)
		}
	})
	w.stop = sync.OnceFunc(func() {
		cancel()
		running.Wait()
	})
	w.t.Cleanup(func() { w.stop() })
}

func (w *fixture) namespace(name, of string) {
	w.t.Helper()
	ns := &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-" + name), Labels: map[string]string{tenant.Label: of}},
	}
	if err := w.kube.Tracker().Add(ns); err != nil {
		w.t.Fatal(err)
	}
}

// objects returns a description of the objects in the cluster.
func (w *fixture) objects() string {
	w.t.Helper()
	var all []string
	spaces, err := w.kube.CoreV1().Namespaces().List(w.t.Context(), metav1.ListOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	for _, ns := range spaces.Items {
		all = append(all, "namespace "+ns.Name)
	}
	bindings, err := w.kube.RbacV1().ClusterRoleBindings().List(w.t.Context(), metav1.ListOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	for _, b := range bindings.Items {
		all = append(all, "binding "+b.Name)
	}
	for _, r := range []schema.GroupVersionResource{quotas, memberObjects, tenantObjects} {
		list, err := w.dynamic.Resource(r).List(w.t.Context(), metav1.ListOptions{})
		if err != nil {
			w.t.Fatal(err)
		}
		for _, u := range list.Items {
			all = append(all, strings.TrimSuffix(r.Resource, "s")+" "+u.GetName())
		}
	}
	list, err := w.dynamic.Resource(retiredOnes).List(w.t.Context(), metav1.ListOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	for i := range list.Items {
		r, err := typed.Decode[v1alpha1.RetiredTenant](&list.Items[i])
		if err != nil {
			w.t.Fatal(err)
		}
		id, was := tenants.RetiredOf(r)
		if r.Spec.TakenBack != "" {
			all = append(all, fmt.Sprintf("taken back %s %s %s", id, r.Name, r.Spec.TakenBack))
			continue
		}
		all = append(all, fmt.Sprintf("retired %s %s ended=%t %v %v",
			id, list.Items[i].GetName(), !was.DeletionEnded.IsZero(), was.Namespaces, r.Spec.References))
	}
	return strings.Join(all, "; ")
}

// condition returns the reason and message of a condition of a Tenant. It returns "" if the
// condition is not True, and "gone" if the Tenant does not exist.
func (w *fixture) condition(name, of string) string {
	w.t.Helper()
	u, err := w.dynamic.Resource(tenantObjects).Get(w.t.Context(), name, metav1.GetOptions{})
	if err != nil {
		return "gone"
	}
	t, err := typed.Decode[v1alpha1.Tenant](u)
	if err != nil {
		w.t.Fatal(err)
	}
	c := meta.FindStatusCondition(t.Status.Conditions, of)
	if c == nil || c.Status != metav1.ConditionTrue {
		return ""
	}
	return c.Reason + ": " + c.Message
}

func object(id string, policy v1alpha1.TenantDeletionPolicy, deleted bool) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": v1alpha1.GroupVersion,
		"kind":       v1alpha1.KindTenant,
		"spec":       map[string]any{"id": id, "deletionPolicy": string(policy)},
	}}
	u.SetName(id)
	u.SetUID(types.UID("uid-" + id))
	u.SetFinalizers([]string{tenant.Finalizer})
	u.SetCreationTimestamp(metav1.NewTime(time.Now().Add(-time.Hour)))
	if deleted {
		at := metav1.Now()
		u.SetDeletionTimestamp(&at)
	}
	return u
}

func (w *fixture) addObjects() {
	w.namespace("acme--web", "acme")
	w.namespace("acme--db", "acme")
	w.namespace("globex--shop", "globex")
	for _, id := range []string{"acme", "globex"} {
		q := &unstructured.Unstructured{
			Object: map[string]any{
				"apiVersion": v1alpha1.GroupVersion,
				"kind":       v1alpha1.KindTenantQuota,
				"spec":       map[string]any{"tenant": id},
			},
		}
		q.SetName(id)
		m := &unstructured.Unstructured{
			Object: map[string]any{
				"apiVersion": v1alpha1.GroupVersion,
				"kind":       v1alpha1.KindTenantMembers,
				"spec":       map[string]any{"id": id},
			},
		}
		m.SetName(id)
		b := &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: "member:" + id, Labels: map[string]string{tenant.OfTenantLabel: id}},
		}
		if err := errors.Join(w.dynamic.Tracker().Create(quotas, q, ""),
			w.dynamic.Tracker().Create(memberObjects, m, ""), w.kube.Tracker().Add(b)); err != nil {
			w.t.Fatal(err)
		}
	}
}

const afterDelete = "namespace globex--shop; binding member:globex; tenantquota globex; tenantmember globex; " +
	"tenant globex; retired acme acme-uid-acme ended=true [acme--db acme--web] []"

// TestDelete checks that the objects of the tenant, and no other objects, are deleted. This must
// be true even if the engine is killed at any of its writes and another engine continues.
func TestDelete(t *testing.T) {
	for kill, done := int64(0), false; !done; kill++ {
		synctest.Test(t, func(t *testing.T) {
			w := newFixture(t, object("acme", v1alpha1.TenantDeletionDelete, true),
				object("globex", v1alpha1.TenantDeletionDelete, false))
			w.kill.Store(kill)
			w.addObjects()
			w.start()
			begun := time.Now()
			for range 40 {
				time.Sleep(5 * time.Second)
				if w.dead.Load() {
					w.kill.Store(0)
					w.dead.Store(false)
					w.stop()
					w.start()
				}
				if !w.dead.Load() && w.condition("acme", v1alpha1.ConditionDeleting) == "gone" {
					break
				}
			}
			if took := time.Since(begun); took < 100*time.Second {
				t.Errorf("killed at write %d: the deletion took only %s, without a second check for namespaces", kill, took)
			}
			if got := w.objects(); got != afterDelete {
				t.Errorf("killed at write %d: %s", kill, got)
			}
			done = kill > w.writes.Load()
		})
		if kill > 100 {
			t.Fatal("the number of writes does not end")
		}
	}
}

// TestRaces checks that a namespace that is created during the deletion is deleted and recorded.
func TestRaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFixture(t, object("acme", v1alpha1.TenantDeletionDelete, true))
		w.namespace("acme--web", "acme")
		w.start()
		time.Sleep(60 * time.Second)
		if got := w.condition("acme", v1alpha1.ConditionDeleting); !strings.HasPrefix(got, "Settling: ") {
			t.Errorf("after a minute: %s", got)
		}
		w.namespace("raced", "acme")
		time.Sleep(90 * time.Second)
		if got := w.objects(); got != "tenant acme; retired acme acme-uid-acme ended=false [acme--web raced] []" {
			t.Errorf("after the race: %s", got)
		}
		time.Sleep(120 * time.Second)
		if got := w.objects(); got != "retired acme acme-uid-acme ended=true [acme--web raced] []" {
			t.Errorf("at the end: %s", got)
		}
	})
}

// TestOrphan checks that, with the policy Orphan, the namespaces remain, and that the
// RetiredTenant records the bindings that name the tenant.
func TestOrphan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFixture(t, object("acme", v1alpha1.TenantDeletionOrphan, true))
		w.addObjects()
		for i := range 30 {
			w.left = append(w.left, fmt.Sprintf("ClusterRoleBinding %d", i))
		}
		w.start()
		time.Sleep(time.Minute)
		if got := w.condition("acme", v1alpha1.ConditionDeleting); !strings.HasPrefix(got, "Retiring: ") {
			t.Errorf("after a minute, before every server must have observed the RetiredTenant: %s", got)
		}
		time.Sleep(time.Minute)
		got := w.objects()
		if !strings.HasPrefix(got, "namespace acme--db; namespace acme--web; namespace globex--shop; "+
			"binding member:globex; tenantquota globex; tenantmember globex; retired acme") ||
			!strings.Contains(got, "ClusterRoleBinding 19 and 10 more]") {
			t.Error(got)
		}
	})
}

// TestProtectedTenant checks that a tenant with the policy Protect is not deleted. If spec.id
// does not match the name of a deleted Tenant, nothing else is deleted. A Tenant without the
// finalizer gets the finalizer.
func TestProtectedTenant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		wrong := object("acme", v1alpha1.TenantDeletionDelete, true)
		wrong.SetName("other")
		w := newFixture(t, object("acme", "", true), wrong, object("plain", "", false))
		w.addObjects()
		plain, err := w.dynamic.Resource(tenantObjects).Get(t.Context(), "plain", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		plain.SetFinalizers(nil)
		if err := w.dynamic.Tracker().Update(tenantObjects, plain, ""); err != nil {
			t.Fatal(err)
		}
		w.start()
		time.Sleep(5 * time.Minute)
		if got := w.condition("acme", v1alpha1.ConditionDeletionHeld); !strings.HasPrefix(got, "Protected: ") {
			t.Errorf("held: %q", got)
		}
		if got := w.objects(); !strings.HasSuffix(got, "tenant acme; tenant plain") ||
			!strings.HasPrefix(got, "namespace acme--db; namespace acme--web") {
			t.Errorf("objects: %s", got)
		}
		if plain, err = w.dynamic.Resource(tenantObjects).Get(t.Context(), "plain", metav1.GetOptions{}); err != nil ||
			!slices.Equal(plain.GetFinalizers(), []string{tenant.Finalizer}) {
			t.Errorf("a Tenant without the finalizer now has %v, %v", plain.GetFinalizers(), err)
		}
	})
}

// TestDefinitionDeleted checks that no other objects are deleted if Tenants are deleted with
// their definition. The access of the tenants' callers remains.
func TestDefinitionDeleted(t *testing.T) {
	for name, end := range map[string]func(*fixture) error{
		"deleted": func(w *fixture) error { return w.dynamic.Tracker().Delete(definitions, "", "tenants.kubetenant.dev") },
		"terminating": func(w *fixture) error {
			u, err := w.dynamic.Resource(definitions).Get(w.t.Context(), "tenants.kubetenant.dev", metav1.GetOptions{})
			if err != nil {
				return err
			}
			at := metav1.Now()
			u.SetDeletionTimestamp(&at)
			return w.dynamic.Tracker().Update(definitions, u, "")
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newFixture(t, object("acme", v1alpha1.TenantDeletionDelete, false))
				w.addObjects()
				w.start()
				time.Sleep(time.Second)
				if err := end(w); err != nil {
					t.Fatal(err)
				}
				if err := w.dynamic.Tracker().Update(tenantObjects,
					object("acme", v1alpha1.TenantDeletionDelete, true), ""); err != nil {
					t.Fatal(err)
				}
				time.Sleep(10 * time.Minute)
				if got := w.objects(); got != "namespace acme--db; namespace acme--web; namespace globex--shop; "+
					"binding member:acme; binding member:globex; tenantquota acme; tenantquota globex; "+
					"tenantmember acme; tenantmember globex" {
					t.Errorf("objects: %s", got)
				}
				if got := w.store.Access(tenanttest.ID(t, "acme")); got != authz.AccessOpen {
					t.Errorf("the access of its callers is %d", got)
				}
			})
		})
	}
}

// TestStuck checks that the condition names a stuck namespace, and that the access of the tenant's
// callers is ReadOnly.
func TestStuck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFixture(t, object("acme", v1alpha1.TenantDeletionDelete, true))
		w.addObjects()
		w.stuck.Store(true)
		w.start()
		time.Sleep(9 * time.Minute)
		if got := w.condition("acme", v1alpha1.ConditionDeleting); got !=
			"Namespaces: namespaces that are not deleted yet: 2" {
			t.Errorf("after nine minutes: %q", got)
		}
		time.Sleep(2 * time.Minute)
		if got := w.condition("acme", v1alpha1.ConditionDeleting); !strings.HasPrefix(got,
			"Stuck: namespaces that are not deleted yet: 2 (acme--db: its deletion has") {
			t.Errorf("after eleven minutes: %q", got)
		}
		writes := len(w.kube.Actions())
		time.Sleep(10 * time.Minute)
		if more := len(w.kube.Actions()) - writes; more > 100 { // checks every two seconds would cause several hundred
			t.Errorf("%d requests in ten minutes while the namespaces are stuck", more)
		}
		if got := w.store.Access(tenanttest.ID(t, "acme")); got != authz.AccessReadOnly {
			t.Errorf("the access of its callers is %d", got)
		}
	})
}

// TestStuckDeletionsDoNotBlockOthers checks that stuck deletions delay other deletions for at most
// an hour.
func TestStuckDeletionsDoNotBlockOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var all []runtime.Object
		for i := range 10 {
			all = append(all, object(fmt.Sprintf("t%02d", i), v1alpha1.TenantDeletionDelete, true))
		}
		w := newFixture(t, all...)
		w.stuck.Store(true)
		for i := range 10 {
			w.namespace(fmt.Sprintf("t%02d--web", i), fmt.Sprintf("t%02d", i))
		}
		w.start()
		time.Sleep(2 * time.Hour)
		if err := w.dynamic.Tracker().Create(tenantObjects,
			object("acme", v1alpha1.TenantDeletionOrphan, true), ""); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Minute)
		if got := w.condition("acme", v1alpha1.ConditionDeleting); got != "gone" {
			t.Errorf("after ten stuck deletions: %s, %s", got, w.condition("acme", v1alpha1.ConditionDeletionHeld))
		}
	})
}

// TestLeftovers checks that a deleted Tenant that is older than its definition is removed without
// deleting the tenant. It also checks that a tenant is not retired while its Tenant has a
// finalizer of another program.
func TestLeftovers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFixture(t, object("acme", v1alpha1.TenantDeletionDelete, true))
		w.addObjects()
		u, err := w.dynamic.Resource(definitions).Get(t.Context(), "tenants.kubetenant.dev", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		u.SetCreationTimestamp(metav1.Now())
		if err := w.dynamic.Tracker().Update(definitions, u, ""); err != nil {
			t.Fatal(err)
		}
		w.start()
		time.Sleep(5 * time.Minute)
		if got := w.objects(); !strings.HasPrefix(got, "namespace acme--db; namespace acme--web;") ||
			strings.Contains(got, "tenant acme") {
			t.Errorf("objects: %s", got)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		held := object("acme", v1alpha1.TenantDeletionDelete, true)
		held.SetFinalizers([]string{tenant.Finalizer, "example.com/theirs"})
		w := newFixture(t, held)
		w.start()
		time.Sleep(time.Hour)
		if got := w.objects(); !strings.Contains(got, "ended=false") {
			t.Errorf("finalizer of another program: %s", got)
		}
		if got := w.condition("acme", v1alpha1.ConditionDeleting); !strings.Contains(got, "example.com/theirs") {
			t.Errorf("the condition is %s", got)
		}
	})
}

// TestDeletionRateLimit checks that only ten deletions start in an hour, and that further
// deletions start later.
func TestDeletionRateLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var all []runtime.Object
		for i := range 25 {
			all = append(all, object(fmt.Sprintf("t%02d", i), v1alpha1.TenantDeletionOrphan, true))
		}
		w := newFixture(t, all...)
		w.start()
		left := func() (n, held int) {
			for i := range 25 {
				switch got := w.condition(fmt.Sprintf("t%02d", i), v1alpha1.ConditionDeletionHeld); {
				case strings.HasPrefix(got, "TooMany: "):
					held++
				case got == "gone":
					n++
				}
			}
			return n, held
		}
		for hour, want := range []int{10, 20, 25} {
			time.Sleep(30 * time.Minute)
			w.stop() // a new leader must find the started deletions in the cluster
			w.start()
			time.Sleep(10 * time.Minute)
			if gone, held := left(); gone != want || held != 25-want {
				t.Errorf("hour %d: %d are deleted, %d are held; want %d", hour, gone, held, want)
			}
			time.Sleep(22 * time.Minute)
		}
	})
}

// TestDelay checks that nothing is deleted until spec.deletionDelay is over. If the deletion is
// canceled before, only the Tenant object is deleted, and its ID is not reserved.
func TestDelay(t *testing.T) {
	delayed := func() *unstructured.Unstructured {
		u := object("acme", v1alpha1.TenantDeletionDelete, true)
		u.Object["spec"].(map[string]any)["deletionDelay"] = "1h"
		return u
	}
	takeBack := func(w *fixture, value string) {
		w.t.Helper()
		u, err := w.dynamic.Resource(tenantObjects).Get(w.t.Context(), "acme", metav1.GetOptions{})
		if err == nil {
			u.SetAnnotations(map[string]string{tenant.TakeBackAnnotation: value})
			_, err = w.dynamic.Resource(tenantObjects).Update(w.t.Context(), u, metav1.UpdateOptions{})
		}
		if err != nil {
			w.t.Fatal(err)
		}
		time.Sleep(time.Second)
		synctest.Wait()
	}
	const all = "namespace acme--db; namespace acme--web; namespace globex--shop; binding member:acme; " +
		"binding member:globex; tenantquota acme; tenantquota globex; tenantmember acme; tenantmember globex"
	const closed = "Closed"
	for _, takenBack := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			tenant := delayed()
			tenant.Object["spec"].(map[string]any)["suspension"] = closed
			w := newFixture(t, tenant)
			w.addObjects()
			w.start()
			time.Sleep(50 * time.Minute)
			synctest.Wait()
			if got := w.objects(); got != all+"; tenant acme" {
				t.Errorf("before the delay is over: %s", got)
			}
			if got := w.condition("acme", v1alpha1.ConditionReady); got != "" {
				t.Errorf("the Tenant is ready: %s", got)
			}
			if got := w.condition("acme", v1alpha1.ConditionDeletionHeld); !strings.HasPrefix(got,
				"Delayed: nothing is deleted before 2000-01-01T01:00:00Z") {
				t.Errorf("the condition is %s", got)
			}
			takeBack(w, "yes") // not a valid value
			if takenBack {
				takeBack(w, "true")
			}
			time.Sleep(5 * time.Minute)
			synctest.Wait()
			want := map[bool]string{
				false: all + "; tenant acme",
				true:  all + "; taken back acme acme-uid-acme Closed",
			}[takenBack]
			if got := w.objects(); got != want {
				t.Errorf("canceled %t: %s", takenBack, got)
			}
			time.Sleep(time.Hour)
			synctest.Wait()
			if got := w.objects(); strings.Contains(got, "retired acme") == takenBack ||
				strings.Contains(got, "acme--web; ") && !takenBack {
				t.Errorf("an hour later, canceled %t: %s", takenBack, got)
			}
		})
	}
	synctest.Test(t, func(t *testing.T) {
		w := newFixture(t, delayed())
		w.addObjects()
		w.stuck.Store(true)
		w.start()
		time.Sleep(61 * time.Minute)
		synctest.Wait()
		takeBack(w, "true")
		if got := w.objects(); !strings.Contains(got, "tenant acme") || !strings.Contains(got, "retired acme") {
			t.Errorf("a deletion that had started was canceled: %s", got)
		}
	})
}

// TestEvents checks that there is one event for each step of a deletion and for each reason to
// wait.
func TestEvents(t *testing.T) {
	for policy, want := range map[v1alpha1.TenantDeletionPolicy]string{
		v1alpha1.TenantDeletionDelete:  "Normal Namespaces, Normal Settling, Normal Retiring",
		v1alpha1.TenantDeletionOrphan:  "Normal Retiring",
		v1alpha1.TenantDeletionProtect: "Warning Protected",
	} {
		t.Run(string(policy), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newFixture(t, object("acme", policy, true))
				w.addObjects()
				w.start()
				time.Sleep(10 * time.Minute)
				synctest.Wait()
				list, err := w.kube.CoreV1().Events(metav1.NamespaceDefault).List(t.Context(), metav1.ListOptions{})
				if err != nil {
					t.Fatal(err)
				}
				slices.SortFunc(list.Items, func(a, b corev1.Event) int { return a.FirstTimestamp.Compare(b.FirstTimestamp.Time) })
				var told []string
				for _, e := range list.Items {
					if e.InvolvedObject.Name != "acme" || e.Count != 1 {
						t.Errorf("%+v", e)
					}
					told = append(told, e.Type+" "+e.Reason)
				}
				if got := strings.Join(told, ", "); got != want {
					t.Errorf("events %s, want %s", got, want)
				}
			})
		})
	}
}

// TestReservedNamespaces checks that a system namespace with the label of a tenant is not deleted
// with the tenant, and that the condition names the namespace.
func TestReservedNamespaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFixture(t, object("acme", v1alpha1.TenantDeletionDelete, true))
		w.addObjects()
		system := &corev1.Namespace{
			ObjectMeta: metav1.ObjectMeta{Name: "kube-system", UID: "k", Labels: map[string]string{tenant.Label: "acme"}},
		}
		if err := w.kube.Tracker().Add(system); err != nil {
			t.Fatal(err)
		}
		w.start()
		time.Sleep(5 * time.Minute)
		if _, err := w.kube.CoreV1().Namespaces().Get(t.Context(), "kube-system", metav1.GetOptions{}); err != nil {
			t.Error(err)
		}
		if got := w.condition("acme", v1alpha1.ConditionDeleting); got != "Stuck: namespaces that are not deleted yet: 1 "+
			"(kube-system: this is a system namespace, run kubectl tenant release kube-system)" {
			t.Errorf("Deleting: %q", got)
		}
	})
}
