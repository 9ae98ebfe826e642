// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package gate_test

import (
	"context"
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/kubetenant/kubetenant/plugins/gate"
	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/tenanttest"
)

var errUnavailable = errors.New("away")

// write returns the attributes of an operation on a resource.
func write(op admission.Operation, resource, subresource, namespace, name string) admission.Attributes {
	return admission.NewAttributesRecord(&corev1.Pod{}, nil, schema.GroupVersionKind{Version: "v1", Kind: "X"}, namespace,
		name,
		schema.GroupVersionResource{Version: "v1", Resource: resource}, subresource, op, nil, false,
		&user.DefaultInfo{Name: "u"})
}

// TestCheckedCallers checks that callers without a known tenant are checked in namespaces that may
// belong to a tenant, and that tenants' callers are checked everywhere.
func TestCheckedCallers(t *testing.T) {
	a := tenanttest.ID(t, "a")
	for what, c := range map[string]struct {
		caller, owner       tenant.ID
		callerErr, ownerErr error
		namespace           string
		judged              bool
	}{
		"system tenant": {caller: tenant.System(), owner: a, namespace: "n"},
		"tenant, own namespace": {
			caller:    a,
			owner:     a,
			namespace: "n",
			judged:    true,
		},
		"tenant, namespace of the system tenant": {
			caller:    a,
			owner:     tenant.System(),
			namespace: "n",
			judged:    true,
		},
		"tenant, cluster-scoped": {caller: a, judged: true},
		"no tenant, namespace of a tenant": {
			callerErr: tenant.ErrUnbound,
			owner:     a,
			namespace: "n",
			judged:    true,
		},
		"no tenant, unowned namespace": {callerErr: tenant.ErrUnbound, namespace: "n", judged: true},
		"no tenant, unknown owner": {
			callerErr: tenant.ErrUnbound,
			owner:     tenant.System(),
			ownerErr:  errUnavailable,
			namespace: "n",
			judged:    true,
		},
		"no tenant, system namespace": {callerErr: tenant.ErrUnbound, owner: tenant.System(), namespace: "n"},
		"no tenant, cluster-scoped":   {callerErr: tenant.ErrUnbound},
		"unknown tenant": {
			caller:    tenant.System(),
			callerErr: errUnavailable,
			owner:     a,
			namespace: "n",
			judged:    true,
		},
	} {
		t.Run(what, func(t *testing.T) {
			asked, observed := 0, 0
			o := gate.Options{
				Subject:    func(context.Context, user.Info) (tenant.ID, error) { return c.caller, c.callerErr },
				Owner:      func(context.Context, string) (tenant.ID, error) { return c.owner, c.ownerErr },
				DenyReason: func(context.Context, authorizer.Attributes) string { asked++; return "it crosses" },
				OnDeny:     func() { observed++ },
			}
			err := gate.New(o).Validate(t.Context(), write(admission.Create, "pods", "", c.namespace, "p"), nil)
			if (err != nil) != c.judged || (asked == 1) != c.judged || observed != asked {
				t.Errorf("%v, DenyReason called %d times, OnDeny %d times", err, asked, observed)
			}
			o.Shadow = true
			err = gate.New(o).Validate(t.Context(), write(admission.Create, "pods", "", c.namespace, "p"), nil)
			if err != nil || (asked == 2) != c.judged || observed != asked {
				t.Errorf("shadow mode: %v, DenyReason called %d times, OnDeny %d times", err, asked, observed)
			}
			o.Off, asked = true, 0
			err = gate.New(o).Validate(t.Context(), write(admission.Create, "pods", "", c.namespace, "p"), nil)
			if err != nil || asked > 0 {
				t.Errorf("off: %v", err)
			}
		})
	}
}

// TestSelfReviewsAreAdmitted checks that a self review is admitted, because it stores nothing.
func TestSelfReviewsAreAdmitted(t *testing.T) {
	p := gate.New(gate.Options{
		Subject:    func(context.Context, user.Info) (tenant.ID, error) { return tenanttest.ID(t, "a"), nil },
		DenyReason: func(context.Context, authorizer.Attributes) string { return "it lists rules" },
		OnDeny:     func() {},
	})
	for kind, passes := range map[string]bool{
		"SelfSubjectRulesReview":  true,
		"SelfSubjectAccessReview": true,
		"SubjectAccessReview":     false,
		"TokenReview":             false,
	} {
		t.Run(kind, func(t *testing.T) {
			a := admission.NewAttributesRecord(&corev1.Pod{}, nil,
				schema.GroupVersionKind{Group: "authorization.k8s.io", Version: "v1", Kind: kind}, "", "",
				schema.GroupVersionResource{Group: "authorization.k8s.io", Version: "v1", Resource: "x"}, "", admission.Create, nil,
				false, &user.DefaultInfo{Name: "u"})
			if err := p.Validate(t.Context(), a, nil); (err == nil) != passes {
				t.Errorf("%v", err)
			}
		})
	}
}

// TestBoundaryAttributes checks the attributes that DenyReason gets for each operation.
func TestBoundaryAttributes(t *testing.T) {
	for what, c := range map[string]struct {
		a                                              admission.Attributes
		verb, resource, subresource, namespace, object string
	}{
		"a creation":           {write(admission.Create, "pods", "", "n", "p"), "create", "pods", "", "n", ""},
		"an update":            {write(admission.Update, "pods", "", "n", "p"), "update", "pods", "", "n", "p"},
		"a status":             {write(admission.Update, "pods", "status", "n", "p"), "update", "pods", "status", "n", "p"},
		"a deletion":           {write(admission.Delete, "pods", "", "n", "p"), "delete", "pods", "", "n", "p"},
		"a command":            {write(admission.Connect, "pods", "exec", "n", "p"), "create", "pods", "exec", "n", "p"},
		"a binding":            {write(admission.Create, "pods", "binding", "n", "p"), "create", "pods", "binding", "n", "p"},
		"a namespace":          {write(admission.Create, "namespaces", "", "n", "n"), "create", "namespaces", "", "", ""},
		"a namespace, changed": {write(admission.Update, "namespaces", "", "n", "n"), "update", "namespaces", "", "n", "n"},
		"a namespace, finalized": {
			write(admission.Update, "namespaces", "finalize", "n", "n"), "update", "namespaces", "finalize", "n", "n",
		},
	} {
		t.Run(what, func(t *testing.T) {
			var got authorizer.Attributes
			a := tenanttest.ID(t, "a")
			p := gate.New(gate.Options{
				Subject:    func(context.Context, user.Info) (tenant.ID, error) { return a, nil },
				DenyReason: func(_ context.Context, of authorizer.Attributes) string { got = of; return "" },
			})
			if err := p.Validate(t.Context(), c.a, nil); err != nil || got == nil {
				t.Fatalf("%v", err)
			}
			if got.GetVerb() != c.verb || got.GetResource() != c.resource || got.GetSubresource() != c.subresource ||
				got.GetNamespace() != c.namespace || got.GetName() != c.object ||
				!got.IsResourceRequest() || got.GetUser().GetName() != "u" || got.GetAPIVersion() != "v1" {
				t.Errorf("%+v", got)
			}
		})
	}
}
