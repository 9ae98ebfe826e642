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

// errOwn: a caller with the gateway's own name would be able to impersonate every user that the
// gateway can.
var errOwn = errors.New("the name belongs to an account of the gateway")

const (
	// ownNamesFor is how long the gateway's user names in a cluster are valid. A token file may later
	// contain the token of another account.
	ownNamesFor = 30 * time.Second
	// ownNamesFailFor is the pause after a failed request for the names.
	ownNamesFailFor = time.Second
)

// ownNames are the user names of the gateway's two credentials in a cluster. It is safe for
// concurrent use.
type ownNames struct {
	cluster string // name of the cluster
	configs []*rest.Config
	clients []kubernetes.Interface
	flight  singleflight.Group // for requests to the cluster
	known   atomic.Pointer[ownAnswer]
}

// ownAnswer is the result of a request for the names.
type ownAnswer struct {
	names sets.Set[string] // nil if the request failed
	err   error
	until time.Time
}

func newOwnNames(cluster string, configs ...*rest.Config) (*ownNames, error) {
	o := &ownNames{cluster: cluster, configs: configs}
	for _, config := range configs {
		config := bounded(config, func() *byteLimit { return newByteLimit(answerBytes) })
		config.QPS, config.Timeout = -1, answerWithin // at most one request is sent at a time
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

// check returns an error if a caller must not use a name. The error wraps [errOwn], or reports that
// the gateway's names in the cluster are unknown.
func (o *ownNames) check(ctx context.Context, name string) error {
	known := o.known.Load()
	if known == nil || time.Now().After(known.until) {
		asked := o.flight.DoChan("", func() (any, error) { return o.ask(context.WithoutCancel(ctx)), nil })
		if known == nil || known.names == nil { // otherwise the known names are valid until there are new ones
			select {
			case answer := <-asked:
				known, _ = answer.Val.(*ownAnswer)
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	}
	switch {
	case known.names == nil:
		return known.err
	case known.names.Has(name):
		return errOwn
	}
	return nil
}

// ask requests the names from the cluster, unless they are new. Names from earlier answers remain
// reserved, because the gateway may get an earlier account again.
func (o *ownNames) ask(ctx context.Context) *ownAnswer {
	before := o.known.Load()
	if before != nil && time.Now().Before(before.until) {
		return before
	}
	answer := &ownAnswer{until: time.Now().Add(ownNamesFor)}
	if answer.names, answer.err = o.recovered(ctx); answer.err != nil {
		klog.FromContext(ctx).Error(answer.err, "Failed to read the user names of the gateway in the "+
			"cluster", "cluster", o.cluster)
		answer.names, answer.until = nil, time.Now().Add(ownNamesFailFor)
	}
	if before != nil && before.names != nil {
		answer.names = answer.names.Union(before.names)
	}
	o.known.Store(answer)
	return answer
}

var errOwnPanic = errors.New("panic while reading the user names of the gateway")

// recovered is names for a goroutine in which a panic would end the gateway for all clusters.
func (o *ownNames) recovered(ctx context.Context) (names sets.Set[string], err error) {
	defer func() {
		if recover() != nil { // the panic value may contain text of the cluster
			names, err = nil, errOwnPanic
		}
	}()
	return o.names(ctx)
}

// names requests the name of each credential, and adds the names that the credential itself
// contains. Clusters before Kubernetes 1.28 do not support this review.
func (o *ownNames) names(ctx context.Context) (sets.Set[string], error) {
	names := sets.New[string]()
	for i, client := range o.clients {
		names.Insert(statedNames(o.configs[i])...)
		review, err := client.AuthenticationV1().SelfSubjectReviews().Create(ctx,
			&authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
		switch {
		case apierrors.IsNotFound(err):
		case err != nil:
			return nil, err
		case review.Status.UserInfo.Username == "":
			return nil, errForm
		default:
			names.Insert(review.Status.UserInfo.Username)
		}
	}
	return names, nil
}

// statedNames returns the names that a certificate or token itself contains.
func statedNames(config *rest.Config) (names []string) {
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
