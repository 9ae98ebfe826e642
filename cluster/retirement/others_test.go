// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package retirement_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clienttesting "k8s.io/client-go/testing"

	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

// heldFinalizer is a finalizer of another program.
const heldFinalizer = "example.com/mine"

// keepFinalizers returns a reaction that does not remove a deleted object until it has no
// finalizers, as the server does.
func keepFinalizers(tracker clienttesting.ObjectTracker) clienttesting.ReactionFunc {
	return func(a clienttesting.Action) (bool, runtime.Object, error) {
		resource, name := a.GetResource(), a.(clienttesting.DeleteAction).GetName()
		obj, err := tracker.Get(resource, "", name)
		if err != nil {
			return true, nil, err
		}
		m := obj.DeepCopyObject().(interface {
			metav1.Object
			runtime.Object
		})
		if len(m.GetFinalizers()) == 0 {
			return false, nil, nil
		}
		at := metav1.Now()
		m.SetDeletionTimestamp(&at)
		return true, nil, tracker.Update(resource, m, "")
	}
}

// hold sets the finalizers of a cluster-scoped object of acme. An object that is being deleted is
// removed if it has no finalizers.
func (w *fixture) hold(resource schema.GroupVersionResource, name string, finalizers ...string) {
	w.t.Helper()
	tracker := w.dynamic.Tracker()
	if resource == bindings {
		tracker = w.kube.Tracker()
	}
	obj, err := tracker.Get(resource, "", name)
	if err != nil {
		w.t.Fatal(err)
	}
	m := obj.DeepCopyObject().(interface {
		metav1.Object
		runtime.Object
	})
	m.SetFinalizers(finalizers)
	if err := tracker.Update(resource, m, ""); err != nil {
		w.t.Fatal(err)
	}
	if len(finalizers) == 0 && m.GetDeletionTimestamp() != nil {
		if err := tracker.Delete(resource, "", name); err != nil {
			w.t.Fatal(err)
		}
	}
}

var bindings = rbacv1.SchemeGroupVersion.WithResource("clusterrolebindings")

// TestHeldObjects checks that a tenant is not retired while one of its deleted objects still
// exists. The condition names the object and its finalizers.
func TestHeldObjects(t *testing.T) {
	held := map[string]struct {
		resource schema.GroupVersionResource
		name     string
	}{
		"TenantMembers acme":             {memberObjects, "acme"},
		"TenantQuota acme":               {quotas, "acme"},
		"ClusterRoleBinding member:acme": {bindings, "member:acme"},
	}
	for _, policy := range []v1alpha1.TenantDeletionPolicy{v1alpha1.TenantDeletionDelete, v1alpha1.TenantDeletionOrphan} {
		for name, c := range held {
			t.Run(name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					w := newFixture(t, object("acme", policy, true))
					w.addObjects()
					w.hold(c.resource, c.name, heldFinalizer, "example.com/too")
					w.dynamic.PrependReactor("delete", "tenantmembers", keepFinalizers(w.dynamic.Tracker()))
					w.dynamic.PrependReactor("delete", "tenantquotas", keepFinalizers(w.dynamic.Tracker()))
					w.kube.PrependReactor("delete", "clusterrolebindings", keepFinalizers(w.kube.Tracker()))
					w.start()
					time.Sleep(10 * time.Minute)
					want := "Stuck: objects that are not deleted yet: 1 (" + name + ", finalizers: " + heldFinalizer +
						", example.com/too)"
					if got := w.condition("acme", v1alpha1.ConditionDeleting); got != want {
						t.Errorf("%s, %s: %q, want %q", name, policy, got, want)
					}
					if got := w.objects(); !strings.Contains(got, "retired acme acme-uid-acme ended=false") {
						t.Errorf("%s, %s: %s", name, policy, got)
					}
					writes := w.writes.Load()
					time.Sleep(10 * time.Minute)
					if more := w.writes.Load() - writes; more > 0 {
						t.Errorf("%s, %s: %d writes while nothing changes", name, policy, more)
					}
					w.hold(c.resource, c.name)
					time.Sleep(2 * time.Minute)
					got := strings.Split(w.objects(), "; ")
					if !slices.ContainsFunc(got, func(s string) bool {
						return strings.HasPrefix(s, "retired acme acme-uid-acme ended=true")
					}) || slices.Contains(got, "tenant acme") {
						t.Errorf("%s, %s, released: %s", name, policy, got)
					}
				})
			})
		}
	}
}

// TestUsageIsDeleted checks that the TenantUsage of a deleted tenant is deleted, and that a
// failure does not prevent the deletion of the tenant.
func TestUsageIsDeleted(t *testing.T) {
	usages := v1alpha1.SchemeGroupVersion.WithResource(v1alpha1.ResourceTenantUsages)
	for name, err := range map[string]error{"deleted": nil, "not allowed": errors.New("forbidden")} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newFixture(t, object("acme", v1alpha1.TenantDeletionOrphan, true))
				for _, of := range []string{"acme", "other"} {
					u := &unstructured.Unstructured{Object: map[string]any{"tenant": of, "uid": "x"}}
					u.SetAPIVersion(v1alpha1.GroupVersion)
					u.SetKind(v1alpha1.KindTenantUsage)
					u.SetName(of)
					u.SetUID(types.UID("uid-of-" + of))
					if err := w.dynamic.Tracker().Create(usages, u, ""); err != nil {
						t.Fatal(err)
					}
				}
				if err != nil {
					w.dynamic.PrependReactor("delete", v1alpha1.ResourceTenantUsages,
						func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, err })
				}
				w.start()
				time.Sleep(10 * time.Minute)
				_, got := w.dynamic.Tracker().Get(usages, "", "acme")
				if apierrors.IsNotFound(got) != (err == nil) {
					t.Errorf("the TenantUsage: %v", got)
				}
				if _, err := w.dynamic.Tracker().Get(usages, "", "other"); err != nil {
					t.Errorf("the TenantUsage of another tenant: %v", err)
				}
				if got := w.objects(); strings.Contains(got, "ended=false") {
					t.Errorf("the tenant was not deleted: %s", got)
				}
			})
		})
	}
}
