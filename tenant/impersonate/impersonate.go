// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

// Package impersonate is for controllers that act on what tenants wrote: from the identity that is
// recorded on an object to a client that has that identity's rights and no others.
//
// The record, [tenant.IdentityAnnotation], is written by the server alone (plugin TenantBinding). A
// controller MUST use it only for objects of kinds that the plugin governs: on others anybody may
// have written it.
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
	// ErrUnrecorded says that an object records no identity.
	ErrUnrecorded = errors.New("the object records no identity")
	// ErrMismatch says that the record is not of the tenant whose object it is.
	ErrMismatch = errors.New("the recorded identity belongs to another tenant")
	// ErrSystem says that the record is the system tenant's, whose rights are not lent.
	ErrSystem = errors.New("the recorded identity belongs to the system tenant")

	errDefaultUser = errors.New("DefaultUser is required and may not have the prefix \"system:\"")
)

// Options say what of an identity is used. DefaultUser is required.
type Options struct {
	// WithUser uses the recorded user. Default: the DefaultUser acts for everybody, with the groups of
	// who asked.
	WithUser bool
	// DefaultUser acts where no user is recorded, or none is used. It should be bound to nothing. It
	// may not begin "system:".
	DefaultUser string
	// GroupPattern matches, as a whole, the recorded groups that are used. Empty uses none. Groups
	// that begin "system:" or "tenant:" never are; the tenant's own group always is.
	GroupPattern string
}

// Impersonator turns records into clients. It is safe for concurrent use.
type Impersonator struct {
	o      Options
	groups *regexp.Regexp
}

// New returns an Impersonator.
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

// Config returns what a client that acts for object must impersonate. The result always has a user
// and names the tenant. The errors are [ErrUnrecorded], [ErrMismatch], [ErrSystem], or of
// [tenant.ParseIdentity].
func (i *Impersonator) Config(object metav1.Object) (rest.ImpersonationConfig, error) {
	text, recorded := object.GetAnnotations()[tenant.IdentityAnnotation]
	if !recorded {
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
		return rest.ImpersonationConfig{}, ErrSystem
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

// Client returns config for a client that acts for object.
func (i *Impersonator) Client(config *rest.Config, object metav1.Object) (*rest.Config, error) {
	impersonate, err := i.Config(object)
	if err != nil {
		return nil, err
	}
	out := rest.CopyConfig(config)
	out.Impersonate = impersonate
	return out, nil
}

// Transport returns a round tripper that sends every request of next for object. Headers of
// impersonation that a request brings along are dropped: client-go's own would give way to them.
func (i *Impersonator) Transport(next http.RoundTripper, object metav1.Object) (http.RoundTripper, error) {
	c, err := i.Config(object)
	if err != nil {
		return nil, err
	}
	return dropping{
		transport.NewImpersonatingRoundTripper(transport.ImpersonationConfig{
			UserName: c.UserName,
			Groups:   c.Groups,
			Extra:    c.Extra,
		}, next),
	}, nil
}

type dropping struct{ next http.RoundTripper }

// RoundTrip implements [http.RoundTripper].
func (d dropping) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	for name := range r.Header {
		if strings.HasPrefix(strings.ToLower(name), "impersonate-") {
			delete(r.Header, name)
		}
	}
	return d.next.RoundTrip(r)
}
