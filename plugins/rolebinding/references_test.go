// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package rolebinding_test

import (
	"context"
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/kubetenant/kubetenant/plugins/rolebinding"
	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/tenanttest"
)

// ownersPlugin returns the plugin. The name of a caller is its tenant. All namespaces belong to
// tenant a.
func ownersPlugin(t *testing.T, find func() (types.UID, error)) admission.ValidationInterface {
	t.Helper()
	return rolebinding.New(rolebinding.Options{
		Subject: func(_ context.Context, u user.Info) (tenant.ID, error) { return tenant.Parse(u.GetName()) },
		Owner:   func(context.Context, string) (tenant.ID, error) { return tenanttest.ID(t, "a"), nil },
		Namespaced: func(kind schema.GroupKind) bool {
			return kind == schema.GroupKind{Group: "apps", Kind: "Deployment"}
		},
		Objects: func(_ context.Context, kind schema.GroupVersionKind, namespace, name string) (runtime.Object, error) {
			wantNamespace := "a--web"
			if kind.Kind == "Namespace" {
				wantNamespace = ""
			}
			if namespace != wantNamespace {
				t.Errorf("lookup of %s %s/%s", kind, namespace, name)
			}
			uid, err := find()
			if uid == "" || err != nil {
				return nil, err
			}
			return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{UID: uid}}, nil
		},
	})
}

func writeReference(
	p admission.ValidationInterface, caller string, obj, old runtime.Object, kind schema.GroupVersionKind, resource string,
) error {
	op := admission.Create
	if old != nil {
		op = admission.Update
	}
	return p.Validate(context.Background(), admission.NewAttributesRecord(obj, old, kind, "a--web", "x",
		schema.GroupVersionResource{Group: kind.Group, Version: kind.Version, Resource: resource}, "", op, nil, false,
		&user.DefaultInfo{Name: caller}), nil)
}

// TestOwnerReferencesHaveTheOwnerUID checks that a reference that blocks the deletion of its owner
// must have the UID of an existing owner.
func TestOwnerReferencesHaveTheOwnerUID(t *testing.T) {
	forbidden := apierrors.NewForbidden(schema.GroupResource{}, "x", errors.New("rights"))
	blocks := true
	for name, c := range map[string]struct {
		api, kind, name string
		uid             types.UID
		err             error
		caller          string
		ok              bool
	}{
		"a Deployment":                      {"apps/v1", "Deployment", "d", "1", nil, "a", true},
		"another UID":                       {"apps/v1", "Deployment", "d", "2", nil, "a", false},
		"no owner":                          {"apps/v1", "Deployment", "d", "", nil, "a", false},
		"an owner that may not be read":     {"apps/v1", "Deployment", "d", "", forbidden, "a", true},
		"failed lookup":                     {"apps/v1", "Deployment", "d", "1", errors.New("away"), "a", false},
		"the own Namespace":                 {"v1", "Namespace", "a--web", "1", nil, "a", true},
		"another UID for the own Namespace": {"v1", "Namespace", "a--web", "2", nil, "a", false},
		"another Namespace":                 {"v1", "Namespace", "b--web", "1", nil, "a", false},
		"an unknown kind":                   {"example.com/v1", "Thing", "t", "1", nil, "a", false},
		"the system tenant":                 {"v1", "Node", "n", "2", nil, "system", true},
		"a caller without a tenant":         {"v1", "Node", "n", "2", nil, "System", false},
	} {
		t.Run(name, func(t *testing.T) {
			p := ownersPlugin(t, func() (types.UID, error) { return c.uid, c.err })
			ref := metav1.OwnerReference{
				APIVersion:         c.api,
				Kind:               c.kind,
				Name:               c.name,
				UID:                "1",
				BlockOwnerDeletion: &blocks,
			}
			obj := &corev1.ConfigMap{
				ObjectMeta: metav1.ObjectMeta{Name: "x", Namespace: "a--web", OwnerReferences: []metav1.OwnerReference{ref}},
			}
			kind := corev1.SchemeGroupVersion.WithKind("ConfigMap")
			if err := writeReference(p, c.caller, obj, nil, kind, "configmaps"); (err == nil) != c.ok {
				t.Errorf("%v", err)
			}
			if err := writeReference(p, c.caller, obj, &corev1.ConfigMap{}, kind, "configmaps"); (err == nil) != c.ok {
				t.Errorf("%s, added: %v", name, err)
			}
			if err := writeReference(p, c.caller, obj, obj.DeepCopy(), kind, "configmaps"); err != nil {
				t.Errorf("%s, unchanged: %v", name, err)
			}
		})
	}
}

// TestGranteesGetNoServiceAccountTokens checks that a caller of another tenant may not create a
// Secret for a service account token, even if a grant allows the caller to write Secrets.
func TestGranteesGetNoServiceAccountTokens(t *testing.T) {
	p := ownersPlugin(t, nil)
	for name, c := range map[string]struct {
		caller string
		kind   corev1.SecretType
		ok     bool
	}{
		"the tenant of the namespace":       {"a", corev1.SecretTypeServiceAccountToken, true},
		"another tenant":                    {"b", corev1.SecretTypeServiceAccountToken, false},
		"the system tenant":                 {"system", corev1.SecretTypeServiceAccountToken, true},
		"another tenant and another Secret": {"b", corev1.SecretTypeOpaque, true},
		"a caller without a tenant":         {"System", corev1.SecretTypeServiceAccountToken, false},
	} {
		t.Run(name, func(t *testing.T) {
			secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "x", Namespace: "a--web"}, Type: c.kind}
			if err := writeReference(p, c.caller, secret, nil, corev1.SchemeGroupVersion.WithKind("Secret"),
				"secrets"); (err == nil) != c.ok {
				t.Errorf("%v, want success: %t", err, c.ok)
			}
		})
	}
}
