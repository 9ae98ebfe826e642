// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/yaml"

	"github.com/kubetenant/kubetenant/tenant/client/clientset/versioned"
	typed "github.com/kubetenant/kubetenant/tenant/client/clientset/versioned/typed/tenant/v1alpha1"
	"github.com/kubetenant/kubetenant/tenant/client/informers/externalversions"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
	"github.com/kubetenant/kubetenant/test/waittest"
)

// handwrittenFolder contains the handwritten CustomResourceDefinitions of earlier releases.
const handwrittenFolder = "../../../../deploy/testdata/handwritten"

// upgrade contains a server that stores objects of kubetenant's kinds, and its clients.
type upgrade struct {
	*server
	objects dynamic.Interface
	clients versioned.Interface
	typed   typed.KubetenantV1alpha1Interface
}

// TestDefinitionsUpgrade stores objects with the handwritten definitions, and replaces these with
// the generated definitions. It checks that the typed clients then read each stored field, and that
// the server still rejects invalid objects.
func TestDefinitionsUpgrade(t *testing.T) {
	s := startServer(t, nil, "--tenancy=false")
	clients, err := versioned.NewForConfig(s.config(t, "admin"))
	if err != nil {
		t.Fatal(err)
	}
	u := &upgrade{
		server:  s,
		objects: s.dynamic(t, "admin"),
		clients: clients,
		typed:   clients.KubetenantV1alpha1(),
	}
	objects := oneOfEachKind(t)
	u.install(t, handwrittenFolder)
	for _, o := range objects {
		u.store(t, o)
	}
	t.Run("unknown fields with the handwritten definitions", func(t *testing.T) { u.checkUnknownFields(t, objects) })
	u.install(t, definitionsFolder)
	checkDefinitions(t, s)
	t.Run("fields", func(t *testing.T) {
		for _, o := range objects {
			got, err := u.read(t.Context(), o)
			checkTyped(t, o, got, err)
		}
	})
	t.Run("informers", func(t *testing.T) { u.checkInformers(t, objects) })
	t.Run("unknown fields with the generated definitions", func(t *testing.T) { u.checkUnknownFields(t, objects) })
	t.Run("kubectl apply", func(t *testing.T) { u.checkApply(t, objects) })
	t.Run("negative limits", u.checkNegative)
	t.Run("update", u.checkUpdate)
}

// oneOfEachKind returns an object of each kind that has a handwritten definition.
func oneOfEachKind(t *testing.T) (all []*unstructured.Unstructured) {
	t.Helper()
	text := readFile(t, "testdata/kinds.yaml")
	kinds := map[string]bool{}
	for document := range strings.SplitSeq(text, "\n---\n") {
		o := &unstructured.Unstructured{}
		if err := yaml.UnmarshalStrict([]byte(document), &o.Object); err != nil {
			t.Fatal(err)
		}
		kinds[o.GetKind()] = true
		all = append(all, o)
	}
	// Publications and TenantUsages have no handwritten definition.
	if want := len(v1alpha1.ResourceNames()) - 2; len(kinds) != want || kinds[v1alpha1.KindPublication] ||
		kinds[v1alpha1.KindTenantUsage] {
		t.Fatalf("the file has %d kinds; want %d", len(kinds), want)
	}
	return all
}

// install installs the CustomResourceDefinitions of a folder, as docs/install.md does.
func (u *upgrade) install(t *testing.T, folder string) {
	t.Helper()
	u.mustKubectl(t, "admin", "apply", "--server-side", "-f", folder, "--force-conflicts")
	u.mustKubectl(t, "admin", "wait", "--for=condition=Established", "-f", folder)
}

// resourceOf returns the resource of an object's kind.
func resourceOf(o *unstructured.Unstructured) schema.GroupVersionResource {
	return v1alpha1.SchemeGroupVersion.WithResource(strings.TrimSuffix(strings.ToLower(o.GetKind()), "s") + "s")
}

// clientOf returns the client of an object's resource.
func (u *upgrade) clientOf(o *unstructured.Unstructured) dynamic.ResourceInterface {
	all := u.objects.Resource(resourceOf(o))
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
		stored, err = u.clientOf(o).Create(t.Context(), o, metav1.CreateOptions{FieldValidation: "Strict"})
		return err
	})
	if o.Object["status"] == nil {
		return
	}
	stored.Object["status"] = o.Object["status"]
	if _, err := u.clientOf(o).UpdateStatus(t.Context(), stored,
		metav1.UpdateOptions{FieldValidation: "Strict"}); err != nil {
		t.Fatal(err)
	}
}

// read reads an object with the typed client of its kind.
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

// checkTyped checks that the typed object has the same spec and status as the stored object, and
// that err is nil.
func checkTyped(t *testing.T, o *unstructured.Unstructured, typed runtime.Object, err error) {
	t.Helper()
	if err != nil {
		t.Error(err)
		return
	}
	text, err := json.Marshal(typed)
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

// checkInformers checks that a typed informer of each kind returns the object with each field.
func (u *upgrade) checkInformers(t *testing.T, objects []*unstructured.Unstructured) {
	factory := externalversions.NewSharedInformerFactory(u.clients, 0)
	listers := map[string]cache.GenericLister{}
	for _, o := range objects {
		informer, err := factory.ForResource(resourceOf(o))
		if err != nil {
			t.Fatal(err)
		}
		listers[o.GetKind()] = informer.Lister()
	}
	ctx, cancel := context.WithTimeout(t.Context(), waittest.Limit)
	defer cancel()
	factory.Start(ctx.Done())
	for kind, synced := range factory.WaitForCacheSync(ctx.Done()) {
		if !synced {
			t.Errorf("the informer of %v is not synced", kind)
		}
	}
	for _, o := range objects {
		lister := cache.GenericNamespaceLister(listers[o.GetKind()])
		if o.GetNamespace() != "" {
			lister = listers[o.GetKind()].ByNamespace(o.GetNamespace())
		}
		got, err := lister.Get(o.GetName())
		checkTyped(t, o, got, err)
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

// checkUnknownFields checks for each kind that strict field validation rejects unknown fields, and
// that the server otherwise removes them.
func (u *upgrade) checkUnknownFields(t *testing.T, objects []*unstructured.Unstructured) {
	dry := []string{metav1.DryRunAll}
	for _, o := range objects {
		got, err := u.clientOf(o).Get(t.Context(), o.GetName(), metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		got.Object["spec"].(map[string]any)["colour"] = "red"
		got.Object["shape"] = "round"
		_, err = u.clientOf(o).Update(t.Context(), got, metav1.UpdateOptions{DryRun: dry, FieldValidation: "Strict"})
		for _, field := range []string{"spec.colour", "shape"} {
			if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("unknown field %q", field)) {
				t.Errorf("%s: strict validation of %s: %v", o.GetKind(), field, err)
			}
		}
		stored, err := u.clientOf(o).Update(t.Context(), got, metav1.UpdateOptions{DryRun: dry, FieldValidation: "Ignore"})
		if err != nil {
			t.Error(err)
			continue
		}
		checkTyped(t, o, stored, nil)
		if shape, ok := stored.Object["shape"]; ok {
			t.Errorf("%s: the server stores %v", o.GetKind(), shape)
		}
	}
}

// checkApply checks for each kind that kubectl apply fails with an unknown field only if it
// validates strictly.
func (u *upgrade) checkApply(t *testing.T, objects []*unstructured.Unstructured) {
	var documents []string
	for _, o := range objects {
		changed := o.DeepCopy()
		changed.Object["spec"].(map[string]any)["colour"] = "red"
		text, err := yaml.Marshal(changed.Object)
		if err != nil {
			t.Fatal(err)
		}
		documents = append(documents, string(text))
	}
	path := testFile(t, strings.Join(documents, "---\n"))
	for validate, refused := range map[string]int{"strict": len(objects), "ignore": 0} {
		out, err := u.kubectl(t, "admin", "apply", "--dry-run=server", "--validate="+validate, "-f", path)
		if (err != nil) != (refused > 0) || strings.Count(out, `unknown field "spec.colour"`) != refused {
			t.Errorf("kubectl apply --validate=%s: %v: %s", validate, err, out)
		}
	}
}

// checkNegative checks that the generated definitions reject a negative limit, as the pattern of
// the handwritten definitions did.
func (u *upgrade) checkNegative(t *testing.T) {
	for value, refused := range map[string]bool{
		"-1":    true,
		"-.5Gi": true,
		"1e-3":  false,
		"+1":    false,
		"0":     false,
	} {
		o := tenantWith("limits", map[string]any{"quota": map[string]any{"pods": value}})
		_, err := u.clientOf(o).Create(t.Context(), o, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if refused != (err != nil && strings.Contains(err.Error(), "a limit must not be negative")) {
			t.Errorf("%s: %v", value, err)
		}
	}
}

// checkUpdate checks that the spec and a condition of a stored Tenant can be updated.
func (u *upgrade) checkUpdate(t *testing.T) {
	got, err := u.typed.Tenants().Get(t.Context(), "acme", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	got.Spec.Access, got.Spec.Quota = v1alpha1.TenantAccessOpen, nil
	if got, err = u.typed.Tenants().Update(t.Context(), got, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	meta.SetStatusCondition(&got.Status.Conditions, metav1.Condition{
		Type:    v1alpha1.ConditionReady,
		Status:  metav1.ConditionTrue,
		Reason:  v1alpha1.ReasonReady,
		Message: "every namespace has the objects that the Tenant defines",
	})
	if got, err = u.typed.Tenants().UpdateStatus(t.Context(), got, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if got.Spec.Access != v1alpha1.TenantAccessOpen ||
		!meta.IsStatusConditionTrue(got.Status.Conditions, v1alpha1.ConditionReady) {
		t.Errorf("the server stores %+v", got)
	}
}
