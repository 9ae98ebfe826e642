// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package manifests_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/kubetenant/kubetenant/internal/manifests"
)

// TestCheckIsDeprecated checks that the deprecated flag --check still checks a directory and is not
// in the help. A warning must name the command that replaces the flag.
func TestCheckIsDeprecated(t *testing.T) {
	run := func(args ...string) (out, errors, checked string, err error) {
		var stdout, stderr bytes.Buffer
		cmd := &cobra.Command{Use: "generate"}
		manifests.AddGenerate(cmd, func() (map[string][]byte, error) { return nil, nil },
			func(_ *cobra.Command, dir string) error {
				checked = dir
				return nil
			})
		cmd.SetOut(&stdout)
		cmd.SetErr(&stderr)
		cmd.SetArgs(args)
		err = cmd.Execute()
		return stdout.String(), stderr.String(), checked, err
	}
	_, warning, checked, err := run("--check", "installed")
	const want = "warning: --check is deprecated: use kubectl tenant validate CONFIG installed\n"
	if err != nil || checked != "installed" || warning != want {
		t.Errorf("checked %q, standard error %q, error %v", checked, warning, err)
	}
	help, _, _, err := run("--help")
	if err != nil || strings.Contains(help, "--check") || !strings.Contains(help, "--out") {
		t.Errorf("help: %v\n%s", err, help)
	}
	if _, _, checked, err := run(); err == nil || checked != "" {
		t.Errorf("without a flag: checked %q, error %v", checked, err)
	}
}
