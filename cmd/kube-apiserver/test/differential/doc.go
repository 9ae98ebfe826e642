// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

// Package differential holds the project's own evaluators against upstream's, decision by decision,
// and measures both in one run.
package differential
