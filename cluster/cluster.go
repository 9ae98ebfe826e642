// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

// Package cluster reads the state of a live cluster for the other packages. This includes namespace
// owners, custom resources, Tenants, quotas, grants and the controllers of objects. The package
// also runs the engines that write to the cluster. In every deployment mode, a process has one
// [Cluster].
package cluster

import (
	"context"
	"errors"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/tools/cache"

	"github.com/kubetenant/kubetenant/authz"
	"github.com/kubetenant/kubetenant/cluster/accessgrant"
	"github.com/kubetenant/kubetenant/cluster/flowschemas"
	"github.com/kubetenant/kubetenant/cluster/projects"
	"github.com/kubetenant/kubetenant/cluster/provision"
	"github.com/kubetenant/kubetenant/cluster/publication"
	"github.com/kubetenant/kubetenant/cluster/retirement"
	"github.com/kubetenant/kubetenant/cluster/stored"
	"github.com/kubetenant/kubetenant/cluster/tenantquota"
	"github.com/kubetenant/kubetenant/cluster/tenants"
	"github.com/kubetenant/kubetenant/plugins/label"
	"github.com/kubetenant/kubetenant/tenant"
)

// Clients are clients for one API server that share a connection. Typed, Dynamic and Metadata each
// have their own rate limit, so that the requests of one client do not delay another. Reviews,
// Grants and Quotas have no rate limit. Grants and Quotas have at most one request in progress for
// each tenant and object.
type Clients struct {
	// Config is the configuration from which the clients were created.
	Config         *rest.Config
	Typed          kubernetes.Interface
	Reviews        authorizationclient.AuthorizationV1Interface
	Dynamic        dynamic.Interface
	Grants, Quotas dynamic.Interface
	Metadata       metadata.Interface
}

// NewClients returns clients for the API server that config specifies.
func NewClients(config *rest.Config) (c Clients, err error) {
	if config.UserAgent == "" {
		// A server that is shutting down returns 429 to every client except its own, which it
		// recognizes by the user agent (k8s.io/apiserver pkg/server/filters/with_retry_after.go,
		// v0.37.1).
		config = rest.CopyConfig(config)
		config.UserAgent = rest.DefaultKubernetesUserAgent()
	}
	connection, err := rest.HTTPClientFor(config)
	if err != nil {
		return c, err
	}
	c.Config = config
	if c.Typed, err = kubernetes.NewForConfigAndClient(config, connection); err != nil {
		return c, err
	}
	reviews := rest.CopyConfig(config)
	reviews.QPS = -1 // checking one Role can take more reviews than a burst allows
	if c.Reviews, err = authorizationclient.NewForConfigAndClient(reviews, connection); err != nil {
		return c, err
	}
	objects := rest.CopyConfig(config)
	objects.ContentType = "" // custom resources have no protobuf form
	if c.Dynamic, err = dynamic.NewForConfigAndClient(objects, connection); err != nil {
		return c, err
	}
	if c.Metadata, err = metadata.NewForConfigAndClient(objects, connection); err != nil {
		return c, err
	}
	objects = rest.CopyConfig(objects)
	objects.QPS = -1
	if c.Grants, err = dynamic.NewForConfigAndClient(objects, connection); err != nil {
		return c, err
	}
	c.Quotas, err = dynamic.NewForConfigAndClient(objects, connection)
	return c, err
}

// Cluster reads a live cluster and runs the engines that write to it. It is safe for concurrent
// use.
type Cluster struct {
	Clients
	// NamespaceLister lists all Namespaces from a cache.
	NamespaceLister corelisters.NamespaceLister
	// CRDs reads the scopes of custom resources from their definitions.
	CRDs *CRDScopes
	// Definitions reports which CustomResourceDefinitions of the project cannot be used.
	Definitions *DefinitionMonitor
	// ControllerLookup finds the objects that control other objects.
	ControllerLookup *ControllerLookup
	// QuotaStore reads and charges the TenantQuotas.
	QuotaStore *tenantquota.Store
	// GrantController reads the AccessGrants and writes their status.
	GrantController *accessgrant.Controller
	// TenantStore reads the Tenants.
	TenantStore *tenants.Store
	// Published contains the metrics about Publications.
	Published *provision.PublicationMetrics
	// Projects contains the metrics that [Cluster.FollowProjects] sets.
	Projects *projects.Metrics
	// Stored contains the metrics that [Cluster.MeasureStored] sets.
	Stored *stored.Metrics
	// Backfill sets the tenant label on objects that were stored without it.
	Backfill *label.Backfill

	owners     *authz.Owners
	admission  *admissionObjects // nil until [Cluster.FollowAdmission] is called
	namespaces cache.SharedIndexInformer
	byTenant   *tenantquota.Namespaces
	mapper     meta.ResettableRESTMapper
}

// New returns a Cluster that uses the given clients. The caller MUST start the informers of the
// factory. New sends no requests.
func New(clients Clients, factory informers.SharedInformerFactory) (*Cluster, error) {
	namespaces := factory.Core().V1().Namespaces()
	c := &Cluster{
		Clients:         clients,
		NamespaceLister: namespaces.Lister(),
		namespaces:      namespaces.Informer(),
		mapper:          restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(clients.Typed.Discovery())),
	}
	c.owners = authz.NewOwners(c.NamespaceLister.Get, func(ctx context.Context, name string) (*corev1.Namespace, error) {
		return clients.Typed.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
	})
	var err error
	if c.CRDs, err = NewCRDScopes(clients.Dynamic); err != nil {
		return nil, err
	}
	c.Definitions = NewDefinitionMonitor(c.CRDs.Problems)
	if c.ControllerLookup, err = NewControllerLookup(clients.Metadata, clients.Dynamic, c.mapper); err != nil {
		return nil, err
	}
	if c.QuotaStore, err = tenantquota.New(clients.Quotas, c.isDefined); err != nil {
		return nil, err
	}
	if c.TenantStore, err = tenants.New(clients.Dynamic, c.isDefined); err != nil {
		return nil, err
	}
	c.Published = provision.NewPublicationMetrics()
	c.Projects = projects.NewMetrics()
	c.Stored = stored.NewMetrics()
	if c.GrantController, err = accessgrant.New(clients.Grants, c.TenantStore.Lineage, nil); err != nil {
		return nil, err
	}
	if c.byTenant, err = tenantquota.NewNamespaces(c.namespaces); err != nil {
		return nil, err
	}
	c.Backfill = label.NewBackfill(
		clients.Metadata,
		LabeledResources(clients.Typed.Discovery(), c.CRDs.ResourceScope),
		c.owners.OfUnthrottled,
	)
	return c, nil
}

// errNamespaces reports that the namespaces have not been read.
var errNamespaces = errors.New("the cache of namespaces did not sync")

// Manager contains the clients with which the engines write as [tenant.ManagerUser].
type Manager struct {
	Typed    kubernetes.Interface
	Dynamic  dynamic.Interface
	Metadata metadata.Interface
}

// NewManager returns clients that impersonate [tenant.ManagerUser] with the given groups. The user
// that config authenticates must be allowed to impersonate them. The clients have no rate limit,
// because each engine limits its own rate.
func NewManager(config *rest.Config, groups ...string) (m Manager, err error) {
	config = rest.CopyConfig(config)
	config.Impersonate = rest.ImpersonationConfig{UserName: tenant.ManagerUser, Groups: groups}
	config.QPS = -1
	if m.Typed, err = kubernetes.NewForConfig(config); err != nil {
		return m, err
	}
	config.ContentType = "" // custom resources have no protobuf form
	if m.Dynamic, err = dynamic.NewForConfig(config); err != nil {
		return m, err
	}
	m.Metadata, err = metadata.NewForConfig(config)
	return m, err
}

// Provision runs the engine of package provision until ctx ends. Only one process at a time may run
// it. c.TenantStore must be running. For the other parameters, see the fields of
// [provision.Options].
func (c *Cluster) Provision(
	ctx context.Context, m Manager, derivesRights func() bool, shared func() []schema.GroupResource,
	rules func() *publication.Rules, unseen string,
) error {
	return provision.New(provision.Options{
		Client:        m.Typed,
		Dynamic:       m.Dynamic,
		Metadata:      m.Metadata,
		Rules:         rules,
		Unseen:        unseen,
		Published:     c.Published,
		Tenants:       c.TenantStore,
		Namespaces:    c.namespaces,
		Owned:         c.byTenant.OwnedBy,
		OwnerOf:       c.owners.OwnerOf,
		DerivesRights: derivesRights,
		Shared:        shared,
		Definitions:   c.Definitions,
	}).Run(ctx)
}

// ReportDefinitions reports CustomResourceDefinitions of the project that cannot be used, until ctx
// ends. Only one process at a time may run it, because it records events. c.CRDs must be running.
func (c *Cluster) ReportDefinitions(ctx context.Context, m Manager) error {
	c.Definitions.Run(ctx, m.Typed)
	return nil
}

// Run runs c.CRDs and c.ControllerLookup until ctx ends.
func (c *Cluster) Run(ctx context.Context) {
	go c.ControllerLookup.Run(ctx)
	c.CRDs.Run(ctx)
}

// isDefined reports whether the server has a CustomResourceDefinition for a resource. known is
// false until the definitions have been read.
func (c *Cluster) isDefined(r schema.GroupResource) (defined, known bool) {
	known = c.CRDs.HasSynced() // checked first, so that the lookup finds every definition if known is true
	return c.CRDs.ResourceScope(r) != authz.ScopeUnknown, known
}

// IDsWithoutTenant returns the IDs of tenants that own a namespace and have no Tenant. It omits the
// system tenant and deleted tenants, whose IDs are reserved. It returns false if the namespaces or
// the Tenants have not been read.
func (c *Cluster) IDsWithoutTenant() (ids []string, known bool) {
	if !c.NamespacesSynced() || !c.TenantStore.HasSynced() {
		return nil, false
	}
	for _, name := range c.byTenant.Tenants() {
		if id, err := tenant.Parse(name); err == nil && !id.IsSystem() && c.TenantStore.Access(id) == authz.AccessNone {
			ids = append(ids, name)
		}
	}
	return ids, true
}

// Retire runs the engine of package retirement, which deletes tenants, until ctx ends. Only one
// process at a time may run it. c.TenantStore must be running.
func (c *Cluster) Retire(ctx context.Context, m Manager) error {
	if !cache.WaitForCacheSync(ctx.Done(), c.NamespacesSynced) {
		return errNamespaces
	}
	return retirement.New(retirement.Options{
		Client:     m.Typed,
		Dynamic:    m.Dynamic,
		Tenants:    c.TenantStore,
		IsReserved: c.owners.IsReserved,
		Undefined:  c.Definitions.Undefined,
		References: func(ctx context.Context, id tenant.ID, namespaces []string) ([]string, error) {
			return tenants.References(ctx, m.Typed, id, namespaces, c.isTenantNamespace)
		},
	}).Run(ctx)
}

// MaintainFlowSchemas maintains the FlowSchemas of tenants until ctx ends. Only one process at a
// time may run it. c.TenantStore must be running.
func (c *Cluster) MaintainFlowSchemas(ctx context.Context, m *flowschemas.Metrics) error {
	return flowschemas.New(flowschemas.Options{
		Client:     c.Typed,
		Tenants:    c.TenantStore,
		Namespaces: c.namespaces,
		Owned:      c.byTenant.OwnedBy,
		OwnerOf:    c.owners.OwnerOf,
		Metrics:    m,
	}).Run(ctx)
}

// OwnedNamespaces returns the names of the namespaces whose tenant label has the given ID. It fails
// if the namespaces have not been read.
func (c *Cluster) OwnedNamespaces(id tenant.ID) ([]string, error) {
	if !c.NamespacesSynced() {
		return nil, errNamespaces
	}
	return c.byTenant.OwnedBy(id.String())
}

// References returns the objects of a deleted tenant that would apply to a later tenant with the
// same ID. See [tenants.Remaining] and [tenants.References].
func (c *Cluster) References(ctx context.Context, id tenant.ID, namespaces []string) ([]string, error) {
	left, err := tenants.Remaining(ctx, c.Dynamic, id)
	if err != nil {
		return nil, err
	}
	bindings, err := tenants.References(ctx, c.Typed, id, namespaces, c.isTenantNamespace)
	return append(left, bindings...), err
}

// isTenantNamespace reports whether a namespace is known to belong to a tenant.
func (c *Cluster) isTenantNamespace(namespace string) bool {
	ns, err := c.NamespaceLister.Get(namespace)
	if err != nil {
		return false
	}
	owner := c.owners.OwnerOf(ns)
	return !owner.IsZero() && !owner.IsSystem()
}

// NamespacesSynced reports whether all namespaces have been read.
func (c *Cluster) NamespacesSynced() bool { return c.namespaces.HasSynced() }

// FollowNamespaces adds handler to the informer of Namespaces.
func (c *Cluster) FollowNamespaces(handler cache.ResourceEventHandler) error {
	_, err := c.namespaces.AddEventHandler(handler)
	return err
}

// RunQuotas watches the TenantQuotas until ctx ends. For each tenant without a TenantQuota, it
// creates one with the limits that hard returns.
func (c *Cluster) RunQuotas(ctx context.Context, hard func() corev1.ResourceList) {
	go c.QuotaStore.EnsureDefaults(ctx, c.byTenant, hard)
	c.QuotaStore.Run(ctx)
}

// CountQuotas updates the usage in the TenantQuotas until ctx ends. Only one process at a time may
// run it. If a second process had an older cache, it would remove the usage of objects that only
// the first process has observed. c.QuotaStore must be running.
func (c *Cluster) CountQuotas(ctx context.Context) error {
	if !cache.WaitForCacheSync(ctx.Done(), c.NamespacesSynced) {
		return errNamespaces
	}
	tenantquota.NewCounter(c.QuotaStore, c.mapper, c.byTenant).Run(ctx)
	return nil
}

// RunBackfill waits until all namespaces and CustomResourceDefinitions have been read. It then runs
// c.Backfill until ctx ends. [Cluster.Run] or [CRDScopes.Run] must be running.
func (c *Cluster) RunBackfill(ctx context.Context) error {
	if err := c.FollowNamespaces(c.Backfill.NamespaceHandler()); err != nil {
		return err
	}
	if err := c.CRDs.OnChange(c.Backfill.Wake); err != nil {
		return err
	}
	if !cache.WaitForCacheSync(ctx.Done(), c.NamespacesSynced, c.CRDs.HasSynced) {
		return errNamespaces
	}
	c.Backfill.Run(ctx)
	return nil
}
