// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

// Package kubetenant gives an API server an authenticator, an authorizer and admission plugins that
// know tenants.
//
// [Open] builds a [Stack] from a configuration file and from what the server provides, a [Config].
// [Stack.Apply] puts it into the configuration of a server that is built with k8s.io/apiserver.
// Other servers use the fields of the Stack, and wrap their handlers:
//
//	stack.WithRequestState(authenticate(authorize(stack.WithTenant(api))))
//
// The Stack follows the configuration file, and the files that it names. A new version takes effect
// as a whole, or not at all if anything in it is wrong.
package kubetenant
