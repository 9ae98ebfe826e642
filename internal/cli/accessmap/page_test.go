// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package accessmap_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kubetenant/kubetenant/internal/cli/accessmap"
)

// TestHostileNames checks that object names never change the markup of the page, and that the
// page's data contains them unchanged.
func TestHostileNames(t *testing.T) {
	page := func(name string) (markup string) {
		m := &accessmap.Map{
			Cluster:    "c",
			Made:       time.Date(2026, time.January, 2, 3, 4, 5, 0, time.UTC),
			Groups:     []accessmap.Group{{Name: "secrets", Resources: []string{"secrets"}}},
			Identities: []accessmap.Subject{{Kind: "User", Name: name, Tenant: "acme"}},
			Namespaces: []accessmap.Namespace{{Name: name, Owner: "acme"}},
			Cells:      []accessmap.Cell{{Access: accessmap.Read, Why: accessmap.Own}},
			Reasons:    []string{name},
		}
		var out bytes.Buffer
		if err := m.WriteHTML(&out); err != nil {
			t.Fatal(err)
		}
		before, rest, found := strings.Cut(out.String(), `<script type="application/json" id="data">`)
		data, after, ends := strings.Cut(rest, "</script>")
		read := &accessmap.Map{}
		if err := json.Unmarshal([]byte(data), read); err != nil || !found || !ends {
			t.Fatalf("%q: %v in %s", name, err, data)
		}
		if diff := cmp.Diff(m, read); diff != "" {
			t.Errorf("%q in the page (-want +got):\n%s", name, diff)
		}
		return before + after
	}
	want := page("alice")
	for _, name := range []string{
		"<img src=x onerror=alert(1)>", "</script><script>alert(1)</script>", "<!--<script>", `"'&\`, "{{.}}",
		"\u2028</SCRIPT >", "${alert(1)}`",
	} {
		if got := page(name); got != want {
			t.Errorf("%q is in the markup:\n%s", name, cmp.Diff(want, got))
		}
	}
}

// TestHostileCluster checks that the cluster's name is escaped in the page's title and heading.
func TestHostileCluster(t *testing.T) {
	var out bytes.Buffer
	if err := (&accessmap.Map{Cluster: "</title><script>alert(1)</script>"}).WriteHTML(&out); err != nil {
		t.Fatal(err)
	}
	if text := out.String(); strings.Contains(text, "<script>alert") ||
		strings.Count(text, "&lt;/title&gt;&lt;script&gt;alert(1)&lt;/script&gt;") != 2 {
		t.Errorf("%s", text)
	}
}

// TestPageLoadsNoOtherFile checks that the page's Content-Security-Policy forbids all other
// content, and that the page refers to no other file.
func TestPageLoadsNoOtherFile(t *testing.T) {
	var out bytes.Buffer
	if err := (&accessmap.Map{}).WriteHTML(&out); err != nil {
		t.Fatal(err)
	}
	page := out.String()
	if !strings.Contains(page, `http-equiv="Content-Security-Policy" content="default-src 'none';`) {
		t.Error("the Content-Security-Policy does not forbid all content")
	}
	for _, bad := range []string{" src=", "http://", "https://", "@import", "url(", "<link"} {
		if strings.Contains(page, bad) {
			t.Errorf("%s in the page", bad)
		}
	}
}
