// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"maps"
	"net"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	upstream "k8s.io/apiserver/pkg/apis/apiserver/validation"
	authenticationcel "k8s.io/apiserver/pkg/authentication/cel"

	"github.com/kubetenant/kubetenant/tenant"
)

// maxStale is the upper bound of the durations in keystone.cache. It is longer than the default
// lifetime of Keystone's tokens, which is one hour.
const maxStale = 24 * time.Hour

// compiler is created once, because creating it is expensive. It retains no data about the
// expressions that it compiles.
var compiler = sync.OnceValue(authenticationcel.NewDefaultCompiler)

// legacyIssuer is the issuer of legacy service account tokens, which are stored in Secrets
// (k8s.io/kubernetes pkg/serviceaccount/legacy.go, v1.37.1).
const legacyIssuer = "kubernetes/serviceaccount"

func (a *ServiceAccount) setDefaults(src *Source) { src.fedByTheAdmin() }

func (a *ServiceAccount) validate(s *validatedSource) field.ErrorList {
	var errs field.ErrorList
	if a.Issuer == "" {
		errs = append(errs, field.Required(s.own.Child("issuer"), ""))
	}
	if len(a.KeyFiles) == 0 {
		errs = append(errs, field.Required(s.own.Child("keyFiles"), "must name files of PEM-encoded public keys"))
	}
	for _, f := range []struct{ name, value string }{
		{"usernamePrefix", s.UsernamePrefix}, {"groupsPrefix", s.GroupsPrefix},
	} {
		if f.value != "" {
			errs = append(errs, field.Forbidden(s.path.Child(f.name),
				"may not be set, because names of service accounts are not changed"))
		}
	}
	errs = append(errs, s.issuer(a.Issuer, s.own.Child("issuer"))...)
	if !s.claimed.legacy { // the first source of this kind
		s.claimed.legacy = true
		errs = append(errs, s.issuer(legacyIssuer, s.own)...)
	}
	return errs
}

func (a *ServiceAccount) files() []*string {
	var all []*string
	for i := range a.KeyFiles {
		all = append(all, &a.KeyFiles[i])
	}
	return all
}

func (*OIDC) setDefaults(*Source) {}

func (o *OIDC) validate(s *validatedSource) field.ErrorList {
	errs := validateOIDC(o, s.may, s.own)
	return append(errs, s.issuer(o.JWT.Issuer.URL, s.own.Child("jwt", "issuer", "url"))...)
}

func (*OIDC) files() []*string { return nil }

func (k *Keystone) setDefaults(*Source) {
	defaultText(&k.Domain, DomainByName)
	defaultList(&k.Scopes, KeystoneScopeProject)
	defaultDuration(&k.Cache.TTL, 5*time.Minute)
	defaultDuration(&k.Cache.NegativeTTL, 10*time.Second)
	defaultDuration(&k.Cache.StaleOnOutage, 0)
	if k.Sync != nil {
		k.Sync.setDefaults()
	}
}

func (k *Keystone) validate(s *validatedSource) field.ErrorList {
	errs := validateKeystone(k, s.may, s.own)
	if k.Sync != nil {
		errs = append(errs, k.Sync.validate(s, s.own.Child("sync"))...)
	}
	switch {
	case k.Match != nil:
		errs = append(errs, s.match(k.Match)...)
	case s.claimed.keystone != "":
		errs = append(errs, field.Required(s.own.Child("match"),
			"must be set, because source "+s.claimed.keystone+" already accepts every token that looks like a Keystone token"))
	default:
		s.claimed.keystone = s.Name
	}
	if k.Match != nil && k.Match.Issuer != "" {
		errs = append(errs, field.Forbidden(s.own.Child("match", "issuer"),
			"may not be set, because Keystone's tokens have no issuer: use prefix"))
	}
	return errs
}

func (k *Keystone) files() []*string { return []*string{&k.CloudsFile} }

func (*Webhook) setDefaults(*Source) {}

func (w *Webhook) validate(s *validatedSource) field.ErrorList {
	return append(validateWebhook(w, s.may, s.own), s.match(&w.Match)...)
}

func (w *Webhook) files() []*string { return []*string{&w.KubeConfigFile} }

// exactlyOne returns a problem unless exactly one value is not empty. The arguments are alternating
// names and values.
func exactlyOne(path *field.Path, namesAndValues ...string) field.ErrorList {
	var names, set []string
	for pair := range slices.Chunk(namesAndValues, 2) {
		names = append(names, pair[0])
		if pair[1] != "" {
			set = append(set, pair[0])
		}
	}
	switch len(set) {
	case 1:
		return nil
	case 0:
		return field.ErrorList{field.Required(path, "must have exactly one of "+strings.Join(names, ", "))}
	}
	return field.ErrorList{field.Forbidden(path.Child(set[1]), "may not be set if "+set[0]+" is set")}
}

func validateOIDC(o *OIDC, may tenant.Set, path *field.Path) field.ErrorList {
	errs := exactlyOne(path.Child("tenant"), "claim", o.Tenant.Claim, "expression", o.Tenant.Expression,
		"value", o.Tenant.Value)
	errs = append(errs, validateTenant(o.Tenant.Value, may, path.Child("tenant", "value"))...)
	errs = append(errs, validateTenantExpression(o.Tenant.Expression, path,
		compiler().CompileClaimsExpression, "string", "dyn", "google.protobuf.Any")...)
	jwt := path.Child("jwt")
	for i, mapping := range o.JWT.ClaimMappings.Extra {
		if domain, _, _ := strings.Cut(mapping.Key, "/"); strings.EqualFold(domain, tenant.Domain) {
			errs = append(errs, field.Forbidden(jwt.Child("claimMappings", "extra").Index(i).Child("key"),
				"only the server may set keys of "+tenant.Domain))
		}
	}
	if p := o.JWT.ClaimMappings.Username.Prefix; p != nil && strings.HasPrefix(*p, "system:") {
		errs = append(errs,
			field.Invalid(jwt.Child("claimMappings", "username", "prefix"), *p,
				"may not begin with system:, which would make every user name a reserved one"))
	}
	p := o.JWT.ClaimMappings.Groups.Prefix
	if p != nil && (strings.HasPrefix(*p, "system:") || strings.HasPrefix(*p, tenant.GroupPrefix)) {
		errs = append(errs,
			field.Invalid(jwt.Child("claimMappings", "groups", "prefix"), *p,
				"may not begin with system: or tenant:, which would make every group a reserved one"))
	}
	if o.JWT.Issuer.EgressSelectorType != "" {
		errs = append(errs, field.Forbidden(jwt.Child("issuer", "egressSelectorType"), "not supported"))
	}
	if len(errs) > 0 {
		return errs
	}
	config, err := o.Authenticator()
	if err != nil {
		return append(errs, field.InternalError(jwt, err))
	}
	_, problems := upstream.CompileAndValidateJWTAuthenticator(compiler(), config, nil)
	own := field.NewPath("claimMappings", "extra").Index(len(config.ClaimMappings.Extra) - 1).String()
	for _, p := range problems {
		if strings.HasPrefix(p.Field, own) {
			p.Field = path.Child("tenant").String()
			p.BadValue = o.Tenant
		} else {
			p.Field = jwt.String() + "." + p.Field
		}
		errs = append(errs, p)
	}
	return errs
}

// validateTenantExpression compiles the text of an expression as the user wrote it, so that the
// error refers to this text. The static type of the expression must be one of types.
func validateTenantExpression(
	text string, path *field.Path,
	compile func(authenticationcel.ExpressionAccessor) (authenticationcel.CompilationResult, error), types ...string,
) field.ErrorList {
	if text == "" {
		return nil
	}
	path = path.Child("tenant", "expression")
	compiled, err := compile(&authenticationcel.ClaimMappingExpression{Expression: text})
	if err != nil {
		return field.ErrorList{field.Invalid(path, text, err.Error())}
	}
	if is := compiled.AST.OutputType().String(); !slices.Contains(types, is) {
		return field.ErrorList{field.Invalid(path, text, "must give a string, the tenant, but gives "+is)}
	}
	return nil
}

// validateTenant checks that name is a valid tenant and one of the tenants in may. An empty name
// is valid.
func validateTenant(name string, may tenant.Set, path *field.Path) field.ErrorList {
	if name == "" {
		return nil
	}
	id, err := tenant.Parse(name)
	switch {
	case err != nil:
		return field.ErrorList{field.Invalid(path, name, err.Error())}
	case !may.Has(id):
		return field.ErrorList{field.Invalid(path, name, "must be one of the source's tenants")}
	}
	return nil
}

func validateKeystone(k *Keystone, may tenant.Set, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	switch u, err := url.Parse(k.AuthURL); {
	case err != nil || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "":
		errs = append(errs, field.Invalid(path.Child("authURL"), k.AuthURL,
			"must be the URL of Keystone, without credentials, query or fragment"))
	case u.Scheme != "https" && (u.Scheme != "http" || !net.ParseIP(u.Hostname()).IsLoopback()):
		errs = append(errs, field.Invalid(path.Child("authURL"), k.AuthURL,
			"must be https, except on the loopback address, because passwords and tokens are sent there"))
	}
	for _, f := range []struct{ name, value string }{{"cloud", k.Cloud}, {"cloudsFile", k.CloudsFile}} {
		if f.value == "" {
			errs = append(errs, field.Required(path.Child(f.name), ""))
		}
	}
	if k.Domain != DomainByName && k.Domain != DomainByID {
		errs = append(errs, field.NotSupported(path.Child("domain"), k.Domain, []DomainBy{DomainByName, DomainByID}))
	}
	errs = append(errs, validateScopes(k.Scopes, may, path.Child("scopes"))...)
	for _, domain := range slices.Sorted(maps.Keys(k.TenantMap)) {
		name := k.TenantMap[domain]
		p := path.Child("tenantMap").Key(domain)
		if name == "" {
			errs = append(errs, field.Required(p, "must name a tenant"))
		}
		errs = append(errs, validateTenant(name, may, p)...)
	}
	for _, f := range []struct {
		name  string
		value *metav1.Duration
		most  time.Duration
	}{
		{"ttl", k.Cache.TTL, maxStale},
		{"negativeTTL", k.Cache.NegativeTTL, maxStale},
		{"staleOnOutage", k.Cache.StaleOnOutage, maxStale},
	} {
		if f.value.Duration < 0 || f.value.Duration > f.most {
			errs = append(errs,
				field.Invalid(path.Child("cache", f.name), f.value.Duration.String(), "must be between 0s and "+f.most.String()))
		}
	}
	return errs
}

// validateScopes returns the problems of the scopes of a source that may assert the tenants in
// may.
func validateScopes(scopes []KeystoneScope, may tenant.Set, path *field.Path) field.ErrorList {
	if len(scopes) == 0 {
		return field.ErrorList{field.Required(path, "must list at least one scope: omit the field to accept project")}
	}
	var errs field.ErrorList
	all := []KeystoneScope{KeystoneScopeProject, KeystoneScopeDomain, KeystoneScopeSystem}
	for i, scope := range scopes {
		switch at := path.Index(i); {
		case !slices.Contains(all, scope):
			errs = append(errs, field.NotSupported(at, scope, all))
		case slices.Contains(scopes[:i], scope):
			errs = append(errs, field.Duplicate(at, scope))
		case scope == KeystoneScopeSystem && !may.Has(tenant.System()):
			errs = append(errs, field.Invalid(at, scope, "is allowed only if tenants of the source contains system"))
		}
	}
	return errs
}

func validateWebhook(w *Webhook, may tenant.Set, path *field.Path) field.ErrorList {
	errs := exactlyOne(path.Child("tenant"), "extra", w.Tenant.Extra, "expression", w.Tenant.Expression,
		"value", w.Tenant.Value)
	errs = append(errs, validateTenant(w.Tenant.Value, may, path.Child("tenant", "value"))...)
	errs = append(errs,
		validateTenantExpression(w.Tenant.Expression, path, compiler().CompileUserExpression, "string")...)
	if w.KubeConfigFile == "" {
		errs = append(errs, field.Required(path.Child("kubeConfigFile"), ""))
	}
	if key := w.Tenant.Extra; key != "" && (tenant.IsReservedExtraKey(key) || strings.ToLower(key) != key) {
		errs = append(errs,
			field.Invalid(path.Child("tenant", "extra"), key, "must be a lower-case key that is not reserved"))
	}
	return errs
}
