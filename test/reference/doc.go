// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

// Package reference tests the pages in docs/reference and the JSON schema of the configuration
// file. The command "UPDATE_GOLDEN=1 go test ./test/reference" also writes the pages about
// metrics, audit annotations, labels and annotations.
package reference
