// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package stack

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/kubetenant/kubetenant/authz"
	"github.com/kubetenant/kubetenant/internal/fairuse"
	"github.com/kubetenant/kubetenant/internal/reviews"
	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

// fairUseState records which limits have already been applied to a request.
type fairUseState struct {
	request bool // the limits for requests
	stream  bool // the limit for streams
	// limitedTenant is the caller's tenant, which [Stack.AdmitFlow] sets. It can also be the system
	// tenant.
	limitedTenant tenant.ID
}

type fairUseKey struct{}

func withFairUseState(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), fairUseKey{}, &fairUseState{})))
	})
}

func fairUseStateOf(ctx context.Context) *fairUseState {
	if state, found := ctx.Value(fairUseKey{}).(*fairUseState); found {
		return state
	}
	return &fairUseState{}
}

// limitsOf returns the limits of a tenant. A limit in the Tenant object overrides the limit in
// the configuration.
func (s *Stack) limitsOf(id tenant.ID) fairuse.Limits {
	var spec v1alpha1.FairUse
	if tenants := s.shared.cluster.tenants; tenants != nil {
		spec = tenants.FairUse(id)
	}
	return fairuse.LimitsOf(spec, s.current.Load().config.FairUse)
}

// limitedTenant returns the tenant whose limits apply to the requests of u. It returns the zero ID
// for callers without limits.
func (s *Stack) limitedTenant(ctx context.Context, u user.Info) tenant.ID {
	if id := s.current.Load().boundary.FairUseTenant(ctx, u); !id.IsSystem() {
		return id
	}
	return tenant.ID{}
}

func noLeave() {}

// AdmitRequest counts a request against the limits of u's tenant until leave is called. A server
// with a queue calls it before the request is queued. If the server does not call it,
// [Stack.WithTenant] applies the limits. The request MUST have passed [Stack.WithRequestState]. If
// the request exceeds a limit, refused has status 429 and the time after which the client may try
// again.
func (s *Stack) AdmitRequest(ctx context.Context, u user.Info) (leave func(), refused *apierrors.StatusError) {
	_, leave, refused = s.AdmitFlow(ctx, u)
	return leave, refused
}

// AdmitFlow is [Stack.AdmitRequest] for a server with API Priority and Fairness. It also returns
// the user by which the server classifies the request. For a caller of a tenant, this user has
// the name tenant:<id>, so that all callers of the tenant are one flow. It has the caller's
// groups and the group of the tenant's priority level. Groups of the caller that name a level are
// removed, so that no caller can choose its level. Callers of the system tenant and callers
// without a tenant are unchanged.
func (s *Stack) AdmitFlow(
	ctx context.Context, u user.Info,
) (flow user.Info, leave func(), refused *apierrors.StatusError) {
	state := fairUseStateOf(ctx)
	id := s.current.Load().boundary.FairUseTenant(ctx, u)
	state.limitedTenant = id
	if id.IsZero() || id.IsSystem() {
		return u, noLeave, nil
	}
	limits := s.limitsOf(id)
	leave, refusal := s.shared.fairUse.Request(id, &limits)
	if refusal != nil {
		return nil, nil, s.refuse(id, refusal)
	}
	state.request = true
	return flowUser(u, id, limits.Level), leave, nil
}

// flowUser returns the user by which API Priority and Fairness classifies a request. See
// [Stack.AdmitFlow].
func flowUser(u user.Info, id tenant.ID, level string) user.Info {
	groups := make([]string, 0, len(u.GetGroups())+1)
	for _, group := range u.GetGroups() {
		if !strings.HasPrefix(group, tenant.LevelGroupPrefix) {
			groups = append(groups, group)
		}
	}
	if level != "" {
		groups = append(groups, tenant.LevelGroupPrefix+level)
	}
	return &user.DefaultInfo{Name: id.Group(), Groups: groups}
}

// AdmitStream is [Stack.AdmitRequest] for a watch or another stream. It applies the limits for
// requests when the stream begins, and counts the stream until leave is called.
func (s *Stack) AdmitStream(ctx context.Context, u user.Info) (leave func(), refused *apierrors.StatusError) {
	id := s.limitedTenant(ctx, u)
	if id.IsZero() {
		return noLeave, nil
	}
	state := fairUseStateOf(ctx)
	limits := s.limitsOf(id)
	if !state.request {
		leaveRequest, refusal := s.shared.fairUse.Request(id, &limits)
		if refusal != nil {
			return nil, s.refuse(id, refusal)
		}
		leaveRequest()
	}
	leaveStream, refusal := s.shared.fairUse.Stream(id, &limits)
	if refusal != nil {
		return nil, s.refuse(id, refusal)
	}
	state.request, state.stream = true, true
	ended := s.shared.stream(id)
	return func() {
		ended()
		leaveStream()
	}, nil
}

// report returns the limits and the current use of a tenant.
func (s *Stack) report(id tenant.ID) *fairuse.Report {
	return &fairuse.Report{Tenant: id.String(), Use: s.shared.fairUse.Use(id), Limits: s.limitsOf(id)}
}

// refuse records a request that exceeds a limit, and returns the response.
func (s *Stack) refuse(id tenant.ID, refusal *fairuse.Refusal) *apierrors.StatusError {
	observe := s.RecordLimit
	if s.shared.ObserveLimit != nil {
		observe = s.shared.ObserveLimit
	}
	observe(id, string(refusal.Limit))
	const message = "the tenant has reached its limit of "
	text := map[fairuse.Limit]string{
		fairuse.LimitRate:     "requests per second",
		fairuse.LimitInFlight: "requests at the same time",
		fairuse.LimitWatches:  "watches and other streams",
	}[refusal.Limit]
	return apierrors.NewTooManyRequests(message+text, int(refusal.RetryAfter.Seconds()))
}

// withFairUse applies the limits that have not been applied to a request yet. At
// [authz.FairUsePath], it responds to callers of tenants with the limits and the current use of
// their own tenant at this server.
func (s *Stack) withFairUse(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx := r.Context()
		u, _ := request.UserFrom(ctx)
		info, _ := request.RequestInfoFrom(ctx)
		state := fairUseStateOf(ctx)
		leave := noLeave
		var refused *apierrors.StatusError
		switch stream := fairuse.IsStream(r, info); {
		case stream && !state.stream:
			leave, refused = s.AdmitStream(ctx, u)
		case !stream && !state.request:
			leave, refused = s.AdmitRequest(ctx, u)
		}
		if refused != nil {
			reviews.Respond(w, r, refused)
			return
		}
		defer leave()
		if isFairUseRequest(r) {
			if id := s.limitedTenant(ctx, u); !id.IsZero() {
				writeReports(w, s.report(id))
				return
			}
		}
		next.ServeHTTP(w, r)
	})
}

// WithAllTenantsFairUse serves [authz.FairUsePath] for callers of the system tenant. It responds
// with the limits and the use of all tenants that currently use the server. The filter MUST run
// inside [Stack.WithTenant]. The server MUST have authorized the request.
func (s *Stack) WithAllTenantsFairUse(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		u, _ := request.UserFrom(r.Context())
		if isFairUseRequest(r) {
			if id, _, err := s.Subject(r.Context(), u); err == nil && id.IsSystem() {
				all := []*fairuse.Report{}
				for _, tenantID := range s.shared.fairUse.Tenants() {
					all = append(all, s.report(tenantID))
				}
				writeReports(w, all...)
				return
			}
		}
		next.ServeHTTP(w, r)
	})
}

func isFairUseRequest(r *http.Request) bool {
	return r.Method == http.MethodGet && r.URL.Path == authz.FairUsePath
}

func writeReports(w http.ResponseWriter, all ...*fairuse.Report) {
	w.Header().Set("Content-Type", runtime.ContentTypeJSON)
	w.Header().Set("Cache-Control", "no-store")
	_ = json.NewEncoder(w).Encode(fairuse.Reports{Items: all}) // an error means that the client has disconnected
}
