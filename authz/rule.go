// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package authz

// A Rule is the rule of the boundary that delegates a request. Tools that explain a decision print
// the rule. A denied request has a [Reason] instead.
type Rule string

// The rules.
const (
	RuleSystem          Rule = "system tenant: every request"
	RuleUnbound         Rule = "no tenant: allowed for every caller"
	RulePath            Rule = "tenant: discovery, schemas and paths that every caller may read"
	RuleOwn             Rule = "tenant: in a namespace of the tenant"
	RuleMissing         Rule = "tenant: in a namespace that does not exist, with a name reserved for the tenant"
	RuleCreateNamespace Rule = "tenant: a new namespace, which admission assigns to the tenant"
	RuleLimited         Rule = "tenant: across all namespaces, limited to those of the tenant"
	RuleSelfReview      Rule = "tenant: a review of the caller itself"
	RuleReview          Rule = "tenant: a review of tokens and subjects of the tenant"
	RuleShared          Rule = "tenant: reading a shared cluster-scoped resource"
	RuleOwnObject       Rule = "tenant: an object that describes the tenant"
	RuleImpersonation   Rule = "tenant: impersonating an identity of the tenant"
	RuleClusterRead     Rule = "tenant path: the system tenant reads a cluster-scoped resource or a path"
)
