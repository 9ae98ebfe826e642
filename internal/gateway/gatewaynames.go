// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"net/http"
	"os"
	"sync/atomic"
	"time"

	"golang.org/x/sync/singleflight"
	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
)

// errGatewayName is the error for a caller that has the gateway's own name. This caller could
// impersonate every user that the gateway may impersonate.
var errGatewayName = errors.New("the name belongs to an account of the gateway")

const (
	// gatewayNamesTTL is how long the gateway uses its user names in a cluster before it requests
	// them again. A token file may later contain the token of another account.
	gatewayNamesTTL = 30 * time.Second
	// gatewayNamesRetryDelay is the pause after a failed request for the names.
	gatewayNamesRetryDelay = time.Second
)

// gatewayNames contains the user names of the gateway's two credentials in a cluster. It is safe
// for concurrent use.
type gatewayNames struct {
	cluster string // name of the cluster
	configs []*rest.Config
	clients []kubernetes.Interface
	flight  singleflight.Group // for requests to the cluster
	cached  atomic.Pointer[gatewayNamesResult]
}

// gatewayNamesResult is the result of a request for the names.
type gatewayNamesResult struct {
	names sets.Set[string] // nil if the request failed
	err   error
	until time.Time
}

func newGatewayNames(cluster string, configs ...*rest.Config) (*gatewayNames, error) {
	o := &gatewayNames{cluster: cluster, configs: configs}
	for _, config := range configs {
		config := limitResponses(config, func() *byteLimit { return newByteLimit(responseBytes) })
		config.QPS = -1 // at most one request is sent at a time
		config.Timeout = responseTimeout
		connection, err := rest.HTTPClientFor(config)
		if err != nil {
			return nil, err
		}
		// The credential must not be sent to another address.
		connection.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
		client, err := kubernetes.NewForConfigAndClient(config, connection)
		if err != nil {
			return nil, err
		}
		o.clients = append(o.clients, client)
	}
	return o, nil
}

// check returns an error if a caller must not use a name. The error is [errGatewayName], or the
// reason why the gateway's names in the cluster are unknown.
func (o *gatewayNames) check(ctx context.Context, name string) error {
	cached := o.cached.Load()
	if cached == nil || time.Now().After(cached.until) {
		result := o.flight.DoChan("", func() (any, error) { return o.refresh(context.WithoutCancel(ctx)), nil })
		if cached == nil || cached.names == nil { // otherwise the known names are used until there are new ones
			select {
			case fetched := <-result:
				cached, _ = fetched.Val.(*gatewayNamesResult)
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	}
	switch {
	case cached.names == nil:
		return cached.err
	case cached.names.Has(name):
		return errGatewayName
	}
	return nil
}

// refresh requests the names from the cluster, unless the stored names are still valid. Names from
// earlier responses remain reserved, because the gateway's credential may change back to an earlier
// account.
func (o *gatewayNames) refresh(ctx context.Context) *gatewayNamesResult {
	before := o.cached.Load()
	if before != nil && time.Now().Before(before.until) {
		return before
	}
	result := &gatewayNamesResult{until: time.Now().Add(gatewayNamesTTL)}
	if result.names, result.err = o.reviewSelfRecovered(ctx); result.err != nil {
		klog.FromContext(ctx).Error(result.err, "Failed to read the user names of the gateway in the "+
			"cluster", "cluster", o.cluster)
		result.names, result.until = nil, time.Now().Add(gatewayNamesRetryDelay)
	}
	if before != nil && before.names != nil {
		result.names = result.names.Union(before.names)
	}
	o.cached.Store(result)
	return result
}

var errNamesPanic = errors.New("panic while reading the user names of the gateway")

// reviewSelfRecovered calls reviewSelf and recovers from a panic. It runs in a goroutine in which a
// panic would end the gateway for all clusters.
func (o *gatewayNames) reviewSelfRecovered(ctx context.Context) (names sets.Set[string], err error) {
	defer func() {
		if recover() != nil { // the panic value may contain text from the cluster
			names = nil
			err = errNamesPanic
		}
	}()
	return o.reviewSelf(ctx)
}

// reviewSelf requests the user name of each credential with a SelfSubjectReview. It adds the names
// that the credential itself contains. Clusters before Kubernetes 1.28 do not support
// SelfSubjectReviews.
func (o *gatewayNames) reviewSelf(ctx context.Context) (sets.Set[string], error) {
	names := sets.New[string]()
	for i, client := range o.clients {
		names.Insert(credentialNames(o.configs[i])...)
		review, err := client.AuthenticationV1().SelfSubjectReviews().Create(ctx,
			&authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if review.Status.UserInfo.Username == "" {
			return nil, errForm
		}
		names.Insert(review.Status.UserInfo.Username)
	}
	return names, nil
}

// credentialNames returns the names that a certificate or token itself contains.
func credentialNames(config *rest.Config) (names []string) {
	loaded := rest.CopyConfig(config)
	if err := rest.LoadTLSFiles(loaded); err == nil {
		if block, _ := pem.Decode(loaded.CertData); block != nil {
			if cert, err := x509.ParseCertificate(block.Bytes); err == nil {
				names = append(names, cert.Subject.CommonName)
			}
		}
	}
	token := config.BearerToken
	if config.BearerTokenFile != "" {
		if text, err := os.ReadFile(config.BearerTokenFile); err == nil {
			token = string(text)
		}
	}
	if subject := claimsOf(token).Subject; subject != "" {
		names = append(names, subject)
	}
	return names
}
