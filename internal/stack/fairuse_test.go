// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package stack_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/utils/ptr"

	"github.com/kubetenant/kubetenant/authz"
	"github.com/kubetenant/kubetenant/cluster/lookup"
	configv1alpha1 "github.com/kubetenant/kubetenant/config/v1alpha1"
	"github.com/kubetenant/kubetenant/internal/fairuse"
	"github.com/kubetenant/kubetenant/internal/stack"
	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

// fairTenants is a fake in which the Tenant objects specify limits.
type fairTenants struct {
	fakeTenants
	specs map[string]v1alpha1.FairUse
}

func (f *fairTenants) FairUse(id tenant.ID) v1alpha1.FairUse { return f.specs[id.String()] }

// newFairUseStack returns a stack with the given limits in its configuration. acme owns the
// namespace acme--web.
func newFairUseStack(t *testing.T, configured v1alpha1.FairUse, specs map[string]v1alpha1.FairUse) *stack.Stack {
	t.Helper()
	s, err := stack.New(t.Context(), &configv1alpha1.Settings{FairUse: configured}, stack.Server{
		Cluster: (&lookup.Parts{
			Owners: authz.NewOwners(func(name string) (*corev1.Namespace, error) {
				labels := map[string]string{tenant.Label: "acme"}
				switch name {
				case "kube-system":
					labels = nil
				case "acme--web":
				default:
					return nil, apierrors.NewNotFound(corev1.Resource("namespaces"), name)
				}
				return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}, nil
			}, nil),
			Tenants: &fairTenants{fakeTenants{}, specs},
		}).Cluster(),
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func callerOf(name, id string, groups ...string) *user.DefaultInfo {
	return &user.DefaultInfo{Name: name, Groups: groups, Extra: map[string][]string{tenant.ExtraKey: {id}}}
}

// duringRequest calls do within a request by caller. If as is not nil, caller impersonates as.
func duringRequest(
	s *stack.Stack, caller, as user.Info, do func(w http.ResponseWriter, r *http.Request, u user.Info),
) *http.Response {
	w := httptest.NewRecorder()
	s.WithRequestState(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		u := authz.RecordCaller(r.Context(), caller)
		if as != nil {
			u = as
		}
		do(w, r.WithContext(request.WithUser(r.Context(), u)), u)
	})).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/api/v1/namespaces/acme--web/pods", nil))
	return w.Result()
}

// TestFlowUser checks the user by which API Priority and Fairness classifies a request.
func TestFlowUser(t *testing.T) {
	s := newFairUseStack(t, v1alpha1.FairUse{Level: "bronze"}, map[string]v1alpha1.FairUse{"globex": {Level: "gold"}})
	system, controller := callerOf("root", "system", "system:masters"), callerOf("gateway", "system")
	forged := callerOf("alice", "acme", "dev", tenant.LevelGroupPrefix+"gold", "system:authenticated")
	account := &user.DefaultInfo{Name: "system:serviceaccount:acme--web:robot", Groups: []string{"system:serviceaccounts"}}
	bronze, gold := tenant.LevelGroupPrefix+"bronze", tenant.LevelGroupPrefix+"gold"
	for name, c := range map[string]struct {
		caller, as user.Info
		name       string
		groups     []string
	}{
		"a user": {
			caller: callerOf("alice", "acme", "dev"),
			name:   "tenant:acme",
			groups: []string{"dev", bronze},
		},
		"another user of the tenant": {
			caller: callerOf("bob", "acme"),
			name:   "tenant:acme",
			groups: []string{bronze},
		},
		"a tenant with a level of its own": {
			caller: callerOf("carol", "globex"),
			name:   "tenant:globex",
			groups: []string{gold},
		},
		"a forged level": {
			caller: forged,
			name:   "tenant:acme",
			groups: []string{"dev", "system:authenticated", bronze},
		},
		"a service account": {
			caller: account,
			name:   "tenant:acme",
			groups: []string{"system:serviceaccounts", bronze},
		},
		"the system tenant": {
			caller: system,
			name:   "root",
			groups: []string{"system:masters"},
		},
		"the system tenant as a user of a tenant": {
			caller: controller,
			as:     callerOf("carol", "globex", "dev"),
			name:   "tenant:globex",
			groups: []string{"dev", gold},
		},
		"the system tenant as a member of a tenant's group": {
			caller: controller,
			as:     &user.DefaultInfo{Name: "carol", Groups: []string{"tenant:globex"}},
			name:   "tenant:globex",
			groups: []string{"tenant:globex", gold},
		},
		"the system tenant as itself": {
			caller: controller,
			as:     system,
			name:   "root",
			groups: []string{"system:masters"},
		},
		"a tenant as another tenant": {
			caller: callerOf("alice", "acme"),
			as:     callerOf("carol", "globex"),
			name:   "tenant:acme",
			groups: []string{bronze},
		},
		"a tenant as the system tenant": {
			caller: callerOf("alice", "acme"),
			as:     system,
			name:   "tenant:acme",
			groups: []string{"system:masters", bronze},
		},
		"no tenant": {
			caller: &user.DefaultInfo{Name: "dave", Groups: []string{"dev"}},
			name:   "dave",
			groups: []string{"dev"},
		},
		"contradicting tenants": {
			caller: &user.DefaultInfo{
				Name:  "system:serviceaccount:acme--web:robot",
				Extra: map[string][]string{tenant.ExtraKey: {"globex"}},
			},
			name: "system:serviceaccount:acme--web:robot",
		},
	} {
		t.Run(name, func(t *testing.T) {
			duringRequest(s, c.caller, c.as, func(_ http.ResponseWriter, r *http.Request, u user.Info) {
				before := slices.Clone(u.GetGroups())
				flow, leave, refused := s.AdmitFlow(r.Context(), u)
				if refused != nil {
					t.Fatalf("%v", refused)
				}
				leave()
				if flow.GetName() != c.name || !slices.Equal(flow.GetGroups(), c.groups) {
					t.Errorf("%s %q, want %s %q", flow.GetName(), flow.GetGroups(), c.name, c.groups)
				}
				if !slices.Equal(before, u.GetGroups()) {
					t.Errorf("the groups of the caller have changed: %q", u.GetGroups())
				}
			})
		})
	}
	if flow, _, refused := s.AdmitFlow(t.Context(), nil); flow != nil || refused != nil {
		t.Errorf("no user: %v, %v", flow, refused)
	}
}

// requestKinds returns the RequestInfo of one request of each kind, keyed by the name of the kind.
func requestKinds() map[string]*request.RequestInfo {
	all := map[string]*request.RequestInfo{}
	for _, verb := range []string{
		"get", "list", "create", "update", "patch", "delete", "deletecollection", "watch", "proxy",
	} {
		all[verb] = &request.RequestInfo{IsResourceRequest: true, Verb: verb, Resource: "pods"}
	}
	for _, sub := range []string{"exec", "attach", "portforward", "log", "proxy"} {
		all["pods/"+sub] = &request.RequestInfo{
			IsResourceRequest: true,
			Verb:              "get",
			Resource:          "pods",
			Subresource:       sub,
		}
	}
	all["a path"] = &request.RequestInfo{Verb: "get", Path: "/version"}
	return all
}

func isStreamKind(name string, info *request.RequestInfo) bool {
	return info.Subresource != "" || name == "watch" || name == "proxy"
}

// TestLimitsOfTenants checks each kind of request against each limit. A refused request must not
// reach the API, and its response must contain the retry time that client-go reads.
func TestLimitsOfTenants(t *testing.T) {
	n := ptr.To[int32]
	for name, info := range requestKinds() {
		stream := isStreamKind(name, info)
		for limit, spec := range map[string]v1alpha1.FairUse{
			"rate":     {RequestsPerSecond: n(1), Burst: n(1)},
			"inFlight": {InFlight: n(1)},
			"watches":  {Watches: n(1)},
		} {
			t.Run(limit, func(t *testing.T) {
				s := newFairUseStack(t, v1alpha1.FairUse{}, map[string]v1alpha1.FairUse{"acme": spec})
				code := func(caller user.Info, inside func()) (int, *http.Response, int) {
					reached := 0
					open := s.WithTenant(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
						reached++
						if inside != nil {
							inside()
						}
					}))
					resp := duringRequest(s, caller, nil, func(w http.ResponseWriter, r *http.Request, _ user.Info) {
						open.ServeHTTP(w, r.WithContext(request.WithRequestInfo(r.Context(), info)))
					})
					return resp.StatusCode, resp, reached
				}
				// The limit is reached while the request runs. After the request has ended, only a
				// rate limit is still reached.
				refuses := limit == "rate" || stream == (limit == "watches")
				within := http.StatusOK
				if refuses {
					within = http.StatusTooManyRequests
				}
				first, _, _ := code(callerOf("alice", "acme"), func() {
					got, resp, reached := code(callerOf("bob", "acme"), nil)
					if got != within || (got == http.StatusOK) != (reached == 1) {
						t.Errorf("%s, %s: %d, reached %d times; want %d", name, limit, got, reached, within)
					}
					if got == http.StatusTooManyRequests {
						checkRefusal(t, name, resp)
					}
					for _, other := range []user.Info{callerOf("carol", "globex"), callerOf("root", "system")} {
						if got, _, _ := code(other, nil); got != http.StatusOK {
							t.Errorf("%s, %s: %d for %s", name, limit, got, other.GetName())
						}
					}
				})
				if first != http.StatusOK {
					t.Errorf("%s, %s: %d for the first request", name, limit, first)
				}
				if got, _, _ := code(callerOf("alice", "acme"), nil); (got == http.StatusOK) != (limit != "rate") {
					t.Errorf("%s, %s: %d after the first request has ended", name, limit, got)
				}
			})
		}
	}
}

func checkRefusal(t *testing.T, name string, resp *http.Response) {
	t.Helper()
	var status metav1.Status
	if err := json.NewDecoder(resp.Body).Decode(&status); err != nil {
		t.Errorf("%s: %v", name, err)
	}
	after, err := strconv.Atoi(resp.Header.Get("Retry-After"))
	if err != nil || after < 1 || after > 30 || status.Details == nil || int(status.Details.RetryAfterSeconds) != after ||
		status.Reason != metav1.StatusReasonTooManyRequests {
		t.Errorf("%s: Retry-After %q, %+v", name, resp.Header.Get("Retry-After"), status)
	}
}

// TestLimitsApplyOncePerRequest checks that WithTenant does not count a request that AdmitRequest
// has already counted, and that the beginning of a watch is counted once.
func TestLimitsApplyOncePerRequest(t *testing.T) {
	n := ptr.To[int32]
	s := newFairUseStack(t, v1alpha1.FairUse{
		RequestsPerSecond: n(1),
		Burst:             n(2),
		InFlight:          n(1),
		Watches:           n(1),
	}, nil)
	for i, verb := range []string{"get", "watch"} {
		info := &request.RequestInfo{IsResourceRequest: true, Verb: verb, Resource: "pods"}
		resp := duringRequest(s, callerOf("alice", "acme"), nil, func(w http.ResponseWriter, r *http.Request, u user.Info) {
			leave, refused := s.AdmitRequest(r.Context(), u)
			if refused != nil {
				t.Fatalf("request %d: %v", i, refused)
			}
			if verb == "watch" {
				leave() // a server calls it when the watch is initialized
			} else {
				defer leave()
			}
			s.WithTenant(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})).
				ServeHTTP(w, r.WithContext(request.WithRequestInfo(r.Context(), info)))
		})
		if resp.StatusCode != http.StatusOK {
			t.Errorf("%s: %d", verb, resp.StatusCode)
		}
	}
	duringRequest(s, callerOf("alice", "acme"), nil, func(_ http.ResponseWriter, r *http.Request, u user.Info) {
		if _, refused := s.AdmitRequest(r.Context(), u); refused == nil {
			t.Error("a third request was admitted with a burst of 2")
		}
		if _, refused := s.AdmitStream(r.Context(), u); refused == nil {
			t.Error("a stream was admitted above the rate limit")
		}
	})
}

// TestFairUseReport checks that a caller sees only the use of its own tenant, which includes the
// caller's own request. Only callers of the system tenant see the use of all tenants.
func TestFairUseReport(t *testing.T) {
	n := ptr.To[int32]
	s := newFairUseStack(t, v1alpha1.FairUse{InFlight: n(7)}, map[string]v1alpha1.FairUse{"acme": {Watches: n(9)}})
	other := s.WithAllTenantsFairUse(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusTeapot)
	}))
	ask := func(method string, caller, as user.Info) (int, []*fairuse.Report) {
		resp := duringRequest(s, caller, as, func(w http.ResponseWriter, r *http.Request, _ user.Info) {
			r.Method, r.URL.Path = method, authz.FairUsePath
			info := &request.RequestInfo{Verb: "get", Path: authz.FairUsePath}
			s.WithTenant(other).ServeHTTP(w, r.WithContext(request.WithRequestInfo(r.Context(), info)))
		})
		var reports fairuse.Reports
		if resp.StatusCode == http.StatusOK {
			if err := json.NewDecoder(resp.Body).Decode(&reports); err != nil {
				t.Error(err)
			}
		}
		return resp.StatusCode, reports.Items
	}
	acme := fairuse.Report{
		Tenant: "acme",
		Use:    fairuse.Use{InFlight: 1},
		Limits: fairuse.Limits{InFlight: 7, Watches: 9},
	}
	globex := fairuse.Report{
		Tenant: "globex",
		Use:    fairuse.Use{Watches: 1},
		Limits: fairuse.Limits{InFlight: 7},
	}
	alice, carol, root := callerOf("alice", "acme"), callerOf("carol", "globex"), callerOf("root", "system")
	duringRequest(s, carol, nil, func(_ http.ResponseWriter, r *http.Request, u user.Info) {
		if _, refused := s.AdmitStream(r.Context(), u); refused != nil {
			t.Fatal(refused)
		}
	})
	for name, c := range map[string]struct{ caller, as user.Info }{
		"a user":                            {caller: alice},
		"the system tenant as the user":     {caller: root, as: alice},
		"the user as another tenant's user": {caller: alice, as: carol},
		"the user as the system tenant":     {caller: alice, as: root},
	} {
		t.Run(name, func(t *testing.T) {
			if code, got := ask(http.MethodGet, c.caller, c.as); code != http.StatusOK || len(got) != 1 || *got[0] != acme {
				t.Errorf("%d, %+v", code, got)
			}
		})
	}
	if code, got := ask(http.MethodGet, root, nil); code != http.StatusOK || len(got) != 1 || *got[0] != globex {
		t.Errorf("the system tenant: %d, %+v", code, got)
	}
	for name, c := range map[string]struct {
		method string
		caller user.Info
	}{
		"no tenant":                   {http.MethodGet, &user.DefaultInfo{Name: "dave"}},
		"anonymous":                   {http.MethodGet, &user.DefaultInfo{Name: user.Anonymous}},
		"POST by a tenant":            {http.MethodPost, alice},
		"DELETE by the system tenant": {http.MethodDelete, root},
	} {
		t.Run(name, func(t *testing.T) {
			if code, _ := ask(c.method, c.caller, nil); code != http.StatusTeapot {
				t.Errorf("%d", code)
			}
		})
	}
}

// TestLimitsOfDeletedTenant checks that active requests of a tenant end as usual after its Tenant
// was changed or deleted, and that later requests have the new limits.
func TestLimitsOfDeletedTenant(t *testing.T) {
	specs := map[string]v1alpha1.FairUse{"acme": {InFlight: ptr.To[int32](1)}}
	s := newFairUseStack(t, v1alpha1.FairUse{}, specs)
	alice := callerOf("alice", "acme")
	var leave func()
	duringRequest(s, alice, nil, func(_ http.ResponseWriter, r *http.Request, u user.Info) {
		leave, _ = s.AdmitRequest(r.Context(), u)
	})
	delete(specs, "acme")
	for i := range 3 {
		duringRequest(s, alice, nil, func(_ http.ResponseWriter, r *http.Request, u user.Info) {
			if _, refused := s.AdmitRequest(r.Context(), u); refused != nil {
				t.Errorf("request %d without a limit: %v", i, refused)
			}
		})
	}
	leave()
	specs["acme"] = v1alpha1.FairUse{InFlight: ptr.To[int32](3)}
	duringRequest(s, alice, nil, func(_ http.ResponseWriter, r *http.Request, u user.Info) {
		if _, refused := s.AdmitRequest(r.Context(), u); refused == nil {
			t.Error("a fourth request was admitted at a limit of 3")
		}
		leave, refused := s.AdmitStream(r.Context(), u)
		if refused == nil {
			leave()
			t.Error("a stream began although its first request is above the limit")
		}
	})
}
