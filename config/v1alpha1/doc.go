// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

// Package v1alpha1 holds the files of the group kubetenant.dev/v1alpha1 that a server reads: the
// [TenancyConfiguration] and the [Revocation] list. It also holds the [Published] configuration of
// a running server.
//
// Each file is read in the same steps: decode strictly, default, validate. Unknown, duplicate and
// misspelled fields fail. Validation is pure and reports every problem at its field.
//
// [Load] opens only the file itself. It opens no file that the configuration names, and it calls no
// identity provider.
//
// The JSON schema of the configuration file and its reference page are generated from the types and
// their comments. Run "make generate" after a change.
//
// +groupName=kubetenant.dev
package v1alpha1
