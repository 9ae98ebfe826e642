// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

// Package simulator runs the server's own code with the objects of a snapshot, so that commands
// return the server's decisions. The package makes no decisions itself.
package simulator

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/fake"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/kubetenant/kubetenant/authz"
	"github.com/kubetenant/kubetenant/authz/rbac"
	configv1alpha1 "github.com/kubetenant/kubetenant/config/v1alpha1"
	"github.com/kubetenant/kubetenant/internal/stack"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

// systemNamespaces are the namespaces that every cluster has.
var systemNamespaces = [...]string{"default", "kube-system", "kube-public", "kube-node-lease"}

// NamespaceLister returns a lister of the snapshot's namespaces and those that every cluster has.
func (s *Snapshot) NamespaceLister() (corelisters.NamespaceLister, error) {
	indexer := cache.NewIndexer(cache.MetaNamespaceKeyFunc, nil)
	for _, name := range systemNamespaces {
		if err := indexer.Add(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}); err != nil {
			return nil, err
		}
	}
	for _, ns := range s.Namespaces {
		if err := indexer.Add(ns); err != nil {
			return nil, err
		}
	}
	return corelisters.NewNamespaceLister(indexer), nil
}

// Index returns an index of the snapshot's roles and bindings.
func (s *Snapshot) Index() *rbac.Index {
	index := rbac.NewIndex()
	for key, role := range s.Roles {
		meta := metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}
		if key.Namespace == "" {
			index.Set(&rbacv1.ClusterRole{ObjectMeta: meta, Rules: role.Rules})
		} else {
			index.Set(&rbacv1.Role{ObjectMeta: meta, Rules: role.Rules})
		}
	}
	for _, b := range s.Bindings {
		if !b.Derived.IsZero() {
			continue // the evaluator derives this right itself
		}
		meta := *b.meta()
		if b.Namespace == "" {
			index.Set(&rbacv1.ClusterRoleBinding{ObjectMeta: meta, RoleRef: b.RoleRef, Subjects: b.Subjects})
		} else {
			index.Set(&rbacv1.RoleBinding{ObjectMeta: meta, RoleRef: b.RoleRef, Subjects: b.Subjects})
		}
	}
	return index
}

// AccessGrants returns a client that reads the AccessGrants of the snapshot.
func (s *Snapshot) AccessGrants() dynamic.Interface {
	all := make([]runtime.Object, len(s.Grants))
	for i, g := range s.Grants {
		all[i] = g
	}
	return fake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), map[schema.GroupVersionResource]string{
		v1alpha1.SchemeGroupVersion.WithResource(v1alpha1.ResourceAccessGrants): v1alpha1.KindAccessGrant + "List",
	}, all...)
}

// CustomScope returns the scope of a custom resource.
func (s *Snapshot) CustomScope(r schema.GroupResource) authz.Scope { return s.Scopes[r] }

// New returns the stack of a configuration with the objects of a snapshot. It runs until ctx ends.
// delegate authorizes the requests about which RBAC has no opinion. It may be nil.
func New(
	ctx context.Context,
	config *configv1alpha1.Settings,
	s *Snapshot,
	delegate authorizer.Authorizer,
	observe func(context.Context, authz.Outcome),
) (*stack.Stack, error) {
	cluster, err := NewCluster(ctx, s, nil)
	if err != nil {
		return nil, err
	}
	return stack.New(ctx, config, stack.Server{
		Authentication: stack.Authentication{Credentials: stack.NoCredentials},
		Authorization: stack.Authorization{
			Authorizer: server(delegate),
			RBAC:       &stack.RBAC{Index: s.ForConfig(config).Index(), ServerFallback: s.RightsElsewhere},
		},
		Cluster: cluster,
		Observe: observe,
	})
}

// server returns the authorizer of an unmodified kube-apiserver. It allows members of
// system:masters every request (k8s.io/apiserver pkg/authorization/authorizerfactory,
// NewPrivilegedGroups), and then calls delegate.
func server(delegate authorizer.Authorizer) authorizer.Authorizer {
	masters := authorizerfactory.NewPrivilegedGroups(user.SystemPrivilegedGroup)
	return authorizer.AuthorizerFunc(func(
		ctx context.Context, a authorizer.Attributes,
	) (authorizer.Decision, string, error) {
		if decision, _, err := masters.Authorize(ctx, a); decision == authorizer.DecisionAllow && err == nil {
			return decision, user.SystemPrivilegedGroup + " may do everything", nil
		}
		if delegate == nil {
			return authorizer.DecisionNoOpinion, "", nil
		}
		return delegate.Authorize(ctx, a)
	})
}

// WithSelfReviewRequest returns a context in which a request is authorized as in a
// SelfSubjectAccessReview. A list over all namespaces is authorized as if the request were limited
// to the caller's tenant.
func WithSelfReviewRequest(ctx context.Context) context.Context {
	return request.WithRequestInfo(ctx, &request.RequestInfo{
		IsResourceRequest: true,
		Verb:              "create",
		APIGroup:          "authorization.k8s.io",
		APIVersion:        "v1",
		Resource:          "selfsubjectaccessreviews",
	})
}

// Fields returns the requirements of a field selector in the form that authorizers receive.
func Fields(selector string) (fields.Requirements, error) {
	parsed, err := fields.ParseSelector(selector)
	if err != nil {
		return nil, err
	}
	return parsed.Requirements(), nil
}
