// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

// Package reference tests the pages in docs/reference and the JSON schema of the configuration
// file. The tests also write the pages of metrics, audit annotations, labels and annotations:
// UPDATE_GOLDEN=1 go test ./test/reference.
package reference
