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

// Caller is who a server takes the caller for.
type Caller struct {
	User   string              `json:"user"`
	UID    string              `json:"uid,omitempty"`
	Groups []string            `json:"groups,omitempty"`
	Extra  map[string][]string `json:"extra,omitempty"`
	// Tenant is empty where it is not known, then Because says why; else Because is the rule by which.
	Tenant  string `json:"tenant,omitempty"`
	Because string `json:"tenantBecause"`
	// Source is the configured source that knew the credential; empty where the server does not say.
	Source string `json:"source,omitempty"`
	// Expires is when the credential ends; nil where that cannot be seen, then Endless says why.
	Expires *time.Time `json:"expires,omitempty"`
	Endless string     `json:"expiresUnknown,omitempty"`
}

// Info returns the identity as authorizers see it.
func (i *Caller) Info() user.Info {
	return &user.DefaultInfo{
		Name:   i.User,
		UID:    i.UID,
		Groups: i.Groups,
		Extra:  i.Extra,
	}
}

// WhoAmI asks the server who the caller is, impersonation included.
func (c *Cluster) WhoAmI(ctx context.Context) (*Caller, error) {
	watched := rest.CopyConfig(c.Config)
	var token atomic.Pointer[string]
	// Innermost, where every kind of credential has become a header.
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
		sent = *text // and the server took that, not the certificate
	}
	i.Expires, i.Endless = expiry(c.Config, sent)
	return i, c.findTenant(ctx, k, i)
}

// findTenant tells the tenant by the rules that the server tells it by, with the default
// configuration's names: where the server does not say it in an extra, it authenticates by itself
// and the webhook service knows the tenant from the same.
func (c *Cluster) findTenant(ctx context.Context, k kube.Interface, i *Caller) error {
	subjects, err := Subjects(func(ctx context.Context, name string) (*corev1.Namespace, error) {
		return k.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
	})
	if err != nil {
		return err
	}
	id, rule, err := subjects.ByRule(ctx, i.Info())
	switch {
	case err == nil:
		i.Tenant, i.Because = id.String(), string(rule)
	case apierrors.IsForbidden(err) && len(i.Extra[tenant.ExtraKey]) == 1:
		i.Tenant, i.Because = i.Extra[tenant.ExtraKey][0], string(authz.SubjectRuleExtra) // the server has looked
	case apierrors.IsForbidden(err):
		i.Because = "unknown: you may not read the namespace of the service account"
	default:
		i.Because = "none: " + err.Error()
	}
	return nil
}

// Subjects returns the default configuration's rules for an identity's tenant, and those of a
// certificate's group, which the webhook shape needs.
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

// expiry returns when the credential that was sent ends, or why that cannot be told. The token is
// only looked at for its own word on that.
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
