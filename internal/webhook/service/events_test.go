// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package service

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"testing"

	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
)

// FuzzEventList checks that no body causes a panic or an endless loop in the reader. If
// encoding/json decodes a whole list, the reader returns the same events.
func FuzzEventList(f *testing.F) {
	for _, body := range []string{
		`{"kind":"EventList","apiVersion":"audit.k8s.io/v1","items":[]}`,
		`{"kind":"EventList","apiVersion":"audit.k8s.io/v1","metadata":{},"items":null}`,
		`{"kind":"EventList","apiVersion":"audit.k8s.io/v1","items":[{"auditID":"1","verb":"get"},{"auditID":"2"}]}`,
		`{"kind":"EventList","apiVersion":"audit.k8s.io/v1","items":[{"auditID":1},"x",[[]],{"auditID":"2","auditID":"3"}]}`,
		`{"kind":"EventList","apiVersion":"audit.k8s.io/v1","items":[{"auditID":"1","responseStatus":{"code":404}}`,
	} {
		f.Add([]byte(body))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		list := newEventList(bytes.NewReader(body))
		var ids []string
		err := list.begin()
		for err == nil {
			event, problem := list.next()
			if err = problem; err == nil {
				ids = append(ids, string(event.AuditID))
			}
			if len(ids)+list.undecodable > len(body) {
				t.Fatalf("%d events and %d undecodable events in %d bytes", len(ids), list.undecodable, len(body))
			}
		}
		want := auditv1.EventList{}
		if json.Unmarshal(body, &want) != nil || !errors.Is(err, io.EOF) || list.undecodable > 0 {
			return
		}
		if len(want.Items) != len(ids) {
			t.Fatalf("read %d events, want %d", len(ids), len(want.Items))
		}
		for i, event := range want.Items {
			if string(event.AuditID) != ids[i] {
				t.Errorf("event %d is %q, want %q", i, ids[i], event.AuditID)
			}
		}
	})
}
