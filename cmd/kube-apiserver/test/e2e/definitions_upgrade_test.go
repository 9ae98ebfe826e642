package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"

	"github.com/kubetenant/kubetenant/tenant/client/clientset/versioned"
	typed "github.com/kubetenant/kubetenant/tenant/client/clientset/versioned/typed/tenant/v1alpha1"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
	"github.com/kubetenant/kubetenant/test/localserver"
	"github.com/kubetenant/kubetenant/test/waittest"
)

// handwrittenFolder has the definitions before they were generated.
const handwrittenFolder = "../../../../deploy/testdata/handwritten"

// An upgrade is a server that stores objects of our kinds.
type upgrade struct {
	server  *localserver.Server
	dynamic dynamic.Interface
	typed   typed.KubetenantV1alpha1Interface
}

// TestDefinitionsUpgrade requires that the typed clients read each field of an object that was
// stored with the handwritten definitions, after the generated ones have replaced them.
func TestDefinitionsUpgrade(t *testing.T) {
	s := start(t, t.TempDir(), "--tenancy=false")
	c := config(t, s, "admin")
	d, err := dynamic.NewForConfig(c)
	if err != nil {
		t.Fatal(err)
	}
	clients, err := versioned.NewForConfig(c)
	if err != nil {
		t.Fatal(err)
	}
	u := &upgrade{server: s, dynamic: d, typed: clients.KubetenantV1alpha1()}
	objects := oneOfEachKind(t)
	u.apply(t, handwrittenFolder)
	for _, o := range objects {
		u.store(t, o)
	}
	u.apply(t, definitionsFolder)
	checkDefinitions(t, s)
	t.Run("fields", func(t *testing.T) {
		for _, o := range objects {
			u.checkTyped(t, o)
		}
	})
	t.Run("unknown fields", u.checkUnknownFields)
	t.Run("negative limits", u.checkNegative)
	t.Run("update", u.checkUpdate)
}

// oneOfEachKind returns an object of each kind.
func oneOfEachKind(t *testing.T) (all []*unstructured.Unstructured) {
	t.Helper()
	text, err := os.ReadFile("testdata/kinds.yaml")
	if err != nil {
		t.Fatal(err)
	}
	kinds := map[string]bool{}
	for document := range strings.SplitSeq(string(text), "\n---\n") {
		o := &unstructured.Unstructured{}
		if err := yaml.UnmarshalStrict([]byte(document), &o.Object); err != nil {
			t.Fatal(err)
		}
		kinds[o.GetKind()] = true
		all = append(all, o)
	}
	if want := len(v1alpha1.ResourceNames()); len(kinds) != want {
		t.Fatalf("the file has %d kinds; want %d", len(kinds), want)
	}
	return all
}

func (u *upgrade) kubectl(t *testing.T, args ...string) {
	t.Helper()
	if out, err := kubectl(t, u.server, "admin", args...); err != nil {
		t.Fatal(out)
	}
}

// apply installs the definitions of a folder, as docs/install.md does.
func (u *upgrade) apply(t *testing.T, folder string) {
	t.Helper()
	u.kubectl(t, "apply", "--server-side", "-f", folder, "--force-conflicts")
	u.kubectl(t, "wait", "--for=condition=Established", "-f", folder)
}

// of returns the client of an object's resource.
func (u *upgrade) of(o *unstructured.Unstructured) dynamic.ResourceInterface {
	resource := strings.TrimSuffix(strings.ToLower(o.GetKind()), "s") + "s"
	all := u.dynamic.Resource(v1alpha1.SchemeGroupVersion.WithResource(resource))
	if o.GetNamespace() == "" {
		return all
	}
	return all.Namespace(o.GetNamespace())
}

// store creates an object and its status.
func (u *upgrade) store(t *testing.T, o *unstructured.Unstructured) {
	t.Helper()
	var stored *unstructured.Unstructured
	waittest.Until(t, func() (err error) { // until the server serves the kind
		stored, err = u.of(o).Create(t.Context(), o, metav1.CreateOptions{FieldValidation: "Strict"})
		return err
	})
	if o.Object["status"] == nil {
		return
	}
	stored.Object["status"] = o.Object["status"]
	if _, err := u.of(o).UpdateStatus(t.Context(), stored, metav1.UpdateOptions{FieldValidation: "Strict"}); err != nil {
		t.Fatal(err)
	}
}

// read reads an object by the typed client of its kind.
func (u *upgrade) read(ctx context.Context, o *unstructured.Unstructured) (runtime.Object, error) {
	name, get := o.GetName(), metav1.GetOptions{}
	switch o.GetKind() {
	case v1alpha1.KindTenant:
		return u.typed.Tenants().Get(ctx, name, get)
	case v1alpha1.KindTenantMembers:
		return u.typed.TenantMembers().Get(ctx, name, get)
	case v1alpha1.KindTenantQuota:
		return u.typed.TenantQuotas().Get(ctx, name, get)
	case v1alpha1.KindRetiredTenant:
		return u.typed.RetiredTenants().Get(ctx, name, get)
	case v1alpha1.KindNamespaceTemplate:
		return u.typed.NamespaceTemplates().Get(ctx, name, get)
	case v1alpha1.KindAccessGrant:
		return u.typed.AccessGrants(o.GetNamespace()).Get(ctx, name, get)
	}
	return nil, fmt.Errorf("%s has no client", o.GetKind())
}

// checkTyped compares an object with its encoding by the typed client.
func (u *upgrade) checkTyped(t *testing.T, o *unstructured.Unstructured) {
	t.Helper()
	is, err := u.read(t.Context(), o)
	if err != nil {
		t.Error(err)
		return
	}
	text, err := json.Marshal(is)
	if err != nil {
		t.Fatal(err)
	}
	var got map[string]any
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{"spec", "status"} {
		if difference := cmp.Diff(o.Object[part], got[part]); difference != "" {
			t.Errorf("the %s of %s (-stored +read):\n%s", part, o.GetKind(), difference)
		}
	}
}

func tenantWith(name string, more map[string]any) *unstructured.Unstructured {
	spec := map[string]any{"id": name}
	for key, value := range more {
		spec[key] = value
	}
	o := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	o.SetGroupVersionKind(v1alpha1.SchemeGroupVersion.WithKind(v1alpha1.KindTenant))
	o.SetName(name)
	return o
}

// checkUnknownFields requires that strict validation refuses an unknown field, and that the server
// drops it otherwise.
func (u *upgrade) checkUnknownFields(t *testing.T) {
	o := tenantWith("unknown", map[string]any{"colour": "red"})
	_, err := u.of(o).Create(t.Context(), o, metav1.CreateOptions{FieldValidation: "Strict"})
	if err == nil || !strings.Contains(err.Error(), `unknown field "spec.colour"`) {
		t.Errorf("strict validation says %v", err)
	}
	stored, err := u.of(o).Create(t.Context(), o, metav1.CreateOptions{FieldValidation: "Ignore"})
	if err != nil {
		t.Fatal(err)
	}
	if value, has, _ := unstructured.NestedString(stored.Object, "spec", "colour"); has {
		t.Errorf("the server stores %q", value)
	}
}

// checkNegative requires that the generated definitions refuse a negative limit, as the pattern of
// the handwritten ones did.
func (u *upgrade) checkNegative(t *testing.T) {
	for value, refused := range map[string]bool{
		"-1":    true,
		"-.5Gi": true,
		"1e-3":  false,
		"+1":    false,
		"0":     false,
	} {
		o := tenantWith("limits", map[string]any{"quota": map[string]any{"pods": value}})
		_, err := u.of(o).Create(t.Context(), o, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if refused != (err != nil && strings.Contains(err.Error(), "a limit must not be negative")) {
			t.Errorf("%s: %v", value, err)
		}
	}
}

// checkUpdate requires that a stored Tenant can be changed and gets a condition.
func (u *upgrade) checkUpdate(t *testing.T) {
	is, err := u.typed.Tenants().Get(t.Context(), "acme", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	is.Spec.Access, is.Spec.Quota = v1alpha1.TenantAccessOpen, nil
	if is, err = u.typed.Tenants().Update(t.Context(), is, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	meta.SetStatusCondition(&is.Status.Conditions, metav1.Condition{
		Type:    v1alpha1.ConditionReady,
		Status:  metav1.ConditionTrue,
		Reason:  v1alpha1.ReasonReady,
		Message: "every namespace has what the Tenant gives",
	})
	if is, err = u.typed.Tenants().UpdateStatus(t.Context(), is, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if is.Spec.Access != v1alpha1.TenantAccessOpen ||
		!meta.IsStatusConditionTrue(is.Status.Conditions, v1alpha1.ConditionReady) {
		t.Errorf("the server stores %+v", is)
	}
}
