// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"io"
	"sync"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	auditinternal "k8s.io/apiserver/pkg/apis/audit"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/apiserver/pkg/audit"
	auditlog "k8s.io/apiserver/plugin/pkg/audit/log"

	"github.com/kubetenant/kubetenant/internal/serving/quickjson"
)

// auditLog writes a line of JSON for each event. The bytes equal those of upstream's log backend
// (k8s.io/apiserver/plugin/pkg/audit/log, v0.37.1), but auditLog needs less time
// (docs/design/benchmarks.md). Upstream's backend looks up the conversion for each event, and
// encoding/json uses reflection. Each request has two events. Each line is one Write. out MUST NOT
// retain the bytes, which are reused. auditLog is safe for concurrent use if out is.
type auditLog struct{ out io.Writer }

// ProcessEvents implements [audit.Sink]. It tries to write all events, and returns false if a
// write fails.
func (l auditLog) ProcessEvents(events ...*auditinternal.Event) bool {
	success := true
	for _, event := range events {
		if _, err := l.write(event); err != nil {
			audit.HandlePluginError(auditlog.PluginName, err, event)
			success = false
		}
	}
	return success
}

// wholeLines writes lines. If a line was written only in part, for example because the disk was
// full, wholeLines writes a newline before the next line. If only the newline was missing, the
// first line is then complete, although its Write returned an error. It is safe for concurrent use.
type wholeLines struct {
	mu   sync.Mutex
	out  io.Writer
	torn bool // the last line is incomplete
}

// Write implements [io.Writer].
func (l *wholeLines) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.torn {
		if _, err := l.out.Write([]byte{'\n'}); err != nil {
			return 0, err
		}
	}
	n, err := l.out.Write(line)
	l.torn = 0 < n && n < len(line)
	return n, err
}

// lineWriters is a pool of the writers that encode lines.
var lineWriters = sync.Pool{New: func() any { return &quickjson.Writer{} }}

// lineBytes is the maximum size of a buffer that a writer retains for the next line, in bytes.
const lineBytes = 16 << 10

// write writes an event and returns the length of its line.
func (l auditLog) write(event *auditinternal.Event) (int, error) {
	versioned := &auditv1.Event{}
	if err := auditv1.Convert_audit_Event_To_v1_Event(event, versioned, nil); err != nil {
		return 0, err
	}
	line := lineWriters.Get().(*quickjson.Writer)
	defer func() {
		if cap(line.Text) <= lineBytes {
			lineWriters.Put(line)
		}
	}()
	line.Text = line.Text[:0]
	if err := writeEvent(line, versioned); err != nil {
		return 0, err
	}
	line.Text = append(line.Text, '\n')
	return l.out.Write(line.Text)
}

// writeEvent writes all fields of an event. TestAuditLogEqualsUpstream fails if a later
// Kubernetes release adds a field.
func writeEvent(w *quickjson.Writer, e *auditv1.Event) error {
	w.Begin()
	w.String("kind", "Event")
	w.String("apiVersion", auditv1.SchemeGroupVersion.String())
	writeText(w, "level", string(e.Level))
	writeText(w, "auditID", string(e.AuditID))
	writeText(w, "stage", string(e.Stage))
	writeText(w, "requestURI", e.RequestURI)
	writeText(w, "verb", e.Verb)
	writeUser(w, "user", &e.User)
	if e.ImpersonatedUser != nil {
		writeUser(w, "impersonatedUser", e.ImpersonatedUser)
	}
	if e.AuthenticationMetadata != nil {
		w.Name("authenticationMetadata")
		w.Begin()
		w.String("impersonationConstraint", e.AuthenticationMetadata.ImpersonationConstraint)
		w.End()
	}
	w.Strings("sourceIPs", e.SourceIPs)
	w.String("userAgent", e.UserAgent)
	writeObject(w, e.ObjectRef)
	if err := writeStatus(w, e.ResponseStatus); err != nil {
		return err
	}
	if err := writeBodies(w, e); err != nil {
		return err
	}
	writeTime(w, "requestReceivedTimestamp", &e.RequestReceivedTimestamp)
	writeTime(w, "stageTimestamp", &e.StageTimestamp)
	quickjson.Map(w, "annotations", e.Annotations, (*quickjson.Writer).Quote)
	w.End()
	return nil
}

// writeText writes a string member, even if the string is empty.
func writeText(w *quickjson.Writer, name, value string) {
	w.Name(name)
	w.Quote(value)
}

func writeUser(w *quickjson.Writer, member string, u *authenticationv1.UserInfo) {
	quickjson.User(w, member, u.Username, u.UID, u.Groups, u.Extra)
}

func writeObject(w *quickjson.Writer, o *auditv1.ObjectReference) {
	if o == nil {
		return
	}
	w.Name("objectRef")
	w.Begin()
	w.String("resource", o.Resource)
	w.String("namespace", o.Namespace)
	w.String("name", o.Name)
	w.String("uid", string(o.UID))
	w.String("apiGroup", o.APIGroup)
	w.String("apiVersion", o.APIVersion)
	w.String("resourceVersion", o.ResourceVersion)
	w.String("subresource", o.Subresource)
	w.End()
}

func writeStatus(w *quickjson.Writer, s *metav1.Status) error {
	if s == nil {
		return nil
	}
	// These fields are usually not set. Details are set if the request was rejected.
	if (s.TypeMeta != metav1.TypeMeta{}) || (s.ListMeta != metav1.ListMeta{}) || s.Details != nil {
		return w.Any("responseStatus", s)
	}
	w.Name("responseStatus")
	w.Begin()
	w.Name("metadata")
	w.Begin()
	w.End()
	w.String("status", s.Status)
	w.String("message", s.Message)
	w.String("reason", string(s.Reason))
	w.Int("code", int64(s.Code))
	w.End()
	return nil
}

// writeBodies writes the objects that only levels above Metadata record. The gateway rejects
// policies with such levels.
func writeBodies(w *quickjson.Writer, e *auditv1.Event) error {
	if e.RequestObject != nil {
		if err := w.Any("requestObject", e.RequestObject); err != nil {
			return err
		}
	}
	if e.ResponseObject != nil {
		return w.Any("responseObject", e.ResponseObject)
	}
	return nil
}

// writeTime writes a member in the format of [metav1.MicroTime.MarshalJSON].
func writeTime(w *quickjson.Writer, name string, t *metav1.MicroTime) {
	w.Name(name)
	if t.IsZero() {
		w.Text = append(w.Text, "null"...)
		return
	}
	w.Text = append(w.Text, '"')
	w.Text = t.UTC().AppendFormat(w.Text, metav1.RFC3339Micro)
	w.Text = append(w.Text, '"')
}
