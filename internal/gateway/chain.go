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

// route is the way to one cluster by one version of the configuration. It is not changed once
// requests take it, and is then safe for concurrent use.
type route struct {
	name    string
	config  *configv1alpha1.GatewayCluster
	shared  *configv1alpha1.Gateway // what holds for all clusters
	gateway *Gateway
	cluster *cluster

	// files are the kubeconfigs that it was made of, by path, with the certificates and
	// authorities that they name.
	files   map[string]fingerprint
	tenants tenant.Set
	mapping *mapping
	own     *ownNames
	server  *url.URL
	// impersonator acts for callers, anonymous passes their own tokens on.
	impersonator, anonymous *transports
	who                     authenticator.Request
	// decisions are the cluster's of the last seconds.
	decisions *decisions
	handler   http.Handler
	objects   http.Handler // the views of the cluster's objects; nil if there are none
}

// build puts the steps of a request together, from the last to the first.
func (c *route) build(a *auditing) error {
	c.who = c.authenticator()
	last := c.withReviews(c.newProxy())
	var err error
	if len(c.shared.Views.Objects) > 0 {
		if last, err = c.withObjects(last); err != nil {
			return err
		}
	}
	stack := c.cluster.stack
	h := stack.WithTenant(c.whileCurrent(c.withAuditStream(c.inTurn(last))))
	h = filters.WithAuthorization(h, stack.Authorizer, codecs())
	if c.decisions, err = c.newDecisions(h); err != nil {
		return err
	}
	h = c.withCaller(c.reviewsInTurn(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c.decisions.impersonation(r).ServeHTTP(w, r)
	})))
	// Of older paths those of Kubernetes' own kinds are read: which others a cluster has is not told
	// before it is known who asks.
	c.handler = c.gateway.stack.WithRequestState(c.withAuthentication(h, c.who, a))
	return nil
}

// withAuthentication puts before a step all that does not know the cluster.
func (c *route) withAuthentication(h http.Handler, who authenticator.Request, a *auditing) http.Handler {
	h = c.withAudit(h, a)
	failed := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		sink, rules := c.recorded(r, a, a.events())
		filters.WithFailedAuthenticationAudit(unauthorized(), sink, rules).ServeHTTP(w, r)
	})
	h = filters.WithAuthentication(h, who, failed, nil, nil)
	h = c.gateway.traced(h)
	h = filters.WithRequestDeadline(h, a.events(), a.policy, fairuse.IsStream, codecs(), c.shared.Limits.Timeout.Duration)
	h = described(h)
	h = filters.WithRequestInfo(h, &request.RequestInfoFactory{
		APIPrefixes:          sets.NewString("api", "apis"),
		GrouplessAPIPrefixes: sets.NewString("api"),
	})
	h = filters.WithAuditInit(c.audited(h))
	return filters.WithRequestReceivedTimestamp(h)
}

// unauthorized answers who is not known: 401, or, where that was not found out, what makes clients
// ask again and not give up a good token.
func unauthorized() http.Handler {
	refuse := filters.Unauthorized(codecs())
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if unknown := proxyStateFrom(r.Context()).unknown; unknown != nil {
			respond(w, r, unknown)
			return
		}
		refuse.ServeHTTP(w, r)
	})
}

// unknownCluster answers requests for clusters that are not configured as those for clusters that
// the caller may not use: not before it is known who asks.
func (c *route) unknownCluster(a *auditing) http.Handler {
	// Whether another configuration is in force meanwhile is not looked at: by another answer then a
	// cluster that is there could be told from none.
	refuse := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { respond(w, r, forbidden(errCluster)) })
	return c.gateway.stack.WithRequestState(c.withAuthentication(refuse, c.gateway.stack.Authenticator, a))
}

// authenticator is the sources of the configuration, and the cluster's own service accounts.
func (c *route) authenticator() authenticator.Request {
	sources := c.gateway.stack.Authenticator
	if c.config.ServiceAccounts.Tokens != configv1alpha1.TokensPass {
		return sources
	}
	return union.NewFailOnError(newAccounts(&accounts{
		issuers: c.config.ServiceAccounts.Issuers,
		keys:    c.cluster.keys,
		limits:  c.cluster.limits,
		revoked: c.gateway.stack.Revocations,
		reviews: c.cluster.client.AuthenticationV1().TokenReviews(),
		cached:  c.cluster.state.CachedNamespace,
		current: c.cluster.state.Server.Cluster.Owners().Namespace,
	}), sources)
}

// clusterAuditAnnotation specifies the cluster of the request. The gateway writes it into each of its
// audit events. It is (none) if the request is for no configured cluster.
const clusterAuditAnnotation = "gateway.kubetenant.dev/cluster"

// targetAuditAnnotation specifies the target of a request that was sent with a whole URL, not only
// with a path. The gateway cuts it after 256 bytes and ignores everything in it except the path.
const targetAuditAnnotation = "gateway.kubetenant.dev/request-target"

// audited adds to the audit events of a request what its path does not contain: the cluster, and the
// rest of the request target.
func (c *route) audited(next http.Handler) http.Handler {
	name := nameOf(c)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		audit.AddAuditAnnotation(r.Context(), clusterAuditAnnotation, name)
		if target := proxyStateFrom(r.Context()).target; target != "" {
			audit.AddAuditAnnotation(r.Context(), targetAuditAnnotation, cut(target))
		}
		next.ServeHTTP(w, r)
	})
}

// errReplaced is the answer to what a change overtook, of the configuration or of a right: whoever
// asks again is answered by what is in force then.
var errReplaced = errors.New("the configuration or the caller's rights changed during the request: try again")

// whileCurrent lets a request on as long as what it came by is in force, all of it: nobody is known
// by new sources and mapped as before. Its session has begun: whoever replaces that later ends it.
func (c *route) whileCurrent(next http.Handler) http.Handler {
	return c.gateway.whileInForce(func(now *generation) bool {
		there := now.routes[c.name]
		return there == c || there.keepsSessions(c)
	}, next)
}

// whileInForce lets a request on where what it came by still is, and no version of the
// configuration is about to count.
func (g *Gateway) whileInForce(still func(now *generation) bool, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		committing := g.committing.Load() // before what is in force is: who was known meanwhile meets the new one
		if !still(g.current.Load()) || committing {
			w.Header().Set("Retry-After", "1")
			respond(w, r, apierrors.NewServiceUnavailable(errReplaced.Error()))
			return
		}
		next.ServeHTTP(w, r)
	})
}

// keepsSessions reports whether what is open by a route before may go on by this one, nil for none.
func (c *route) keepsSessions(before *route) bool {
	if c == nil || c.cluster != before.cluster {
		return false
	}
	if c.shared.Sessions != before.shared.Sessions ||
		!reflect.DeepEqual(c.shared.Views.Objects, before.shared.Views.Objects) {
		return false
	}
	was, is := *before.config, *c.config
	was.Labels, is.Labels = nil, nil // are shown, and decide nothing
	return reflect.DeepEqual(was, is)
}

// described notes what a request is like. It refuses a malformed timeout, which upstream's filter
// would repeat in the log and in the audit event of an unauthenticated request.
func described(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		info, known := request.RequestInfoFrom(r.Context())
		x := proxyStateFrom(r.Context())
		x.stream = fairuse.IsStream(r, info)
		x.prefix = prefixOf(x, r.URL.EscapedPath())
		if known && fairuse.IsUpgrade(r) && !mayUpgrade(info) {
			respond(w, r, apierrors.NewBadRequest(errNoUpgrade.Error()))
			return
		}
		if !x.stream && !isPlainTimeout(r) { // the timeout of a stream is for the cluster or for what is proxied
			respond(w, r, apierrors.NewBadRequest(errTimeout.Error()))
			return
		}
		x.tokenIsSent = r.Header.Get("Impersonate-User") == "" && !x.view &&
			(!known || !answersReview(info))
		next.ServeHTTP(w, r)
	})
}

// errNoUpgrade is the answer to an upgrade of a request that no API server upgrades. As a stream, it would
// avoid the limits and turns of requests.
var errNoUpgrade = errors.New("this request cannot change the protocol of its connection: remove the header Upgrade")

// mayUpgrade reports whether an API server can change the protocol of a request: of a watch, of a proxy,
// and of subresources such as exec.
func mayUpgrade(info *request.RequestInfo) bool {
	return !info.IsResourceRequest || info.Subresource != "" || info.Verb == "watch" || info.Verb == "proxy"
}

// prefixOf returns what of a path as it came stands before the cluster's: of an older tenant path,
// in whose middle the tenant stood, what names the cluster.
func prefixOf(x *proxyState, path string) string {
	before, found := strings.CutSuffix(x.path, path)
	if !found && path != "/" { // which the root of a cluster may come without
		before = ""
		if named := clustersPath + nameOf(x.route); strings.HasPrefix(x.path, named+"/") {
			before = named
		}
	}
	return strings.TrimSuffix(before, "/")
}

// nameOf returns that of a route's cluster; of none, one that no cluster has.
func nameOf(c *route) string {
	if c == nil || c.name == "" {
		return noCluster
	}
	return c.name
}

// authorize is what stands behind the boundary at a cluster: who may be impersonated the cluster
// says, everything else it decides when it is asked.
func (c *route) authorize(ctx context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	if isReviewOfOthers(a) { // which is answered here
		return c.ask(ctx, a)
	}
	if !isImpersonation(a.GetVerb()) {
		return authorizer.DecisionAllow, "", nil
	}
	if c.config.Impersonator.Mode == configv1alpha1.ImpersonationConstrained && a.GetResource() == "serviceaccounts" {
		return authorizer.DecisionDeny, "service accounts cannot be impersonated in this cluster", nil
	}
	return c.ask(ctx, a)
}

// ask asks the cluster.
func (c *route) ask(ctx context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	decision, reason, err := c.decisions.reviews(a).Authorize(ctx, a)
	if err != nil { // which names the cluster's address, and would be told
		klog.FromContext(ctx).Error(err, "Failed to review the access of a caller in the cluster", "cluster", c.name)
		return authorizer.DecisionDeny, errUnreachable.Error(), nil
	}
	return decision, reason, nil
}

// isImpersonation reports whether a verb is of impersonation, in one mode or the other (KEP-5284).
func isImpersonation(verb string) bool {
	return strings.HasPrefix(verb, "impersonate")
}

// serves reports whether the callers of a tenant may use the cluster.
func (c *route) serves(id tenant.ID) bool { return c.tenants.Has(id) }

// close lets go of what the route has open; streams go on.
func (c *route) close() {
	for _, t := range []*transports{c.impersonator, c.anonymous} {
		if t != nil {
			t.close()
		}
	}
}
