// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// step is a kubectl tenant command, with a text that its output must contain.
type step struct {
	who, kubeconfig string
	args            []string
	says            string
}

// commandLine returns the commands to run. The cluster's admin creates a kubeconfig for a user,
// lists the callers that have a permission, and explains a denial. The admin of tenant acme
// creates a kubeconfig for a service account, and grants and revokes a role.
func commandLine(dir string) []step {
	person, robot := filepath.Join(dir, "carol.kubeconfig"), filepath.Join(dir, "robot.kubeconfig")
	config := filepath.Join(dir, "tenancy.yaml")
	return []step{
		{
			"the cluster's admin",
			"admin",
			[]string{"gen-kubeconfig", "--user", "carol", "--tenant", "acme", "--expires", "1h", "--out", person},
			`context "carol/acme@local" written to`,
		},
		{"carol", person, []string{"whoami"}, "Tenant:    acme (the extra"},
		{
			"acme's admin",
			"acme",
			[]string{"gen-kubeconfig", "--serviceaccount", "default", "-n", "acme--web", "--expires", "1h", "--out", robot},
			`context "acme--web:default/acme@local" written to`,
		},
		{"the service account", robot, []string{"whoami", "-o", "name"}, "system:serviceaccount:acme--web:default"},
		{
			"acme's admin",
			"acme",
			[]string{"grant-privileges", "--user", "dave", "--for-namespace", "acme--web", "--readonly"},
			"/kubectl-tenant:view:dave:",
		},
		{
			"acme's admin",
			"acme",
			[]string{"grant-privileges", "--user", "dave", "--for-namespace", "acme--web", "--role", "cluster-admin"},
			"you cannot grant rights that you do not have",
		},
		{
			"the cluster's admin",
			"admin",
			[]string{"who-can", "get", "configmaps", "-n", "acme--web", "-o", "name"},
			"user/dave",
		},
		{
			"acme's admin",
			"acme",
			[]string{"revoke-privileges", "--user", "dave", "--for-namespace", "acme--web"},
			"deleted from acme--web namespace",
		},
		{
			"the cluster's admin",
			"admin",
			[]string{
				"explain", "get", "configmaps", "prices", "-n", "globex--shop", "--as", "carol", "--tenant", "acme", "--config",
				config,
			},
			"# To allow this, an admin of tenant globex can create:",
		},
	}
}

// walkCommandLine runs the steps, and returns the number of unexpected results.
func (d *demo) walkCommandLine(ctx context.Context) int {
	_, _ = fmt.Fprint(d.out, "\nThe command line, kubectl tenant:\n")
	differences := 0
	for _, s := range commandLine(d.server.Dir) {
		kubeconfig := s.kubeconfig
		if !filepath.IsAbs(kubeconfig) {
			kubeconfig = d.server.Kubeconfig(kubeconfig)
		}
		// #nosec G204 -- the demo's own commands
		cmd := exec.CommandContext(ctx, filepath.Join(filepath.Dir(d.kubectl), "kubectl-tenant"),
			append(s.args, "--kubeconfig", kubeconfig)...)
		cmd.Env = append(os.Environ(), "KUBECTL_KUBERC=false")
		out, _ := cmd.CombinedOutput() // the output of a denied command contains the reason
		mark := ""
		if !strings.Contains(string(out), s.says) {
			differences++
			mark = fmt.Sprintf("  <-- differs: it should say %q\n", s.says)
		}
		shown := strings.ReplaceAll(strings.Join(s.args, " "), d.server.Dir+"/", "")
		_, _ = fmt.Fprintf(d.out, "\n%s $ kubectl tenant %s\n%s%s", s.who, shown, indented(string(out)), mark)
	}
	_, _ = fmt.Fprintln(d.out)
	return differences
}

// indented indents the lines of text.
func indented(text string) string {
	out := ""
	for line := range strings.Lines(text) {
		out += "  " + line
	}
	return out
}
