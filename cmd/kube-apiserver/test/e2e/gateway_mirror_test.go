// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/test/waittest"
)

// mirrorTenancy is the configuration of a gateway in front of two clusters. kubetenant records
// in each Mirror the user that writes it. Mirror is the custom resource of examples/mirror. The
// example controller belongs to the system tenant.
const mirrorTenancy = certificatesConfig + `  - { name: tokens, tokenFile: { path: tokens.csv, defaultTenant: "" } }
admission: { binding: { kinds: [ { group: example.com, kind: Mirror } ] } }
gateway:
  clusters:
  - { name: local, root: true, tenants: ["*", system], reader: { kubeConfigFile: kubetenant-gateway-reader.kubeconfig },
      impersonator: { kubeConfigFile: kubetenant-gateway-impersonator.kubeconfig } }
  - { name: local-2, tenants: ["*", system], reader: { kubeConfigFile: local-2/kubetenant-gateway-reader.kubeconfig },
      impersonator: { kubeConfigFile: local-2/kubetenant-gateway-impersonator.kubeconfig } }
`

// TestGatewayMirror checks that the example controller of examples/mirror, which impersonates
// the owner of each Mirror, copies a ConfigMap to a second cluster. It also checks that the
// copy fails if the owner may not write in the second cluster.
func TestGatewayMirror(t *testing.T) {
	t.Parallel()
	s := startServer(t, map[string]string{
		"tenancy.yaml": mirrorTenancy,
		"tokens.csv":   "mirror-token,mirror,u1,,,system\nalice-token,alice,u2,,,acme\nbob-token,bob,u3,,,globex\n",
	}, "--gateway", "--clusters", "2")
	s.prepare(t)
	for _, context := range []string{"admin", "admin@local-2"} {
		for _, file := range []string{"manifests/tenants.yaml", "mirror/cluster.yaml"} {
			s.mustKubectl(t, "admin", "--context", context, "apply", "-f", "../../../../examples/"+file)
		}
	}
	s.mustKubectl(t, "admin", "wait", "--for=condition=Established", "--timeout=60s", "crd/mirrors.example.com")
	log := runMirror(t, s)
	as := func(token, cluster string) *rest.Config {
		c := withToken(contextOf(t, s, strings.TrimSuffix("acme@"+cluster, "@")), token)
		return c
	}
	alice, local2 := client(t, as("alice-token", "")), client(t, as("alice-token", "local-2"))
	waittest.Until(t, func() error {
		_, err := local2.CoreV1().Namespaces().Create(t.Context(),
			&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "acme--web"}}, metav1.CreateOptions{})
		return err
	})
	mirror := func(token, namespace, name string) {
		d := dynamicClient(t, as(token, ""))
		m := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "example.com/v1",
			"kind":       "Mirror",
			"metadata":   map[string]any{"name": name},
			"spec":       map[string]any{"configMap": name, "clusters": []any{"local-2"}},
		}}
		waittest.Until(t, func() error {
			_, err := d.Resource(mirrorsResource).Namespace(namespace).Create(t.Context(), m, metav1.CreateOptions{})
			return err
		})
	}
	if _, err := alice.CoreV1().ConfigMaps("acme--web").Create(t.Context(),
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "settings"}, Data: map[string]string{"a": "b"}},
		metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	mirror("alice-token", "acme--web", "settings")
	waittest.Until(t, func() error {
		got, err := local2.CoreV1().ConfigMaps("acme--web").Get(t.Context(), "settings", metav1.GetOptions{})
		if err != nil {
			logText, _ := os.ReadFile(log)
			return fmt.Errorf("%w: %s", err, logText)
		}
		if got.Data["a"] != "b" || !strings.Contains(got.Annotations[tenant.CreatorAnnotation], "alice") ||
			got.Labels[tenant.Label] != "acme" {
			t.Errorf("the copy has the data %v and the annotations %v", got.Data, got.Annotations)
		}
		return nil
	})
	// The controller cannot copy bob's ConfigMap, because bob may not write in the second
	// cluster.
	bob := client(t, as("bob-token", ""))
	if _, err := bob.CoreV1().ConfigMaps("globex--shop").Create(t.Context(),
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "settings"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	mirror("bob-token", "globex--shop", "settings") // the namespace does not exist in the other cluster
	objects := dynamicClient(t, as("bob-token", ""))
	waittest.Until(t, func() error {
		m, err := objects.Resource(mirrorsResource).Namespace("globex--shop").Get(t.Context(),
			"settings", metav1.GetOptions{})
		if err != nil {
			return err
		}
		if logText, _, _ := unstructured.NestedString(m.Object, "status", "message"); !strings.Contains(logText,
			"write it to local-2") {
			return errors.New(logText)
		}
		return nil
	})
}

var mirrorsResource = schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "mirrors"}

// runMirror runs the example controller until the test ends. It returns the path of the
// controller's log.
func runMirror(t *testing.T, s *server) (log string) {
	t.Helper()
	gateway := s.config(t, "acme")
	c := clientcmdapi.NewConfig()
	c.Clusters["c"] = &clientcmdapi.Cluster{Server: gateway.Host, CertificateAuthorityData: gateway.CAData}
	c.AuthInfos["u"] = &clientcmdapi.AuthInfo{Token: "mirror-token"}
	c.Contexts["c"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u"}
	c.CurrentContext = "c"
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*c, path); err != nil {
		t.Fatal(err)
	}
	return startExample(t, "../../../../examples", "./mirror", "--kubeconfig", path).log
}
