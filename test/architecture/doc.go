// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

// Package architecture tests the structure of the code. For example, it checks the imports of
// each package, and the files to change when a source or a plugin is added.
package architecture
