// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package accessgrant_test

import (
	"encoding/json"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubetenant/kubetenant/cluster/accessgrant"
	"github.com/kubetenant/kubetenant/tenant"
)

// TestAnnouncedOnlyToNamedTenant checks that a grant is announced only to the Tenant for which it
// was written, and only while spec.announce is true.
func TestAnnouncedOnlyToNamedTenant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := granted()
		g.Spec.Announce, g.Spec.Grantor.Grantee = true, tenant.Seal("old")
		client := clientOf(t, g)
		var lineage atomic.Pointer[tenant.Lineage]
		is := func(l tenant.Lineage) {
			lineage.Store(&l)
			later(2 * time.Minute)
		}
		lineage.Store(&tenant.Lineage{UID: "old"})
		c, err := accessgrant.New(client, func(tenant.ID) tenant.Lineage { return *lineage.Load() }, nil)
		if err != nil {
			t.Fatal(err)
		}
		r := runController(t, client, c)
		later(time.Second)
		expect := func(when, want string) {
			t.Helper()
			if got := r.read(t).Status.AnnouncedTo; got != want {
				t.Errorf("%s: announced to %q, want %q", when, got, want)
			}
		}
		change := func(spec map[string]any) {
			t.Helper()
			text, err := json.Marshal(map[string]any{"spec": spec})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := client.Resource(resource).Namespace("b--web").Patch(t.Context(), "g", types.MergePatchType, text,
				metav1.PatchOptions{}); err != nil {
				t.Fatal(err)
			}
			later(10 * time.Second)
		}
		expect("announced", "a")
		change(map[string]any{"announce": nil})
		expect("no longer announced", "")
		change(map[string]any{"announce": true})
		expect("announced again", "a")
		is(tenant.Lineage{UID: "old", Terminating: true})
		expect("while the tenant is deleted", "")
		is(tenant.Lineage{Retired: []tenant.Retired{{UID: "old"}}})
		expect("after the tenant was deleted", "")
		is(tenant.Lineage{UID: "new", Retired: []tenant.Retired{{UID: "old"}}})
		expect("after the name was reused", "")
		change(map[string]any{"grantor": map[string]any{"grantee": tenant.Seal("new")}})
		expect("written for the new tenant", "a")
		change(map[string]any{"grantor": nil})
		expect("written by an unknown grantor", "")
	})
}
