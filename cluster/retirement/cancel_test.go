// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package retirement_test

import (
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubetenant/kubetenant/authz"
	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/tenanttest"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

// TestWithdrawnCancellation checks that a tenant is deleted, and its ID reserved, if the
// annotation that cancels the deletion is removed before the Tenant is removed.
func TestWithdrawnCancellation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := object("acme", v1alpha1.TenantDeletionDelete, true)
		o.Object["spec"].(map[string]any)["deletionDelay"] = "1h"
		w := newFixture(t, o)
		w.addObjects()
		w.start()
		time.Sleep(50 * time.Minute)
		synctest.Wait()
		annotate := func(annotations map[string]string) {
			t.Helper()
			u, err := w.dynamic.Resource(tenantObjects).Get(t.Context(), "acme", metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			u.SetAnnotations(annotations)
			if _, err := w.dynamic.Resource(tenantObjects).Update(t.Context(), u, metav1.UpdateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		annotate(map[string]string{tenant.TakeBackAnnotation: "true"})
		time.Sleep(time.Second)
		synctest.Wait()
		annotate(nil)
		time.Sleep(2 * time.Hour)
		synctest.Wait()
		acme := tenanttest.ID(t, "acme")
		if lineage := w.store.Lineage(acme); len(lineage.Retired) != 1 {
			t.Errorf("the ID is not reserved: %+v, there is %v", lineage, w.objects())
		}
		if access := w.store.Access(acme); access != authz.AccessRetired {
			t.Errorf("callers of the deleted tenant have access %v", access)
		}
	})
}
