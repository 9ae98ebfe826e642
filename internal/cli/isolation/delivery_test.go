// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package isolation

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/kubetenant/kubetenant/internal/cli/installation"
)

// outcomeCounts returns the number of requests with each outcome.
func outcomeCounts(m *matrix) [6]int {
	var n [6]int
	for _, o := range columns {
		n[o] = m.report.Total(o)
	}
	return n
}

// TestListsDeliver checks that an object of another tenant in any media type and on any page is
// a leak. A list without the object of the caller's tenant is a finding. A media type that the
// server does not support is not a finding.
func TestListsDeliver(t *testing.T) {
	const own, foreign = "canary-of-a", "canary-of-b"
	for _, form := range forms {
		pages := strings.HasPrefix(form, "application/json")
		times := func(n int) int { // lists are also read in pages
			if pages {
				return 2 * n
			}
			return n
		}
		for name, c := range map[string]struct {
			code int
			body string
			want [6]int
		}{
			"own object":                 {200, own, [6]int{Limited: times(1)}},
			"objects of both tenants":    {200, own + foreign, [6]int{Leaked: times(1)}},
			"object of the other tenant": {200, "\x00" + foreign + "\x00", [6]int{Leaked: times(1)}},
			"empty response":             {200, "", [6]int{Refused: 1, Limited: times(1) - 1}},
			"denied":                     {403, deniedText, [6]int{Refused: 1}},
			"throttled":                  {429, "", [6]int{Untested: 1}},
			"server error":               {503, own, [6]int{Untested: 1}},
			"403 without a Status":       {403, "go away", [6]int{Untested: 1}},
			"unsupported media type":     {406, foreign, [6]int{}},
		} {
			t.Run(name, func(t *testing.T) {
				m, caller := testMatrix(t, func(w http.ResponseWriter, r *http.Request) {
					if r.Header.Get("Accept") != form {
						t.Errorf("accepts %q; want %q", r.Header.Get("Accept"), form)
					}
					respondAlways(c.code, c.body)(w, r)
				})
				if err := m.tryList(t.Context(), caller, "/api/v1/secrets", form); err != nil {
					t.Fatal(err)
				}
				if got := outcomeCounts(m); got != c.want {
					t.Errorf("%s as %s: %v; want %v", name, form, got, c.want)
				}
			})
		}
	}
}

// TestLastPage checks that lists are read to their last page.
func TestLastPage(t *testing.T) {
	m, caller := testMatrix(t, func(w http.ResponseWriter, r *http.Request) {
		body := `{"metadata":{},"items":["canary-of-a"]}`
		switch q := r.URL.Query(); {
		case q.Get("limit") == "1" && q.Get("continue") == "":
			body = `{"metadata":{"continue":"2"},"items":["canary-of-a"]}`
		case q.Get("continue") == "2":
			body = `{"metadata":{},"items":["canary-of-b"]}`
		}
		respondAlways(http.StatusOK, body)(w, r)
	})
	if err := m.tryList(t.Context(), caller, "/api/v1/secrets", forms[0]); err != nil {
		t.Fatal(err)
	}
	if got, want := outcomeCounts(m), ([6]int{Limited: 1, Leaked: 1}); got != want {
		t.Errorf("%v; want %v", got, want)
	}
}

// feed is a fake cluster that sends each object that the admin creates to all watches.
type feed struct {
	mu      sync.Mutex
	watches []chan string
}

// serve returns a handler that sends the names of objects to a watch if passes returns true for
// them. The watch ends at an object whose name contains last.
func (f *feed) serve(passes func(name string) bool, last string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		names := make(chan string, 10)
		f.mu.Lock()
		f.watches = append(f.watches, names)
		f.mu.Unlock()
		w.WriteHeader(http.StatusOK)
		_ = http.NewResponseController(w).Flush()
		for {
			select {
			case name := <-names:
				if passes(name) {
					_, _ = fmt.Fprintln(w, name)
					_ = http.NewResponseController(w).Flush()
				}
				if strings.Contains(name, last) {
					return
				}
			case <-r.Context().Done():
				return
			}
		}
	}
}

// admin returns a client for the admin. Objects that it creates are sent to the watches.
func (f *feed) admin() *fake.Clientset {
	k := fake.NewClientset()
	k.PrependReactor("create", "*", func(a clienttesting.Action) (bool, runtime.Object, error) {
		if object, err := meta.Accessor(a.(clienttesting.CreateAction).GetObject()); err == nil &&
			a.GetResource().Resource != "namespaces" {
			f.mu.Lock()
			defer f.mu.Unlock()
			for _, watch := range f.watches {
				watch <- object.GetName()
			}
		}
		return false, nil, nil
	})
	return k
}

// matchOwn, matchAll and matchNone select the objects that a watch delivers.
func matchOwn(name string) bool { return strings.HasPrefix(name, "canary-of-a") }
func matchAll(string) bool      { return true }
func matchNone(string) bool     { return false }

// TestWatchesDeliver checks that an object of the other tenant on a watch is a leak. If the
// object of the caller's tenant does not arrive, the watch is recorded as not tested.
func TestWatchesDeliver(t *testing.T) {
	for name, c := range map[string]struct {
		passes func(string) bool
		want   [6]int
	}{
		"own objects":             {matchOwn, [6]int{Limited: 1}},
		"objects of both tenants": {matchAll, [6]int{Leaked: 1}},
		"no objects":              {matchNone, [6]int{Untested: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			for _, path := range []string{"/api/v1/configmaps", "/api/v1/secrets"} {
				f := &feed{}
				m, caller := testMatrix(t, f.serve(c.passes, "canary-of-a"))
				m.fixture.admin = f.admin()
				if err := m.tryWatch(t.Context(), caller, path); err != nil {
					t.Fatal(err)
				}
				if got := outcomeCounts(m); got != c.want {
					t.Errorf("%s on %s: %v; want %v", name, path, got, c.want)
				}
			}
		})
	}
	m, caller := testMatrix(t, respondAlways(http.StatusForbidden, deniedText))
	if err := m.tryWatch(t.Context(), caller, "/api/v1/secrets"); err != nil || m.report.found(Untested) != 1 ||
		!strings.Contains(m.report.Findings[0].Example, "403") {
		t.Errorf("denied watch: %v, %+v", err, m.report.Findings)
	}
}

// TestRecreation checks that a watch is a leak if it delivers objects after its namespace was
// recreated for another tenant. In webhook mode, only watches over all namespaces are checked,
// because a webhook cannot end a watch in one namespace.
func TestRecreation(t *testing.T) {
	for name, c := range map[string]struct {
		passes func(string) bool
		mode   installation.Mode
		want   [6]int
	}{
		"own objects":             {matchOwn, installation.CompiledIn, [6]int{Limited: 2}},
		"objects of both tenants": {matchAll, installation.CompiledIn, [6]int{Leaked: 2}},
		"webhook mode":            {matchAll, installation.Webhook, [6]int{Leaked: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			f := &feed{}
			m, user := testMatrix(t, f.serve(c.passes, "canary-of-a-reborn"))
			m.fixture.admin, m.fixture.objects, m.fixture.mode, m.fixture.callers = f.admin(), quotas(), c.mode,
				[]*caller{user, {name: callerNoTenant, own: -1}}
			if err := m.tryRecreation(t.Context(), nil); err != nil {
				t.Fatal(err)
			}
			if got := outcomeCounts(m); got != c.want {
				t.Errorf("%v; want %v", got, c.want)
			}
			ns, err := m.fixture.admin.CoreV1().Namespaces().Get(t.Context(), "a-reborn", metav1.GetOptions{})
			if err != nil || ns.Labels["kubetenant.dev/tenant"] != "b" {
				t.Errorf("recreated namespace: %+v, %v", ns, err)
			}
			if err := m.fixture.deleteAll(t.Context()); err != nil {
				t.Error(err)
			}
			if all, err := m.fixture.admin.CoreV1().Namespaces().List(t.Context(), metav1.ListOptions{}); err != nil ||
				len(all.Items) > 0 {
				t.Errorf("%d namespaces remain, %v", len(all.Items), err)
			}
		})
	}
}

// TestCreateObject checks that createObject creates an object of the resource in the path.
func TestCreateObject(t *testing.T) {
	w := &fixture{admin: fake.NewClientset()}
	for path, exists := range map[string]func(context.Context, string) error{
		"/api/v1/secrets": func(ctx context.Context, name string) error {
			_, err := w.admin.CoreV1().Secrets("n").Get(ctx, name, metav1.GetOptions{})
			return err
		},
		"/api/v1/configmaps": func(ctx context.Context, name string) error {
			_, err := w.admin.CoreV1().ConfigMaps("n").Get(ctx, name, metav1.GetOptions{})
			return err
		},
	} {
		t.Run(path, func(t *testing.T) {
			if err := w.createObject(t.Context(), path, "n", "x"); err != nil {
				t.Fatal(err)
			}
			if err := exists(t.Context(), "x"); err != nil {
				t.Errorf("%v", err)
			}
		})
	}
}
