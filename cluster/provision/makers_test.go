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

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

// makers returns the ClusterRoleBindings there are: name, role, scope: subjects.
func (w *world) makers() string {
	w.t.Helper()
	list, err := w.kube.RbacV1().ClusterRoleBindings().List(w.t.Context(), metav1.ListOptions{})
	w.must(err)
	var all []string
	for _, b := range list.Items {
		text := fmt.Sprintf("%s %s %s:", b.Name, b.RoleRef.Name, b.Annotations[tenant.ScopeAnnotation])
		for _, s := range b.Subjects {
			text += " " + s.Name
		}
		all = append(all, text)
	}
	slices.Sort(all)
	return strings.Join(all, "; ")
}

func (w *world) expectMakers(what, want string) {
	w.t.Helper()
	if got := w.makers(); got != want {
		w.t.Errorf("%s: %q, want %q", what, got, want)
	}
}

func admins(all ...rbacv1.Subject) func(*v1alpha1.TenantSpec) {
	return func(s *v1alpha1.TenantSpec) { s.Admins = all }
}

const makersOfAcme = "kubetenant:admins:acme kubetenant:tenant-admin Callers:acme:"

// TestMakers: a tenant's admins may make its namespaces, whether or not it has one, and nobody else by that; what others made stays.
func TestMakers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		_, err := w.kube.RbacV1().ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "z"}}, metav1.CreateOptions{})
		w.must(err)
		w.tenant(none)
		w.expectMakers("without admins", "z  :")
		w.tenant(admins(peter, mary))
		w.expectMakers("with two", makersOfAcme+" peter mary; z  :")
		if role, err := w.kube.RbacV1().ClusterRoles().Get(t.Context(), v1alpha1.NamespacesRole, metav1.GetOptions{}); err != nil || len(role.Rules) != 2 {
			t.Errorf("the role: %v, %v", role, err)
		}
		w.tenant(admins(mary))
		w.expectMakers("with one", makersOfAcme+" mary; z  :")
		w.tenant(admins(rbacv1.Subject{Kind: "Group", Name: "system:masters"}, peter))
		w.expectMakers("with one that is refused", makersOfAcme+" peter; z  :")
		w.tenant(none)
		w.tenant(admins())
		w.expectMakers("without admins again", "z  :")
		w.tenant(admins(mary))
		w.must(w.dynamic.Resource(resource).Delete(t.Context(), "acme", metav1.DeleteOptions{}))
		w.settle()
		w.stop()
		w.start() // whoever was not told finds it
		w.settle()
		w.expectMakers("without a Tenant", "z  :")
	})
}

// TestMakersOfLeaders: a new leader writes nothing where nothing has changed, and what changed meanwhile.
func TestMakersOfLeaders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.tenant(admins(peter, mary))
		w.stop()
		w.writes()
		w.start()
		w.settle()
		if n := w.writes(); n > 0 {
			t.Errorf("%d writes at a restart", n)
		}
		w.stop()
		w.tenant(admins(mary))
		w.start()
		w.settle()
		w.expectMakers("a member was removed while there was no leader", makersOfAcme+" mary")
	})
}

// TestMakersDrift: what was changed or deleted past admission comes back.
func TestMakersDrift(t *testing.T) {
	crbs := rbacv1.SchemeGroupVersion.WithResource("clusterrolebindings")
	changes := map[string]func(*world, *rbacv1.ClusterRoleBinding) error{
		"deleted": func(w *world, b *rbacv1.ClusterRoleBinding) error { return w.kube.Tracker().Delete(crbs, "", b.Name) },
	}
	for name, change := range map[string]func(*rbacv1.ClusterRoleBinding){
		"another subject": func(b *rbacv1.ClusterRoleBinding) {
			b.Subjects = append(b.Subjects, rbacv1.Subject{Kind: "User", Name: "x"})
		},
		"another role":  func(b *rbacv1.ClusterRoleBinding) { b.RoleRef.Name = "cluster-admin" },
		"another scope": func(b *rbacv1.ClusterRoleBinding) { b.Annotations[tenant.ScopeAnnotation] = "globex" },
		"no scope":      func(b *rbacv1.ClusterRoleBinding) { b.Annotations = nil },
		"an end":        func(b *rbacv1.ClusterRoleBinding) { b.Annotations[tenant.ExpiresAnnotation] = "2020-01-01T00:00:00Z" },
		"a finalizer":   func(b *rbacv1.ClusterRoleBinding) { b.Finalizers = []string{"x/y"} },
	} {
		changes[name] = func(w *world, b *rbacv1.ClusterRoleBinding) error {
			change(b)
			return w.kube.Tracker().Update(crbs, b, "")
		}
	}
	for name, change := range changes {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			w.namespace("acme--web", "acme", nil)
			w.tenant(admins(peter))
			b, err := w.kube.RbacV1().ClusterRoleBindings().Get(t.Context(), "kubetenant:admins:acme", metav1.GetOptions{})
			w.must(err)
			w.must(change(w, b))
			time.Sleep(11 * time.Minute)
			w.settle()
			w.expectMakers(name, makersOfAcme+" peter")
			if b, err := w.kube.RbacV1().ClusterRoleBindings().Get(t.Context(), "kubetenant:admins:acme", metav1.GetOptions{}); err != nil || len(b.Finalizers) > 0 || len(b.Annotations) != 1 {
				t.Errorf("%s: %v, %v", name, b, err)
			}
		})
	}
}

// TestMakersFail: what fails is said, and tried again; what somebody else has made under the name is not touched.
func TestMakersFail(t *testing.T) {
	for _, resource := range []string{"clusterrolebindings", "clusterroles"} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			var failing atomic.Bool
			failing.Store(true)
			w.kube.PrependReactor("create", resource, func(clienttesting.Action) (bool, runtime.Object, error) {
				return failing.Load(), nil, errors.New("away")
			})
			w.tenant(admins(peter))
			if says := w.says(); !strings.HasPrefix(says, v1alpha1.ReasonFailed+" ") {
				t.Errorf("it says %s", says)
			}
			failing.Store(false)
			time.Sleep(2 * time.Minute)
			w.settle()
			w.expectMakers("at last", makersOfAcme+" peter")
			if says := w.says(); !strings.HasPrefix(says, v1alpha1.ReasonPrepared+" ") {
				t.Errorf("at last it says %s", says)
			}
		})
	}
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		_, err := w.kube.RbacV1().ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "kubetenant:admins:acme"}}, metav1.CreateOptions{})
		w.must(err)
		w.tenant(admins(peter))
		w.expectMakers("somebody's", "kubetenant:admins:acme  :")
		if says := w.says(); !strings.HasPrefix(says, v1alpha1.ReasonFailed+" ") {
			t.Errorf("it says %s", says)
		}
	})
}

// TestMakersWithoutLimits: there is none where it would let others in, or will from now on.
func TestMakersWithoutLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.free.Store(true)
		w.tenant(admins(peter))
		w.expectMakers("limits do not hold", "")
		if says := w.says(); !strings.HasPrefix(says, v1alpha1.ReasonPrepared+" ") {
			t.Errorf("it says %s", says)
		}
		w.free.Store(false)
		time.Sleep(10 * time.Second)
		w.settle()
		w.expectMakers("they do now", makersOfAcme+" peter")
		w.free.Store(true)
		time.Sleep(10 * time.Second)
		w.settle()
		w.expectMakers("and no more", "")
		w.free.Store(false)
		time.Sleep(10 * time.Second)
		w.settle()
		w.stop()
		w.webhook = true
		w.start()
		w.settle()
		w.expectMakers("of a server that leaves RBAC to another", "")
		w.tenant(admins(mary))
		w.expectMakers("and none is made", "")
	})
}

// TestMakersUnread: who was removed while there was no leader loses it although the first look of the next one fails.
func TestMakersUnread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.tenant(admins(peter, mary))
		w.stop()
		w.tenant(admins())
		var failing atomic.Bool
		failing.Store(true)
		w.kube.PrependReactor("list", "*", func(a clienttesting.Action) (bool, runtime.Object, error) {
			return failing.Load() && strings.HasSuffix(a.GetResource().Resource, "bindings"), nil, errors.New("away")
		})
		w.start()
		w.settle()
		failing.Store(false)
		w.expectMakers("a look that fails", "")
	})
}

// TestDriftWithoutNamespaces: what a Tenant gives once comes back, whether or not the tenant has a namespace.
func TestDriftWithoutNamespaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.tenant(func(s *v1alpha1.TenantSpec) {
			admins(peter)(s)
			pods(5)(s)
		})
		w.must(w.kube.Tracker().Delete(rbacv1.SchemeGroupVersion.WithResource("clusterrolebindings"), "", "kubetenant:admins:acme"))
		w.must(w.dynamic.Tracker().Delete(v1alpha1.Resource(v1alpha1.ResourceTenantQuotas), "", "acme"))
		time.Sleep(11 * time.Minute)
		w.settle()
		w.expectMakers("healed", makersOfAcme+" peter")
		if has := w.quotas(); !strings.Contains(has, "pods:5") {
			t.Errorf("healed: %s", has)
		}
	})
}
