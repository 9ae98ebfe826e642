// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

// Package authz decides whether a request stays on its own side of the line between tenants.
//
// [Boundary] stands before everything the server had of its own (RBAC, Node, webhooks). It never
// allows anything itself: it denies, or it leaves the request to its delegate. What it needs to
// know is answered by [Subjects] (whose is the caller), [Owners] (whose is a namespace) and
// [Scopes] (is a resource namespaced).
//
// A server runs its requests through two filters: [WithRequestState] outermost, which takes the
// tenant part off a path and puts a note into the request's context, and [WithTenant] innermost,
// around the API handler, which limits lists to the tenant and binds an impersonated user to its
// tenant. The authenticator's answer goes through [NoteCaller], so that the boundary can tell an
// impersonated user from the real caller.
//
// The package never learns a credential and does not import package authn: they meet only in
// user.Info and tenant.ID.
package authz
