// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

// Package tenant defines what a tenant is and how an identity names its tenant.
//
// A tenant is an [ID]. A caller of the API server belongs to exactly one tenant. The authenticators
// of this project add the tenant to user.Info ([Bind]), and all other packages read the tenant from
// there ([Of]). The label [Label] of a Namespace names the tenant that owns the namespace. A
// Namespace without the label belongs to the system tenant. This package never infers a tenant from
// a user name.
//
// The package has no state, does not read the clock, and performs no input or output.
package tenant
