// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package usage

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"
	"time"
)

// Target receives records as JSON lines. If Send returns nil, the target has stored all of them.
// Otherwise, the same records are sent again. If the error is [ErrRejected], other records may be
// sent first. Send is not called concurrently.
type Target interface {
	Send(ctx context.Context, lines []byte) error
}

// ErrRejected is the error of a target that rejects the sent records but may accept others.
var ErrRejected = errors.New("the endpoint refused records: check its log, and that it accepts requests of 512 KiB")

const (
	contentType = "application/x-ndjson"
	// maxToken and maxCA are the maximum sizes of the token file and the CA file, in bytes.
	maxToken = 64 << 10
	maxCA    = 1 << 20
	// maxAnswer is the maximum number of bytes that are read from a response. The connection can be
	// reused only if the whole response has been read.
	maxAnswer = 64 << 10
)

// Endpoint is a [Target] that sends records to a URL with POST. It reads its files again for each
// request. A response with a status from 200 to 299 acknowledges the records, unless it is an HTML
// page, which may come from a proxy. Endpoint does not follow redirects.
//
// Security: the errors of Send contain neither the token nor the URL.
type Endpoint struct {
	url, caFile, tokenFile string
	timeout                time.Duration

	mu     sync.Mutex
	ca     []byte // the certificate authorities that client trusts, in PEM form
	client *http.Client
}

// NewEndpoint returns a target that sends records to url. caFile and tokenFile may be empty.
// timeout is the maximum duration of a request. The URL MUST begin with https, unless its host is a
// loopback address.
func NewEndpoint(url, caFile, tokenFile string, timeout time.Duration) *Endpoint {
	return &Endpoint{
		url:       url,
		caFile:    caFile,
		tokenFile: tokenFile,
		timeout:   timeout,
	}
}

// Send implements [Target].
func (e *Endpoint) Send(ctx context.Context, lines []byte) error {
	ctx, cancel := context.WithTimeout(ctx, e.timeout)
	defer cancel()
	client, err := e.currentClient()
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, e.url, bytes.NewReader(lines))
	if err != nil {
		return withoutURL(err)
	}
	request.Header.Set("Content-Type", contentType)
	if e.tokenFile != "" {
		token, err := readBounded(e.tokenFile, maxToken)
		if err != nil {
			return fmt.Errorf("read usage.endpoint.tokenFile: %w", err)
		}
		value := strings.TrimSpace(string(token))
		if value == "" || strings.ContainsAny(value, "\r\n") {
			return errors.New("usage.endpoint.tokenFile does not contain exactly one token: write the token into the file")
		}
		request.Header.Set("Authorization", "Bearer "+value)
	}
	response, err := client.Do(request)
	if err != nil {
		return withoutURL(err)
	}
	defer func() { _ = response.Body.Close() }()
	_, err = io.Copy(io.Discard, io.LimitReader(response.Body, maxAnswer))
	kind, _, _ := mime.ParseMediaType(response.Header.Get("Content-Type"))
	switch {
	case response.StatusCode == http.StatusUnauthorized || response.StatusCode == http.StatusForbidden:
		return fmt.Errorf("the endpoint answered with status %d: check usage.endpoint.tokenFile", response.StatusCode)
	case isRefusal(response.StatusCode):
		return fmt.Errorf("the endpoint answered with status %d: %w", response.StatusCode, ErrRejected)
	case response.StatusCode < 200 || response.StatusCode > 299:
		return fmt.Errorf("the endpoint answered with status %d: check usage.endpoint.url", response.StatusCode)
	case kind == "text/html" || kind == "application/xhtml+xml":
		return errors.New("the endpoint answered with an HTML page, which can be that of a proxy: " +
			"check usage.endpoint.url")
	case err != nil:
		return errors.New("the endpoint did not complete its answer")
	}
	return nil
}

// isRefusal reports whether the content of a request may have caused the status. The caller has
// already handled the statuses of an invalid token.
func isRefusal(status int) bool {
	return status >= 400 && status <= 499 && status != http.StatusRequestTimeout && status != http.StatusTooManyRequests
}

// withoutURL returns an error without the URL of the request, which may contain a secret.
func withoutURL(err error) error {
	var failed *url.Error
	if errors.As(err, &failed) {
		return failed.Err
	}
	return err
}

// currentClient returns a client that trusts the certificate authorities that are currently in
// caFile.
func (e *Endpoint) currentClient() (*http.Client, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	var ca []byte
	if e.caFile != "" {
		var err error
		if ca, err = readBounded(e.caFile, maxCA); err != nil {
			return nil, fmt.Errorf("read usage.endpoint.caFile: %w", err)
		}
	}
	if e.client != nil && bytes.Equal(ca, e.ca) {
		return e.client, nil
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if e.caFile != "" {
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(ca) {
			return nil, errors.New("usage.endpoint.caFile contains no certificate in PEM form: write one into the file")
		}
	}
	if e.client != nil {
		e.client.CloseIdleConnections()
	}
	e.ca = ca
	e.client = &http.Client{
		Transport: &http.Transport{
			Proxy:             http.ProxyFromEnvironment,
			TLSClientConfig:   config,
			ForceAttemptHTTP2: true,
			MaxIdleConns:      1,
			IdleConnTimeout:   time.Minute,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return e.client, nil
}

// readBounded reads a file of at most limit bytes.
func readBounded(path string, limit int64) ([]byte, error) {
	file, err := os.Open(path) // #nosec G304 -- the configuration names it
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	data, err := io.ReadAll(io.LimitReader(file, limit+1))
	if err == nil && int64(len(data)) > limit {
		err = fmt.Errorf("the file is larger than %d bytes", limit)
	}
	return data, err
}
