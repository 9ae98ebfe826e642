// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

// Package architecture tests the structure of the project: which package may import which, and what
// an addition touches.
package architecture
