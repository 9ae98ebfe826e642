// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/Masterminds/semver/v3"
)

const (
	repository = "https://github.com/kubetenant/kubetenant"
	module     = "github.com/kubetenant/kubetenant"
	registry   = "ghcr.io/kubetenant"
	plugin     = "kubectl-tenant"
	completion = "kubectl_complete-tenant"
	license    = "LICENSE"
)

// Names of the files that exist once in a release.
const (
	checksumsFile  = "checksums.txt"
	krewFile       = "tenant.yaml"
	notesFile      = "RELEASE_NOTES.md"
	provenanceFile = "provenance.intoto.json"
	layoutsFolder  = "images"
	sbomSuffix     = ".spdx.json"
	bundleSuffix   = ".sigstore.json"
)

// A platform is an operating system and an architecture, as Go names them.
type platform struct{ os, arch string }

func (p platform) String() string { return p.os + "/" + p.arch }

// allPlatforms returns the platforms of a complete release.
func allPlatforms() []platform {
	return []platform{
		{"darwin", "amd64"},
		{"darwin", "arm64"},
		{"linux", "amd64"},
		{"linux", "arm64"},
		{"windows", "amd64"},
		{"windows", "arm64"},
	}
}

// parsePlatforms returns the platforms in a comma-separated list, in the order of [allPlatforms].
// An empty list means all platforms.
func parsePlatforms(list string) ([]platform, error) {
	if list == "" {
		return allPlatforms(), nil
	}
	var platforms []platform
	for _, p := range allPlatforms() {
		if slices.Contains(strings.Split(list, ","), p.String()) {
			platforms = append(platforms, p)
		}
	}
	if len(platforms) != strings.Count(list, ",")+1 {
		return nil, fmt.Errorf("platforms %q: choose different ones of %v", list, allPlatforms())
	}
	if len(linux(platforms)) == 0 {
		return nil, fmt.Errorf("platforms %q: add linux/amd64 or linux/arm64, since the images need one", list)
	}
	return platforms, nil
}

func linux(platforms []platform) []platform {
	return slices.DeleteFunc(slices.Clone(platforms), func(p platform) bool { return p.os != "linux" })
}

// servers returns the programs that have an image.
func servers() []string {
	return []string{"kube-apiserver", "kubetenant-gateway", "kubetenant-webhook"}
}

// charts returns the folders of the Helm charts, by name. The images have the same names.
func charts() map[string]string {
	return map[string]string{"kubetenant-gateway": "deploy/gateway", "kubetenant-webhook": "deploy/chart"}
}

// An artifact is an archive or an image.
type artifact struct {
	file, program string
	platforms     []platform
	image         bool
}

func (a artifact) sbom() string { return a.file + sbomSuffix }

// artifacts returns the archives and the images of a version, sorted by the names of their files.
func artifacts(version string, platforms []platform) []artifact {
	var all []artifact
	for _, p := range platforms {
		programs := []string{plugin}
		if p.os == "linux" {
			programs = append(programs, servers()...)
		}
		for _, program := range programs {
			all = append(all, artifact{file: archiveName(program, version, p), program: program, platforms: []platform{p}})
		}
	}
	for _, program := range servers() {
		all = append(all, artifact{
			file:      imageName(program, version),
			program:   program,
			platforms: linux(platforms),
			image:     true,
		})
	}
	slices.SortFunc(all, func(a, b artifact) int { return cmp.Compare(a.file, b.file) })
	return all
}

func archiveName(program, version string, p platform) string {
	extension := ".tar.gz"
	if p.os == "windows" {
		extension = ".zip"
	}
	return fmt.Sprintf("%s_%s_%s_%s%s", program, version, p.os, p.arch, extension)
}

func imageName(program, version string) string { return program + "_" + version + "_image.tar" }

func chartName(chart, version string) string { return chart + "-" + chartVersion(version) + ".tgz" }

// chartVersion returns the version of a chart, which has no v.
func chartVersion(version string) string { return strings.TrimPrefix(version, "v") }

func binaryName(program string, p platform) string {
	if p.os == "windows" {
		return program + ".exe"
	}
	return program
}

// reference returns the image reference that a chart and a cluster use for a program.
func reference(program, version, digest string) string {
	return fmt.Sprintf("%s/%s:%s@%s", registry, program, version, digest)
}

// signed returns the files that have a signature in a separate file. The checksums are last,
// because they include the signatures of the other files.
func signed(version string) []string {
	files := []string{provenanceFile}
	for _, program := range servers() {
		files = append(files, imageName(program, version))
	}
	return append(files, checksumsFile)
}

// expectedFiles returns the files of a release, except the folders of the images and the
// signatures.
func expectedFiles(version string, platforms []platform) []string {
	files := []string{checksumsFile, krewFile, notesFile, provenanceFile}
	for _, a := range artifacts(version, platforms) {
		files = append(files, a.file, a.sbom())
	}
	for chart := range charts() {
		files = append(files, chartName(chart, version))
	}
	return files
}

func layoutOf(program string) string { return path.Join(layoutsFolder, program) }

var snapshot = regexp.MustCompile(`^v0\.0\.0-[0-9a-f]{12}$`)

func isSnapshot(version string) bool { return snapshot.MatchString(version) }

func checkVersion(version string) error {
	v, err := semver.StrictNewVersion(strings.TrimPrefix(version, "v"))
	if err != nil || !strings.HasPrefix(version, "v") {
		return fmt.Errorf("version %q: must be a semantic version with v, for example v0.1.0", version)
	}
	if v.Metadata() != "" {
		return fmt.Errorf("version %q: must not have build metadata, which a tag of an image cannot contain", version)
	}
	return nil
}
