// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package reference

import "slices"

// An IdentityRule is a rule about the identities of callers, with its enforcement in each
// deployment mode.
type IdentityRule struct {
	// Rule is a sentence for operators.
	Rule string
	// CompiledIn, Webhook, Gateway and Library are the deployment modes. None may be empty.
	CompiledIn, Webhook, Gateway, Library Enforcement
	// Shown are the scenario files and tests of the rule.
	Shown []string
}

// An Enforcement describes how a deployment mode enforces a rule: the code, or the reason why it
// does not.
type Enforcement struct {
	// Code contains entries in the form "file:function".
	Code []string
	// Note specifies the callers that the rule applies to. If Code is empty, it is the reason why
	// the mode does not enforce the rule.
	Note string
}

// Functions that enforce rules.
const (
	inSources     = "authn/hygiene.go:clean"
	inNames       = "authn/hygiene.go:Check"
	inBuiltIn     = "authn/builtin.go:cleanBuiltIn"
	inForm        = "authz/resolve.go:checkForm"
	inSystemGroup = "authz/subject.go:inForeignSystemGroup"
	inByRule      = "authz/subject.go:ByRule"
	inStated      = "authz/subject.go:stated"
	inToken       = "authn/token.go:wellFormed" // #nosec G101 -- a function
	inCertificate = "authn/certificates.go:checkPresented"
	inRevoked     = "authn/revocation.go:unrevoked"
	inResolve     = "authz/resolve.go:resolve"
	inLineage     = "authn/lineage.go:check"
	inReview      = "authz/decide.go:decideImpersonation"
	inWhom        = "authz/subject.go:impersonated"
	inRBAC        = "authz/rbac/evaluator.go:Authorize"
	inCheckFile   = "internal/manifests/webhook/check_control_plane.go:checkAuthentication"
)

func by(note string, code ...string) Enforcement { return Enforcement{Code: code, Note: note} }

func not(reason string) Enforcement { return Enforcement{Note: reason} }

// Callers that rules apply to, and a reason.
const (
	ownSources   = "sources of kubetenant"
	serverItself = "kube-apiserver authenticates the caller itself"
	allCallers   = "all callers"
)

// IdentityRules returns the rules for identities.
func IdentityRules() []IdentityRule {
	return slices.Concat(rulesOfNames(), rulesOfTenants(), rulesOfCredentials())
}

// rulesOfNames returns the rules for the parts of an identity.
func rulesOfNames() []IdentityRule {
	everywhere := by(allCallers, inSources, inBuiltIn, inForm)
	extras := by(allCallers, inSources, inBuiltIn)
	names := by(allCallers, inSources, inNames)
	return []IdentityRule{
		{
			Rule: "A user name, UID or group is valid UTF-8, has no white space at its beginning or end, and no " +
				"invisible character.",
			CompiledIn: everywhere,
			Webhook:    by("401 by its sources. 403 for callers of tenants if "+serverItself, inSources, inForm),
			Gateway:    everywhere,
			Library:    everywhere,
			Shown:      []string{"identity-names.yaml", "subject.yaml", "TestWellFormed"},
		},
		{
			Rule: "The key of an extra follows the same rule. Its value has no white space at its beginning or end, and " +
				"no control character.",
			CompiledIn: extras,
			Webhook:    by("its sources. No server decides by the extras of other callers", inSources),
			Gateway:    extras,
			Library:    extras,
			Shown:      []string{"identity-names.yaml"},
		},
		{
			Rule:       "An identity is at most as large as `authentication.limits` allows.",
			CompiledIn: everywhere,
			Webhook:    by("401 by its sources. 403 for callers of tenants if "+serverItself, inSources, inForm),
			Gateway:    everywhere,
			Library:    everywhere,
			Shown:      []string{"TestIdentityForm", "TestLimits"},
		},
		{
			Rule:       "A caller of a tenant has no name that is reserved for the system tenant.",
			CompiledIn: names,
			Webhook:    by("its sources, and certificates that name a tenant (`subject.fromGroups`)", inNames, inByRule),
			Gateway:    names,
			Library:    names,
			Shown:      []string{"identity-names.yaml", "subject.yaml"},
		},
		{
			Rule:       "A caller of a tenant is in no group that begins with `system:`, except the groups that servers add.",
			CompiledIn: by(allCallers, inNames, inSystemGroup),
			Webhook: by(allCallers+" except `system:masters`, which kube-apiserver allows before it calls a webhook",
				inSystemGroup),
			Gateway: by(allCallers, inNames, inSystemGroup),
			Library: by(allCallers, inNames, inSystemGroup),
			Shown:   []string{"subject.yaml"},
		},
		{
			Rule: "No credential contains a group `tenant:<id>`, an extra below `kubetenant.dev/`, or, from a remote " +
				"source, an extra below `kubernetes.io/` or `k8s.io/`.",
			CompiledIn: by(allCallers, inSources, inBuiltIn),
			Webhook: by("its sources. `generate --check` reports claims of kube-apiserver's own issuers that could assert a "+
				"tenant", inSources, inCheckFile),
			Gateway: by(allCallers, inSources),
			Library: by(allCallers, inSources, inBuiltIn),
			Shown:   []string{"identity-webhook.yaml", "identity-oidc.yaml"},
		},
	}
}

// rulesOfTenants returns the rules for the tenant of an identity.
func rulesOfTenants() []IdentityRule {
	names := by(allCallers, inSources, inNames)
	return []IdentityRule{
		{
			Rule:       "An identity names exactly one tenant, in one spelling.",
			CompiledIn: by(allCallers, inSources, inByRule),
			Webhook:    by(allCallers, inByRule),
			Gateway:    by(allCallers, inSources, inByRule),
			Library:    by(allCallers, inSources, inByRule),
			Shown:      []string{"subject.yaml"},
		},
		{
			Rule:       "A source asserts only the tenants in its `tenants`.",
			CompiledIn: names,
			Webhook: by("its sources. A certificate names the tenant that its authority signs (`subject.fromGroups`): the "+
				"authorities in kube-apiserver's --client-ca-file are trusted for every tenant", inNames),
			Gateway: names,
			Library: names,
			Shown:   []string{"identity-oidc.yaml", "identity-x509.yaml"},
		},
		{
			Rule:       "A service account belongs to the tenant that owns its namespace.",
			CompiledIn: by(allCallers, inStated),
			Webhook:    by(allCallers, inStated),
			Gateway:    by(allCallers, inStated),
			Library:    by(allCallers, inStated),
			Shown:      []string{"subject.yaml", "identity-serviceaccounts.yaml"},
		},
		{
			Rule:       "A certificate does not have the name of a service account.",
			CompiledIn: names,
			Webhook:    by(allCallers, inStated),
			Gateway:    names,
			Library:    names,
			Shown:      []string{"subject.yaml"},
		},
	}
}

// rulesOfCredentials returns the rules for credentials, and for impersonation.
func rulesOfCredentials() []IdentityRule {
	return []IdentityRule{
		{
			Rule:       "A revoked caller is denied.",
			CompiledIn: by("401", inRevoked, inResolve),
			Webhook:    by("401 by its sources, 403 if "+serverItself, inRevoked, inResolve),
			Gateway:    by("401, and 403 for impersonated users", inRevoked, inResolve),
			Library:    by("401 if the server uses the chain of sources, else 403", inRevoked, inResolve),
			Shown:      []string{"revocation.yaml"},
		},
		{
			Rule:       "A credential of a deleted tenant is not valid for a new tenant of the same name.",
			CompiledIn: by(allCallers, inLineage),
			Webhook:    by("its sources, and certificates that name a tenant", inLineage, inByRule),
			Gateway:    by(allCallers, inLineage),
			Library:    by(allCallers, inLineage),
			Shown:      []string{"tenant-lifecycle.yaml"},
		},
		{
			Rule:       "A client presents at most 8 certificates of 32 KiB in total, without bytes after a signature.",
			CompiledIn: by(allCallers, inCertificate),
			Webhook:    not("kube-apiserver verifies certificates itself, and the service does not receive them"),
			Gateway:    by(allCallers, inCertificate),
			Library:    by("servers that use the chain of sources", inCertificate),
			Shown:      []string{"TestLongChains", "TestOneEncoding"},
		},
		{
			Rule:       "A token has no invisible character, has no claim twice, and has at most 64 KiB.",
			CompiledIn: by(allCallers, inToken),
			Webhook:    by("its sources. The service does not receive tokens of kube-apiserver's own authenticators", inToken),
			Gateway:    by(ownSources+", and tokens of a cluster's service accounts", inToken),
			Library:    by("servers that use the chain of sources", inToken),
			Shown:      []string{"identity-oidc.yaml"},
		},
		{
			Rule:       "A caller of a tenant impersonates only identities of its own tenant.",
			CompiledIn: by(allCallers, inReview, inWhom),
			Webhook: by("the service decides the review of the verb impersonate. The impersonated identity names its tenant "+
				"itself, since the service does not receive the caller", inReview),
			Gateway: by("the cluster's RBAC must allow it too", inReview, inWhom),
			Library: by(allCallers, inReview, inWhom),
			Shown:   []string{"impersonation.yaml"},
		},
	}
}

// BindingLimits returns the limits of RoleBindings and ClusterRoleBindings, with the modes that
// enforce them.
func BindingLimits() []IdentityRule {
	const indexed = "if `authorization.rbac.evaluator` is Indexed, the default"
	webhook := by(indexed+", and `authorization.mode` is Enforce. The service denies what only such a binding would "+
		"allow, since kube-apiserver's own RBAC does not know limits", inRBAC)
	gateway := not("the cluster's own RBAC decides and ignores the annotation. Do not use it behind a gateway")
	return []IdentityRule{
		{
			Rule:       "`kubetenant.dev/scope` limits a ClusterRoleBinding to tenants.",
			CompiledIn: by(indexed, inRBAC),
			Webhook:    webhook,
			Gateway:    gateway,
			Library:    by("if the server passes its RBAC to the library, and "+indexed[3:], inRBAC),
			Shown:      []string{"rbac.yaml"},
		},
		{
			Rule:       "`kubetenant.dev/expires` ends a binding.",
			CompiledIn: by(indexed, inRBAC),
			Webhook:    webhook,
			Gateway:    gateway,
			Library:    by("if the server passes its RBAC to the library, and "+indexed[3:], inRBAC),
			Shown:      []string{"rbac-expires.yaml"},
		},
	}
}
