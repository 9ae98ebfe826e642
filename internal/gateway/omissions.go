// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"slices"
	"strconv"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	auditinternal "k8s.io/apiserver/pkg/apis/audit"
)

const (
	// omittedInterval is the interval at which the gateway writes the number of omitted events.
	omittedInterval = 10 * time.Second
	// omittedPeers is the maximum number of client addresses in an event about omitted events.
	omittedPeers = 16
)

// omittedAuditAnnotation is the annotation with the number of events that the gateway did not
// write, because unauthenticated requests or the callers of a tenant wrote too many. The
// sourceIPs of the event with this annotation contain some of the clients' addresses.
const omittedAuditAnnotation = "gateway.kubetenant.dev/omitted-events"

// omittedTenantAuditAnnotation is the annotation with the tenant whose events were omitted, or
// (none) if the callers have no tenant. It is not set if the requests were unauthenticated.
const omittedTenantAuditAnnotation = "gateway.kubetenant.dev/omitted-events-tenant"

// omissions contains the number of events of each tenant that were not written. Every ten
// seconds, an event reports this number. A number is retained until an event with the number was
// written. The zero value is empty. It is safe for concurrent use.
type omissions struct {
	mu       sync.Mutex
	byTenant map[string]*omission
}

// omission is the number of events that were not written for one tenant.
type omission struct {
	since time.Time // time of the first omitted event, or of the last report
	count int
	peers []string
	write func(*auditinternal.Event) bool // from the last call of record
}

// record adds an event that is not written. tenant is empty if the request is unauthenticated.
func (o *omissions) record(tenant, peer string, write func(*auditinternal.Event) bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.byTenant == nil {
		o.byTenant = map[string]*omission{}
	}
	of, ok := o.byTenant[tenant]
	if !ok {
		of = &omission{since: time.Now()}
		o.byTenant[tenant] = of
		time.AfterFunc(omittedInterval, func() { o.report(tenant) })
	}
	of.count++
	of.write = write
	if len(of.peers) < omittedPeers && !slices.Contains(of.peers, peer) {
		of.peers = append(of.peers, peer)
	}
}

// report writes the event with the number of omitted events of a tenant. If writing fails, or
// more events were omitted in the meantime, report runs again after omittedInterval.
func (o *omissions) report(tenant string) {
	o.mu.Lock()
	of := o.byTenant[tenant]
	if of == nil { // flush has written it
		o.mu.Unlock()
		return
	}
	reported := of.count
	event := of.event(tenant)
	write := of.write
	o.mu.Unlock()
	written := write(event)
	o.mu.Lock()
	defer o.mu.Unlock()
	if written {
		of.count -= reported
		of.since = time.Now()
		of.peers = nil
	}
	if of.count == 0 {
		delete(o.byTenant, tenant)
		return
	}
	time.AfterFunc(omittedInterval, func() { o.report(tenant) })
}

// flush writes the numbers of omitted events of all tenants. It is called when the gateway stops.
func (o *omissions) flush() {
	o.mu.Lock()
	defer o.mu.Unlock()
	for tenant, of := range o.byTenant {
		if of.count > 0 && of.write(of.event(tenant)) {
			delete(o.byTenant, tenant)
		}
	}
}

// event returns the event with the number of omitted events of a tenant.
func (of *omission) event(tenant string) *auditinternal.Event {
	out := &auditinternal.Event{
		Level:                    auditinternal.LevelMetadata,
		AuditID:                  uuid.NewUUID(),
		Stage:                    auditinternal.StageResponseComplete,
		SourceIPs:                slices.Clone(of.peers),
		RequestReceivedTimestamp: metav1.NewMicroTime(of.since),
		StageTimestamp:           metav1.NewMicroTime(time.Now()),
		Annotations:              map[string]string{omittedAuditAnnotation: strconv.Itoa(of.count)},
	}
	if tenant != "" {
		out.Annotations[omittedTenantAuditAnnotation] = tenant
	}
	return out
}

// Close writes the numbers of omitted audit events, the last totals of usage, and the last audit
// records. It MUST be called after the last request.
func (g *Gateway) Close() {
	g.omissions.flush()
	g.usage.Stop(context.Background())
	if g.audits != nil {
		g.audits.end()
	}
}
