// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

// Package version reports the release of kubetenant and the commit from which the program was
// built.
package version

import (
	"runtime/debug"
	"strings"
)

const module = "github.com/kubetenant/kubetenant"

// stamp is "kubetenant-release:VERSION:COMMIT;". The linker sets it in the binaries of a release
// (hack/release.sh). The form is unique, so that the verification of a release can find it in a
// binary (hack/release).
var stamp string

// Unknown is the version of a build that does not record its version.
const Unknown = "unknown"

// Version returns the version of kubetenant in the running program, for example "v0.1.0". For a
// program that embeds kubetenant, it is the version of the dependency. If the version is not
// recorded, Version returns [Unknown].
func Version() string {
	info, _ := debug.ReadBuildInfo()
	version, _ := parseStamp(stamp)
	return versionOf(version, info)
}

// Commit returns the commit that the program was built from, or "" if the build does not record
// it or if the program belongs to another project.
func Commit() string {
	info, _ := debug.ReadBuildInfo()
	_, commit := parseStamp(stamp)
	return commitOf(commit, info)
}

// parseStamp returns the version and the commit in a stamp. They are empty if there is no stamp.
func parseStamp(text string) (version, commit string) {
	text = strings.TrimSuffix(strings.TrimPrefix(text, "kubetenant-release:"), ";")
	version, commit, _ = strings.Cut(text, ":")
	return version, commit
}

func versionOf(linked string, info *debug.BuildInfo) string {
	if linked != "" {
		return linked
	}
	if info == nil {
		return Unknown
	}
	found := ""
	for _, m := range append([]*debug.Module{&info.Main}, info.Deps...) {
		if m.Path == module {
			found = m.Version
		}
	}
	if strings.HasPrefix(info.Main.Path, module+"/") { // a nested module has the same version
		found = info.Main.Version
	}
	if found == "" {
		return Unknown
	}
	return found
}

func commitOf(linked string, info *debug.BuildInfo) string {
	if linked != "" || info == nil {
		return linked
	}
	if info.Main.Path != module && !strings.HasPrefix(info.Main.Path, module+"/") {
		return "" // the commit of another project
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			return s.Value
		}
	}
	return ""
}
