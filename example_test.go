// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package kubetenant_test

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/rest"

	"github.com/kubetenant/kubetenant"
	"github.com/kubetenant/kubetenant/authz"
	"github.com/kubetenant/kubetenant/cluster"
	"github.com/kubetenant/kubetenant/cluster/lookup"
	configv1alpha1 "github.com/kubetenant/kubetenant/config/v1alpha1"
	"github.com/kubetenant/kubetenant/tenant"
)

// This server runs in a cluster and stores its own objects in the namespaces of that cluster.
func Example() {
	ctx := genericapiserver.SetupSignalContext()
	generic := newServerConfig()
	config, err := rest.InClusterConfig()
	if err != nil {
		fmt.Println(err)
		return
	}
	clients, err := cluster.NewClients(config)
	if err != nil {
		fmt.Println(err)
		return
	}
	factory := informers.NewSharedInformerFactory(clients.Typed, 0)
	state, err := cluster.New(clients, factory)
	if err != nil {
		fmt.Println(err)
		return
	}
	stack, err := kubetenant.Open(ctx, "tenancy.yaml", kubetenant.Config{
		Cluster:       state,
		Authenticator: generic.Authentication.Authenticator,
		Authorizer:    generic.Authorization.Authorizer,
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer stack.Close()
	if err := stack.Apply(generic, nil); err != nil {
		fmt.Println(err)
		return
	}
	factory.StartWithContext(ctx)
	server, err := generic.Complete(factory).New("notes", genericapiserver.NewEmptyDelegate())
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := server.AddPreShutdownHook("tenants", stack.PreShutdown); err != nil {
		fmt.Println(err)
		return
	}
	if err := server.PrepareRun().RunWithContext(ctx); err != nil {
		fmt.Println(err)
	}
}

// newServerConfig returns the configuration of a server. docs/embedding.md shows a complete one.
func newServerConfig() *genericapiserver.Config { return &genericapiserver.Config{} }

// A server that is not built with k8s.io/apiserver can also use Open. It calls the authenticator
// and the authorizer for each request.
func ExampleOpen() {
	path := writeConfiguration()
	defer func() { _ = os.RemoveAll(filepath.Dir(path)) }()
	stack, err := kubetenant.Open(context.Background(), path, kubetenant.Config{
		Cluster:    acmeCluster(),
		Authorizer: authorizerfactory.NewAlwaysAllowAuthorizer(),
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	request, _ := http.NewRequest(http.MethodGet, "https://kubernetes.default.svc/api", http.NoBody)
	request.Header.Set("Authorization", "Bearer a-secret-of-alice")
	response, ok, err := stack.Authenticator.AuthenticateRequest(request)
	if !ok || err != nil {
		fmt.Println(ok, err)
		return
	}
	decision, reason, err := stack.Authorizer.Authorize(request.Context(), &authorizer.AttributesRecord{
		User:            response.User,
		Verb:            "get",
		Resource:        "pods",
		Namespace:       "globex--web",
		ResourceRequest: true,
	})
	fmt.Println(response.User.GetName(), decision == authorizer.DecisionAllow, reason, err)
	// Output:
	// alice false tenant boundary: the namespace is not owned by the caller's tenant <nil>
}

// The plugins of a Stack label objects with the tenant that owns their namespace.
func ExampleNew() {
	stack, err := kubetenant.New(context.Background(), &configv1alpha1.Settings{}, kubetenant.Config{
		Cluster: acmeCluster(),
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "prices", Namespace: "acme--web"}}
	attributes := admission.NewAttributesRecord(object, nil, corev1.SchemeGroupVersion.WithKind("ConfigMap"), "acme--web",
		"prices", corev1.SchemeGroupVersion.WithResource("configmaps"), "", admission.Create, nil, false,
		&user.DefaultInfo{Name: "alice", Extra: map[string][]string{tenant.ExtraKey: {"acme"}}})
	err = stack.Admission.(admission.MutationInterface).Admit(context.Background(), attributes, nil)
	fmt.Println(object.Labels, err)
	// Output:
	// map[kubetenant.dev/tenant:acme] <nil>
}

// acmeCluster returns a cluster with one namespace for each of two tenants.
func acmeCluster() lookup.Cluster {
	owners := map[string]string{"acme--web": "acme", "globex--web": "globex"}
	parts := lookup.Parts{Owners: authz.NewOwners(func(name string) (*corev1.Namespace, error) {
		labels := map[string]string{tenant.Label: owners[name]}
		return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}, nil
	}, nil)}
	return parts.Cluster()
}

// writeConfiguration writes a configuration with the token of one user, and returns its path.
func writeConfiguration() string {
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		panic(err)
	}
	for name, text := range map[string]string{
		"tokens.csv": "a-secret-of-alice,alice,1,dev,,acme\n",
		"tenancy.yaml": `apiVersion: kubetenant.dev/v1alpha1
kind: TenancyConfiguration
authentication:
  sources:
  - name: tokens
    tokenFile: { path: tokens.csv, defaultTenant: "" }
`,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			panic(err)
		}
	}
	return filepath.Join(dir, "tenancy.yaml")
}
