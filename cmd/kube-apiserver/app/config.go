package app

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	apiextensionsapiserver "k8s.io/apiextensions-apiserver/pkg/apiserver"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/admission/plugin/policy/mutating"
	"k8s.io/apiserver/pkg/admission/plugin/resourcequota"
	genericfeatures "k8s.io/apiserver/pkg/features"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/apiserver/pkg/server/healthz"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/apiserver/pkg/util/webhook"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/tools/cache"
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
	"github.com/kubetenant/kubetenant/cmd/internal/webhook/controller"
	"github.com/kubetenant/kubetenant/cmd/kube-apiserver/issuer"
	"github.com/kubetenant/kubetenant/plugins"
	"github.com/kubetenant/kubetenant/plugins/label"
	"github.com/kubetenant/kubetenant/tenant"
)

// errHandlerChain says that our filters would be dropped: with both gates the server replaces its
// handler chain (k8s.io/apiserver pkg/server, StorageVersionAPI, v0.37.1).
var errHandlerChain = errors.New("the feature gates StorageVersionAPI and APIServerIdentity together replace the handler chain and with it tenancy: switch one off")

var (
	errNotSynced      = errors.New("not all CustomResourceDefinitions are known yet")
	errKindsNotSynced = errors.New("quotas and grants are not known yet: if that lasts, the log says why our definitions are not in place")
)

// newConfig is upstream's app.NewConfig (cmd/kube-apiserver/app/config.go, v1.37.1) from its
// exported parts, with tenancy put in after the generic configuration is built and before it is
// handed to admission and copied into the three servers.
func newConfig(ctx context.Context, opts options.CompletedOptions, tenancyConfig string) (*upstream.Config, error) {
	if opts.InformerName == nil {
		name, err := cache.NewInformerName("kube-apiserver")
		if err != nil {
			return nil, err
		}
		opts.InformerName = name
	}
	ownRBAC := tenancyConfig != "" && takeRBAC(opts)
	generic, versioned, storage, err := controlplaneapiserver.BuildGenericConfig(opts.CompletedOptions,
		[]*runtime.Scheme{legacyscheme.Scheme, apiextensionsapiserver.Scheme, aggregatorscheme.Scheme},
		controlplane.DefaultAPIResourceConfigSource(), generatedopenapi.GetOpenAPIDefinitions, opts.InformerName)
	if err != nil {
		return nil, err
	}
	if tenancyConfig != "" {
		lent := &lentRBAC{}
		if ownRBAC {
			generic.DisabledPostStartHooks.Delete(rbacrest.PostStartHookName) // it makes the roles that every cluster has
			if lent, err = lendRBAC(versioned); err != nil {
				return nil, err
			}
		}
		stack, err := addTenancy(ctx, opts, tenancyConfig, generic, versioned, lent)
		if err != nil {
			return nil, fmt.Errorf("tenancy: %w", err)
		}
		if opts.ServiceAccountIssuer != nil {
			opts.ServiceAccountIssuer = issuer.New(opts.ServiceAccountIssuer, stack.ServiceAccountTenant)
		}
	}
	kube, resolver, initializers, err := upstream.CreateKubeAPIServerConfig(opts, generic, versioned, storage)
	if err != nil {
		return nil, err
	}
	plane := kube.ControlPlane
	extensions, err := controlplaneapiserver.CreateAPIExtensionsConfig(*plane.Generic, plane.VersionedInformers, initializers,
		opts.CompletedOptions, opts.MasterCount, resolver, webhook.NewDefaultAuthenticationInfoResolverWrapper(
			plane.ProxyTransport, plane.Generic.EgressSelector, plane.Generic.LoopbackClientConfig, plane.Generic.TracerProvider))
	if err != nil {
		return nil, err
	}
	aggregator, err := controlplaneapiserver.CreateAggregatorConfig(*plane.Generic, opts.CompletedOptions, plane.VersionedInformers,
		resolver, plane.ProxyTransport, plane.PeerProxy, initializers)
	if err != nil {
		return nil, err
	}
	return &upstream.Config{Options: opts, Aggregator: aggregator, KubeAPIs: kube, ApiExtensions: extensions}, nil
}

// addTenancy puts the stack in place of what the generic configuration has.
func addTenancy(ctx context.Context, opts options.CompletedOptions, path string, generic *genericapiserver.Config, versioned informers.SharedInformerFactory, lent *lentRBAC) (*kubetenant.Stack, error) {
	if utilfeature.DefaultFeatureGate.Enabled(genericfeatures.StorageVersionAPI) &&
		utilfeature.DefaultFeatureGate.Enabled(genericfeatures.APIServerIdentity) {
		return nil, errHandlerChain
	}
	client, err := kubernetes.NewForConfig(generic.LoopbackClientConfig)
	if err != nil {
		return nil, err
	}
	unstructured, err := dynamic.NewForConfig(generic.LoopbackClientConfig)
	if err != nil {
		return nil, err
	}
	scopes, err := kubetenant.NewCustomScopes(unstructured)
	if err != nil {
		return nil, err
	}
	clientCA, err := opts.Authentication.ClientCert.GetClientCAContentProvider()
	if err != nil {
		return nil, err
	}
	var stack *kubetenant.Stack
	mapper := restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(client.Discovery()))
	quotas, err := kubetenant.NewQuotas(unstructured)
	if err != nil {
		return nil, err
	}
	makers, err := newMakers(generic.LoopbackClientConfig, unstructured, mapper)
	if err != nil {
		return nil, err
	}
	sweep, err := newSweep(generic.LoopbackClientConfig, client, scopes, func(ctx context.Context, namespace string) (tenant.ID, error) {
		return stack.NamespaceOwner(ctx, namespace)
	})
	if err != nil {
		return nil, err
	}
	stack, err = kubetenant.Open(ctx, path, kubetenant.Cluster{
		Authenticator: generic.Authentication.Authenticator,
		APIAudiences:  generic.Authentication.APIAudiences,
		RequestHeader: generic.Authentication.RequestHeaderConfig,
		ClientCA:      clientCA,

		ServiceAccountIssuers: opts.Authentication.ServiceAccounts.Issuers,
		TokenObjects:          tokenObjects(client, versioned),

		Authorizer:   generic.Authorization.Authorizer,
		RuleResolver: generic.RuleResolver,
		RBAC:         lent.RBAC,
		Grants:       unstructured,
		Quotas:       quotas,
		Namespaces:   versioned.Core().V1().Namespaces().Lister(),
		Client:       client,
		CustomScope:  scopes.Of,
		Labelled:     sweep.Done,

		MakerMetadata:   makers.Metadata,
		MakerObjects:    makers.Object,
		DefaultPriority: kubetenant.DefaultPriority(versioned.Scheduling().V1().PriorityClasses().Lister()),
		Register:        legacyregistry.Register,
	})
	if err != nil {
		return nil, err
	}
	synced := []cache.InformerSynced{versioned.Core().V1().Namespaces().Informer().HasSynced}
	if lent.RBAC == nil {
		klog.FromContext(ctx).Info("RBAC is evaluated by the server's own evaluator, which does not know the annotation "+tenant.ScopeAnnotation, "modes", opts.Authorization.Modes)
	} else {
		synced = append(synced, lent.synced)
	}
	for _, handler := range []cache.ResourceEventHandler{sweep.Follow(), stack.FollowNamespaces()} {
		if _, err := versioned.Core().V1().Namespaces().Informer().AddEventHandler(handler); err != nil {
			return nil, err
		}
	}
	generic.Authentication.Authenticator = stack.Authenticator
	generic.Authorization.Authorizer = stack.Authorizer
	generic.RuleResolver = stack.RuleResolver
	advertise(generic.SecureServing, stack.ClientCA)

	build := generic.BuildHandlerChainFunc
	generic.BuildHandlerChainFunc = func(api http.Handler, c *genericapiserver.Config) http.Handler {
		return stack.WithCall(build(stack.WithTenant(api), c))
	}

	if err := scopes.OnChange(sweep.Wake); err != nil {
		return nil, err
	}
	if err := generic.AddPostStartHook("kubetenant-custom-scopes", func(h genericapiserver.PostStartHookContext) error {
		go scopes.Run(h)
		go makers.Run(h)
		go func() {
			// These act on what the informers say: that must be all.
			if cache.WaitForCacheSync(h.Done(), synced...) {
				go sweep.Run(h)
				if defineKinds(h, unstructured) == nil {
					go quotas.Run(h)
					go countQuotas(h, generic.LoopbackClientConfig, func() *kubetenant.QuotaCounter {
						return kubetenant.NewQuotaCounter(quotas, mapper, versioned.Core().V1().Namespaces().Lister())
					})
					go stack.EnsureQuotas(h)
					stack.Grants.Run(h)
				}
			}
		}()
		return nil
	}); err != nil {
		return nil, err
	}
	generic.AddReadyzChecks(healthz.NamedCheck("kubetenant-custom-scopes", func(*http.Request) error {
		if !scopes.HasSynced() {
			return errNotSynced
		}
		return nil
	}))

	// Until they are known once, tenants' writes are refused, which nobody tries again.
	generic.AddReadyzChecks(healthz.NamedCheck("kubetenant-kinds", func(*http.Request) error {
		if !quotas.HasSynced() || !stack.Grants.HasSynced() {
			return errKindsNotSynced
		}
		return nil
	}))

	admission := opts.Admission.GenericAdmission
	kubetenant.Register(stack.Admission, admission.Plugins)
	at := slices.Index(admission.RecommendedPluginOrder, mutating.PluginName)
	if at < 0 {
		return nil, fmt.Errorf("no admission plugin %s to stand before", mutating.PluginName)
	}
	end := slices.Index(admission.RecommendedPluginOrder, resourcequota.PluginName)
	if end < at {
		return nil, fmt.Errorf("no admission plugin %s to stand behind", resourcequota.PluginName)
	}
	var names, last []string
	for _, p := range stack.Admission {
		if p.Last {
			last = append(last, p.Name)
		} else {
			names = append(names, p.Name)
		}
	}
	order := admission.RecommendedPluginOrder
	admission.RecommendedPluginOrder = slices.Concat(order[:at], names, order[at:end+1], last, order[end+1:])
	return stack, nil
}

// countQuotas counts while this server leads: of several, one that is behind would take what another saw
// for gone.
func countQuotas(ctx context.Context, config *rest.Config, counter func() *kubetenant.QuotaCounter) {
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		err := controller.Run(ctx, config, metav1.NamespaceSystem, func(ctx context.Context) error {
			counter().Run(ctx)
			return nil
		})
		if err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).Info("Quotas are counted by another server", "err", err)
		}
	}, time.Second)
}

// defineKinds defines our kinds, as soon as the server takes them.
func defineKinds(ctx context.Context, client dynamic.Interface) error {
	return wait.PollUntilContextCancel(ctx, time.Second, true, func(ctx context.Context) (bool, error) {
		err := kubetenant.DefineKinds(ctx, client)
		if err != nil {
			klog.FromContext(ctx).Info("Our definitions are not in place yet", "err", err)
		}
		return err == nil, nil
	})
}

// metadataClient returns a client for the metadata of custom resources too, which has no protobuf form.
func metadataClient(loopback *rest.Config) (metadata.Interface, error) {
	config := rest.CopyConfig(loopback)
	config.ContentType = ""
	return metadata.NewForConfig(config)
}

// newMakers returns what admission knows of the objects from which controllers make others.
func newMakers(loopback *rest.Config, live dynamic.Interface, mapper meta.ResettableRESTMapper) (*kubetenant.Makers, error) {
	objects, err := metadataClient(loopback)
	if err != nil {
		return nil, err
	}
	return kubetenant.NewMakers(objects, live, mapper)
}

// newSweep returns the sweep over what this server stores itself.
func newSweep(loopback *rest.Config, client kubernetes.Interface, scopes *kubetenant.CustomScopes, owner plugins.OwnerFunc) (*label.Sweep, error) {
	objects, err := metadataClient(loopback)
	if err != nil {
		return nil, err
	}
	return label.NewSweep(objects, kubetenant.LabelledResources(client.Discovery(), scopes.Of), owner), nil
}

// tokenObjects reads what tokens of service accounts are bound to, as the server's own authenticator
// does.
func tokenObjects(client kubernetes.Interface, versioned informers.SharedInformerFactory) serviceaccount.ServiceAccountTokenGetter {
	core, admission := versioned.Core().V1(), versioned.Admissionregistration().V1()
	return tokengetter.NewGetterFromClient(client, core.Secrets().Lister(), core.ServiceAccounts().Lister(), core.Pods().Lister(), core.Nodes().Lister(),
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
