// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package fairuse_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"k8s.io/utils/ptr"

	"github.com/kubetenant/kubetenant/internal/fairuse"
	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/tenanttest"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

// clock is a clock whose time a test sets.
type clock struct{ at time.Time }

func (c *clock) now() time.Time { return c.at }

func TestLimitsOf(t *testing.T) {
	n := ptr.To[int32]
	for name, c := range map[string]struct {
		spec, configured v1alpha1.FairUse
		want             fairuse.Limits
	}{
		"nothing is set": {},
		"the configuration": {
			configured: v1alpha1.FairUse{
				Level:             "low",
				RequestsPerSecond: n(5),
				Burst:             n(7),
				InFlight:          n(8),
				Watches:           n(9),
			},
			want: fairuse.Limits{
				RequestsPerSecond: 5,
				Burst:             7,
				InFlight:          8,
				Watches:           9,
				Level:             "low",
			},
		},
		"the Tenant overrides each field": {
			spec:       v1alpha1.FairUse{Level: "high", InFlight: n(1)},
			configured: v1alpha1.FairUse{Level: "low", InFlight: n(8), Watches: n(9)},
			want:       fairuse.Limits{InFlight: 1, Watches: 9, Level: "high"},
		},
		"a rate without a burst": {
			spec: v1alpha1.FairUse{RequestsPerSecond: n(50)},
			want: fairuse.Limits{RequestsPerSecond: 50, Burst: 200},
		},
		"a burst without a rate": {
			spec: v1alpha1.FairUse{Burst: n(50)},
			want: fairuse.Limits{Burst: 50},
		},
		"stored numbers that the CustomResourceDefinition rejects": {
			spec: v1alpha1.FairUse{
				RequestsPerSecond: n(0),
				Burst:             n(-1),
				InFlight:          n(math.MinInt32),
				Watches:           n(0),
			},
			want: fairuse.Limits{
				RequestsPerSecond: 1,
				Burst:             1,
				InFlight:          1,
				Watches:           1,
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			if got := fairuse.LimitsOf(c.spec, c.configured); got != c.want {
				t.Errorf("%+v, want %+v", got, c.want)
			}
		})
	}
}

// TestRate checks that the burst and the rate limit the number of accepted requests exactly, even
// if the clock jumps.
func TestRate(t *testing.T) {
	c := &clock{time.Unix(1_000_000, 0)}
	m, l := fairuse.New(c.now), &fairuse.Limits{RequestsPerSecond: 2, Burst: 4}
	id := tenanttest.ID(t, "acme")
	passed := func() (n int) {
		for range 20 {
			if leave, refused := m.Request(id, l); refused == nil {
				leave()
				n++
			}
		}
		return n
	}
	for i, step := range []struct {
		after time.Duration
		want  int
	}{
		{0, 4},
		{0, 0},
		{time.Second, 2},
		{-time.Hour, 0}, // the clock jumps back
		{time.Hour + time.Second, 2},
		{1000 * time.Hour, 4}, // not more than the burst
	} {
		c.at = c.at.Add(step.after)
		if got := passed(); got != step.want {
			t.Errorf("step %d: %d requests passed, want %d", i, got, step.want)
		}
	}
	if _, refused := m.Request(tenanttest.ID(t, "globex"), l); refused != nil {
		t.Errorf("another tenant: %+v", refused)
	}
}

// TestRetryAfter checks that RetryAfter spreads rejected clients at the rate of the bucket, and
// that a clock that jumps back does not cause a long wait.
func TestRetryAfter(t *testing.T) {
	c := &clock{time.Unix(1_000_000, 0)}
	m, l := fairuse.New(c.now), &fairuse.Limits{RequestsPerSecond: 10, Burst: 1}
	id := tenanttest.ID(t, "acme")
	if _, refused := m.Request(id, l); refused != nil {
		t.Fatal(refused)
	}
	at := map[time.Duration]int{}
	for range 100 {
		_, refused := m.Request(id, l)
		if refused == nil || refused.Limit != fairuse.LimitRate {
			t.Fatalf("%+v, want %s", refused, fairuse.LimitRate)
		}
		at[refused.RetryAfter]++
	}
	for second := range 10 {
		if n := at[time.Duration(second+1)*time.Second]; n != 10 {
			t.Errorf("%d clients may try again after %d s, want 10", n, second+1)
		}
	}
	c.at = c.at.Add(-time.Hour)
	if _, refused := m.Request(id, l); refused == nil || refused.RetryAfter != time.Second {
		t.Errorf("after the clock jumped back: %+v", refused)
	}
	for range 10_000 {
		_, refused := m.Request(id, l)
		if refused.RetryAfter < time.Second || refused.RetryAfter > 30*time.Second {
			t.Fatalf("RetryAfter = %s", refused.RetryAfter)
		}
	}
}

func TestConcurrencyLimits(t *testing.T) {
	m, l := fairuse.New(time.Now), &fairuse.Limits{InFlight: 2, Watches: 1}
	id := tenanttest.ID(t, "acme")
	first, refused := m.Request(id, l)
	if refused != nil {
		t.Fatal(refused)
	}
	if _, refused = m.Request(id, l); refused != nil {
		t.Fatal(refused)
	}
	if _, refused = m.Request(id, l); refused == nil || refused.Limit != fairuse.LimitInFlight ||
		refused.RetryAfter != time.Second {
		t.Errorf("a third request: %+v", refused)
	}
	end, refused := m.Stream(id, l)
	if refused != nil {
		t.Fatal(refused)
	}
	if _, refused = m.Stream(id, l); refused == nil || refused.Limit != fairuse.LimitWatches {
		t.Errorf("a second watch: %+v", refused)
	}
	if got := m.Use(id); got != (fairuse.Use{InFlight: 2, Watches: 1}) {
		t.Errorf("Use() = %+v", got)
	}
	first()
	end()
	if _, refused = m.Request(id, l); refused != nil {
		t.Errorf("after one has ended: %+v", refused)
	}
	if _, refused = m.Stream(id, l); refused != nil {
		t.Errorf("a watch after the other has ended: %+v", refused)
	}
}

// TestChangedLimits checks that new limits apply immediately, and that a lower burst removes
// tokens.
func TestChangedLimits(t *testing.T) {
	c := &clock{time.Unix(1_000_000, 0)}
	m, l := fairuse.New(c.now), &fairuse.Limits{RequestsPerSecond: 1, Burst: 100}
	id := tenanttest.ID(t, "acme")
	passed := func() (n int) {
		for range 200 {
			if _, refused := m.Request(id, l); refused == nil {
				n++
			}
		}
		return n
	}
	if _, refused := m.Request(id, l); refused != nil {
		t.Fatal(refused)
	}
	l.Burst = 3
	if got := passed(); got != 3 {
		t.Errorf("%d requests passed with a burst of 3", got)
	}
	l = &fairuse.Limits{}
	if got := passed(); got != 200 {
		t.Errorf("%d of 200 requests passed without a limit", got)
	}
	l = &fairuse.Limits{RequestsPerSecond: 5, Burst: 5}
	if got := passed(); got != 5 {
		t.Errorf("%d requests passed with a burst of 5", got)
	}
}

// TestManyTenants checks that the meter removes idle tenants, and that this does not refill the
// bucket of another tenant.
func TestManyTenants(t *testing.T) {
	c := &clock{time.Unix(1_000_000, 0)}
	m, l := fairuse.New(c.now), &fairuse.Limits{RequestsPerSecond: 1, Burst: 2}
	acme := tenanttest.ID(t, "acme")
	for range 2 {
		if _, refused := m.Request(acme, l); refused != nil {
			t.Fatal(refused)
		}
	}
	for i := range 100_000 {
		c.at = c.at.Add(time.Microsecond)
		leave, refused := m.Request(tenanttest.ID(t, fmt.Sprintf("t%d", i)), l)
		if refused != nil {
			t.Fatal(refused)
		}
		leave()
	}
	if _, refused := m.Request(acme, l); refused == nil {
		t.Error("the bucket of a tenant was filled because of other tenants")
	}
	c.at = c.at.Add(time.Minute)
	for i := range 400_000 {
		c.at = c.at.Add(time.Millisecond)
		if leave, refused := m.Request(tenanttest.ID(t, fmt.Sprintf("u%d", i)), l); refused == nil {
			leave()
		}
	}
	if n := m.Retained(); n > 20_000 {
		t.Errorf("the meter retains %d tenants", n)
	}
	if got := m.Use(acme).InFlight; got != 2 {
		t.Errorf("%d requests in flight, want 2", got)
	}
}

// TestConcurrentUse checks that concurrent requests never exceed the limits, and that no request
// is counted after it has ended.
func TestConcurrentUse(t *testing.T) {
	m, l := fairuse.New(time.Now), &fairuse.Limits{InFlight: 3, Watches: 3}
	ids := []tenant.ID{tenanttest.ID(t, "a"), tenanttest.ID(t, "b")}
	var all sync.WaitGroup
	for range 16 {
		all.Go(func() {
			for range 500 {
				begin := m.Request
				if rand.IntN(2) == 0 {
					begin = m.Stream
				}
				id := ids[rand.IntN(len(ids))]
				leave, refused := begin(id, l)
				if use := m.Use(id); use.InFlight > 3 || use.Watches > 3 {
					t.Errorf("%+v", use)
				}
				if refused == nil {
					leave()
				}
			}
		})
	}
	all.Wait()
	for _, id := range ids {
		if use := m.Use(id); use != (fairuse.Use{}) {
			t.Errorf("%s: %+v", id, use)
		}
	}
}

func BenchmarkRequest(b *testing.B) {
	m, l := fairuse.New(time.Now), &fairuse.Limits{RequestsPerSecond: 100_000, Burst: 1_000_000, InFlight: 10}
	id := tenanttest.ID(b, "acme")
	for b.Loop() {
		if leave, refused := m.Request(id, l); refused == nil {
			leave()
		}
	}
}
