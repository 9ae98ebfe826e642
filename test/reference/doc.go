// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

// Package reference has the tests of the pages in docs/reference and of the JSON schema of the
// configuration file. The pages of metrics, audit annotations, labels and annotations are written
// by these tests: UPDATE_GOLDEN=1 go test ./test/reference.
package reference
