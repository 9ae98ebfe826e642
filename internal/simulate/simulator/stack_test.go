// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package simulator_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/klog/v2"

	"github.com/kubetenant/kubetenant/authz"
	configv1alpha1 "github.com/kubetenant/kubetenant/config/v1alpha1"
	"github.com/kubetenant/kubetenant/internal/simulate/simulator"
	"github.com/kubetenant/kubetenant/internal/stack"
	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

// TestServerAuthorizer checks that members of system:masters in the system tenant are allowed
// every request, and that each outcome is observed. The delegate authorizes only requests that
// the boundary does not deny and about which RBAC has no opinion.
func TestServerAuthorizer(t *testing.T) {
	klog.SetLogger(logr.Discard())
	ctx := klog.NewContext(t.Context(), logr.Discard())
	snapshot, err := simulator.NewSnapshot().
		With(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "web", Labels: map[string]string{tenant.Label: "acme"}}})
	if err != nil {
		t.Fatal(err)
	}
	config, err := (&configv1alpha1.Settings{}).Complete()
	if err != nil {
		t.Fatal(err)
	}
	yes := authorizer.AuthorizerFunc(func(context.Context, authorizer.Attributes) (authorizer.Decision, string, error) {
		return authorizer.DecisionAllow, "the delegate", nil
	})
	for name, c := range map[string]struct {
		delegate   authorizer.Authorizer
		of, in     string
		groups     []string
		want       authorizer.Decision
		wantReason string
	}{
		"masters": {
			nil,
			"system",
			"web",
			[]string{user.SystemPrivilegedGroup},
			authorizer.DecisionAllow,
			"system:masters may do everything",
		},
		"masters before the delegate": {
			yes,
			"system",
			"web",
			[]string{user.SystemPrivilegedGroup},
			authorizer.DecisionAllow,
			"system:masters may do everything",
		},
		"masters of a tenant": {
			yes, "acme", "web", []string{user.SystemPrivilegedGroup}, authorizer.DecisionDeny, authz.ReasonSystemGroup.String(),
		},
		"no delegate":       {nil, "acme", "web", nil, authorizer.DecisionNoOpinion, ""},
		"the delegate":      {yes, "acme", "web", nil, authorizer.DecisionAllow, "the delegate"},
		"another tenant":    {yes, "globex", "web", nil, authorizer.DecisionDeny, authz.ReasonNotOwned.String()},
		"kube-system":       {yes, "acme", "kube-system", nil, authorizer.DecisionDeny, authz.ReasonNotOwned.String()},
		"default namespace": {yes, "acme", "default", nil, authorizer.DecisionDeny, authz.ReasonNotOwned.String()},
	} {
		t.Run(name, func(t *testing.T) {
			var seen []authz.Verdict
			stack, err := simulator.New(ctx, config, snapshot, c.delegate, func(_ context.Context, o authz.Outcome) {
				seen = append(seen, o.Verdict)
			})
			if err != nil {
				t.Fatal(err)
			}
			decision, reason, err := stack.Authorizer.Authorize(ctx, &authorizer.AttributesRecord{
				Verb:            "get",
				APIVersion:      "v1",
				Resource:        "pods",
				Namespace:       c.in,
				Name:            "p",
				ResourceRequest: true,
				User: &user.DefaultInfo{
					Name:   "alice",
					Groups: c.groups,
					Extra:  map[string][]string{tenant.ExtraKey: {c.of}},
				},
			})
			if decision != c.want || reason != c.wantReason || err != nil || len(seen) != 1 {
				t.Errorf("%v, %q, %v, seen %v; want %v, %q", decision, reason, err, seen, c.want, c.wantReason)
			}
		})
	}
}

// plugin is an admission plugin that records its calls and returns an error.
type plugin struct {
	*admission.Handler
	name string
	err  error
	said *[]string
}

// mutating and validating are the two kinds of plugins.
type (
	mutating   struct{ plugin }
	validating struct{ plugin }
)

func (p mutating) Admit(context.Context, admission.Attributes, admission.ObjectInterfaces) error {
	*p.said = append(*p.said, "admit "+p.name)
	return p.err
}

func (p validating) Validate(context.Context, admission.Attributes, admission.ObjectInterfaces) error {
	*p.said = append(*p.said, "validate "+p.name)
	return p.err
}

// TestAdmitOrder checks that plugins run in the order of a server, with all mutating plugins first.
// Plugins that do not handle the operation, and those after the first error, do not run.
func TestAdmitOrder(t *testing.T) {
	refused := errors.New("no")
	for name, c := range map[string]struct {
		first, second error // the errors of the mutating and of the validating plugin
		operation     admission.Operation
		want          []string
		err           error
	}{
		"all":               {nil, nil, admission.Create, []string{"admit b", "validate a", "validate c"}, nil},
		"the first refuses": {refused, nil, admission.Create, []string{"admit b"}, refused},
		"a validating one":  {nil, refused, admission.Create, []string{"admit b", "validate a"}, refused},
		"a deletion":        {refused, nil, admission.Delete, []string{"validate c"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			var calls []string
			newPlugin := func(name string, err error, operations ...admission.Operation) plugin {
				return plugin{admission.NewHandler(operations...), name, err, &calls}
			}
			stack := &stack.Stack{Admission: []stack.Plugin{
				{Name: "a", Interface: validating{newPlugin("a", c.second, admission.Create)}},
				{Name: "b", Interface: mutating{newPlugin("b", c.first, admission.Create)}},
				{Name: "c", Interface: validating{newPlugin("c", nil, admission.Create, admission.Delete)}},
			}}
			a := admission.NewAttributesRecord(&corev1.Pod{}, nil, schema.GroupVersionKind{}, "web", "p",
				schema.GroupVersionResource{}, "", c.operation, nil, false, nil)
			if err := simulator.Admit(t.Context(), stack.Admission, a); !errors.Is(err, c.err) || !slices.Equal(calls, c.want) {
				t.Errorf("%v, calls %v; want %v, %v", err, calls, c.err, c.want)
			}
		})
	}
}

// TestQuotasOfTenants checks that a tenant may read its own quota, and no other.
func TestQuotasOfTenants(t *testing.T) {
	klog.SetLogger(logr.Discard())
	ctx := klog.NewContext(t.Context(), logr.Discard())
	config, err := (&configv1alpha1.Settings{}).Complete()
	if err != nil {
		t.Fatal(err)
	}
	yes := authorizer.AuthorizerFunc(func(context.Context, authorizer.Attributes) (authorizer.Decision, string, error) {
		return authorizer.DecisionAllow, "", nil
	})
	snapshot, err := load(t, objects)
	if err != nil {
		t.Fatal(err)
	}
	stack, err := simulator.New(ctx, config, snapshot, yes, nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]authorizer.Decision{
		"acme q":       authorizer.DecisionAllow,
		"globex q":     authorizer.DecisionDeny,
		"acme bad":     authorizer.DecisionDeny,
		"acme missing": authorizer.DecisionDeny,
	} {
		t.Run(name, func(t *testing.T) {
			of, quota, _ := strings.Cut(name, " ")
			decision, reason, err := stack.Authorizer.Authorize(ctx, &authorizer.AttributesRecord{
				Verb:            "get",
				APIGroup:        tenant.Domain,
				APIVersion:      "v1alpha1",
				Resource:        v1alpha1.ResourceTenantQuotas,
				Name:            quota,
				ResourceRequest: true,
				User:            &user.DefaultInfo{Name: "alice", Extra: map[string][]string{tenant.ExtraKey: {of}}},
			})
			if decision != want || err != nil {
				t.Errorf("%v, %q, %v; want %v", decision, reason, err, want)
			}
		})
	}
}
