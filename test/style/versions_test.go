// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package style_test

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// TestVersions checks that the pages about versions name the Kubernetes release that the Makefile
// builds.
func TestVersions(t *testing.T) {
	makefile, err := os.ReadFile("../../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	release := regexp.MustCompile(`(?m)^KUBERNETES := v(1\.(\d+)\.\d+)$`).FindStringSubmatch(string(makefile))
	if release == nil {
		t.Fatal("the Makefile names no release of Kubernetes")
	}
	minor := "1." + release[2]
	for path, want := range map[string][]string{
		"docs/versions.md":         {"| " + minor + " | yes, tested with " + release[1], "k8s.io/apiserver 0." + release[2]},
		"docs/deployment-modes.md": {"| " + minor + ", built from", "1.34 to " + minor, "tested with " + minor},
	} {
		t.Run(path, func(t *testing.T) {
			text, err := os.ReadFile("../../" + path)
			if err != nil {
				t.Fatal(err)
			}
			for _, s := range want {
				if !strings.Contains(string(text), s) {
					t.Errorf("the page has no %q", s)
				}
			}
		})
	}
}
