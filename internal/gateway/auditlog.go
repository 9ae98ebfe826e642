// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"io"
	"sync"

	"k8s.io/apimachinery/pkg/runtime"
	auditinternal "k8s.io/apiserver/pkg/apis/audit"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/apiserver/pkg/audit"
)

// auditLog writes events in the format of upstream's log backend (k8s.io/apiserver
// plugin/pkg/audit/log, v0.37.1), which does not return the size of an event. It is safe for
// concurrent use if out is.
type auditLog struct {
	out     io.Writer
	encoder runtime.Encoder
}

func newAuditLog(out io.Writer) *auditLog {
	return &auditLog{out, audit.Codecs.LegacyCodec(auditv1.SchemeGroupVersion)}
}

// write writes an event as one line of JSON, in one Write. It returns the number of bytes written.
func (l *auditLog) write(event *auditinternal.Event) (int, error) {
	line, err := runtime.Encode(l.encoder, event)
	if err != nil {
		return 0, err
	}
	return l.out.Write(line)
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
