// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// change matches a line of standard output for a changed object.
var change = regexp.MustCompile(`^[a-z0-9.]+/\S+ (created|configured|unchanged|suspended|resumed|adopted|released)` +
	` \(dry run\)$`)

// TestChangesAreKubectls checks that each command with --dry-run prints its changes in kubectl's
// form. The scripts in test/e2e check the commands that query a cluster.
func TestChangesAreKubectls(t *testing.T) {
	offline := map[string][][]string{
		"create-tenant": {
			{"acme", "--admin", "alice"},
			{"acme", "--members-admin", "--bind-members", "--network-policy", "--namespaces", "acme--a,acme--b"},
		},
		"suspend": {{"acme"}, {"acme", "--read-only"}, {"Acme.x"}},
		"resume":  {{"acme"}},
		"grant-privileges": {
			{"--user", "bob", "--for-namespace", "acme--web"},
			{"--group", "ops", "--tenant", "acme", "--readonly"},
			{"--serviceaccount", "kube-system/robot", "--cluster-wide", "--role", "view"},
		},
		"revoke-privileges": {{"--user", "bob", "--for-namespace", "acme--web"}, {"--user", "bob", "--tenant", "acme"}},
	}
	asks := []string{"adopt", "adopt-tenants", "delete-tenant", "publish", "release"}
	// These commands print steps, files or plans, and no changed objects.
	reports := []string{"gen-kubeconfig", "keystone-sync", "migrate", "uninstall", "verify-isolation"}
	for name, cmd := range leaves(newCommand()) {
		if cmd.Flags().Lookup("dry-run") != nil && offline[name] == nil && !slices.Contains(asks, name) &&
			!slices.Contains(reports, name) {
			t.Errorf("%s has --dry-run: add its arguments", name)
		}
		for _, args := range offline[name] {
			var stdout, stderr bytes.Buffer
			root := newCommand()
			root.SetOut(&stdout)
			root.SetErr(&stderr)
			root.SetArgs(slices.Concat([]string{name}, args, []string{"--dry-run=client", "--server", "http://127.0.0.1:1"}))
			if err := root.ExecuteContext(t.Context()); err != nil {
				t.Errorf("%s %v: %v", name, args, err)
			}
			if (stdout.Len() == 0) != (name == "revoke-privileges") { // the bindings are unknown
				t.Errorf("%s %v: wrote %q", name, args, &stdout)
			}
			for line := range strings.Lines(stdout.String()) {
				if !change.MatchString(strings.TrimSuffix(line, "\n")) {
					t.Errorf("%s %v: %q", name, args, line)
				}
			}
		}
	}
}
