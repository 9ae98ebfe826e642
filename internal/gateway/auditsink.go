// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"net/netip"

	auditinternal "k8s.io/apiserver/pkg/apis/audit"
	"k8s.io/apiserver/pkg/audit"
	auditlog "k8s.io/apiserver/plugin/pkg/audit/log"
	"k8s.io/client-go/util/flowcontrol"

	"github.com/kubetenant/kubetenant/internal/budget"
)

// auditSink writes events. It limits the size of their texts, and the rate of events of
// unauthenticated requests. It is safe for concurrent use.
type auditSink struct {
	lines *auditLog
	// ignoresErrors specifies that requests are handled even if their events cannot be written.
	ignoresErrors   bool
	unauthenticated *unauthenticatedEventLimits
	omissions       *omissions
	metrics         *gatewayMetrics
}

// ProcessEvents implements [audit.Sink]. If it returns false for the first event of a request, the
// request is rejected.
func (s *auditSink) ProcessEvents(events ...*auditinternal.Event) bool {
	success := true
	for _, event := range events {
		_, written := s.process(event)
		success = written && success
	}
	return success || s.ignoresErrors
}

// process writes an event, or records that it is omitted. It returns the number of bytes written,
// and false if writing failed.
func (s *auditSink) process(event *auditinternal.Event) (bytes int, written bool) {
	if !isUnauthenticated(event) {
		return s.write(shortened(event, callerTextLimits))
	}
	if peer := peerOf(event); !s.unauthenticated.accept(peer) {
		s.omit("", peer)
		return 0, true
	}
	return s.write(shortened(event, unauthenticatedTextLimits))
}

// omit records that an event is not written. tenant is empty if the request is unauthenticated.
func (s *auditSink) omit(tenant, peer string) {
	s.metrics.auditEvents.WithLabelValues(auditOmitted).Inc()
	s.omissions.record(tenant, peer, func(record *auditinternal.Event) bool {
		_, written := s.write(record)
		return written
	})
}

// write writes an event. It returns the number of bytes written, and false if writing failed.
func (s *auditSink) write(event *auditinternal.Event) (bytes int, written bool) {
	bytes, err := s.lines.write(event)
	if err != nil {
		audit.HandlePluginError(auditlog.PluginName, err, event)
		s.metrics.auditEvents.WithLabelValues(auditFailed).Inc()
		return bytes, false
	}
	s.metrics.auditEvents.WithLabelValues(auditWritten).Inc()
	return bytes, true
}

// isUnauthenticated reports whether the caller was not authenticated when the event was created.
func isUnauthenticated(event *auditinternal.Event) bool { return event.User.Username == "" }

// The limits for events of unauthenticated requests. Each event is at most about 5 KiB long.
// Therefore an attacker can write at most about 2 GB a day, and usually 0.5 GB.
const (
	unauthenticatedPerSecond        = 5
	unauthenticatedBurst            = 500
	unauthenticatedPerSecondPerPeer = 1
	unauthenticatedBurstPerPeer     = 50
)

// unauthenticatedEventLimits limits the rate of events of unauthenticated requests, for each
// client address and in total. It is safe for concurrent use.
type unauthenticatedEventLimits struct {
	total  flowcontrol.RateLimiter
	byPeer *budget.Budgets
}

func newUnauthenticatedEventLimits() *unauthenticatedEventLimits {
	return &unauthenticatedEventLimits{
		total:  flowcontrol.NewTokenBucketRateLimiter(unauthenticatedPerSecond, unauthenticatedBurst),
		byPeer: budget.New(unauthenticatedPerSecondPerPeer, unauthenticatedBurstPerPeer),
	}
}

// accept reports whether the event of a request from an address is within the limits.
func (u *unauthenticatedEventLimits) accept(peer string) bool {
	return u.byPeer.Limiter(peer).TryAccept() && u.total.TryAccept()
}

// peerOf returns the client address in an event, or "" if there is none. For IPv6, it returns the
// first address of the /64 network, which usually belongs to one host.
func peerOf(event *auditinternal.Event) string {
	if len(event.SourceIPs) == 0 {
		return ""
	}
	return networkOf(event.SourceIPs[len(event.SourceIPs)-1])
}

// networkOf returns the first address of the /64 network of an IPv6 address. It returns any other
// text unchanged.
func networkOf(peer string) string {
	address, err := netip.ParseAddr(peer)
	if err != nil || address.Unmap().Is4() {
		return peer
	}
	network, err := address.WithZone("").Prefix(64)
	if err != nil {
		return peer
	}
	return network.Masked().Addr().String()
}
