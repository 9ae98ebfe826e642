// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/client/clientset/versioned"
	typed "github.com/kubetenant/kubetenant/tenant/client/clientset/versioned/typed/tenant/v1alpha1"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
	"github.com/kubetenant/kubetenant/test/waittest"
)

// controllerFolder contains the example controller, which is a separate module.
const controllerFolder = "../../../../examples/controller"

// directoryNamespace is the namespace of examples/controller/rbac.yaml.
const directoryNamespace = "tenant-directory"

// directoryTest checks the ConfigMaps that the example controller writes.
type directoryTest struct {
	admin   *kubernetes.Clientset
	tenants typed.TenantInterface
	example *example
}

// TestClientsController checks that the example controller maintains a ConfigMap for each
// Tenant with only the RBAC rules of its manifest. The test changes Tenants with the generated
// clients.
func TestClientsController(t *testing.T) {
	t.Parallel()
	s := startServer(t, nil) // without the garbage collector
	s.prepare(t)
	c := s.config(t, "admin")
	clients, err := versioned.NewForConfig(c)
	if err != nil {
		t.Fatal(err)
	}
	s.mustKubectl(t, "admin", "apply", "-f", controllerFolder+"/rbac.yaml")
	d := &directoryTest{admin: client(t, c), tenants: clients.KubetenantV1alpha1().Tenants()}
	kubeconfig := s.Kubeconfig("controller")
	if out, err := s.tenant(t, "admin", "gen-kubeconfig", "--serviceaccount", "controller", "-n", directoryNamespace,
		"--out", kubeconfig); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	d.example = startExample(t, controllerFolder, ".", "--kubeconfig", kubeconfig)
	if _, err := d.tenants.Create(t.Context(), acmeInDirectory(), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	want := map[string]string{
		"tenant":     "acme",
		"contact":    "web-team@example.com",
		"namespaces": "1",
		"access":     "Open",
		"state":      "Prepared",
	}
	d.await(t, want)

	// A caller of a tenant may not read the directory.
	if out, err := s.kubectl(t, "globex", "get", "configmap", "acme", "-n", directoryNamespace); err == nil ||
		!strings.Contains(out, "tenant boundary") {
		t.Errorf("globex reads the directory: %v: %s", err, out)
	}

	d.patch(t, `{"spec":{"suspension":"Closed"}}`)
	want["access"] = "Closed"
	d.await(t, want)

	// The controller restores an entry.
	if _, err := d.admin.CoreV1().ConfigMaps(directoryNamespace).Patch(t.Context(), "acme", types.MergePatchType,
		[]byte(`{"data":{"access":"Open"}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	d.await(t, want)

	if err := d.tenants.Delete(t.Context(), "acme", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	want["state"] = "Deleting"
	d.await(t, want)

	// The annotation cancels the deletion during the deletion delay, so only the Tenant object is
	// deleted.
	d.patch(t, `{"metadata":{"annotations":{"`+tenant.TakeBackAnnotation+`":"true"}}}`)
	d.awaitDeleted(t)
	d.example.stop(t)
}

// acmeInDirectory returns a Tenant whose deletion can be canceled.
func acmeInDirectory() *v1alpha1.Tenant {
	return &v1alpha1.Tenant{
		ObjectMeta: metav1.ObjectMeta{
			Name:        "acme",
			Annotations: map[string]string{"example.com/contact": "web-team@example.com"},
		},
		Spec: v1alpha1.TenantSpec{
			ID:             "acme",
			DeletionPolicy: v1alpha1.TenantDeletionOrphan,
			DeletionDelay:  &metav1.Duration{Duration: time.Hour},
		},
	}
}

func (d *directoryTest) patch(t *testing.T, patch string) {
	t.Helper()
	if _, err := d.tenants.Patch(t.Context(), "acme", types.MergePatchType, []byte(patch),
		metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
}

func (d *directoryTest) entry(ctx context.Context) (*corev1.ConfigMap, error) {
	return d.admin.CoreV1().ConfigMaps(directoryNamespace).Get(ctx, "acme", metav1.GetOptions{})
}

// await waits until the entry of acme has the given data.
func (d *directoryTest) await(t *testing.T, want map[string]string) {
	t.Helper()
	waittest.Until(t, func() error {
		got, err := d.entry(t.Context())
		if err != nil {
			return fmt.Errorf("%w: %s", err, d.example.logged(t))
		}
		if fmt.Sprint(got.Data) != fmt.Sprint(want) {
			return fmt.Errorf("the entry is %v; want %v: %s", got.Data, want, d.example.logged(t))
		}
		return nil
	})
}

// awaitDeleted waits until neither the Tenant acme nor its entry exists.
func (d *directoryTest) awaitDeleted(t *testing.T) {
	t.Helper()
	waittest.Until(t, func() error {
		_, tenantErr := d.tenants.Get(t.Context(), "acme", metav1.GetOptions{})
		_, entryErr := d.entry(t.Context())
		if !apierrors.IsNotFound(tenantErr) || !apierrors.IsNotFound(entryErr) {
			return errors.Join(errors.New("the Tenant or its entry exists"), tenantErr, entryErr)
		}
		return nil
	})
}
