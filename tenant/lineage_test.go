// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package tenant_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/kubetenant/kubetenant/tenant"
)

// TestLineageAcceptsOnlyCurrentTenant checks that credentials and records are accepted only for
// the current tenant if earlier tenants had the same name. If the name belongs to no tenant, no
// record is accepted.
func TestLineageAcceptsOnlyCurrentTenant(t *testing.T) {
	created := time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC)
	before := []tenant.Retired{{UID: "old", DeletionEnded: created.Add(-time.Hour)}}
	type of struct {
		over                                         bool
		undated, early, late, holdsNobody, old, live bool
	}
	for name, c := range map[string]struct {
		tenant.Lineage
		want of
	}{
		"no Tenant": {
			tenant.Lineage{},
			of{
				undated:     true,
				early:       true,
				late:        true,
				holdsNobody: true,
				old:         true,
				live:        true,
			},
		},
		"a Tenant": {
			tenant.Lineage{UID: "live", Created: created},
			of{
				undated:     true,
				early:       true,
				late:        true,
				holdsNobody: true,
				old:         true,
				live:        true,
			},
		},
		"a Tenant in deletion": {
			tenant.Lineage{UID: "live", Created: created, Terminating: true},
			of{
				over:    true,
				undated: true,
				early:   true,
				late:    true,
			},
		},
		"deleted":     {tenant.Lineage{Retired: before}, of{over: true, late: true, early: true}},
		"a successor": {tenant.Lineage{UID: "live", Created: created, Retired: before}, of{late: true, live: true}},
		"a successor that accepts undated credentials": {
			tenant.Lineage{
				UID:           "live",
				Created:       created,
				AcceptUndated: true,
				Retired:       before,
			},
			of{undated: true, late: true, live: true},
		},
		"a successor in deletion": {
			tenant.Lineage{
				UID:         "live",
				Created:     created,
				Terminating: true,
				Retired:     before,
			},
			of{over: true, late: true},
		},
		"deleted, accepts undated credentials": {
			tenant.Lineage{AcceptUndated: true, Retired: before},
			of{
				over:    true,
				undated: true,
				late:    true,
				early:   true,
			},
		},
		"two deleted Tenants": {
			tenant.Lineage{UID: "live", Created: created, Retired: append(before, tenant.Retired{UID: "older"})},
			of{late: true, live: true},
		},
		"a Tenant without a creation time": {
			tenant.Lineage{UID: "live"},
			of{
				undated:     true,
				early:       true,
				late:        true,
				holdsNobody: true,
				old:         true,
				live:        true,
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			l := c.Lineage
			got := of{
				l.HasEnded(),
				l.Accepts(time.Time{}),
				l.Accepts(created.Add(-5*time.Minute - time.Second)),
				l.Accepts(created.Add(-5 * time.Minute)),
				l.AcceptsSeal(""),
				l.AcceptsSeal(tenant.Seal("old")),
				l.AcceptsSeal(tenant.Seal("live")),
			}
			if got != c.want {
				t.Errorf("%+v, want %+v", got, c.want)
			}
		})
	}
}

// TestSortByDeletionEnd checks that Tenant objects are sorted by the end of their deletion.
// Objects whose deletion has not ended are last.
func TestSortByDeletionEnd(t *testing.T) {
	at := time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC)
	all := tenant.SortByDeletionEnd([]tenant.Retired{
		{
			UID: "c",
		}, {UID: "b", DeletionEnded: at}, {UID: "d"}, {UID: "a", DeletionEnded: at}, {UID: "e", DeletionEnded: at.Add(-1)},
	})
	text := ""
	for _, r := range all {
		text += r.UID
	}
	last, ok := (&tenant.Lineage{Retired: all}).LastRetired()
	if text != "eabcd" || !ok || last.UID != "d" {
		t.Errorf("%s, last %+v", text, last)
	}
	if _, ok := (&tenant.Lineage{}).LastRetired(); ok {
		t.Error("an empty Lineage has a deleted Tenant")
	}
}

// TestSeal checks that a seal matches only its UID, and that its length does not reveal whether the
// UID is empty.
func TestSeal(t *testing.T) {
	one, again, none := tenant.Seal("u"), tenant.Seal("u"), tenant.Seal("")
	if one == again || len(one) != len(none) || tenant.Seal("") == none {
		t.Errorf("%s, %s, %s", one, again, none)
	}
	for seal, want := range map[string]bool{
		one:       true,
		again:     true,
		none:      false,
		"":        false,
		"u":       false,
		".":       false,
		one + "x": false,
	} {
		t.Run(seal, func(t *testing.T) {
			if tenant.IsSealOf(seal, "u") != want || tenant.IsSealOf(seal, "") || tenant.IsSealOf(seal, "v") {
				t.Errorf("%t", !want)
			}
		})
	}
}

func ExampleLineage() {
	l := tenant.Lineage{
		UID:     "new",
		Created: time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC),
		Retired: []tenant.Retired{{UID: "old"}},
	}
	fmt.Println(l.Accepts(time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)),
		l.Accepts(time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC)), l.Accepts(time.Time{}))
	// Output: false true false
}
