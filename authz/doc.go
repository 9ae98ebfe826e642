// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

// Package authz decides whether a request stays within its caller's tenant.
//
// [Boundary] runs before the server's own authorizers (RBAC, Node, webhooks). It denies a request
// or delegates it to those authorizers. Except for its [Exception]s, it never allows a request
// itself. [Subjects] determines the tenant of a caller. [Owners] determines the owner of a
// namespace. [Scopes] determines whether a resource is namespaced.
//
// A server passes its requests through two filters. [WithRequestState] is the outermost filter.
// It removes the tenant part, such as /tenants/acme, from a path. It also adds a state to the
// context of the request. [WithTenant] is the innermost filter, around the API handler. It limits
// lists to the objects of one tenant and adds the tenant to an impersonated user. The
// authenticator passes its result to [RecordCaller], so that the boundary can distinguish an
// impersonated user from the authenticated caller.
//
// The package does not verify credentials and does not import package authn. The two packages
// share only user.Info and tenant.ID.
package authz
