// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/rest"

	"github.com/kubetenant/kubetenant/authz"
	configv1alpha1 "github.com/kubetenant/kubetenant/config/v1alpha1"
	"github.com/kubetenant/kubetenant/internal/kube"
	"github.com/kubetenant/kubetenant/tenant"
)

// Caller is the identity of the caller as the server authenticated it.
type Caller struct {
	User   string              `json:"user"`
	UID    string              `json:"uid,omitempty"`
	Groups []string            `json:"groups,omitempty"`
	Extra  map[string][]string `json:"extra,omitempty"`
	// Tenant is empty if the tenant is unknown. TenantReason is the rule that determined the
	// tenant, or the reason why the tenant is unknown.
	Tenant       string `json:"tenant,omitempty"`
	TenantReason string `json:"tenantBecause"`
	// Source is the name of the configured source that authenticated the credential. It is empty if
	// the server does not report the source.
	Source string `json:"source,omitempty"`
	// Expires is when the credential expires. If it is nil, ExpiryUnknown contains the reason.
	Expires       *time.Time `json:"expires,omitempty"`
	ExpiryUnknown string     `json:"expiresUnknown,omitempty"`
}

// Info returns the identity in the form that authorizers receive.
func (i *Caller) Info() user.Info {
	return &user.DefaultInfo{
		Name:   i.User,
		UID:    i.UID,
		Groups: i.Groups,
		Extra:  i.Extra,
	}
}

// WhoAmI requests the identity of the caller from the server. Impersonation applies.
func (c *Cluster) WhoAmI(ctx context.Context) (*Caller, error) {
	watched := rest.CopyConfig(c.Config)
	var token atomic.Pointer[string]
	// WrapTransport adds the innermost transport. client-go has already added the Authorization
	// header to the requests that it receives.
	watched.WrapTransport = func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			text, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
			token.Store(&text)
			return next.RoundTrip(r)
		})
	}
	k, err := kube.NewForConfig(watched)
	if err != nil {
		return nil, err
	}
	review, err := k.AuthenticationV1().SelfSubjectReviews().Create(ctx,
		&authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if apierrors.IsNotFound(err) {
		return nil, apierrors.NewMethodNotSupported(authenticationv1.Resource("selfsubjectreviews"), "create")
	}
	if err != nil {
		return nil, err
	}
	u := review.Status.UserInfo
	i := &Caller{
		User:   u.Username,
		UID:    u.UID,
		Groups: u.Groups,
		Extra:  map[string][]string{},
	}
	for key, values := range u.Extra {
		i.Extra[key] = values
	}
	if sources := i.Extra[tenant.SourceKey]; len(sources) == 1 {
		i.Source = sources[0]
	}
	sent := ""
	if text := token.Load(); text != nil && !strings.HasPrefix(strings.Join(i.Extra[user.CredentialIDKey], ""), "X509") {
		sent = *text // the server used the token, not the certificate
	}
	i.Expires, i.ExpiryUnknown = expiry(c.Config, sent)
	return i, c.findTenant(ctx, k, i)
}

// findTenant determines the tenant by the rules of the default configuration. If i has no tenant
// extra, kubetenant did not authenticate the request. The webhook service then determines the
// tenant by the same rules.
func (c *Cluster) findTenant(ctx context.Context, k kube.Interface, i *Caller) error {
	subjects, err := Subjects(func(ctx context.Context, name string) (*corev1.Namespace, error) {
		return k.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
	})
	if err != nil {
		return err
	}
	id, rule, err := subjects.TenantWithRule(ctx, i.Info())
	switch {
	case err == nil:
		i.Tenant = id.String()
		i.TenantReason = string(rule)
	case apierrors.IsForbidden(err) && len(i.Extra[tenant.ExtraKey]) == 1:
		i.Tenant = i.Extra[tenant.ExtraKey][0] // as the server reported it
		i.TenantReason = string(authz.SubjectRuleExtra)
	case apierrors.IsForbidden(err):
		i.TenantReason = "unknown: you may not read the namespace of the service account"
	default:
		i.TenantReason = "none: " + err.Error()
	}
	return nil
}

// Subjects returns the rules of the default configuration that determine the tenant of an
// identity. They include the rule for the group tenant:<id> of a certificate, which applies with
// the webhook service. live reads a Namespace from the server.
func Subjects(live func(context.Context, string) (*corev1.Namespace, error)) (*authz.Subjects, error) {
	settings, err := (&configv1alpha1.Settings{}).Complete()
	if err != nil {
		return nil, err
	}
	none := func(name string) (*corev1.Namespace, error) {
		return nil, apierrors.NewNotFound(corev1.Resource("namespaces"), name)
	}
	return &authz.Subjects{
		Names:            settings.Authorization.SystemSubjects.Names(),
		SystemNamespaces: settings.Authorization.SystemNamespaces,
		FromGroups:       true,
		Owners:           authz.NewOwners(none, live),
	}, nil
}

// expiry returns when the credential of a request expires, or why this is unknown. It reads the exp
// claim of a token without verifying the token.
func expiry(config *rest.Config, token string) (*time.Time, string) {
	if token != "" {
		parts := strings.Split(token, ".")
		if len(parts) != 3 {
			return nil, "unknown: the token is opaque"
		}
		var claims struct {
			Expires *float64 `json:"exp"`
		}
		payload, err := base64.RawURLEncoding.DecodeString(parts[1])
		if err != nil || json.Unmarshal(payload, &claims) != nil {
			return nil, "unknown: the token is opaque"
		}
		if claims.Expires == nil {
			return nil, "never: the token has no expiry"
		}
		at := time.Unix(int64(*claims.Expires), 0).UTC()
		return &at, ""
	}
	if until, ok := CertificateExpiry(config); ok {
		until = until.UTC()
		return &until, ""
	}
	if config.ExecProvider != nil {
		return nil, "unknown: a credential plugin provides the credential"
	}
	return nil, "unknown: no credential with an expiry was sent"
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
