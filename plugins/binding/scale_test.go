// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package binding_test

import (
	"context"
	"errors"
	"testing"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/kubetenant/kubetenant/plugins/binding"
	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/tenanttest"
)

// TestKindOfIrregularPlurals checks that the result of KindOf is used even if the resource has an
// irregular name.
func TestKindOfIrregularPlurals(t *testing.T) {
	a := tenanttest.ID(t, "a")
	for kind, allowed := range map[string]bool{"Farm": false, "Other": true} {
		t.Run(kind, func(t *testing.T) {
			o := binding.Options{
				Subject: func(context.Context, user.Info) (tenant.ID, error) { return a, nil },
				Owner:   func(context.Context, string) (tenant.ID, error) { return a, nil },
				Kinds:   map[schema.GroupKind]bool{{Group: "example.com", Kind: "Farm"}: false},
				KindOf:  func(schema.GroupResource) string { return kind },
			}
			scale := &autoscalingv1.Scale{}
			err := binding.New(o).Validate(t.Context(),
				admission.NewAttributesRecord(scale, scale, autoscalingv1.SchemeGroupVersion.WithKind("Scale"), "a--web", "f",
					schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "farmland"}, "scale", admission.Update,
					nil, false, &user.DefaultInfo{Name: "alice"}), nil)
			if (err == nil) != allowed {
				t.Errorf("%v", err)
			}
		})
	}
}

// TestScale checks that a tenant's caller may use an object's subresource scale only if the
// object has the caller's identity.
func TestScale(t *testing.T) {
	a := tenanttest.ID(t, "a")
	alice := &user.DefaultInfo{Name: "alice", Groups: []string{"dev", "ops"}}
	farm := func(identity string) *metav1.PartialObjectMetadata {
		o := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: "f", Namespace: "a--web"}}
		if identity != "" {
			o.Annotations = map[string]string{tenant.IdentityAnnotation: identity}
		}
		return o
	}
	mine, others := tenant.IdentityOf(alice, a).String(), tenant.Identity{User: "bob", Tenant: "a"}.String()
	for name, c := range map[string]struct {
		u        user.DefaultInfo
		resource string
		stored   runtime.Object
		err      error
		allowed  bool
	}{
		"own identity, groups in another order": {
			user.DefaultInfo{Name: "alice", Groups: []string{"ops", "dev", "ops"}}, "farms", farm(mine), nil, true,
		},
		"another user's identity":      {*alice, "farms", farm(others), nil, false},
		"own identity, missing groups": {user.DefaultInfo{Name: "alice"}, "farms", farm(mine), nil, false},
		"no identity":                  {*alice, "farms", farm(""), nil, false},
		"missing object":               {*alice, "farms", nil, nil, false},
		"failed lookup":                {*alice, "farms", farm(mine), errors.New("away"), false},
		"caller of the system tenant":  {user.DefaultInfo{Name: "root"}, "farms", farm(others), nil, true},
		"an unknown caller":            {user.DefaultInfo{Name: "nobody"}, "farms", farm(mine), nil, false},
		"a kind that is not checked":   {*alice, "deployments", farm(others), nil, true},
	} {
		t.Run(name, func(t *testing.T) {
			o := binding.Options{
				Subject: func(_ context.Context, u user.Info) (tenant.ID, error) {
					switch u.GetName() {
					case "root":
						return tenant.System(), nil
					case "alice":
						return a, nil
					}
					return tenant.ID{}, tenant.ErrUnbound
				},
				Owner: func(context.Context, string) (tenant.ID, error) { return a, nil },
				Kinds: map[schema.GroupKind]bool{{Group: "example.com", Kind: "Farm"}: false},
				Objects: func(_ context.Context, kind schema.GroupVersionKind, namespace, name string) (runtime.Object, error) {
					if kind != (schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Farm"}) || namespace != "a--web" ||
						name != "f" {
						t.Errorf("lookup of %s %s/%s", kind, namespace, name)
					}
					return c.stored, c.err
				},
			}
			scale := &autoscalingv1.Scale{ObjectMeta: metav1.ObjectMeta{Name: "f", Namespace: "a--web"}}
			for _, nobodyKnows := range []bool{false, true} {
				if nobodyKnows {
					o.Objects = nil
				}
				err := binding.New(o).Validate(t.Context(),
					admission.NewAttributesRecord(scale, scale, autoscalingv1.SchemeGroupVersion.WithKind("Scale"), "a--web", "f",
						schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: c.resource}, "scale", admission.Update,
						nil, false, &c.u), nil)
				if want := c.allowed && (!nobodyKnows || c.u.Name == "root" || c.resource != "farms"); (err == nil) != want {
					t.Errorf("%s, objects known %t: %v", name, !nobodyKnows, err)
				}
			}
		})
	}
}
