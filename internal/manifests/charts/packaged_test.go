// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package charts_test

import (
	"archive/tar"
	"compress/gzip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kubetenant/kubetenant/internal/manifests/charts"
)

const chart = "kubetenant-webhook"

// packageChart writes a packaged chart with the files Chart.yaml and values.yaml.
func packageChart(t *testing.T, about, values string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "chart.tgz")
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	compressed := gzip.NewWriter(file)
	archive := tar.NewWriter(compressed)
	for name, text := range map[string]string{"Chart.yaml": about, "values.yaml": values} {
		header := &tar.Header{Name: chart + "/" + name, Mode: 0o644, Size: int64(len(text))}
		if err := archive.WriteHeader(header); err != nil {
			t.Fatal(err)
		}
		if _, err := archive.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []interface{ Close() error }{archive, compressed, file} {
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
	}
	return path
}

// TestImage checks that Image returns the image of a chart only if the image has a digest and the
// version of the chart.
func TestImage(t *testing.T) {
	digest := "@sha256:" + strings.Repeat("0a", 32)
	about := "name: kubetenant-webhook\nversion: 0.1.0\n"
	for name, c := range map[string]struct{ about, image, own, wrong string }{
		"the image of a release":    {about, "ghcr.io/kubetenant/kubetenant-webhook:v0.1.0" + digest, "v0.1.0", ""},
		"a build without a version": {about, "ghcr.io/kubetenant/kubetenant-webhook:v0.1.0" + digest, "(devel)", ""},
		"a command of another version": {
			about, "ghcr.io/kubetenant/kubetenant-webhook:v0.1.0" + digest, "v0.1.1", "use both of one release",
		},
		"a registry with a port": {about, "localhost:5000/webhook:v0.1.0" + digest, "v0.1.0", ""},
		"an image of another chart": {
			"name: kubetenant-gateway\nversion: 0.1.0\n", "a:v0.1.0" + digest, "v0.1.0", "its name is",
		},
		"an image of another version": {
			about,
			"ghcr.io/kubetenant/kubetenant-webhook:v0.2.0" + digest,
			"v0.1.0",
			"does not belong to the chart of version 0.1.0",
		},
		"no digest":        {about, "ghcr.io/kubetenant/kubetenant-webhook:v0.1.0", "v0.1.0", "no digest"},
		"no tag":           {about, "ghcr.io/kubetenant/kubetenant-webhook" + digest, "v0.1.0", "no tag"},
		"a truncated hash": {about, "ghcr.io/kubetenant/kubetenant-webhook:v0.1.0" + digest[:40], "v0.1.0", "no digest"},
		"no image":         {about, "", "v0.1.0", "no digest"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := charts.Image(packageChart(t, c.about, "image: "+c.image+"\n"), chart, c.own)
			switch {
			case c.wrong == "" && (err != nil || got != c.image):
				t.Errorf("Image() = %q, %v", got, err)
			case c.wrong != "" && (err == nil || !strings.Contains(err.Error(), c.wrong)):
				t.Errorf("Image() = %q, %v; want an error with %q", got, err, c.wrong)
			}
		})
	}
}

// TestImageOfNoChart checks that Image returns an error for a file that is not a packaged chart.
func TestImageOfNoChart(t *testing.T) {
	path := packageChart(t, "name: kubetenant-webhook\n", "")
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string][]byte{
		"a truncated file":  whole[:len(whole)/2],
		"not a compression": []byte("apiVersion: v2\n"),
		"an empty file":     nil,
	} {
		t.Run(name, func(t *testing.T) {
			if err := os.WriteFile(path, data, 0o600); err != nil {
				t.Fatal(err)
			}
			if got, err := charts.Image(path, chart, ""); err == nil {
				t.Errorf("Image() = %q", got)
			}
		})
	}
	if got, err := charts.Image(packageChart(t, "name: kubetenant-webhook\n", ""), "kubetenant-gateway", ""); err == nil {
		t.Errorf("Image() of the chart of the webhook service = %q", got)
	}
}
