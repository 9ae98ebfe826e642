package service

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
)

// TestProgress: a watch counts as heard of while it brings something, bookmarks included, and no longer.
func TestProgress(t *testing.T) {
	now := time.Unix(0, 0)
	p := newProgress(func() time.Time { return now })
	reader, writer := io.Pipe()
	code := http.StatusOK
	transport := p.wrap(roundTripper(func(*http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: code, Body: reader}, nil
	}))
	send := func(url string) *http.Response {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := transport.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		return resp
	}
	const watch = "https://server/api/v1/namespaces?watch=true"
	_ = send("https://server/api/v1/nodes") // no watch: nothing is expected of it
	body := send(watch).Body
	check := func(when string, silent bool) {
		t.Helper()
		if err := p.silent(time.Minute); (err != nil) != silent || err != nil && !strings.Contains(err.Error(), "/api/v1/namespaces") {
			t.Errorf("%s: %v", when, err)
		}
	}
	check("at first", false)
	now = now.Add(61 * time.Second)
	check("after a minute of nothing", true)
	go func() { _, _ = writer.Write([]byte(`{"type":"BOOKMARK"}`)) }()
	if _, err := body.Read(make([]byte, 64)); err != nil {
		t.Fatal(err)
	}
	check("after a bookmark", false)
	now = now.Add(61 * time.Second)
	code = http.StatusForbidden
	_ = send(watch)
	check("a watch that is refused", true)
	code = http.StatusOK
	_ = send(watch)
	check("a watch that begins anew", false)
	_ = writer.Close()
	now = now.Add(61 * time.Second)
	if _, err := body.Read(make([]byte, 1)); err != io.EOF {
		t.Fatal(err)
	}
	check("its end is no news", true)
}
