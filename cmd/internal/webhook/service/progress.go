package service

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"
	"time"
)

// progress notes when the lists and watches of a client last brought something: events, bookmarks, or the
// answer itself. A connection that hangs, or a server that is away, brings nothing. Safe for concurrent
// use.
type progress struct {
	now func() time.Time

	mu   sync.Mutex
	last map[string]time.Time // by path
}

func newProgress(now func() time.Time) *progress {
	return &progress{now: now, last: map[string]time.Time{}}
}

func (p *progress) note(path string) {
	now := p.now()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.last[path] = now
}

// expect begins the time in which something must come.
func (p *progress) expect(path string) {
	now := p.now()
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, known := p.last[path]; !known {
		p.last[path] = now
	}
}

// silent returns what has brought nothing for a time, as an error; nil where nothing is.
func (p *progress) silent(after time.Duration) error {
	now := p.now()
	p.mu.Lock()
	defer p.mu.Unlock()
	var paths []string
	for path, last := range p.last {
		if now.Sub(last) > after {
			paths = append(paths, path)
		}
	}
	if paths == nil {
		return nil
	}
	slices.Sort(paths)
	return fmt.Errorf("nothing heard for %v of %v", after, paths)
}

// wrap is the client's transport that notes.
func (p *progress) wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		if r.URL.Query().Get("watch") == "" {
			return next.RoundTrip(r)
		}
		p.expect(r.URL.Path)
		resp, err := next.RoundTrip(r)
		if err != nil || resp.StatusCode != http.StatusOK {
			return resp, err
		}
		p.note(r.URL.Path)
		resp.Body = &noting{resp.Body, func() { p.note(r.URL.Path) }}
		return resp, nil
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// noting notes each read that brings something.
type noting struct {
	io.ReadCloser
	note func()
}

func (n *noting) Read(b []byte) (int, error) {
	count, err := n.ReadCloser.Read(b)
	if count > 0 {
		n.note()
	}
	return count, err
}
