// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package upgrade

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"

	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
	"github.com/kubetenant/kubetenant/test/waittest"
)

const tenantsDefinition = "tenants.kubetenant.dev"

// storeLaterField adds the field spec.later to the definition of Tenants, as a later release could.
// It stores a Tenant with this field.
func (p *controlPlane) storeLaterField(t *testing.T, address string) {
	t.Helper()
	patch := `[{"op":"add","path":"/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/later",` +
		`"value":{"type":"string"}}]`
	waittest.Within(t, waitLimit, func() error {
		out, err := p.kubectl(t, address, "patch", "crd", tenantsDefinition, "--type=json", "-p", patch)
		if err != nil {
			return errors.New(out)
		}
		return nil
	})
	client := dynamicClient(t, admin(t, p.Server, address)).Resource(tenantResource(v1alpha1.ResourceTenants))
	waittest.Within(t, waitLimit, func() error { // wait until the server uses the changed definition
		_ = client.Delete(t.Context(), "later", metav1.DeleteOptions{}) // the previous attempt may have created it
		o := &unstructured.Unstructured{Object: map[string]any{
			"spec": map[string]any{"id": "later", "later": "kept", "deletionPolicy": "Delete"},
		}}
		o.SetGroupVersionKind(v1alpha1.SchemeGroupVersion.WithKind(v1alpha1.KindTenant))
		o.SetName("later")
		_, err := client.Create(t.Context(), o, metav1.CreateOptions{FieldValidation: "Strict"})
		return err
	})
}

// laterField updates the Tenant, which removes stored fields that are not in the definition. It
// then returns the value of spec.later.
func laterField(t *testing.T, client dynamic.Interface) string {
	t.Helper()
	patch := []byte(`{"metadata":{"annotations":{"example.com/touched":"` + fmt.Sprint(t.Name()) + `"}}}`)
	o, err := client.Resource(tenantResource(v1alpha1.ResourceTenants)).
		Patch(t.Context(), "later", "application/merge-patch+json",
			patch, metav1.PatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	value, _, _ := unstructured.NestedString(o.Object, "spec", "later")
	return value
}

// TestDowngrade starts a server whose release does not define a stored field. It checks that
// the server logs the installed definition, which has the field, and does not replace it. The
// field is therefore still stored. With the annotation [tenant.AllowFieldRemovalAnnotation],
// the server replaces the definition.
func TestDowngrade(t *testing.T) {
	_, current := releases(t)
	p := startControlPlane(t, current, "tenancy.yaml", "--tenancy=false")
	s := p.startServer(t, current, freeAddress(t))
	restart := func() {
		t.Helper()
		s.stop(t)
		s = p.startServer(t, current, s.address)
		s.awaitReady(t, "https://"+s.address)
	}
	s.awaitReady(t, "https://"+s.address)
	p.storeLaterField(t, s.address)
	restart()
	client := dynamicClient(t, admin(t, p.Server, s.address))
	if got := laterField(t, client); got != "kept" {
		t.Errorf("after the downgrade: spec.later is %q", got)
	}
	const reported = "Keeping a CustomResourceDefinition of a later release"
	if log, err := os.ReadFile(s.log); err != nil || !strings.Contains(string(log), reported) ||
		!strings.Contains(string(log), "spec.later") {
		t.Errorf("the log does not report the definition: %v", err)
	}
	annotation := tenant.AllowFieldRemovalAnnotation + "=true"
	if out, err := p.kubectl(t, s.address, "annotate", "crd", tenantsDefinition, annotation); err != nil {
		t.Fatal(out)
	}
	restart()
	waittest.Within(t, waitLimit, func() error {
		if got := laterField(t, client); got != "" {
			return fmt.Errorf("with the annotation: spec.later is %q", got)
		}
		return nil
	})
}

// TestUpgradeWrongOrder applies an earlier definition in a cluster with the webhook service. It
// checks that the update is rejected with a message that names the required annotation, and that no
// stored field is lost.
func TestUpgradeWrongOrder(t *testing.T) {
	_, current := releases(t)
	p := startControlPlane(t, current, "webhook.yaml", "--webhook", "--replicas=1")
	address := strings.TrimPrefix(p.URL, "https://")
	p.storeLaterField(t, address) // as if the definitions had been upgraded before the service
	client := dynamicClient(t, admin(t, p.Server, address))
	apply := []string{"apply", "--server-side", "--force-conflicts", "-f", definitionsFolder + "/tenants.yaml"}
	out, err := p.kubectl(t, address, append(apply, "-f", definitionsFolder+"/tenantquotas.yaml")...)
	for _, text := range []string{
		"lacks fields of the installed one", tenant.AllowFieldRemovalAnnotation,
		"tenantquotas.kubetenant.dev serverside-applied",
	} {
		if err == nil || !strings.Contains(out, text) {
			t.Errorf("an earlier definition: %v: %s; want %q", err, out, text)
		}
	}
	if got := laterField(t, client); got != "kept" {
		t.Errorf("spec.later is %q", got)
	}
	annotation := tenant.AllowFieldRemovalAnnotation + "=true"
	if out, err := p.kubectl(t, address, "annotate", "crd", tenantsDefinition, annotation); err != nil {
		t.Fatal(out)
	}
	if out, err := p.kubectl(t, address, apply...); err != nil {
		t.Errorf("with the annotation: %s", out)
	}
}
