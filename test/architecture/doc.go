// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

// Package architecture tests the structure of the project: which imports each package may have, and
// which files must be changed for an addition.
package architecture
