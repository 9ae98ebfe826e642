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

// fairUseState records which limits a request has passed before [Stack.WithTenant].
type fairUseState struct {
	request bool // the limits of a request
	stream  bool // the limits of a stream
	// limitedTenant is the tenant that [Stack.AdmitFlow] has found.
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

// limitsOf returns the limits of a tenant.
func (s *Stack) limitsOf(id tenant.ID) fairuse.Limits {
	var spec v1alpha1.FairUse
	if tenants := s.shared.cluster.tenants; tenants != nil {
		spec = tenants.FairUse(id)
	}
	return fairuse.LimitsOf(spec, s.current.Load().config.FairUse)
}

// limitedTenant returns the tenant that has limits for a request, or the zero ID.
func (s *Stack) limitedTenant(ctx context.Context, u user.Info) tenant.ID {
	if id := s.current.Load().boundary.FairUseTenant(ctx, u); !id.IsSystem() {
		return id
	}
	return tenant.ID{}
}

func noLeave() {}

// AdmitRequest adds a request to what the tenant of u uses, within its limits, until leave is
// called. A server calls it before a request waits for other resources. Otherwise,
// [Stack.WithTenant] does. The request MUST have passed [Stack.WithRequestState]. The error is nil,
// or has status 429 and the time after which the client may try again.
func (s *Stack) AdmitRequest(ctx context.Context, u user.Info) (leave func(), refused *apierrors.StatusError) {
	_, leave, refused = s.AdmitFlow(ctx, u)
	return leave, refused
}

// AdmitFlow is [Stack.AdmitRequest] for a server with API Priority and Fairness. It also returns
// the user that classifies the request. All callers of a tenant are one flow: they have the name
// tenant:<id>, the groups of the caller, and the group of the tenant's level. Callers of the system
// tenant and callers without a tenant are unchanged. No caller of a tenant can choose a level by a
// group of its own.
func (s *Stack) AdmitFlow(
	ctx context.Context, u user.Info,
) (flow user.Info, leave func(), refused *apierrors.StatusError) {
	state, id := fairUseStateOf(ctx), s.current.Load().boundary.FairUseTenant(ctx, u)
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

// flowUser returns the user that classifies a request of a caller of a tenant.
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

// AdmitStream is [Stack.AdmitRequest] for a watch or another stream.
func (s *Stack) AdmitStream(ctx context.Context, u user.Info) (leave func(), refused *apierrors.StatusError) {
	id := s.limitedTenant(ctx, u)
	if id.IsZero() {
		return noLeave, nil
	}
	state, limits := fairUseStateOf(ctx), s.limitsOf(id)
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

// report returns the limits and the use of a tenant.
func (s *Stack) report(id tenant.ID) *fairuse.Report {
	return &fairuse.Report{Tenant: id.String(), Use: s.shared.fairUse.Use(id), Limits: s.limitsOf(id)}
}

// refuse records a refused request and returns its response.
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

// withFairUse applies the limits that a request has not passed yet. At [authz.FairUsePath], it
// responds with the limits and the use of the caller's own tenant at this server.
func (s *Stack) withFairUse(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx := r.Context()
		u, _ := request.UserFrom(ctx)
		info, _ := request.RequestInfoFrom(ctx)
		state, leave := fairUseStateOf(ctx), noLeave
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

// WithAllTenantsFairUse responds to callers of the system tenant with the use of all tenants at
// [authz.FairUsePath]. It is a filter within [Stack.WithTenant]. The server MUST have authorized
// the request.
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
