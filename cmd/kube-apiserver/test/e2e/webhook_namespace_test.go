// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/kubetenant/kubetenant/internal/manifests/gateway"
	"github.com/kubetenant/kubetenant/internal/serving/state"
	"github.com/kubetenant/kubetenant/test/waittest"
)

// TestWebhookServiceNamespace checks that a tenant's service account cannot write in the namespace
// of the service, even if its roles allow everything there. For example, it cannot get a token of
// the gateway's impersonator. It also checks that an administrator can still write there, except
// the ConfigMap of the backfill.
func TestWebhookServiceNamespace(t *testing.T) {
	t.Parallel()
	s := startGateway(t)
	admin := s.client(t, "admin")
	s.namespace(t, "acme--web", "acme")
	account(t, admin, "acme--web")
	robot := client(t,
		withToken(s.config(t, "admin"), request(t, admin, "acme--web", authenticationv1.TokenRequestSpec{})))
	for _, role := range []string{"edit", "admin", "cluster-admin"} {
		bind(t, admin, "robot-"+role, role,
			rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: "acme--web", Name: "robot"})
		waittest.Until(t, func() error { // until the binding takes effect
			_, err := robot.CoreV1().Pods(serviceNamespace).List(t.Context(), metav1.ListOptions{})
			return err
		})
		for what, err := range writesOf(t, robot) {
			// The error message is not compared. RBAC does not let the first two roles write
			// the Namespace, and other policies and webhooks of the project may deny a request
			// first.
			if !apierrors.IsForbidden(err) {
				t.Errorf("%s: %s: %v", role, what, err)
			}
		}
	}
	for what, err := range writesOf(t, admin) {
		if apierrors.IsForbidden(err) != (what == "patch the backfill's ConfigMap") {
			t.Errorf("an administrator: %s: %v", what, err)
		}
	}
}

// writesOf tries several writes in the namespace of the service, and returns their errors.
func writesOf(t *testing.T, k *kubernetes.Clientset) map[string]error {
	t.Helper()
	core := k.CoreV1()
	patch := []byte(`{"data":{"swept.json":"{}"}}`)
	_, token := core.ServiceAccounts(serviceNamespace).CreateToken(t.Context(), gateway.ImpersonatorAccount,
		&authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	_, created := core.ConfigMaps(serviceNamespace).Create(t.Context(),
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "new-"}}, metav1.CreateOptions{})
	_, patched := core.ConfigMaps(serviceNamespace).Patch(t.Context(), state.BackfillName, types.MergePatchType, patch,
		metav1.PatchOptions{})
	_, labeled := core.Namespaces().Patch(t.Context(), serviceNamespace, types.MergePatchType,
		[]byte(`{"metadata":{"annotations":{"example.com/x":"y"}}}`), metav1.PatchOptions{})
	return map[string]error{
		"token of the impersonator":      token,
		"create a ConfigMap":             created,
		"patch the backfill's ConfigMap": patched,
		"annotate the Namespace":         labeled,
		"delete the Lease": k.CoordinationV1().Leases(serviceNamespace).Delete(t.Context(), "kubetenant-controller",
			metav1.DeleteOptions{}),
		"exec": core.RESTClient().Post().Namespace(serviceNamespace).Resource("pods").Name("none").SubResource("exec").
			Param("command", "id").Param("stdout", "true").Do(t.Context()).Error(),
	}
}

// TestWebhookConfiguration checks that a write of the service's Secret with an invalid
// configuration is rejected, and that the error contains the position in the file. Other Secrets
// must not be checked.
func TestWebhookConfiguration(t *testing.T) {
	t.Parallel()
	s := startServer(t, nil, "--webhook")
	admin := s.client(t, "admin")
	const configurationSecret = "kubetenant-webhook-config" // #nosec G101 -- a name
	const head = "apiVersion: kubetenant.dev/v1alpha1\nkind: TenancyConfiguration\n"
	create := func(name, text string) error {
		_, err := admin.CoreV1().Secrets(serviceNamespace).Create(t.Context(), &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			StringData: map[string]string{"tenancy.yaml": text},
		}, metav1.CreateOptions{})
		return err
	}
	if err := create(configurationSecret, head+"authorisation: {}\n"); !apierrors.IsInvalid(err) ||
		!strings.Contains(err.Error(), "tenancy.yaml:3:1: authorisation: ") {
		t.Errorf("a broken configuration: %v", err)
	}
	for _, name := range []string{configurationSecret, "other"} {
		text := head
		if name == "other" {
			text += "authorisation: {}\n"
		}
		if err := create(name, text); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	patch := fmt.Appendf(nil, `{"stringData":{"tenancy.yaml":%q}}`, head+"authorization: { mode: Off }\n")
	if _, err := admin.CoreV1().Secrets(serviceNamespace).Patch(t.Context(), configurationSecret,
		types.MergePatchType, patch, metav1.PatchOptions{}); !apierrors.IsInvalid(err) ||
		!strings.Contains(err.Error(), "tenancy.yaml:3:") {
		t.Errorf("a broken update: %v", err)
	}
}
