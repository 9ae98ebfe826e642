// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

// Package differential compares the project's evaluators with upstream's, decision by decision. Its
// benchmarks measure both in one run.
package differential
