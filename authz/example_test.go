// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package authz_test

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"

	"github.com/kubetenant/kubetenant/authz"
	"github.com/kubetenant/kubetenant/tenant"
)

// exampleOwners returns the owners of three namespaces. A server passes the Get method of its
// Namespace lister to [authz.NewOwners].
func exampleOwners() *authz.Owners {
	labels := map[string]map[string]string{
		"acme--web":    {tenant.Label: "acme"},
		"globex--shop": {tenant.Label: "globex"},
		"kube-system":  nil,
	}
	return authz.NewOwners(func(name string) (*corev1.Namespace, error) {
		of, exists := labels[name]
		if !exists {
			return nil, apierrors.NewNotFound(corev1.Resource("namespaces"), name)
		}
		return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: of}}, nil
	}, nil)
}

// The boundary denies requests that reach the namespaces of another tenant. The delegate decides
// about all other requests.
func ExampleBoundary() {
	owners := exampleOwners()
	boundary := authz.New(authz.Options{Subjects: &authz.Subjects{Owners: owners}, Owners: owners},
		authorizerfactory.NewAlwaysAllowAuthorizer(), nil)
	alice := &user.DefaultInfo{Name: "alice", Extra: map[string][]string{tenant.ExtraKey: {"acme"}}}
	for _, namespace := range []string{"acme--web", "globex--shop", "kube-system"} {
		decision, reason, _ := boundary.Authorize(context.Background(), &authorizer.AttributesRecord{
			User:            alice,
			Verb:            "get",
			APIVersion:      "v1",
			Resource:        "secrets",
			Namespace:       namespace,
			Name:            "db",
			ResourceRequest: true,
		})
		fmt.Printf("%s %t %q\n", namespace, decision == authorizer.DecisionAllow, reason)
	}
	// Output:
	// acme--web true ""
	// globex--shop false "tenant boundary: the namespace is not owned by the caller's tenant"
	// kube-system false "tenant boundary: the namespace is not owned by the caller's tenant"
}

// An Exception allows a request that the boundary would deny. Allows receives the tenant of the
// caller and the owner of the objects, and returns until when the request is allowed. It is not
// called for requests that no exception may allow.
func ExampleException() {
	owners := exampleOwners()
	night := authz.Exception{
		Reason: authz.ReasonException,
		Allows: func(_ context.Context, c *authz.CrossTenantRequest) (bool, time.Time) {
			until := time.Date(2030, 1, 2, 6, 0, 0, 0, time.UTC)
			return c.Caller.String() == "acme" && c.Owner.ID.String() == "globex" && c.User.GetName() == "alice" &&
				c.GetVerb() == "list" && c.GetResource() == "events", until
		},
	}
	boundary := authz.New(authz.Options{
		Subjects:   &authz.Subjects{Owners: owners},
		Owners:     owners,
		Exceptions: []authz.Exception{night},
	},
		authorizerfactory.NewAlwaysAllowAuthorizer(), nil)
	alice := &user.DefaultInfo{Name: "alice", Extra: map[string][]string{tenant.ExtraKey: {"acme"}}}
	for _, resource := range []string{"events", "secrets"} {
		decision, reason, _ := boundary.Authorize(context.Background(), &authorizer.AttributesRecord{
			User:            alice,
			Verb:            "list",
			APIVersion:      "v1",
			Resource:        resource,
			Namespace:       "globex--shop",
			ResourceRequest: true,
		})
		fmt.Printf("%s %t %q\n", resource, decision == authorizer.DecisionAllow, reason)
	}
	// Output:
	// events true "tenant exception: an exception of the server allows the request"
	// secrets false "tenant boundary: the namespace is not owned by the caller's tenant"
}

// The system tenant owns a namespace without the label. A missing namespace has no owner.
func ExampleOwners_Of() {
	for _, namespace := range []string{"acme--web", "kube-system", "missing"} {
		id, err := exampleOwners().Of(context.Background(), namespace)
		fmt.Printf("%s %q %v\n", namespace, id, err)
	}
	// Output:
	// acme--web "acme" <nil>
	// kube-system "system" <nil>
	// missing "" <nil>
}

// A service account belongs to the tenant that owns its namespace. If an extra names another
// tenant, TenantOf returns an error.
func ExampleSubjects_TenantOf() {
	subjects := &authz.Subjects{Owners: exampleOwners()}
	id, err := subjects.TenantOf(context.Background(), &user.DefaultInfo{Name: "system:serviceaccount:acme--web:robot"})
	fmt.Println(id, err)
	_, err = subjects.TenantOf(context.Background(), &user.DefaultInfo{
		Name:  "system:serviceaccount:acme--web:robot",
		Extra: map[string][]string{tenant.ExtraKey: {"globex"}},
	})
	fmt.Println(err)
	// Output:
	// acme <nil>
	// conflicting tenants: service account and its namespace
}
