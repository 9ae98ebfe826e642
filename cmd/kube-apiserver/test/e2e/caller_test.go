// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
)

// answer is an HTTP response.
type answer struct {
	code int
	body []byte
}

// message returns the message of a Status, or the body if it is not a Status.
func (a answer) message() string {
	var status metav1.Status
	if json.Unmarshal(a.body, &status) == nil && status.Message != "" {
		return status.Message
	}
	return string(a.body)
}

// caller sends requests to a server. It reuses connections for requests with the admin's
// certificate or without a certificate. For a request with any other certificate, it opens a new
// connection.
type caller struct {
	url    string
	admin  *tls.Certificate
	byCert map[*tls.Certificate]*http.Client
}

// newCaller returns a caller of the server at url. The kubeconfig contains the admin's certificate.
func newCaller(url, kubeconfig string) (*caller, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, err
	}
	admin, err := tls.X509KeyPair(config.CertData, config.KeyData)
	return &caller{
		url:    url,
		admin:  &admin,
		byCert: map[*tls.Certificate]*http.Client{&admin: clientWith(&admin), nil: clientWith(nil)},
	}, err
}

func clientWith(certificate *tls.Certificate) *http.Client {
	// These tests do not check the server's certificate.
	config := &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS12} // #nosec G402 -- loopback
	if certificate != nil {
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return certificate, nil }
	}
	return &http.Client{Transport: &http.Transport{TLSClientConfig: config}, Timeout: 30 * time.Second}
}

// send sends one request.
func (c *caller) send(
	ctx context.Context, method, path string, body []byte, h http.Header, certificate *tls.Certificate,
) (answer, error) {
	req, err := http.NewRequestWithContext(ctx, method, c.url+path, bytes.NewReader(body))
	if err != nil {
		return answer{}, err
	}
	if h != nil {
		req.Header = h.Clone()
	}
	for name, value := range map[string]string{"Content-Type": "application/json", "Accept": "application/json"} {
		if req.Header.Get(name) == "" {
			req.Header.Set(name, value)
		}
	}
	client, ok := c.byCert[certificate]
	if !ok {
		client = clientWith(certificate)
		defer client.CloseIdleConnections()
	}
	resp, err := client.Do(req)
	if err != nil {
		return answer{}, err
	}
	defer func() { _ = resp.Body.Close() }()
	data, err := io.ReadAll(resp.Body)
	return answer{resp.StatusCode, data}, err
}

// asAdmin sends a request as the admin. If out is not nil, it decodes the response into out.
func (c *caller) asAdmin(ctx context.Context, method, path string, in, out any) error {
	body, err := json.Marshal(in)
	if err != nil {
		return err
	}
	a, err := c.send(ctx, method, path, body, nil, c.admin)
	if err == nil && a.code >= 300 {
		err = fmt.Errorf("%s %s: %d: %s", method, path, a.code, a.message())
	}
	if err == nil && out != nil {
		err = json.Unmarshal(a.body, out)
	}
	return err
}

// metrics returns the metrics of the server.
func (c *caller) metrics(ctx context.Context) ([]byte, error) {
	a, err := c.send(ctx, http.MethodGet, "/metrics", nil, http.Header{"Accept": {"text/plain"}}, c.admin)
	if err == nil && a.code != http.StatusOK {
		err = fmt.Errorf("metrics: %d", a.code)
	}
	return a.body, err
}

// close closes idle connections.
func (c *caller) close() {
	for _, client := range c.byCert {
		client.CloseIdleConnections()
	}
}
