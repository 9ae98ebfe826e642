// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package stack_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/kubetenant/kubetenant/authz"
	"github.com/kubetenant/kubetenant/authz/rbac"
	"github.com/kubetenant/kubetenant/cluster/lookup/lookuptest"
	configv1alpha1 "github.com/kubetenant/kubetenant/config/v1alpha1"
	"github.com/kubetenant/kubetenant/internal/stack"
	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

// TestPublishedEvaluator checks that a server without Authorization.RBAC publishes the evaluator
// Upstream, whatever its configuration specifies.
func TestPublishedEvaluator(t *testing.T) {
	none := func(name string) (*corev1.Namespace, error) {
		return nil, apierrors.NewNotFound(corev1.Resource("namespaces"), name)
	}
	for name, c := range map[string]struct {
		rbac *stack.RBAC
		want configv1alpha1.Evaluator
	}{
		"without RBAC": {nil, configv1alpha1.EvaluatorUpstream},
		"with RBAC":    {&stack.RBAC{Index: rbac.NewIndex()}, configv1alpha1.EvaluatorIndexed},
	} {
		t.Run(name, func(t *testing.T) {
			stack, err := stack.New(t.Context(), &configv1alpha1.Settings{}, stack.Server{
				Authentication: stack.Authentication{Credentials: stack.NoCredentials},
				Authorization:  stack.Authorization{RBAC: c.rbac},
				Cluster:        lookuptest.OwnedBy(authz.NewOwners(none, nil)),
			})
			if err != nil {
				t.Fatal(err)
			}
			p, err := stack.Published()
			if err != nil || p.Settings.Authorization.RBAC.Evaluator != c.want {
				t.Errorf("published: %s, %v; want %s", p.Settings.Authorization.RBAC.Evaluator, err, c.want)
			}
		})
	}
}

// TestDerivesRights checks that a server grants callers the rights that follow from their Tenant
// only if the index alone evaluates RBAC and the boundary is enforced.
func TestDerivesRights(t *testing.T) {
	none := func(name string) (*corev1.Namespace, error) {
		return nil, apierrors.NewNotFound(corev1.Resource("namespaces"), name)
	}
	index := rbac.NewIndex()
	request := authorizer.AttributesRecord{
		Verb:            "create",
		Resource:        "namespaces",
		ResourceRequest: true,
		User: &user.DefaultInfo{
			Name:   "peter",
			Groups: []string{user.AllAuthenticated, "tenant:acme"},
			Extra:  map[string][]string{tenant.ExtraKey: {"acme"}},
		},
	}
	index.Set(&rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.MemberRole},
		Rules: []rbacv1.PolicyRule{
			{Verbs: []string{"create"}, APIGroups: []string{""}, Resources: []string{"namespaces"}},
		},
	})
	for _, c := range []struct {
		name   string
		rbac   *stack.RBAC
		change func(*configv1alpha1.Authorization)
		want   bool
	}{
		{"compiled in, by default", &stack.RBAC{Index: index}, func(*configv1alpha1.Authorization) {}, true},
		{"without RBAC", nil, func(*configv1alpha1.Authorization) {}, false},
		{
			"the server also calls its own evaluator",
			&stack.RBAC{Index: index, ServerFallback: true},
			func(*configv1alpha1.Authorization) {},
			false,
		},
		{
			"the server's own evaluator",
			&stack.RBAC{Index: index},
			func(a *configv1alpha1.Authorization) { a.RBAC.Evaluator = configv1alpha1.EvaluatorUpstream },
			false,
		},
		{
			"Shadow mode",
			&stack.RBAC{Index: index},
			func(a *configv1alpha1.Authorization) { a.Mode = configv1alpha1.ModeShadow },
			false,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			config := &configv1alpha1.Settings{}
			c.change(&config.Authorization)
			stack, err := stack.New(t.Context(), config, stack.Server{
				Authentication: stack.Authentication{Credentials: stack.NoCredentials},
				Authorization:  stack.Authorization{RBAC: c.rbac},
				Cluster:        lookuptest.OwnedBy(authz.NewOwners(none, nil)),
			})
			if err != nil {
				t.Fatal(err)
			}
			decision, reason, err := stack.Authorizer.Authorize(t.Context(), request)
			if got := decision == authorizer.DecisionAllow; got != c.want || stack.DerivesRights() != c.want || err != nil {
				t.Errorf("Authorize() = %v, %q, %v, DerivesRights() = %t; want %t",
					decision, reason, err, stack.DerivesRights(), c.want)
			}
		})
	}
}
