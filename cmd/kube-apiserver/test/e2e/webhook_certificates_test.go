// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/kubetenant/kubetenant/authz"
	"github.com/kubetenant/kubetenant/cluster"
	webhookmanifests "github.com/kubetenant/kubetenant/internal/manifests/webhook"
	"github.com/kubetenant/kubetenant/internal/serving/certificates"
	"github.com/kubetenant/kubetenant/test/waittest"
)

const serviceNamespace = "kubetenant-system"

// TestWebhookCertificates checks that the certificates controller of the service creates and
// rotates certificates without an interruption. The controller has only the RBAC rules of the
// generated manifests, and the generated policies apply to it.
func TestWebhookCertificates(t *testing.T) {
	t.Parallel()
	s := startServer(t, nil, "--webhook")
	admin := s.client(t, "admin")
	files, err := webhookmanifests.Generate(webhookmanifests.Options{
		Config:      filepath.Join(s.Dir, "tenancy.yaml"),
		Namespace:   serviceNamespace,
		External:    true,
		SelfManaged: true,
		URL:         "https://127.0.0.1:1",
		ClientCA:    filepath.Join(s.Dir, "pki", "ca.crt"),
		Authorizers: []string{"RBAC"},
	})
	if err != nil {
		t.Fatal(err)
	}
	s.apply(t, string(files["cluster/accounts.yaml"]))
	s.apply(t, string(files["cluster/policies.yaml"]))
	s.namespace(t, "acme--web", "acme")
	// Three processes start at the same time. Only one of them may create the certificate
	// authorities.
	kubeconfig := accountKubeconfig(t, s, admin, "kubetenant-certificates")
	stop := startCertificates(t, kubeconfig, 3)
	waittest.Until(t, func() error {
		_, err := admin.CoreV1().Secrets(serviceNamespace).Get(t.Context(), certificates.ServingName, metav1.GetOptions{})
		return err
	})
	logs := stop()
	if n := strings.Count(logs, "Created a certificate authority"); n != 1 {
		t.Errorf("authorities were created %d times:\n%s", n, logs)
	}
	uses := func(when string) {
		t.Helper()
		for i := range 20 {
			c := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: fmt.Sprintf("c%d-", i)}}
			if _, err := admin.CoreV1().ConfigMaps("acme--web").Create(t.Context(), c, metav1.CreateOptions{}); err != nil {
				t.Fatalf("%s: %v", when, err)
			}
		}
	}
	// kube-apiserver must trust an authority before the service uses it, and as long as the
	// service uses it. The service still uses an authority from a file, which the controller
	// did not create, so the test adds this authority.
	trustAuthority(t, admin, filepath.Join(s.Dir, "pki", "ca.crt"))
	uses("before the service has the new certificate")
	mount(t, admin, s)
	waittest.Until(t, func() error { return serves(s, "kubetenant-webhook."+serviceNamespace+".svc") })
	uses("with the new certificate")
	account := client(t, configOf(t, kubeconfig))
	rotation := certificates.New(account, serviceNamespace, []string{"127.0.0.1"})
	if err := admin.CoreV1().Secrets(serviceNamespace).Delete(t.Context(),
		certificates.AuthoritiesName, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := rotation.Reconcile(t.Context()); err != nil {
		t.Fatal(err)
	}
	uses("with new authorities and the previous certificate")
	mount(t, admin, s)
	uses("with a certificate from the new authorities")
	writesNothingElse(t, account)
}

// accountKubeconfig writes a kubeconfig with a token of one of the service's ServiceAccounts, and
// returns its path.
func accountKubeconfig(t *testing.T, s *server, admin *kubernetes.Clientset, name string) string {
	t.Helper()
	token, err := admin.CoreV1().ServiceAccounts(serviceNamespace).CreateToken(t.Context(), name,
		&authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	c, err := clientcmd.LoadFromFile(s.Kubeconfig("admin"))
	if err != nil {
		t.Fatal(err)
	}
	for user := range c.AuthInfos {
		c.AuthInfos[user] = &clientcmdapi.AuthInfo{Token: token.Status.Token}
	}
	path := filepath.Join(t.TempDir(), name+".kubeconfig")
	if err := clientcmd.WriteToFile(*c, path); err != nil {
		t.Fatal(err)
	}
	return path
}

// startCertificates starts n processes of the certificates controller. The returned function stops
// them, and returns their output.
func startCertificates(t *testing.T, kubeconfig string, n int) (stop func() string) {
	t.Helper()
	var outputs []*bytes.Buffer
	var all []*exec.Cmd
	for range n {
		out := &bytes.Buffer{}
		c := exec.CommandContext(t.Context(), binary(t, "kubetenant-webhook"), "certificates", "--kubeconfig", kubeconfig,
			"--namespace", serviceNamespace, "--metrics-listen=127.0.0.1:0", "--name=127.0.0.1")
		c.Stdout, c.Stderr = out, out
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		outputs, all = append(outputs, out), append(all, c)
	}
	return func() string {
		output := ""
		for i, c := range all {
			_ = c.Process.Signal(os.Interrupt)
			_ = c.Wait() // the output contains the error
			output += outputs[i].String()
		}
		return output
	}
}

// trustAuthority adds an authority to the authorities in the serving Secret. The controller copies
// these to the webhook configurations, so kube-apiserver trusts them.
func trustAuthority(t *testing.T, admin *kubernetes.Clientset, caFile string) {
	t.Helper()
	ca := readFile(t, caFile)
	secret, err := admin.CoreV1().Secrets(serviceNamespace).Get(t.Context(), certificates.ServingName, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	secret.Data["ca.crt"] = append(secret.Data["ca.crt"], ca...)
	if _, err := admin.CoreV1().Secrets(serviceNamespace).Update(t.Context(), secret, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	r := certificates.New(admin, serviceNamespace, []string{"127.0.0.1"})
	if err := r.Reconcile(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// mount writes the certificate and key of the serving Secret to the files that the service reads,
// as the kubelet does.
func mount(t *testing.T, admin *kubernetes.Clientset, s *server) {
	t.Helper()
	secret, err := admin.CoreV1().Secrets(serviceNamespace).Get(t.Context(), certificates.ServingName, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(s.Dir, "pki", "webhook")
	if err := errors.Join(os.WriteFile(path+".key", secret.Data[corev1.TLSPrivateKeyKey], 0o600),
		os.WriteFile(path+".crt", secret.Data[corev1.TLSCertKey], 0o600)); err != nil {
		t.Fatal(err)
	}
}

// serves returns an error unless the service presents a certificate with the given DNS name.
func serves(s *server, name string) error {
	c, err := clientcmd.LoadFromFile(filepath.Join(s.Dir, "webhook", "webhook-authorize.kubeconfig"))
	if err != nil {
		return err
	}
	u, err := url.Parse(c.Clusters["kubetenant"].Server)
	if err != nil {
		return err
	}
	// The connection is used only to read the certificate of the service.
	conn, err := tls.Dial("tcp", u.Host,
		&tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS12}) // #nosec G402 -- loopback
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	if names := conn.ConnectionState().PeerCertificates[0].DNSNames; !slices.Contains(names, name) {
		err = fmt.Errorf("the service shows %v", names)
	}
	return err
}

// writesNothingElse checks that the account can change only the field caBundle of the webhook
// configurations. It also checks that the account cannot delete the webhook configurations, or
// the policy that enforces this.
func writesNothingElse(t *testing.T, account *kubernetes.Clientset) {
	t.Helper()
	policies := account.AdmissionregistrationV1().ValidatingAdmissionPolicies()
	if err := policies.Delete(t.Context(), "certificates.kubetenant.dev",
		metav1.DeleteOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("delete the policy: %v", err)
	}
	hooks := account.AdmissionregistrationV1().ValidatingWebhookConfigurations()
	for name, patch := range map[string]string{
		"failurePolicy":     `[{"op":"replace","path":"/webhooks/0/failurePolicy","value":"Ignore"}]`,
		"rules":             `[{"op":"replace","path":"/webhooks/0/rules/0/resources","value":["pods"]}]`,
		"namespaceSelector": `[{"op":"add","path":"/webhooks/1/namespaceSelector","value":{"matchLabels":{"a":"b"}}}]`,
		"objectSelector":    `[{"op":"add","path":"/webhooks/1/objectSelector","value":{"matchLabels":{"a":"b"}}}]`,
		"matchConditions": `[{"op":"add","path":"/webhooks/1/matchConditions","value":[{"name":"no",` +
			`"expression":"false"}]}]`,
		"url": `[{"op":"replace","path":"/webhooks/0/clientConfig/url","value":"https://127.0.0.1:2/x"}]`,
		"owner reference": `[{"op":"add","path":"/metadata/ownerReferences","value":[{"apiVersion":"v1","kind":"Node",` +
			`"name":"none","uid":"u"}]}]`,
		"finalizer":       `[{"op":"add","path":"/metadata/finalizers","value":["example.com/f"]}]`,
		"label":           `[{"op":"add","path":"/metadata/labels","value":{"a":"b"}}]`,
		"removed webhook": `[{"op":"remove","path":"/webhooks/0"}]`,
		"timeout":         `[{"op":"replace","path":"/webhooks/0/timeoutSeconds","value":1}]`,
	} {
		if _, err := hooks.Patch(t.Context(), "kubetenant", types.JSONPatchType,
			[]byte(patch), metav1.PatchOptions{}); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "caBundle") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := hooks.Delete(t.Context(), "kubetenant", metav1.DeleteOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("delete: %v", err)
	}
}

// TestWebhookControllerAccount checks that the controller's account can add the tenant label to
// objects, but cannot change them in any other way, or create or delete Secrets.
func TestWebhookControllerAccount(t *testing.T) {
	t.Parallel()
	s := startServer(t, nil, "--webhook")
	admin := s.client(t, "admin")
	s.apply(t, `{apiVersion: v1, kind: Namespace, metadata: {name: shop}}
---
{apiVersion: apps/v1, kind: Deployment, metadata: {name: d, namespace: shop, labels: {app: d}, annotations: {n: "1"}},
  spec: {selector: {matchLabels: {a: b}},
template: {metadata: {labels: {a: b}}, spec: {containers: [{name: c, image: i}]}}}}
---
{apiVersion: v1, kind: Secret, metadata: {name: s, namespace: shop}, data: {k: dg==}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: kubetenant-webhook-client-ca, namespace: kubetenant-system},
  data: {ca.crt: ""}}
---
{apiVersion: coordination.k8s.io/v1, kind: Lease,
  metadata: {name: kubetenant-certificates, namespace: kubetenant-system}, spec: {holderIdentity: somebody}}`)
	account := s.client(t, "kubetenant-controller")
	patch := func(path, kind, body string) error {
		return account.CoreV1().RESTClient().Patch(types.PatchType(kind)).AbsPath(path).Body([]byte(body)).
			Do(t.Context()).Error()
	}
	const deployment, secret, merge = "/apis/apps/v1/namespaces/shop/deployments/d", "/api/v1/namespaces/shop/secrets/s",
		"application/merge-patch+json"
	for name, c := range map[string]struct{ path, body string }{
		"image":         {deployment, `{"spec":{"template":{"spec":{"containers":[{"name":"c","image":"evil"}]}}}}`},
		"replicas":      {deployment, `{"spec":{"replicas":9}}`},
		"changed label": {deployment, `{"metadata":{"labels":{"app":"x"}}}`},
		"added label":   {deployment, `{"metadata":{"labels":{"x":"y"}}}`},
		"removed label": {deployment, `{"metadata":{"labels":{"app":null}}}`},
		"annotation":    {deployment, `{"metadata":{"annotations":{"n":"2"}}}`},
		"finalizer":     {deployment, `{"metadata":{"finalizers":["example.com/f"]}}`},
		"owner reference": {
			deployment, `{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"Secret","name":"s","uid":"u"}]}}`,
		},
		"data":                      {secret, `{"data":{"k":"eA=="}}`},
		"Deployment of the service": {"/apis/apps/v1/namespaces/kubetenant-system/deployments/none", `{}`},
		"status":                    {deployment + "/status", `{"status":{"replicas":1}}`},
		"scale":                     {deployment + "/scale", `{"spec":{"replicas":1}}`},
		"ClusterRole":               {"/apis/rbac.authorization.k8s.io/v1/clusterroles/view", `{"rules":[]}`},
		"Node":                      {"/api/v1/nodes/n", `{"metadata":{"labels":{"a":"b"}}}`},
		"Namespace label":           {"/api/v1/namespaces/shop", `{"metadata":{"labels":{"kubetenant.dev/tenant":"acme"}}}`},
		"ConfigMap of the client authority": {
			"/api/v1/namespaces/kubetenant-system/configmaps/kubetenant-webhook-client-ca", `{"data":{"ca.crt":"x"}}`,
		},
		"Lease of another component": {
			"/apis/coordination.k8s.io/v1/namespaces/kubetenant-system/leases/kubetenant-certificates",
			`{"spec":{"holderIdentity":"x"}}`,
		},
		"policy of the controller": {
			"/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies/controller.kubetenant.dev",
			`{"spec":{"failurePolicy":"Ignore"}}`,
		},
		"binding of the controller's policy": {
			"/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings/controller.kubetenant.dev",
			`{"spec":{"validationActions":["Warn"]}}`,
		},
		"webhook configuration": {
			"/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/kubetenant", `{"webhooks":[]}`,
		},
		"CustomResourceDefinition": {
			"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/accessgrants.kubetenant.dev",
			`{"metadata":{"labels":{"a":"b"}}}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			if err := patch(c.path, merge, c.body); !apierrors.IsForbidden(err) && !apierrors.IsNotFound(err) {
				t.Errorf("%v", err)
			}
		})
	}
	for name, err := range map[string]error{
		"delete": account.CoreV1().Secrets("shop").Delete(t.Context(), "s", metav1.DeleteOptions{}),
		"create": func() error {
			_, err := account.CoreV1().Secrets("shop").Create(t.Context(),
				&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "x"}}, metav1.CreateOptions{})
			return err
		}(),
	} {
		t.Run(name, func(t *testing.T) {
			if !apierrors.IsForbidden(err) {
				t.Errorf("%v", err)
			}
		})
	}
	// When a namespace is assigned to a tenant, the controller adds the tenant label to all objects
	// in it.
	if _, err := admin.CoreV1().Namespaces().Patch(t.Context(), "shop", types.MergePatchType,
		[]byte(`{"metadata":{"labels":{"kubetenant.dev/tenant":"acme"}}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	waittest.Until(t, func() error {
		d, err := admin.AppsV1().Deployments("shop").Get(t.Context(), "d", metav1.GetOptions{})
		if err == nil && d.Labels["kubetenant.dev/tenant"] != "acme" {
			err = errors.New("the Deployment has no label yet")
		}
		return err
	})
	sweepable := cluster.LabeledResources(admin.Discovery(), func(schema.GroupResource) authz.Scope {
		return authz.ScopeUnknown
	})
	resources, err := sweepable()
	if err != nil || len(resources) < 30 {
		t.Fatalf("%d resources, %v", len(resources), err)
	}
	for _, r := range resources { // all resources that the controller labels
		review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
			ResourceAttributes: &authorizationv1.ResourceAttributes{
				Namespace: "shop",
				Verb:      "patch",
				Group:     r.Group,
				Version:   r.Version,
				Resource:  r.Resource,
			},
		}}
		result, err := account.AuthorizationV1().
			SelfSubjectAccessReviews().
			Create(t.Context(), review, metav1.CreateOptions{})
		if err != nil || !result.Status.Allowed {
			t.Errorf("%s cannot be labelled: %v", r, err)
		}
	}
}
