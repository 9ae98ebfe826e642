// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

// Command embedding is a small API server with tenants. docs/embedding.md describes it.
package main

import (
	"context"
	"errors"
	"flag"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	openapinamer "k8s.io/apiserver/pkg/endpoints/openapi"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/util/compatibility"
	"k8s.io/klog/v2"

	"github.com/kubetenant/kubetenant"
	"github.com/kubetenant/kubetenant/authz"
	"github.com/kubetenant/kubetenant/cluster/lookup"
	"github.com/kubetenant/kubetenant/tenant"
)

var group = schema.GroupVersion{Group: "example.com", Version: "v1"}

// notesCluster returns the state that the library needs. The name of a namespace contains its owner.
func notesCluster() lookup.Cluster {
	owners := authz.NewOwners(func(name string) (*corev1.Namespace, error) { // package cluster reads those of a cluster
		owner, _, found := strings.Cut(name, tenant.NamespaceSeparator)
		if !found {
			return nil, apierrors.NewNotFound(corev1.Resource("namespaces"), name)
		}
		meta := metav1.ObjectMeta{Name: name, Labels: map[string]string{tenant.Label: owner}}
		return &corev1.Namespace{ObjectMeta: meta}, nil
	}, nil)
	return (&lookup.Parts{Owners: owners, Resources: noteResources{}}).Cluster()
}

func serve(ctx context.Context, path string, port int) error {
	scheme := newScheme()
	config := genericapiserver.NewConfig(serializer.NewCodecFactory(scheme))
	config.EffectiveVersion = compatibility.DefaultBuildEffectiveVersion()
	config.OpenAPIV3Config = genericapiserver.DefaultOpenAPIV3Config(definitions, openapinamer.NewDefinitionNamer(scheme))
	// a real server uses RBAC here
	config.Authorization.Authorizer = authorizerfactory.NewAlwaysAllowAuthorizer()
	stack, err := kubetenant.Open(ctx, path, kubetenant.Config{
		Cluster:    notesCluster(),
		Authorizer: config.Authorization.Authorizer,
	})
	if err := errors.Join(err, listen(config, port)); err != nil {
		return err
	}
	defer stack.Close()
	if err := stack.Apply(config, nil); err != nil {
		return err
	}
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
