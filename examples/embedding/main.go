// Command embedding is a small API server with tenants. docs/embedding.md describes it.
package main

import (
	"context"
	"errors"
	"flag"
	"net/http"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	openapinamer "k8s.io/apiserver/pkg/endpoints/openapi"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/util/compatibility"
	"k8s.io/klog/v2"

	"github.com/kubetenant/kubetenant"
	"github.com/kubetenant/kubetenant/authz"
	"github.com/kubetenant/kubetenant/tenant"
)

var group = schema.GroupVersion{Group: "example.com", Version: "v1"}

// stackOf returns the stack of the server. It defines the owners of namespaces, and the resources
// whose objects all have the tenant label.
func stackOf(ctx context.Context, path string, rights genericapiserver.AuthorizationInfo) (*kubetenant.Stack, error) {
	owners := authz.NewOwners(func(name string) (*corev1.Namespace, error) { // package cluster reads those of a cluster
		owner, _, found := strings.Cut(name, tenant.NamespaceSeparator)
		if !found {
			return nil, apierrors.NewNotFound(corev1.Resource("namespaces"), name)
		}
		meta := metav1.ObjectMeta{Name: name, Labels: map[string]string{tenant.Label: owner}}
		return &corev1.Namespace{ObjectMeta: meta}, nil
	}, nil)
	return kubetenant.Open(ctx, path, kubetenant.Server{
		Authorization: kubetenant.Authorization{Authorizer: rights.Authorizer},
		Cluster: kubetenant.Cluster{
			Owners: owners,
			CustomScope: func(r schema.GroupResource) authz.Scope { // tenants may not use unknown resources
				return map[string]authz.Scope{group.Group: authz.ScopeNamespaced}[r.Group]
			},
			Labelled: func(schema.GroupResource, tenant.ID) bool { return true },
		},
	})
}

// embed replaces the authentication, authorization and admission of the server with the stack.
func embed(stack *kubetenant.Stack, config *genericapiserver.Config) {
	config.Authentication.Authenticator = stack.Authenticator
	config.Authorization.Authorizer = stack.Authorizer
	config.RuleResolver = stack.RuleResolver
	config.BuildHandlerChainFunc = func(handler http.Handler, c *genericapiserver.Config) http.Handler {
		return stack.WithRequestState(genericapiserver.DefaultBuildHandlerChain(stack.WithTenant(handler), c))
	}
	plugins := []admission.Interface{}
	for _, plugin := range stack.Admission {
		plugins = append(plugins, plugin.Interface)
	}
	config.AdmissionControl = admission.NewChainHandler(plugins...)
}

func serve(ctx context.Context, path string, port int) error {
	scheme := newScheme()
	config := genericapiserver.NewConfig(serializer.NewCodecFactory(scheme))
	config.EffectiveVersion = compatibility.DefaultBuildEffectiveVersion()
	config.OpenAPIV3Config = genericapiserver.DefaultOpenAPIV3Config(definitions, openapinamer.NewDefinitionNamer(scheme))
	// a real server uses RBAC here
	config.Authorization.Authorizer = authorizerfactory.NewAlwaysAllowAuthorizer()
	stack, err := stackOf(ctx, path, config.Authorization)
	if err := errors.Join(err, listen(config, port)); err != nil {
		return err
	}
	embed(stack, config)
	server, err := config.Complete(nil).New("notes", genericapiserver.NewEmptyDelegate())
	if err != nil {
		return err
	}
	if err := installNotes(server, scheme); err != nil {
		return err
	}
	return server.PrepareRun().RunWithContext(ctx)
}

func main() {
	path := flag.String("config", "tenancy.yaml", "a TenancyConfiguration")
	port := flag.Int("port", 8443, "port on the loopback address")
	flag.Parse()
	if err := serve(genericapiserver.SetupSignalContext(), *path, *port); err != nil {
		klog.Fatal(err)
	}
}
