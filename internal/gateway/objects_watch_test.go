// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package gateway_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
)

// watched reads the events of a watch of a view.
type watched struct {
	t    testing.TB
	s    *source
	resp *http.Response
	dec  *json.Decoder
}

func (w *world) watchTrackers(s *source, query string) *watched {
	w.t.Helper()
	resp := w.open(w.t.Context(), "alice-token", http.MethodGet, trackersPath+"?watch=1"+query, "")
	w.t.Cleanup(func() { _ = resp.Body.Close() })
	if resp.StatusCode != http.StatusOK {
		w.t.Fatal(resp.Status)
	}
	return &watched{w.t, s, resp, json.NewDecoder(resp.Body)}
}

// next fails the test unless the next event has the type and is about the object.
func (w *watched) next(what, name, contains string) {
	w.t.Helper()
	var e struct {
		Type   string
		Object json.RawMessage
	}
	if err := w.dec.Decode(&e); err != nil {
		w.t.Fatalf("%s %s: %v", what, name, err)
	}
	text := string(e.Object)
	if e.Type != what || name != "" && !strings.Contains(text, `"name":"`+name+`"`) || !strings.Contains(text, contains) ||
		strings.Contains(text, "globex") || strings.Contains(text, "CANARY") || strings.Contains(text, "theirs") {
		w.t.Fatalf("%s %s, want %s %s %s", e.Type, text, what, name, contains)
	}
}

func (s *source) tell(what, object string) {
	s.events <- fmt.Sprintf(`{"type":%q,"object":%s}`, what, object) + "\n"
}

// TestObjectViewWatch checks that a watch reports the objects of the namespace, changes of the part
// that the view shows, and objects that leave.
func TestObjectViewWatch(t *testing.T) {
	t.Parallel()
	w, _, s := tracked(t, "")
	got := w.watchTrackers(s, "&allowWatchBookmarks=true&timeoutSeconds=300")
	got.next("ADDED", "shared", `"resourceVersion":"8"`)
	got.next("ADDED", "shop", "secret-of-acme--web")
	if asked := s.requests(); len(asked) != 2 || asked[0] != "?" ||
		asked[1] != "?allowWatchBookmarks=true&resourceVersion=100&timeoutSeconds=300&watch=true" {
		t.Errorf("the cluster was asked %v", asked)
	}
	s.tell("MODIFIED", trackerOf("theirs", "101", "globex--shop"))                         // another tenant's object
	s.tell("MODIFIED", trackerOf("shop", "102", "acme--web", "globex--x", "globex--shop")) // another tenant's part
	s.tell("DELETED", trackerOf("theirs", "103", "globex--shop"))
	s.tell("ADDED", trackerOf("theirs", "104", "globex--shop"))
	s.tell("BOOKMARK", `{"kind":"ResourceTracker","metadata":{"resourceVersion":"105","name":"theirs"}}`)
	got.next("BOOKMARK", "", `{"apiVersion":"gateway.kubetenant.dev/v1alpha1","kind":"Trackers","metadata":`+
		`{"resourceVersion":"105"}}`)
	s.tell("MODIFIED", trackerOf("shop", "106", "acme--web", "acme--web"))
	got.next("MODIFIED", "shop", `"resourceVersion":"106"`)
	s.tell("MODIFIED", trackerOf("shop", "107", "globex--shop"))
	got.next("DELETED", "shop", `{"apiVersion":"gateway.kubetenant.dev/v1alpha1","kind":"Trackers","metadata":`+
		`{"name":"shop","namespace":"acme--web","resourceVersion":"107"}}`)
	s.tell("DELETED", trackerOf("shop", "108", "globex--shop")) // the caller does not have this object
	s.tell("MODIFIED", trackerOf("shop", "109", "acme--web"))
	got.next("ADDED", "shop", `"resourceVersion":"109"`)
	s.tell("DELETED", trackerOf("shared", "110", "acme--web", "globex--shop"))
	got.next("DELETED", "shared", `{"name":"shared","namespace":"acme--web","resourceVersion":"110"}}`)
	s.tell("MODIFIED", `{"metadata":{"name":"shop","resourceVersion":"111"},"spec":"acme--web"}`) // malformed spec
	got.next("DELETED", "shop", "")
	s.tell("ERROR", `{"kind":"Status","code":410,"message":"CANARY globex"}`)
	got.next("ERROR", "", `"reason":"Expired"`)
	if rest, err := io.ReadAll(got.resp.Body); err != nil || len(rest) > 0 {
		t.Errorf("after it: %s, %v", rest, err)
	}
}

// TestObjectViewWatchFrom checks that a watch from a resource version begins with the objects that
// the caller has at that version.
func TestObjectViewWatchFrom(t *testing.T) {
	t.Parallel()
	w, _, s := tracked(t, "")
	got := w.watchTrackers(s, "&resourceVersion=50&fieldSelector=metadata.name%3Dshop")
	s.tell("MODIFIED", trackerOf("shared", "100", "acme--web", "acme--web"))
	s.tell("BOOKMARK", `{"kind":"ResourceTracker","metadata":{"resourceVersion":"101"}}`)
	s.tell("MODIFIED", trackerOf("shop", "102", "globex--shop"))
	got.next("DELETED", "shop", "")
	if asked := s.requests(); len(asked) != 2 || asked[0] != "?resourceVersion=50&resourceVersionMatch=Exact" ||
		asked[1] != "?allowWatchBookmarks=false&resourceVersion=50&watch=true" {
		t.Errorf("the cluster was asked %v", asked)
	}
	s.tell("MODIFIED", `"theirs"`)
	if rest, err := io.ReadAll(got.resp.Body); err != nil || len(rest) > 0 {
		t.Errorf("after an event of another form: %s, %v", rest, err)
	}
	got = w.watchTrackers(s, "&labelSelector=hidden%3Dyes")
	s.tell("MODIFIED", trackerOf("shop", "103", "acme--web"))
	s.tell("LAPSED", trackerOf("theirs", "104", "globex--shop"))
	got.next("ERROR", "", `"code":500`)
}

// TestObjectViewSessions checks that a watch ends when its caller is revoked, and when the
// namespace or the view changes.
func TestObjectViewSessions(t *testing.T) {
	t.Parallel()
	for what, change := range map[string]func(w *world, c *standIn){
		"a revocation": func(w *world, _ *standIn) {
			w.write("revoked.yaml", noRevocations+"users: [ { tenant: acme, name: alice } ]\n")
		},
		"another owner": func(_ *world, c *standIn) { c.set("acme--web", "globex") },
		"another view": func(w *world, _ *standIn) {
			w.write("tenancy.yaml", header+entry("eu1", "")+strings.Replace(trackerViews, "      - spec.type\n", "", 1))
		},
		"no view at all": func(w *world, _ *standIn) { w.write("tenancy.yaml", header+entry("eu1", "")) },
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			w, c, s := tracked(t, "")
			got := w.watchTrackers(s, "")
			got.next("ADDED", "shared", "")
			ended := read(got.resp)
			if !goesOn(ended) {
				t.Fatal("it has ended")
			}
			change(w, c)
			<-ended
		})
	}
}
