// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiserverv1 "k8s.io/apiserver/pkg/apis/apiserver/v1"
)

// ServiceAccount configures tokens of the cluster's own service accounts.
type ServiceAccount struct {
	// issuer specifies the claim iss of bound tokens, which is the first --service-account-issuer of
	// the server. The first source of this kind also claims the legacy tokens in Secrets. Required.
	// +required
	Issuer string `json:"issuer"`
	// keyFiles specifies the paths of PEM files with the public keys that verify tokens. A file may
	// contain several keys. It may also contain private keys or certificates. The server reloads a
	// file when it changes. Required.
	// +required
	KeyFiles []string `json:"keyFiles"`
	// audiences specifies the audiences of the server. Defaults to the server's --api-audiences, or
	// else to the value of issuer.
	// +optional
	Audiences []string `json:"audiences"`
	// requireTenantClaim specifies whether a token without a signed tenant claim is rejected. Legacy
	// tokens and tokens that another server issued have no such claim. Defaults to false.
	// +optional
	RequireTenantClaim bool `json:"requireTenantClaim,omitempty"`
}

// OIDC configures one OpenID Connect issuer.
type OIDC struct {
	// jwt specifies the issuer, as an entry of jwt in an AuthenticationConfiguration
	// (apiserver.config.k8s.io/v1). Its extra mappings must not use keys of kubetenant.dev. The prefix
	// of user names must not begin with "system:". The prefix of groups must not begin with "system:"
	// or "tenant:". egressSelectorType must not be set. Required.
	// +required
	JWT apiserverv1.JWTAuthenticator `json:"jwt"`
	// tenant specifies how the claims of a token determine the tenant of the caller. Required.
	// +required
	Tenant TenantOfClaims `json:"tenant"`
}

// TenantOfClaims specifies how the claims of a token determine a tenant. Exactly one field must be
// set.
type TenantOfClaims struct {
	// claim specifies the name of a claim. The value of the claim is the tenant, and must be a string.
	// Mutually exclusive with expression and value.
	Claim string `json:"claim,omitempty"`
	// expression specifies a CEL expression with the variable claims. The value of the expression is
	// the tenant, and must be a string. Mutually exclusive with claim and value.
	Expression string `json:"expression,omitempty"`
	// value specifies the tenant of every caller. Must be one of the tenants of the source. Mutually
	// exclusive with claim and expression.
	Value string `json:"value,omitempty"`
}

// DomainBy specifies which attribute of a Keystone domain identifies the tenant.
//
// +kubebuilder:validation:Enum=name;id
type DomainBy string

// The attributes of a Keystone domain that can identify the tenant.
const (
	// DomainByName uses the name of the domain.
	DomainByName DomainBy = "name"
	// DomainByID uses the ID of the domain.
	DomainByID DomainBy = "id"
)

// KeystoneScope specifies a scope of Keystone tokens.
//
// +kubebuilder:validation:Enum=project;domain;system
type KeystoneScope string

const (
	// KeystoneScopeProject is the scope of a token for one project.
	KeystoneScopeProject KeystoneScope = "project"
	// KeystoneScopeDomain is the scope of a token for one domain.
	KeystoneScopeDomain KeystoneScope = "domain"
	// KeystoneScopeSystem is the scope of a token for the whole deployment of OpenStack.
	KeystoneScopeSystem KeystoneScope = "system"
)

// Keystone configures an OpenStack Keystone (Identity API v3).
type Keystone struct {
	// authURL specifies the URL of Keystone, with or without /v3 at its end. Must use https, except on
	// a loopback address. Required.
	// +required
	AuthURL string `json:"authURL"`
	// cloud specifies the entry of cloudsFile with which the server validates tokens. The entry must
	// have a password or an application credential. The role reader with system scope is sufficient.
	// Required.
	// +required
	Cloud string `json:"cloud"`
	// cloudsFile specifies the path of a clouds.yaml. The server reloads the file when it changes.
	// Required.
	// +required
	CloudsFile string `json:"cloudsFile"`
	// domain specifies which attribute of the user's domain identifies the tenant: name or id.
	// Defaults to name.
	// +optional
	Domain DomainBy `json:"domain,omitempty"`
	// scopes specifies which scopes of tokens are accepted: project, domain or system. A token with
	// scope project or domain belongs to the tenant of the user's domain. A token with scope system
	// belongs to the system tenant. With scope system, tenants of the source must contain system. Must
	// not be empty or contain duplicates. Defaults to [project].
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:UniqueItems=true
	// +optional
	Scopes []KeystoneScope `json:"scopes"`
	// tenantMap specifies the tenants of domains. The keys are the names or IDs of domains, depending
	// on the field domain. Use it for domains whose name is not a valid tenant, and for domains of the
	// system tenant. Values must be tenants of the source. Defaults to none.
	// +optional
	TenantMap map[string]string `json:"tenantMap,omitempty"`
	// legacyExtras specifies whether the server also sets the extras of k8s-keystone-auth
	// (alpha.kubernetes.io/identity/...). Defaults to false.
	// +optional
	LegacyExtras bool `json:"legacyExtras,omitempty"`
	// match specifies which tokens are sent to Keystone. match.issuer is not allowed. Required if an
	// earlier source of this kind has no match. Defaults to tokens that begin with gAAAA, tokens of 32
	// hexadecimal digits, and JSON Web Tokens with claims openstack_* and without the claim iss.
	// +optional
	Match *TokenMatch `json:"match,omitempty"`
	// cache specifies how long the results of token validations are cached.
	// +optional
	Cache KeystoneCache `json:"cache,omitempty"`
	// sync specifies how the cluster follows the projects and roles of this Keystone. At most one
	// source may set it. If unset, projects have no effect on namespaces.
	// +optional
	Sync *KeystoneSync `json:"sync,omitempty"`
}

// KeystoneCache specifies how long the result of a token validation is cached. No result is cached
// after the expiry of the token.
type KeystoneCache struct {
	// ttl specifies how long the result for a valid token is cached. Must be between 0s and 24h.
	// Defaults to 5m.
	// +optional
	TTL *metav1.Duration `json:"ttl,omitempty"`
	// negativeTTL specifies how long the result for an invalid token is cached. Must be between 0s and
	// 24h. Defaults to 10s.
	// +optional
	NegativeTTL *metav1.Duration `json:"negativeTTL,omitempty"`
	// staleOnOutage specifies for how long after ttl the cached result for a valid token remains in
	// use while Keystone is not available. Must be between 0s and 24h. Defaults to 0s.
	// +optional
	StaleOnOutage *metav1.Duration `json:"staleOnOutage,omitempty"`
}

// Webhook configures an external TokenReview service (authentication.k8s.io/v1).
type Webhook struct {
	// kubeConfigFile specifies the path of a kubeconfig with the address and the credentials of the
	// service, as for --authentication-token-webhook-config-file. The server reloads the file when it
	// changes. Required.
	// +required
	KubeConfigFile string `json:"kubeConfigFile"`
	// match specifies which tokens are sent to the service. The service receives no other tokens.
	// Required.
	// +required
	Match TokenMatch `json:"match"`
	// tenant specifies how the answer of the service determines the tenant of the caller. Required.
	// +required
	Tenant TenantOfUser `json:"tenant"`
}

// TokenMatch specifies which tokens are sent to a source. Exactly one field must be set.
type TokenMatch struct {
	// issuer specifies the claim iss of JSON Web Tokens. No other source may have the same issuer.
	// Mutually exclusive with prefix and opaque.
	Issuer string `json:"issuer,omitempty"`
	// prefix specifies the prefix of the tokens. It does not match JSON Web Tokens with the claim iss.
	// The prefix eyJ matches JSON Web Tokens without this claim. No prefix may begin with the prefix
	// of another source. Mutually exclusive with issuer and opaque.
	Prefix string `json:"prefix,omitempty"`
	// opaque specifies whether all remaining tokens match, except JSON Web Tokens, bootstrap tokens
	// and tokens that other sources match. At most one source may set it. Mutually exclusive with
	// issuer and prefix. Defaults to false.
	Opaque bool `json:"opaque,omitempty"`
}

// TenantOfUser specifies how the answer of a service determines a tenant. Exactly one field must be
// set.
type TenantOfUser struct {
	// extra specifies the key of an extra. The extra must have exactly one value, which is the tenant.
	// The key must be in lower case and must not be reserved. Mutually exclusive with expression and
	// value.
	Extra string `json:"extra,omitempty"`
	// expression specifies a CEL expression with the variable user (username, uid, groups, extra). The
	// value of the expression is the tenant, and must be a string. Mutually exclusive with extra and
	// value.
	Expression string `json:"expression,omitempty"`
	// value specifies the tenant of every caller. Must be one of the tenants of the source. Mutually
	// exclusive with extra and expression.
	Value string `json:"value,omitempty"`
}
