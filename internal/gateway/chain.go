// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"reflect"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/request/union"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/filters"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/klog/v2"

	configv1alpha1 "github.com/kubetenant/kubetenant/config/v1alpha1"
	"github.com/kubetenant/kubetenant/internal/fairuse"
	"github.com/kubetenant/kubetenant/tenant"
)

// route handles the requests to one cluster according to one version of the configuration. It is
// not changed after [Gateway.newRoute] returns it, and is then safe for concurrent use.
type route struct {
	name    string
	config  *configv1alpha1.GatewayCluster
	shared  *configv1alpha1.Gateway // the settings that apply to all clusters
	gateway *Gateway
	cluster *cluster

	// files are the fingerprints of the kubeconfigs from which the route was built, keyed by
	// path. Each fingerprint also covers the certificate, key and CA files that the kubeconfig
	// names.
	files        map[string]fingerprint
	tenants      tenant.Set
	mapping      *mapping
	gatewayNames *gatewayNames
	server       *url.URL
	// impersonator sends requests that impersonate callers. anonymous has no credential, and sends
	// requests that contain the callers' own tokens.
	impersonator, anonymous *transports
	authn                   authenticator.Request
	// decisions sends SubjectAccessReviews to the cluster and stores allowed results for a short
	// time.
	decisions *decisions
	handler   http.Handler
	objects   http.Handler // serves the views of the cluster's objects; nil if none is configured
}

// build builds the chain of handlers for a request, from the last handler to the first.
func (c *route) build(a *auditing) error {
	c.authn = c.authenticator()
	last := c.withReviews(c.newProxy())
	var err error
	if len(c.shared.Views.Objects) > 0 {
		if last, err = c.withObjects(last); err != nil {
			return err
		}
	}
	stack := c.cluster.stack
	h := stack.WithTenant(c.requireCurrentRoute(c.withAuditStream(c.waitForSlot(last))))
	h = filters.WithAuthorization(h, stack.Authorizer, codecs())
	if c.decisions, err = c.newDecisions(h); err != nil {
		return err
	}
	h = c.waitForSlotBeforeReviews(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c.decisions.impersonation(r).ServeHTTP(w, r)
	}))
	h = c.withStreamLimits(h)
	h = c.withBodyLimit(h)
	h = c.withNameCheck(h)
	h = c.withFairUse(h)
	h = c.requireAdmission(h)
	h = c.withMappedCaller(h)
	// Older tenant paths are parsed only for Kubernetes' own resources. Parsing the paths of
	// other resources would reveal, before authentication, which resources a cluster serves.
	c.handler = c.gateway.stack.WithRequestState(c.withAuthentication(h, c.authn, a))
	return nil
}

// withAuthentication puts the handlers that all requests share in front of h. These authenticate
// the caller, set the deadline, and create the request info, the audit events and the span.
func (c *route) withAuthentication(h http.Handler, authn authenticator.Request, a *auditing) http.Handler {
	h = c.withAudit(h, a)
	failed := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		sink, rules := c.auditConfig(r, a, a.events())
		filters.WithFailedAuthenticationAudit(unauthorized(), sink, rules).ServeHTTP(w, r)
	})
	h = filters.WithAuthentication(h, authn, failed, nil, nil)
	h = c.gateway.withTracing(h)
	h = filters.WithRequestDeadline(h, a.events(), a.policy, fairuse.IsStream, codecs(), c.shared.Limits.Timeout.Duration)
	h = withRequestProperties(h)
	h = filters.WithRequestInfo(h, &request.RequestInfoFactory{
		APIPrefixes:          sets.NewString("api", "apis"),
		GrouplessAPIPrefixes: sets.NewString("api"),
	})
	h = filters.WithAuditInit(c.withAuditAnnotations(h))
	return filters.WithRequestReceivedTimestamp(h)
}

// unauthorized responds to callers that were not authenticated. The response is usually 401. If the
// review of a service account token failed temporarily, the response is 429 or 503, so that the
// client retries and does not discard a valid token.
func unauthorized() http.Handler {
	refuse := filters.Unauthorized(codecs())
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if unknown := proxyStateFrom(r.Context()).reviewError; unknown != nil {
			respond(w, r, unknown)
			return
		}
		refuse.ServeHTTP(w, r)
	})
}

// unknownCluster responds to requests for clusters that are not configured. After authentication,
// the response is the same as for a cluster that the caller may not use.
func (c *route) unknownCluster(a *auditing) http.Handler {
	// This handler does not check whether its configuration is still current. A different response
	// would reveal whether a cluster exists.
	refuse := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { respond(w, r, forbidden(errCluster)) })
	return c.gateway.stack.WithRequestState(c.withAuthentication(refuse, c.gateway.stack.Authenticator, a))
}

// authenticator returns the authenticator of requests to the cluster. It consists of the configured
// sources. If serviceAccounts.tokens is Pass, the authenticator of the cluster's service accounts
// runs before them.
func (c *route) authenticator() authenticator.Request {
	sources := c.gateway.stack.Authenticator
	if c.config.ServiceAccounts.Tokens != configv1alpha1.TokensPass {
		return sources
	}
	return union.NewFailOnError(newAccounts(&accounts{
		issuers:          c.config.ServiceAccounts.Issuers,
		keys:             c.cluster.keys,
		limits:           c.cluster.limits,
		revoked:          c.gateway.stack.Revocations,
		reviews:          c.cluster.client.AuthenticationV1().TokenReviews(),
		cachedNamespace:  c.cluster.state.CachedNamespace,
		currentNamespace: c.cluster.state.Server.Cluster.Owners().Namespace,
	}), sources)
}

// clusterAuditAnnotation is the audit annotation with the name of the request's cluster. The
// gateway adds it to each of its audit events. Its value is (none) if the cluster is not
// configured.
const clusterAuditAnnotation = "gateway.kubetenant.dev/cluster"

// targetAuditAnnotation is the audit annotation with the target of a request that was sent with a
// whole URL, not only with a path. The gateway cuts the target after 256 bytes. To handle the
// request, it uses only the path of the target.
const targetAuditAnnotation = "gateway.kubetenant.dev/request-target"

// withAuditAnnotations adds two annotations to the audit events of a request: the cluster, and the
// request target if it is a whole URL. The requestURI of the events contains neither the cluster
// part of the path nor the host.
func (c *route) withAuditAnnotations(next http.Handler) http.Handler {
	name := nameOf(c)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		audit.AddAuditAnnotation(r.Context(), clusterAuditAnnotation, name)
		if target := proxyStateFrom(r.Context()).target; target != "" {
			audit.AddAuditAnnotation(r.Context(), targetAuditAnnotation, cut(target))
		}
		next.ServeHTTP(w, r)
	})
}

// errConfigChanged is the response if the configuration or the caller's rights changed during the
// request. If the client retries, the new configuration applies.
var errConfigChanged = errors.New("the configuration or the caller's rights changed during the request: try again")

// requireCurrentRoute rejects a request if its route was replaced by a route that does not keep
// its sessions. Otherwise, the old configuration could map a caller that the new sources
// authenticated. At this step, the session of the request has already begun, so a later change of
// the route ends the session.
func (c *route) requireCurrentRoute(next http.Handler) http.Handler {
	return c.gateway.requireCurrent(func(current *snapshot) bool {
		latest := current.routes[c.name]
		return latest == c || latest.keepsSessions(c)
	}, next)
}

// requireCurrent rejects a request with 503 if isCurrent returns false for the current snapshot, or
// while a new snapshot is being applied.
func (g *Gateway) requireCurrent(isCurrent func(current *snapshot) bool, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// committing must be read before g.current. Then a request that was authenticated during
		// a commit observes either the commit or the new snapshot.
		committing := g.committing.Load()
		if !isCurrent(g.current.Load()) || committing {
			w.Header().Set("Retry-After", "1")
			respond(w, r, apierrors.NewServiceUnavailable(errConfigChanged.Error()))
			return
		}
		next.ServeHTTP(w, r)
	})
}

// keepsSessions reports whether the sessions of an earlier route may continue on this route. If c
// is nil, it returns false.
func (c *route) keepsSessions(before *route) bool {
	if c == nil || c.cluster != before.cluster {
		return false
	}
	if c.shared.Sessions != before.shared.Sessions ||
		!reflect.DeepEqual(c.shared.Views.Objects, before.shared.Views.Objects) {
		return false
	}
	oldConfig, newConfig := *before.config, *c.config
	oldConfig.Labels, newConfig.Labels = nil, nil // labels are only displayed
	return reflect.DeepEqual(oldConfig, newConfig)
}

// withRequestProperties records properties of a request in its [proxyState]. It rejects upgrades
// that no API server supports. It also rejects a malformed timeout, because upstream's filter would
// copy it to the log, and to the audit event of an unauthenticated request.
func withRequestProperties(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		info, ok := request.RequestInfoFrom(r.Context())
		x := proxyStateFrom(r.Context())
		x.isStream = fairuse.IsStream(r, info)
		x.prefix = prefixOf(x, r.URL.EscapedPath())
		if ok && fairuse.IsUpgrade(r) && !mayUpgrade(info) {
			respond(w, r, apierrors.NewBadRequest(errNoUpgrade.Error()))
			return
		}
		if !x.isStream && !isPlainTimeout(r) { // the cluster or the proxied server interprets the timeout of a stream
			respond(w, r, apierrors.NewBadRequest(errTimeout.Error()))
			return
		}
		x.tokenIsSent = r.Header.Get("Impersonate-User") == "" && !x.isView &&
			(!ok || !answersLocally(info))
		next.ServeHTTP(w, r)
	})
}

// errNoUpgrade is the response to an upgrade that no API server supports for the request. Every
// upgrade is handled as a stream, and streams bypass the limits on concurrent requests and the
// queue.
var errNoUpgrade = errors.New("this request cannot change the protocol of its connection: remove the header Upgrade")

// mayUpgrade reports whether an API server may support an upgrade of a request. It returns true for
// watches, proxy requests, requests for subresources (such as exec) and non-resource requests.
func mayUpgrade(info *request.RequestInfo) bool {
	return !info.IsResourceRequest || info.Subresource != "" || info.Verb == "watch" || info.Verb == "proxy"
}

// prefixOf returns the prefix that the gateway removed from the original path, such as
// /clusters/<name>. In an older tenant path, the tenant is in the middle, so the prefix is only the
// cluster part.
func prefixOf(x *proxyState, path string) string {
	before, found := strings.CutSuffix(x.path, path)
	if !found && path != "/" { // for the root of a cluster, the original path may have no final slash
		before = ""
		if named := clustersPath + nameOf(x.route); strings.HasPrefix(x.path, named+"/") {
			before = named
		}
	}
	return strings.TrimSuffix(before, "/")
}

// nameOf returns the name of a route's cluster. If there is no cluster, it returns noCluster,
// which is not a valid cluster name.
func nameOf(c *route) string {
	if c == nil || c.name == "" {
		return noCluster
	}
	return c.name
}

// authorize decides about requests that the boundary does not deny. For impersonations and for
// reviews of other users, the cluster decides with a SubjectAccessReview. In constrained mode,
// service accounts cannot be impersonated. authorize allows all other requests, because the cluster
// authorizes them when it receives them.
func (c *route) authorize(ctx context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	if isDelegatedReview(a) { // the cluster does not receive the review itself
		return c.reviewAccess(ctx, a)
	}
	if !isImpersonation(a.GetVerb()) {
		return authorizer.DecisionAllow, "", nil
	}
	if c.config.Impersonator.Mode == configv1alpha1.ImpersonationConstrained && a.GetResource() == "serviceaccounts" {
		return authorizer.DecisionDeny, "service accounts cannot be impersonated in this cluster", nil
	}
	return c.reviewAccess(ctx, a)
}

// reviewAccess decides about a request with a SubjectAccessReview in the cluster, or with the
// stored result of an earlier review. If the review fails, it denies the request and returns no
// error.
func (c *route) reviewAccess(ctx context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	decision, reason, err := c.decisions.accessReviewer(a).Authorize(ctx, a)
	if err != nil { // err contains the cluster's address, which the caller must not see
		klog.FromContext(ctx).Error(err, "Failed to review the access of a caller in the cluster", "cluster", c.name)
		return authorizer.DecisionDeny, errUnreachable.Error(), nil
	}
	return decision, reason, nil
}

// isImpersonation reports whether a verb belongs to impersonation, legacy or constrained
// (KEP-5284).
func isImpersonation(verb string) bool {
	return strings.HasPrefix(verb, "impersonate")
}

// allowsTenant reports whether the callers of a tenant may use the cluster.
func (c *route) allowsTenant(id tenant.ID) bool { return c.tenants.Has(id) }

// close closes the idle connections of the route. Streams continue.
func (c *route) close() {
	for _, t := range []*transports{c.impersonator, c.anonymous} {
		if t != nil {
			t.close()
		}
	}
}
