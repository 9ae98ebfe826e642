// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

// Package apiserver adds the authentication, authorization, admission and audit of a
// [stack.Stack] to a generic API server. In the background, the server watches the state of the
// cluster, installs kubetenant's CustomResourceDefinitions, and runs kubetenant's controllers.
package apiserver

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/policy/mutating"
	"k8s.io/apiserver/pkg/admission/plugin/resourcequota"
	"k8s.io/apiserver/pkg/authentication/user"
	genericfeatures "k8s.io/apiserver/pkg/features"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/apiserver/pkg/server/healthz"
	genericoptions "k8s.io/apiserver/pkg/server/options"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/klog/v2"

	"github.com/kubetenant/kubetenant/cluster"
	"github.com/kubetenant/kubetenant/internal/stack"
)

// errHandlerChain is returned if both feature gates are enabled. Together, they make the server
// replace its handler chain (k8s.io/apiserver pkg/server, StorageVersionAPI, v0.37.1).
var errHandlerChain = errors.New("the feature gates StorageVersionAPI and APIServerIdentity together replace the " +
	"handler chain that enforces tenancy: turn one of them off")

var (
	errNotSynced      = errors.New("not all CustomResourceDefinitions have been read yet")
	errKindsNotSynced = errors.New("quotas, grants and Tenants have not been read yet: if this continues, see the log " +
		"for why their CustomResourceDefinitions are not installed")
)

// Tasks specifies the background tasks of a server with a live cluster.
type Tasks int

const (
	// Follow watches the state of the cluster.
	Follow Tasks = iota
	// Lead also writes to the cluster, and runs the controllers while the server is the leader.
	Lead
)

// Server adds a stack to a generic API server, and runs its background tasks.
type Server struct {
	stack *stack.Stack
	// cluster is nil if the stack has no live cluster.
	cluster    *cluster.Cluster
	tasks      Tasks
	rbacSynced func() bool
	kinds      kindsInstalled
	state      syncState
	leadership leadership
	// drained closes after the last request. It is nil until Apply is called.
	drained <-chan struct{}
}

// New returns a server for a stack. c is the live cluster of the stack, or nil. rbacSynced
// reports whether the RBAC index of the stack is complete. If rbacSynced is nil, the index is
// always complete.
func New(s *stack.Stack, c *cluster.Cluster, tasks Tasks, rbacSynced func() bool) (*Server, error) {
	server := &Server{
		stack:      s,
		cluster:    c,
		tasks:      tasks,
		rbacSynced: rbacSynced,
	}
	server.state.synced = server.synced
	if c == nil {
		return server, nil
	}
	if err := registerMetrics(c); err != nil {
		return nil, err
	}
	if err := c.FollowNamespaces(s.FollowNamespaces()); err != nil {
		return nil, err
	}
	c.TenantStore.OnLostAccess(s.TenantChanged)
	return server, nil
}

// Apply adds the stack to the configuration of a server: authentication, authorization, the rule
// resolver, the handler chain, API Priority and Fairness, audit and admission. The server calls
// [Server.Start] when it starts, and becomes ready after it has read the state of the cluster. If
// options is nil, the plugins of the stack run before generic.AdmissionControl. Otherwise, they
// are inserted into the plugin order in options.
func (s *Server) Apply(generic *genericapiserver.Config, options *genericoptions.AdmissionOptions) error {
	gates := utilfeature.DefaultFeatureGate
	if gates.Enabled(genericfeatures.StorageVersionAPI) && gates.Enabled(genericfeatures.APIServerIdentity) {
		return errHandlerChain
	}
	generic.Authentication.Authenticator = s.stack.Authenticator
	generic.Authorization.Authorizer = s.stack.Authorizer
	generic.RuleResolver = s.stack.RuleResolver
	generic.FlowControl = FlowByTenant(generic.FlowControl, s.stack)
	advertise(generic.SecureServing, s.stack.ClientCA)
	build := generic.BuildHandlerChainFunc
	generic.BuildHandlerChainFunc = func(api http.Handler, c *genericapiserver.Config) http.Handler {
		api = s.stack.WithTenant(s.stack.WithAllTenantsFairUse(s.stack.WithAllTenantsAudit(api)))
		return s.state.withRetry(s.stack.WithRequestState(build(api, c)))
	}
	if err := addAudit(generic, s.stack); err != nil {
		return err
	}
	s.drained = generic.DrainedNotify()
	if err := s.addHooks(generic); err != nil {
		return err
	}
	if options == nil {
		s.chainAdmission(generic)
		return nil
	}
	return addAdmission(options, s.stack.Admission)
}

// synced reports whether the server has read the state of the cluster.
func (s *Server) synced() bool {
	c := s.cluster
	return c == nil || c.NamespacesSynced() && c.CRDs.HasSynced() &&
		(s.rbacSynced == nil || s.rbacSynced()) && s.kinds.synced(c)
}

// addHooks makes the server call [Server.Start], and delays its readiness until it has read the
// state of the cluster.
func (s *Server) addHooks(generic *genericapiserver.Config) error {
	if err := generic.AddPostStartHook("kubetenant-cluster", func(h genericapiserver.PostStartHookContext) error {
		serving := h.Context
		s.state.serving.Store(&serving)
		return s.Start(h)
	}); err != nil || s.cluster == nil {
		return err
	}
	generic.AddReadyzChecks(
		healthz.NamedCheck("kubetenant-custom-scopes", func(*http.Request) error {
			if !s.cluster.CRDs.HasSynced() {
				return errNotSynced
			}
			return nil
		}),
		// Until the Tenants have been read, the server denies all requests by tenants. Until the
		// other kinds have been read, it denies some writes by tenants.
		healthz.NamedCheck("kubetenant-kinds", func(*http.Request) error {
			if !s.kinds.synced(s.cluster) {
				return errKindsNotSynced
			}
			return nil
		}))
	return nil
}

// Start starts the tasks of the server and returns immediately. The tasks end with ctx. The
// caller MUST start the cluster's informer factory.
func (s *Server) Start(ctx context.Context) error {
	if s.cluster == nil {
		s.leadership.startUsage(ctx, s.stack, nil, s.drained)
		return nil
	}
	if s.tasks == Follow {
		s.leadership.startUsage(ctx, s.stack, nil, s.drained)
		go s.cluster.Run(ctx)
		go s.cluster.TenantStore.Run(ctx)
		go s.cluster.QuotaStore.Run(ctx)
		go s.cluster.GrantController.Run(ctx, s.stack.GrantorAuthorizer, s.stack.GrantChanged)
		return nil
	}
	manager, err := cluster.NewManager(s.cluster.Config, user.SystemPrivilegedGroup)
	if err != nil {
		return err
	}
	go s.cluster.Run(ctx)
	go s.lead(ctx, manager)
	return nil
}

// lead runs the tasks of [Lead] that require complete caches.
func (s *Server) lead(ctx context.Context, manager cluster.Manager) {
	c := s.cluster
	if !cache.WaitForCacheSync(ctx.Done(), c.NamespacesSynced) ||
		s.rbacSynced != nil && !cache.WaitForCacheSync(ctx.Done(), s.rbacSynced) {
		return
	}
	s.leadership.startUsage(ctx, s.stack, c.Dynamic, s.drained)
	go func() {
		if err := c.RunBackfill(ctx); err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "Failed to label older objects")
		}
	}()
	// The Tenants are read as soon as the cluster serves their kind, even if another server has
	// installed the CustomResourceDefinition.
	go c.TenantStore.Run(ctx)
	if !s.kinds.install(ctx, c.Dynamic) {
		return
	}
	go c.RunQuotas(ctx, s.stack.DefaultQuota)
	s.leadership.start(ctx, func(ctx context.Context) { lead(ctx, c.Config, c, manager, s.stack) })
	go cluster.PublishConfiguration(ctx, c.Typed, metav1.NamespaceSystem, hostname(), s.stack.Published)
	c.GrantController.Run(ctx, s.stack.GrantorAuthorizer, s.stack.GrantChanged)
}

// PreShutdown ends the tasks that send writes to the server itself. It is a hook that runs before
// the server shuts down. It always returns nil, because after an error the server would not wait
// for active requests.
func (s *Server) PreShutdown() error { return s.leadership.stop() }

// Close writes the last usage records. Call it after the last request.
func (s *Server) Close() { s.leadership.stopUsage() }

// chainAdmission adds the plugins of the stack before the admission plugins of a server.
func (s *Server) chainAdmission(generic *genericapiserver.Config) {
	plugins := make([]admission.Interface, 0, len(s.stack.Admission)+1)
	for _, p := range s.stack.Admission {
		plugins = append(plugins, p.Interface)
	}
	if generic.AdmissionControl != nil {
		plugins = append(plugins, generic.AdmissionControl)
	}
	generic.AdmissionControl = admission.NewChainHandler(plugins...)
}

// addAdmission inserts the plugins of the stack into the recommended plugin order of the server.
func addAdmission(options *genericoptions.AdmissionOptions, all []stack.Plugin) error {
	stack.Register(all, options.Plugins)
	order := options.RecommendedPluginOrder
	at := slices.Index(order, mutating.PluginName)
	if at < 0 {
		return fmt.Errorf("admission plugin %s not found: the plugins of kubetenant must run before it", mutating.PluginName)
	}
	end := slices.Index(order, resourcequota.PluginName)
	if end < at {
		return fmt.Errorf("admission plugin %s not found: the plugins of kubetenant must run after it",
			resourcequota.PluginName)
	}
	var first, names, last []string
	for _, p := range all {
		switch {
		case p.First:
			first = append(first, p.Name)
		case p.Last:
			last = append(last, p.Name)
		default:
			names = append(names, p.Name)
		}
	}
	options.RecommendedPluginOrder = slices.Concat(first, order[:at], names, order[at:end+1], last, order[end+1:])
	return nil
}

// registerMetrics registers the metrics of the cluster.
func registerMetrics(c *cluster.Cluster) error {
	all, err := c.QuotaStore.Metrics()
	if err != nil {
		return err
	}
	all = slices.Concat(all, c.TenantStore.Metrics(), c.GrantController.Metrics(), c.Published.Metrics(),
		c.Definitions.Metrics(), c.Projects.Metrics(), c.Stored.Registerables())
	for _, m := range all {
		if err := Register(m); err != nil {
			return err
		}
	}
	return nil
}

// Register registers metrics with the legacy registry. If a process has several servers, only the
// metrics of the first server are registered, as in upstream.
func Register(m metrics.Registerable) error {
	err := legacyregistry.Register(m)
	if errors.As(err, &prometheus.AlreadyRegisteredError{}) {
		return nil
	}
	return err
}

// hostname returns the name under which this server publishes its configuration. The label
// kubernetes.io/hostname of the server's identity Lease has the same value, so that the replicas
// can be listed.
func hostname() string {
	name, err := os.Hostname()
	if err != nil {
		return ""
	}
	return name
}

// kindsInstalled records whether the cluster has rejected kubetenant's CustomResourceDefinitions.
type kindsInstalled struct{ rejected atomic.Bool }

// synced reports whether the objects of kubetenant's kinds have been read. If the cluster rejects
// their definitions, a server becomes ready with only the Tenants, because an administrator may
// need the server to fix the definitions.
func (k *kindsInstalled) synced(c *cluster.Cluster) bool {
	return c.TenantStore.HasSynced() && (k.rejected.Load() ||
		c.QuotaStore.HasSynced() && c.GrantController.HasSynced() && c.TenantStore.InputsSynced())
}

// rejectedAfter is the time after which failed attempts to install the CustomResourceDefinitions
// are treated as a rejection.
const rejectedAfter = 10 * time.Second

// install installs kubetenant's CustomResourceDefinitions. It retries until the cluster accepts
// them. It returns false if ctx ends first.
func (k *kindsInstalled) install(ctx context.Context, client dynamic.Interface) bool {
	begun := time.Now()
	return wait.PollUntilContextCancel(ctx, time.Second, true, func(ctx context.Context) (bool, error) {
		err := cluster.InstallCRDs(ctx, client)
		if err != nil {
			klog.FromContext(ctx).Info("Failed to install the CustomResourceDefinitions of kubetenant, will retry", "err", err)
		}
		k.rejected.Store(err != nil &&
			(apierrors.IsForbidden(err) || apierrors.IsInvalid(err) || time.Since(begun) > rejectedAfter))
		return err == nil, nil
	}) == nil
}

// advertise adds the client CAs of the stack to the client CAs that the server sends in TLS
// handshakes.
func advertise(serving *genericapiserver.SecureServingInfo, stackCA dynamiccertificates.CAContentProvider) {
	if serving == nil {
		return
	}
	if serving.ClientCA != nil {
		serving.ClientCA = dynamiccertificates.NewUnionCAContentProvider(serving.ClientCA, stackCA)
		return
	}
	if len(stackCA.CurrentCABundleContent()) > 0 {
		serving.ClientCA = stackCA
	}
}
