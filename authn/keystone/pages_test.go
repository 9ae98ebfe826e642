// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package keystone

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"reflect"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
)

// pagesOf serves the projects p0 to p(n-1) like Keystone 2025.1. A full page is truncated and has a
// link, even if it is the last page.
func pagesOf(f *fakeKeystone, n, size int) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		first := 0
		if marker := r.URL.Query().Get("marker"); marker != "" {
			if _, err := fmt.Sscanf(marker, "p%d", &first); err != nil {
				w.WriteHeader(http.StatusBadRequest)
				return
			}
			first++
		}
		var entries []string
		for i := first; i < min(first+size, n); i++ {
			entries = append(entries, fmt.Sprintf(`{"id":"p%d","name":"x","domain_id":"d1","enabled":true}`, i))
		}
		rest := `"links":{"next":null}`
		if len(entries) == size {
			rest = fmt.Sprintf(`"truncated":true,"links":{"next":"%s/v3/projects?limit=%d&marker=p%d"}`,
				f.URL, size, first+size-1)
		}
		_, _ = fmt.Fprintf(w, `{"projects":[%s],%s}`, strings.Join(entries, ","), rest)
	}
}

func TestPages(t *testing.T) {
	for _, n := range []int{1, 9, 10, 11, 20, 105} {
		f := newFake(t)
		f.handlers["projects"] = pagesOf(f, n, 10)
		got, err := unlimitedDirectory(t, f.URL).Read(t.Context())
		if err != nil || len(got.Projects) != n {
			t.Errorf("%d: %v, %v", n, got, err)
		}
		if want := int64(4 + n/10 + 1); f.requests.Load() != want {
			t.Errorf("%d: %d requests, want %d", n, f.requests.Load(), want)
		}
		f.Close()
	}
}

// TestLinks checks that the token is sent only to the address of the list.
func TestLinks(t *testing.T) {
	var stolen atomic.Int64
	attacker := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { stolen.Add(1) }))
	defer attacker.Close()
	f := newFake(t)
	d := unlimitedDirectory(t, f.URL)
	host := strings.TrimPrefix(f.URL, "http://")
	const last = `{"projects":[{"id":"p","name":"x","domain_id":"d1","enabled":true}],"links":{"next":null}}`
	for link, ok := range map[string]bool{
		f.URL + "/v3/projects?marker=a":                   true,
		"/v3/projects?marker=a":                           true,
		"?marker=a":                                       true,
		"HTTP://" + host + "/v3/projects?marker=a":        true,
		attacker.URL + "/v3/projects?marker=a":            false,
		"//" + attacker.URL[len("http://"):] + "?marker=": false,
		"https://" + host + "/v3/projects?marker=a":       false,
		"http://user@" + host + "/v3/projects?marker=a":   false,
		"http://" + host + "@evil/v3/projects?marker=a":   false,
		"http://" + host + ".evil/v3/projects?marker=a":   false,
		f.URL + "/v3/domains?marker=a":                    false,
		f.URL + "/v3/projects/?marker=a":                  false,
		f.URL + "/v3/projects/../auth/tokens?marker=a":    false,
		f.URL + "/v3/projects":                            false,
		"":                                                false,
		"file:///v3/projects?marker=a":                    false,
		"mailto:a?b":                                      false,
		"http://[::1/v3/projects?marker=a":                false,
		f.URL + "/v3/projects?a\\nb: c":                   false, // a newline in JSON
	} {
		t.Run(link, func(t *testing.T) {
			f.set(func() {
				f.handlers["projects"] = func(w http.ResponseWriter, r *http.Request) {
					if r.URL.Query().Get("marker") == "a" {
						_, _ = io.WriteString(w, last)
						return
					}
					_, _ = fmt.Fprintf(w, `{"projects":[],"links":{"next":"%s"}}`, link)
				}
			})
			if ok {
				if _, err := d.Read(t.Context()); err != nil {
					t.Errorf("%v", err)
				}
				return
			}
			expectReadError(t, link, d, ErrIncomplete, "another address")
		})
	}
	f.set(func() {
		f.handlers["projects"] = func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, attacker.URL+"/v3/projects", http.StatusFound)
		}
	})
	expectReadError(t, "a redirect", d, ErrIncomplete, "redirect")
	if stolen.Load() != 0 {
		t.Errorf("%d requests to another server", stolen.Load())
	}
}

func TestOrigins(t *testing.T) {
	for name, c := range map[string]struct {
		a, b string
		same bool
	}{
		"the default port of HTTPS":                {"https://keystone", "https://keystone:443", true},
		"the default port of HTTP, and upper case": {"http://keystone", "http://Keystone:80", true},
		"an IPv6 address":                          {"http://[::1]:80", "http://[::1]", true},
		"another scheme":                           {"http://keystone", "https://keystone", false},
		"another scheme with the same port":        {"http://keystone:443", "https://keystone", false},
		"another port":                             {"https://keystone:5000", "https://keystone", false},
	} {
		t.Run(name, func(t *testing.T) {
			a, errA := url.Parse(c.a)
			b, errB := url.Parse(c.b)
			if errA != nil || errB != nil || (origin(a) == origin(b)) != c.same {
				t.Errorf("%s and %s: %t", c.a, c.b, !c.same)
			}
		})
	}
}

// TestEndlessPages checks that repeated links and too many pages cause an error.
func TestEndlessPages(t *testing.T) {
	next := func(query string) string {
		return `{"projects":[],"links":{"next":"/v3/projects?` + query + `"}}`
	}
	for name, c := range map[string]struct {
		handler http.HandlerFunc
		problem string
		pages   int64
	}{
		"the first page":     {text(next("limit=1000")), "repeats", 1},
		"the second page":    {text(next("marker=a")), "repeats", 2},
		"two in turn":        {nil, "repeats", 3},
		"a new link on each": {nil, "more than 2000 pages", maxPages - 4},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFake(t)
			var n atomic.Int64
			switch {
			case name == "two in turn":
				c.handler = func(w http.ResponseWriter, r *http.Request) { text(next(fmt.Sprintf("marker=%d", n.Add(1)%2)))(w, r) }
			case c.handler == nil:
				c.handler = func(w http.ResponseWriter, r *http.Request) { text(next(fmt.Sprintf("marker=%d", n.Add(1))))(w, r) }
			}
			f.handlers["projects"] = c.handler
			expectReadError(t, name, unlimitedDirectory(t, f.URL), ErrIncomplete, c.problem)
			if want := 2 * (4 + c.pages); f.requests.Load() != want {
				t.Errorf("%d requests, want %d", f.requests.Load(), want)
			}
			f.Close()
		})
	}
}

// TestChangesBetweenPages checks that a project with two different entries and a deleted marker
// are errors.
func TestChangesBetweenPages(t *testing.T) {
	f := newFake(t)
	d := unlimitedDirectory(t, f.URL)
	first := text(`{"projects":[{"id":"p1","name":"web","domain_id":"d1","enabled":true}],
		"links":{"next":"/v3/projects?marker=p1"}}`)
	for name, c := range map[string]struct {
		second  http.HandlerFunc
		problem string
	}{
		"400":            {status(http.StatusBadRequest), "400"},
		"404":            {status(http.StatusNotFound), "404"},
		"another entry":  {text(`{"projects":[{"id":"p1","name":"web","domain_id":"d2","enabled":true}]}`), "two different"},
		"the same entry": {text(`{"projects":[{"id":"p1","name":"web","domain_id":"d1","enabled":true}]}`), ""},
	} {
		t.Run(name, func(t *testing.T) {
			f.set(func() {
				f.handlers["projects"] = func(w http.ResponseWriter, r *http.Request) {
					if r.URL.Query().Has("marker") {
						c.second(w, r)
						return
					}
					first(w, r)
				}
			})
			if c.problem != "" {
				expectReadError(t, name, d, ErrIncomplete, c.problem)
				return
			}
			if got, err := d.Read(t.Context()); err != nil || len(got.Projects) != 1 {
				t.Errorf("%v, %v", got, err)
			}
		})
	}
}

// TestSizeLimits checks the size limits. It tests the real limit only with a declared length,
// because a server with the race detector is too slow for so many bytes.
func TestSizeLimits(t *testing.T) {
	f := newFake(t)
	body := smallLists()["projects"]
	d := unlimitedDirectory(t, f.URL)
	f.handlers["projects"] = func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", strconv.Itoa(maxPageBytes+1))
	}
	expectReadError(t, "one byte too large, as Content-Length", d, ErrIncomplete, "a page has more than 67108864 bytes")

	const limit = 1 << 16
	small, err := newBoundedService([]byte(testCloud), "kube", f.URL, bounds{limit, pageTimeout})
	if err != nil {
		t.Fatal(err)
	}
	d.service = func() *service { return small }
	pad := func(size int) string { return body + strings.Repeat(" ", size-len(body)) }
	f.set(func() { f.handlers["projects"] = text(pad(limit)) })
	if got, err := d.Read(t.Context()); err != nil || !reflect.DeepEqual(got, smallContents()) {
		t.Errorf("a page of %d bytes: %v, %v", limit, got, err)
	}
	f.set(func() { f.handlers["projects"] = text(pad(limit + 1)) })
	expectReadError(t, "one byte too large", d, ErrIncomplete, "a page has more than 65536 bytes")
}

// TestPassLimits checks the limits of a pass. The pass is close to a limit before the last page.
func TestPassLimits(t *testing.T) {
	f := newFake(t)
	body := smallLists()["projects"]
	for name, c := range map[string]struct {
		bytes, entries int
		problem        string
	}{
		"maximum bytes":      {bytes: maxPassBytes - len(body)},
		"one byte too many":  {bytes: maxPassBytes - len(body) + 1, problem: "the lists have more than 134217728 bytes"},
		"maximum entries":    {entries: maxEntries - 3},
		"one entry too many": {entries: maxEntries - 2, problem: "more than 500000 entries"},
		"no entry is left":   {entries: maxEntries, problem: "more than 500000 entries"},
	} {
		t.Run(name, func(t *testing.T) {
			d := unlimitedDirectory(t, f.URL)
			p := &pass{
				service: d.service(),
				limiter: d.limiter,
				bytes:   c.bytes,
				entries: c.entries,
			}
			err := readList(t.Context(), p, "projects", pageQuery, func(*projectEntry) error { return nil })
			if c.problem == "" && err != nil ||
				c.problem != "" && (!errors.Is(err, ErrIncomplete) || !strings.Contains(err.Error(), c.problem)) {
				t.Errorf("%v; want %q", err, c.problem)
			}
		})
	}
	implied := strings.TrimSuffix(strings.Repeat(`{"id":"r2"},`, 10), ",")
	f.handlers["role_inferences"] = text(`{"role_inferences":[{"prior_role":{"id":"r1"},"implies":[` + implied + `]}]}`)
	if got, err := unlimitedDirectory(t, f.URL).Read(t.Context()); err != nil || len(got.Implied) != 1 {
		t.Errorf("the same implication ten times: %v, %v", got, err)
	}
}

// FuzzReadPage reads arbitrary bytes as pages of projects and assignments. A truncated page must
// not be complete.
func FuzzReadPage(f *testing.F) {
	for _, body := range smallLists() {
		f.Add([]byte(body), uint(len(body)/2))
	}
	f.Add([]byte(`{"projects":[],"links":{"next":"/v3/projects?marker=a"},"truncated":true}`), uint(1))
	f.Add([]byte(`{"projects":[{"a":"\\","b":"\"NaN",`+"\"c\":-Infinity}]}"), uint(9))
	s, err := newService([]byte("clouds: { kube: { auth: { username: u, password: p, user_domain_name: Default } } }"),
		"kube", "http://keystone:5000")
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, data []byte, cut uint) {
		filtered, err := io.ReadAll(newFiniteReader(bytes.NewReader(data)))
		if err != nil {
			t.Fatal(err)
		}
		c := newCollection()
		c.domains["d1"] = Domain{ID: "d1"}
		projects, next, err := decodePage[projectEntry](filtered, "projects")
		if err == nil {
			for i := range projects {
				_ = c.addProject(&projects[i])
			}
			valid := c.checkTree() == nil
			for _, p := range c.Projects {
				if p.ID == "" || p.Name == "" || valid && p.DomainID != "d1" {
					t.Errorf("an invalid project: %+v", p)
				}
			}
			if next != nil {
				_, _ = (&pass{service: s}).nextQuery("projects", *next)
			}
			part := bytes.TrimRight(filtered, " \t\r\n")
			part = part[:cut%uint(len(part))]
			if _, _, err := decodePage[projectEntry](part, "projects"); err == nil {
				t.Errorf("a cut page is complete: %q", part)
			}
		}
		assignments, _, err := decodePage[assignmentEntry](filtered, "role_assignments")
		if err == nil {
			for i := range assignments {
				_ = c.addAssignment(&assignments[i])
			}
		}
		for _, a := range c.Assignments {
			if a.RoleID == "" || (a.ProjectID == "") == (a.DomainID == "") {
				t.Errorf("an invalid assignment: %+v", a)
			}
		}
	})
}
