// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package stack_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/kubetenant/kubetenant/authz"
	"github.com/kubetenant/kubetenant/cluster/lookup"
	"github.com/kubetenant/kubetenant/cluster/lookup/lookuptest"
	configv1alpha1 "github.com/kubetenant/kubetenant/config/v1alpha1"
	"github.com/kubetenant/kubetenant/internal/fairuse"
	"github.com/kubetenant/kubetenant/internal/stack"
	"github.com/kubetenant/kubetenant/internal/tenantaudit"
	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
	"github.com/kubetenant/kubetenant/test/waittest"
)

func TestAuditFollowIsAStream(t *testing.T) {
	info := &request.RequestInfo{Verb: "get", Path: authz.AuditPath}
	for query, want := range map[string]bool{
		"?follow=true":                true,
		"?follow=false":               false,
		"?since=2026-11-28T01:00:00Z": false,
		"":                            false,
	} {
		t.Run(query, func(t *testing.T) {
			r := httptest.NewRequest(http.MethodGet, authz.AuditPath+query, http.NoBody)
			if got := fairuse.IsStream(r, info); got != want {
				t.Errorf("IsStream() = %t, want %t", got, want)
			}
		})
	}
}

// auditTenants is a fake in which every tenant has a Tenant object, except none, invented, unknown
// and deleted. The Tenant object of renewed replaced a deleted one.
type auditTenants struct{ fakeTenants }

var renewedAt = time.Date(2026, 11, 28, 1, 0, 0, 0, time.UTC)

func (auditTenants) Access(id tenant.ID) authz.Access {
	switch id.String() {
	case "none", "invented":
		return authz.AccessNone
	case "unknown":
		return authz.AccessUnknown
	case "deleted":
		return authz.AccessRetired
	}
	return authz.AccessOpen
}

func (auditTenants) Lineage(id tenant.ID) tenant.Lineage {
	retired := []tenant.Retired{{UID: "u-before"}}
	switch id.String() {
	case "none", "invented", "unknown":
		return tenant.Lineage{}
	case "deleted":
		return tenant.Lineage{Retired: retired}
	case "renewed":
		return tenant.Lineage{UID: "u-renewed", Created: renewedAt, Retired: retired}
	}
	return tenant.Lineage{UID: "u-" + id.String(), Created: renewedAt}
}

// newAuditStack returns a stack that serves audit streams. The stack can read namespaces only
// from the cache.
func newAuditStack(t *testing.T) (*stack.Stack, *tenantaudit.Streams) {
	t.Helper()
	one := int32(1)
	settings := &configv1alpha1.Settings{FairUse: v1alpha1.FairUse{Watches: &one}}
	s, err := stack.New(t.Context(), settings, stack.Server{
		Cluster: (&lookup.Parts{
			Owners: authz.NewOwners(func(name string) (*corev1.Namespace, error) {
				owner, _, ok := strings.Cut(name, "--")
				if !ok {
					return nil, apierrors.NewNotFound(corev1.Resource("namespaces"), name)
				}
				labels := map[string]string{tenant.Label: owner}
				ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
				if strings.HasSuffix(name, "--ending") {
					ns.DeletionTimestamp = &metav1.Time{Time: renewedAt}
				}
				if strings.HasSuffix(name, "--new") {
					ns.CreationTimestamp = metav1.Time{Time: renewedAt}
				}
				return ns, nil
			}, nil),
			Tenants: auditTenants{},
			Namespaces: &lookuptest.Namespaces{Owned: func(id tenant.ID) ([]string, error) {
				if id.String() == "none" {
					return []string{"none--web"}, nil
				}
				return nil, nil
			}},
		}).Cluster(),
	})
	if err != nil {
		t.Fatal(err)
	}
	streams, err := tenantaudit.Open(tenantaudit.Options{Directory: t.TempDir(), MaxBytes: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = streams.Close() })
	s.ServeAudit(streams)
	return s, streams
}

func TestAuditStream(t *testing.T) {
	s, _ := newAuditStack(t)
	for name, want := range map[string]tenantaudit.Stream{
		"acme":     "u-acme",
		"none":     "id-none",
		"invented": "",
		"unknown":  "",
		"deleted":  "",
		"renewed":  "u-renewed",
		"system":   "system",
	} {
		t.Run(name, func(t *testing.T) {
			id, err := tenant.Parse(name)
			if err != nil {
				t.Fatal(err)
			}
			got, ok := s.AuditStream(id)
			if ok != (want != "") || ok && got != want {
				t.Errorf("%s has the stream %q (%v), want %q", name, got, ok, want)
			}
			after, ok := s.AuditResolver().Stream(id, renewedAt.Add(6*time.Second))
			if ok != (want != "") || ok && after != want {
				t.Errorf("%s has the stream %q (%v) for an event, want %q", name, after, ok, want)
			}
		})
	}
	for _, name := range []string{"acme", "renewed"} {
		id, _ := tenant.Parse(name)
		// An event within 5 seconds of the creation may belong to the deleted tenant. Creation
		// times have a resolution of one second, and the clocks of servers differ.
		for _, after := range []time.Duration{-time.Hour, 900 * time.Millisecond, 5 * time.Second} {
			at := renewedAt.Add(after)
			if got, ok := s.AuditResolver().Stream(id, at); ok {
				t.Errorf("an event of %s at %s, which a deleted tenant may have caused, is in the stream %s", name, at, got)
			}
		}
	}
}

// TestAuditExcludesDeletedNamespaces checks that the owner of a namespace receives no events of an
// earlier namespace of the same name.
func TestAuditExcludesDeletedNamespaces(t *testing.T) {
	s, _ := newAuditStack(t)
	r, account := s.AuditResolver(), &user.DefaultInfo{Name: "system:serviceaccount:acme--new:robot"}
	for name, c := range map[string]struct {
		after time.Duration
		want  string
	}{
		"before the creation":           {-time.Hour, ""},
		"within 5 s of the creation":    {900 * time.Millisecond, ""},
		"later than 5 s after creation": {6 * time.Second, "acme"},
	} {
		t.Run(name, func(t *testing.T) {
			at := renewedAt.Add(c.after)
			if got := r.Owner("acme--new", at).String(); got != c.want {
				t.Errorf("the owner is %q, want %q", got, c.want)
			}
			if _, got := r.Caller(account, nil, at); got.String() != c.want {
				t.Errorf("the tenant of the account is %q, want %q", got, c.want)
			}
		})
	}
}

func TestAuditResolver(t *testing.T) {
	s, _ := newAuditStack(t)
	r := s.AuditResolver()
	named := func(name string, groups ...string) user.Info { return &user.DefaultInfo{Name: name, Groups: groups} }
	account := named("system:serviceaccount:acme--web:robot")
	for name, c := range map[string]struct {
		caller, as            user.Info
		authenticated, acting string
	}{
		"user":                                   {callerOf("alice", "acme"), nil, "acme", "acme"},
		"service account":                        {account, nil, "acme", "acme"},
		"service account, terminating namespace": {named("system:serviceaccount:acme--ending:robot"), nil, "acme", "acme"},
		"service account, missing namespace":     {named("system:serviceaccount:gone:robot"), nil, "", ""},
		"the system tenant":                      {callerOf("root", "system"), nil, "system", "system"},
		"the system tenant as a user":            {callerOf("root", "system"), callerOf("alice", "acme"), "system", "acme"},
		"the system tenant as a service account": {callerOf("root", "system"), account, "system", "acme"},
		"the system tenant as a group":           {callerOf("root", "system"), named("a", "tenant:acme"), "system", "acme"},
		"the system tenant as an unknown user":   {callerOf("root", "system"), named("a"), "system", ""},
		"a tenant as a user of another tenant":   {callerOf("alice", "acme"), callerOf("gwen", "globex"), "acme", "acme"},
		"user without a tenant as another user":  {named("a"), callerOf("gwen", "globex"), "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			authenticated, acting := r.Caller(c.caller, c.as, renewedAt)
			if authenticated.String() != c.authenticated || acting.String() != c.acting {
				t.Errorf("%q and %q, want %q and %q", authenticated, acting, c.authenticated, c.acting)
			}
		})
	}
	for namespace, want := range map[string]string{
		"acme--web":    "acme",
		"acme--ending": "acme",
		"gone":         "",
		"":             "",
	} {
		t.Run(namespace, func(t *testing.T) {
			if got := r.Owner(namespace, renewedAt).String(); got != want {
				t.Errorf("%s belongs to %q, want %q", namespace, got, want)
			}
		})
	}
}

// TestCallerReadsOwnAuditStream checks that a caller of a tenant can read only the stream of its
// own tenant, whatever tenant the query names. A caller of the system tenant can read the stream
// of every tenant.
func TestCallerReadsOwnAuditStream(t *testing.T) {
	s, streams := newAuditStack(t)
	of := func(stream tenantaudit.Stream, name string) tenantaudit.Placed {
		return tenantaudit.Placed{Stream: stream, Record: &tenantaudit.Record{Name: name}}
	}
	if err := streams.Write(t.Context(), []tenantaudit.Placed{
		of("u-acme", "of-acme"), of("u-globex", "of-globex"), of(tenantaudit.System, "of-system"),
		of("u-before", "of-before"), of("u-renewed", "of-renewed"), of("id-acme", "of-label"),
	}); err != nil {
		t.Fatal(err)
	}
	read := func(caller, as user.Info, method, query string) (int, string) {
		resp := duringRequest(s, caller, as, func(w http.ResponseWriter, r *http.Request, _ user.Info) {
			r.Method, r.URL.Path, r.URL.RawQuery = method, authz.AuditPath, query
			info := &request.RequestInfo{Verb: "get", Path: authz.AuditPath}
			api := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) })
			s.WithTenant(s.WithAllTenantsAudit(api)).ServeHTTP(w, r.WithContext(request.WithRequestInfo(r.Context(), info)))
		})
		text, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, string(text)
	}
	alice, root := callerOf("alice", "acme"), callerOf("root", "system")
	account := &user.DefaultInfo{Name: "system:serviceaccount:acme--web:robot"}
	for name, c := range map[string]struct {
		caller, as user.Info
		query      string
		want       string // the name of the record
		code       int
	}{
		"own":                                       {alice, nil, "", "of-acme", 200},
		"own by name":                               {alice, nil, "tenant=acme", "of-acme", 200},
		"own by a service account":                  {account, nil, "", "of-acme", 200},
		"of another tenant":                         {alice, nil, "tenant=globex", "", 403},
		"of the system tenant":                      {alice, nil, "tenant=system", "", 403},
		"of a missing tenant":                       {alice, nil, "tenant=nobody", "", 403},
		"invalid tenant name":                       {alice, nil, "tenant=../globex", "", 403},
		"of two tenants":                            {alice, nil, "tenant=acme&tenant=globex", "", 400},
		"caller without a tenant":                   {&user.DefaultInfo{Name: "a"}, nil, "", "", 403},
		"caller without a tenant, by name":          {&user.DefaultInfo{Name: "a"}, nil, "tenant=acme", "", 403},
		"of a tenant that replaced another":         {callerOf("r", "renewed"), nil, "", "of-renewed", 200},
		"of a tenant that does not exist":           {callerOf("i", "invented"), nil, "", "", 404},
		"system tenant":                             {root, nil, "", "of-system", 200},
		"any tenant, by the system tenant":          {root, nil, "tenant=globex", "of-globex", 200},
		"missing tenant, by the system tenant":      {root, nil, "tenant=invented", "", 404},
		"invalid tenant name, by the system tenant": {root, nil, "tenant=../globex", "", 400},
		"the system tenant as a user":               {root, alice, "", "of-acme", 200},
		"the system tenant as a user, other tenant": {root, alice, "tenant=globex", "", 403},
		"invalid query":                             {alice, nil, "since=yesterday", "", 400},
	} {
		t.Run(name, func(t *testing.T) {
			code, body := read(c.caller, c.as, http.MethodGet, c.query)
			if code != c.code {
				t.Fatalf("%d, want %d: %s", code, c.code, body)
			}
			if code == http.StatusOK && !strings.Contains(body, `"`+c.want+`"`) || strings.Count(body, `"of-`) > 1 {
				t.Errorf("read %s, want %s", body, c.want)
			}
			if code != http.StatusOK && strings.Contains(body, "globex") {
				t.Errorf("the response contains the tenant in the query: %s", body)
			}
		})
	}
	narrowed := func(path string) (code int, text string) {
		w := httptest.NewRecorder()
		s.WithRequestState(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			info := &request.RequestInfo{Verb: "get", Path: authz.AuditPath}
			ctx := request.WithUser(request.WithRequestInfo(r.Context(), info), root)
			s.WithAllTenantsAudit(http.NotFoundHandler()).ServeHTTP(w, r.WithContext(ctx))
		})).ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, http.NoBody))
		return w.Code, w.Body.String()
	}
	// A tenant path does not give access to the records of all tenants.
	if code, body := narrowed("/tenants/acme" + authz.AuditPath); code != http.StatusNotFound {
		t.Errorf("the system tenant on the path of acme: %d: %s", code, body)
	}
	if code, body := narrowed(authz.AuditPath); code != http.StatusOK || !strings.Contains(body, "of-system") {
		t.Errorf("the system tenant: %d: %s", code, body)
	}
	exists, _ := read(alice, nil, http.MethodGet, "tenant=globex")
	_, there := read(alice, nil, http.MethodGet, "tenant=globex")
	_, not := read(alice, nil, http.MethodGet, "tenant=nobody")
	if exists != http.StatusForbidden || there != not {
		t.Errorf("the responses reveal which tenants exist:\n%s\n%s", there, not)
	}
	for _, method := range []string{http.MethodPost, http.MethodHead, http.MethodDelete} {
		if code, _ := read(alice, nil, method, ""); code != http.StatusTeapot {
			t.Errorf("%s: %d", method, code)
		}
	}
	s.ServeAudit(nil)
	if code, _ := read(alice, nil, http.MethodGet, ""); code != http.StatusTeapot {
		t.Errorf("%d without streams", code)
	}
}

// TestConcurrentReadsAreLimited checks that the reads of one tenant neither overload the server nor
// prevent the reads of other callers.
func TestConcurrentReadsAreLimited(t *testing.T) {
	s, streams := newAuditStack(t)
	read := func(caller user.Info) *http.Response {
		return duringRequest(s, caller, nil, func(w http.ResponseWriter, r *http.Request, _ user.Info) {
			r.Method, r.URL.Path = http.MethodGet, authz.AuditPath
			info := &request.RequestInfo{Verb: "get", Path: authz.AuditPath}
			s.WithTenant(s.WithAllTenantsAudit(http.NotFoundHandler())).ServeHTTP(w,
				r.WithContext(request.WithRequestInfo(r.Context(), info)))
		})
	}
	acme, err := tenant.Parse("acme")
	if err != nil {
		t.Fatal(err)
	}
	var ends []func()
	for range 4 {
		end, ok := streams.BeginRead("", acme)
		if !ok {
			t.Fatal("a read below the limit is refused")
		}
		ends = append(ends, end)
	}
	refused := read(callerOf("alice", "acme"))
	if refused.StatusCode != http.StatusTooManyRequests || refused.Header.Get("Retry-After") == "" {
		t.Errorf("a fifth read: %d, %v", refused.StatusCode, refused.Header)
	}
	for _, other := range []user.Info{callerOf("gwen", "globex"), callerOf("root", "system")} {
		if resp := read(other); resp.StatusCode != http.StatusOK {
			t.Errorf("a read by %s: %d", other.GetName(), resp.StatusCode)
		}
	}
	ends[0]()
	if resp := read(callerOf("alice", "acme")); resp.StatusCode != http.StatusOK {
		t.Errorf("a read after another read has ended: %d", resp.StatusCode)
	}
	for _, end := range ends[1:] {
		end()
	}
	for i := range 65 { // many tenants
		id, err := tenant.Parse(fmt.Sprintf("t%d", i))
		if err != nil {
			t.Fatal(err)
		}
		if _, ok := streams.BeginRead("", id); ok != (i < 64) {
			t.Errorf("read %d: %t", i, ok)
		}
	}
	if resp := read(callerOf("root", "system")); resp.StatusCode != http.StatusOK {
		t.Errorf("a read by the system tenant while tenants use all reads: %d", resp.StatusCode)
	}
}

// TestAuditFollowerCountsAsStream checks that a request that follows an audit stream is limited
// as a stream of the caller's tenant, and that it ends when the tenant changes.
func TestAuditFollowerCountsAsStream(t *testing.T) {
	s, _ := newAuditStack(t)
	follow := func() int {
		return duringRequest(s, callerOf("alice", "acme"), nil, func(w http.ResponseWriter, r *http.Request, u user.Info) {
			r.URL.Path, r.URL.RawQuery = authz.AuditPath, "follow=true"
			info := &request.RequestInfo{Verb: "get", Path: authz.AuditPath}
			ctx, cancel := context.WithTimeout(request.WithRequestInfo(r.Context(), info), time.Minute)
			defer cancel()
			attributes := authorizer.AttributesRecord{User: u, Verb: "get", Path: authz.AuditPath}
			if _, _, err := s.Authorizer.Authorize(ctx, attributes); err != nil {
				t.Error(err)
			}
			s.WithTenant(http.NotFoundHandler()).ServeHTTP(w, r.WithContext(ctx))
		}).StatusCode
	}
	ended := make(chan int, 2)
	for range 2 {
		go func() { ended <- follow() }()
	}
	if code := <-ended; code != http.StatusTooManyRequests {
		t.Errorf("a second follower: status %d with a limit of one watch", code)
	}
	acme, _ := tenant.Parse("acme")
	waittest.Until(t, func() error {
		s.TenantChanged(acme)
		select {
		case code := <-ended:
			if code != http.StatusOK {
				t.Errorf("the first follower: status %d", code)
			}
			return nil
		default:
			return errors.New("the follower continues after the tenant changed")
		}
	})
}
