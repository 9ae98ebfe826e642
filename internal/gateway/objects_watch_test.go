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

// viewWatch reads the events of a watch of a view.
type viewWatch struct {
	t    testing.TB
	s    *trackerServer
	resp *http.Response
	dec  *json.Decoder
}

func (w *fixture) watchTrackers(s *trackerServer, query string) *viewWatch {
	w.t.Helper()
	resp := w.open(w.t.Context(), "alice-token", http.MethodGet, trackersPath+"?watch=1"+query, "")
	w.t.Cleanup(func() { _ = resp.Body.Close() })
	if resp.StatusCode != http.StatusOK {
		w.t.Fatal(resp.Status)
	}
	return &viewWatch{w.t, s, resp, json.NewDecoder(resp.Body)}
}

// next fails the test unless the next event has the type and is about the object.
func (w *viewWatch) next(what, name, contains string) {
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

func (s *trackerServer) sendEvent(what, object string) {
	s.events <- fmt.Sprintf(`{"type":%q,"object":%s}`, what, object) + "\n"
}

// TestObjectViewWatch checks that a watch reports the objects of the namespace, changes of the
// part that the view shows, and objects that leave the namespace.
func TestObjectViewWatch(t *testing.T) {
	t.Parallel()
	w, _, s := newTrackerFixture(t, "")
	got := w.watchTrackers(s, "&allowWatchBookmarks=true&timeoutSeconds=300")
	got.next("ADDED", "shared", `"resourceVersion":"8"`)
	got.next("ADDED", "shop", "secret-of-acme--web")
	if paths := s.requests(); len(paths) != 2 || paths[0] != "?" ||
		paths[1] != "?allowWatchBookmarks=true&resourceVersion=100&timeoutSeconds=300&watch=true" {
		t.Errorf("the cluster received %v", paths)
	}
	s.sendEvent("MODIFIED", trackerOf("theirs", "101", "globex--shop"))                         // another tenant's object
	s.sendEvent("MODIFIED", trackerOf("shop", "102", "acme--web", "globex--x", "globex--shop")) // another tenant's part
	s.sendEvent("DELETED", trackerOf("theirs", "103", "globex--shop"))
	s.sendEvent("ADDED", trackerOf("theirs", "104", "globex--shop"))
	s.sendEvent("BOOKMARK", `{"kind":"ResourceTracker","metadata":{"resourceVersion":"105","name":"theirs"}}`)
	got.next("BOOKMARK", "", `{"apiVersion":"gateway.kubetenant.dev/v1alpha1","kind":"Trackers","metadata":`+
		`{"resourceVersion":"105"}}`)
	s.sendEvent("MODIFIED", trackerOf("shop", "106", "acme--web", "acme--web"))
	got.next("MODIFIED", "shop", `"resourceVersion":"106"`)
	s.sendEvent("MODIFIED", trackerOf("shop", "107", "globex--shop"))
	got.next("DELETED", "shop", `{"apiVersion":"gateway.kubetenant.dev/v1alpha1","kind":"Trackers","metadata":`+
		`{"name":"shop","namespace":"acme--web","resourceVersion":"107"}}`)
	s.sendEvent("DELETED", trackerOf("shop", "108", "globex--shop")) // the caller does not have this object
	s.sendEvent("MODIFIED", trackerOf("shop", "109", "acme--web"))
	got.next("ADDED", "shop", `"resourceVersion":"109"`)
	s.sendEvent("DELETED", trackerOf("shared", "110", "acme--web", "globex--shop"))
	got.next("DELETED", "shared", `{"name":"shared","namespace":"acme--web","resourceVersion":"110"}}`)
	s.sendEvent("MODIFIED", `{"metadata":{"name":"shop","resourceVersion":"111"},"spec":"acme--web"}`) // malformed spec
	got.next("DELETED", "shop", "")
	s.sendEvent("ERROR", `{"kind":"Status","code":410,"message":"CANARY globex"}`)
	got.next("ERROR", "", `"reason":"Expired"`)
	if rest, err := io.ReadAll(got.resp.Body); err != nil || len(rest) > 0 {
		t.Errorf("after the error: %s, %v", rest, err)
	}
}

// TestObjectViewWatchFrom checks that a watch from a resource version sends no initial objects.
// If an object of the namespace at that version leaves the namespace, the watch sends a deletion.
// Invalid events end a watch.
func TestObjectViewWatchFrom(t *testing.T) {
	t.Parallel()
	w, _, s := newTrackerFixture(t, "")
	got := w.watchTrackers(s, "&resourceVersion=50&fieldSelector=metadata.name%3Dshop")
	s.sendEvent("MODIFIED", trackerOf("shared", "100", "acme--web", "acme--web"))
	s.sendEvent("BOOKMARK", `{"kind":"ResourceTracker","metadata":{"resourceVersion":"101"}}`)
	s.sendEvent("MODIFIED", trackerOf("shop", "102", "globex--shop"))
	got.next("DELETED", "shop", "")
	if paths := s.requests(); len(paths) != 2 || paths[0] != "?resourceVersion=50&resourceVersionMatch=Exact" ||
		paths[1] != "?allowWatchBookmarks=false&resourceVersion=50&watch=true" {
		t.Errorf("the cluster received %v", paths)
	}
	s.sendEvent("MODIFIED", `"theirs"`)
	if rest, err := io.ReadAll(got.resp.Body); err != nil || len(rest) > 0 {
		t.Errorf("after an invalid event: %s, %v", rest, err)
	}
	got = w.watchTrackers(s, "&labelSelector=hidden%3Dyes")
	s.sendEvent("MODIFIED", trackerOf("shop", "103", "acme--web"))
	s.sendEvent("LAPSED", trackerOf("theirs", "104", "globex--shop"))
	got.next("ERROR", "", `"code":500`)
}

// TestViewWatchesEndWithTheirRights checks that a watch ends when its caller is revoked, and when
// the namespace gets another owner or the view changes.
func TestViewWatchesEndWithTheirRights(t *testing.T) {
	t.Parallel()
	for what, change := range map[string]func(w *fixture, c *fakeCluster){
		"a revocation": func(w *fixture, _ *fakeCluster) {
			w.write("revoked.yaml", noRevocations+"users: [ { tenant: acme, name: alice } ]\n")
		},
		"another owner": func(_ *fixture, c *fakeCluster) { c.setOwner("acme--web", "globex") },
		"another view": func(w *fixture, _ *fakeCluster) {
			w.write("tenancy.yaml", configHeader+clusterEntry("eu1", "")+
				strings.Replace(trackerViews, "      - spec.type\n", "", 1))
		},
		"no view at all": func(w *fixture, _ *fakeCluster) { w.write("tenancy.yaml", configHeader+clusterEntry("eu1", "")) },
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			w, c, s := newTrackerFixture(t, "")
			got := w.watchTrackers(s, "")
			got.next("ADDED", "shared", "")
			ended := streamEnd(got.resp)
			if !isActive(ended) {
				t.Fatal("the watch ended before the change")
			}
			change(w, c)
			<-ended
		})
	}
}
