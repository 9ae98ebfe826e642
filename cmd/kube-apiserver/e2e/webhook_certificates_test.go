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
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kubetenant/kubetenant/cmd/internal/testing/localserver"
	"github.com/kubetenant/kubetenant/cmd/internal/webhook/certificates"
	"github.com/kubetenant/kubetenant/cmd/internal/webhook/manifests"
	"github.com/kubetenant/kubetenant/internal/waittest"
)

const serviceNamespace = "kubetenant-system"

// TestWebhookCertificates: the controller's certificates on a real server, with no more rights than the
// generated ones and behind the generated policy.
func TestWebhookCertificates(t *testing.T) {
	t.Parallel()
	s := start(t, t.TempDir(), "--webhook")
	admin := client(t, config(t, s, "admin"))
	files, err := manifests.Generate(manifests.Options{Config: filepath.Join(s.Dir, "tenancy.yaml"), Namespace: serviceNamespace, External: true, SelfManaged: true,
		URL: "https://127.0.0.1:1", ClientCA: filepath.Join(s.Dir, "pki", "ca.crt"), Authorizers: []string{"RBAC"}})
	if err != nil {
		t.Fatal(err)
	}
	apply(t, s, string(files["cluster/accounts.yaml"]))
	apply(t, s, "{apiVersion: v1, kind: Namespace, metadata: {name: acme--web, labels: {kubetenant.dev/tenant: acme}}}")
	// Of three that start at once one makes the authorities.
	stop := startControllers(t, s, 3)
	waittest.Until(t, func() error {
		_, err := admin.CoreV1().Secrets(serviceNamespace).Get(t.Context(), certificates.ServingName, metav1.GetOptions{})
		return err
	})
	logs := stop()
	if n := strings.Count(logs, "Made an authority"); n != 1 {
		t.Errorf("authorities were made %d times:\n%s", n, logs)
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
	// kube-apiserver trusts what is new before anybody serves it, and what is old while somebody does.
	// The service's own authority, a file's, is not the controller's: it is added by hand here.
	trustToo(t, admin, filepath.Join(s.Dir, "pki", "ca.crt"))
	uses("before the service has the new certificate")
	mount(t, admin, s)
	waittest.Until(t, func() error { return serves(s, "kubetenant-webhook."+serviceNamespace+".svc") })
	uses("with the new certificate")
	controller := client(t, config(t, s, "kubetenant-controller"))
	rotation := certificates.New(controller, serviceNamespace, []string{"127.0.0.1"})
	if err := admin.CoreV1().Secrets(serviceNamespace).Delete(t.Context(), certificates.AuthoritiesName, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := rotation.Look(t.Context()); err != nil {
		t.Fatal(err)
	}
	uses("with authorities made anew, and the certificate of the ones before")
	mount(t, admin, s)
	uses("with a certificate of the authorities made anew")
	writesNothingElse(t, controller)
}

// startControllers starts n processes. The function that it returns ends them and returns what they said.
func startControllers(t *testing.T, s *localserver.Server, n int) (stop func() string) {
	t.Helper()
	var outputs []*bytes.Buffer
	var all []*exec.Cmd
	for range n {
		out := &bytes.Buffer{}
		c := exec.CommandContext(t.Context(), binary(t, "kubetenant-webhook"), "controller", "--kubeconfig", s.Kubeconfig("kubetenant-controller"),
			"--namespace", serviceNamespace, "--metrics-listen=127.0.0.1:0", "--certificates", "--name=127.0.0.1")
		c.Stdout, c.Stderr = out, out
		// The one that local runs leads without certificates: it is told to go.
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		outputs, all = append(outputs, out), append(all, c)
	}
	endLocalController(t, s)
	return func() string {
		said := ""
		for i, c := range all {
			_ = c.Process.Signal(os.Interrupt)
			_ = c.Wait() // the log tells
			said += outputs[i].String()
		}
		return said
	}
}

// endLocalController ends the controller of the server, so that another one leads.
func endLocalController(t *testing.T, s *localserver.Server) {
	t.Helper()
	if err := process(t, s, "kubetenant-controller").Signal(syscall.SIGTERM); err != nil {
		t.Fatalf("end the controller: %v", err)
	}
}

// trustToo adds an authority to what kube-apiserver trusts, as the Secret that is mounted says.
func trustToo(t *testing.T, admin *kubernetes.Clientset, caFile string) {
	t.Helper()
	ca, err := os.ReadFile(caFile)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := admin.CoreV1().Secrets(serviceNamespace).Get(t.Context(), certificates.ServingName, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	secret.Data["ca.crt"] = append(secret.Data["ca.crt"], ca...)
	if _, err := admin.CoreV1().Secrets(serviceNamespace).Update(t.Context(), secret, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	r := certificates.New(admin, serviceNamespace, []string{"127.0.0.1"})
	if err := r.Look(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// mount puts the Secret's certificate where the service reads it, as the kubelet would.
func mount(t *testing.T, admin *kubernetes.Clientset, s *localserver.Server) {
	t.Helper()
	secret, err := admin.CoreV1().Secrets(serviceNamespace).Get(t.Context(), certificates.ServingName, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(s.Dir, "pki", "webhook")
	if err := errors.Join(os.WriteFile(path+".key", secret.Data[corev1.TLSPrivateKeyKey], 0o600), os.WriteFile(path+".crt", secret.Data[corev1.TLSCertKey], 0o600)); err != nil {
		t.Fatal(err)
	}
}

// serves reports whether the service shows a certificate of that name by now.
func serves(s *localserver.Server, name string) error {
	c, err := clientcmd.LoadFromFile(filepath.Join(s.Dir, "webhook", "webhook-authorize.kubeconfig"))
	if err != nil {
		return err
	}
	u, err := url.Parse(c.Clusters["kubetenant"].Server)
	if err != nil {
		return err
	}
	// Only what it shows is looked at.
	conn, err := tls.Dial("tcp", u.Host, &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS12}) // #nosec G402 -- loopback
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	if names := conn.ConnectionState().PeerCertificates[0].DNSNames; !slices.Contains(names, name) {
		err = fmt.Errorf("the service shows %v", names)
	}
	return err
}

// writesNothingElse: of the webhook configurations the controller may change the authorities only.
func writesNothingElse(t *testing.T, controller *kubernetes.Clientset) {
	t.Helper()
	hooks := controller.AdmissionregistrationV1().ValidatingWebhookConfigurations()
	for name, patch := range map[string]string{
		"failurePolicy":     `[{"op":"replace","path":"/webhooks/0/failurePolicy","value":"Ignore"}]`,
		"rules":             `[{"op":"replace","path":"/webhooks/0/rules/0/resources","value":["pods"]}]`,
		"namespaceSelector": `[{"op":"add","path":"/webhooks/1/namespaceSelector","value":{"matchLabels":{"a":"b"}}}]`,
		"objectSelector":    `[{"op":"add","path":"/webhooks/1/objectSelector","value":{"matchLabels":{"a":"b"}}}]`,
		"matchConditions":   `[{"op":"add","path":"/webhooks/1/matchConditions","value":[{"name":"no","expression":"false"}]}]`,
		"url":               `[{"op":"replace","path":"/webhooks/0/clientConfig/url","value":"https://127.0.0.1:2/x"}]`,
		"fewer":             `[{"op":"remove","path":"/webhooks/0"}]`,
		"timeout":           `[{"op":"replace","path":"/webhooks/0/timeoutSeconds","value":1}]`,
	} {
		if _, err := hooks.Patch(t.Context(), "kubetenant", types.JSONPatchType, []byte(patch), metav1.PatchOptions{}); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "caBundle") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := hooks.Delete(t.Context(), "kubetenant", metav1.DeleteOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("delete: %v", err)
	}
}
