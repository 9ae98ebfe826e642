// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

// Package impersonate is for controllers that act on objects of tenants. It creates clients that
// impersonate the identity that is recorded on an object. [Options] specify which parts of the
// identity a client uses.
//
// Only the server writes the record, [tenant.IdentityAnnotation] (plugin TenantBinding). A
// controller MUST use the record only for objects of kinds that the plugin covers. On objects of
// other kinds, any client may have written the annotation.
package impersonate

import (
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"

	"github.com/kubetenant/kubetenant/tenant"
)

var (
	// ErrUnrecorded reports that an object has no recorded identity.
	ErrUnrecorded = errors.New("the object records no identity")
	// ErrMismatch reports that the recorded identity does not belong to the tenant that owns the
	// object.
	ErrMismatch = errors.New("the recorded identity belongs to another tenant")
	// ErrSystemTenant reports that the recorded identity belongs to the system tenant, which is never
	// impersonated.
	ErrSystemTenant = errors.New("the recorded identity belongs to the system tenant")

	errDefaultUser = errors.New("DefaultUser is required and may not have the prefix \"system:\"")
)

// Options specify which parts of a recorded identity the client uses. DefaultUser is required.
type Options struct {
	// WithUser specifies that the client impersonates the recorded user. A recorded user that
	// begins with "system:" is not impersonated, unless it is a service account. By default, the
	// client impersonates DefaultUser with the selected groups of the recorded user.
	WithUser bool
	// DefaultUser is impersonated if no user is recorded, or if the recorded user is not used.
	// It should have no role bindings. It may not begin with "system:".
	DefaultUser string
	// GroupPattern is a regular expression that selects which recorded groups are used. It must
	// match the whole name of a group. If empty, no recorded groups are used. Groups that begin
	// with "system:" or "tenant:" are never used. The tenant's own group is always used.
	GroupPattern string
}

// Impersonator converts recorded identities to clients. It is safe for concurrent use.
type Impersonator struct {
	o      Options
	groups *regexp.Regexp
}

// New returns an Impersonator. It fails if DefaultUser or GroupPattern is invalid.
func New(o Options) (*Impersonator, error) {
	if o.DefaultUser == "" || strings.HasPrefix(o.DefaultUser, "system:") {
		return nil, errDefaultUser
	}
	groups, err := regexp.Compile(`\A(?:` + o.GroupPattern + `)\z`)
	if err != nil {
		return nil, fmt.Errorf("GroupPattern: %w", err)
	}
	return &Impersonator{o, groups}, nil
}

// Config returns the impersonation config of a client that acts for the identity recorded on
// object. It always contains a user and the tenant. The error is [ErrUnrecorded], [ErrMismatch]
// or [ErrSystemTenant], or an error from [tenant.ParseIdentity].
func (i *Impersonator) Config(object metav1.Object) (rest.ImpersonationConfig, error) {
	text, ok := object.GetAnnotations()[tenant.IdentityAnnotation]
	if !ok {
		return rest.ImpersonationConfig{}, ErrUnrecorded
	}
	identity, err := tenant.ParseIdentity(text)
	if err != nil {
		return rest.ImpersonationConfig{}, err
	}
	id, err := tenant.Parse(identity.Tenant)
	switch {
	case err != nil:
		return rest.ImpersonationConfig{}, err
	case id.IsSystem():
		return rest.ImpersonationConfig{}, ErrSystemTenant
	case object.GetLabels()[tenant.Label] != identity.Tenant:
		return rest.ImpersonationConfig{}, ErrMismatch
	}
	out := rest.ImpersonationConfig{
		UserName: i.o.DefaultUser,
		Groups:   []string{id.Group()},
		Extra:    map[string][]string{tenant.ExtraKey: {id.String()}},
	}
	if i.o.WithUser && identity.User != "" &&
		(!strings.HasPrefix(identity.User, "system:") || tenant.IsServiceAccountName(identity.User)) {
		out.UserName = identity.User
	}
	for _, group := range identity.Groups {
		if i.o.GroupPattern != "" && i.groups.MatchString(group) && !strings.HasPrefix(group, "system:") &&
			!strings.HasPrefix(group, tenant.GroupPrefix) {
			out.Groups = append(out.Groups, group)
		}
	}
	return out, nil
}

// Client returns a copy of config for a client that acts for the identity recorded on object.
func (i *Impersonator) Client(config *rest.Config, object metav1.Object) (*rest.Config, error) {
	impersonate, err := i.Config(object)
	if err != nil {
		return nil, err
	}
	out := rest.CopyConfig(config)
	out.Impersonate = impersonate
	return out, nil
}

// Transport returns a round tripper that sends every request through next, with the identity
// recorded on object. It removes the impersonation headers of the original request, because
// client-go does not overwrite them.
func (i *Impersonator) Transport(next http.RoundTripper, object metav1.Object) (http.RoundTripper, error) {
	c, err := i.Config(object)
	if err != nil {
		return nil, err
	}
	return headerRemover{
		transport.NewImpersonatingRoundTripper(transport.ImpersonationConfig{
			UserName: c.UserName,
			Groups:   c.Groups,
			Extra:    c.Extra,
		}, next),
	}, nil
}

type headerRemover struct{ next http.RoundTripper }

// RoundTrip implements [http.RoundTripper].
func (d headerRemover) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	for name := range r.Header {
		if strings.HasPrefix(strings.ToLower(name), "impersonate-") {
			delete(r.Header, name)
		}
	}
	return d.next.RoundTrip(r)
}
