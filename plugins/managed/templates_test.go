// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package managed_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/kubetenant/kubetenant/plugins"
	"github.com/kubetenant/kubetenant/plugins/managed"
	"github.com/kubetenant/kubetenant/tenant"
)

// templatePlugin returns the plugin. Pods wait in new namespaces of tenant a. The user root may
// create, update and delete ConfigMaps. The user keeper may not delete them, and the user maker
// may only create them. For the user lost, the authorizer fails.
func templatePlugin() plugins.Interface {
	return managed.New(managed.Options{
		Subject: func(_ context.Context, u user.Info) (tenant.ID, error) {
			if u.GetName() == "alice" {
				return tenant.Parse("a")
			}
			return tenant.System(), nil
		},
		Terminating: func(string) bool { return false },
		MustWait:    func(_ context.Context, id tenant.ID) bool { return id.String() == "a" },
		Provides: func(_ context.Context, namespace string, r schema.GroupResource, name string) (bool, error) {
			if namespace == "away" {
				return false, errors.New("away")
			}
			kinds := []string{"configmaps", "rolebindings", "roles", "secrets"}
			return namespace == "a--web" && slices.Contains(kinds, r.Resource) && name == "given", nil
		},
		Waiting: func(_ context.Context, namespace string) (bool, error) {
			if namespace == "away" {
				return false, errors.New("away")
			}
			return namespace == "a--new", nil
		},
		ReadTemplate: func(obj runtime.Object) ([]schema.GroupVersionResource, error) {
			u, _ := obj.(*unstructured.Unstructured)
			if u.GetName() == "bad" {
				return nil, errors.New("spec.objects[0]: is no object")
			}
			return []schema.GroupVersionResource{corev1.SchemeGroupVersion.WithResource("configmaps")}, nil
		},
		Removed: func(was, is runtime.Object) []schema.GroupVersionResource {
			if specOf(was) == "drops" {
				return []schema.GroupVersionResource{corev1.SchemeGroupVersion.WithResource("configmaps")}
			}
			return nil
		},
		Authorizer: authorizer.AuthorizerFunc(func(
			_ context.Context, a authorizer.Attributes,
		) (authorizer.Decision, string, error) {
			if a.GetResource() != "configmaps" || a.GetNamespace() != "" || a.GetName() == "" || a.GetAPIVersion() != "v1" ||
				!a.IsResourceRequest() {
				return authorizer.DecisionDeny, "", nil
			}
			switch a.GetUser().GetName() + " " + a.GetVerb() {
			case "root create", "root update", "root delete", "maker create", "keeper create", "keeper update":
				return authorizer.DecisionAllow, "", nil
			case "lost create":
				return authorizer.DecisionNoOpinion, "", errors.New("away")
			}
			return authorizer.DecisionNoOpinion, "", nil
		}),
	})
}

func specOf(obj runtime.Object) string {
	u, _ := obj.(*unstructured.Unstructured)
	text, _, _ := unstructured.NestedString(u.Object, "spec", "x")
	return text
}

func template(name, spec string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{
		Object: map[string]any{
			"apiVersion": "kubetenant.dev/v1alpha1",
			"kind":       "NamespaceTemplate",
			"spec":       map[string]any{"x": spec},
		},
	}
	u.SetName(name)
	return u
}

// TestTemplateAuthors checks that the author of a NamespaceTemplate must be allowed to write its
// objects in all namespaces. An update that does not change the spec needs no permission.
func TestTemplateAuthors(t *testing.T) {
	resource := schema.GroupVersionResource{Group: tenant.Domain, Version: "v1alpha1", Resource: "namespacetemplates"}
	for name, c := range map[string]struct {
		by      string
		was, is runtime.Object
		want    string
	}{
		"created": {"root", nil, template("x", "a"), ""},
		"created by the manager": {
			tenant.ManagerUser, nil, template("x", "a"), "may not create configmaps in all namespaces",
		},
		"changed":           {"root", template("x", "a"), template("x", "b"), ""},
		"an object removed": {"root", template("x", "drops"), template("x", "b"), ""},
		"an object removed without the permission": {
			"keeper", template("x", "drops"), template("x", "b"), "spec.objects: the caller may not delete configmaps",
		},
		"changed without delete": {"keeper", template("x", "a"), template("x", "b"), ""},
		"created without update": {"maker", nil, template("x", "a"), "may not update configmaps"},
		"created without create": {"nobody", nil, template("x", "a"), "may not create configmaps"},
		"changed without create": {"nobody", template("x", "a"), template("x", "b"), "may not create configmaps"},
		"labelled without permissions": {"nobody", template("x", "a"), func() runtime.Object {
			u := template("x", "a")
			u.SetLabels(map[string]string{"a": "b"})
			return u
		}(), ""},
		"failed check":     {"lost", nil, template("x", "a"), "cannot check now"},
		"invalid template": {"root", nil, template("bad", "a"), "spec.objects[0]: is no object"},
		"deleted":          {"nobody", template("x", "a"), nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := write{
				by:       &user.DefaultInfo{Name: c.by},
				resource: resource,
				old:      c.was,
				obj:      c.is,
			}
			got := fmt.Sprint(templatePlugin().Validate(t.Context(), w.attributes(), nil))
			if (got == "<nil>") != (c.want == "") || !strings.Contains(got, c.want) {
				t.Errorf("%s, want %q", got, c.want)
			}
		})
	}
}

// TestPodsWaitForPreparedNamespaces checks that no caller can create a Pod in a namespace that is
// not prepared, and that the response suggests a retry to human users. Subresources and updates are
// allowed.
func TestPodsWaitForPreparedNamespaces(t *testing.T) {
	pods := corev1.SchemeGroupVersion.WithResource("pods")
	pod := &corev1.Pod{}
	for name, c := range map[string]struct {
		write
		held, refused bool
	}{
		"created":                 {write: write{in: "a--new", obj: pod}, held: true},
		"in a prepared namespace": {write: write{in: "a--web", obj: pod}},
		"after a failed lookup":   {write: write{in: "away", obj: pod}, refused: true},
		"bound":                   {write: write{in: "a--new", sub: "binding", obj: pod}},
		"changed":                 {write: write{in: "a--new", old: pod, obj: pod}},
		"deleted":                 {write: write{in: "a--new", old: pod}},
		"a configmap": {
			write: write{in: "a--new", obj: &corev1.ConfigMap{}, resource: corev1.SchemeGroupVersion.WithResource("configmaps")},
		},
		"a pod of another group": {
			write: write{
				in:       "a--new",
				obj:      pod,
				resource: schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "pods"},
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			if c.resource.Resource == "" {
				c.resource = pods
			}
			for _, by := range []string{"alice", "root", "system:kube-controller-manager"} {
				c.by = &user.DefaultInfo{Name: by}
				err := templatePlugin().Validate(t.Context(), c.attributes(), nil)
				seconds, again := apierrors.SuggestsClientDelay(err)
				people := !strings.HasPrefix(by, "system:") // human users wait for a retry
				if apierrors.IsTooManyRequests(err) != c.held || again != (c.held && people) || again && seconds != 1 ||
					apierrors.IsForbidden(err) != c.refused || !c.held && !c.refused && err != nil {
					t.Errorf("%s by %s: %v", name, by, err)
				}
			}
		})
	}
}

// TestNewNamespacesWait checks that a new Namespace of a tenant whose Pods must wait gets the
// annotation, regardless of the caller that creates it. Only [tenant.ManagerUser] removes the
// annotation.
func TestNewNamespacesWait(t *testing.T) {
	of := func(id string, annotations ...string) *corev1.Namespace {
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "x", Annotations: map[string]string{}}}
		if id != "" {
			ns.Labels = map[string]string{tenant.Label: id}
		}
		for _, key := range annotations {
			ns.Annotations[key] = "true"
		}
		return ns
	}
	held, prepared := tenant.HeldAnnotation, tenant.PreparedAnnotation
	for name, c := range map[string]struct {
		by      string
		was, is *corev1.Namespace
		held    bool // after Admit
		invalid bool // without Admit
	}{
		"created":                  {"alice", nil, of("a"), true, true},
		"created by the system":    {"root", nil, of("a"), true, true},
		"created by a controller":  {"system:controller", nil, of("a"), true, true},
		"created by the manager":   {tenant.ManagerUser, nil, of("a"), true, true},
		"of a Keystone project":    {tenant.ManagerUser, nil, of("a", tenant.KeystoneAnnotation), true, true},
		"by the manager, not held": {tenant.ManagerUser, nil, of("b"), false, false},
		"created held":             {"alice", nil, of("a", held), true, false},
		"of another tenant":        {"root", nil, of("b"), false, false},
		"of another tenant, held":  {"root", nil, of("b", held), false, false},
		"of the system tenant":     {"root", nil, of(""), false, false},
		"of the system by label":   {"root", nil, of("system"), false, false},
		"with an invalid label":    {"root", nil, of("-"), false, false},
		"restored":                 {"root", nil, of("a", prepared), true, true},
		"forged":                   {"root", nil, of("a", held, tenant.KeystoneAnnotation), true, true},
		"released":                 {"alice", of("a", held), of("a"), true, true},
		"held later":               {"root", of("a"), of("a", held), false, true},
		"assigned to a tenant":     {"root", of(""), of("a"), false, false},
		"unchanged":                {"root", of("a", held), of("a", held), true, false},
		"released by the manager":  {tenant.ManagerUser, of("a", held), of("a"), false, false},
	} {
		t.Run(name, func(t *testing.T) {
			w := write{by: &user.DefaultInfo{Name: c.by}, resource: namespaces, obj: c.is}
			if c.was != nil {
				w.old = c.was
			}
			if err := templatePlugin().Validate(t.Context(), w.attributes(), nil); (err != nil) != c.invalid {
				t.Errorf("%s, before Admit: %v", name, err)
			} else if after, waits := apierrors.SuggestsClientDelay(err); err != nil && strings.HasPrefix(name, "created") &&
				(!apierrors.IsTooManyRequests(err) || waits == strings.HasPrefix(c.by, "system:") || waits && after != 1) {
				t.Errorf("%s, before Admit: %v, retry after %d s: %t", name, err, after, waits)
			}
			if err := templatePlugin().Admit(t.Context(), w.attributes(), nil); err != nil {
				t.Errorf("%v", err)
			}
			if _, is := c.is.Annotations[held]; is != c.held {
				t.Errorf("held is %t", is)
			}
			if _, is := c.is.Annotations[tenant.KeystoneAnnotation]; is != (name == "of a Keystone project") {
				t.Errorf("the Keystone annotation is set: %t", is)
			}
			if err := templatePlugin().Validate(t.Context(), w.attributes(), nil); err != nil {
				t.Errorf("%s, after Admit: %v", name, err)
			}
		})
	}
}

// TestProvidedNamesAreReserved checks that other callers cannot create an object with a name that a
// template provides, even if the template's object does not exist yet.
func TestProvidedNamesAreReserved(t *testing.T) {
	of := func(name string) *corev1.ConfigMap {
		return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}
	}
	for name, c := range map[string]struct {
		write
		name string
		want string
	}{
		"given":                {write{in: "a--web", obj: of("given")}, "given", "provides an object with this name"},
		"another":              {write{in: "a--web", obj: of("x")}, "x", ""},
		"in another namespace": {write{in: "b--web", obj: of("given")}, "given", ""},
		"of another kind": {
			write{in: "a--web", obj: of("given"), resource: corev1.SchemeGroupVersion.WithResource("limitranges")}, "given", "",
		},
		"a Secret": {
			write{in: "a--web", obj: of("given"), resource: corev1.SchemeGroupVersion.WithResource("secrets")},
			"given",
			"provides an object",
		},
		"a Role": {
			write{in: "a--web", obj: of("given"), resource: rbacv1.SchemeGroupVersion.WithResource("roles")},
			"given",
			"provides an object",
		},
		"a RoleBinding": {
			write{in: "a--web", obj: of("given"), resource: bindings}, "given", "provides an object",
		},
		"with a generated name": {write{in: "a--web", obj: of("")}, "", ""},
		"after a failed lookup": {write{in: "away", obj: of("x")}, "x", "away"},
		"changed":               {write{in: "a--web", old: of("given"), obj: of("given")}, "given", ""},
		"deleted":               {write{in: "a--web", old: of("given")}, "given", ""},
	} {
		t.Run(name, func(t *testing.T) {
			if c.resource.Resource == "" {
				c.resource = corev1.SchemeGroupVersion.WithResource("configmaps")
			}
			for _, by := range []string{"alice", "root"} {
				c.by = &user.DefaultInfo{Name: by}
				a := c.attributes()
				got := fmt.Sprint(templatePlugin().Validate(t.Context(),
					admission.NewAttributesRecord(a.GetObject(), a.GetOldObject(), schema.GroupVersionKind{}, c.in, c.name, c.resource,
						"", a.GetOperation(), nil, false, c.by), nil))
				if (got == "<nil>") != (c.want == "") || !strings.Contains(got, c.want) {
					t.Errorf("%s by %s: %s, want %q", name, by, got, c.want)
				}
			}
		})
	}
}

// TestOnlyTheManagerWritesTemplateObjects checks, for each kind, that only [tenant.ManagerUser]
// writes the objects of a template. Controllers may write their status.
func TestOnlyTheManagerWritesTemplateObjects(t *testing.T) {
	given := func(obj metav1.Object, labelled bool) runtime.Object {
		obj.SetName("x")
		if labelled {
			obj.SetLabels(map[string]string{tenant.ManagedLabel: "template"})
		}
		return obj.(runtime.Object)
	}
	kinds := map[schema.GroupVersionResource]func() metav1.Object{
		corev1.SchemeGroupVersion.WithResource("configmaps"):     func() metav1.Object { return &corev1.ConfigMap{} },
		corev1.SchemeGroupVersion.WithResource("limitranges"):    func() metav1.Object { return &corev1.LimitRange{} },
		corev1.SchemeGroupVersion.WithResource("resourcequotas"): func() metav1.Object { return &corev1.ResourceQuota{} },
		networkingv1.SchemeGroupVersion.WithResource("networkpolicies"): func() metav1.Object {
			return &networkingv1.NetworkPolicy{}
		},
	}
	for resource, object := range kinds {
		changed := object()
		changed.SetAnnotations(map[string]string{"a": "b"})
		for name, c := range map[string]struct {
			was, is runtime.Object
			sub     string
			held    bool
		}{
			"created":          {is: given(object(), true), held: true},
			"created, another": {is: given(object(), false)},
			"changed":          {was: given(object(), true), is: given(changed, true), held: true},
			"its status":       {was: given(object(), true), is: given(object(), true), sub: "status"},
			"metadata by a status": {
				was:  given(object(), true),
				is:   given(changed, true),
				sub:  "status",
				held: true,
			},
			"unlabelled": {was: given(object(), true), is: given(object(), false), held: true},
			"unlabelled by status": {
				was:  given(object(), true),
				is:   given(object(), false),
				sub:  "status",
				held: true,
			},
			"labelled":         {was: given(object(), false), is: given(object(), true), held: true},
			"deleted":          {was: given(object(), true), held: true},
			"deleted, another": {was: given(object(), false)},
		} {
			t.Run(name, func(t *testing.T) {
				for _, by := range []string{"alice", "root", tenant.ManagerUser} {
					w := write{
						by:       &user.DefaultInfo{Name: by},
						resource: resource,
						in:       "a--web",
						sub:      c.sub,
						old:      c.was,
						obj:      c.is,
					}
					if err := templatePlugin().Validate(t.Context(), w.attributes(), nil); (err != nil) != (c.held &&
						by != tenant.ManagerUser) {
						t.Errorf("%s %s by %s: %v", resource.Resource, name, by, err)
					}
				}
			})
		}
	}
}
