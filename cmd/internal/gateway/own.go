package gateway

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"sync/atomic"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// errOwn: who came as the gateway itself could be whomever the gateway can.
var errOwn = errors.New("a name of the gateway's own")

// ownNames are those of the gateway in a cluster: of its two credentials. Safe for concurrent use.
type ownNames struct {
	clients []kubernetes.Interface
	stated  sets.Set[string] // by certificates
	asking  chan struct{}    // has room for who asks the cluster
	known   atomic.Pointer[sets.Set[string]]
}

func newOwnNames(configs ...*rest.Config) (*ownNames, error) {
	o := &ownNames{stated: sets.New[string](), asking: make(chan struct{}, 1)}
	for _, config := range configs {
		config := bounded(config, func() *byteLimit { return newByteLimit(answerBytes) })
		config.Timeout = answerWithin
		client, err := kubernetes.NewForConfig(config)
		if err != nil {
			return nil, err
		}
		o.clients = append(o.clients, client)
		if err := rest.LoadTLSFiles(config); err != nil {
			return nil, err
		}
		if block, _ := pem.Decode(config.CertData); block != nil {
			if cert, err := x509.ParseCertificate(block.Bytes); err == nil {
				o.stated.Insert(cert.Subject.CommonName)
			}
		}
	}
	return o, nil
}

// check returns why nobody comes by a name, nil where one may. The error wraps [errOwn], or says that the cluster could not be asked who the
// gateway is.
func (o *ownNames) check(ctx context.Context, name string) error {
	known := o.known.Load()
	if known == nil {
		var err error
		if known, err = o.ask(ctx); err != nil {
			return err
		}
	}
	if known.Has(name) {
		return errOwn
	}
	return nil
}

// ask asks the cluster, until it has said it once. One that has no such reviews (before Kubernetes 1.28), or lets nobody ask, says nothing: what
// certificates state counts then.
func (o *ownNames) ask(ctx context.Context) (*sets.Set[string], error) {
	select {
	case o.asking <- struct{}{}:
		defer func() { <-o.asking }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if known := o.known.Load(); known != nil {
		return known, nil
	}
	known := o.stated.Clone()
	for _, client := range o.clients {
		review, err := client.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
		switch {
		case apierrors.IsNotFound(err), apierrors.IsMethodNotSupported(err), apierrors.IsForbidden(err):
		case err != nil:
			return nil, err
		case review.Status.UserInfo.Username == "":
			return nil, errForm
		default:
			known.Insert(review.Status.UserInfo.Username)
		}
	}
	o.known.Store(&known)
	return &known, nil
}
