// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

// Package architecture tests the structure of the project: the imports that each package may have,
// and the files that an addition changes.
package architecture
