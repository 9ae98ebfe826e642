package kubetenant

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/klog/v2"

	"github.com/kubetenant/kubetenant/authn"
	"github.com/kubetenant/kubetenant/authn/keystone"
	"github.com/kubetenant/kubetenant/authn/oidc"
	"github.com/kubetenant/kubetenant/authn/serviceaccount"
	"github.com/kubetenant/kubetenant/authn/webhook"
	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

// Sources whose issuer is the server's where it may not be, or is not where it must be: the tokens would
// then go to the server's own authenticators, which know no tenants.
var (
	errOwnIssuer   = errors.New("the issuer is the server's own, for service accounts")
	errOtherIssuer = errors.New("serviceAccount.issuer is none of the server's (--service-account-issuer)")
)

func (b *builder) serviceAccounts(ctx context.Context, config *v1alpha1.Settings, src *v1alpha1.Source, s *authn.Source, g *generation) error {
	if len(b.ServiceAccountIssuers) > 0 && !slices.Contains(b.ServiceAccountIssuers, src.ServiceAccount.Issuer) {
		return errOtherIssuer
	}
	keys, err := serviceaccount.OpenKeys(src.ServiceAccount.KeyFiles, b.report(ctx))
	if err != nil {
		return err
	}
	keys.Run(ctx)
	first := slices.IndexFunc(config.Authentication.Sources, func(s v1alpha1.Source) bool { return s.ServiceAccount != nil })
	o := serviceaccount.Options{
		Issuer: src.ServiceAccount.Issuer, Legacy: src.Name == config.Authentication.Sources[first].Name,
		Audiences: src.ServiceAccount.Audiences, RequireTenantClaim: src.ServiceAccount.RequireTenantClaim,
		Owner: g.boundary.Subjects.OfServiceAccounts, Objects: b.TokenObjects, Now: b.Now,
	}
	if len(o.Audiences) == 0 {
		o.Audiences = b.APIAudiences
	}
	if b.Client != nil {
		o.Used = b.labelUsed
	}
	a := serviceaccount.New(keys, o)
	s.Token, s.Match.Issuers, s.AudienceAware, s.Hygiene.ServiceAccounts = a, a.Issuers(), true, true
	return nil
}

// labelUsed labels the Secret of a legacy token, as upstream's authenticator does.
func (b *builder) labelUsed(ctx context.Context, secret *corev1.Secret) {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": secret.UID, "labels": map[string]string{serviceaccount.LastUsed: serviceaccount.Today(time.Now())}}})
	if err == nil {
		_, err = b.Client.CoreV1().Secrets(secret.Namespace).Patch(ctx, secret.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	}
	if err != nil {
		klog.FromContext(ctx).Error(err, "Label the Secret of a legacy token", "namespace", secret.Namespace, "name", secret.Name)
	}
}

func (b *builder) oidc(ctx context.Context, config *v1alpha1.OIDC, s *authn.Source, g *generation) error {
	if b.issues(config.JWT.Issuer.URL) {
		return errOwnIssuer
	}
	jwt, err := config.Authenticator()
	if err != nil {
		return err
	}
	a := oidc.New(ctx, oidc.Options{JWT: jwt, Compiler: g.compiler(), Clients: &g.issuers, Now: b.Now})
	s.Token, s.Match.Issuers, s.Hygiene.Remote, s.Hygiene.Extras = a, a.Issuers(), true, []string{user.CredentialIDKey}
	return nil
}

func (b *builder) keystone(ctx context.Context, config *v1alpha1.Keystone, s *authn.Source) error {
	o := keystone.Options{
		AuthURL: config.AuthURL, DomainID: config.Domain == v1alpha1.DomainByID, LegacyExtras: config.LegacyExtras,
		Tenants: make(map[string]tenant.ID, len(config.TenantMap)), TTL: config.Cache.TTL.Duration,
		NegativeTTL: config.Cache.NegativeTTL.Duration, Stale: config.Cache.StaleOnOutage.Duration, Now: b.Now,
	}
	for domain, name := range config.TenantMap {
		id, err := tenant.Parse(name)
		if err != nil {
			return err
		}
		o.Tenants[domain] = id
	}
	a, run, err := keystone.Open(config.CloudsFile, config.Cloud, o, b.report(ctx))
	if err != nil {
		return err
	}
	go run(ctx)
	s.Token, s.Uncached, s.Hygiene.Remote = a, true, true
	s.Hygiene.Extras = append(keystone.LegacyExtras(), tenant.KeystoneDomainKey, tenant.KeystoneProjectKey, tenant.KeystoneRolesKey, user.CredentialIDKey)
	s.Match = authn.Match{Form: keystone.LooksLike}
	if config.Match != nil {
		s.Match = matchOf(config.Match)
	}
	return nil
}

func (b *builder) webhook(ctx context.Context, config *v1alpha1.Webhook, s *authn.Source) error {
	if b.issues(config.Match.Issuer) {
		return errOwnIssuer
	}
	o := webhook.Options{Audiences: b.APIAudiences}
	switch t := config.Tenant; {
	case t.Value != "":
		id, err := tenant.Parse(t.Value)
		if err != nil {
			return err
		}
		o.Tenant = webhook.Value(id)
	case t.Extra != "":
		o.Tenant = webhook.Extra(t.Extra)
	default:
		var err error
		if o.Tenant, err = webhook.Compile(b.compiler(), t.Expression); err != nil {
			return err
		}
	}
	a, err := webhook.Open(config.KubeConfigFile, o, b.report(ctx))
	if err != nil {
		return err
	}
	go a.Run(ctx)
	s.Token, s.AudienceAware, s.Hygiene.Remote, s.Match = a, true, true, matchOf(&config.Match)
	return nil
}

func matchOf(m *v1alpha1.TokenMatch) authn.Match {
	switch {
	case m.Issuer != "":
		return authn.Match{Issuers: []string{m.Issuer}}
	case m.Prefix != "":
		return authn.Match{Prefix: m.Prefix}
	}
	return authn.Match{Rest: m.Opaque}
}

// issues reports whether an issuer is the server's own.
func (b *builder) issues(issuer string) bool {
	return issuer == serviceaccount.LegacyIssuer || slices.Contains(b.ServiceAccountIssuers, issuer)
}
