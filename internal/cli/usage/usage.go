// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

// Package usage reports the usage of tenants, from the TenantUsages of a cluster or from usage
// records.
package usage

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

// Retention is how long the TenantUsages of a cluster retain the numbers of an hour.
const Retention = 48 * time.Hour

// Numbers is the usage of a tenant's callers in one or more hours.
type Numbers struct {
	Requests int64 `json:"requests"`
	Denied   int64 `json:"denied"`
	Limited  int64 `json:"limited"`
	// Watches is the maximum number of concurrent watches and other streams. In one hour, it is the
	// sum of the maximums of all servers. For several hours, it is the largest number of an hour.
	Watches          int64 `json:"watches"`
	SeatMilliseconds int64 `json:"seatMilliseconds"`
}

// add adds the numbers that another server or tenant has for the same hour.
func (n *Numbers) add(more Numbers) {
	n.Watches = sum(n.Watches, more.Watches)
	n.addRequests(more)
}

// addHour adds the numbers of another hour, or of another process of the same server.
func (n *Numbers) addHour(more Numbers) {
	n.Watches = max(n.Watches, more.Watches)
	n.addRequests(more)
}

func (n *Numbers) addRequests(more Numbers) {
	n.Requests = sum(n.Requests, more.Requests)
	n.Denied = sum(n.Denied, more.Denied)
	n.Limited = sum(n.Limited, more.Limited)
	n.SeatMilliseconds = sum(n.SeatMilliseconds, more.SeatMilliseconds)
}

// keepLatest sets n to the latest numbers of one process in one hour. The numbers never decrease
// within an hour, so the largest numbers are the latest.
func (n *Numbers) keepLatest(other Numbers) {
	n.Requests = max(n.Requests, other.Requests)
	n.Denied = max(n.Denied, other.Denied)
	n.Limited = max(n.Limited, other.Limited)
	n.Watches = max(n.Watches, other.Watches)
	n.SeatMilliseconds = max(n.SeatMilliseconds, other.SeatMilliseconds)
}

func (n *Numbers) isNegative() bool {
	return min(n.Requests, n.Denied, n.Limited, n.Watches, n.SeatMilliseconds) < 0
}

// sum returns the sum of two numbers that are not negative, or math.MaxInt64 if the sum overflows.
func sum(a, b int64) int64 {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}

// Hour is the usage of a tenant's callers in one hour on all servers.
type Hour struct {
	// Hour is the beginning of the hour.
	Hour time.Time `json:"hour"`
	Numbers
}

// Tenant is the usage of one tenant. A tenant that was deleted and created again is reported as two
// tenants with different UIDs.
type Tenant struct {
	Tenant string  `json:"tenant"`
	UID    string  `json:"uid,omitempty"`
	Total  Numbers `json:"total"`
	// Hours contains the hours with recorded usage, in order.
	Hours []Hour `json:"hours"`
	// Stored describes the stored objects of the tenant. It is nil if the objects were not
	// measured, or if the report was made from usage records.
	Stored *v1alpha1.StoredUsage `json:"stored,omitempty"`
}

// Report is the usage of tenants.
type Report struct {
	// Since is the beginning of the first hour of the report.
	Since time.Time `json:"since"`
	// Tenants are sorted by their number of requests, largest first.
	Tenants []*Tenant `json:"tenants"`
	Total   Numbers   `json:"total"`
	// Problems describes invalid objects and invalid lines, whose numbers are missing from the
	// report. It contains at most [MaxProblems] descriptions.
	Problems []string `json:"problems,omitempty"`
	// ProblemsTotal is the total number of problems.
	ProblemsTotal int `json:"problemsTotal"`

	until time.Time
}

// MaxProblems is the maximum number of problems that a report describes.
const MaxProblems = 20

// newReport returns an empty report that begins at the hour of now minus since.
func newReport(now time.Time, since time.Duration) *Report {
	return &Report{
		Since:   now.Add(-since).UTC().Truncate(time.Hour),
		Tenants: []*Tenant{},
		until:   now.Add(clockSkew),
	}
}

// clockSkew is how far the clock of a server may be ahead. The report omits hours that begin later.
const clockSkew = time.Hour

// covers reports whether an hour is within the period of the report.
func (r *Report) covers(hour time.Time) bool { return !hour.Before(r.Since) && !hour.After(r.until) }

func (r *Report) problem(text string) {
	r.ProblemsTotal++
	if len(r.Problems) < MaxProblems {
		r.Problems = append(r.Problems, text)
	}
}

// identity identifies a tenant in the report.
type identity struct{ tenant, uid string }

// add adds a tenant with its hours and its stored objects to the report.
func (r *Report) add(key identity, hours map[int64]Numbers, stored *v1alpha1.StoredUsage) {
	t := &Tenant{
		Tenant: key.tenant,
		UID:    key.uid,
		Hours:  make([]Hour, 0, len(hours)),
		Stored: stored,
	}
	for unix, n := range hours {
		t.Hours = append(t.Hours, Hour{time.Unix(unix, 0).UTC(), n})
		t.Total.addHour(n)
	}
	slices.SortFunc(t.Hours, func(a, b Hour) int { return a.Hour.Compare(b.Hour) })
	r.Tenants = append(r.Tenants, t)
}

// finish sorts the tenants and computes the total.
func (r *Report) finish() *Report {
	slices.SortFunc(r.Tenants, func(a, b *Tenant) int {
		return cmp.Or(cmp.Compare(b.Total.Requests, a.Total.Requests), cmp.Compare(a.Tenant, b.Tenant),
			cmp.Compare(a.UID, b.UID))
	})
	hours := map[int64]Numbers{}
	for _, t := range r.Tenants {
		for _, h := range t.Hours {
			n := hours[h.Hour.Unix()]
			n.add(h.Numbers)
			hours[h.Hour.Unix()] = n
		}
	}
	for _, n := range hours {
		r.Total.addHour(n)
	}
	return r
}
