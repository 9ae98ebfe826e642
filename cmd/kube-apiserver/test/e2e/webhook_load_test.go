// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kubetenant/kubetenant/test/waittest"
)

func (f *faults) prepare(t *testing.T) {
	t.Helper()
	for _, tenant := range []string{"acme", "globex"} {
		f.namespace(t, tenant+"--web", tenant)
	}
	f.apply(t, `{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding, metadata: {name: everybody},
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin},
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: Group, name: "system:authenticated"}]}`)
	data := f.read(t, "webhook/webhook-authorize.kubeconfig")
	c, err := clientcmd.Load([]byte(data))
	if err != nil {
		t.Fatal(err)
	}
	f.url = strings.TrimSuffix(c.Clusters["kubetenant"].Server, "/authorize")
	waittest.Until(t, func() error {
		if right, _, _ := f.probe(t.Context(), 1); right != 1 {
			return errors.New("kube-apiserver does not return the expected result yet")
		}
		return nil
	})
}

// probe sends requests of acme to kube-apiserver, alternately for its own namespace and for another
// tenant's namespace. It counts expected results, wrongly allowed requests, and other failures.
func (f *faults) probe(ctx context.Context, times int) (right, wrong, failed int) {
	for i := range times {
		namespace, want := "acme--web", true
		if i%2 == 1 {
			namespace, want = "globex--web", false
		}
		_, err := f.acme.CoreV1().ConfigMaps(namespace).List(ctx, metav1.ListOptions{})
		switch {
		case err == nil && want, apierrors.IsForbidden(err) && !want && strings.Contains(err.Error(), "tenant boundary"):
			right++
		case err == nil:
			wrong++
		default:
			failed++
		}
	}
	return right, wrong, failed
}

// serviceClient returns an HTTP client that calls the service with kube-apiserver's client certificate.
func (f *faults) serviceClient(t *testing.T) *http.Client {
	t.Helper()
	pair, err := tls.LoadX509KeyPair(filepath.Join(f.Dir, "pki", "webhook-client.crt"),
		filepath.Join(f.Dir, "pki", "webhook-client.key"))
	if err != nil {
		t.Fatal(err)
	}
	ca := f.read(t, "pki/ca.crt")
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM([]byte(ca))
	return &http.Client{
		Timeout: 30 * time.Second,
		Transport: &http.Transport{
			MaxIdleConnsPerHost: 64,
			TLSClientConfig: &tls.Config{
				RootCAs:      roots,
				Certificates: []tls.Certificate{pair},
				MinVersion:   tls.VersionTLS12,
			},
		},
	}
}

const foreignReview = `{"apiVersion":"authorization.k8s.io/v1","kind":"SubjectAccessReview",
"spec":{"user":"admin","groups":["tenant:acme"],
"extra":{"kubetenant.dev/tenant":["acme"]},
"resourceAttributes":{"verb":"list","version":"v1","resource":"secrets","namespace":"globex--web"}}}`

// denied sends a SubjectAccessReview that the service must deny, and returns an error unless it is
// denied.
func denied(ctx context.Context, c *http.Client, base string) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, base+"/authorize", strings.NewReader(foreignReview))
	if err != nil {
		return err
	}
	resp, err := c.Do(r)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err == nil &&
		(resp.StatusCode != http.StatusOK || !bytes.Contains(body, []byte(`"denied":true,"reason":"tenant boundary`))) {
		err = fmt.Errorf("%d: %s", resp.StatusCode, body)
	}
	return err
}

// replica returns a replica's process, and its address from its log.
func (f *faults) replica(t *testing.T, n int) (address string, p *os.Process) {
	t.Helper()
	name := fmt.Sprintf("kubetenant-webhook-%d", n)
	log := f.read(t, name+".log")
	_, rest, _ := strings.Cut(log, `webhooks="`)
	address, _, _ = strings.Cut(rest, `"`)
	return address, f.process(t, name)
}

// zeros is a request body that consists of spaces.
type zeros struct{ left atomic.Int64 }

func (z *zeros) Read(b []byte) (int, error) {
	n := min(int64(len(b)), z.left.Load())
	if n <= 0 {
		return 0, io.EOF
	}
	z.left.Add(-n)
	for i := range b[:n] {
		b[i] = ' '
	}
	return int(n), nil
}

// loadClients is the number of goroutines that send requests concurrently.
const loadClients = 32

// load calls send n times from loadClients goroutines. It returns how many calls failed, and the
// last error.
func load(ctx context.Context, n int64, send func(context.Context) error) (failed int64, last error) {
	var sent, bad atomic.Int64
	var mu sync.Mutex
	var wg sync.WaitGroup
	for range loadClients {
		wg.Go(func() {
			for sent.Add(1) <= n {
				if err := send(ctx); err != nil {
					bad.Add(1)
					mu.Lock()
					last = err
					mu.Unlock()
				}
			}
		})
	}
	wg.Wait()
	return bad.Load(), last
}
