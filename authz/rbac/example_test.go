// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package rbac_test

import (
	"context"
	"fmt"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/kubetenant/kubetenant/authz/rbac"
	"github.com/kubetenant/kubetenant/tenant"
)

// A ClusterRoleBinding with the scope annotation applies only in the namespaces of the tenants that
// the annotation lists.
func ExampleEvaluator() {
	index := rbac.NewIndex() // Index.Follow fills an index from informers
	index.Set(&rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: "view"},
		Rules:      []rbacv1.PolicyRule{{Verbs: []string{"get"}, APIGroups: []string{""}, Resources: []string{"pods"}}},
	})
	index.Set(&rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "acme-view", Annotations: map[string]string{tenant.ScopeAnnotation: "acme"}},
		RoleRef:    rbacv1.RoleRef{Kind: "ClusterRole", Name: "view"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.UserKind, Name: "alice"}},
	})
	owners := map[string]string{"acme--web": "acme", "globex--shop": "globex"}
	evaluator := rbac.New(index, rbac.Options{
		Subject: func(_ context.Context, u user.Info) (tenant.ID, error) { return tenant.Of(u) },
		Owner: func(_ context.Context, a authorizer.Attributes) (tenant.ID, error) {
			return tenant.Parse(owners[a.GetNamespace()])
		},
	})
	alice := &user.DefaultInfo{Name: "alice", Extra: map[string][]string{tenant.ExtraKey: {"acme"}}}
	for _, namespace := range []string{"acme--web", "globex--shop"} {
		decision, _, err := evaluator.Authorize(context.Background(), &authorizer.AttributesRecord{
			User:            alice,
			Verb:            "get",
			APIVersion:      "v1",
			Resource:        "pods",
			Namespace:       namespace,
			ResourceRequest: true,
		})
		fmt.Println(namespace, decision == authorizer.DecisionAllow, err)
	}
	// Output:
	// acme--web true <nil>
	// globex--shop false <nil>
}

func ExampleAllows() {
	rules := []rbacv1.PolicyRule{{Verbs: []string{"get"}, APIGroups: []string{"apps"}, Resources: []string{"deployments"}}}
	request := authorizer.AttributesRecord{
		Verb:            "get",
		APIGroup:        "apps",
		Resource:        "deployments",
		ResourceRequest: true,
	}
	fmt.Println(rbac.Allows(rules, request))
	request.Subresource = "scale"
	fmt.Println(rbac.Allows(rules, request))
	// Output:
	// true
	// false
}
