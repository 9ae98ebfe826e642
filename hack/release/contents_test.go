// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"strconv"
	"strings"
	"testing"
	"time"
)

// The tests in this file call the checks of the content directly. An attacker with the key, or a
// mistake in the build, can create files with valid checksums and signatures.

// repositoryFolder is the folder of the repository, from which the snapshot was made.
const repositoryFolder = "../.."

// newVerifier returns a verifier of the snapshot with the commit of the repository.
func newVerifier(t *testing.T) *verifier {
	t.Helper()
	v := &verifier{dist: snapshotFolder(t), publicKey: publicKey(t), source: repositoryFolder}
	out, err := exec.CommandContext(t.Context(), "git", "-C", repositoryFolder, "log", "-1", "--format=%H %ct").Output()
	if err != nil {
		t.Fatal(err)
	}
	commit, when, _ := strings.Cut(strings.TrimSpace(string(out)), " ")
	seconds, err := strconv.ParseInt(when, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	v.commit, v.time = commit, time.Unix(seconds, 0).UTC()
	if v.files, err = digests(v.dist); err != nil {
		t.Fatal(err)
	}
	if err := v.identify(""); err != nil {
		t.Fatal(err)
	}
	return v
}

// remade returns the release that the snapshot is compared with.
func remade(t *testing.T, v *verifier) *release {
	t.Helper()
	made, err := v.remake()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(made.scratch) })
	return made
}

// archiveOf returns the archive of a program for linux/amd64, the platform of the snapshot.
func archiveOf(program, version string) artifact {
	p := platform{"linux", "amd64"}
	return artifact{file: archiveName(program, version, p), program: program, platforms: []platform{p}}
}

// TestAChangedSourceIsFound checks that files which depend only on the source are compared with the
// source, because valid versions and digests do not prove their content.
func TestAChangedSourceIsFound(t *testing.T) {
	v := newVerifier(t)
	source := t.TempDir()
	for _, name := range []string{"cmd/kubectl-tenant", "deploy", "docs"} {
		if err := os.CopyFS(filepath.Join(source, name), os.DirFS(filepath.Join(repositoryFolder, name))); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"LICENSE", "CHANGELOG.md"} {
		data, err := os.ReadFile(filepath.Join(repositoryFolder, name))
		if err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(source, name), data)
	}
	v.source = source
	for _, name := range []string{
		"LICENSE", "CHANGELOG.md", "cmd/kubectl-tenant/" + completion, "deploy/gateway/templates/gateway.yaml",
		"deploy/chart/crds/tenants.yaml",
	} {
		path := filepath.Join(source, name)
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		write(t, path, bytes.ReplaceAll(data, []byte("e"), []byte("E")))
	}
	err := v.checkContents()
	for _, file := range []string{
		archiveOf(plugin, v.version).file, archiveOf(servers()[0], v.version).file,
		chartName("kubetenant-gateway", v.version), chartName("kubetenant-webhook", v.version), notesFile,
	} {
		requireProblem(t, err, file+" is not the file that commit "+v.commit+" makes")
	}
}

// TestAnotherCommitIsRejected checks that a release of another commit is rejected, even if the
// release is consistent.
func TestAnotherCommitIsRejected(t *testing.T) {
	v := newVerifier(t)
	v.commit = strings.Repeat("0", 40)
	requireProblem(t, v.checkContents(), "check out its commit")
}

// TestDifferentFilesAreFound checks that each file that can be made again is compared.
func TestDifferentFilesAreFound(t *testing.T) {
	v := newVerifier(t)
	made := remade(t, v)
	for _, a := range artifacts(v.version, v.platforms) {
		if a.image {
			continue
		}
		if _, err := v.extract(a, made); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := made.buildPackages(); err != nil {
		t.Fatal(err)
	}
	want, err := digests(made.dist)
	if err != nil {
		t.Fatal(err)
	}
	if problems := v.differences(want); len(problems) > 0 {
		t.Fatal(problems)
	}
	for name := range v.files {
		_, isMade := want[name]
		notMade := strings.HasSuffix(name, sbomSuffix) || strings.HasSuffix(name, bundleSuffix) ||
			name == checksumsFile || name == provenanceFile
		if isMade == notMade {
			t.Errorf("%s: made again: %t", name, isMade)
		}
	}
	for name := range want {
		changed := *v
		changed.files = maps.Clone(v.files)
		changed.files[name] = strings.Repeat("0", 64)
		requireProblem(t, errors.Join(changed.differences(want)...), name+" is not the file")
		delete(changed.files, name)
		requireProblem(t, errors.Join(changed.differences(want)...), name+" is not the file")
	}
	v.files["images/kubetenant-gateway/blobs/sha256/"+strings.Repeat("0", 64)] = strings.Repeat("0", 64)
	requireProblem(t, errors.Join(v.differences(want)...), "does not belong to an image")
}

func TestAWrongProgramIsFound(t *testing.T) {
	v := newVerifier(t)
	made := remade(t, v)
	const program = "kubetenant-gateway"
	archive, err := v.read(archiveOf(program, v.version).file)
	if err != nil {
		t.Fatal(err)
	}
	data, err := fileInTarGz(archive, program)
	if err != nil {
		t.Fatal(err)
	}
	linux := platform{"linux", "amd64"}
	if _, err := checkBinary(data, program, made, linux); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		program, version, commit string
		p                        platform
		want                     string
	}{
		"another package":   {"kubetenant-webhook", made.version, made.commit, linux, "cmd/kubetenant-webhook"},
		"another platform":  {program, made.version, made.commit, platform{"linux", "arm64"}, "GOARCH=amd64"},
		"a known version":   {program, "v0.1.0", made.commit, linux, "does not contain"}, // another module has this version
		"part of a version": {program, made.version[:10], made.commit, linux, "does not contain"},
		"another commit":    {program, made.version, strings.Repeat("0", 40), linux, "does not contain"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := checkBinary(data, c.program, &release{version: c.version, commit: c.commit}, c.p)
			requireProblem(t, err, c.want)
		})
	}
	if _, err := fileInTarGz(archive, "missing"); !errors.Is(err, io.EOF) {
		t.Errorf("a missing program: %v", err)
	}
	if _, err := fileInTarGz(archive[:len(archive)/2], program); err == nil {
		t.Error("a truncated archive is accepted")
	}
}

func TestAWrongSBOMIsFound(t *testing.T) {
	v := newVerifier(t)
	made := remade(t, v)
	for _, program := range append(servers(), plugin) {
		a := archiveOf(program, v.version)
		info, err := v.extract(a, made)
		if err != nil {
			t.Fatal(err)
		}
		modules := modulesOf([]*debug.BuildInfo{info})
		if len(modules) < 50 {
			t.Errorf("%s has %d modules", program, len(modules))
		}
		data, err := v.read(a.sbom())
		if err != nil {
			t.Fatal(err)
		}
		check := func(file, version, digest string, modules map[string]bool) error {
			return checkSBOM(data, file, version, digest, modules)
		}
		digest := v.files[a.file]
		if err := check(a.file, v.version, digest, modules); err != nil {
			t.Errorf("%s: %v", a.file, err)
		}
		requireProblem(t, check("other", v.version, digest, modules), "it is about")
		requireProblem(t, check(a.file, "v9.9.9", digest, modules), "it is about")
		requireProblem(t, check(a.file, v.version, strings.Repeat("0", 64), modules), "another digest")
		for name := range modules {
			other := map[string]bool{name + ".1": true}
			requireProblem(t, check(a.file, v.version, digest, other), "does not list "+name+".1")
		}
	}
}

func TestAWrongProvenanceIsFound(t *testing.T) {
	v := newVerifier(t)
	made := remade(t, v)
	images := map[string]string{}
	for _, program := range servers() {
		index, err := openIndex(filepath.Join(v.dist, layoutsFolder, program))
		if err != nil {
			t.Fatal(err)
		}
		digest, err := index.Digest()
		if err != nil {
			t.Fatal(err)
		}
		images[program] = digest.String()
	}
	data, err := v.read(provenanceFile)
	if err != nil {
		t.Fatal(err)
	}
	if err := made.checkProvenance(data, v.subjectFiles(), images); err != nil {
		t.Fatal(err)
	}
	definition := func(s map[string]any) map[string]any {
		return s["predicate"].(map[string]any)["buildDefinition"].(map[string]any)
	}
	parameters := func(s map[string]any) map[string]any {
		return definition(s)["externalParameters"].(map[string]any)
	}
	for name, c := range map[string]struct {
		change func(statement map[string]any)
		want   string
	}{
		"a subject is missing": {func(s map[string]any) { s["subject"] = s["subject"].([]any)[1:] }, "subjects"},
		"a digest differs": {func(s map[string]any) {
			first := s["subject"].([]any)[0].(map[string]any)
			first["digest"] = map[string]any{"sha256": strings.Repeat("0", 64)}
		}, "subjects"},
		"another type":      {func(s map[string]any) { s["predicateType"] = "https://example.com" }, "example.com"},
		"another field":     {func(s map[string]any) { s["extra"] = true }, "extra"},
		"no source":         {func(s map[string]any) { delete(definition(s), "resolvedDependencies") }, "build definition"},
		"another version":   {func(s map[string]any) { parameters(s)["version"] = "v9.9.9" }, "build definition"},
		"another source":    {func(s map[string]any) { parameters(s)["source"] = "https://example.com" }, "build definition"},
		"another platform":  {func(s map[string]any) { parameters(s)["platforms"] = []any{} }, "build definition"},
		"another parameter": {func(s map[string]any) { parameters(s)["extra"] = "x" }, "build definition"},
		"another Go version": {func(s map[string]any) {
			definition(s)["internalParameters"] = map[string]any{"goVersion": "go1.0"}
		}, "build definition"},
	} {
		t.Run(name, func(t *testing.T) {
			var statement map[string]any
			if err := json.Unmarshal(data, &statement); err != nil {
				t.Fatal(err)
			}
			c.change(statement)
			text, err := json.Marshal(statement)
			if err != nil {
				t.Fatal(err)
			}
			requireProblem(t, made.checkProvenance(text, v.subjectFiles(), images), c.want)
		})
	}
}

func TestNotesHaveNoRelativeLinks(t *testing.T) {
	v := newVerifier(t)
	text, err := v.read(notesFile)
	if err != nil {
		t.Fatal(err)
	}
	links := pageLink.FindAllStringSubmatch(string(text), -1)
	if len(links) < 10 {
		t.Errorf("found %d links", len(links))
	}
	for _, link := range links {
		if !strings.Contains(link[1], "://") {
			t.Errorf("link to %s", link[1])
		}
	}
	if !regexp.MustCompile(`(?m)^## Do this before the upgrade$`).Match(text) || len(text) > 125_000 {
		t.Errorf("the notes have %d bytes, of which GitHub accepts 125,000", len(text))
	}
}
