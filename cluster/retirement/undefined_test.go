// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package retirement_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

// TestDeletionWaitsForDefinition checks that a deletion waits for the definition of RetiredTenants,
// reports this, and deletes nothing. It continues after the definition is installed.
func TestDeletionWaitsForDefinition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFixture(t, object("acme", v1alpha1.TenantDeletionDelete, true))
		w.namespace("acme--web", "acme")
		w.missing.Store(true)
		notServed := func(clienttesting.Action) (bool, runtime.Object, error) {
			if w.missing.Load() {
				return true, nil, apierrors.NewNotFound(retiredOnes.GroupResource(), "")
			}
			return false, nil, nil
		}
		w.dynamic.PrependReactor("get", retiredOnes.Resource, notServed)
		w.dynamic.PrependReactor("create", retiredOnes.Resource, notServed)
		w.start()
		time.Sleep(10 * time.Minute)
		got := w.condition("acme", v1alpha1.ConditionDeleting)
		if !strings.HasPrefix(got, v1alpha1.ReasonDefinition+": ") || !strings.Contains(got, "retiredtenants is missing") {
			t.Errorf("condition Deleting: %q", got)
		}
		if has := w.objects(); !strings.Contains(has, "namespace acme--web") {
			t.Errorf("the namespace was deleted before the name was reserved: %s", has)
		}
		if n := w.writes.Load(); n > 5 {
			t.Errorf("%d writes while it waits", n)
		}
		w.missing.Store(false)
		time.Sleep(time.Minute)
		if got := w.condition("acme", v1alpha1.ConditionDeleting); strings.HasPrefix(got, v1alpha1.ReasonDefinition) {
			t.Errorf("a minute after the definition was installed: %q", got)
		}
		time.Sleep(5 * time.Minute)
		if got := w.condition("acme", v1alpha1.ConditionDeleting); got != "gone" {
			t.Errorf("the deletion did not continue: %q", got)
		}
	})
}
