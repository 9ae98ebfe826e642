// Package simulator runs the server's own code over objects that were read from a cluster or a file, so that
// commands answer what the server would. Nothing in it decides.
package simulator

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
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

	"github.com/kubetenant/kubetenant"
	"github.com/kubetenant/kubetenant/authz"
	"github.com/kubetenant/kubetenant/authz/rbac"
	"github.com/kubetenant/kubetenant/cluster/accessgrant"
	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

// Objects are what decisions hang on.
type Objects struct {
	Namespaces []*corev1.Namespace
	// Policy are roles and bindings.
	Policy []runtime.Object
	// Grants are AccessGrants.
	Grants []runtime.Object
	// Scopes are those of custom resources.
	Scopes map[schema.GroupResource]authz.Scope
	// Quotas says whom TenantQuotas are about, by their names. None limits anything here.
	Quotas map[string]tenant.ID
}

// systemNamespaces are what every cluster holds.
var systemNamespaces = [...]string{"default", "kube-system", "kube-public", "kube-node-lease"}

// Namespaces returns a cache of namespaces, with those that every cluster holds.
func Namespaces(all []*corev1.Namespace) (corelisters.NamespaceLister, error) {
	indexer := cache.NewIndexer(cache.MetaNamespaceKeyFunc, nil)
	for _, name := range systemNamespaces {
		ns := &corev1.Namespace{}
		ns.Name = name
		if err := indexer.Add(ns); err != nil {
			return nil, err
		}
	}
	for _, ns := range all {
		if err := indexer.Add(ns); err != nil {
			return nil, err
		}
	}
	return corelisters.NewNamespaceLister(indexer), nil
}

// Index returns an index of roles and bindings.
func Index(policy []runtime.Object) *rbac.Index {
	index := rbac.NewIndex()
	for _, obj := range policy {
		index.Set(obj)
	}
	return index
}

// Grants returns a client that knows AccessGrants.
func Grants(all []runtime.Object) dynamic.Interface {
	return fake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), map[schema.GroupVersionResource]string{
		{Group: tenant.Domain, Version: "v1alpha1", Resource: "accessgrants"}: v1alpha1.KindAccessGrant + "List"}, all...)
}

// IsPolicy reports whether obj is a role or a binding.
func IsPolicy(obj runtime.Object) bool {
	switch obj.(type) {
	case *rbacv1.Role, *rbacv1.RoleBinding, *rbacv1.ClusterRole, *rbacv1.ClusterRoleBinding:
		return true
	}
	return false
}

// New returns the stack of a configuration over the objects, until ctx ends. behind is asked where RBAC has
// no opinion; nil has none.
func New(ctx context.Context, config *v1alpha1.Settings, o *Objects, behind authorizer.Authorizer, observe func(context.Context, authz.Outcome)) (*kubetenant.Stack, error) {
	namespaces, err := Namespaces(o.Namespaces)
	if err != nil {
		return nil, err
	}
	grants := accessgrant.New(Grants(o.Grants), nil)
	if err := grants.Sync(ctx); err != nil {
		return nil, err
	}
	return kubetenant.New(ctx, config, kubetenant.Server{
		Authentication: kubetenant.Authentication{Credentials: kubetenant.NoCredentials},
		Authorization:  kubetenant.Authorization{Authorizer: server(behind), RBAC: &kubetenant.RBAC{Index: Index(o.Policy)}},
		Cluster: kubetenant.Cluster{
			Owners:      authz.NewOwners(namespaces.Get, nil),
			CustomScope: func(r schema.GroupResource) authz.Scope { return o.Scopes[r] },
			Labelled:    func(schema.GroupResource, tenant.ID) bool { return true },
			Grants:      grants.Grants(),
			Quotas:      quotaTenants(o.Quotas),
		},
		Observe: observe,
	})
}

// server is what every kube-apiserver has of its own: system:masters may do everything
// (k8s.io/apiserver pkg/authorization/authorizerfactory, NewPrivilegedGroups).
func server(behind authorizer.Authorizer) authorizer.Authorizer {
	masters := authorizerfactory.NewPrivilegedGroups(user.SystemPrivilegedGroup)
	return authorizer.AuthorizerFunc(func(ctx context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
		if decision, _, err := masters.Authorize(ctx, a); decision == authorizer.DecisionAllow && err == nil {
			return decision, user.SystemPrivilegedGroup + " may do everything", nil
		}
		if behind == nil {
			return authorizer.DecisionNoOpinion, "", nil
		}
		return behind.Authorize(ctx, a)
	})
}

// Asked returns the context in which a question is answered as a SelfSubjectAccessReview's is: a list over
// all namespaces as the one that a tenant's would be limited to.
func Asked(ctx context.Context) context.Context {
	return request.WithRequestInfo(ctx, &request.RequestInfo{IsResourceRequest: true, Verb: "create",
		APIGroup: "authorization.k8s.io", APIVersion: "v1", Resource: "selfsubjectaccessreviews"})
}
