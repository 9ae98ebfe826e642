// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package kubetenant

import (
	"context"
	"net/http"

	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	genericoptions "k8s.io/apiserver/pkg/server/options"

	"github.com/kubetenant/kubetenant/cluster"
	configv1alpha1 "github.com/kubetenant/kubetenant/config/v1alpha1"
	"github.com/kubetenant/kubetenant/internal/apiserver"
	"github.com/kubetenant/kubetenant/internal/stack"
	"github.com/kubetenant/kubetenant/tenant"
)

// Stack contains the authenticator, the authorizer, the rule resolver and the admission plugins
// that make a server multi-tenant. It is safe for concurrent use.
type Stack struct {
	// Authenticator authenticates requests. Users that a source in the configuration
	// authenticates are bound to a tenant, see [tenant.Of]. Users that [Config.Authenticator]
	// authenticates are not bound. Use [Stack.Subject] to find their tenant.
	Authenticator authenticator.Request
	// Authorizer denies cross-tenant requests. For other requests, it calls the authorizers of
	// [Config].
	Authorizer authorizer.Authorizer
	// RuleResolver lists the rules that Authorizer allows.
	RuleResolver authorizer.RuleResolver
	// Admission contains all admission plugins of kubetenant, in the order in which they must
	// run. It mutates and validates.
	Admission admission.Interface
	// ClientCA contains the certificate authorities of the x509 sources, for TLS handshakes.
	ClientCA dynamiccertificates.CAContentProvider

	stack  *stack.Stack
	server *apiserver.Server
}

// New returns a Stack with the given settings. It first sets the defaults and validates the
// settings. The Stack reloads the files that the settings name when they change, until ctx ends.
// An error names the invalid source, file, line or field.
func New(ctx context.Context, settings *configv1alpha1.Settings, config Config) (*Stack, error) {
	s, err := stack.New(ctx, settings, config.server())
	if err != nil {
		return nil, err
	}
	return newStack(s, &config)
}

// Open is like [New] with the settings in the configuration file at path. The Stack also reloads
// this file.
func Open(ctx context.Context, path string, config Config) (*Stack, error) {
	s, err := stack.Open(ctx, path, config.server())
	if err != nil {
		return nil, err
	}
	return newStack(s, &config)
}

func newStack(s *stack.Stack, config *Config) (*Stack, error) {
	liveCluster, _ := config.Cluster.(*cluster.Cluster)
	server, err := apiserver.New(s, liveCluster, config.Tasks, config.rbacSynced())
	if err != nil {
		return nil, err
	}
	plugins := make([]admission.Interface, len(s.Admission))
	for i, p := range s.Admission {
		plugins[i] = p.Interface
	}
	return &Stack{
		Authenticator: s.Authenticator,
		Authorizer:    s.Authorizer,
		RuleResolver:  s.RuleResolver,
		Admission:     admission.NewChainHandler(plugins...),
		ClientCA:      s.ClientCA,
		stack:         s,
		server:        server,
	}, nil
}

// Apply sets the authentication, authorization, rule resolver, handler chain, API Priority and
// Fairness, audit and admission of a server that is not built yet. The server then calls
// [Stack.Start] itself. It becomes ready after it has read the state of the cluster.
//
// If options is nil, the server runs the plugins of the Stack before those in
// generic.AdmissionControl. Otherwise, Apply adds the plugins to options, and the caller MUST apply
// options to the server afterwards.
func (s *Stack) Apply(generic *genericapiserver.Config, options *genericoptions.AdmissionOptions) error {
	return s.server.Apply(generic, options)
}

// Start starts to record usage, and starts the tasks that [Config.Tasks] specifies for a live
// cluster. It returns immediately. The tasks run until ctx ends. The caller MUST start the
// informers of the factory that it passed to [cluster.New]. After Apply, the server calls Start
// itself.
func (s *Stack) Start(ctx context.Context) error { return s.server.Start(ctx) }

// PreShutdown stops the tasks that only the leader runs. Call it before the server stops serving
// requests.
func (s *Stack) PreShutdown() error { return s.server.PreShutdown() }

// Close writes the last usage records. Call it after the last request.
func (s *Stack) Close() { s.server.Close() }

// WithRequestState is the outermost filter of a server. See [authz.WithRequestState].
//
// [authz.WithRequestState]: https://pkg.go.dev/github.com/kubetenant/kubetenant/authz#WithRequestState
func (s *Stack) WithRequestState(next http.Handler) http.Handler {
	return s.stack.WithRequestState(next)
}

// WithTenant is the innermost filter of a server. It limits lists to the caller's tenant and
// applies the fair-use limits. It also handles self reviews, and requests for the fair use and
// the audit stream of the caller's tenant.
func (s *Stack) WithTenant(next http.Handler) http.Handler { return s.stack.WithTenant(next) }

// Subject returns the tenant of an authenticated user. The error wraps [tenant.ErrUnbound] if no
// rule assigns a tenant to the user. A user for which Subject returns an error MUST NOT be treated
// as a user of the system tenant.
func (s *Stack) Subject(ctx context.Context, u user.Info) (tenant.ID, error) {
	id, _, err := s.stack.Subject(ctx, u)
	return id, err
}

// ServiceAccountTenant returns the tenant of the service accounts in the given namespace. An
// issuer of their tokens uses it for the tenant claim. The error wraps [tenant.ErrInvalid] if the
// service accounts have no tenant.
func (s *Stack) ServiceAccountTenant(ctx context.Context, namespace string) (tenant.ID, error) {
	return s.stack.ServiceAccountTenant(ctx, namespace)
}
