// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package service

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	auditinternal "k8s.io/apiserver/pkg/apis/audit"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/klog/v2"

	"github.com/kubetenant/kubetenant/internal/tenantaudit"
	"github.com/kubetenant/kubetenant/internal/turns"
	"github.com/kubetenant/kubetenant/tenant"
)

// AuditPath is the path of the audit webhook of kube-apiserver.
const AuditPath = "/audit"

// Audit specifies how the service stores the audit events that kube-apiserver sends.
type Audit struct {
	Sink *tenantaudit.Sink
	// Resolver determines the tenants of an event.
	Resolver *tenantaudit.Resolver
	// Ready reports whether the Tenants and namespaces are known. Until then, batches get a 500.
	Ready func() bool
}

// auditEvent contains the fields of an audit.k8s.io/v1 Event that are stored. The other fields are
// not decoded.
type auditEvent struct {
	AuditID                  string                     `json:"auditID"`
	Stage                    string                     `json:"stage"`
	RequestURI               string                     `json:"requestURI"`
	Verb                     string                     `json:"verb"`
	User                     authenticationv1.UserInfo  `json:"user"`
	ImpersonatedUser         *authenticationv1.UserInfo `json:"impersonatedUser"`
	SourceIPs                []string                   `json:"sourceIPs"`
	ObjectRef                *auditv1.ObjectReference   `json:"objectRef"`
	ResponseStatus           *auditStatus               `json:"responseStatus"`
	RequestReceivedTimestamp metav1.MicroTime           `json:"requestReceivedTimestamp"`
	StageTimestamp           metav1.MicroTime           `json:"stageTimestamp"`
	Annotations              map[string]string          `json:"annotations"`
}

type auditStatus struct {
	Code int32 `json:"code"`
}

const (
	// auditBytes is the maximum size of the body of a batch. The flags of kube-apiserver MUST limit
	// its batches to less.
	auditBytes = 64 << 20
	// The decoded events are stored each time when auditPart bytes of the body or auditEvents
	// events have been decoded. auditEvents is also the maximum number of events in a batch of
	// kube-apiserver.
	auditPart   = 4 << 20
	auditEvents = 400
)

// errStore is the error for a batch that cannot be stored now. The response is a 500, after which
// kube-apiserver sends the batch again.
var errStore = errors.New("the events could not be stored: see the log of the service")

// auditor stores the events of requests for [AuditPath].
type auditor struct {
	*Audit
	seen *tenantaudit.Seen
}

// audit returns the handler of [AuditPath]. It responds after the events of a batch are on the
// disk. It omits events that it has already stored in the last ten minutes. It does not hold a
// whole batch in memory.
func audit(a *Audit, l *Limits, queue *turns.Queue) http.Handler {
	writer := &auditor{a, tenantaudit.NewSeen(nil)}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost {
			onlyPost(w)
			return
		}
		ctx, cancel := context.WithTimeout(r.Context(), l.Timeout)
		defer cancel()
		part := int64(auditPart)
		if r.ContentLength >= 0 {
			part = min(r.ContentLength, part)
		}
		leave, err := queue.Enter(ctx, part*memoryFactor, auditFlow)
		if err != nil {
			err = turns.ErrBusy
		} else {
			defer leave()
			err = writer.store(ctx, http.MaxBytesReader(w, r.Body, auditBytes), r.ContentLength)
		}
		if err == nil {
			w.Header()["Content-Type"] = []string{"application/json"}
			_, _ = w.Write([]byte("{}")) // kube-apiserver reads only the status code
			return
		}
		if !errors.Is(err, errStore) { // the sink has already counted the events
			a.Sink.AddFailed(1) // the batch may be lost, but the number of its events is unknown
		}
		answerError(w, err)
	})
}

// store decodes a batch and stores its events part by part.
func (a *auditor) store(ctx context.Context, body io.Reader, size int64) error {
	if size > auditBytes {
		return errTooLarge
	}
	list := newEventList(body)
	var part []*auditinternal.Event
	var began int64
	err := list.begin()
	for err == nil {
		var event *auditinternal.Event
		if event, err = list.next(); err != nil {
			break
		}
		part = append(part, event)
		if at := list.decoder.InputOffset(); len(part) >= auditEvents || at-began >= auditPart {
			if err := a.storePart(ctx, part); err != nil {
				return err
			}
			part = nil
			began = at
		}
	}
	if list.undecodable > 0 {
		klog.FromContext(ctx).Error(errReview, "Skipped audit events that cannot be decoded", "events", list.undecodable)
		a.Sink.AddFailed(list.undecodable)
	}
	if tooMany := (*http.MaxBytesError)(nil); errors.As(err, &tooMany) {
		return errTooLarge
	}
	if !errors.Is(err, io.EOF) {
		return errReview
	}
	return a.storePart(ctx, part)
}

func (a *auditor) storePart(ctx context.Context, events []*auditinternal.Event) error {
	if !a.Ready() { // the stream of a tenant that is not known yet would lack events
		return errStore
	}
	newEvents := a.seen.New(events)
	if err := a.Sink.Store(ctx, newEvents, a.Resolver); err != nil {
		klog.FromContext(ctx).Error(err, "Failed to store audit events", "events", len(newEvents))
		return errStore
	}
	a.seen.Add(newEvents)
	return nil
}

// eventList decodes an EventList one event at a time. It accepts invalid UTF-8 and duplicate names,
// which kube-apiserver copies from invalid requests. Otherwise, one invalid request would make the
// service lose the whole batch.
type eventList struct {
	decoder     *jsontext.Decoder
	undecodable int // number of events that could not be decoded
}

func newEventList(body io.Reader) *eventList {
	return &eventList{
		decoder: jsontext.NewDecoder(body, jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true)),
	}
}

// begin reads to the first event. The error is [io.EOF] if there are no events.
func (l *eventList) begin() error {
	if _, err := l.expect("{"); err != nil {
		return err
	}
	typeMeta := metav1.TypeMeta{}
	for l.decoder.PeekKind() == '"' {
		name, err := l.decoder.ReadToken()
		if err != nil {
			return unexpectedEOF(err)
		}
		switch name.String() {
		case "kind":
			err = json.UnmarshalDecode(l.decoder, &typeMeta.Kind)
		case "apiVersion":
			err = json.UnmarshalDecode(l.decoder, &typeMeta.APIVersion)
		case "items": // kube-apiserver writes it last
			return l.beginItems(&typeMeta)
		default:
			err = l.decoder.SkipValue()
		}
		if err != nil {
			return unexpectedEOF(err)
		}
	}
	if _, err := l.expect("}"); err != nil {
		return err
	}
	if !isEventList(&typeMeta) {
		return errReview
	}
	return l.end()
}

func (l *eventList) beginItems(typeMeta *metav1.TypeMeta) error {
	if !isEventList(typeMeta) {
		return errReview
	}
	kind, err := l.expect("[n")
	if err == nil && kind == 'n' { // null
		return l.end()
	}
	return err
}

func isEventList(typeMeta *metav1.TypeMeta) bool {
	return typeMeta.Kind == "EventList" && typeMeta.APIVersion == auditv1.SchemeGroupVersion.String()
}

// expect reads a token. It returns an error if the kind of the token is not in kinds.
func (l *eventList) expect(kinds string) (jsontext.Kind, error) {
	token, err := l.decoder.ReadToken()
	if err != nil {
		return 0, unexpectedEOF(err)
	}
	if kind := token.Kind(); strings.IndexByte(kinds, byte(kind)) >= 0 {
		return kind, nil
	}
	return 0, errReview
}

// end reads to the end of the list. The error is [io.EOF] at the end of a whole body.
func (l *eventList) end() error {
	for l.decoder.StackDepth() > 0 {
		if _, err := l.decoder.ReadToken(); err != nil {
			return unexpectedEOF(err)
		}
	}
	_, err := l.decoder.ReadToken()
	if err == nil {
		err = errReview
	}
	return err
}

// next returns the next event that can be decoded. The error is [io.EOF] at the end of a whole
// body.
func (l *eventList) next() (*auditinternal.Event, error) {
	d := l.decoder
	for d.PeekKind() != ']' {
		depth := d.StackDepth()
		_, start := d.StackIndex(depth)
		event := auditEvent{}
		if json.UnmarshalDecode(d, &event) == nil {
			return event.internal(), nil
		}
		for d.StackDepth() > depth { // skip the rest of the event
			if _, err := d.ReadToken(); err != nil {
				return nil, unexpectedEOF(err)
			}
		}
		if _, index := d.StackIndex(depth); index == start {
			if err := d.SkipValue(); err != nil {
				return nil, unexpectedEOF(err)
			}
		}
		l.undecodable++
	}
	return nil, l.end()
}

// unexpectedEOF replaces [io.EOF], which would mean the end of a whole body.
func unexpectedEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

func (e *auditEvent) internal() *auditinternal.Event {
	out := &auditinternal.Event{
		Level:                    auditinternal.LevelMetadata,
		AuditID:                  types.UID(e.AuditID),
		Stage:                    auditinternal.Stage(e.Stage),
		RequestURI:               e.RequestURI,
		Verb:                     e.Verb,
		User:                     e.User,
		ImpersonatedUser:         e.ImpersonatedUser,
		SourceIPs:                e.SourceIPs,
		RequestReceivedTimestamp: e.RequestReceivedTimestamp,
		StageTimestamp:           e.StageTimestamp,
		Annotations:              e.Annotations,
	}
	if ref := e.ObjectRef; ref != nil {
		out.ObjectRef = &auditinternal.ObjectReference{
			Resource:    ref.Resource,
			Namespace:   ref.Namespace,
			Name:        ref.Name,
			APIGroup:    ref.APIGroup,
			Subresource: ref.Subresource,
		}
	}
	if e.ResponseStatus != nil {
		out.ResponseStatus = &metav1.Status{Code: e.ResponseStatus.Code}
	}
	return out
}

// onlyVerified responds with 404 to clients without a certificate that the service has verified.
func onlyVerified(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.TLS == nil || len(r.TLS.VerifiedChains) == 0 {
			http.NotFound(w, r)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// auditFlow returns the [turns.Flow] of all batches, which only kube-apiserver sends.
func auditFlow() turns.Flow { return turns.FlowOf(tenant.System(), AuditPath) }
