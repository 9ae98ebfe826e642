// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/kubetenant/kubetenant/authz"
	configv1alpha1 "github.com/kubetenant/kubetenant/config/v1alpha1"
	"github.com/kubetenant/kubetenant/tenant"
)

var (
	// errCluster is the response for an unknown cluster, and for a cluster that the caller may not
	// use.
	errCluster = errors.New("the cluster does not exist or is not available to the caller's tenant")
	// errPage is the response to a request from a web page if the request has no token.
	errPage = errors.New("a request from a web page, or with an Origin header, must have a bearer token: certificates " +
		"and passwords are not accepted")
	errNotOwned = errors.New("the namespace does not belong to the caller's tenant")
	// errAdmission is the response to writes while callers could forge labels.
	errAdmission = errors.New("the cluster does not call the webhook service for every write: tenants cannot write " +
		"until it does")
	errNoTenant = errors.New("the caller has no tenant")
)

// withMappedCaller replaces the authenticated user with the user's identity in the cluster. It
// rejects callers that may not use the cluster.
func (c *route) withMappedCaller(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx := r.Context()
		x := proxyStateFrom(r.Context())
		u, ok := request.UserFrom(ctx)
		if !ok {
			respond(w, r, forbidden(errNoTenant))
			return
		}
		x.authenticated()
		id, mapped, err := c.mapCaller(r, u)
		if err != nil {
			respond(w, r, forbidden(err))
			return
		}
		mapped, ok = authz.RecordMappedCaller(ctx, mapped, c.mapping.tenant)
		if !ok {
			respond(w, r, forbidden(errTenantName))
			return
		}
		x.tenant, x.impersonates = id, r.Header.Get("Impersonate-User") != ""
		next.ServeHTTP(w, r.WithContext(request.WithUser(ctx, mapped)))
	})
}

// requireAdmission rejects the writes for which [route.bypassesAdmission] returns true.
func (c *route) requireAdmission(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if c.bypassesAdmission(r, proxyStateFrom(r.Context()).tenant) {
			respond(w, r, forbidden(errAdmission))
			return
		}
		next.ServeHTTP(w, r)
	})
}

// withFairUse applies the fair-use limits of the caller's tenant.
func (c *route) withFairUse(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		admit := c.cluster.stack.AdmitRequest
		if proxyStateFrom(r.Context()).isStream {
			admit = c.cluster.stack.AdmitStream
		}
		mapped, _ := request.UserFrom(r.Context())
		leave, refused := admit(r.Context(), mapped)
		if refused != nil {
			respond(w, r, refused)
			return
		}
		defer leave()
		next.ServeHTTP(w, r)
	})
}

// withNameCheck rejects a caller whose name in the cluster is the name of an account of the
// gateway.
func (c *route) withNameCheck(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mapped, _ := request.UserFrom(r.Context())
		if err := c.gatewayNames.check(r.Context(), mapped.GetName()); err != nil {
			respond(w, r, statusOf(r.Context(), err))
			return
		}
		next.ServeHTTP(w, r)
	})
}

// withBodyLimit limits the size of the caller's body.
func (c *route) withBodyLimit(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Body != nil {
			x := proxyStateFrom(r.Context())
			x.body = &callerBody{ReadCloser: http.MaxBytesReader(w, r.Body, *c.shared.Limits.BodyBytes)}
			r.Body = x.body
		}
		next.ServeHTTP(w, r)
	})
}

// withStreamLimits ends streams when the gateway stops and, if the configuration specifies it, when
// the caller's credential expires.
func (c *route) withStreamLimits(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		x := proxyStateFrom(r.Context())
		if !x.isStream {
			next.ServeHTTP(w, r)
			return
		}
		ctx := r.Context()
		if r.ContentLength != 0 {
			_ = x.control.SetReadDeadline(time.Time{}) // streams have no time limit
		}
		if end := x.expiry.At; !end.IsZero() && c.shared.Sessions.EndWithCredential {
			var stop func()
			ctx, stop = context.WithDeadline(ctx, end)
			defer stop()
		}
		ctx, done, ok := c.gateway.stopping.stream(ctx, r)
		if !ok {
			refuseStream(w, r)
			return
		}
		defer done()
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}

// mapCaller returns the tenant of an authenticated user, under the tenant's name in the
// configuration, and the user's identity in the cluster.
func (c *route) mapCaller(r *http.Request, u user.Info) (tenant.ID, user.Info, error) {
	if proxyStateFrom(r.Context()).token != "" { // a service account of the cluster
		mapped, _, err := c.cluster.stack.Subject(r.Context(), u)
		if err != nil {
			return tenant.ID{}, nil, errNoTenant
		}
		id := c.mapping.source(mapped)
		if !c.allowsTenant(id) {
			return tenant.ID{}, nil, errCluster
		}
		return id, u, nil
	}
	id, err := tenant.Of(u)
	switch {
	case err != nil:
		return tenant.ID{}, nil, errNoTenant
	case !c.allowsTenant(id):
		return tenant.ID{}, nil, errCluster
	}
	mapped, err := c.mapping.caller(id, u)
	if err != nil {
		return tenant.ID{}, nil, err
	}
	if _, err := c.mapping.impersonation(mapped); err != nil {
		return tenant.ID{}, nil, err
	}
	return id, mapped, nil
}

// unlabeledSubresources are the subresources whose writes store no object with labels.
var unlabeledSubresources = []string{"attach", "exec", "portforward", "proxy", "token", "eviction"}

// bypassesAdmission reports whether a tenant's caller makes a write that the webhook service must
// check, although it is not certain that the cluster calls the service. Such a write could leave a
// forged label, or a TenantMember of another tenant, in the cluster.
func (c *route) bypassesAdmission(r *http.Request, id tenant.ID) bool {
	info, ok := request.RequestInfoFrom(r.Context())
	if !ok || id.IsSystem() || !info.IsResourceRequest ||
		c.config.Admission != configv1alpha1.GatewayAdmissionRequired {
		return false
	}
	switch info.Verb {
	case "get", "list", "watch":
		return false
	case "delete", "deletecollection":
		if info.APIGroup != "" || info.Resource != "namespaces" {
			return false
		}
	default: // includes unknown verbs
		if slices.Contains(unlabeledSubresources, info.Subresource) || info.APIGroup == authenticationv1.GroupName ||
			info.APIGroup == authorizationv1.GroupName {
			return false
		}
	}
	return c.cluster.state.CheckAdmission() != nil
}
