// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package authz_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/kubetenant/kubetenant/authz"
	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/tenanttest"
)

// TestEveryRequestIsASession checks that a request ends when its caller loses its permissions, for
// any caller, path and method. The rest of the request's body cannot be read after the end.
func TestEveryRequestIsASession(t *testing.T) {
	a, system := tenanttest.ID(t, "a"), tenant.System()
	revoked := func(id tenant.ID) func(*authz.Sessions) {
		return func(s *authz.Sessions) { s.EndRevoked(func(c *authz.Caller) bool { return c.Tenant == id }) }
	}
	closed := func(id tenant.ID) func(*authz.Sessions) {
		return func(s *authz.Sessions) { s.EndTenants(isTenant(id)) }
	}
	type target struct{ method, path string }
	outside := []target{
		{http.MethodPost, "/api/v1/namespaces"},
		{http.MethodPost, "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"},
		{http.MethodPost, "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews"},
		{http.MethodPost, "/apis/authentication.k8s.io/v1/selfsubjectreviews"},
		{http.MethodGet, "/api/v1/namespaces"},
		{http.MethodGet, "/api/v1/pods"},
		{http.MethodDelete, "/api/v1/pods"},
		{http.MethodGet, "/api"},
		{http.MethodGet, "/openapi/v3"},
	}
	within := []target{
		{http.MethodPost, "/api/v1/namespaces/a--web/configmaps"},
		{http.MethodPut, "/api/v1/namespaces/a--web/configmaps/c"},
		{http.MethodPatch, "/api/v1/namespaces/a--web/configmaps/c"},
		{http.MethodDelete, "/api/v1/namespaces/a--web/configmaps/c"},
		{http.MethodPut, "/api/v1/namespaces/a--web"},
		{http.MethodDelete, "/api/v1/namespaces/a--web"},
	}
	all := append([]target{
		{http.MethodPost, "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"},
		{http.MethodPost, "/api/v1/namespaces/default/configmaps"},
		{http.MethodPost, "/apis/authentication.k8s.io/v1/tokenreviews"},
		{http.MethodPut, "/apis/kubetenant.dev/v1alpha1/tenants/a/status"},
		{http.MethodPost, "/healthz"},
		{"", "/metrics"},
	}, append(outside, within...)...)
	for name, c := range map[string]struct {
		user    user.Info
		targets []target
		act     func(*authz.Sessions)
		ends    bool
	}{
		"a system caller is revoked":       {callerOf("system"), all, revoked(system), true},
		"a tenant's caller is revoked":     {callerOf("a"), append(outside, within...), revoked(a), true},
		"the tenant is closed":             {callerOf("a"), append(outside, within...), closed(a), true},
		"all sessions end":                 {callerOf("system"), all, (*authz.Sessions).EndAll, true},
		"another caller is revoked":        {callerOf("system"), all, revoked(a), false},
		"another tenant is closed":         {callerOf("a"), append(outside, within...), closed(tenanttest.ID(t, "b")), false},
		"EndTenants for the system tenant": {callerOf("system"), all, closed(system), false},
	} {
		for _, target := range c.targets {
			t.Run(name+" "+target.method+" "+target.path, func(t *testing.T) {
				s, reached := allowingServer(labeledOptions()), false
				api := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
					reached = true
					first := make([]byte, 1)
					if n, err := r.Body.Read(first); n != 1 || err != nil {
						t.Fatal("first byte:", n, err)
					}
					c.act(&s.sessions)
					rest, err := io.ReadAll(r.Body)
					var status *apierrors.StatusError
					unavailable := errors.As(err, &status) && status.ErrStatus.Code == http.StatusServiceUnavailable
					switch ended := r.Context().Err() != nil; {
					case ended != c.ends:
						t.Errorf("the session ended: %v, want %v", ended, c.ends)
					case c.ends && (!unavailable || len(rest) > 0):
						t.Errorf("read %d more bytes, %v", len(rest), err)
					case !c.ends && (err != nil || len(rest) != 1):
						t.Errorf("read %d more bytes, %v", len(rest), err)
					}
				})
				s.chain(c.user, api).ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(),
					target.method, target.path, strings.NewReader("{}")))
				if !reached {
					t.Error("the request was rejected")
				}
			})
		}
	}
}

// TestBodyCannotBeReadAfterExceptionExpires checks that the rest of a body cannot be read after the end
// of the exception that allowed the request.
func TestBodyCannotBeReadAfterExceptionExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := labeledOptions()
		o.Exceptions = []authz.Exception{{
			Allows: func(context.Context, *authz.CrossTenantRequest) (bool, time.Time) {
				return true, time.Now().Add(time.Minute)
			},
		}}
		s, reached := allowingServer(o), false
		api := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			reached = true
			first := make([]byte, 1)
			if n, err := r.Body.Read(first); n != 1 || err != nil {
				t.Fatal("first byte:", n, err)
			}
			time.Sleep(2 * time.Minute)
			rest, err := io.ReadAll(r.Body)
			var status *apierrors.StatusError
			if !errors.As(err, &status) || status.ErrStatus.Code != http.StatusServiceUnavailable || len(rest) > 0 {
				t.Errorf("read %d more bytes, %v", len(rest), err)
			}
		})
		s.chain(callerOf("a"), api).ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(),
			http.MethodPost, "/api/v1/namespaces/b--web/configmaps", strings.NewReader("{}")))
		if !reached {
			t.Error("the request was rejected")
		}
	})
}
