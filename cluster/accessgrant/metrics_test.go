// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package accessgrant_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/testutil"

	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

// TestGrantsByState checks that the metric includes each grant in its state, also after a grant
// expires, changes or is deleted.
func TestGrantsByState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		named := func(name string, change func(*v1alpha1.AccessGrant)) *v1alpha1.AccessGrant {
			g := granted()
			g.Name = name
			change(g)
			return g
		}
		expires := func(after time.Duration) func(*v1alpha1.AccessGrant) {
			return func(g *v1alpha1.AccessGrant) { g.Spec.Expires = &metav1.Time{Time: time.Now().Add(after)} }
		}
		refused := func(g *v1alpha1.AccessGrant) {
			meta.SetStatusCondition(&g.Status.Conditions,
				metav1.Condition{Type: v1alpha1.ConditionAccepted, Status: metav1.ConditionFalse, Reason: "GrantorMayNot"})
		}
		client := clientOf(t,
			named("g", func(*v1alpha1.AccessGrant) {}),
			named("expires", expires(time.Hour)),
			named("expired", expires(-time.Hour)),
			named("no-grantor", func(g *v1alpha1.AccessGrant) { g.Spec.Grantor = nil }),
			named("no-rules", func(g *v1alpha1.AccessGrant) { g.Spec.To = nil }),
			named("deleting", func(g *v1alpha1.AccessGrant) {
				g.DeletionTimestamp, g.Finalizers = &metav1.Time{Time: time.Now()}, []string{"example.com/x"}
			}),
		)
		r := run(t, client)
		registry := metrics.NewKubeRegistry()
		for _, m := range r.Metrics() {
			registry.MustRegister(m)
		}
		states := []string{"Deleting", "Expired", "Invalid", "Refused", "Valid"}
		check := func(when string, want ...int) { // in the order of the states
			t.Helper()
			text := strings.Builder{}
			text.WriteString("# HELP kubetenant_grants [ALPHA] Number of AccessGrants by state: Valid, Expired, Refused " +
				"because the grantor does not have the rights that it grants, Invalid, or Deleting.\n" +
				"# TYPE kubetenant_grants gauge\n")
			for i, n := range want {
				_, _ = fmt.Fprintf(&text, "kubetenant_grants{state=%q} %d\n", states[i], n)
			}
			if err := testutil.GatherAndCompare(registry, strings.NewReader(text.String()), "kubetenant_grants"); err != nil {
				t.Errorf("%s: %v", when, err)
			}
		}
		later(time.Minute + time.Second) // some grants were known before the metric was registered
		check("at first", 1, 1, 1, 1, 2)
		later(time.Hour + time.Minute)
		check("after an hour", 1, 2, 1, 1, 1)
		objects := client.Resource(resource).Namespace("b--web")
		changed := unstructuredOf(t, named("expired", refused))
		if _, err := objects.Update(t.Context(), changed, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"g", "no-rules"} {
			if err := objects.Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		r.rights.set(true, nil)
		later(2 * time.Minute)
		check("after changes", 1, 1, 0, 2, 0)
		later(10 * time.Minute)
		check("later", 1, 1, 0, 2, 0)
	})
}
