// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bufio"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/kubetenant/kubetenant/test/waittest"
)

// echoingKubelet starts a kubelet that upgrades every connection, as for exec, and sends back
// the data that it receives.
func echoingKubelet(t *testing.T) *httptest.Server {
	t.Helper()
	kubelet := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		hijacker, ok := w.(http.Hijacker)
		if !ok || !strings.EqualFold(r.Header.Get("Connection"), "upgrade") {
			http.Error(w, "no upgrade", http.StatusBadRequest)
			return
		}
		conn, buffered, err := hijacker.Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer func() { _ = conn.Close() }()
		_, _ = io.WriteString(conn,
			"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: "+r.Header.Get("Upgrade")+"\r\n\r\n")
		_, _ = io.Copy(conn, buffered)
	}))
	t.Cleanup(kubelet.Close)
	return kubelet
}

// podOn creates the Pod p in a namespace, and binds it to a node.
func podOn(t *testing.T, admin *kubernetes.Clientset, namespace, node string) {
	t.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "p"},
		Spec: corev1.PodSpec{
			AutomountServiceAccountToken: new(bool),
			Containers:                   []corev1.Container{{Name: "c", Image: "registry.example/pause"}},
		},
	}
	waittest.Until(t, func() error { // until the namespace has its default service account
		_, err := admin.CoreV1().Pods(namespace).Create(t.Context(), pod, metav1.CreateOptions{})
		return err
	})
	binding := &corev1.Binding{
		ObjectMeta: metav1.ObjectMeta{Name: pod.Name},
		Target:     corev1.ObjectReference{Kind: "Node", Name: node},
	}
	if err := admin.CoreV1().Pods(namespace).Bind(t.Context(), binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// stream is an upgraded connection through a server.
type stream struct {
	net.Conn
	from *bufio.Reader
}

// openStream opens an upgraded connection to a subresource of the Pod p, as SPDY clients do.
func openStream(t *testing.T, c *rest.Config, namespace, subresource string) *stream {
	t.Helper()
	secured, err := rest.TLSConfigFor(c)
	if err != nil {
		t.Fatal(err)
	}
	secured.NextProtos = []string{"http/1.1"}
	conn, err := (&tls.Dialer{Config: secured}).DialContext(t.Context(), "tcp", strings.TrimPrefix(c.Host, "https://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	query := map[string]string{
		"exec":   "?command=sh&stdin=true&stdout=true",
		"attach": "?stdin=true&stdout=true",
	}[subresource]
	_, err = fmt.Fprintf(conn,
		"POST /api/v1/namespaces/%s/pods/p/%s%s HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n"+
			"X-Stream-Protocol-Version: v4.channel.k8s.io\r\nContent-Length: 0\r\n\r\n",
		namespace, subresource, query)
	if err != nil {
		t.Fatal(err)
	}
	s := &stream{conn, bufio.NewReader(conn)}
	if err := conn.SetDeadline(time.Now().Add(waitLimit)); err != nil {
		t.Fatal(err)
	}
	answer, err := http.ReadResponse(s.from, nil)
	if err != nil {
		t.Fatal(err)
	}
	if answer.StatusCode != http.StatusSwitchingProtocols {
		text, _ := io.ReadAll(answer.Body)
		t.Fatalf("%s: %s: %s", subresource, answer.Status, text)
	}
	return s
}

// ping sends a byte, and returns an error unless a byte is received within the given duration.
func (s *stream) ping(within time.Duration) error {
	if err := s.SetDeadline(time.Now().Add(within)); err != nil {
		return err
	}
	if _, err := s.Write([]byte{'x'}); err != nil {
		return err
	}
	_, err := s.from.ReadByte()
	return err
}

// awaitEnd returns an error unless the stream ends within the given duration.
func (s *stream) awaitEnd(within time.Duration) error {
	if err := s.SetDeadline(time.Now().Add(within)); err != nil {
		return err
	}
	if _, err := s.from.ReadByte(); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		return errors.New("the stream has not ended")
	}
	return nil
}

// streamsEnd checks that upgraded connections end when the tenant is suspended or closed, when the
// caller is revoked, and when the namespace is deleted. It also checks that a connection of another
// tenant does not end.
func streamsEnd(t *testing.T, s *server) {
	kubelet := echoingKubelet(t)
	admin := s.client(t, "admin")
	nodeAt(t, admin, "echo", kubelet)
	podOn(t, admin, "globex--shop", "echo")
	others := openStream(t, s.config(t, "globex"), "globex--shop", "exec")
	comesIn := func() error {
		_, err := s.client(t, "acme").CoreV1().Pods("acme--web").List(t.Context(), metav1.ListOptions{})
		return err
	}
	tenantOf := func(spec string) {
		t.Helper()
		path := t.TempDir() + "/tenant.yaml"
		writeFile(t, path,
			"apiVersion: kubetenant.dev/v1alpha1\nkind: Tenant\nmetadata: { name: acme }\nspec: { id: acme"+spec+" }\n")
		s.mustKubectl(t, "admin", "apply", "-f", path)
	}
	tenantOf("")
	for _, c := range []struct {
		name      string
		act, undo func(namespace string)
	}{
		{
			"the tenant is suspended",
			func(string) { tenantOf(", suspension: ReadOnly") }, func(string) { tenantOf(`, suspension: ""`) },
		},
		{"the tenant is closed", func(string) { tenantOf(", access: Closed") }, func(string) { tenantOf("") }},
		{
			"the caller is revoked",
			func(string) { s.write(t, "revoked.yaml", noRevocations+"tenants: [ { name: acme } ]\n") },
			func(string) { s.write(t, "revoked.yaml", noRevocations) },
		},
		{"the namespace is deleted", func(namespace string) {
			for _, args := range [][]string{{"delete", "pod", "-n", namespace, "p", "--force"}, {"delete", "ns", namespace}} {
				if out, err := s.kubectl(t, "admin", args...); err != nil {
					t.Error(out)
				}
			}
		}, func(string) {}},
	} {
		t.Run(c.name, func(t *testing.T) {
			namespace := "acme--" + strings.ReplaceAll(c.name, " ", "-")
			waittest.Until(t, comesIn)
			s.mustKubectl(t, "acme", "create", "ns", namespace)
			podOn(t, admin, namespace, "echo")
			open := map[string]*stream{}
			for _, subresource := range []string{"exec", "attach", "portforward"} {
				open[subresource] = openStream(t, s.config(t, "acme"), namespace, subresource)
				if err := open[subresource].ping(waitLimit); err != nil {
					t.Fatalf("%s: %v", subresource, err)
				}
			}
			c.act(namespace)
			for subresource, each := range open {
				if err := each.awaitEnd(applyLimit); err != nil {
					t.Errorf("%s: %v", subresource, err)
				}
			}
			c.undo(namespace)
		})
	}
	waittest.Until(t, comesIn)
	if err := others.ping(waitLimit); err != nil {
		t.Errorf("another tenant's stream ended: %v", err)
	}
}
