// Package kubetenant gives a server an authenticator, an authorizer and admission plugins that know
// tenants. It builds them from a TenancyConfiguration and from what the server provides.
//
// A server replaces its authenticator, authorizer and rule resolver by those of the [Stack]. It adds
// the plugins of Admission to its admission chain, in front of the mutating webhooks. Its handler
// chain becomes
//
//	stack.WithRequestState(buildHandlerChain(stack.WithTenant(apiHandler)))
//
// All of these follow the configuration file and the files that it names.
package kubetenant
