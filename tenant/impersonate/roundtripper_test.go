// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package impersonate_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/impersonate"
)

// body is a request body that records whether it was closed.
type body struct {
	io.Reader
	closed bool
}

func (b *body) Close() error { b.closed = true; return nil }

var errUnavailable = errors.New("away")

// TestOwnerLookupsUseOwnIdentity checks that an OwnerFunc can use a client with the same round
// tripper. The lookup uses the controller's own identity in the controller's own cluster.
func TestOwnerLookupsUseOwnIdentity(t *testing.T) {
	i, err := impersonate.New(impersonate.Options{DefaultUser: "runner"})
	if err != nil {
		t.Fatal(err)
	}
	var requests []string
	next := roundTripper(func(r *http.Request) (*http.Response, error) {
		requests = append(requests, r.URL.Path+" as "+r.Header.Get("Impersonate-User"))
		return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}, nil
	})
	send := func(ctx context.Context, rt http.RoundTripper, path string) error {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://gateway"+path, http.NoBody)
		if err != nil {
			return err
		}
		resp, err := rt.RoundTrip(r)
		if err != nil {
			return err
		}
		return resp.Body.Close()
	}
	var rt http.RoundTripper
	depth := 0
	rt = i.RoundTripper(next, func(ctx context.Context, namespace string) (tenant.ID, error) {
		if depth++; depth > 1 {
			return tenant.ID{}, errors.New("the lookup calls itself")
		}
		id, err := tenant.Parse("acme")
		return id, errors.Join(err, send(ctx, rt, "/api/v1/namespaces/"+namespace))
	})
	if err := send(impersonate.WithCluster(impersonate.WithObject(t.Context(), recordedObject()), "eu1"),
		rt, "/api"); err != nil {
		t.Fatal(err)
	}
	if want := []string{"/api/v1/namespaces/acme--web as ", "/clusters/eu1/api as runner"}; !slices.Equal(requests, want) {
		t.Errorf("%q, want %q", requests, want)
	}
}

// TestRoundTripper checks that a request is sent with the identity in its context, and that a
// request without an identity is not sent.
func TestRoundTripper(t *testing.T) {
	i, err := impersonate.New(impersonate.Options{DefaultUser: "runner", WithUser: true, GroupPattern: "dev"})
	if err != nil {
		t.Fatal(err)
	}
	unrecorded := &metav1.ObjectMeta{Name: "web", Namespace: "acme--web", Labels: map[string]string{tenant.Label: "acme"}}
	otherOwner := &metav1.ObjectMeta{
		Name:        "web",
		Namespace:   "globex--shop",
		Labels:      map[string]string{tenant.Label: "acme"},
		Annotations: recordedObject().GetAnnotations(),
	}
	missingNamespace := &metav1.ObjectMeta{
		Name:        "web",
		Namespace:   "gone",
		Labels:      map[string]string{tenant.Label: "acme"},
		Annotations: recordedObject().GetAnnotations(),
	}
	system := &metav1.ObjectMeta{
		Name:        "web",
		Namespace:   "default",
		Labels:      map[string]string{tenant.Label: "acme"},
		Annotations: recordedObject().GetAnnotations(),
	}
	own, object := impersonate.WithOwnIdentity(t.Context()), impersonate.WithObject(t.Context(), recordedObject())
	for what, c := range map[string]struct {
		ctx  context.Context //nolint:containedctx // field of a test case
		err  error
		as   string
		path string
	}{
		"no identity":  {ctx: t.Context(), err: impersonate.ErrNoIdentity},
		"a nil object": {ctx: impersonate.WithObject(own, nil), err: impersonate.ErrNoIdentity},
		"a nil pointer": {
			ctx: impersonate.WithObject(own, (*metav1.ObjectMeta)(nil)),
			err: impersonate.ErrNoIdentity,
		},
		"no identity, a cluster": {ctx: impersonate.WithCluster(t.Context(), "eu1"), err: impersonate.ErrNoIdentity},
		"the own identity":       {ctx: own, path: "/api/v1/pods"},
		"an object":              {ctx: object, as: "alice", path: "/api/v1/pods"},
		"an object, a cluster": {
			ctx:  impersonate.WithCluster(object, "eu1"),
			as:   "alice",
			path: "/clusters/eu1/api/v1/pods",
		},
		"the own identity, a cluster": {ctx: impersonate.WithCluster(own, "us-1"), path: "/clusters/us-1/api/v1/pods"},
		"an object after the own identity": {
			ctx:  impersonate.WithObject(own, recordedObject()),
			as:   "alice",
			path: "/api/v1/pods",
		},
		"the own identity after an object": {ctx: impersonate.WithOwnIdentity(object), path: "/api/v1/pods"},
		"an object without a record":       {ctx: impersonate.WithObject(own, unrecorded), err: impersonate.ErrUnrecorded},
		"another owner":                    {ctx: impersonate.WithObject(own, otherOwner), err: impersonate.ErrMismatch},
		"the system tenant as the owner":   {ctx: impersonate.WithObject(own, system), err: impersonate.ErrMismatch},
		"a failed lookup of the owner":     {ctx: impersonate.WithObject(own, missingNamespace), err: errUnavailable},
		"an invalid cluster name":          {ctx: impersonate.WithCluster(own, "../eu1"), err: impersonate.ErrClusterName},
		"an empty cluster name":            {ctx: impersonate.WithCluster(own, ""), err: impersonate.ErrClusterName},
	} {
		t.Run(what, func(t *testing.T) {
			sent := 0
			rt := i.RoundTripper(roundTripper(func(r *http.Request) (*http.Response, error) {
				sent++
				if r.Header.Get("Impersonate-User") != c.as || r.URL.Path != c.path ||
					len(r.Header.Values("Impersonate-Group")) > 0 == (c.as == "") || r.Header.Get("X-Mine") != "y" {
					t.Errorf("%s as %v", r.URL, r.Header)
				}
				return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}, nil
			}), impersonate.OwnerByLabel(func(_ context.Context, name string) (*corev1.Namespace, error) {
				ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
				switch tenant, _, found := strings.Cut(name, "--"); {
				case found:
					ns.Labels = map[string]string{"kubetenant.dev/tenant": tenant}
				case name == "gone":
					return nil, errUnavailable
				}
				return ns, nil
			}))
			b := &body{Reader: strings.NewReader("x")}
			r, err := http.NewRequestWithContext(c.ctx, http.MethodPost, "https://gateway/api/v1/pods", b)
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set("Impersonate-User", "root")
			r.Header.Set("Impersonate-Group", "system:masters")
			r.Header.Set("X-Mine", "y")
			resp, err := rt.RoundTrip(r)
			if resp != nil {
				_ = resp.Body.Close()
			}
			if !errors.Is(err, c.err) || (err == nil) != (c.err == nil) || sent != map[bool]int{true: 1}[c.err == nil] ||
				b.closed != (c.err != nil) {
				t.Errorf("%v, sent %d times, closed %v", err, sent, b.closed)
			}
			if r.Header.Get("Impersonate-User") != "root" || r.URL.Path != "/api/v1/pods" {
				t.Errorf("the request was changed: %s %v", r.URL, r.Header)
			}
		})
	}
}
