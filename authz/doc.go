// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

// Package authz decides whether a request stays within the tenant of its caller.
//
// [Boundary] runs before the server's own authorizers (RBAC, Node, webhooks). It denies a request
// or delegates it to those authorizers. Except for its [Exception]s, it never allows a request
// itself. [Subjects] determines the tenant of a caller. [Owners] determines the owner of a
// namespace. [Scopes] determines whether a resource is namespaced.
//
// A server passes its requests through two filters. [WithRequestState] is the outermost filter. It
// removes the tenant part of a path and adds a state to the context of the request. [WithTenant] is
// the innermost filter, around the API handler. It limits lists to the objects of one tenant and
// binds an impersonated user to its tenant. The authenticator passes its result to [RecordCaller],
// so that the boundary can distinguish an impersonated user from the authenticated caller.
//
// The package does not verify credentials and does not import package authn. The two packages share
// only user.Info and tenant.ID.
package authz
