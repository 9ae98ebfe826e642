// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// The tests in this file call the checks of the content directly. An attacker with the key, or a
// mistake in the build, can create files with valid checksums and signatures.

func contents(t *testing.T) *verifier {
	t.Helper()
	v := &verifier{dist: snapshotFolder(t), unsigned: true}
	v.made.source = repositoryFolder
	var err error
	if v.files, err = digests(v.dist); err != nil {
		t.Fatal(err)
	}
	if err := v.identify(""); err != nil {
		t.Fatal(err)
	}
	if err := v.prepare(); err != nil {
		t.Fatal(err)
	}
	return v
}

// gatewayImage returns the folder of the gateway's image, with the program of its archive.
func gatewayImage(t *testing.T) (v *verifier, folder string) {
	t.Helper()
	v = contents(t)
	if err := v.checkArchive(archiveOf("kubetenant-gateway", v.version)); err != nil {
		t.Fatal(err)
	}
	if err := v.checkImage("kubetenant-gateway"); err != nil {
		t.Fatal(err)
	}
	return v, filepath.Join(v.dist, layoutsFolder, "kubetenant-gateway")
}

// archiveOf returns the archive of a program for linux/amd64, the platform of the snapshot.
func archiveOf(program, version string) artifact {
	p := platform{"linux", "amd64"}
	return artifact{file: archiveName(program, version, p), program: program, platforms: []platform{p}}
}

func TestAChangedImageIsFound(t *testing.T) {
	v, folder := gatewayImage(t)
	for _, name := range filesOf(t, folder) {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(folder, name)
			info, err := os.Stat(path)
			if err != nil {
				t.Fatal(err)
			}
			flip(t, path, info.Size()/2)
			defer flip(t, path, info.Size()/2)
			if err := v.checkImage("kubetenant-gateway"); err == nil {
				t.Error("no problem")
			}
		})
	}
}

func TestAnImageOfAnotherReleaseIsFound(t *testing.T) {
	v, _ := gatewayImage(t)
	key := "kubetenant-gateway linux/amd64"
	for name, c := range map[string]struct {
		change func(*verifier)
		want   string
	}{
		"another program": {func(v *verifier) {
			v.programs = map[string]built{key: {digest: strings.Repeat("0", 64)}}
		}, "its files are"},
		"another commit":  {func(v *verifier) { v.made.commit = strings.Repeat("0", 40) }, "annotations"},
		"another time":    {func(v *verifier) { v.made.time = v.made.time.Add(time.Second) }, "its configuration is"},
		"another version": {func(v *verifier) { v.version = "v9.9.9" }, "annotations"},
		"no platform":     {func(v *verifier) { v.platforms = allPlatforms() }, "the index has 1 images"},
		"another blob": {func(v *verifier) {
			v.files = maps.Clone(v.files)
			v.files["images/kubetenant-gateway/blobs/sha256/"+strings.Repeat("0", 64)] = strings.Repeat("0", 64)
		}, "does not belong to the image"},
		"another archive": {func(v *verifier) {
			v.files = maps.Clone(v.files)
			v.files[imageName("kubetenant-gateway", v.version)] = strings.Repeat("0", 64)
		}, "does not have the same files"},
	} {
		t.Run(name, func(t *testing.T) {
			changed := *v
			c.change(&changed)
			requireProblem(t, changed.checkImage("kubetenant-gateway"), c.want)
		})
	}
}

func TestAWrongProgramIsFound(t *testing.T) {
	v := contents(t)
	for name, c := range map[string]struct {
		program, version string
		p                platform
		want             string
	}{
		"of another package":  {"kubetenant-webhook", v.version, platform{"linux", "amd64"}, "cmd/kubetenant-webhook"},
		"of another platform": {"kubetenant-gateway", v.version, platform{"linux", "arm64"}, "GOARCH=amd64"},
		"of another version":  {"kubetenant-gateway", "v9.9.9-not-there", platform{"linux", "amd64"}, "v9.9.9-not-there"},
		"of another commit":   {"kubetenant-gateway", v.version, platform{"linux", "amd64"}, strings.Repeat("0", 40)},
	} {
		t.Run(name, func(t *testing.T) {
			changed := *v
			changed.version = c.version
			if name == "of another commit" {
				changed.made.commit = c.want
			}
			file := archiveName("kubetenant-gateway", v.version, platform{"linux", "amd64"})
			archive, err := os.Open(filepath.Join(v.dist, file))
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = archive.Close() }()
			err = readTarGz(archive, func(name, _ string, content io.Reader) error {
				if name != "kubetenant-gateway" {
					return nil
				}
				data, err := io.ReadAll(content)
				if err != nil {
					return err
				}
				return changed.checkBinary(data, c.program, c.p)
			})
			requireProblem(t, err, c.want)
		})
	}
}

func TestAWrongChartIsFound(t *testing.T) {
	v, _ := gatewayImage(t)
	const chart = "kubetenant-gateway"
	data, err := v.read(chartName(chart, v.version))
	if err != nil {
		t.Fatal(err)
	}
	image := reference(chart, v.version, v.images[chart])
	if err := checkChart(data, chart, v.version, image); err != nil {
		t.Fatal(err)
	}
	requireProblem(t, checkChart(data, chart, v.version, reference(chart, v.version, "sha256:0")), "the value image")
	requireProblem(t, checkChart(data, chart, "v9.9.9", image), "version")
	requireProblem(t, checkChart(data, "other", v.version, image), "name")
	requireProblem(t, checkChart(data[:len(data)/2], chart, v.version, image), "EOF")
	if err := v.checkChart(chart); err != nil {
		t.Error(err)
	}
}

// TestAChangedSourceIsFound checks that files which depend only on the source are compared with the
// source, because valid versions and digests do not prove their content.
func TestAChangedSourceIsFound(t *testing.T) {
	for file, check := range map[string]func(*verifier) error{
		"LICENSE":                               func(v *verifier) error { return v.checkArchive(archiveOf(plugin, v.version)) },
		"cmd/kubectl-tenant/" + completion:      func(v *verifier) error { return v.checkArchive(archiveOf(plugin, v.version)) },
		"deploy/gateway/templates/gateway.yaml": func(v *verifier) error { return v.checkChart("kubetenant-gateway") },
		"CHANGELOG.md":                          (*verifier).checkNotes,
	} {
		t.Run(file, func(t *testing.T) {
			v, _ := gatewayImage(t)
			if err := check(v); err != nil {
				t.Fatal(err)
			}
			source := t.TempDir()
			for _, folder := range []string{"cmd/kubectl-tenant", "deploy/gateway", "docs"} {
				if err := os.CopyFS(filepath.Join(source, folder), os.DirFS(filepath.Join(repositoryFolder, folder))); err != nil {
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
			v.made.source = source
			if err := check(v); err != nil {
				t.Fatalf("a copy of the source: %v", err)
			}
			path := filepath.Join(source, file)
			data, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			write(t, path, bytes.ReplaceAll(data, []byte("e"), []byte("E")))
			requireProblem(t, check(v), "verify from the repository at commit "+v.made.commit)
		})
	}
}

// TestAttributesOfFilesAreFound checks that a program cannot get more rights than its mode shows.
func TestAttributesOfFilesAreFound(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*tar.Header)
		want   string
	}{
		"setuid":  {func(h *tar.Header) { h.Mode = 0o4755 }, "04755"},
		"setgid":  {func(h *tar.Header) { h.Mode = 0o2755 }, "02755"},
		"sticky":  {func(h *tar.Header) { h.Mode = 0o1755 }, "01755"},
		"a user":  {func(h *tar.Header) { h.Uid = 1 }, "belongs to user 1"},
		"a group": {func(h *tar.Header) { h.Gid = 1 }, "belongs to user 0"},
		"a link":  {func(h *tar.Header) { h.Typeflag, h.Linkname = tar.TypeSymlink, "x" }, "neither a file nor a folder"},
		"capabilities": {func(h *tar.Header) {
			h.Format, h.PAXRecords = tar.FormatPAX, map[string]string{"SCHILY.xattr.security.capability": "x"}
		}, "format PAX"},
	} {
		t.Run(name, func(t *testing.T) {
			header := &tar.Header{Name: "program", Mode: 0o755, Format: tar.FormatUSTAR, Typeflag: tar.TypeReg}
			c.change(header)
			var archive bytes.Buffer
			w := tar.NewWriter(&archive)
			if err := errors.Join(w.WriteHeader(header), w.Close()); err != nil {
				t.Fatal(err)
			}
			err := readTar(&archive, func(_, mode string, _ io.Reader) error {
				if mode != "0755" {
					return errors.New(mode)
				}
				return nil
			})
			requireProblem(t, err, c.want)
		})
	}
}

func TestAWrongSBOMIsFound(t *testing.T) {
	v := contents(t)
	file := archiveName(plugin, v.version, platform{"linux", "amd64"})
	data, err := v.read(file + sbomSuffix)
	if err != nil {
		t.Fatal(err)
	}
	if err := v.checkArchive(archiveOf(plugin, v.version)); err != nil {
		t.Fatal(err)
	}
	modules := v.modules(archiveOf(plugin, v.version))
	if len(modules) < 50 {
		t.Errorf("%s has %d modules", plugin, len(modules))
	}
	if err := checkSBOM(data, file, v.version, v.files[file], modules); err != nil {
		t.Fatal(err)
	}
	requireProblem(t, checkSBOM(data, "other", v.version, v.files[file], modules), "it is about")
	requireProblem(t, checkSBOM(data, file, "v9.9.9", v.files[file], modules), "it is about")
	requireProblem(t, checkSBOM(data, file, v.version, strings.Repeat("0", 64), modules), "another digest")
	without := bytes.ReplaceAll(data, []byte(`"name": "`+module), []byte(`"name": "other`))
	requireProblem(t, checkSBOM(without, file, v.version, v.files[file], modules), "does not list")
	for name := range modules {
		older := maps.Clone(modules)
		older[name] = "v0.0.1"
		requireProblem(t, checkSBOM(data, file, v.version, v.files[file], older), "does not list "+name+" v0.0.1")
	}
}

func TestAWrongProvenanceIsFound(t *testing.T) {
	v, _ := gatewayImage(t)
	for _, program := range servers() {
		_, descriptor, err := openIndex(filepath.Join(v.dist, layoutsFolder, program))
		if err != nil {
			t.Fatal(err)
		}
		v.images[program] = descriptor.Digest.String()
	}
	if err := v.checkProvenance(); err != nil {
		t.Fatal(err)
	}
	data, err := v.read(provenanceFile)
	if err != nil {
		t.Fatal(err)
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
		"another type":  {func(s map[string]any) { s["predicateType"] = "https://example.com" }, "example.com"},
		"another field": {func(s map[string]any) { s["extra"] = true }, "extra"},
		"without source": {func(s map[string]any) {
			definition := s["predicate"].(map[string]any)["buildDefinition"].(map[string]any)
			definition["resolvedDependencies"] = []any{}
		}, "build definition"},
		"another version": {func(s map[string]any) {
			definition := s["predicate"].(map[string]any)["buildDefinition"].(map[string]any)
			definition["externalParameters"] = map[string]any{"version": "v9.9.9"}
		}, "v9.9.9"},
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
			_, _, err = checkProvenance(text, v.version, v.subjectFiles(), v.images)
			requireProblem(t, err, c.want)
		})
	}
}

func TestAWrongManifestForKrewIsFound(t *testing.T) {
	v := contents(t)
	if err := v.checkKrew(); err != nil {
		t.Fatal(err)
	}
	v.files = maps.Clone(v.files)
	v.files[archiveName(plugin, v.version, platform{"linux", "amd64"})] = strings.Repeat("0", 64)
	requireProblem(t, v.checkKrew(), krewFile)
}

func TestNotesHaveNoRelativeLinks(t *testing.T) {
	v := contents(t)
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
