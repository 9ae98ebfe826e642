package authz

// A Rule is the row of the boundary's table by which a request was delegated, for whoever explains
// a decision. What is denied has a [Reason] instead.
type Rule string

// The rows.
const (
	RuleSystem          Rule = "system tenant: anything"
	RuleUnbound         Rule = "no tenant: open to everybody"
	RulePath            Rule = "tenant: discovery, schemas and open paths"
	RuleOwn             Rule = "tenant: in a namespace of its own"
	RuleMissing         Rule = "tenant: in a namespace that does not exist, of a name that is its own"
	RuleCreateNamespace Rule = "tenant: a new Namespace, which admission gives it"
	RuleLimited         Rule = "tenant: over all namespaces, limited to its own"
	RuleSelfReview      Rule = "tenant: a review of itself"
	RuleReview          Rule = "tenant: a review of its own tokens and subjects"
	RuleShared          Rule = "tenant: a shared cluster-scoped resource, to read"
	RuleOwnObject       Rule = "tenant: an object that is about it"
	RuleImpersonation   Rule = "tenant: whom it may impersonate"
	RuleClusterRead     Rule = "tenant path: the system tenant reads what is in no space"
)
