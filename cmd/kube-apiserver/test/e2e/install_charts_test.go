// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestInstallCharts follows the installation in docs/gateway.md, but installs the gateway with
// Helm. It also checks that Helm and the node reject invalid values and images.
func TestInstallCharts(t *testing.T) {
	releaseOf(t)
	if !runIsolated(t) {
		return
	}
	_, r, n := startAPIServer(t)
	r.section(t, "install.md", "## Get the release")
	helm := ""
	for _, block := range sectionBlocks(t, "gateway.md", "## Install it") {
		for _, command := range commandsOf(block[2]) {
			if strings.HasPrefix(command, "helm install ") {
				helm = command
			}
		}
	}
	if helm == "" {
		t.Fatal("docs/gateway.md has no helm install")
	}
	last := ""
	for _, block := range sectionBlocks(t, "gateway.md", "## Install it") {
		if block[1] == "yaml" {
			r.write(t, "tenancy.yaml", block[2]+"\n")
			continue
		}
		for _, command := range commandsOf(block[2]) {
			switch {
			case command == helm:
				continue
			case strings.HasPrefix(command, "kubectl apply "): // apply all files except gateway.yaml, which the chart replaces
				r.run(t, "rm gateway/gateway.yaml")
			case strings.Contains(command, " wait "):
				chartIsChecked(t, r, n, helm)
			}
			last = r.run(t, command)
		}
	}
	checkTenant(t, last)
	t.Run("generate writes the same objects as the chart", func(t *testing.T) {
		rendered := r.run(t, "helm template kubetenant kubetenant-webhook-0.1.0.tgz -n kubetenant-system "+
			"-f admission/values.yaml")
		written := r.run(t, "for file in admission/cluster/*.yaml; do cat $file; echo ---; done")
		// The label with the chart's version differs if the command was built from another commit.
		version := func(text string) string { return strings.ReplaceAll(text, strings.TrimPrefix(r.version, "v"), "0.1.0") }
		if got, want := objects(t, version(rendered)), objects(t, version(written)); !slices.Equal(got, want) {
			t.Errorf("helm template:\n%s\n\ngenerate:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	})
}

// chartIsChecked installs the gateway's chart. It checks that Helm rejects an unknown value. It
// also checks that the node runs no image with a wrong digest, name or version, or without a
// digest.
func chartIsChecked(t *testing.T, r *reader, n *node, helm string) {
	t.Helper()
	if out, err := r.try(t, helm+" --set limit=1"); err == nil || !strings.Contains(out, "additional properties 'limit'") {
		t.Errorf("an unknown value: %v\n%s", err, out)
	}
	image := strings.TrimSpace(r.run(t, "helm show values kubetenant-gateway-0.1.0.tgz | "+
		`sed -n 's/^image: "\?\([^"]*\)"\?$/\1/p'`))
	reference, digest, _ := strings.Cut(image, "@")
	for invalid, reason := range map[string]string{
		reference + "@sha256:" + strings.Repeat("0", 64):         "does not contain the image",
		strings.Replace(image, r.version, "v9.9.9", 1):           "no such file",
		"ghcr.io/kubetenant/kubetenant-webhook:v0.1.0@" + digest: "does not contain the image",
		reference: "is not an image of a release with a digest",
	} {
		t.Run("image "+invalid, func(t *testing.T) {
			r.run(t, helm+" --set image="+invalid)
			n.awaitProblem(t, "kubetenant-gateway-", reason)
			r.run(t, "helm uninstall kubetenant-gateway -n kubetenant-system")
		})
	}
	r.run(t, helm)
}

// TestInstallImages checks that the test's node unpacks an image of the release only if the
// reference has a digest, and every file of the archive matches it.
func TestInstallImages(t *testing.T) {
	release, version := releaseOf(t)
	if os.Geteuid() != 0 {
		t.Skip("the files of an image belong to root")
	}
	for _, name := range []string{"kubetenant-webhook", "kubetenant-gateway"} {
		archive := name + "_" + version + "_image.tar"
		digest := digestOf(t, filepath.Join(release, archive))
		reference := "ghcr.io/kubetenant/" + name + ":" + version + "@" + digest
		t.Run(name, func(t *testing.T) {
			config, err := archives{release}.pull(reference, t.TempDir())
			if err != nil || !slices.Equal(config.Config.Entrypoint, []string{"/usr/local/bin/" + name}) {
				t.Fatalf("pull() = %+v, %v", config, err)
			}
		})
		t.Run(name+" without a digest", func(t *testing.T) {
			short, _, _ := strings.Cut(reference, "@")
			if _, err := (archives{release}).pull(short, t.TempDir()); err == nil {
				t.Error("the image was pulled")
			}
		})
		changed := t.TempDir()
		for _, part := range partsOf(t, filepath.Join(release, archive)) {
			flip(t, filepath.Join(release, archive), filepath.Join(changed, archive), part)
			t.Run(name+" with a changed "+part, func(t *testing.T) {
				if _, err := (archives{changed}).pull(reference, t.TempDir()); err == nil {
					t.Error("the image was pulled")
				}
			})
		}
	}
}

// digestOf returns the digest of the image in an archive, which index.json contains.
func digestOf(t *testing.T, path string) string {
	t.Helper()
	blobs, err := readArchive(path)
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := bytes.Cut(blobs["index.json"], []byte("sha256:"))
	return "sha256:" + string(rest[:64])
}

// partsOf returns the files of an archive without which its image cannot be unpacked on this
// platform.
func partsOf(t *testing.T, path string) []string {
	t.Helper()
	needed := []string{"index.json"}
	blobs, err := readArchive(path)
	if err != nil {
		t.Fatal(err)
	}
	for name := range blobs {
		remaining := files{}
		for other, data := range blobs {
			if other != name {
				remaining[other] = data
			}
		}
		if _, err := remaining.image(digestOf(t, path), t.TempDir()); err != nil && name != "index.json" {
			needed = append(needed, name)
		}
	}
	if len(needed) < 5 { // index.json, the index, a manifest, its configuration and its layer
		t.Fatalf("the image needs only %v", needed)
	}
	return needed
}

// flip copies an archive and changes one byte of a file in it.
func flip(t *testing.T, from, to, name string) {
	t.Helper()
	in, err := os.Open(from)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = in.Close() }()
	var out bytes.Buffer
	changed := tar.NewWriter(&out)
	for archive := tar.NewReader(in); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(archive)
		if err != nil {
			t.Fatal(err)
		}
		if header.Name == name {
			at := len(data) / 2
			if name == "index.json" {
				at = bytes.Index(data, []byte("sha256:")) + 10
			}
			data[at] ^= 1
		}
		if err := changed.WriteHeader(header); err != nil {
			t.Fatal(err)
		}
		if _, err := changed.Write(data); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(changed.Close(), os.WriteFile(to, out.Bytes(), 0o600)); err != nil {
		t.Fatal(err)
	}
}
