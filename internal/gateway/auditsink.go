package gateway

import (
	"net/netip"
	"slices"
	"strconv"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	auditinternal "k8s.io/apiserver/pkg/apis/audit"
	"k8s.io/client-go/util/flowcontrol"

	"github.com/kubetenant/kubetenant/internal/budget"
)

// auditSink writes events. It bounds the events of requests whose caller is not authenticated. Safe
// for concurrent use.
type auditSink struct {
	lines auditLog
	// ignoresErrors makes the gateway handle requests whose events cannot be written.
	ignoresErrors bool
	unknown       *unknownCallers
	metrics       *gatewayMetrics
}

// ProcessEvents implements [audit.Sink]. If it returns false for the first event of a request, the
// request is denied.
func (s *auditSink) ProcessEvents(events ...*auditinternal.Event) bool {
	success := true
	for _, event := range events {
		if isUnauthenticated(event) {
			if !s.unknown.accept(event, s.write) {
				s.metrics.auditEvents.WithLabelValues(auditOmitted).Inc()
				continue
			}
			event = shortened(event)
		}
		success = s.write(event) && success
	}
	return success || s.ignoresErrors
}

// write writes an event, and reports whether it is written.
func (s *auditSink) write(event *auditinternal.Event) bool {
	if !s.lines.ProcessEvents(event) {
		s.metrics.auditEvents.WithLabelValues(auditFailed).Inc()
		return false
	}
	s.metrics.auditEvents.WithLabelValues(auditWritten).Inc()
	return true
}

// isUnauthenticated reports whether an event is of a request before or without authentication.
func isUnauthenticated(event *auditinternal.Event) bool { return event.User.Username == "" }

// unauthenticatedText bounds, in bytes, each text in the event of an unauthenticated request.
const unauthenticatedText = 256

// cutMark ends a text that was cut.
const cutMark = "..."

// shortened returns an event whose texts are cut. The event has no object reference if its URI is
// cut, because the reference repeats the URI.
func shortened(event *auditinternal.Event) *auditinternal.Event {
	out := *event
	out.RequestURI, out.Verb, out.UserAgent = cut(out.RequestURI), cut(out.Verb), cut(out.UserAgent)
	if out.RequestURI != event.RequestURI {
		out.ObjectRef = nil
	}
	if out.ResponseStatus != nil {
		status := *out.ResponseStatus
		status.Message = cut(status.Message)
		out.ResponseStatus = &status
	}
	return &out
}

// cut returns a text of at most unauthenticatedText bytes.
func cut(text string) string {
	if len(text) <= unauthenticatedText {
		return text
	}
	return text[:unauthenticatedText-len(cutMark)] + cutMark
}

// The budgets of events of unauthenticated requests. Each event has at most some 5 KiB, so that an
// attacker writes at most some 2 GB a day, and usually 0.5 GB.
const (
	unknownPerSecond        = 5
	unknownAtOnce           = 500
	unknownPerSecondAndPeer = 1
	unknownAtOnceAndPeer    = 50
	// omittedEvery is the interval of events that state how many events were left out.
	omittedEvery = 10 * time.Second
	// omittedPeers bounds the addresses in such an event.
	omittedPeers = 16
)

// omittedAuditAnnotation specifies how many events of unauthenticated requests the gateway did not
// write, because there were too many. The sourceIPs of the event are some of their addresses.
const omittedAuditAnnotation = "gateway.kubetenant.dev/omitted-events"

// unknownCallers bounds how many events unauthenticated requests write: by address and in total.
// Safe for concurrent use.
type unknownCallers struct {
	total  flowcontrol.RateLimiter
	byPeer *budget.Budgets

	mu    sync.Mutex
	since time.Time // the time of the first event that was left out; zero if none was
	count int
	peers []string
}

func newUnknownCallers() *unknownCallers {
	return &unknownCallers{
		total:  flowcontrol.NewTokenBucketRateLimiter(unknownPerSecond, unknownAtOnce),
		byPeer: budget.New(unknownPerSecondAndPeer, unknownAtOnceAndPeer),
	}
}

// accept reports whether an event may be written. If not, an event with the number of omitted ones
// is written later.
func (u *unknownCallers) accept(event *auditinternal.Event, write func(*auditinternal.Event) bool) bool {
	peer := peerOf(event)
	if u.byPeer.Of(peer).TryAccept() && u.total.TryAccept() {
		return true
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.count == 0 {
		u.since = time.Now()
		time.AfterFunc(omittedEvery, func() { write(u.omitted()) })
	}
	u.count++
	if len(u.peers) < omittedPeers && !slices.Contains(u.peers, peer) {
		u.peers = append(u.peers, peer)
	}
	return false
}

// omitted returns the event with the number of omitted ones, and sets that to zero.
func (u *unknownCallers) omitted() *auditinternal.Event {
	u.mu.Lock()
	defer u.mu.Unlock()
	out := &auditinternal.Event{
		Level:                    auditinternal.LevelMetadata,
		AuditID:                  uuid.NewUUID(),
		Stage:                    auditinternal.StageResponseComplete,
		SourceIPs:                u.peers,
		RequestReceivedTimestamp: metav1.NewMicroTime(u.since),
		StageTimestamp:           metav1.NewMicroTime(time.Now()),
		Annotations:              map[string]string{omittedAuditAnnotation: strconv.Itoa(u.count)},
	}
	u.since, u.count, u.peers = time.Time{}, 0, nil
	return out
}

// peerOf returns the address of an event: of IPv6 the network of 64 bits, which one host usually
// has.
func peerOf(event *auditinternal.Event) string {
	if len(event.SourceIPs) == 0 {
		return ""
	}
	peer := event.SourceIPs[len(event.SourceIPs)-1]
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
