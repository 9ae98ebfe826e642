// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

// Package fairuse limits the requests per second, the concurrent requests, and the concurrent
// streams of each tenant at one server.
package fairuse

import (
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

// Limit identifies a limit that a request exceeds.
type Limit string

// The limits of a tenant.
const (
	LimitRate     Limit = "rate"
	LimitInFlight Limit = "in-flight"
	LimitWatches  Limit = "watches"
)

// Limits are the limits of one tenant. Zero means no limit.
type Limits struct {
	RequestsPerSecond int `json:"requestsPerSecond,omitempty"`
	Burst             int `json:"burst,omitempty"`
	InFlight          int `json:"inFlight,omitempty"`
	Watches           int `json:"watches,omitempty"`
	// Level is the level of the tenant's requests in API Priority and Fairness. If empty, the
	// requests have no level.
	Level string `json:"level,omitempty"`
}

// burstFactor is the default ratio of the burst to the rate.
const burstFactor = 4

// LimitsOf returns the limits of a tenant. A field that is unset in spec, which is from the
// Tenant, has the value from configured. The CustomResourceDefinition rejects numbers below 1, so
// LimitsOf treats a stored number below 1 as 1.
func LimitsOf(spec, configured v1alpha1.FairUse) Limits {
	firstSet := func(values ...*int32) int {
		for _, v := range values {
			if v != nil {
				return int(max(*v, 1))
			}
		}
		return 0
	}
	l := Limits{
		RequestsPerSecond: firstSet(spec.RequestsPerSecond, configured.RequestsPerSecond),
		Burst:             firstSet(spec.Burst, configured.Burst),
		InFlight:          firstSet(spec.InFlight, configured.InFlight),
		Watches:           firstSet(spec.Watches, configured.Watches),
		Level:             spec.Level,
	}
	if l.Level == "" {
		l.Level = configured.Level
	}
	if l.Burst == 0 {
		l.Burst = burstFactor * l.RequestsPerSecond
	}
	return l
}

// Refusal contains the limit that a rejected request exceeds, and the time after which the client
// may try again. RetryAfter is a whole number of seconds.
type Refusal struct {
	Limit      Limit
	RetryAfter time.Duration
}

// Reports is the response at [authz.FairUsePath]. The reports are sorted by tenant name.
type Reports struct {
	Items []*Report `json:"items"`
}

// Report contains the current use and the limits of a tenant at one server.
type Report struct {
	Tenant string `json:"tenant"`
	Use    Use    `json:"use"`
	Limits Limits `json:"limits"`
}

// Use is the current use of a tenant at one server.
type Use struct {
	// InFlight is the number of running requests. Watches is the number of open watches and other
	// streams.
	InFlight int `json:"inFlight"`
	Watches  int `json:"watches"`
}

// Meter counts the requests of tenants and rejects requests above a limit. It removes the entries
// of idle tenants, so its memory depends only on recent requests. It is safe for concurrent use.
type Meter struct {
	now func() time.Time

	mu          sync.Mutex
	tenants     map[tenant.ID]*tenantUse
	cleanupSize int // the number of tenants above which idle tenants are removed
}

// tenantUse is the use of one tenant.
type tenantUse struct {
	Use
	bucket    *rate.Limiter // nil if the rate has no limit
	nextRetry time.Time     // the time at which the last rejected client may try again
}

const (
	minCleanupSize = 1024
	// maxRetryAfter is the maximum of RetryAfter.
	maxRetryAfter = 30 * time.Second
)

// New returns a meter. now is the clock.
func New(now func() time.Time) *Meter {
	return &Meter{now: now, tenants: map[tenant.ID]*tenantUse{}, cleanupSize: minCleanupSize}
}

// Request counts a request until leave is called. If refused is not nil, the request exceeds one of
// the tenant's limits and is not counted.
func (m *Meter) Request(id tenant.ID, l *Limits) (leave func(), refused *Refusal) {
	m.mu.Lock()
	defer m.mu.Unlock()
	u := m.entry(id)
	switch {
	case l.InFlight > 0 && u.InFlight >= l.InFlight:
		return nil, &Refusal{LimitInFlight, time.Second}
	case !u.allow(l, m.now()):
		return nil, &Refusal{LimitRate, u.retryAfter(l, m.now())}
	}
	u.InFlight++
	return func() { m.leave(&u.InFlight) }, nil
}

// Stream counts a watch or another stream until leave is called. If refused is not nil, the stream
// exceeds a limit and is not counted. The request that opens the stream also counts as a request,
// so the caller must call [Meter.Request] for it too.
func (m *Meter) Stream(id tenant.ID, l *Limits) (leave func(), refused *Refusal) {
	m.mu.Lock()
	defer m.mu.Unlock()
	u := m.entry(id)
	if l.Watches > 0 && u.Watches >= l.Watches {
		return nil, &Refusal{LimitWatches, time.Second}
	}
	u.Watches++
	return func() { m.leave(&u.Watches) }, nil
}

// Use returns the current use of a tenant.
func (m *Meter) Use(id tenant.ID) Use {
	m.mu.Lock()
	defer m.mu.Unlock()
	if u, found := m.tenants[id]; found {
		return u.Use
	}
	return Use{}
}

// Tenants returns the tenants with current requests or streams, sorted by name.
func (m *Meter) Tenants() []tenant.ID {
	m.mu.Lock()
	var all []tenant.ID
	for id, u := range m.tenants {
		if u.Use != (Use{}) {
			all = append(all, id)
		}
	}
	m.mu.Unlock()
	slices.SortFunc(all, func(a, b tenant.ID) int { return strings.Compare(a.String(), b.String()) })
	return all
}

func (m *Meter) leave(n *int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	*n--
}

// entry returns the entry of a tenant. It first removes idle tenants if the meter has many entries.
// The caller must hold mu.
func (m *Meter) entry(id tenant.ID) *tenantUse {
	if u, found := m.tenants[id]; found {
		return u
	}
	if len(m.tenants) >= m.cleanupSize {
		now := m.now()
		for other, u := range m.tenants {
			if u.isIdle(now) {
				delete(m.tenants, other)
			}
		}
		m.cleanupSize = max(minCleanupSize, 2*len(m.tenants))
	}
	u := &tenantUse{}
	m.tenants[id] = u
	return u
}

// isIdle reports whether the tenant's entry can be removed without effect. The tenant must have
// no requests or streams, its bucket must be nil or full, and the last rejected client must be
// allowed to try again.
func (u *tenantUse) isIdle(now time.Time) bool {
	return u.InFlight == 0 && u.Watches == 0 && !u.nextRetry.After(now) &&
		(u.bucket == nil || u.bucket.TokensAt(now) >= float64(u.bucket.Burst()))
}

// allow removes a token from the bucket, and reports whether the bucket contained a token. It
// first changes the bucket to the current limits.
func (u *tenantUse) allow(l *Limits, now time.Time) bool {
	switch {
	case l.RequestsPerSecond == 0:
		u.bucket = nil
		return true
	case u.bucket == nil:
		u.bucket = rate.NewLimiter(rate.Limit(l.RequestsPerSecond), l.Burst)
	case u.bucket.Limit() != rate.Limit(l.RequestsPerSecond) || u.bucket.Burst() != l.Burst:
		u.bucket.SetLimitAt(now, rate.Limit(l.RequestsPerSecond))
		u.bucket.SetBurstAt(now, l.Burst)
	}
	return u.bucket.AllowN(now, 1)
}

// retryAfter returns the time after which a rejected client may try again. It spreads the
// rejected clients over time at the rate of the bucket. Otherwise, all rejected clients would try
// again at the same time.
func (u *tenantUse) retryAfter(l *Limits, now time.Time) time.Duration {
	if u.nextRetry.Before(now) || u.nextRetry.After(now.Add(maxRetryAfter)) {
		u.nextRetry = now
	}
	u.nextRetry = u.nextRetry.Add(time.Second / time.Duration(l.RequestsPerSecond))
	seconds := math.Ceil(u.nextRetry.Sub(now).Seconds())
	return min(max(time.Duration(seconds)*time.Second, time.Second), maxRetryAfter)
}
