// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/kubetenant/kubetenant/test/waittest"
)

// faults contains an unmodified server with the webhook service, and clients.
type faults struct {
	*server
	admin, acme *kubernetes.Clientset
	url         string // URL of the service in kube-apiserver's configuration
}

// TestWebhookFaults checks the webhook service during faults. The order of the faults matters,
// because both replicas are killed at the end.
func TestWebhookFaults(t *testing.T) {
	t.Parallel()
	s := startServer(t, nil, "--webhook", "--replicas", "2")
	f := &faults{server: s, admin: s.client(t, "admin"), acme: s.client(t, "acme")}
	f.prepare(t)
	for _, step := range []struct {
		name string
		run  func(*testing.T, *faults)
	}{
		{"idle connections", idleConnections},
		{"body of 1 GB", hugeBody},
		{"the certificate is rotated under load", rotatedUnderLoad},
		{"invalid configuration", garbageConfiguration},
		{"one replica is killed under load", oneReplicaKilled},
		{"both replicas are killed", bothReplicasKilled},
	} {
		if !t.Run(step.name, func(t *testing.T) { step.run(t, f) }) {
			break
		}
	}
	t.Run("all processes are restarted", func(t *testing.T) {
		s.restart(t, "--webhook", "--replicas", "2")
		f.acme = f.client(t, "acme")
		if right, wrong, failed := f.probe(t.Context(), 20); right != 20 || wrong+failed != 0 {
			t.Errorf("%d right answers, %d wrong, %d failed", right, wrong, failed)
		}
	})
}

// idleConnections checks that other requests succeed while 10,000 connections are idle. Every tenth
// connection has begun a TLS handshake.
func idleConnections(t *testing.T, f *faults) {
	const idle = 10_000
	address, _ := f.replica(t, 1)
	connections := make([]net.Conn, 0, idle)
	defer func() {
		for _, c := range connections {
			_ = c.Close()
		}
	}()
	for i := range idle {
		c, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatalf("after %d connections: %v", len(connections), err)
		}
		connections = append(connections, c)
		if i%10 == 0 { // the first bytes of a TLS handshake
			if _, err := c.Write([]byte{0x16, 0x03, 0x01}); err != nil {
				t.Fatal(err)
			}
		}
	}
	c := f.serviceClient(t)
	for range 100 {
		if err := denied(t.Context(), c, "https://"+address); err != nil {
			t.Fatalf("meanwhile: %v", err)
		}
	}
	if right, wrong, failed := f.probe(t.Context(), 20); right != 20 {
		t.Errorf("meanwhile through kube-apiserver: %d right, %d wrong, %d failed", right, wrong, failed)
	}
}

// hugeBody checks that a body of 1 GB is rejected after at most 64 MiB were sent, and does not use
// much memory.
func hugeBody(t *testing.T, f *faults) {
	const size = 1 << 30
	address, process := f.replica(t, 1)
	before := memoryKiB(t, process.Pid, "VmRSS")
	c := f.serviceClient(t)
	for _, path := range []string{"/authenticate", "/authorize", "/admit/mutate", "/admit/validate"} {
		body := &zeros{}
		body.left.Store(size)
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://"+address+path, body)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := c.Do(r)
		if err == nil { // the response may be lost, because the server closes the connection while the body is sent
			_ = resp.Body.Close()
			if resp.StatusCode != http.StatusRequestEntityTooLarge {
				t.Errorf("%s: %d", path, resp.StatusCode)
			}
		}
		if sent := size - body.left.Load(); sent > 64<<20 {
			t.Errorf("%s: the service read %d bytes", path, sent)
		}
	}
	if grown := memoryKiB(t, process.Pid, "VmRSS") - before; grown > 128<<10 {
		t.Errorf("the memory grew by %d KiB", grown)
	}
}

// rotatedUnderLoad checks that none of 100,000 requests fails while the serving certificate is
// replaced repeatedly, neither on open connections nor on new connections.
func rotatedUnderLoad(t *testing.T, f *faults) {
	const requests = 100_000
	ca, err := tls.LoadX509KeyPair(filepath.Join(f.Dir, "pki", "ca.crt"), filepath.Join(f.Dir, "pki", "ca.key"))
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	rotations := 0
	wg.Go(func() {
		for ctx.Err() == nil {
			if err := replaceCertificate(f.Dir, &ca); err != nil {
				t.Error(err)
				return
			}
			rotations++
			select {
			case <-ctx.Done():
			case <-time.After(500 * time.Millisecond):
			}
		}
	})
	c := f.serviceClient(t)
	var served sync.Map // serial numbers of the presented certificates
	var count atomic.Int64
	failed, last := load(t.Context(), requests, func(ctx context.Context) error {
		if n := count.Add(1); n%100 == 0 { // to cause new handshakes continuously
			c.CloseIdleConnections()
		}
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, f.url+"/authorize", strings.NewReader(foreignReview))
		if err != nil {
			return err
		}
		resp, err := c.Do(r)
		if err != nil {
			return err
		}
		defer func() { _ = resp.Body.Close() }()
		served.Store(resp.TLS.PeerCertificates[0].SerialNumber.String(), true)
		var review struct{ Status struct{ Denied bool } }
		if err := json.NewDecoder(resp.Body).Decode(&review); err != nil {
			return err
		}
		if !review.Status.Denied {
			return errors.New("not denied")
		}
		_, err = io.Copy(io.Discard, resp.Body)
		return err
	})
	stop()
	wg.Wait()
	seen := 0
	served.Range(func(any, any) bool { seen++; return true })
	t.Logf("%d requests, %d failed, %d certificates written, %d seen", requests, failed, rotations, seen)
	if failed != 0 {
		t.Errorf("%d of %d requests failed: %v", failed, requests, last)
	}
	if seen < 3 {
		t.Errorf("%d certificates were served", seen)
	}
}

// replaceCertificate replaces the serving certificate of the service in dir.
func replaceCertificate(dir string, ca *tls.Certificate) error {
	pair, err := sign(&x509.Certificate{
		NotBefore:   time.Now().Add(-time.Minute),
		NotAfter:    time.Now().Add(time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}, ca)
	if err != nil {
		return err
	}
	certificate, key, err := encode(pair)
	if err != nil {
		return err
	}
	path := filepath.Join(dir, "pki", "webhook")
	return errors.Join(os.WriteFile(path+".key", key, 0o600), os.WriteFile(path+".crt", certificate, 0o600))
}

// garbageConfiguration checks that the service rejects an invalid configuration and logs this, and
// that the last valid configuration still applies.
func garbageConfiguration(t *testing.T, f *faults) {
	path := filepath.Join(f.Dir, "tenancy.yaml")
	good := readFile(t, path)
	for i, garbage := range []string{
		"", "\x00\x01", "apiVersion: kubetenant.dev/v1alpha1\nkind: TenancyConfiguration\nauthentication: {sources: [{}]}\n",
		"kind: Secret\n",
	} {
		writeFile(t, path, garbage)
		waittest.Until(t, func() error {
			log, err := os.ReadFile(filepath.Join(f.Dir, "kubetenant-webhook-1.log"))
			if n := bytes.Count(log, []byte("Rejected a new version of a file")); err == nil && n <= i {
				err = fmt.Errorf("the log reports %d rejected versions", n)
			}
			return err
		})
		if right, wrong, failed := f.probe(t.Context(), 10); right != 10 {
			t.Errorf("with %.20q: %d right, %d wrong, %d failed", garbage, right, wrong, failed)
		}
	}
	writeFile(t, path, good)
}

// oneReplicaKilled checks that no request under load is wrongly allowed, and that at most two
// requests of each client fail. A request may fail if the killed replica was processing it, because
// kube-apiserver does not retry a review whose connection ended. kube-apiserver may also send
// another review before it detects the end of the connection. On an idle machine, no request fails.
func oneReplicaKilled(t *testing.T, f *faults) {
	const requests = 4_000
	_, process := f.replica(t, 1)
	timer := time.AfterFunc(time.Second, func() { _ = process.Signal(syscall.SIGKILL) })
	defer timer.Stop()
	acme := f.config(t, "acme")
	acme.QPS = -1
	many := &faults{acme: client(t, acme)}
	var wrong atomic.Int64
	begun := time.Now()
	failed, last := load(t.Context(), requests, func(ctx context.Context) error {
		right, bad, _ := many.probe(ctx, 2)
		wrong.Add(int64(bad))
		if right != 2 {
			return fmt.Errorf("%d of 2 right answers", right)
		}
		return nil
	})
	t.Logf("%d requests in %v, %d failed, %d wrong", 2*requests, time.Since(begun), failed, wrong.Load())
	if failed > 2*loadClients || wrong.Load() != 0 {
		t.Errorf("%d failed, %d wrong: %v", failed, wrong.Load(), last)
	}
	if time.Since(begun) < 1500*time.Millisecond {
		t.Error("the load ended before the replica was killed")
	}
}

// bothReplicasKilled checks that a tenant's requests are denied, that the control plane works, and
// that the policies still apply.
func bothReplicasKilled(t *testing.T, f *faults) {
	_, process := f.replica(t, 2)
	if err := process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	waittest.Until(t, func() error {
		if err := denied(t.Context(), f.serviceClient(t), f.url); err == nil {
			return errors.New("the service still responds")
		}
		return nil
	})
	for i := range 4 {
		namespace := []string{"acme--web", "globex--web"}[i%2]
		if _, err := f.acme.CoreV1().Secrets(namespace).List(t.Context(), metav1.ListOptions{}); !refused(err) {
			t.Errorf("a tenant's request for %s: %v", namespace, err)
		}
	}
	anonymous := rest.AnonymousClientConfig(f.config(t, "acme"))
	if _, err := client(t, anonymous).Discovery().RESTClient().Get().AbsPath("/readyz").DoRaw(t.Context()); err != nil {
		t.Errorf("an anonymous probe: %v", err)
	}
	f.controlPlaneWorks(t)
	f.policiesApply(t)
}

// refused reports whether kube-apiserver denied the request. The status is 500 if kube-apiserver
// cannot reach an authorization webhook (failurePolicy Deny).
func refused(err error) bool { return apierrors.IsForbidden(err) || apierrors.IsInternalError(err) }

func (f *faults) controlPlaneWorks(t *testing.T) {
	ctx := t.Context()
	node := f.clientAs(t, "system:node:n1", "system:nodes", "system:authenticated")
	if _, err := node.CoreV1().Nodes().Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}},
		metav1.CreateOptions{}); err != nil {
		t.Errorf("a kubelet registers: %v", err)
	}
	n, err := node.CoreV1().Nodes().Get(ctx, "n1", metav1.GetOptions{})
	if err == nil {
		n.Status.Phase = corev1.NodeRunning
		_, err = node.CoreV1().Nodes().UpdateStatus(ctx, n, metav1.UpdateOptions{})
	}
	if err != nil {
		t.Errorf("a kubelet's status: %v", err)
	}
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}
	if _, err := node.CoordinationV1().Leases("kube-node-lease").Create(ctx, lease, metav1.CreateOptions{}); err != nil {
		t.Errorf("a kubelet's lease: %v", err)
	}
	for _, name := range []string{"system:kube-controller-manager", "system:kube-scheduler"} {
		c := f.clientAs(t, name, "system:authenticated")
		lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: strings.TrimPrefix(name, "system:")}}
		if _, err := c.CoordinationV1().Leases("kube-system").Create(ctx, lease, metav1.CreateOptions{}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	account := f.clientAs(t, "system:serviceaccount:kube-system:namespace-controller",
		"system:serviceaccounts", "system:authenticated")
	if _, err := account.CoreV1().ConfigMaps("kube-system").Create(ctx,
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "c"}}, metav1.CreateOptions{}); err != nil {
		t.Errorf("a controller of kube-system: %v", err)
	}
}

const daemonSet = `{"apiVersion":"apps/v1","kind":"DaemonSet",
"metadata":{"name":"d","labels":{"kubetenant.dev/tenant":"acme"}},"spec":{"selector":{"matchLabels":{"a":"b"}},
"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"x"}]}}}}`

// policiesApply checks that the policies still apply after an administrator has deleted the webhook
// configurations to restore the cluster.
func (f *faults) policiesApply(t *testing.T) {
	ctx := t.Context()
	create := func(c kubernetes.Interface, path, body string) error {
		return c.CoreV1().RESTClient().Post().AbsPath(path).Body([]byte(body)).Do(ctx).Error()
	}
	const daemonSets = "/apis/apps/v1/namespaces/acme--web/daemonsets"
	if err := create(f.admin, daemonSets, daemonSet); err == nil {
		t.Error("a DaemonSet was created in a tenant's namespace while the webhooks fail")
	}
	hooks := f.admin.AdmissionregistrationV1()
	if err := errors.Join(hooks.MutatingWebhookConfigurations().Delete(ctx, "kubetenant", metav1.DeleteOptions{}),
		hooks.ValidatingWebhookConfigurations().Delete(ctx, "kubetenant", metav1.DeleteOptions{})); err != nil {
		t.Fatal(err)
	}
	manager := f.clientAs(t, "system:kube-controller-manager", "system:authenticated")
	labelled := func(namespace, label string) string {
		return fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"l","namespace":%q,`+
			`"labels":{"kubetenant.dev/tenant":%q}}}`,
			namespace, label)
	}
	waittest.Until(t, func() error { // until kube-apiserver no longer calls the webhooks
		for namespace, body := range map[string]string{
			"kube-system": `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"p"}}`,
			"acme--web":   strings.Replace(labelled("acme--web", "acme"), `"l"`, `"p"`, 1),
		} {
			err := create(f.admin, "/api/v1/namespaces/"+namespace+"/configmaps", body)
			if err != nil && !apierrors.IsAlreadyExists(err) {
				return err
			}
		}
		return nil
	})
	for name, c := range map[string]struct {
		client     kubernetes.Interface
		path, body string
		message    string
	}{
		"DaemonSet in a tenant's namespace": {
			f.admin, daemonSets, daemonSet, "may not be created or updated in a tenant's namespace",
		},
		"DaemonSet by the controller manager": {
			manager, daemonSets, daemonSet, "may not be created or updated in a tenant's namespace",
		},
		"label of another tenant": {
			f.admin, "/api/v1/namespaces/acme--web/configmaps", labelled("acme--web", "globex"), "is immutable",
		},
		"missing label": {
			f.admin,
			"/api/v1/namespaces/acme--web/configmaps",
			`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"l"}}`,
			"is immutable",
		},
		"tenant label in kube-system": {
			f.admin,
			"/api/v1/namespaces/kube-system/configmaps",
			labelled("kube-system", "acme"),
			"may only be set in a tenant's namespaces",
		},
		"Node by a user": {
			f.clientAs(t, "alice", "system:authenticated"),
			"/api/v1/nodes",
			`{"apiVersion":"v1","kind":"Node","metadata":{"name":"n2"}}`,
			"",
		},
		"Node by a tenant's service account": {
			f.clientAs(t, "system:serviceaccount:acme--web:default", "system:serviceaccounts", "system:authenticated"),
			"/api/v1/nodes",
			`{"apiVersion":"v1","kind":"Node","metadata":{"name":"n3"}}`,
			"",
		},
	} {
		err := create(c.client, c.path, c.body)
		if !refused(err) || !strings.Contains(err.Error(), c.message) {
			t.Errorf("%s: %v", name, err)
		}
	}
	patch := []byte(`{"metadata":{"labels":{"kubetenant.dev/tenant":"globex"}}}`)
	for _, subresource := range [][]string{nil, {"status"}} {
		_, err := f.admin.CoreV1().Namespaces().Patch(ctx, "acme--web", "application/merge-patch+json", patch,
			metav1.PatchOptions{}, subresource...)
		if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "is immutable") {
			t.Errorf("the owner of a namespace was changed through %v: %v", subresource, err)
		}
	}
	if err := create(f.admin, "/api/v1/namespaces/acme--web/configmaps", labelled("acme--web", "acme")); err != nil {
		t.Errorf("a valid ConfigMap is rejected: %v", err)
	}
}
