// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package restriction_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/kubetenant/kubetenant/plugins/restriction"
	"github.com/kubetenant/kubetenant/tenant"
)

func plugin(subject tenant.ID, subjectErr error, owner tenant.ID, ownerErr error) admission.ValidationInterface {
	return restriction.New(restriction.Options{
		Resources: []schema.GroupResource{{Group: "apps", Resource: "daemonsets"}, {Resource: "nodes"}},
		Subject:   func(context.Context, user.Info) (tenant.ID, error) { return subject, subjectErr },
		Owner:     func(context.Context, string) (tenant.ID, error) { return owner, ownerErr },
	})
}

func write(version, subresource string, op admission.Operation, obj, old runtime.Object) admission.Attributes {
	return admission.NewAttributesRecord(obj, old,
		schema.GroupVersionKind{Group: "apps", Version: version, Kind: "DaemonSet"}, "ns", "d",
		schema.GroupVersionResource{Group: "apps", Version: version, Resource: "daemonsets"}, subresource, op, nil, false,
		&user.DefaultInfo{Name: "u"})
}

// TestUnknownTenantsAreDenied checks that a caller or a namespace whose tenant is unknown is not
// treated as part of the system tenant.
func TestUnknownTenantsAreDenied(t *testing.T) {
	a, err := tenant.Parse("a")
	if err != nil {
		t.Fatal(err)
	}
	away := errors.New("away")
	ds := &appsv1.DaemonSet{}
	for _, c := range []struct {
		name    string
		plugin  admission.ValidationInterface
		allowed bool
	}{
		{"system tenant, system namespace", plugin(tenant.System(), nil, tenant.System(), nil), true},
		{"system tenant, namespace of a tenant", plugin(tenant.System(), nil, a, nil), false},
		{"system tenant, unowned namespace", plugin(tenant.System(), nil, tenant.ID{}, nil), false},
		{"system tenant, failed owner lookup", plugin(tenant.System(), nil, tenant.System(), away), false},
		{"a tenant, system namespace", plugin(a, nil, tenant.System(), nil), false},
		{"a caller without a tenant", plugin(tenant.ID{}, tenant.ErrUnbound, tenant.System(), nil), false},
		{"failed caller lookup", plugin(tenant.System(), away, tenant.System(), nil), false},
		{"a caller with the zero ID", plugin(tenant.ID{}, nil, tenant.System(), nil), false},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, version := range []string{"v1", "v1beta2", "v2"} {
				if err := c.plugin.Validate(t.Context(), write(version, "", admission.Create, ds, nil),
					nil); (err == nil) != c.allowed {
					t.Errorf("%s, %s: Validate() = %v", c.name, version, err)
				}
			}
		})
	}
}

// TestOnlyTheServerCreatesTenantObjects checks that only the server itself may create a restricted
// object in a tenant's namespace. A caller of a tenant with the server's user name may not.
func TestOnlyTheServerCreatesTenantObjects(t *testing.T) {
	a, err := tenant.Parse("a")
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		subject tenant.ID
		allowed bool
	}{
		"the server":        {tenant.System(), true},
		"a tenant's caller": {a, false},
		"no tenant":         {tenant.ID{}, false},
	} {
		t.Run(name, func(t *testing.T) {
			made := admission.NewAttributesRecord(&appsv1.DaemonSet{}, nil, schema.GroupVersionKind{}, "ns", "d",
				appsv1.SchemeGroupVersion.WithResource("daemonsets"), "", admission.Create, nil, false,
				&user.DefaultInfo{Name: tenant.ManagerUser})
			if err := plugin(c.subject, nil, a, nil).Validate(t.Context(), made, nil); (err == nil) != c.allowed {
				t.Errorf("%v", err)
			}
		})
	}
}

// TestMaintenance checks that callers of the system tenant may write only the status and the
// finalizers of a restricted object in a tenant's namespace, typed or unstructured.
func TestMaintenance(t *testing.T) {
	a, err := tenant.Parse("a")
	if err != nil {
		t.Fatal(err)
	}
	p := plugin(tenant.System(), nil, a, nil)
	typed := func(finalizer, label string) runtime.Object {
		ds := &appsv1.DaemonSet{
			ObjectMeta: metav1.ObjectMeta{
				Finalizers:      []string{finalizer},
				ResourceVersion: finalizer,
				Labels:          map[string]string{"l": label},
			},
		}
		ds.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: finalizer}}
		return ds
	}
	custom := func(finalizer, label string) runtime.Object {
		u := &unstructured.Unstructured{Object: map[string]any{}}
		u.SetFinalizers([]string{finalizer})
		u.SetLabels(map[string]string{"l": label})
		return u
	}
	for name, make := range map[string]func(string, string) runtime.Object{"typed": typed, "custom": custom} {
		t.Run(name, func(t *testing.T) {
			if err := p.Validate(t.Context(), write("v1", "", admission.Update, make("x", "1"), make("y", "1")),
				nil); err != nil {
				t.Errorf("finalizers = %v", err)
			}
			if err := p.Validate(t.Context(), write("v1", "", admission.Update, make("x", "1"), make("y", "2")),
				nil); err == nil || !strings.Contains(err.Error(), "tenant's namespace") {
				t.Errorf("finalizers and a label = %v", err)
			}
			if err := p.Validate(t.Context(), write("v1", "status", admission.Update, make("x", "1"), make("y", "2")),
				nil); err != nil {
				t.Errorf("status = %v", err)
			}
			for _, sub := range []string{"scale", "Status", "status/x"} {
				if err := p.Validate(t.Context(), write("v1", sub, admission.Update, make("x", "1"), make("y", "2")),
					nil); err == nil {
					t.Errorf("subresource %s is written", sub)
				}
			}
		})
	}
	if err := p.Validate(t.Context(), write("v1", "", admission.Update, nil, nil), nil); err == nil {
		t.Error("an update without objects is admitted")
	}
}

// TestMaintenanceOfUnstructured checks unstructured objects, as in the webhook service. A missing
// map of labels equals an empty one. The label that TenantLabel adds is not treated as a change,
// but a change of the spec is.
func TestMaintenanceOfUnstructured(t *testing.T) {
	a, err := tenant.Parse("a")
	if err != nil {
		t.Fatal(err)
	}
	object := func(labels map[string]string, finalizers []string, image string) *unstructured.Unstructured {
		u := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"image": image}}}
		u.SetName("d")
		u.SetLabels(labels)
		u.SetFinalizers(finalizers)
		return u
	}
	p, labelled := plugin(tenant.System(), nil, a, nil), map[string]string{tenant.Label: "a"}
	old := object(nil, nil, "x")
	if err := p.Validate(t.Context(),
		write("v1", "", admission.Update, object(labelled, []string{"example.com/f"}, "x"), old), nil); err != nil {
		t.Errorf("a finalizer and the label: %v", err)
	}
	if err := p.Validate(t.Context(), write("v1", "", admission.Update, object(labelled, nil, "y"), old),
		nil); err == nil {
		t.Error("a change of the spec is treated as maintenance")
	}
}

// TestUnlistedResourcesAreAllowed checks that resources that are not listed are allowed. A listed
// resource is identified by group and name. Deletions are not checked.
func TestUnlistedResourcesAreAllowed(t *testing.T) {
	a, err := tenant.Parse("a")
	if err != nil {
		t.Fatal(err)
	}
	p := plugin(a, nil, a, nil)
	for name, c := range map[string]struct {
		resource schema.GroupVersionResource
		listed   bool
	}{
		"a listed resource":              {appsv1.SchemeGroupVersion.WithResource("daemonsets"), true},
		"another resource of the group":  {appsv1.SchemeGroupVersion.WithResource("deployments"), false},
		"the same name in another group": {schema.GroupVersionResource{Version: "v1", Resource: "daemonsets"}, false},
		"the name with capital letters":  {appsv1.SchemeGroupVersion.WithResource("DaemonSets"), false},
	} {
		t.Run(name, func(t *testing.T) {
			write := admission.NewAttributesRecord(&appsv1.DaemonSet{}, nil, schema.GroupVersionKind{}, "a--web", "x",
				c.resource, "", admission.Create, nil, false, &user.DefaultInfo{})
			if err := p.Validate(t.Context(), write, nil); (err != nil) != c.listed {
				t.Error(err)
			}
		})
	}
	if p.Handles(admission.Delete) || p.Handles(admission.Connect) {
		t.Error("deletions or connects are checked")
	}
}

// TestInvalidUpdatesAreNotMaintenance checks that neither a create nor an update with a missing or
// invalid object is treated as maintenance.
func TestInvalidUpdatesAreNotMaintenance(t *testing.T) {
	a, err := tenant.Parse("a")
	if err != nil {
		t.Fatal(err)
	}
	p, ds := plugin(tenant.System(), nil, a, nil), &appsv1.DaemonSet{}
	for name, w := range map[string]admission.Attributes{
		"a create":         write("v1", "", admission.Create, ds, ds),
		"a create, status": write("v1", "status", admission.Create, ds, ds),
		"no old object":    write("v1", "", admission.Update, ds, nil),
		"no new object":    write("v1", "", admission.Update, nil, ds),
		"neither object":   write("v1", "", admission.Update, nil, nil),
		"invalid objects":  write("v1", "", admission.Update, &metav1.Status{}, &metav1.Status{}),
	} {
		t.Run(name, func(t *testing.T) {
			if err := p.Validate(t.Context(), w, nil); err == nil {
				t.Errorf("%s is treated as maintenance", name)
			}
		})
	}
	if err := p.Validate(t.Context(), write("v1", "", admission.Update, ds, ds), nil); err != nil {
		t.Errorf("an update without changes: %v", err)
	}
}
