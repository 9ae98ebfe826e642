// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package version

import (
	"runtime/debug"
	"testing"
)

func TestVersionAndCommit(t *testing.T) {
	revision := []debug.BuildSetting{{Key: "vcs.revision", Value: "abc"}}
	cases := []struct {
		name                    string
		linkedVersion           string
		linkedCommit            string
		info                    *debug.BuildInfo
		wantVersion, wantCommit string
	}{
		{"the linker's values come first", "v1.0.0", "def", &debug.BuildInfo{
			Main:     debug.Module{Path: module, Version: "v0.9.0"},
			Settings: revision,
		}, "v1.0.0", "def"},
		{"a build without information has no version", "", "", nil, Unknown, ""},
		{"go install records the version of the module", "", "", &debug.BuildInfo{
			Main:     debug.Module{Path: module, Version: "v0.9.0"},
			Settings: revision,
		}, "v0.9.0", "abc"},
		{"the server's module has the version of the release", "", "", &debug.BuildInfo{
			Main:     debug.Module{Path: module + "/cmd/kube-apiserver", Version: "v0.9.0"},
			Deps:     []*debug.Module{{Path: module, Version: "v0.0.0"}},
			Settings: revision,
		}, "v0.9.0", "abc"},
		{"an embedding program has the version of its dependency and no commit", "", "", &debug.BuildInfo{
			Main:     debug.Module{Path: "example.com/server", Version: "v3.0.0"},
			Deps:     []*debug.Module{{Path: module, Version: "v0.8.0"}},
			Settings: revision,
		}, "v0.8.0", ""},
		{"another program has no version", "", "", &debug.BuildInfo{
			Main: debug.Module{Path: "example.com/other", Version: "v3.0.0"},
		}, Unknown, ""},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			if got := versionOf(c.linkedVersion, c.info); got != c.wantVersion {
				t.Errorf("version %q; want %q", got, c.wantVersion)
			}
			if got := commitOf(c.linkedCommit, c.info); got != c.wantCommit {
				t.Errorf("commit %q; want %q", got, c.wantCommit)
			}
		})
	}
}

func TestParseStamp(t *testing.T) {
	for name, c := range map[string]struct{ text, version, commit string }{
		"no stamp":            {"", "", ""},
		"a release":           {"kubetenant-release:v0.1.0:abc;", "v0.1.0", "abc"},
		"a release candidate": {"kubetenant-release:v0.1.0-rc.1:a;", "v0.1.0-rc.1", "a"},
	} {
		t.Run(name, func(t *testing.T) {
			if version, commit := parseStamp(c.text); version != c.version || commit != c.commit {
				t.Errorf("%s, %s", version, commit)
			}
		})
	}
}
