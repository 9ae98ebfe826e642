// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// The tests in this file call the checks of the content directly. An attacker with the key, or a
// mistake in the build, can create files with valid checksums and signatures.

func contents(t *testing.T) *verifier {
	t.Helper()
	v := &verifier{
		dist:     snapshotFolder(t),
		unsigned: true,
		binaries: map[string]string{},
		images:   map[string]string{},
	}
	var err error
	if v.files, err = digests(v.dist); err != nil {
		t.Fatal(err)
	}
	if err := v.identify(""); err != nil {
		t.Fatal(err)
	}
	return v
}

// gatewayImage returns the folder of the gateway's image, with the program of its archive.
func gatewayImage(t *testing.T) (v *verifier, folder, commit string) {
	t.Helper()
	v = contents(t)
	for _, a := range artifacts(v.version, v.platforms) {
		if a.program == "kubetenant-gateway" && !a.image {
			if _, err := v.checkArchive(a); err != nil {
				t.Fatal(err)
			}
		}
	}
	commit, err := v.commit()
	if err != nil {
		t.Fatal(err)
	}
	if err := v.checkImage("kubetenant-gateway", commit); err != nil {
		t.Fatal(err)
	}
	return v, filepath.Join(v.dist, layoutsFolder, "kubetenant-gateway"), commit
}

func TestAChangedImageIsFound(t *testing.T) {
	v, folder, commit := gatewayImage(t)
	for _, name := range filesOf(t, folder) {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(folder, name)
			info, err := os.Stat(path)
			if err != nil {
				t.Fatal(err)
			}
			flip(t, path, info.Size()/2)
			defer flip(t, path, info.Size()/2)
			if err := v.checkImage("kubetenant-gateway", commit); err == nil {
				t.Error("no problem")
			}
		})
	}
}

func TestAnImageOfAnotherReleaseIsFound(t *testing.T) {
	v, _, commit := gatewayImage(t)
	key := "kubetenant-gateway linux/amd64"
	for name, c := range map[string]struct {
		change func(*verifier)
		commit string
		want   string
	}{
		"another program": {func(v *verifier) {
			v.binaries = map[string]string{key: strings.Repeat("0", 64)}
		}, commit, "its files are"},
		"another commit":  {func(*verifier) {}, strings.Repeat("0", 40), "annotations"},
		"another version": {func(v *verifier) { v.version = "v9.9.9" }, commit, "version"},
		"no platform":     {func(v *verifier) { v.platforms = allPlatforms() }, commit, "the index has 1 images"},
		"another blob": {func(v *verifier) {
			v.files = maps.Clone(v.files)
			v.files["images/kubetenant-gateway/blobs/sha256/"+strings.Repeat("0", 64)] = strings.Repeat("0", 64)
		}, commit, "does not belong to the image"},
		"another archive": {func(v *verifier) {
			v.files = maps.Clone(v.files)
			v.files[imageName("kubetenant-gateway", v.version)] = strings.Repeat("0", 64)
		}, commit, "does not have the same files"},
	} {
		t.Run(name, func(t *testing.T) {
			changed := *v
			c.change(&changed)
			requireProblem(t, changed.checkImage("kubetenant-gateway", c.commit), c.want)
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
	} {
		t.Run(name, func(t *testing.T) {
			file := archiveName("kubetenant-gateway", v.version, platform{"linux", "amd64"})
			archive, err := os.Open(filepath.Join(v.dist, file))
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = archive.Close() }()
			err = readTarGz(archive, func(name string, _ fs.FileMode, content io.Reader) error {
				if name != "kubetenant-gateway" {
					return nil
				}
				data, err := io.ReadAll(content)
				if err != nil {
					return err
				}
				return checkBinary(data, c.program, c.version, c.p)
			})
			requireProblem(t, err, c.want)
		})
	}
}

func TestAWrongChartIsFound(t *testing.T) {
	v, _, _ := gatewayImage(t)
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
}

func TestAWrongSBOMIsFound(t *testing.T) {
	v := contents(t)
	file := archiveName(plugin, v.version, platform{"linux", "amd64"})
	data, err := v.read(file + sbomSuffix)
	if err != nil {
		t.Fatal(err)
	}
	if err := checkSBOM(data, file, v.version, v.files[file]); err != nil {
		t.Fatal(err)
	}
	requireProblem(t, checkSBOM(data, "other", v.version, v.files[file]), "it is about")
	requireProblem(t, checkSBOM(data, file, "v9.9.9", v.files[file]), "it is about")
	requireProblem(t, checkSBOM(data, file, v.version, strings.Repeat("0", 64)), "another digest")
	without := bytes.ReplaceAll(data, []byte(`"name": "`+module), []byte(`"name": "other`))
	requireProblem(t, checkSBOM(without, file, v.version, v.files[file]), "does not list")
}

func TestAWrongProvenanceIsFound(t *testing.T) {
	v, _, _ := gatewayImage(t)
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
			_, err = checkProvenance(text, v.version, v.subjectFiles(), v.images)
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
