// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package provision_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	rbacclient "k8s.io/client-go/kubernetes/typed/rbac/v1"
	clienttesting "k8s.io/client-go/testing"

	"github.com/kubetenant/kubetenant/plugins/namespace"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

// lagging is a client whose lists of RoleBindings take 100 ms, like consistent reads from the
// watch cache.
type (
	lagging struct{ kubernetes.Interface }
	lagRbac struct{ rbacclient.RbacV1Interface }
	lagRB   struct {
		rbacclient.RoleBindingInterface
	}
)

func (s lagging) RbacV1() rbacclient.RbacV1Interface { return lagRbac{s.Interface.RbacV1()} }
func (s lagRbac) RoleBindings(n string) rbacclient.RoleBindingInterface {
	return lagRB{s.RbacV1Interface.RoleBindings(n)}
}

func (s lagRB) List(ctx context.Context, o metav1.ListOptions) (*rbacv1.RoleBindingList, error) {
	time.Sleep(100 * time.Millisecond)
	return s.RoleBindingInterface.List(ctx, o)
}

// TestTenantCannotDelayLabels checks that a tenant that writes its Namespace continuously cannot
// delay a stricter Pod Security level.
func TestTenantCannotDelayLabels(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFixture(t)
		w.stop()
		w.client = lagging{w.kube}
		prepend(&w.kube.Fake, "patch", "namespaces", func(a clienttesting.Action) (bool, runtime.Object, error) {
			var p struct{ Metadata metav1.ObjectMeta }
			patch := a.(clienttesting.PatchAction)
			if err := json.Unmarshal(patch.GetPatch(), &p); err != nil {
				return true, nil, err
			}
			stored, err := w.kube.Tracker().Get(a.GetResource(), "", patch.GetName())
			if err != nil {
				return true, nil, err
			}
			version := stored.(*corev1.Namespace).ResourceVersion
			if p.Metadata.ResourceVersion != "" && p.Metadata.ResourceVersion != version {
				return true, nil, apierrors.NewConflict(corev1.Resource("namespaces"), "x", errors.New("changed"))
			}
			return false, nil, nil
		})
		w.start()
		w.namespace("acme--web", "acme", nil)
		w.tenant(func(s *v1alpha1.TenantSpec) {
			s.Admins = []v1alpha1.Subject{peter}
			s.Namespaces.PodSecurity = "privileged"
		})
		ctx, cancel := context.WithCancel(t.Context())
		var writing sync.WaitGroup
		defer writing.Wait()
		defer cancel()
		writing.Go(func() {
			for i := 1; ctx.Err() == nil; i++ {
				ns, err := w.kube.CoreV1().Namespaces().Get(ctx, "acme--web", metav1.GetOptions{})
				if err == nil {
					ns.Annotations["example"], ns.ResourceVersion = fmt.Sprint(i), fmt.Sprint(1000+i)
					_, _ = w.kube.CoreV1().Namespaces().Update(ctx, ns, metav1.UpdateOptions{})
				}
				time.Sleep(50 * time.Millisecond)
			}
		})
		time.Sleep(time.Second)
		w.tenant(func(s *v1alpha1.TenantSpec) { s.Namespaces.PodSecurity = "restricted" })
		time.Sleep(5 * time.Second)
		if got := w.labels()[namespace.EnforceLabel]; got != "restricted" {
			t.Errorf("the level is %s: %s", got, w.status())
		}
	})
}
