// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

// Package state caches the data about a cluster in a process outside of kube-apiserver, and reports
// whether the data is current. The webhook service uses it for its cluster. The gateway uses it for
// each of its clusters.
package state

import (
	"context"
	"errors"
	"net"
	"os"
	"slices"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	"k8s.io/client-go/informers"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/component-base/metrics"

	"github.com/kubetenant/kubetenant/authz"
	"github.com/kubetenant/kubetenant/authz/rbac"
	"github.com/kubetenant/kubetenant/cluster"
	configv1alpha1 "github.com/kubetenant/kubetenant/config/v1alpha1"
	"github.com/kubetenant/kubetenant/internal/stack"
	"github.com/kubetenant/kubetenant/internal/usage"
	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

// State contains the cached data about a cluster, such as its Tenants, namespaces and
// CustomResourceDefinitions. Callers of tenants are denied until the data is complete, and while
// the data is not current.
type State struct {
	// Server configures a stack that uses the State.
	Server stack.Server

	factory    informers.SharedInformerFactory
	cluster    *cluster.Cluster
	view       *view
	backfill   *backfillStatus
	publishes  bool // whether Run publishes the effective configuration
	follow     func(context.Context)
	runQuotas  func(context.Context, *stack.Stack) // nil if quotas are disabled
	webhooks   *Webhooks                           // nil if the webhook configurations are not checked
	synced     map[string]func() bool
	watches    *watches
	namespace  string
	staleAfter time.Duration
	required   []string    // resources of kubetenant.dev without which all tenants are denied
	current    atomic.Bool // whether the last call of check returned nil
	ready      atomic.Bool // whether the last call of checkReady returned nil
	passedOnce atomic.Bool // whether check has ever returned nil
}

// checkInterval is the interval of the calls of check. Requests use the last result.
const checkInterval = 200 * time.Millisecond

// qps and burst limit the rate of requests of each of the process's own clients
// ([cluster.Clients]).
const (
	qps   = 100
	burst = 200
)

// dialTimeout is the maximum time for establishing a connection.
const dialTimeout = 3 * time.Second

// HTTP2Timeouts returns environment variables with which a Kubernetes client, including
// kube-apiserver, notices a dead connection within 5 seconds. The client sends a ping after 3
// seconds without data. It closes the connection if there is no response within 2 seconds. The
// defaults are 30 and 15 (k8s.io/apimachinery pkg/util/net/http.go, v0.37.1).
func HTTP2Timeouts() map[string]string {
	return map[string]string{"HTTP2_READ_IDLE_TIMEOUT_SECONDS": "3", "HTTP2_PING_TIMEOUT_SECONDS": "2"}
}

// New returns the state of the cluster that config connects to. namespace is the namespace of
// kubetenant in that cluster, which contains the ConfigMap with the progress of the backfill. No
// request is sent before [State.Run].
func New(config *rest.Config, settings *configv1alpha1.Settings, namespace string) (*State, error) {
	s := &State{watches: newWatches(time.Now), namespace: namespace, staleAfter: settings.Service.StaleAfter.Duration}
	config = rest.CopyConfig(config)
	config.QPS, config.Burst = qps, burst
	config.Dial = (&net.Dialer{Timeout: dialTimeout, KeepAlive: dialTimeout}).DialContext
	config.Wrap(s.watches.wrap)
	clients, err := cluster.NewClients(protobuf(config))
	if err != nil {
		return nil, err
	}
	s.factory = informers.NewSharedInformerFactoryWithOptions(clients.Typed, 0, informers.WithTransform(stripUnused))
	if s.cluster, err = cluster.New(clients, s.factory); err != nil {
		return nil, err
	}
	s.backfill = followBackfill(clients.Typed, namespace)
	s.follow = s.cluster.CRDs.Run
	s.synced = map[string]func() bool{
		"namespaces":                  s.factory.Core().V1().Namespaces().Informer().HasSynced,
		"custom-resource-definitions": s.cluster.CRDs.HasSynced,
		"swept":                       s.backfill.informer.HasSynced,
		"tenants":                     s.cluster.TenantStore.HasSynced,
		"provisioned-objects":         s.cluster.TenantStore.InputsSynced,
	}
	s.view = &view{Cluster: s.cluster, labeled: s.backfill.isLabeled}
	s.Server.Cluster = s.view
	s.Server.Stale = func() bool { return !s.Decides() }
	if s.Server.Authorization.GrantorAuthorizer, err = grantorAuthorizer(clients.Reviews); err != nil {
		return nil, err
	}
	s.required = []string{v1alpha1.ResourceTenants, v1alpha1.ResourceRetiredTenants}
	if *settings.Authorization.Grants.Enabled {
		s.view.grants = s.cluster.Grants()
		s.synced["accessgrants"] = s.cluster.GrantController.HasSynced
		s.required = append(s.required, v1alpha1.ResourceAccessGrants)
	}
	if *settings.Admission.Quota.Enabled {
		s.required = append(s.required, v1alpha1.ResourceTenantQuotas)
	}
	return s, nil
}

// NewForGateway is like [New], for a gateway. The State also follows the webhook configurations,
// see [State.CheckAdmission].
func NewForGateway(config *rest.Config, settings *configv1alpha1.Settings, namespace string) (*State, error) {
	s, err := New(config, settings, namespace)
	if err != nil {
		return nil, err
	}
	s.webhooks = FollowWebhooks(s.cluster.Typed, namespace)
	if !*settings.Authorization.Grants.Enabled && !*settings.Admission.Quota.Enabled {
		s.required = nil // a cluster without grants and quotas need not have any kind of kubetenant.dev
	}
	if *settings.Admission.Quota.Enabled {
		// Tenants read their own quotas. The webhook service enforces them.
		s.view.quotas = s.cluster.QuotaStore
		s.synced["tenantquotas"] = s.cluster.QuotaStore.HasSynced
		s.runQuotas = func(ctx context.Context, _ *stack.Stack) { s.cluster.QuotaStore.Run(ctx) }
	}
	return s, nil
}

// CheckAdmission returns an error if objects that are written now may have wrong labels. It returns
// nil if, by its webhook configurations, the cluster sends every write to the webhook service and
// rejects a write if the service does not respond. See [CheckWebhooks] for the limits of this
// check.
func (s *State) CheckAdmission() error {
	if s.webhooks == nil {
		return errNotSynced
	}
	return s.webhooks.Check()
}

// LabelsTrusted reports whether the tenant labels in the cluster can be trusted. The webhooks must
// be installed now, and must have been installed during the backfill.
func (s *State) LabelsTrusted() bool {
	if s.CheckAdmission() != nil {
		return false
	}
	version, _ := s.webhooks.Version()
	backfilled := s.backfill.version()
	return version.Follows(backfilled) || backfilled.Follows(version) // either of the two informers may have newer data
}

// NewForWebhooks is like [New], for the webhook service. The State also contains the data that
// authentication, authorization and admission need. NewForWebhooks registers metrics.
func NewForWebhooks(
	config *rest.Config, settings *configv1alpha1.Settings, namespace string, register func(metrics.Registerable) error,
) (*State, error) {
	s, err := New(config, settings, namespace)
	if err != nil {
		return nil, err
	}
	s.publishes = true
	s.follow = s.cluster.Run
	s.Server.Register = register
	s.Server.Authentication = stack.Authentication{
		Credentials:  stack.BearerTokens,
		APIAudiences: settings.Service.APIAudiences,
	}
	s.Server.Authorization.ServerAnswersReviews = true
	synced, err := s.cluster.FollowAdmission(s.factory.Scheduling().V1().PriorityClasses(),
		cluster.WebhooksAndPolicies(s.factory.Admissionregistration().V1())...)
	if err != nil {
		return nil, err
	}
	s.synced["controllers"] = s.cluster.ControllerLookup.HasSynced
	s.synced["admission-objects"] = synced
	s.view.controllers = s.cluster.ControllerLookup
	followed := slices.Concat(
		s.cluster.TenantStore.Metrics(), s.cluster.GrantController.Metrics(), s.cluster.Definitions.Metrics())
	if *settings.Admission.Quota.Enabled {
		s.view.quotas = s.cluster.QuotaStore
		s.runQuotas = func(ctx context.Context, stack *stack.Stack) { s.cluster.RunQuotas(ctx, stack.DefaultQuota) }
		s.synced["tenantquotas"] = s.cluster.QuotaStore.HasSynced
		quotas, err := s.cluster.QuotaStore.Metrics()
		if err != nil {
			return nil, err
		}
		followed = append(followed, quotas...)
	}
	for _, m := range followed {
		if err := register(m); err != nil {
			return nil, err
		}
	}
	if settings.Authorization.RBAC.Evaluator == configv1alpha1.EvaluatorIndexed {
		index := rbac.NewIndex()
		synced, err := index.Follow(s.factory.Rbac().V1())
		if err != nil {
			return nil, err
		}
		s.synced["rbac"] = synced
		s.Server.Authorization.RBAC = &stack.RBAC{
			Index:          index,
			Synced:         once(synced),
			Upstream:       noOpinion(),
			ServerFallback: true,
		}
	}
	return s, nil
}

// WithoutReservations makes admission check quotas without reserving any quota for a request. It
// is for a service that does not authenticate its clients, because reviews from unauthenticated
// clients must not change anything. The controller adds objects only after they were created.
// Concurrent requests can therefore exceed a quota together. Call it before a stack is built from
// the State.
func (s *State) WithoutReservations() {
	if s.view.quotas != nil {
		s.view.quotas = readOnlyQuotas{s.view.quotas}
	}
}

// protobuf makes the typed client use protobuf, which is cheaper than JSON.
func protobuf(config *rest.Config) *rest.Config {
	config.ContentType = runtime.ContentTypeProtobuf
	return config
}

// once returns a function that calls synced until synced has returned true, and then returns true.
func once(synced func() bool) func() bool {
	var done atomic.Bool
	return func() bool {
		if !done.Load() {
			done.Store(synced())
		}
		return done.Load()
	}
}

// noOpinion returns a placeholder for the RBAC evaluator of kube-apiserver, which kube-apiserver
// calls itself.
func noOpinion() authorizer.Authorizer {
	return authorizer.AuthorizerFunc(func(context.Context, authorizer.Attributes) (authorizer.Decision, string, error) {
		return authorizer.DecisionNoOpinion, "", nil
	})
}

// grantorAuthorizer returns an authorizer that sends SubjectAccessReviews to kube-apiserver, which
// calls all its authorizers, including the service. Decisions are cached for a nanosecond only, so
// that a caller cannot grant a right that it has lost.
func grantorAuthorizer(client authorizationclient.AuthorizationV1Interface) (authorizer.Authorizer, error) {
	return authorizerfactory.DelegatingAuthorizerConfig{
		SubjectAccessReviewClient: client,
		AllowCacheTTL:             time.Nanosecond,
		DenyCacheTTL:              time.Nanosecond,
		WebhookRetryBackoff:       &wait.Backoff{Duration: 100 * time.Millisecond, Factor: 1.5, Steps: 2},
	}.New()
}

// stripUnused removes unused fields of objects before they are cached.
func stripUnused(obj any) (any, error) {
	m, err := meta.Accessor(obj)
	if err != nil {
		return obj, nil // not an object, but a tombstone
	}
	m.SetManagedFields(nil)
	switch o := obj.(type) {
	case *corev1.Namespace:
		value, ok := o.Annotations[tenant.HeldAnnotation]
		if o.Annotations, o.Spec = nil, (corev1.NamespaceSpec{}); ok {
			o.Annotations = map[string]string{tenant.HeldAnnotation: value}
		}
	case *rbacv1.RoleBinding:
		until, ok := o.Annotations[tenant.ExpiresAnnotation]
		if o.Annotations, o.Labels = nil, nil; ok {
			o.Annotations = map[string]string{tenant.ExpiresAnnotation: until}
		}
	case *rbacv1.Role:
		o.Annotations, o.Labels = nil, nil
	case *rbacv1.ClusterRole:
		o.Annotations, o.Labels, o.AggregationRule = nil, nil, nil
	}
	return obj, nil
}

// Run starts following the cluster, for the stack that was built from the State. It returns
// immediately. The State follows the cluster until ctx ends. Run MUST be called before the stack is
// used.
func (s *State) Run(ctx context.Context, stack *stack.Stack) error {
	if err := s.cluster.FollowNamespaces(stack.FollowNamespaces()); err != nil {
		return err
	}
	s.cluster.TenantStore.OnLostAccess(stack.TenantChanged)
	s.factory.StartWithContext(ctx)
	go s.follow(ctx)
	if s.publishes {
		host, err := os.Hostname()
		if err != nil {
			return err
		}
		go cluster.PublishConfiguration(ctx, s.cluster.Typed, s.namespace, host, stack.Published)
	}
	if s.runQuotas != nil {
		go s.runQuotas(ctx, stack)
	}
	go s.cluster.TenantStore.Run(ctx)
	if len(s.required) > 0 {
		go s.cluster.Definitions.Run(ctx, nil) // the controller records events
	}
	go s.backfill.informer.RunWithContext(ctx)
	if s.webhooks != nil {
		go s.webhooks.Run(ctx)
	}
	if s.view.grants != nil {
		go s.cluster.GrantController.Run(ctx, stack.GrantorAuthorizer, stack.GrantChanged)
	}
	go s.watches.probe(ctx, s.readNamespace)
	go wait.UntilWithContext(ctx, func(context.Context) { s.refresh() }, checkInterval)
	return nil
}

// StartUsage starts writing the usage of tenants to TenantUsages and to usage records. See
// [stack.Stack.StartUsage].
func (s *State) StartUsage(ctx context.Context, stack *stack.Stack) *usage.Running {
	return stack.StartUsage(ctx, usage.Webhook, s.cluster.Dynamic)
}

var errNotSynced = errors.New("the initial list is not complete")

// OwnerOf returns the ID of the tenant that owns a namespace, or "" if the namespace has an
// invalid tenant label or is not in the cache.
func (s *State) OwnerOf(namespace string) string {
	ns, err := s.cluster.NamespaceLister.Get(namespace)
	if err != nil {
		return ""
	}
	return authz.OwnerOf(ns).String()
}

// CachedNamespace returns a Namespace from the watch cache. The caller MUST NOT change it.
func (s *State) CachedNamespace(name string) (*corev1.Namespace, error) {
	return s.cluster.NamespaceLister.Get(name)
}

// FollowNamespaces registers a handler of Namespace events. It MUST be called before [State.Run].
func (s *State) FollowNamespaces(handler cache.ResourceEventHandler) error {
	return s.cluster.FollowNamespaces(handler)
}

// readNamespace checks that kube-apiserver responds. It reads the namespace of the service from
// the storage of kube-apiserver, and not from a cache. It returns nil if the namespace does not
// exist.
func (s *State) readNamespace(ctx context.Context) error {
	_, err := s.cluster.Typed.CoreV1().Namespaces().Get(ctx, s.namespace, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// onlyNamed limits lists and watches to the object with the given name.
func onlyNamed(name string) func(*metav1.ListOptions) {
	return func(o *metav1.ListOptions) { o.FieldSelector = "metadata.name=" + name }
}
