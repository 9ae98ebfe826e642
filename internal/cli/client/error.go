// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"regexp"
	"strings"
	"syscall"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"
)

// Explain returns err as one line with the problem and, if it is known, the remedy. The result
// wraps err.
func (c *Cluster) Explain(err error) error {
	if err == nil {
		return nil
	}
	host := c.Config.Host
	var unknown x509.UnknownAuthorityError
	var named x509.HostnameError
	var dns *net.DNSError
	var transport *url.Error
	switch {
	case errors.Is(err, context.Canceled):
		return err
	case apierrors.IsUnauthorized(err):
		return &explained{c.unauthorized(), err}
	case isWebhookFailure(err):
		return &explained{"the webhook service of kubetenant does not answer: cluster admins are not affected; " +
			"see docs/troubleshooting.md", err}
	case strings.HasPrefix(host, "http://") && apierrors.IsBadRequest(err):
		return &explained{fmt.Sprintf("%s expects https: correct the server's address in the kubeconfig", host), err}
	case errors.Is(err, syscall.ECONNREFUSED):
		return &explained{fmt.Sprintf("connection to %s refused: check that the server runs, and that its address is "+
			"correct", host), err}
	case errors.As(err, &dns):
		return &explained{fmt.Sprintf("cannot resolve %s: check the server's address in the kubeconfig", dns.Name), err}
	case errors.As(err, &unknown):
		return &explained{
			fmt.Sprintf("the certificate of %s is signed by an unknown authority: check certificate-authority in the "+
				"kubeconfig", host),
			err,
		}
	case errors.As(err, &named):
		return &explained{
			fmt.Sprintf("the certificate of %s is for another name: check the server's address, or set --tls-server-name", host),
			err,
		}
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &transport) && transport.Timeout():
		return &explained{fmt.Sprintf("%s did not respond in time: try again, or set a longer --request-timeout", host), err}
	case errors.As(err, &transport):
		return &explained{fmt.Sprintf("cannot reach %s: %s", host, oneLine(transport.Err)), err}
	}
	return &explained{oneLine(err), err}
}

// isWebhookFailure reports whether kube-apiserver could not call the webhook service as an
// authorizer, an authenticator or an admission webhook.
func isWebhookFailure(err error) bool {
	if !apierrors.IsInternalError(err) {
		return false
	}
	text := err.Error()
	return strings.Contains(text, "/authorize?timeout=") || strings.Contains(text, "/authenticate?timeout=") ||
		admissionFailed.MatchString(text)
}

// admissionFailed matches the error that kube-apiserver returns if it cannot call an admission
// webhook of kubetenant (k8s.io/apiserver pkg/admission/plugin/webhook/errors, v0.37.1).
var admissionFailed = regexp.MustCompile(`failed calling webhook "[a-z0-9.-]*kubetenant\.dev"`)

// explained replaces the message of the error that it wraps.
type explained struct {
	text  string
	cause error
}

func (e *explained) Error() string { return e.text }
func (e *explained) Unwrap() error { return e.cause }

func oneLine(err error) string { return strings.Join(strings.Fields(err.Error()), " ") }

// unauthorized returns the probable reason why a server rejected the credential. An expired
// client certificate is the only reason that it can detect.
func (c *Cluster) unauthorized() string {
	if until, ok := CertificateExpiry(c.Config); ok && until.Before(time.Now()) {
		return fmt.Sprintf("the client certificate expired at %s: create a new one with kubectl tenant gen-kubeconfig",
			until.UTC().Format(time.RFC3339))
	}
	return "the server rejected the credential: it may have expired, be revoked, or be for another cluster; log in " +
		"again or use another kubeconfig"
}

// CertificateExpiry returns when the client certificate of a configuration expires. It returns
// false if there is no readable certificate.
func CertificateExpiry(config *rest.Config) (time.Time, bool) {
	data := config.CertData
	if len(data) == 0 && config.CertFile != "" {
		data, _ = os.ReadFile(config.CertFile)
	}
	block, _ := pem.Decode(data)
	if block == nil {
		return time.Time{}, false
	}
	certificate, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return time.Time{}, false
	}
	return certificate.NotAfter, true
}
