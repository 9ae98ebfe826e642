// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

// Package kubetenant adds tenants to an API server. It provides an authenticator, an authorizer and
// admission plugins.
//
// [Open] builds a [Stack] from a configuration file and a [Config], which contains the parts that
// the server provides. [Stack.Apply] adds the Stack to the configuration of a server that is built
// with k8s.io/apiserver. Other servers use the fields of the Stack and wrap their handlers:
//
//	stack.WithRequestState(authenticate(authorize(stack.WithTenant(api))))
//
// The Stack reloads the configuration file, and the files that the configuration names, when they
// change. A new version takes effect as a whole. If it contains an error, the old version remains
// in effect.
package kubetenant
