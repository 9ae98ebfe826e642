// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package namespace_test

import (
	"context"
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/kubetenant/kubetenant/plugins"
	"github.com/kubetenant/kubetenant/plugins/namespace"
	"github.com/kubetenant/kubetenant/tenant"
)

func plugin(id tenant.ID, err error) plugins.Interface {
	return namespace.New(namespace.Options{
		PrefixRequired: true,
		PodSecurity:    "baseline",
		Subject:        func(context.Context, user.Info) (tenant.ID, error) { return id, err },
	})
}

func write(op admission.Operation, obj, old runtime.Object) admission.Attributes {
	return admission.NewAttributesRecord(obj, old, corev1.SchemeGroupVersion.WithKind("Namespace"), "", "",
		corev1.SchemeGroupVersion.WithResource("namespaces"), "", op, nil, false, &user.DefaultInfo{Name: "u"})
}

func TestUnknownCallerIsDenied(t *testing.T) {
	for name, p := range map[string]plugins.Interface{
		"unbound":       plugin(tenant.ID{}, tenant.ErrUnbound),
		"failed lookup": plugin(tenant.System(), errors.New("away")),
		"zero tenant":   plugin(tenant.ID{}, nil),
	} {
		t.Run(name, func(t *testing.T) {
			ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "x--y"}}
			mutated := p.Admit(t.Context(), write(admission.Create, ns, nil), nil)
			validated := p.Validate(t.Context(), write(admission.Create, ns, nil), nil)
			if mutated == nil && validated == nil {
				t.Errorf("a namespace is created, labels %v", ns.Labels)
			}
		})
	}
}

// TestValidationDoesNotTrustMutation checks that Validate denies labels that Admit would not set.
func TestValidationDoesNotTrustMutation(t *testing.T) {
	a, err := tenant.Parse("a")
	if err != nil {
		t.Fatal(err)
	}
	p := plugin(a, nil)
	for name, labels := range map[string]map[string]string{
		"no labels":            nil,
		"another tenant":       {tenant.Label: "b", namespace.EnforceLabel: "baseline"},
		"no pod security":      {tenant.Label: "a"},
		"pod security lowered": {tenant.Label: "a", namespace.EnforceLabel: "privileged"},
		"unknown pod security": {tenant.Label: "a", namespace.EnforceLabel: "strict"},
		"an older version": {
			tenant.Label:                        "a",
			namespace.EnforceLabel:              "baseline",
			namespace.EnforceLabel + "-version": "v1.0",
		},
		"an empty version": {
			tenant.Label:                        "a",
			namespace.EnforceLabel:              "baseline",
			namespace.EnforceLabel + "-version": "",
		},
		"a version of warn without v": {
			tenant.Label:           "a",
			namespace.EnforceLabel: "baseline",
			"pod-security.kubernetes.io/warn-version": "1.30",
		},
		"a version of audit without v": {
			tenant.Label:           "a",
			namespace.EnforceLabel: "baseline",
			"pod-security.kubernetes.io/audit-version": "1.30",
		},
		"the tenant label absent": {namespace.EnforceLabel: "baseline"},
	} {
		t.Run(name, func(t *testing.T) {
			ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "a--web", Labels: labels}}
			if err := p.Validate(t.Context(), write(admission.Create, ns, nil), nil); err == nil {
				t.Error("Validate() = nil")
			}
		})
	}
	if err := p.Validate(t.Context(), write(admission.Create, nil, nil), nil); err == nil {
		t.Error("a write without an object was admitted")
	}
	old := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "a--web", Labels: map[string]string{tenant.Label: "a"}}}
	if err := plugin(tenant.System(), nil).Validate(t.Context(),
		write(admission.Update, &corev1.Namespace{}, old), nil); err == nil {
		t.Error("the system tenant removed the label")
	}
	old.Labels[namespace.EnforceLabel] = "restricted"
	for name, labels := range map[string]map[string]string{
		"the level removed": {tenant.Label: "a"},
		"the level lowered": {tenant.Label: "a", namespace.EnforceLabel: "baseline"},
		"an unknown level":  {tenant.Label: "a", namespace.EnforceLabel: "strict"},
	} {
		t.Run(name, func(t *testing.T) {
			obj := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "a--web", Labels: labels}}
			if err := p.Validate(t.Context(), write(admission.Update, obj, old), nil); err == nil {
				t.Error("Validate() = nil")
			}
		})
	}
}

// TestOnlyTheSystemTenantAssignsNamespaces checks that only the system tenant may assign an
// unlabeled namespace to a tenant.
func TestOnlyTheSystemTenantAssignsNamespaces(t *testing.T) {
	a, err := tenant.Parse("a")
	if err != nil {
		t.Fatal(err)
	}
	plain := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "a--web"}}
	given := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "a--web", Labels: map[string]string{tenant.Label: "a"}}}
	if err := plugin(a, nil).Validate(t.Context(), write(admission.Update, given, plain), nil); err == nil {
		t.Error("a tenant assigned an unlabelled namespace to itself")
	}
	if err := plugin(tenant.System(), nil).Validate(t.Context(), write(admission.Update, given, plain), nil); err != nil {
		t.Errorf("the system tenant assigns a namespace: %v", err)
	}
}

// TestTheSharedMapIsNotChanged checks that Admit copies the map of labels before it adds a label.
func TestTheSharedMapIsNotChanged(t *testing.T) {
	shared := map[string]string{"env": "x"}
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "a--web", Labels: shared}}
	a, err := tenant.Parse("a")
	if err != nil {
		t.Fatal(err)
	}
	if err := plugin(a, nil).Admit(t.Context(), write(admission.Create, ns, nil), nil); err != nil ||
		ns.Labels[tenant.Label] != "a" || len(shared) != 1 {
		t.Errorf("Admit() = %v, labels %v, shared %v", err, ns.Labels, shared)
	}
}
