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
	// the server. The first source of this kind also claims legacy tokens in Secrets. Required.
	// +required
	Issuer string `json:"issuer"`
	// keyFiles specifies the paths of PEM files with the public keys that verify tokens. A file may
	// contain several keys, and also private keys or certificates. The server reloads a file when it
	// changes. Required.
	// +required
	KeyFiles []string `json:"keyFiles"`
	// audiences specifies the audiences of the server. Defaults to the server's --api-audiences, or
	// else to issuer.
	// +optional
	Audiences []string `json:"audiences"`
	// requireTenantClaim specifies whether a token without a signed tenant is denied. Legacy tokens
	// and tokens that another server issued have none. Defaults to false.
	// +optional
	RequireTenantClaim bool `json:"requireTenantClaim,omitempty"`
}

// OIDC configures one OpenID Connect issuer.
type OIDC struct {
	// jwt specifies the issuer, as an entry of jwt in an AuthenticationConfiguration
	// (apiserver.config.k8s.io/v1). Its extra mappings must not use keys of kubetenant.dev. Prefixes
	// must not make reserved names. egressSelectorType must not be set. Required.
	// +required
	JWT apiserverv1.JWTAuthenticator `json:"jwt"`
	// tenant specifies how the claims of a token determine the tenant of the caller. Required.
	// +required
	Tenant TenantOfClaims `json:"tenant"`
}

// TenantOfClaims specifies how the claims of a token determine a tenant. Exactly one field must be
// set.
type TenantOfClaims struct {
	// claim specifies the name of a claim. Its value must be a string, the tenant. Mutually exclusive
	// with expression and value.
	Claim string `json:"claim,omitempty"`
	// expression specifies a CEL expression with the variable claims. Its value must be a string, the
	// tenant. Mutually exclusive with claim and value.
	Expression string `json:"expression,omitempty"`
	// value specifies the tenant of every caller. Must be one of the tenants of the source. Mutually
	// exclusive with claim and expression.
	Value string `json:"value,omitempty"`
}

// DomainBy specifies which attribute of a Keystone domain is the tenant.
//
// +kubebuilder:validation:Enum=name;id
type DomainBy string

// What of a Keystone domain is the tenant.
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
	// cloud specifies the entry of cloudsFile that the server uses to validate tokens. It has a
	// password or an application credential. The role reader with system scope is enough. Required.
	// +required
	Cloud string `json:"cloud"`
	// cloudsFile specifies the path of a clouds.yaml. The server reloads the file when it changes.
	// Required.
	// +required
	CloudsFile string `json:"cloudsFile"`
	// domain specifies which attribute of the user's domain is the tenant: name or id. Defaults to
	// name.
	// +optional
	Domain DomainBy `json:"domain,omitempty"`
	// scopes specifies which tokens are accepted, by their scope: project, domain or system. A token
	// with scope project or domain belongs to the tenant of the user's domain. A token with scope
	// system belongs to the system tenant, which must then be one of the tenants of the source. Must
	// not be empty or contain duplicates. Defaults to [project].
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:UniqueItems=true
	// +optional
	Scopes []KeystoneScope `json:"scopes"`
	// tenantMap specifies the tenants of domains. The keys are names or IDs of domains, as domain
	// specifies. Use it for domains whose name is not a valid tenant, and for domains of the system
	// tenant. Values must be tenants of the source. Defaults to none.
	// +optional
	TenantMap map[string]string `json:"tenantMap,omitempty"`
	// legacyExtras specifies whether the extras of k8s-keystone-auth
	// (alpha.kubernetes.io/identity/...) are set too. Defaults to false.
	// +optional
	LegacyExtras bool `json:"legacyExtras,omitempty"`
	// match specifies which tokens are sent to Keystone. match.issuer is not allowed. Required for a
	// second source of this kind. Defaults to tokens that begin with gAAAA, tokens of 32 hexadecimal
	// digits, and JSON Web Tokens with claims openstack_* and without the claim iss.
	// +optional
	Match *TokenMatch `json:"match,omitempty"`
	// cache specifies how long a validated token is cached.
	// +optional
	Cache KeystoneCache `json:"cache,omitempty"`
	// sync specifies that the cluster follows the projects and roles of this Keystone. At most one source
	// may have it. If empty, projects have no effect on namespaces.
	// +optional
	Sync *KeystoneSync `json:"sync,omitempty"`
}

// KeystoneCache specifies how long a token is cached. No token is cached beyond its own expiry.
type KeystoneCache struct {
	// ttl specifies how long a valid token is cached. Must be between 0s and 24h. Defaults to 5m.
	// +optional
	TTL *metav1.Duration `json:"ttl,omitempty"`
	// negativeTTL specifies how long an invalid token is cached. Must be between 0s and 24h. Defaults
	// to 10s.
	// +optional
	NegativeTTL *metav1.Duration `json:"negativeTTL,omitempty"`
	// staleOnOutage specifies how long after ttl a cached token is still valid while Keystone is not
	// available. Must be between 0s and 24h. Defaults to 0s.
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
	// match specifies which tokens are sent to the service. No other token is sent. Required.
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
	// prefix specifies how tokens begin, except JSON Web Tokens with the claim iss. The prefix eyJ
	// matches JSON Web Tokens without this claim. No prefix may be a prefix of another source's.
	// Mutually exclusive with issuer and opaque.
	Prefix string `json:"prefix,omitempty"`
	// opaque specifies whether all remaining tokens match. JSON Web Tokens, bootstrap tokens and
	// tokens of other sources are excluded. At most one source may set it. Mutually exclusive with
	// issuer and prefix. Defaults to false.
	Opaque bool `json:"opaque,omitempty"`
}

// TenantOfUser specifies how the answer of a service determines a tenant. Exactly one field must be
// set.
type TenantOfUser struct {
	// extra specifies the key of an extra. Its only value is the tenant. Must be lower-case and not
	// reserved. Mutually exclusive with expression and value.
	Extra string `json:"extra,omitempty"`
	// expression specifies a CEL expression with the variable user (username, uid, groups, extra). Its
	// value must be a string, the tenant. Mutually exclusive with extra and value.
	Expression string `json:"expression,omitempty"`
	// value specifies the tenant of every caller. Must be one of the tenants of the source. Mutually
	// exclusive with extra and expression.
	Value string `json:"value,omitempty"`
}
