// Package kubetenant puts the parts of the project together for a server: from a
// TenancyConfiguration and what the server has of its own to an authenticator, an authorizer and
// admission plugins that know tenants.
//
// A server uses the [Stack] so: its handler chain becomes
//
//	stack.WithRequestState(buildHandlerChain(stack.WithTenant(apiHandler)))
//
// with the Stack's Authenticator, Authorizer and RuleResolver in place of its own, and the plugins
// of Admission in its admission chain before the mutating webhooks. All of it follows the
// configuration file and the files that it names.
package kubetenant
