package app

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
	apiextensionsapiserver "k8s.io/apiextensions-apiserver/pkg/apiserver"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/admission/plugin/policy/mutating"
	"k8s.io/apiserver/pkg/admission/plugin/resourcequota"
	"k8s.io/apiserver/pkg/authentication/user"
	genericfeatures "k8s.io/apiserver/pkg/features"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/apiserver/pkg/server/healthz"
	genericoptions "k8s.io/apiserver/pkg/server/options"
	serverstorage "k8s.io/apiserver/pkg/server/storage"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/apiserver/pkg/util/webhook"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/klog/v2"
	aggregatorscheme "k8s.io/kube-aggregator/pkg/apiserver/scheme"
	upstream "k8s.io/kubernetes/cmd/kube-apiserver/app"
	"k8s.io/kubernetes/cmd/kube-apiserver/app/options"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	tokengetter "k8s.io/kubernetes/pkg/controller/serviceaccount"
	"k8s.io/kubernetes/pkg/controlplane"
	controlplaneapiserver "k8s.io/kubernetes/pkg/controlplane/apiserver"
	generatedopenapi "k8s.io/kubernetes/pkg/generated/openapi"
	rbacrest "k8s.io/kubernetes/pkg/registry/rbac/rest"
	"k8s.io/kubernetes/pkg/serviceaccount"

	"github.com/kubetenant/kubetenant"
	"github.com/kubetenant/kubetenant/cluster"
	"github.com/kubetenant/kubetenant/cmd/kube-apiserver/issuer"
	"github.com/kubetenant/kubetenant/tenant"
)

// errHandlerChain says that our filters would be dropped: with both gates the server replaces its
// handler chain (k8s.io/apiserver pkg/server, StorageVersionAPI, v0.37.1).
var errHandlerChain = errors.New("the feature gates StorageVersionAPI and APIServerIdentity together replace the " +
	"handler chain that enforces tenancy: turn one of them off")

var (
	errNotSynced      = errors.New("not all CustomResourceDefinitions have been read yet")
	errKindsNotSynced = errors.New("quotas, grants and Tenants have not been read yet: if this continues, see the log " +
		"for why their CustomResourceDefinitions are not installed")
)

// GenericConfig is the generic configuration of a server, and what is made with it.
type GenericConfig struct {
	// Options are those given, with what tenancy has changed.
	Options  options.CompletedOptions
	Generic  *genericapiserver.Config
	Informer informers.SharedInformerFactory
	Storage  *serverstorage.DefaultStorageFactory
	// BeforeShutdown ends what writes through the server, while the server still serves. Add it to
	// the server as a hook. Nil without tenancy.
	BeforeShutdown genericapiserver.PreShutdownHookFunc
}

// BuildGenericConfig builds the generic configuration as upstream's server does, and puts
// tenancy into it. It must be handed to admission and copied into the three servers
// afterwards, as [NewConfig] does.
func BuildGenericConfig(
	ctx context.Context, opts options.CompletedOptions, tenancyConfig string,
) (*GenericConfig, error) {
	taken := notTaken
	if tenancyConfig != "" {
		taken = takeRBAC(opts.Authorization)
		if err := shareClientCA(opts.Authentication.ClientCert); err != nil {
			return nil, err
		}
	}
	generic, versioned, storage, err := controlplaneapiserver.BuildGenericConfig(opts.CompletedOptions,
		[]*runtime.Scheme{legacyscheme.Scheme, apiextensionsapiserver.Scheme, aggregatorscheme.Scheme},
		controlplane.DefaultAPIResourceConfigSource(), generatedopenapi.GetOpenAPIDefinitions, opts.InformerName)
	if err != nil {
		return nil, err
	}
	var before genericapiserver.PreShutdownHookFunc
	if tenancyConfig != "" {
		lent := &lentRBAC{}
		generic.Authorization.Authorizer = taken.others(generic.Authorization.Authorizer)
		if taken != notTaken {
			generic.DisabledPostStartHooks.Delete(rbacrest.PostStartHookName) // it makes the roles that every cluster has
			if lent, err = lendRBAC(versioned); err != nil {
				return nil, err
			}
		}
		stack, leads, err := addTenancy(ctx, opts, tenancyConfig, generic, versioned, lent)
		if err != nil {
			return nil, fmt.Errorf("tenancy: %w", err)
		}
		before = leads.end
		if opts.ServiceAccountIssuer != nil {
			opts.ServiceAccountIssuer = issuer.New(opts.ServiceAccountIssuer, stack.ServiceAccountTenant)
		}
	}
	return &GenericConfig{
		Options:        opts,
		Generic:        generic,
		Informer:       versioned,
		Storage:        storage,
		BeforeShutdown: before,
	}, nil
}

// NewConfig is upstream's app.NewConfig (cmd/kube-apiserver/app/config.go, v1.37.1) from its
// exported parts, with the tenancy of the configuration file; with none upstream's. It also returns
// the hook [GenericConfig.BeforeShutdown].
func NewConfig(
	ctx context.Context, opts options.CompletedOptions, tenancyConfig string,
) (*upstream.Config, genericapiserver.PreShutdownHookFunc, error) {
	built, err := BuildGenericConfig(ctx, opts, tenancyConfig)
	if err != nil {
		return nil, nil, err
	}
	opts = built.Options
	kube, resolver, initializers, err := upstream.CreateKubeAPIServerConfig(
		opts, built.Generic, built.Informer, built.Storage)
	if err != nil {
		return nil, nil, err
	}
	plane := kube.ControlPlane
	extensions, err := controlplaneapiserver.CreateAPIExtensionsConfig(
		*plane.Generic, plane.VersionedInformers, initializers, opts.CompletedOptions, opts.MasterCount, resolver,
		webhook.NewDefaultAuthenticationInfoResolverWrapper(plane.ProxyTransport, plane.Generic.EgressSelector,
			plane.Generic.LoopbackClientConfig, plane.Generic.TracerProvider))
	if err != nil {
		return nil, nil, err
	}
	aggregator, err := controlplaneapiserver.CreateAggregatorConfig(*plane.Generic, opts.CompletedOptions,
		plane.VersionedInformers, resolver, plane.ProxyTransport, plane.PeerProxy, initializers)
	if err != nil {
		return nil, nil, err
	}
	return &upstream.Config{
		Options:       opts,
		Aggregator:    aggregator,
		KubeAPIs:      kube,
		ApiExtensions: extensions,
	}, built.BeforeShutdown, nil
}

// shareClientCA has all who ask get the one bundle that follows its file: each would get one of his
// own, and of those only the server's runs.
func shareClientCA(o *genericoptions.ClientCertAuthenticationOptions) (err error) {
	o.CAContentProvider, err = o.GetClientCAContentProvider()
	return err
}

// checkHandlerChain refuses features by which the server would not build its
// handlers with our filters.
func checkHandlerChain() error {
	gates := utilfeature.DefaultFeatureGate
	if gates.Enabled(genericfeatures.StorageVersionAPI) && gates.Enabled(genericfeatures.APIServerIdentity) {
		return errHandlerChain
	}
	return nil
}

// addTenancy opens the stack, and puts it in place of what the generic configuration has.
func addTenancy(
	ctx context.Context,
	opts options.CompletedOptions,
	path string,
	generic *genericapiserver.Config,
	versioned informers.SharedInformerFactory,
	lent *lentRBAC,
) (*kubetenant.Stack, *leadership, error) {
	if err := checkHandlerChain(); err != nil {
		return nil, nil, err
	}
	clients, err := cluster.NewClients(generic.LoopbackClientConfig)
	if err != nil {
		return nil, nil, err
	}
	known, err := cluster.New(clients, versioned)
	if err != nil {
		return nil, nil, err
	}
	clientCA, err := opts.Authentication.ClientCert.GetClientCAContentProvider()
	if err != nil {
		return nil, nil, err
	}
	policies := versioned.Admissionregistration().V1()
	selecting := append(cluster.WebhooksAndPolicies(policies), cluster.MutatingPolicies(policies)...)
	selectors, err := cluster.NewNamespaceSelectors(selecting...)
	if err != nil {
		return nil, nil, err
	}
	if err := registerMetrics(known); err != nil {
		return nil, nil, err
	}
	stack, err := kubetenant.Open(ctx, path, kubetenant.Server{
		Authentication: kubetenant.Authentication{
			Authenticator:         generic.Authentication.Authenticator,
			APIAudiences:          generic.Authentication.APIAudiences,
			RequestHeader:         generic.Authentication.RequestHeaderConfig,
			ClientCA:              clientCA,
			ServiceAccountIssuers: opts.Authentication.ServiceAccounts.Issuers,
			TokenObjects:          tokenObjects(clients.Typed, versioned),
			LegacyTokenUsed:       cluster.LegacyTokenUsed(clients.Typed),
		},
		Authorization: kubetenant.Authorization{
			Authorizer:   generic.Authorization.Authorizer,
			RuleResolver: generic.RuleResolver,
			RBAC:         lent.RBAC,
		},
		Cluster:  clusterOf(known, selectors, versioned),
		Register: register,
	})
	if err != nil {
		return nil, nil, err
	}
	if lent.RBAC == nil {
		klog.FromContext(ctx).Info("RBAC is evaluated by the server's own evaluator, which ignores the annotations "+
			tenant.ScopeAnnotation+" and "+tenant.ExpiresAnnotation, "modes", opts.Authorization.Modes)
	}
	if err := known.FollowNamespaces(stack.FollowNamespaces()); err != nil {
		return nil, nil, err
	}
	known.Tenants.OnLess(stack.TenantChanged)
	replace(generic, stack)
	leads := &leadership{}
	if err := addClusterHooks(generic, known, stack, lent.synced, leads); err != nil {
		return nil, nil, err
	}
	return stack, leads, addAdmission(opts, stack)
}

// clusterOf returns what the stack knows about the cluster.
func clusterOf(
	known *cluster.Cluster, selectors *cluster.NamespaceSelectors, versioned informers.SharedInformerFactory,
) kubetenant.Cluster {
	return kubetenant.Cluster{
		Owners:             known.Owners,
		CustomScope:        known.CRDs.Of,
		KindScope:          known.CRDs.OfKind,
		CustomKind:         known.CRDs.KindOf,
		Labelled:           known.Sweep.Done,
		Grants:             known.Grants.Grants(),
		Quotas:             known.Quotas,
		Tenants:            known.Tenants,
		WithoutTenant:      known.WithoutTenant,
		OwnedNamespaces:    known.OwnedNamespaces,
		References:         known.References,
		ControllerMetadata: known.Controllers.Metadata,
		ControllerObjects:  known.Controllers.Object,
		PublicationSource:  known.PublicationSource,
		PublicationRole:    known.PublicationRole,
		SelectedLabels:     selectors.Reason,
		DefaultPriority:    cluster.DefaultPriority(versioned.Scheduling().V1().PriorityClasses().Lister()),
	}
}

// replace puts a stack in place of what the generic configuration has.
func replace(generic *genericapiserver.Config, stack *kubetenant.Stack) {
	generic.Authentication.Authenticator = stack.Authenticator
	generic.Authorization.Authorizer = stack.Authorizer
	generic.RuleResolver = stack.RuleResolver
	generic.FlowControl = FlowByTenant(generic.FlowControl, stack)
	advertise(generic.SecureServing, stack.ClientCA)
	build := generic.BuildHandlerChainFunc
	generic.BuildHandlerChainFunc = func(api http.Handler, c *genericapiserver.Config) http.Handler {
		return stack.WithRequestState(build(stack.WithTenant(stack.WithFairUseOfAll(api)), c))
	}
}

// registerMetrics registers those of what follows the cluster.
func registerMetrics(known *cluster.Cluster) error {
	all, err := known.Quotas.Metrics()
	if err != nil {
		return err
	}
	all = slices.Concat(all, known.Tenants.Metrics(), known.Published.Metrics(), known.Definitions.Metrics(),
		known.Projects.Metrics())
	for _, m := range all {
		if err := register(m); err != nil {
			return err
		}
	}
	return nil
}

// register registers metrics. Of several servers in one process the first one's are
// shown, as upstream's are.
func register(m metrics.Registerable) error {
	err := legacyregistry.Register(m)
	if errors.As(err, &prometheus.AlreadyRegisteredError{}) {
		return nil
	}
	return err
}

// addClusterHooks starts with the server what follows its cluster and writes into it, and makes it
// ready when that is known.
func addClusterHooks(
	generic *genericapiserver.Config,
	known *cluster.Cluster,
	stack *kubetenant.Stack,
	rbacSynced func() bool,
	leads *leadership,
) error {
	manager, err := cluster.NewManager(generic.LoopbackClientConfig, user.SystemPrivilegedGroup)
	if err != nil {
		return err
	}
	kinds := &kindsInstalled{}
	run := func(ctx context.Context) {
		// These act on what the informers say: that must be all.
		if !cache.WaitForCacheSync(ctx.Done(), known.NamespacesSynced) ||
			rbacSynced != nil && !cache.WaitForCacheSync(ctx.Done(), rbacSynced) {
			return
		}
		go func() {
			if err := known.RunSweep(ctx); err != nil && ctx.Err() == nil {
				klog.FromContext(ctx).Error(err, "Failed to label older objects")
			}
		}()
		// as soon as they are defined, by whomever: until then nobody is closed, and then
		// everybody until they are read
		go known.Tenants.Run(ctx)
		if !kinds.install(ctx, known.Dynamic) {
			return
		}
		go known.RunQuotas(ctx, stack.DefaultQuota)
		leads.begin(ctx, func(ctx context.Context) { lead(ctx, generic.LoopbackClientConfig, known, manager, stack) })
		go cluster.PublishConfiguration(ctx, known.Typed, metav1.NamespaceSystem, hostname(), stack.Published)
		known.Grants.Run(ctx, stack.Grantors, stack.GrantChanged)
	}
	if err := generic.AddPostStartHook("kubetenant-cluster", func(h genericapiserver.PostStartHookContext) error {
		go known.Run(h)
		go run(h)
		return nil
	}); err != nil {
		return err
	}
	generic.AddReadyzChecks(healthz.NamedCheck("kubetenant-custom-scopes", func(*http.Request) error {
		if !known.CRDs.HasSynced() {
			return errNotSynced
		}
		return nil
	}))
	// Until they are known once, tenants' writes are refused, which nobody tries again, and without
	// the Tenants all they ask. A cluster that does not take the definitions is ready all the same:
	// what stands in their way may wait for that.
	generic.AddReadyzChecks(healthz.NamedCheck("kubetenant-kinds", func(*http.Request) error {
		if (kinds.refused.Load() || known.Quotas.HasSynced() && known.Grants.HasSynced()) && known.Tenants.HasSynced() {
			return nil
		}
		return errKindsNotSynced
	}))
	return nil
}

// hostname returns the name under which this server publishes its configuration:
// that of its identity lease.
func hostname() string {
	name, err := os.Hostname()
	if err != nil {
		return ""
	}
	return name
}

// addAdmission puts the plugins in their places among the server's own.
func addAdmission(opts options.CompletedOptions, stack *kubetenant.Stack) error {
	admission := opts.Admission.GenericAdmission
	kubetenant.Register(stack.Admission, admission.Plugins)
	at := slices.Index(admission.RecommendedPluginOrder, mutating.PluginName)
	if at < 0 {
		return fmt.Errorf("admission plugin %s not found: the plugins of kubetenant must run before it", mutating.PluginName)
	}
	end := slices.Index(admission.RecommendedPluginOrder, resourcequota.PluginName)
	if end < at {
		return fmt.Errorf("admission plugin %s not found: the plugins of kubetenant must run after it",
			resourcequota.PluginName)
	}
	var first, names, last []string
	for _, p := range stack.Admission {
		switch {
		case p.First:
			first = append(first, p.Name)
		case p.Last:
			last = append(last, p.Name)
		default:
			names = append(names, p.Name)
		}
	}
	order := admission.RecommendedPluginOrder
	admission.RecommendedPluginOrder = slices.Concat(first, order[:at], names, order[at:end+1], last, order[end+1:])
	return nil
}

// kindsInstalled says what became of our definitions.
type kindsInstalled struct{ refused atomic.Bool }

// refusedAfter is how long the definitions are tried before the server is ready without them.
const refusedAfter = 10 * time.Second

// install defines our kinds, trying until the server takes them, and reports false if
// that was not before the end.
func (k *kindsInstalled) install(ctx context.Context, client dynamic.Interface) bool {
	begun := time.Now()
	return wait.PollUntilContextCancel(ctx, time.Second, true, func(ctx context.Context) (bool, error) {
		err := cluster.InstallCRDs(ctx, client)
		if err != nil {
			klog.FromContext(ctx).Info("Failed to install the CustomResourceDefinitions of kubetenant, will retry", "err", err)
		}
		k.refused.Store(err != nil &&
			(apierrors.IsForbidden(err) || apierrors.IsInvalid(err) || time.Since(begun) > refusedAfter))
		return err == nil, nil
	}) == nil
}

// tokenObjects reads what tokens of service accounts are bound to, as the
// server's own authenticator does.
func tokenObjects(
	client kubernetes.Interface, versioned informers.SharedInformerFactory,
) serviceaccount.ServiceAccountTokenGetter {
	core, admission := versioned.Core().V1(), versioned.Admissionregistration().V1()
	return tokengetter.NewGetterFromClient(client, core.Secrets().Lister(), core.ServiceAccounts().Lister(),
		core.Pods().Lister(), core.Nodes().Lister(),
		admission.ValidatingWebhookConfigurations().Lister(), admission.MutatingWebhookConfigurations().Lister())
}

// advertise adds our authorities to those that clients are told of. Without any yet there is
// nothing that a handshake could say.
func advertise(serving *genericapiserver.SecureServingInfo, ours dynamiccertificates.CAContentProvider) {
	switch {
	case serving == nil:
	case serving.ClientCA != nil:
		serving.ClientCA = dynamiccertificates.NewUnionCAContentProvider(serving.ClientCA, ours)
	case len(ours.CurrentCABundleContent()) > 0:
		serving.ClientCA = ours
	}
}
