// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

// Package state contains the data about a cluster in a process outside of kube-apiserver, and
// reports whether the data is current. The webhook service uses it, and the gateway uses it for
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

// State is the data about a cluster: its namespaces, its definitions and, if they are used, its
// RBAC and grants. Tenants' callers are denied until it is complete, and while it is not current.
type State struct {
	// Server is the configuration of a stack that uses the state.
	Server stack.Server

	factory    informers.SharedInformerFactory
	known      *cluster.Cluster
	view       *view
	swept      *sweptFile
	publishes  bool // publishes the effective configuration
	follow     func(context.Context)
	runQuotas  func(context.Context, *stack.Stack) // nil if no quotas are counted
	webhooks   *Webhooks                           // nil if they are not checked
	synced     map[string]func() bool
	watches    *watches
	namespace  string
	staleAfter time.Duration
	deciding   []string    // the project's resources without which tenants are denied
	current    atomic.Bool // the last result of Check
	ready      atomic.Bool // the last result of Checks
	complete   atomic.Bool // whether Check has passed once
}

// checkEvery is the interval of the calls of Check whose result requests use.
const checkEvery = 200 * time.Millisecond

// qps and burst limit the requests of each of the service's own clients ([cluster.Clients]).
const (
	qps   = 100
	burst = 200
)

// dialTimeout limits how long it takes to establish a connection.
const dialTimeout = 3 * time.Second

// HTTP2Timeouts returns environment variables with which a Kubernetes client, including
// kube-apiserver, notices a dead connection. The client sends a ping after so many seconds without
// data. It closes the connection if there is no response within so many seconds. The defaults are
// 30 and 15 (k8s.io/apimachinery pkg/util/net/http.go, v0.37.1).
func HTTP2Timeouts() map[string]string {
	return map[string]string{"HTTP2_READ_IDLE_TIMEOUT_SECONDS": "3", "HTTP2_PING_TIMEOUT_SECONDS": "2"}
}

// New returns the state of the cluster that config connects to. namespace is the namespace of the
// process in that cluster. It contains the ConfigMap with the progress of the backfill. No request
// is sent before [State.Run].
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
	s.factory = informers.NewSharedInformerFactoryWithOptions(clients.Typed, 0, informers.WithTransform(slim))
	if s.known, err = cluster.New(clients, s.factory); err != nil {
		return nil, err
	}
	s.swept, s.follow = followSwept(clients.Typed, namespace), s.known.CRDs.Run
	s.synced = map[string]func() bool{
		"namespaces":                  s.factory.Core().V1().Namespaces().Informer().HasSynced,
		"custom-resource-definitions": s.known.CRDs.HasSynced,
		"swept":                       s.swept.informer.HasSynced,
		"tenants":                     s.known.TenantStore.HasSynced,
	}
	s.view = &view{Cluster: s.known, labeled: s.swept.done}
	s.Server.Cluster = s.view
	s.Server.Stale = func() bool { return !s.current.Load() }
	if s.Server.Authorization.Grantors, err = grantors(clients.Reviews); err != nil {
		return nil, err
	}
	s.deciding = []string{v1alpha1.ResourceTenants, v1alpha1.ResourceRetiredTenants}
	if *settings.Authorization.Grants.Enabled {
		s.view.grants = s.known.Grants()
		s.synced["accessgrants"] = s.known.GrantController.HasSynced
		s.deciding = append(s.deciding, v1alpha1.ResourceAccessGrants)
	}
	if *settings.Admission.Quota.Enabled {
		s.deciding = append(s.deciding, v1alpha1.ResourceTenantQuotas)
	}
	return s, nil
}

// NewForGateway is [New] for a process that must know whether the cluster calls the webhook
// service, see [State.AdmissionInPlace].
func NewForGateway(config *rest.Config, settings *configv1alpha1.Settings, namespace string) (*State, error) {
	s, err := New(config, settings, namespace)
	if err != nil {
		return nil, err
	}
	s.webhooks = FollowWebhooks(s.known.Typed, namespace)
	if !*settings.Authorization.Grants.Enabled && !*settings.Admission.Quota.Enabled {
		s.deciding = nil // such a cluster needs none of the project's kinds
	}
	if *settings.Admission.Quota.Enabled {
		// Tenants read their own quotas. The webhook service enforces them.
		s.view.quotas = s.known.QuotaStore
		s.synced["tenantquotas"] = s.known.QuotaStore.HasSynced
		s.runQuotas = func(ctx context.Context, _ *stack.Stack) { s.known.QuotaStore.Run(ctx) }
	}
	return s, nil
}

// AdmissionInPlace returns why objects that are written now may have wrong labels. It returns nil
// if the cluster sends every write to the webhook service and rejects writes that the service does
// not answer.
func (s *State) AdmissionInPlace() error {
	if s.webhooks == nil {
		return errNotSynced
	}
	return s.webhooks.Check()
}

// LabelsHold reports whether the labels in the cluster can be trusted. Admission must be in place
// now, and must have been in place during the backfill.
func (s *State) LabelsHold() bool {
	if s.AdmissionInPlace() != nil {
		return false
	}
	now, _ := s.webhooks.Version()
	swept := s.swept.version()
	return now.Follows(swept) || swept.Follows(now) // either of the two caches may be newer
}

// NewForWebhooks is [New] for a service that answers a server's webhook requests, including
// admission. It registers metrics.
func NewForWebhooks(
	config *rest.Config, settings *configv1alpha1.Settings, namespace string, register func(metrics.Registerable) error,
) (*State, error) {
	s, err := New(config, settings, namespace)
	if err != nil {
		return nil, err
	}
	s.publishes, s.follow, s.Server.Register = true, s.known.Run, register
	s.Server.Authentication = stack.Authentication{
		Credentials:  stack.BearerTokens,
		APIAudiences: settings.Service.APIAudiences,
	}
	s.Server.Authorization.ReviewsElsewhere = true
	synced, err := s.known.FollowAdmission(s.factory.Scheduling().V1().PriorityClasses(),
		cluster.WebhooksAndPolicies(s.factory.Admissionregistration().V1())...)
	if err != nil {
		return nil, err
	}
	s.synced["controllers"] = s.known.ControllerLookup.HasSynced
	s.synced["admission-objects"] = synced
	s.view.controllers = s.known.ControllerLookup
	followed := slices.Concat(
		s.known.TenantStore.Metrics(), s.known.GrantController.Metrics(), s.known.Definitions.Metrics())
	if *settings.Admission.Quota.Enabled {
		s.view.quotas = s.known.QuotaStore
		s.runQuotas = func(ctx context.Context, stack *stack.Stack) { s.known.RunQuotas(ctx, stack.DefaultQuota) }
		s.synced["tenantquotas"] = s.known.QuotaStore.HasSynced
		quotas, err := s.known.QuotaStore.Metrics()
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
			Index:      index,
			Synced:     once(synced),
			Upstream:   noOpinion(),
			AskedAgain: true,
		}
	}
	return s, nil
}

// WithoutReservations makes admission check quotas without charging them. It is for a service that
// does not authenticate its clients, because their reviews must not change anything. Use is counted
// only when it is observed, so concurrent requests may exceed a quota together. Call it before a
// stack is built from the state.
func (s *State) WithoutReservations() {
	if s.view.quotas != nil {
		s.view.quotas = observed{s.view.quotas}
	}
}

// protobuf makes the typed client use protobuf, which is cheaper than JSON.
func protobuf(config *rest.Config) *rest.Config {
	config.ContentType = runtime.ContentTypeProtobuf
	return config
}

// once calls synced until it returns true.
func once(synced func() bool) func() bool {
	var done atomic.Bool
	return func() bool {
		if !done.Load() {
			done.Store(synced())
		}
		return done.Load()
	}
}

// noOpinion is the placeholder for an evaluator that kube-apiserver calls itself.
func noOpinion() authorizer.Authorizer {
	return authorizer.AuthorizerFunc(func(context.Context, authorizer.Attributes) (authorizer.Decision, string, error) {
		return authorizer.DecisionNoOpinion, "", nil
	})
}

// grantors returns an authorizer that sends SubjectAccessReviews to kube-apiserver, which calls all
// its authorizers, including the service. Decisions are not cached, so that a grantor cannot give a
// right that it has lost.
func grantors(client authorizationclient.AuthorizationV1Interface) (authorizer.Authorizer, error) {
	return authorizerfactory.DelegatingAuthorizerConfig{
		SubjectAccessReviewClient: client,
		AllowCacheTTL:             time.Nanosecond,
		DenyCacheTTL:              time.Nanosecond,
		WebhookRetryBackoff:       &wait.Backoff{Duration: 100 * time.Millisecond, Factor: 1.5, Steps: 2},
	}.New()
}

// slim drops unused fields of objects that exist in large numbers.
func slim(obj any) (any, error) {
	m, err := meta.Accessor(obj)
	if err != nil {
		return obj, nil // a tombstone
	}
	m.SetManagedFields(nil)
	switch o := obj.(type) {
	case *corev1.Namespace:
		value, held := o.Annotations[tenant.HeldAnnotation]
		if o.Annotations, o.Spec = nil, (corev1.NamespaceSpec{}); held {
			o.Annotations = map[string]string{tenant.HeldAnnotation: value}
		}
	case *rbacv1.RoleBinding:
		until, ends := o.Annotations[tenant.ExpiresAnnotation]
		if o.Annotations, o.Labels = nil, nil; ends {
			o.Annotations = map[string]string{tenant.ExpiresAnnotation: until}
		}
	case *rbacv1.Role:
		o.Annotations, o.Labels = nil, nil
	case *rbacv1.ClusterRole:
		o.Annotations, o.Labels, o.AggregationRule = nil, nil, nil
	}
	return obj, nil
}

// Run follows the cluster until ctx ends, for the stack that was built from the state. It MUST be
// called before the stack is used.
func (s *State) Run(ctx context.Context, stack *stack.Stack) error {
	if err := s.known.FollowNamespaces(stack.FollowNamespaces()); err != nil {
		return err
	}
	s.known.TenantStore.OnLess(stack.TenantChanged)
	s.factory.StartWithContext(ctx)
	go s.follow(ctx)
	if s.publishes {
		host, err := os.Hostname()
		if err != nil {
			return err
		}
		go cluster.PublishConfiguration(ctx, s.known.Typed, s.namespace, host, stack.Published)
	}
	if s.runQuotas != nil {
		go s.runQuotas(ctx, stack)
	}
	go s.known.TenantStore.Run(ctx)
	if len(s.deciding) > 0 {
		go s.known.Definitions.Run(ctx, nil) // the controller records events
	}
	go s.swept.informer.RunWithContext(ctx)
	if s.webhooks != nil {
		go s.webhooks.Run(ctx)
	}
	if s.view.grants != nil {
		go s.known.GrantController.Run(ctx, stack.Grantors, stack.GrantChanged)
	}
	go s.watches.probe(ctx, s.ask)
	go wait.UntilWithContext(ctx, func(context.Context) { s.look() }, checkEvery)
	return nil
}

// StartUsage writes the use of tenants to their TenantUsages and as records, see
// [stack.Stack.StartUsage].
func (s *State) StartUsage(ctx context.Context, stack *stack.Stack) *usage.Running {
	return stack.StartUsage(ctx, usage.Webhook, s.known.Dynamic)
}

var errNotSynced = errors.New("the initial list is not complete")

// OwnerOf returns the name of the tenant that owns a namespace, or "" if the cache does not know
// it.
func (s *State) OwnerOf(namespace string) string {
	ns, err := s.known.NamespaceLister.Get(namespace)
	if err != nil {
		return ""
	}
	return authz.OwnerOf(ns).String()
}

// CachedNamespace returns a Namespace from the watch cache. The caller MUST NOT change it.
func (s *State) CachedNamespace(name string) (*corev1.Namespace, error) {
	return s.known.NamespaceLister.Get(name)
}

// FollowNamespaces registers a handler of Namespace events. It MUST be called before [State.Run].
func (s *State) FollowNamespaces(handler cache.ResourceEventHandler) error {
	return s.known.FollowNamespaces(handler)
}

// ask reads the namespace of the service from kube-apiserver and its storage.
func (s *State) ask(ctx context.Context) error {
	_, err := s.known.Typed.CoreV1().Namespaces().Get(ctx, s.namespace, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// onlyNamed limits a list to one object.
func onlyNamed(name string) func(*metav1.ListOptions) {
	return func(o *metav1.ListOptions) { o.FieldSelector = "metadata.name=" + name }
}
