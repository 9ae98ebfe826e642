// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"errors"
	"net/http"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/kubetenant/kubetenant/authn/oidc"
	"github.com/kubetenant/kubetenant/authz"
	"github.com/kubetenant/kubetenant/cluster/lookup"
	configv1alpha1 "github.com/kubetenant/kubetenant/config/v1alpha1"
	"github.com/kubetenant/kubetenant/internal/gateway/views"
	"github.com/kubetenant/kubetenant/internal/serving/state"
	"github.com/kubetenant/kubetenant/internal/stack"
	"github.com/kubetenant/kubetenant/internal/turns"
	"github.com/kubetenant/kubetenant/tenant"
)

// cluster contains the cached state of one cluster and its sessions. It survives changes of the
// configuration that do not change its key.
type cluster struct {
	key           clusterKey
	state         *state.State
	stack         *stack.Stack
	client        kubernetes.Interface // with the reader's credential
	keys          signatureVerifier
	limits        *reviewLimits
	reader        *rest.Config
	listsByTenant inFlight      // concurrent lists of the objects behind the views, keyed by tenant
	totalLists    inFlight      // the total number of these lists, under the zero tenant ID
	viewBudget    *views.Budget // limits the bytes that the views hold in memory
	// changes records the namespaces for which stored decisions are temporarily not used.
	changes changes
	// queue limits the number of requests that are sent to the cluster at the same time.
	queue *turns.Queue
	// route is the current route. It is nil before the first route takes effect.
	route atomic.Pointer[route]
	stop  context.CancelFunc
	// version is the last version that the cluster reported. It is nil before the first report.
	version atomic.Pointer[string]
}

// clusterKey identifies the settings from which a cluster was built. If they change, the cluster is
// built again.
type clusterKey struct {
	reader              fingerprint
	namespace, settings string
}

var errNoRoute = errors.New("the cluster is not configured")

// newCluster builds the caches of a cluster and keeps them current until ctx ends or the cluster is
// stopped. The gateway's stack provides the revocations and records the decisions.
func newCluster(
	ctx context.Context,
	key clusterKey,
	reader *rest.Config,
	c *configv1alpha1.GatewayCluster,
	settings *configv1alpha1.Settings,
	gateway *stack.Stack,
) (_ *cluster, err error) {
	ctx, stop := context.WithCancel(ctx)
	defer func() {
		if err != nil {
			stop()
		}
	}()
	k := &cluster{
		key:        key,
		stop:       stop,
		limits:     newReviewLimits(),
		reader:     reader,
		viewBudget: views.NewBudget(viewBytes, viewBytesPerTenant),
		queue:      turns.New(*settings.Gateway.Limits.Concurrent, *settings.Gateway.Limits.Queued, 0),
	}
	reviewConfig := limitResponses(reader, func() *byteLimit { return newByteLimit(responseBytes) })
	reviewConfig.QPS = -1 // no rate limit: callers wait for each response, and their number is limited
	reviewConfig.Timeout = responseTimeout
	if k.client, err = kubernetes.NewForConfig(reviewConfig); err != nil {
		return nil, err
	}
	connection, err := rest.HTTPClientFor(reviewConfig)
	if err != nil {
		return nil, err
	}
	// The credential must not be sent to another address.
	connection.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	server, err := serverOf(reader.Host)
	if err != nil {
		return nil, err
	}
	k.keys = oidc.NewKeys(ctx, server.JoinPath("openid/v1/jwks").String(), connection, nil)
	lists := newByteLimit(listBytes)
	limited := limitResponses(reader, func() *byteLimit { return lists })
	if k.state, err = state.NewForGateway(limited, settings, c.Namespace); err != nil {
		return nil, err
	}
	stackServer := k.state.Server
	stackServer.Authentication = stack.Authentication{
		Credentials:         stack.NoCredentials,
		Revocations:         gateway.Revocations,
		SourceTenant:        k.source,
		ReviewAuthenticator: authenticator.RequestFunc(k.reviewToken),
	}
	stackServer.Observe = func(ctx context.Context, o authz.Outcome) {
		o.Caller = k.source(o.Caller)
		gateway.RecordDecision(ctx, o)
	}
	stackServer.ObserveLimit = func(id tenant.ID, limit string) { gateway.RecordLimit(k.source(id), limit) }
	stackServer.ObserveStream = func(id tenant.ID) func() { return gateway.RecordStream(k.source(id)) }
	stackServer.Authorization.Authorizer = authorizer.AuthorizerFunc(k.authorize)
	stackServer.Authorization.ReviewAuthorizer = authorizer.AuthorizerFunc(k.reviewSubject)
	stackServer.Cluster = &labelCheckedCluster{stackServer.Cluster, k.labelsTrusted}
	if k.stack, err = stack.New(ctx, settings, stackServer); err != nil {
		return nil, err
	}
	if err := k.state.FollowNamespaces(namespaceChangeHandler(k.changes.record)); err != nil {
		return nil, err
	}
	if err := k.state.Run(ctx, k.stack); err != nil {
		return nil, err
	}
	go k.pollVersion(ctx)
	return k, nil
}

// labelCheckedCluster reports no labeled resources while trusted returns false. Lists over all
// namespaces are limited by labels, so the boundary then denies them.
type labelCheckedCluster struct {
	lookup.Cluster

	trusted func() bool
}

// Resources implements [lookup.Cluster].
func (c *labelCheckedCluster) Resources() lookup.Resources {
	return &labeledResources{c.Cluster.Resources(), c.trusted}
}

type labeledResources struct {
	lookup.Resources

	trusted func() bool
}

// Labeled implements [lookup.Resources].
func (r *labeledResources) Labeled(resource schema.GroupResource, id tenant.ID) bool {
	return r.trusted() && r.Resources.Labeled(resource, id)
}

// labelsTrusted reports whether the tenant labels in the cluster can be trusted. It returns false
// before the first route takes effect. If the route's admission is Unchecked, it returns true
// without a check.
func (k *cluster) labelsTrusted() bool {
	c := k.route.Load()
	return c != nil && (c.config.Admission == configv1alpha1.GatewayAdmissionUnchecked || k.state.LabelsTrusted())
}

func (k *cluster) source(id tenant.ID) tenant.ID {
	if c := k.route.Load(); c != nil {
		return c.mapping.source(id)
	}
	return id
}

func (k *cluster) authorize(ctx context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	c := k.route.Load()
	if c == nil {
		return authorizer.DecisionDeny, "", errNoRoute
	}
	return c.authorize(ctx, a)
}
