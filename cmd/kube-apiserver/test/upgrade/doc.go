// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

// Package upgrade tests upgrades and rollbacks between the commands of two releases, as
// docs/tasks/upgrade.md documents them. "make test-upgrade" builds both and runs the tests.
package upgrade
