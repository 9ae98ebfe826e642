// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package reference

import "slices"

// An IdentityRule is a rule about the identities of callers. It specifies where each deployment
// mode enforces the rule.
type IdentityRule struct {
	// Rule is a sentence for operators.
	Rule string
	// CompiledIn, Webhook, Gateway and Library describe the enforcement in each deployment mode.
	// They must be set.
	CompiledIn, Webhook, Gateway, Library Enforcement
	// Shown contains the scenario files and the tests that check the rule.
	Shown []string
}

// An Enforcement describes the code with which a deployment mode enforces a rule, or why the mode
// does not enforce the rule.
type Enforcement struct {
	// Code contains functions in the form "file:function".
	Code []string
	// Note specifies the callers to which the rule applies. If Code is empty, Note is the reason
	// why the mode does not enforce the rule.
	Note string
}

// The functions that enforce the rules, in the form "file:function".
const (
	inSources     = "authn/identityrules.go:mapUser"
	inNames       = "authn/identityrules.go:Check"
	inBuiltIn     = "authn/builtin.go:validatedBuiltIn"
	inForm        = "authz/resolve.go:checkForm"
	inSystemGroup = "authz/subject.go:inForeignSystemGroup"
	inByRule      = "authz/subject.go:TenantWithRule"
	inStated      = "authz/subject.go:statedTenant"
	inToken       = "authn/token.go:wellFormed" // #nosec G101 -- a function
	inCertificate = "authn/certificates.go:checkPresented"
	inRevoked     = "authn/revocation.go:withRevocation"
	inResolve     = "authz/resolve.go:resolve"
	inLineage     = "authn/lineage.go:check"
	inReview      = "authz/decide.go:decideImpersonation"
	inWhom        = "authz/subject.go:impersonatedTenant"
	inRBAC        = "authz/rbac/evaluator.go:Authorize"
	inCheckFile   = "internal/manifests/webhook/check_control_plane.go:checkAuthentication"
)

func enforcedBy(note string, code ...string) Enforcement { return Enforcement{Code: code, Note: note} }

func notEnforced(reason string) Enforcement { return Enforcement{Note: reason} }

// Parts of several notes.
const (
	ownSources   = "sources of kubetenant"
	serverItself = "kube-apiserver authenticates the caller itself"
	allCallers   = "all callers"
)

// IdentityRules returns the rules for the identities of callers.
func IdentityRules() []IdentityRule {
	return slices.Concat(rulesOfNames(), rulesOfTenants(), rulesOfCredentials())
}

// rulesOfNames returns the rules for the names and extras of an identity.
func rulesOfNames() []IdentityRule {
	everywhere := enforcedBy(allCallers, inSources, inBuiltIn, inForm)
	extras := enforcedBy(allCallers, inSources, inBuiltIn)
	names := enforcedBy(allCallers, inSources, inNames)
	return []IdentityRule{
		{
			Rule: "A user name, UID or group is valid UTF-8, has no white space at its beginning or end, and no " +
				"invisible character.",
			CompiledIn: everywhere,
			Webhook:    enforcedBy("401 by its sources. 403 for callers of tenants if "+serverItself, inSources, inForm),
			Gateway:    everywhere,
			Library:    everywhere,
			Shown:      []string{"identity-names.yaml", "subject.yaml", "TestWellFormed"},
		},
		{
			Rule: "The key of an extra follows the same rule. Its value has no white space at its beginning or end, and " +
				"no control character.",
			CompiledIn: extras,
			Webhook:    enforcedBy("its sources. No server decides by the extras of other callers", inSources),
			Gateway:    extras,
			Library:    extras,
			Shown:      []string{"identity-names.yaml"},
		},
		{
			Rule:       "An identity is at most as large as `authentication.limits` allows.",
			CompiledIn: everywhere,
			Webhook:    enforcedBy("401 by its sources. 403 for callers of tenants if "+serverItself, inSources, inForm),
			Gateway:    everywhere,
			Library:    everywhere,
			Shown:      []string{"TestIdentityForm", "TestLimits"},
		},
		{
			Rule:       "A caller of a tenant has no name that is reserved for the system tenant.",
			CompiledIn: names,
			Webhook:    enforcedBy("its sources, and certificates that name a tenant (`subject.fromGroups`)", inNames, inByRule),
			Gateway:    names,
			Library:    names,
			Shown:      []string{"identity-names.yaml", "subject.yaml"},
		},
		{
			Rule:       "A caller of a tenant is in no group that begins with `system:`, except the groups that servers add.",
			CompiledIn: enforcedBy(allCallers, inNames, inSystemGroup),
			Webhook: enforcedBy(allCallers+" except `system:masters`, which kube-apiserver allows before it calls a webhook",
				inSystemGroup),
			Gateway: enforcedBy(allCallers, inNames, inSystemGroup),
			Library: enforcedBy(allCallers, inNames, inSystemGroup),
			Shown:   []string{"subject.yaml"},
		},
		{
			Rule: "No credential contains a group `tenant:<id>`, an extra below `kubetenant.dev/`, or, from a remote " +
				"source, an extra below `kubernetes.io/` or `k8s.io/`.",
			CompiledIn: enforcedBy(allCallers, inSources, inBuiltIn),
			Webhook: enforcedBy(
				"its sources. `kubectl tenant validate` reports claims of kube-apiserver's own issuers that could assert a "+
					"tenant",
				inSources,
				inCheckFile,
			),
			Gateway: enforcedBy(allCallers, inSources),
			Library: enforcedBy(allCallers, inSources, inBuiltIn),
			Shown:   []string{"identity-webhook.yaml", "identity-oidc.yaml"},
		},
	}
}

// rulesOfTenants returns the rules for the tenant of an identity.
func rulesOfTenants() []IdentityRule {
	names := enforcedBy(allCallers, inSources, inNames)
	return []IdentityRule{
		{
			Rule:       "An identity names exactly one tenant, in one spelling.",
			CompiledIn: enforcedBy(allCallers, inSources, inByRule),
			Webhook:    enforcedBy(allCallers, inByRule),
			Gateway:    enforcedBy(allCallers, inSources, inByRule),
			Library:    enforcedBy(allCallers, inSources, inByRule),
			Shown:      []string{"subject.yaml"},
		},
		{
			Rule:       "A source asserts only the tenants in its `tenants`.",
			CompiledIn: names,
			Webhook: enforcedBy(
				"its sources. A certificate names the tenant that its authority signs (`subject.fromGroups`): the "+
					"authorities in kube-apiserver's --client-ca-file are trusted for every tenant",
				inNames,
			),
			Gateway: names,
			Library: names,
			Shown:   []string{"identity-oidc.yaml", "identity-x509.yaml"},
		},
		{
			Rule:       "A service account belongs to the tenant that owns its namespace.",
			CompiledIn: enforcedBy(allCallers, inStated),
			Webhook:    enforcedBy(allCallers, inStated),
			Gateway:    enforcedBy(allCallers, inStated),
			Library:    enforcedBy(allCallers, inStated),
			Shown:      []string{"subject.yaml", "identity-serviceaccounts.yaml"},
		},
		{
			Rule:       "A certificate does not have the name of a service account.",
			CompiledIn: names,
			Webhook:    enforcedBy(allCallers, inStated),
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
			CompiledIn: enforcedBy("401", inRevoked, inResolve),
			Webhook:    enforcedBy("401 by its sources, 403 if "+serverItself, inRevoked, inResolve),
			Gateway:    enforcedBy("401, and 403 for impersonated users", inRevoked, inResolve),
			Library:    enforcedBy("401 if the server uses the chain of sources, else 403", inRevoked, inResolve),
			Shown:      []string{"revocation.yaml"},
		},
		{
			Rule:       "A credential of a deleted tenant is not valid for a new tenant of the same name.",
			CompiledIn: enforcedBy(allCallers, inLineage),
			Webhook:    enforcedBy("its sources, and certificates that name a tenant", inLineage, inByRule),
			Gateway:    enforcedBy(allCallers, inLineage),
			Library:    enforcedBy(allCallers, inLineage),
			Shown:      []string{"tenant-lifecycle.yaml"},
		},
		{
			Rule:       "A client presents at most 8 certificates of 32 KiB in total, without bytes after a signature.",
			CompiledIn: enforcedBy(allCallers, inCertificate),
			Webhook:    notEnforced("kube-apiserver verifies certificates itself, and the service does not receive them"),
			Gateway:    enforcedBy(allCallers, inCertificate),
			Library:    enforcedBy("servers that use the chain of sources", inCertificate),
			Shown:      []string{"TestLongChainsAreRejected", "TestReencodedCertificatesAreRejectedOrRevoked"},
		},
		{
			Rule:       "A token has no invisible character, has no claim twice, and has at most 64 KiB.",
			CompiledIn: enforcedBy(allCallers, inToken),
			Webhook: enforcedBy(
				"its sources. The service does not receive tokens of kube-apiserver's own authenticators",
				inToken,
			),
			Gateway: enforcedBy(ownSources+", and tokens of a cluster's service accounts", inToken),
			Library: enforcedBy("servers that use the chain of sources", inToken),
			Shown:   []string{"identity-oidc.yaml"},
		},
		{
			Rule:       "A caller of a tenant impersonates only identities of its own tenant.",
			CompiledIn: enforcedBy(allCallers, inReview, inWhom),
			Webhook: enforcedBy(
				"the service decides the review of the verb impersonate. The impersonated identity names its tenant "+
					"itself, since the service does not receive the caller",
				inReview,
			),
			Gateway: enforcedBy("the cluster's RBAC must allow it too", inReview, inWhom),
			Library: enforcedBy(allCallers, inReview, inWhom),
			Shown:   []string{"impersonation.yaml"},
		},
	}
}

// BindingLimits returns the limits of RoleBindings and ClusterRoleBindings, and the deployment
// modes that enforce them.
func BindingLimits() []IdentityRule {
	const indexed = "if `authorization.rbac.evaluator` is Indexed, the default"
	webhook := enforcedBy(
		indexed+", and `authorization.mode` is Enforce. The service denies what only such a binding would "+
			"allow, since kube-apiserver's own RBAC does not know limits",
		inRBAC,
	)
	gateway := notEnforced("the cluster's own RBAC decides and ignores the annotation. Do not use it behind a gateway")
	return []IdentityRule{
		{
			Rule:       "`kubetenant.dev/scope` limits a ClusterRoleBinding to tenants.",
			CompiledIn: enforcedBy(indexed, inRBAC),
			Webhook:    webhook,
			Gateway:    gateway,
			Library:    enforcedBy("if the server passes its RBAC to the library, and "+indexed[3:], inRBAC),
			Shown:      []string{"rbac.yaml"},
		},
		{
			Rule:       "`kubetenant.dev/expires` ends a binding.",
			CompiledIn: enforcedBy(indexed, inRBAC),
			Webhook:    webhook,
			Gateway:    gateway,
			Library:    enforcedBy("if the server passes its RBAC to the library, and "+indexed[3:], inRBAC),
			Shown:      []string{"rbac-expires.yaml"},
		},
	}
}
