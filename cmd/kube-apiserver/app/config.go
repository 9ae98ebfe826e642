// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"fmt"

	apiextensionsapiserver "k8s.io/apiextensions-apiserver/pkg/apiserver"
	"k8s.io/apimachinery/pkg/runtime"
	genericapiserver "k8s.io/apiserver/pkg/server"
	genericoptions "k8s.io/apiserver/pkg/server/options"
	serverstorage "k8s.io/apiserver/pkg/server/storage"
	"k8s.io/apiserver/pkg/util/webhook"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
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
	"github.com/kubetenant/kubetenant/internal/apiserver"
	"github.com/kubetenant/kubetenant/tenant"
)

// GenericConfig contains the generic configuration of a server and related objects.
type GenericConfig struct {
	// Options contains the given options with the changes for tenancy.
	Options  options.CompletedOptions
	Generic  *genericapiserver.Config
	Informer informers.SharedInformerFactory
	Storage  *serverstorage.DefaultStorageFactory
	// Stack is nil if no TenancyConfiguration is given.
	Stack *kubetenant.Stack
}

// BuildGenericConfig builds the generic configuration as upstream's server does, and adds tenancy
// to it. The caller must then pass the result to the functions that create the configurations of
// the three servers, as [NewConfig] does.
func BuildGenericConfig(
	ctx context.Context, opts options.CompletedOptions, tenancyConfig string,
) (*GenericConfig, error) {
	removal := rbacNotRemoved
	if tenancyConfig != "" {
		removal = removeRBAC(opts.Authorization)
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
	var stack *kubetenant.Stack
	if tenancyConfig != "" {
		var rights *kubetenant.RBAC
		generic.Authorization.Authorizer = removal.withoutRBAC(generic.Authorization.Authorizer)
		if removal != rbacNotRemoved {
			// Without the mode RBAC, upstream disables this hook, which creates the default roles.
			generic.DisabledPostStartHooks.Delete(rbacrest.PostStartHookName)
			if rights, err = rbacOf(versioned); err != nil {
				return nil, err
			}
		}
		if stack, err = addTenancy(ctx, opts, tenancyConfig, generic, versioned, rights); err != nil {
			return nil, fmt.Errorf("tenancy: %w", err)
		}
		if opts.ServiceAccountIssuer != nil {
			opts.ServiceAccountIssuer = issuer.New(opts.ServiceAccountIssuer, stack.ServiceAccountTenant)
		}
	}
	return &GenericConfig{
		Options:  opts,
		Generic:  generic,
		Informer: versioned,
		Storage:  storage,
		Stack:    stack,
	}, nil
}

// NewConfig replaces upstream's app.NewConfig (cmd/kube-apiserver/app/config.go, v1.37.1). It calls
// the same exported functions, and adds the tenancy that the file tenancyConfig specifies. If
// tenancyConfig is empty, the result is the same as upstream's. NewConfig also returns
// [GenericConfig.Stack].
func NewConfig(
	ctx context.Context, opts options.CompletedOptions, tenancyConfig string,
) (*upstream.Config, *kubetenant.Stack, error) {
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
	controlPlane := kube.ControlPlane
	extensions, err := controlplaneapiserver.CreateAPIExtensionsConfig(
		*controlPlane.Generic,
		controlPlane.VersionedInformers,
		initializers,
		opts.CompletedOptions,
		opts.MasterCount,
		resolver,
		webhook.NewDefaultAuthenticationInfoResolverWrapper(controlPlane.ProxyTransport, controlPlane.Generic.EgressSelector,
			controlPlane.Generic.LoopbackClientConfig, controlPlane.Generic.TracerProvider),
	)
	if err != nil {
		return nil, nil, err
	}
	aggregator, err := controlplaneapiserver.CreateAggregatorConfig(*controlPlane.Generic, opts.CompletedOptions,
		controlPlane.VersionedInformers, resolver, controlPlane.ProxyTransport, controlPlane.PeerProxy, initializers)
	if err != nil {
		return nil, nil, err
	}
	return &upstream.Config{
		Options:       opts,
		Aggregator:    aggregator,
		KubeAPIs:      kube,
		ApiExtensions: extensions,
	}, built.Stack, nil
}

// shareClientCA makes GetClientCAContentProvider return the same provider to all its callers.
// Otherwise, each call would create a provider, and the server would reload only its own.
func shareClientCA(o *genericoptions.ClientCertAuthenticationOptions) (err error) {
	o.CAContentProvider, err = o.GetClientCAContentProvider()
	return err
}

// addTenancy opens the stack and applies it to the generic configuration.
func addTenancy(
	ctx context.Context,
	opts options.CompletedOptions,
	path string,
	generic *genericapiserver.Config,
	versioned informers.SharedInformerFactory,
	rights *kubetenant.RBAC,
) (*kubetenant.Stack, error) {
	clients, err := cluster.NewClients(generic.LoopbackClientConfig)
	if err != nil {
		return nil, err
	}
	c, err := cluster.New(clients, versioned)
	if err != nil {
		return nil, err
	}
	policies := versioned.Admissionregistration().V1()
	if _, err := c.FollowAdmission(versioned.Scheduling().V1().PriorityClasses(),
		append(cluster.WebhooksAndPolicies(policies), cluster.MutatingPolicies(policies)...)...); err != nil {
		return nil, err
	}
	clientCA, err := opts.Authentication.ClientCert.GetClientCAContentProvider()
	if err != nil {
		return nil, err
	}
	stack, err := kubetenant.Open(ctx, path, kubetenant.Config{
		Cluster:               c,
		Tasks:                 kubetenant.Lead,
		Authorizer:            generic.Authorization.Authorizer,
		RuleResolver:          generic.RuleResolver,
		RBAC:                  rights,
		Authenticator:         generic.Authentication.Authenticator,
		APIAudiences:          generic.Authentication.APIAudiences,
		RequestHeader:         generic.Authentication.RequestHeaderConfig,
		ClientCA:              clientCA,
		ServiceAccountIssuers: opts.Authentication.ServiceAccounts.Issuers,
		TokenObjects:          tokenObjects(clients.Typed, versioned),
		LegacyTokenUsed:       cluster.LegacyTokenUsed(clients.Typed),
		Register:              apiserver.Register,
	})
	if err != nil {
		return nil, err
	}
	if rights == nil {
		klog.FromContext(ctx).Info("RBAC is evaluated by the server's own evaluator, which ignores the annotations "+
			tenant.ScopeAnnotation+" and "+tenant.ExpiresAnnotation, "modes", opts.Authorization.Modes)
	}
	return stack, stack.Apply(generic, opts.Admission.GenericAdmission)
}

// tokenObjects returns a getter of the objects that service account tokens are bound to. The
// server's own authenticator uses the same kind of getter.
func tokenObjects(
	client kubernetes.Interface, versioned informers.SharedInformerFactory,
) serviceaccount.ServiceAccountTokenGetter {
	core, admission := versioned.Core().V1(), versioned.Admissionregistration().V1()
	return tokengetter.NewGetterFromClient(client, core.Secrets().Lister(), core.ServiceAccounts().Lister(),
		core.Pods().Lister(), core.Nodes().Lister(),
		admission.ValidatingWebhookConfigurations().Lister(), admission.MutatingWebhookConfigurations().Lister())
}
