// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

// Package tenant defines tenants, and how an identity names its tenant.
//
// A tenant is an [ID]. A caller of the API server belongs to at most one tenant. The
// authenticators of this project add the tenant to user.Info ([Bind]), and other packages read
// the tenant from user.Info ([Of]). If another program authenticated the caller, package authz
// determines the tenant. It uses the namespace of a service account, the group tenant:<id> of a
// certificate, or the names of the system tenant's callers ([SystemNames]). The label [Label] of
// a Namespace names the tenant that owns the namespace. A Namespace without the label belongs to
// the system tenant.
//
// The package has no state, does not read the clock, and performs no input or output.
package tenant
