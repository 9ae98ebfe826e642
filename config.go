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

// Config is what a server provides to a [Stack]. Cluster is required.
type Config struct {
	// Cluster is the state of the cluster. For a live cluster, use [cluster.New].
	//
	// [cluster.New]: https://pkg.go.dev/github.com/kubetenant/kubetenant/cluster#New
	Cluster lookup.Cluster
	// Tasks specifies what Start does for a live cluster. Defaults to [Follow].
	Tasks Tasks

	// Authorizer decides the requests that the tenant boundary does not deny. If nil, it has no opinion.
	Authorizer authorizer.Authorizer
	// RuleResolver lists the rules of Authorizer. If nil, there are none.
	RuleResolver authorizer.RuleResolver
	// RBAC is the RBAC of the server, if it is not a part of Authorizer. It is called before Authorizer.
	RBAC *RBAC

	// Authenticator is the authenticator of the server. It is called after the sources of the
	// configuration. If nil, there is none.
	Authenticator authenticator.Request
	// APIAudiences are the audiences of the server.
	APIAudiences authenticator.Audiences
	// RequestHeader specifies the front proxies that the server trusts. If nil, it trusts none.
	RequestHeader *authenticatorfactory.RequestHeaderConfig
	// ClientCA contains the authorities of client certificates that Authenticator accepts.
	ClientCA dynamiccertificates.CAContentProvider
	// ServiceAccountIssuers are the issuers of Authenticator. No source of the configuration can have them.
	ServiceAccountIssuers []string
	// TokenObjects returns the objects that tokens of service accounts are bound to. If nil, a token is
	// valid until it expires, also if its object has been deleted.
	TokenObjects serviceaccount.Objects
	// LegacyTokenUsed is called with the Secret of a legacy token that was used.
	LegacyTokenUsed func(ctx context.Context, secret *corev1.Secret)

	// Observe is called with each decision of the boundary, see [authz.Options].
	Observe func(context.Context, authz.Outcome)
	// Register registers metrics. If nil, there are none.
	Register func(metrics.Registerable) error
	// Now is the clock. If nil, it is time.Now.
	Now func() time.Time
}

// Tasks are the tasks of a server for a live cluster.
type Tasks = apiserver.Tasks

const (
	// Follow reads the cluster. It is for a server in a cluster that has kubetenant.
	Follow = apiserver.Follow
	// Lead also installs the definitions of kubetenant's kinds, labels objects, and does the work of the
	// controllers while the server is the leader. It is for the API server of a cluster.
	Lead = apiserver.Lead
)

// RBAC is the RBAC of a server, in both evaluators. The configuration selects one.
type RBAC struct {
	// Index follows the roles and bindings of the server.
	Index *rbac.Index
	// Upstream and UpstreamRules are the evaluator of the server. If nil, the index decides.
	Upstream      authorizer.Authorizer
	UpstreamRules authorizer.RuleResolver
	// Synced reports whether the index is complete. If nil, it always is. [Stack.Start] waits for it.
	Synced func() bool
}

// server returns the configuration as internal/stack has it.
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
		}
	}
	return server
}

// rbacSynced returns [RBAC.Synced], or nil.
func (c *Config) rbacSynced() func() bool {
	if c.RBAC == nil {
		return nil
	}
	return c.RBAC.Synced
}
