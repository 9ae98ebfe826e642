// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package impersonate_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"reflect"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/impersonate"
)

func application(identity, label string) metav1.Object {
	o := &metav1.ObjectMeta{Labels: map[string]string{tenant.Label: label}}
	if identity != "" {
		o.Annotations = map[string]string{tenant.IdentityAnnotation: identity}
	}
	return o
}

const aliceIdentity = `{"user":"alice","uid":"u1","tenant":"a","groups":["dev","team-x","system:masters","tenant:b",` +
	`"tenant:a","system:authenticated"]}`

// TestConfig checks the user, the groups and the error for different options and recorded
// identities.
func TestConfig(t *testing.T) {
	for name, c := range map[string]struct {
		options  impersonate.Options
		identity string
		label    string
		user     string
		groups   []string
		err      error
	}{
		"the default user": {
			impersonate.Options{DefaultUser: "runner"},
			aliceIdentity,
			"a",
			"runner",
			[]string{"tenant:a"},
			nil,
		},
		"with groups": {
			impersonate.Options{DefaultUser: "runner", GroupPattern: "team-.*"},
			aliceIdentity,
			"a",
			"runner",
			[]string{"tenant:a", "team-x"},
			nil,
		},
		"with all groups": {
			impersonate.Options{DefaultUser: "runner", GroupPattern: ".*"},
			aliceIdentity,
			"a",
			"runner",
			[]string{"tenant:a", "dev", "team-x"},
			nil,
		},
		"a pattern for a part of a name": {
			impersonate.Options{DefaultUser: "runner", GroupPattern: "team"},
			aliceIdentity,
			"a",
			"runner",
			[]string{"tenant:a"},
			nil,
		},
		"with the user": {
			impersonate.Options{DefaultUser: "runner", WithUser: true}, aliceIdentity, "a", "alice", []string{"tenant:a"}, nil,
		},
		"no recorded user": {
			impersonate.Options{DefaultUser: "runner", WithUser: true},
			`{"tenant":"a"}`,
			"a",
			"runner",
			[]string{"tenant:a"},
			nil,
		},
		"a service account": {
			impersonate.Options{DefaultUser: "runner", WithUser: true},
			`{"user":"system:serviceaccount:a--web:x","tenant":"a"}`,
			"a",
			"system:serviceaccount:a--web:x",
			[]string{"tenant:a"},
			nil,
		},
		"a reserved user": {
			impersonate.Options{DefaultUser: "runner", WithUser: true},
			`{"user":"system:admin","tenant":"a"}`,
			"a",
			"runner",
			[]string{"tenant:a"},
			nil,
		},
		"another tenant's object": {
			impersonate.Options{DefaultUser: "runner"}, aliceIdentity, "b", "", nil, impersonate.ErrMismatch,
		},
		"no owner":  {impersonate.Options{DefaultUser: "runner"}, aliceIdentity, "", "", nil, impersonate.ErrMismatch},
		"no record": {impersonate.Options{DefaultUser: "runner"}, "", "a", "", nil, impersonate.ErrUnrecorded},
		"the system tenant": {
			impersonate.Options{DefaultUser: "runner"},
			`{"user":"root","tenant":"system"}`,
			"system",
			"",
			nil,
			impersonate.ErrSystemTenant,
		},
		"no tenant": {impersonate.Options{DefaultUser: "runner"}, `{"user":"root"}`, "", "", nil, tenant.ErrInvalid},
	} {
		t.Run(name, func(t *testing.T) {
			i, err := impersonate.New(c.options)
			if err != nil {
				t.Fatal(err)
			}
			got, err := i.Config(application(c.identity, c.label))
			if !errors.Is(err, c.err) || c.err == nil && err != nil {
				t.Errorf("%v", err)
				return
			}
			want := rest.ImpersonationConfig{}
			if c.err == nil {
				want = rest.ImpersonationConfig{
					UserName: c.user,
					Groups:   c.groups,
					Extra:    map[string][]string{tenant.ExtraKey: {"a"}},
				}
			}
			if !reflect.DeepEqual(got, want) {
				t.Errorf("%+v, want %+v", got, want)
			}
		})
	}
	for _, o := range []impersonate.Options{{}, {DefaultUser: "system:x"}, {DefaultUser: "x", GroupPattern: "("}} {
		if _, err := impersonate.New(o); err == nil {
			t.Errorf("%+v is accepted", o)
		}
	}
}

// TestTransport checks that the round tripper replaces the impersonation headers of a request.
func TestTransport(t *testing.T) {
	i, err := impersonate.New(impersonate.Options{DefaultUser: "runner"})
	if err != nil {
		t.Fatal(err)
	}
	var got http.Header
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got = r.Header }))
	defer server.Close()
	rt, err := i.Transport(http.DefaultTransport, application(aliceIdentity, "a"))
	if err != nil {
		t.Fatal(err)
	}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Impersonate-User", "root")
	r.Header.Set("Impersonate-Group", "system:masters")
	r.Header["impersonate-uid"] = []string{"1"}
	resp, err := rt.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if got.Get("Impersonate-User") != "runner" ||
		!reflect.DeepEqual(got.Values("Impersonate-Group"), []string{"tenant:a"}) || got.Get("Impersonate-Uid") != "" {
		t.Errorf("%v", got)
	}
	if r.Header.Get("Impersonate-User") != "root" {
		t.Error("the caller's request was changed")
	}
	if _, err := i.Transport(http.DefaultTransport, application("", "a")); !errors.Is(err, impersonate.ErrUnrecorded) {
		t.Error(err)
	}
}
