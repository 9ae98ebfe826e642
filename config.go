// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package kubetenant

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/authenticatorfactory"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/component-base/metrics"

	"github.com/kubetenant/kubetenant/authn/serviceaccount"
	"github.com/kubetenant/kubetenant/authz"
	"github.com/kubetenant/kubetenant/authz/rbac"
	"github.com/kubetenant/kubetenant/cluster/lookup"
	"github.com/kubetenant/kubetenant/internal/apiserver"
	"github.com/kubetenant/kubetenant/internal/stack"
)

// Config contains the parts of a server that a [Stack] uses. Cluster is required.
type Config struct {
	// Cluster is the state of the cluster. For a live cluster, use [cluster.New].
	//
	// [cluster.New]: https://pkg.go.dev/github.com/kubetenant/kubetenant/cluster#New
	Cluster lookup.Cluster
	// Tasks specifies the tasks that [Stack.Start] starts for a live cluster. Defaults to [Follow].
	Tasks Tasks

	// Authorizer decides about requests that the tenant boundary does not deny. If nil, it has no
	// opinion on any request.
	Authorizer authorizer.Authorizer
	// RuleResolver lists the rules that Authorizer allows. If nil, no rules are listed for
	// Authorizer.
	RuleResolver authorizer.RuleResolver
	// RBAC specifies the RBAC evaluators of the server, if they are not part of Authorizer. They
	// are called before Authorizer. If nil, no RBAC is evaluated before Authorizer.
	RBAC *RBAC

	// Authenticator is the server's own authenticator. It is called after the sources in the
	// configuration. If nil, only the sources are called.
	Authenticator authenticator.Request
	// APIAudiences are the audiences for which the server accepts tokens.
	APIAudiences authenticator.Audiences
	// RequestHeader specifies the front proxies that the server trusts. If nil, the server does
	// not trust any front proxy.
	RequestHeader *authenticatorfactory.RequestHeaderConfig
	// ClientCA contains the certificate authorities whose client certificates Authenticator accepts.
	ClientCA dynamiccertificates.CAContentProvider
	// ServiceAccountIssuers are the issuers of the service account tokens that Authenticator
	// accepts. The sources in the configuration must not use these issuers.
	ServiceAccountIssuers []string
	// TokenObjects returns the objects to which service account tokens are bound. If nil, a token
	// is valid until it expires, even if its object has been deleted.
	TokenObjects serviceaccount.Objects
	// LegacyTokenUsed is called with the Secret of each legacy token that is used. If nil, no function
	// is called.
	LegacyTokenUsed func(ctx context.Context, secret *corev1.Secret)

	// Observe is called for each decision of the boundary, see [authz.Options]. If nil, no
	// function is called.
	Observe func(context.Context, authz.Outcome)
	// Register registers metrics. If nil, no metrics are registered.
	Register func(metrics.Registerable) error
	// Now is the clock. Defaults to [time.Now].
	Now func() time.Time
}

// Tasks is the set of tasks that a server runs for a live cluster.
type Tasks = apiserver.Tasks

const (
	// Follow only reads the state of the cluster. It is for a server in a cluster whose API
	// server already runs kubetenant.
	Follow = apiserver.Follow
	// Lead also installs the CustomResourceDefinitions of kubetenant's kinds, labels objects, and
	// runs the controllers while the server is the leader. It is for the API server of a cluster.
	Lead = apiserver.Lead
)

// RBAC specifies the two RBAC evaluators of a server. The configuration selects the index or the
// evaluator of Kubernetes.
type RBAC struct {
	// Index contains the roles and bindings of the server.
	Index *rbac.Index
	// Upstream and UpstreamRules are the authorizer and the rule resolver of the server's own
	// evaluator. If nil, the index is used.
	Upstream      authorizer.Authorizer
	UpstreamRules authorizer.RuleResolver
	// Synced reports whether the index is complete. If nil, the index is always complete. With
	// [Lead], most tasks that [Stack.Start] starts wait until the index is complete.
	Synced func() bool
}

// server converts c to the type that internal/stack uses.
func (c *Config) server() stack.Server {
	server := stack.Server{
		Cluster: c.Cluster,
		Authentication: stack.Authentication{
			Authenticator:         c.Authenticator,
			APIAudiences:          c.APIAudiences,
			RequestHeader:         c.RequestHeader,
			ClientCA:              c.ClientCA,
			ServiceAccountIssuers: c.ServiceAccountIssuers,
			TokenObjects:          c.TokenObjects,
			LegacyTokenUsed:       c.LegacyTokenUsed,
		},
		Authorization: stack.Authorization{Authorizer: c.Authorizer, RuleResolver: c.RuleResolver},
		Observe:       c.Observe,
		Register:      c.Register,
		Now:           c.Now,
	}
	if c.RBAC != nil {
		server.Authorization.RBAC = &stack.RBAC{
			Index:         c.RBAC.Index,
			Upstream:      c.RBAC.Upstream,
			UpstreamRules: c.RBAC.UpstreamRules,
			Synced:        c.RBAC.Synced,
		}
	}
	return server
}

// rbacSynced returns [RBAC.Synced], or nil if there is no RBAC.
func (c *Config) rbacSynced() func() bool {
	if c.RBAC == nil {
		return nil
	}
	return c.RBAC.Synced
}
