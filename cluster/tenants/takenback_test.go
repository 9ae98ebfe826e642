// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package tenants_test

import (
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kubetenant/kubetenant/authz"
	"github.com/kubetenant/kubetenant/tenant/tenanttest"
)

// takenBack returns a RetiredTenant that records a canceled deletion.
func takenBack(id, uid, access string, age time.Duration) *unstructured.Unstructured {
	u := retired(id, uid, time.Time{})
	u.Object["spec"].(map[string]any)["takenBack"] = access
	u.SetCreationTimestamp(metav1.NewTime(time.Now().Add(-age)))
	return u
}

// TestCanceledDeletion checks that a record of a canceled deletion determines the access of a
// tenant without a Tenant, and does not reserve the ID. The newest record applies, or the
// strictest of equally new records.
func TestCanceledDeletion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kind := definition()
		kind.SetName("retiredtenants.kubetenant.dev")
		w := newFixture(t, definition(), kind, object("live", "live", nil),
			takenBack("live", "u0", "Closed", 0),
			takenBack("closed", "u1", "Closed", 0),
			takenBack("reads", "u2", "ReadOnly", 0),
			takenBack("open", "u3", "Open", 0),
			takenBack("later", "u4", "Sealed", 0),
			takenBack("newest", "u5", "Closed", time.Hour),
			takenBack("newest", "u6", "Open", 0),
			takenBack("strictest", "u7", "ReadOnly", 0),
			takenBack("strictest", "u8", "Closed", 0),
			takenBack("over", "u9", "Open", 0),
			retired("over", "u10", time.Now()))
		w.run()
		for name, want := range map[string]authz.Access{
			"closed":    authz.AccessClosed,
			"reads":     authz.AccessReadOnly,
			"open":      authz.AccessOpen,
			"later":     authz.AccessClosed,
			"newest":    authz.AccessOpen,
			"strictest": authz.AccessClosed,
			"nobody":    authz.AccessOpen,
		} {
			id := tenanttest.ID(t, name)
			if got := w.store.AccessWithoutTenant(id); got != want {
				t.Errorf("WithoutTenant(%s) = %v, want %v", name, got, want)
			}
			w.expect("without a Tenant", name, authz.AccessNone)
			if l := w.store.Lineage(id); len(l.Retired) > 0 || l.HasEnded() {
				t.Errorf("the lineage of %s is %+v", name, l)
			}
			if is, known := w.store.Tenant(id); is != nil || !known {
				t.Errorf("Tenant(%s) = %v, %t", name, is, known)
			}
		}
		w.expect("with a Tenant", "live", authz.AccessOpen)
		w.expect("retired", "over", authz.AccessRetired)
		if l := w.store.Lineage(tenanttest.ID(t, "over")); len(l.Retired) != 1 || l.Retired[0].UID != "u10" {
			t.Errorf("the lineage of a retired tenant is %+v", l)
		}
		if err := w.client.Resource(retiredOnes).Delete(t.Context(), "closed-u1", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if got := w.store.AccessWithoutTenant(tenanttest.ID(t, "closed")); got != authz.AccessOpen {
			t.Errorf("without the record: %v", got)
		}
	})
}
