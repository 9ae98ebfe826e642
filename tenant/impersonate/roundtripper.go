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
	// ErrNobody says that a request is sent in nobody's name: its context has neither
	// [WithObject] nor [WithOwnIdentity].
	ErrNobody = errors.New("the context names neither an object nor the own identity to send the request with")
	// ErrCluster says that a cluster's name is none that stands in a path.
	ErrCluster = errors.New("a cluster name must be a lower-case DNS label")
)

// OwnerFunc returns the tenant that owns a namespace now. It MUST be safe for concurrent use; an
// error refuses the request.
type OwnerFunc func(ctx context.Context, namespace string) (tenant.ID, error)

// OwnerByLabel returns the OwnerFunc of what gets Namespaces, as a lister or a client does: one
// without a label is the system tenant's.
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
	actingKey  struct{}
	clusterKey struct{}
)

// acting is who a request is sent for: the client itself, or an object's owner.
type acting struct {
	own    bool
	object metav1.Object
}

// WithObject returns a context whose requests are sent for whoever is recorded on an object, by a
// client of [Impersonator.RoundTripper]. It takes the place of who was set before.
func WithObject(ctx context.Context, object metav1.Object) context.Context {
	return context.WithValue(ctx, actingKey{}, acting{object: object})
}

// WithOwnIdentity returns a context whose requests are the client's own: of informers, and of what
// is written to the controller's own objects. It takes the place of who was set before.
func WithOwnIdentity(ctx context.Context) context.Context {
	return context.WithValue(ctx, actingKey{}, acting{own: true})
}

// WithCluster returns a context whose requests go to a cluster behind a gateway, whose
// address is the client's server.
func WithCluster(ctx context.Context, name string) context.Context {
	return context.WithValue(ctx, clusterKey{}, name)
}

// RoundTripper returns a round tripper that sends each request for whom its context names
// ([WithObject]), or as the client's own ([WithOwnIdentity]): with neither, or an object that is
// nil, the error is [ErrNobody], so that nothing is sent with the controller's rights by oversight.
// For an object it asks anew who owns its namespace, which may have changed since the object was
// read: the error is [ErrMismatch] where that is not who is recorded, or one of
// [Impersonator.Config]. Headers of impersonation that a request brings along are dropped. It is
// safe for concurrent use, and changes no request.
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
	next, err := t.nextFor(r.Context())
	if err != nil {
		return refuse(r, err)
	}
	if name, set := r.Context().Value(clusterKey{}).(string); set {
		if len(validation.IsDNS1123Label(name)) > 0 {
			return refuse(r, fmt.Errorf("%w: %q", ErrCluster, name))
		}
		r = r.Clone(r.Context())
		prefix := "/clusters/" + name
		r.URL.Path = prefix + "/" + strings.TrimPrefix(r.URL.Path, "/")
		if r.URL.RawPath != "" {
			r.URL.RawPath = prefix + "/" + strings.TrimPrefix(r.URL.RawPath, "/")
		}
	}
	return dropping{next}.RoundTrip(r)
}

// isNil reports whether there is no object, of whatever type.
func isNil(object metav1.Object) bool {
	v := reflect.ValueOf(object)
	return object == nil || v.Kind() == reflect.Pointer && v.IsNil()
}

// refuse ends a request that is not sent: a round tripper closes its body.
func refuse(r *http.Request, err error) (*http.Response, error) {
	if r.Body != nil {
		_ = r.Body.Close()
	}
	return nil, err
}

func (t *roundTripper) nextFor(ctx context.Context) (http.RoundTripper, error) {
	of, set := ctx.Value(actingKey{}).(acting)
	switch {
	case !set, !of.own && isNil(of.object):
		return nil, ErrNobody
	case of.own:
		return t.next, nil
	}
	c, err := t.impersonator.Config(of.object)
	if err != nil {
		return nil, err
	}
	// Who asks for that is the controller, of its own cluster: by a client of this round tripper, too.
	owner, err := t.owner(context.WithValue(WithOwnIdentity(ctx), clusterKey{}, nil), of.object.GetNamespace())
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
