// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package impersonate

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/transport"

	"github.com/kubetenant/kubetenant/tenant"
)

var (
	// ErrNoIdentity reports that the context of a request specifies no identity, because neither
	// [WithObject] nor [WithOwnIdentity] was used.
	ErrNoIdentity = errors.New("the context names neither an object nor the own identity to send the request with")
	// ErrClusterName reports that the name of a cluster is not a lower-case DNS label, and
	// therefore cannot be a part of a path.
	ErrClusterName = errors.New("a cluster name must be a lower-case DNS label")
)

// OwnerFunc returns the tenant that currently owns a namespace. It MUST be safe for concurrent use.
// If it returns an error, the request is not sent.
type OwnerFunc func(ctx context.Context, namespace string) (tenant.ID, error)

// OwnerByLabel returns an OwnerFunc that reads the label of a Namespace. get is the Get function of
// a lister or a client. A Namespace without the label belongs to the system tenant.
func OwnerByLabel(get func(ctx context.Context, name string) (*corev1.Namespace, error)) OwnerFunc {
	return func(ctx context.Context, namespace string) (tenant.ID, error) {
		ns, err := get(ctx, namespace)
		if err != nil {
			return tenant.ID{}, err
		}
		if label, owned := ns.Labels[tenant.Label]; owned {
			return tenant.Parse(label)
		}
		return tenant.System(), nil
	}
}

type (
	identityKey struct{}
	clusterKey  struct{}
)

// requestIdentity is the identity of a request. It is the client's own identity or the identity
// recorded on an object.
type requestIdentity struct {
	ownIdentity bool
	object      metav1.Object
}

// WithObject returns a context for requests with the identity that is recorded on an object. It is
// for clients with [Impersonator.RoundTripper]. It replaces an identity that is already in the
// context.
func WithObject(ctx context.Context, object metav1.Object) context.Context {
	return context.WithValue(ctx, identityKey{}, requestIdentity{object: object})
}

// WithOwnIdentity returns a context for requests with the client's own identity, for example
// requests from informers or writes of the controller's own objects. It replaces an identity
// that is already in the context.
func WithOwnIdentity(ctx context.Context) context.Context {
	return context.WithValue(ctx, identityKey{}, requestIdentity{ownIdentity: true})
}

// WithCluster returns a context for requests to the named cluster behind a gateway. The server
// address of the client must be the address of the gateway.
func WithCluster(ctx context.Context, name string) context.Context {
	return context.WithValue(ctx, clusterKey{}, name)
}

// RoundTripper returns a round tripper that sends each request with the identity in its context
// ([WithObject] or [WithOwnIdentity]). If the context has no identity, or if the object is nil, the
// error is [ErrNoIdentity], so that no request uses the controller's permissions by mistake.
//
// For an object, the round tripper looks up the owner of the namespace for each request, because
// the owner may have changed. The error is [ErrMismatch] if the owner is not the recorded
// tenant. It may also be an error from owner or from [Impersonator.Config]. The round tripper
// removes the impersonation headers of the original request. It is safe for concurrent use and
// does not change the original request.
func (i *Impersonator) RoundTripper(next http.RoundTripper, owner OwnerFunc) http.RoundTripper {
	return &roundTripper{i, next, owner}
}

type roundTripper struct {
	impersonator *Impersonator
	next         http.RoundTripper
	owner        OwnerFunc
}

// RoundTrip implements [http.RoundTripper].
func (t *roundTripper) RoundTrip(r *http.Request) (*http.Response, error) {
	next, err := t.transportFor(r.Context())
	if err != nil {
		return rejectRequest(r, err)
	}
	if name, ok := r.Context().Value(clusterKey{}).(string); ok {
		if len(validation.IsDNS1123Label(name)) > 0 {
			return rejectRequest(r, fmt.Errorf("%w: %q", ErrClusterName, name))
		}
		r = r.Clone(r.Context())
		prefix := "/clusters/" + name
		r.URL.Path = prefix + "/" + strings.TrimPrefix(r.URL.Path, "/")
		if r.URL.RawPath != "" {
			r.URL.RawPath = prefix + "/" + strings.TrimPrefix(r.URL.RawPath, "/")
		}
	}
	return headerRemover{next}.RoundTrip(r)
}

// isNil reports whether object is nil or is a nil pointer.
func isNil(object metav1.Object) bool {
	v := reflect.ValueOf(object)
	return object == nil || v.Kind() == reflect.Pointer && v.IsNil()
}

// rejectRequest closes the body of a request that is not sent, as a round tripper must, and returns
// the error.
func rejectRequest(r *http.Request, err error) (*http.Response, error) {
	if r.Body != nil {
		_ = r.Body.Close()
	}
	return nil, err
}

func (t *roundTripper) transportFor(ctx context.Context) (http.RoundTripper, error) {
	identity, ok := ctx.Value(identityKey{}).(requestIdentity)
	switch {
	case !ok, !identity.ownIdentity && isNil(identity.object):
		return nil, ErrNoIdentity
	case identity.ownIdentity:
		return t.next, nil
	}
	c, err := t.impersonator.Config(identity.object)
	if err != nil {
		return nil, err
	}
	// The lookup uses the controller's own identity and the controller's own cluster, even if it
	// uses this round tripper.
	owner, err := t.owner(context.WithValue(WithOwnIdentity(ctx), clusterKey{}, nil), identity.object.GetNamespace())
	if err != nil {
		return nil, fmt.Errorf("look up the owner of the object's namespace: %w", err)
	}
	if c.Extra[tenant.ExtraKey][0] != owner.String() {
		return nil, ErrMismatch
	}
	return transport.NewImpersonatingRoundTripper(transport.ImpersonationConfig{
		UserName: c.UserName,
		Groups:   c.Groups,
		Extra:    c.Extra,
	}, t.next), nil
}
