package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiserverv1 "k8s.io/apiserver/pkg/apis/apiserver/v1"
)

// ServiceAccount configures tokens of the cluster's own service accounts.
type ServiceAccount struct {
	// issuer is the claim iss of bound tokens: the first --service-account-issuer of the server. The
	// first source of this kind also claims the legacy tokens that stand in Secrets.
	// +required
	Issuer string `json:"issuer"`
	// keyFiles hold the public keys that verify them, PEM, each file one or more; private keys and
	// certificates will do. Watched.
	// +required
	KeyFiles []string `json:"keyFiles"`
	// audiences of the server. Default: the server's own (--api-audiences), else the issuer.
	// +optional
	Audiences []string `json:"audiences"`
	// requireTenantClaim refuses tokens without a signed tenant: those that another server issued,
	// and legacy ones. Default: false.
	// +optional
	RequireTenantClaim bool `json:"requireTenantClaim,omitempty"`
}

// OIDC configures one OpenID Connect issuer.
type OIDC struct {
	// jwt is an entry of jwt in upstream's AuthenticationConfiguration (apiserver.config.k8s.io/v1):
	// issuer, claimMappings, claimValidationRules, userValidationRules. Its extra mappings may not use
	// kubetenant.dev/, and egressSelectorType may not be set.
	// +required
	JWT apiserverv1.JWTAuthenticator `json:"jwt"`
	// tenant says whose the caller is.
	// +required
	Tenant TenantOfClaims `json:"tenant"`
}

// TenantOfClaims says how the claims of a token name a tenant. Exactly one field must be set.
type TenantOfClaims struct {
	// claim whose value, a string, is the tenant.
	Claim string `json:"claim,omitempty"`
	// expression in CEL, with the variable claims, that gives the tenant as a string.
	Expression string `json:"expression,omitempty"`
	// value is the tenant of every caller.
	Value string `json:"value,omitempty"`
}

// DomainBy says what of a Keystone domain is the tenant.
//
// +kubebuilder:validation:Enum=name;id
type DomainBy string

// What of a Keystone domain is the tenant.
const (
	DomainByName DomainBy = "name"
	DomainByID   DomainBy = "id"
)

// Keystone configures an OpenStack Keystone (Identity API v3).
type Keystone struct {
	// authURL of Keystone, with or without /v3 at its end.
	// +required
	AuthURL string `json:"authURL"`
	// cloud is the entry of cloudsFile with which the server logs in to validate tokens: a password or
	// an application credential. The role reader with system scope is enough.
	// +required
	Cloud string `json:"cloud"`
	// cloudsFile is a clouds.yaml. Watched.
	// +required
	CloudsFile string `json:"cloudsFile"`
	// domain is what of the user's domain names the tenant: name (default) or id.
	// +optional
	Domain DomainBy `json:"domain,omitempty"`
	// tenantMap maps domains, by what domain says, to tenants: for names that are no valid tenants.
	// +optional
	TenantMap map[string]string `json:"tenantMap,omitempty"`
	// legacyExtras sets the extras of k8s-keystone-auth too (alpha.kubernetes.io/identity/...).
	// Default: false.
	// +optional
	LegacyExtras bool `json:"legacyExtras,omitempty"`
	// match says which tokens are Keystone's, issuer excluded. Default: those that look so (gAAAA...,
	// or 32 hexadecimal digits).
	// +optional
	Match *TokenMatch `json:"match,omitempty"`
	// cache says how long a token is believed.
	// +optional
	Cache KeystoneCache `json:"cache,omitempty"`
}

// KeystoneCache says how long a token is believed. No time reaches beyond the token's own.
type KeystoneCache struct {
	// ttl of tokens that Keystone knows. Default: 5m.
	// +optional
	TTL *metav1.Duration `json:"ttl,omitempty"`
	// negativeTTL of tokens that it does not know. Default: 10s.
	// +optional
	NegativeTTL *metav1.Duration `json:"negativeTTL,omitempty"`
	// staleOnOutage is how long after ttl a token is believed while Keystone cannot be asked, at most
	// 24h. Default: 0s.
	// +optional
	StaleOnOutage *metav1.Duration `json:"staleOnOutage,omitempty"`
}

// Webhook configures an external TokenReview service (authentication.k8s.io/v1).
type Webhook struct {
	// kubeConfigFile says where the service is and how it is trusted, as
	// --authentication-token-webhook-config-file does. Watched.
	// +required
	KubeConfigFile string `json:"kubeConfigFile"`
	// match says which tokens the service is shown. No other is.
	// +required
	Match TokenMatch `json:"match"`
	// tenant says whose the caller is.
	// +required
	Tenant TenantOfUser `json:"tenant"`
}

// TokenMatch says which tokens a source is shown. Exactly one field must be set.
type TokenMatch struct {
	// issuer is the claim iss of JSON Web Tokens. No other source may have it.
	Issuer string `json:"issuer,omitempty"`
	// prefix begins tokens that are no JSON Web Tokens. No source's prefix may begin another's.
	Prefix string `json:"prefix,omitempty"`
	// opaque is every token that is neither a JSON Web Token, nor a bootstrap token, nor another
	// source's. At most one source may have it.
	Opaque bool `json:"opaque,omitempty"`
}

// TenantOfUser says how the answer of a service names a tenant. Exactly one field must be set.
type TenantOfUser struct {
	// extra whose one value is the tenant.
	Extra string `json:"extra,omitempty"`
	// expression in CEL, with the variable user (username, uid, groups, extra), that gives the tenant
	// as a string.
	Expression string `json:"expression,omitempty"`
	// value is the tenant of every caller.
	Value string `json:"value,omitempty"`
}
