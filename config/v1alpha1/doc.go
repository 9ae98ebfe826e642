// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

// Package v1alpha1 contains the kinds of the files in the group kubetenant.dev/v1alpha1 that a
// server reads: [TenancyConfiguration] and [Revocation]. It also contains the [Published]
// configuration of a running server.
//
// Each file is decoded strictly, defaulted and validated, in this order. Unknown, duplicate and
// misspelled fields are errors. Validation is pure and reports every problem at its field.
//
// [Load] opens only the configuration file itself. It opens no file that the configuration names,
// and it calls no identity provider.
//
// The JSON schema of the configuration file and its reference page are generated from the types and
// their comments. Run "make generate" after a change.
//
// +groupName=kubetenant.dev
package v1alpha1
