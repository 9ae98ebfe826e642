// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"helm.sh/helm/v4/pkg/chart/common/util"
	chart "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
)

// A replacement specifies a line of a chart file, and the text that replaces it in a release.
type replacement struct {
	file string
	line *regexp.Regexp
	text string
}

// buildChart writes the archive of a chart with the version and the image of the release. It does
// not use Helm to write the archive, because Helm writes the current time into it.
func (r *release) buildChart(name, digest string) error {
	entries, err := filesUnder(filepath.Join(r.source, filepath.FromSlash(charts()[name])), name+"/")
	if err != nil {
		return err
	}
	image := reference(name, r.version, digest)
	replacements := []replacement{
		{"Chart.yaml", regexp.MustCompile(`(?m)^version: .*$`), "version: " + chartVersion(r.version)},
		{"Chart.yaml", regexp.MustCompile(`(?m)^appVersion: .*$`), fmt.Sprintf("appVersion: %q", chartVersion(r.version))},
		{
			"values.yaml",
			regexp.MustCompile(`(?m)^# The container image \(required\)\.\nimage: ""$`),
			fmt.Sprintf("# The container image.\nimage: %q", image),
		},
	}
	for i := range entries {
		e := &entries[i]
		if e.data, err = os.ReadFile(e.path); err != nil {
			return err
		}
		e.path = ""
		for _, change := range replacements {
			if e.name != name+"/"+change.file {
				continue
			}
			if found := len(change.line.FindAll(e.data, -1)); found != 1 {
				return fmt.Errorf("%s of chart %s matches %s %d times: it must match once", change.file, name, change.line, found)
			}
			e.data = change.line.ReplaceAllLiteral(e.data, []byte(change.text))
		}
	}
	var archive bytes.Buffer
	if err := writeTarGz(&archive, entries, r.time); err != nil {
		return err
	}
	if err := checkChart(archive.Bytes(), name, r.version, image); err != nil {
		return err
	}
	return writeFile(filepath.Join(r.dist, chartName(name, r.version)), func(w io.Writer) error {
		_, err := w.Write(archive.Bytes())
		return err
	})
}

// checkChart loads a chart as Helm does, and checks its version and its image.
func checkChart(archive []byte, name, version, image string) error {
	c, err := loader.LoadArchive(bytes.NewReader(archive))
	if err != nil {
		return err
	}
	if err := c.Validate(); err != nil {
		return err
	}
	for _, field := range []struct{ name, got, want string }{
		{"name", c.Metadata.Name, name},
		{"version", c.Metadata.Version, chartVersion(version)},
		{"appVersion", c.Metadata.AppVersion, chartVersion(version)},
		{"the value image", fmt.Sprint(c.Values["image"]), image},
	} {
		if field.got != field.want {
			return fmt.Errorf("%s is %q; want %q", field.name, field.got, field.want)
		}
	}
	return checkSchema(c)
}

// checkSchema checks that the schema of a chart accepts the default image, and rejects an empty
// image and an unknown value. It does not check the other defaults, because the schema may reject
// values that an operator must set.
func checkSchema(c *chart.Chart) error {
	if len(c.Schema) == 0 {
		return errors.New("values.schema.json is missing")
	}
	for _, try := range []struct {
		name    string
		value   any
		problem string
		wanted  bool
	}{
		{"image", c.Values["image"], "'/image'", false},
		{"image", "", "'/image'", true},
		{"valueThatDoesNotExist", true, "'valueThatDoesNotExist'", true},
	} {
		values := maps.Clone(c.Values)
		values[try.name] = try.value
		err := util.ValidateAgainstSingleSchema(values, c.Schema)
		if found := err != nil && strings.Contains(err.Error(), try.problem); found != try.wanted {
			return fmt.Errorf("with %s=%v, the schema has the problem %s: %t; want %t (%s)",
				try.name, try.value, try.problem, found, try.wanted, fmt.Sprint(err))
		}
	}
	return nil
}
