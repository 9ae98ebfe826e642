// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

// Package tenant says what a tenant is, and how an identity carries one.
//
// A tenant is an [ID]. A caller of the API server belongs to exactly one: the authenticators of
// this project write it into user.Info ([Bind]), everything else reads it from there ([Of]). A
// Namespace says with the label [Label] whose it is; without it, it is the system tenant's.
// A tenant is never guessed from a user name.
//
// The package is pure: it holds no state, reads no clock and does no input or output.
package tenant
