// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package managed_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/warning"

	"github.com/kubetenant/kubetenant/plugins"
	"github.com/kubetenant/kubetenant/plugins/managed"
	"github.com/kubetenant/kubetenant/tenant"
)

// newPlugin returns the plugin. The first group of a caller is its tenant. A caller without groups
// belongs to the system tenant if its name is root or begins with "system:". Any other caller
// without groups has no known tenant. The namespace named going is terminating.
func newPlugin() plugins.Interface {
	return managed.New(managed.Options{
		Subject: func(_ context.Context, u user.Info) (tenant.ID, error) {
			if len(u.GetGroups()) > 0 {
				return tenant.Parse(u.GetGroups()[0])
			}
			if strings.HasPrefix(u.GetName(), "system:") || u.GetName() == "root" {
				return tenant.System(), nil
			}
			return tenant.ID{}, errors.New("away")
		},
		Terminating: func(namespace string) bool { return namespace == "going" },
	})
}

func binding(name string, labels map[string]string) *rbacv1.RoleBinding {
	return &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "a--web", Labels: labels},
		RoleRef:    rbacv1.RoleRef{Name: "admin"},
	}
}

func namespace(prepared string) *corev1.Namespace {
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "a--web"}}
	if prepared != "" {
		ns.Annotations = map[string]string{tenant.PreparedAnnotation: prepared, "x": "y"}
	}
	return ns
}

var (
	bindings   = rbacv1.SchemeGroupVersion.WithResource("rolebindings")
	namespaces = corev1.SchemeGroupVersion.WithResource("namespaces")
)

// write is a request. If old is nil, the request creates obj. If obj is nil, it deletes old. If
// both are set, it is an update.
type write struct {
	by       user.Info
	resource schema.GroupVersionResource
	in, sub  string
	old, obj runtime.Object
}

func (w write) attributes() admission.Attributes {
	op := admission.Update
	if w.old == nil {
		op = admission.Create
	} else if w.obj == nil {
		op = admission.Delete
	}
	return admission.NewAttributesRecord(w.obj, w.old, schema.GroupVersionKind{}, w.in, "x", w.resource, w.sub, op, nil,
		false, w.by)
}

// TestOnlyTheManagerWritesManagedObjects checks that only [tenant.ManagerUser] writes objects
// with [tenant.ManagedLabel] and the annotations that the server sets on a Namespace.
func TestOnlyTheManagerWritesManagedObjects(t *testing.T) {
	root, manager := &user.DefaultInfo{Name: "root"}, &user.DefaultInfo{Name: tenant.ManagerUser}
	ours := map[string]string{tenant.ManagedLabel: "tenant"}
	generated := binding("", nil)
	generated.GenerateName = "kubetenant:"
	stored := binding("kubetenant:admins", ours)
	stored.ResourceVersion, stored.ManagedFields = "7", []metav1.ManagedFieldsEntry{{Manager: "x"}}
	other := binding("kubetenant:admins", ours)
	other.RoleRef.Name = "edit"
	for name, c := range map[string]struct {
		write
		want string
	}{
		"created": {write{by: root, obj: binding("x", ours)}, "only the server may set the label kubetenant.dev/managed"},
		"created with no value": {
			write{by: root, obj: binding("x", map[string]string{tenant.ManagedLabel: ""})}, "the label kubetenant.dev/managed",
		},
		"created with a reserved name": {
			write{by: root, obj: binding("kubetenant:x", nil)}, "names that begin with kubetenant:",
		},
		"created with a generated name": {write{by: root, obj: generated}, "names that begin with kubetenant:"},
		"created without the label":     {write{by: root, obj: binding("x", nil)}, ""},
		"created by the manager":        {write{by: manager, obj: binding("kubetenant:x", ours)}, ""},
		"by a tenant's caller with the manager's name": {
			write{by: &user.DefaultInfo{Name: tenant.ManagerUser, Groups: []string{"b"}}, obj: binding("kubetenant:x", ours)},
			"the label",
		},
		"by an unknown caller": {write{by: &user.DefaultInfo{Name: "x"}, obj: binding("kubetenant:x", ours)}, "the label"},
		"changed": {
			write{by: root, old: binding("kubetenant:admins", ours), obj: other}, "is managed by a Tenant",
		},
		"changed by the manager": {write{by: manager, old: binding("kubetenant:admins", ours), obj: other}, ""},
		"unchanged":              {write{by: root, old: stored, obj: binding("kubetenant:admins", ours)}, ""},
		"managedFields reset by a tenant": {
			write{
				by:  &user.DefaultInfo{Name: "x", Groups: []string{"b"}},
				old: stored,
				obj: binding("kubetenant:admins", ours),
			}, "is managed by a Tenant",
		},
		"unchanged by a tenant's caller": {
			write{by: &user.DefaultInfo{Name: "x", Groups: []string{"b"}}, old: stored, obj: stored}, "",
		},
		"unlabelled": {
			write{by: root, old: binding("kubetenant:admins", ours), obj: binding("kubetenant:admins", nil)},
			"is managed by a Tenant",
		},
		"labelled": {write{by: root, old: binding("x", nil), obj: binding("x", ours)}, "the label"},
		"existing object with a reserved name, changed": {
			write{by: root, old: binding("kubetenant:x", nil), obj: binding("kubetenant:x", map[string]string{"a": "b"})}, "",
		},
		"deleted":                {write{by: root, old: binding("kubetenant:admins", ours)}, "is managed by a Tenant"},
		"deleted by the manager": {write{by: manager, old: binding("kubetenant:admins", ours)}, ""},
		"changed in a terminating namespace": {
			write{
				by:  root,
				in:  "going",
				old: binding("kubetenant:admins", ours),
				obj: other,
			},
			"is managed by a Tenant",
		},
		"existing object, deleted": {write{by: root, old: binding("kubetenant:x", nil)}, ""},
		"no object":                {write{by: root, old: &metav1.Status{}, obj: &metav1.Status{}}, "no object"},
		"another resource with the label": {
			write{by: root, resource: corev1.SchemeGroupVersion.WithResource("services"), obj: binding("x", ours)}, "",
		},
		"Namespace deleted": {write{by: root, resource: namespaces, old: namespace("h")}, ""},
		"annotation added":  {write{by: root, resource: namespaces, obj: namespace("h")}, "the annotation"},
		"annotation changed": {
			write{
				by:       root,
				resource: namespaces,
				old:      namespace("g"),
				obj:      namespace("h"),
			},
			"the annotation",
		},
		"annotation removed": {
			write{
				by:       root,
				resource: namespaces,
				sub:      "status",
				old:      namespace("g"),
				obj:      namespace(""),
			},
			"the annotation",
		},
		"annotation changed by the manager": {
			write{
				by:       manager,
				resource: namespaces,
				old:      namespace("g"),
				obj:      namespace("h"),
			},
			"",
		},
		"annotation unchanged": {
			write{
				by:       root,
				resource: namespaces,
				sub:      "finalize",
				old:      namespace("g"),
				obj:      namespace("g"),
			},
			"",
		},
		"not a Namespace":                 {write{by: root, resource: namespaces, obj: &metav1.Status{}}, "no object"},
		"annotation added by the manager": {write{by: manager, resource: namespaces, obj: namespace("h")}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			if c.resource.Resource == "" {
				c.resource = bindings
			}
			if c.in == "" {
				c.in = "a--web"
			}
			got := fmt.Sprint(newPlugin().Validate(t.Context(), c.attributes(), nil))
			if (got == "<nil>") != (c.want == "") || !strings.Contains(got, c.want) {
				t.Errorf("%s, want %q", got, c.want)
			}
		})
	}
}

// TestOnlyNamespaceControllersDeleteManagedObjects checks that only the controllers that empty a
// namespace may delete its managed objects, and only while the namespace is terminating.
func TestOnlyNamespaceControllersDeleteManagedObjects(t *testing.T) {
	const namespaceController = "system:serviceaccount:kube-system:namespace-controller"
	for _, resource := range []schema.GroupVersionResource{
		bindings,
		corev1.SchemeGroupVersion.WithResource("configmaps"),
		corev1.SchemeGroupVersion.WithResource("limitranges"),
		corev1.SchemeGroupVersion.WithResource("resourcequotas"),
		networkingv1.SchemeGroupVersion.WithResource("networkpolicies"),
	} {
		t.Run(resource.Resource, func(t *testing.T) {
			if !managed.MayBeManaged(resource.GroupResource()) {
				t.Error("the resource may not be managed")
			}
			for name, c := range map[string]struct {
				by      user.Info
				empties bool
			}{
				"the namespace controller": {&user.DefaultInfo{Name: namespaceController}, true},
				"the garbage collector": {
					&user.DefaultInfo{Name: "system:serviceaccount:kube-system:generic-garbage-collector"}, true,
				},
				"kube-controller-manager": {&user.DefaultInfo{Name: user.KubeControllerManager}, true},
				"an administrator":        {&user.DefaultInfo{Name: "root"}, false},
				"the API server":          {&user.DefaultInfo{Name: user.APIServerUser}, false},
				"another controller": {
					&user.DefaultInfo{Name: "system:serviceaccount:kube-system:job-controller"}, false,
				},
				"a tenant": {&user.DefaultInfo{Name: "alice", Groups: []string{"b"}}, false},
				"a tenant with the name of the namespace controller": {
					&user.DefaultInfo{Name: namespaceController, Groups: []string{"b"}}, false,
				},
				"no tenant": {&user.DefaultInfo{Name: "stranger"}, false},
			} {
				t.Run(name, func(t *testing.T) {
					for _, in := range []string{"going", "a--web", ""} {
						stored := binding("x", map[string]string{tenant.ManagedLabel: "template"})
						w := write{by: c.by, resource: resource, in: in}
						w.old = stored
						err := newPlugin().Validate(t.Context(), w.attributes(), nil)
						if may := c.empties && in == "going"; (err == nil) != may {
							t.Errorf("in %q: %v", in, err)
						}
					}
				})
			}
		})
	}
}

// TestManagedClusterRoleBindings checks that ClusterRoleBindings with the label are protected too.
// Their names are not reserved, because other callers may already use such names.
func TestManagedClusterRoleBindings(t *testing.T) {
	root, manager := &user.DefaultInfo{Name: "root"}, &user.DefaultInfo{Name: tenant.ManagerUser}
	made := func(labelled bool, role string) *rbacv1.ClusterRoleBinding {
		b := &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: "kubetenant:admins:a"},
			RoleRef:    rbacv1.RoleRef{Name: role},
		}
		if labelled {
			b.Labels = map[string]string{tenant.ManagedLabel: "tenant"}
		}
		return b
	}
	for name, c := range map[string]struct {
		was, is *rbacv1.ClusterRoleBinding
		held    bool
	}{
		"created":        {nil, made(true, "x"), true},
		"unlabelled":     {nil, made(false, "x"), false},
		"changed":        {made(true, "x"), made(true, "y"), true},
		"label removed":  {made(true, "x"), made(false, "x"), true},
		"label added":    {made(false, "x"), made(true, "x"), true},
		"unchanged":      {made(true, "x"), made(true, "x"), false},
		"deleted":        {made(true, "x"), nil, true},
		"others changed": {made(false, "x"), made(false, "y"), false},
		"others deleted": {made(false, "x"), nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			for _, by := range []user.Info{root, manager} {
				w := write{by: by, resource: rbacv1.SchemeGroupVersion.WithResource("clusterrolebindings")}
				if c.was != nil {
					w.old = c.was
				}
				if c.is != nil {
					w.obj = c.is
				}
				if err := newPlugin().Validate(t.Context(), w.attributes(), nil); (err != nil) != (c.held && by == root) {
					t.Errorf("%s by %s: %v", name, by.GetName(), err)
				}
			}
		})
	}
}

// TestPreparedAnnotation checks that only [tenant.ManagerUser] changes
// [tenant.PreparedAnnotation] of a Namespace. For other callers, the old value is restored.
func TestPreparedAnnotation(t *testing.T) {
	root, manager := &user.DefaultInfo{Name: "root"}, &user.DefaultInfo{Name: tenant.ManagerUser}
	for name, c := range map[string]struct {
		by      user.Info
		was, is *corev1.Namespace
		want    string
	}{
		"restored": {root, nil, namespace("h"), ""},
		"forged":   {root, namespace("g"), namespace("h"), "g"},
		"omitted":  {root, namespace("g"), namespace(""), "g"},
		"added":    {root, namespace(""), namespace("h"), ""},
		"set":      {manager, namespace("g"), namespace("h"), "h"},
		"removed":  {manager, namespace("g"), namespace(""), ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := write{by: c.by, resource: namespaces, obj: c.is}
			if c.was != nil {
				w.old = c.was
			}
			if err := newPlugin().Admit(t.Context(), w.attributes(), nil); err != nil ||
				c.is.Annotations[tenant.PreparedAnnotation] != c.want {
				t.Errorf("%q, %v; want %q", c.is.Annotations[tenant.PreparedAnnotation], err, c.want)
			}
		})
	}
	var told warnings
	if err := newPlugin().Admit(warning.WithWarningRecorder(t.Context(), &told),
		write{by: root, resource: namespaces, obj: namespace("h")}.attributes(), nil); err != nil || len(told) != 1 ||
		!strings.Contains(told[0], tenant.PreparedAnnotation+" is managed by the server and was removed") {
		t.Errorf("warnings %q, %v", told, err)
	}
	if err := newPlugin().Admit(t.Context(), write{by: root, resource: namespaces, obj: &metav1.Status{}}.attributes(),
		nil); err == nil {
		t.Error("an object that is not a Namespace was admitted")
	}
	if err := newPlugin().Admit(t.Context(), write{by: root, resource: bindings, obj: binding("x", nil)}.attributes(),
		nil); err != nil {
		t.Error(err)
	}
}

type warnings []string

func (s *warnings) AddWarning(_, text string) { *s = append(*s, text) }
