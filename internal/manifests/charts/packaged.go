// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package charts

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"

	"sigs.k8s.io/yaml"
)

// maxFileBytes is the maximum size of each file that [Image] reads from a packaged chart.
const maxFileBytes = 1 << 20

// pinnedImage matches an image reference with a tag and a digest.
var pinnedImage = regexp.MustCompile(`^[^\s@]+:([\w][\w.-]{0,127})@sha256:[0-9a-f]{64}$`)

// Image returns the default image of a release's packaged chart, such as
// kubetenant-webhook-0.1.0.tgz. The chart must have the given name. The image must have a digest,
// and its tag must be the version of the chart. ownVersion is the version of the calling command.
// If it is the version of a release, the chart must have the same version.
func Image(path, name, ownVersion string) (string, error) {
	image, err := image(path, name, ownVersion)
	if err != nil {
		return "", fmt.Errorf("read the chart %s: %w", path, err)
	}
	return image, nil
}

func image(path, name, ownVersion string) (string, error) {
	chart, values, err := unpack(path, name)
	if err != nil {
		return "", err
	}
	var chartFile struct{ Name, Version string }
	var defaults struct{ Image string }
	if err := errors.Join(yaml.Unmarshal(chart, &chartFile), yaml.Unmarshal(values, &defaults)); err != nil {
		return "", err
	}
	parts := pinnedImage.FindStringSubmatch(defaults.Image)
	switch {
	case chartFile.Name != name:
		return "", fmt.Errorf("its name is %q: use the chart %s of a release", chartFile.Name, name)
	case parts == nil:
		return "", errors.New("its default image has no tag or no digest: use a chart of a release, or set --image")
	case strings.TrimPrefix(parts[1], "v") != chartFile.Version:
		return "", fmt.Errorf("the image of version %s does not belong to the chart of version %s: download the chart again",
			parts[1], chartFile.Version)
	case strings.HasPrefix(ownVersion, "v") && ownVersion[1:] != chartFile.Version:
		return "", fmt.Errorf("the chart has version %s, and this command has version %s: use both of one release",
			chartFile.Version, ownVersion)
	}
	return defaults.Image, nil
}

// unpack returns Chart.yaml and values.yaml of a packaged chart.
func unpack(path, name string) (chart, values []byte, err error) {
	file, err := os.Open(path) // #nosec G304 -- the operator's file
	if err != nil {
		return nil, nil, err
	}
	defer func() { _ = file.Close() }()
	compressed, err := gzip.NewReader(file)
	if err != nil {
		return nil, nil, err
	}
	for archive := tar.NewReader(compressed); ; {
		header, err := archive.Next()
		switch {
		case errors.Is(err, io.EOF) && (chart == nil || values == nil):
			return nil, nil, fmt.Errorf("it does not contain %s/Chart.yaml and %[1]s/values.yaml", name)
		case errors.Is(err, io.EOF):
			return chart, values, nil
		case err != nil:
			return nil, nil, err
		}
		var into *[]byte
		switch header.Name {
		case name + "/Chart.yaml":
			into = &chart
		case name + "/values.yaml":
			into = &values
		default:
			continue
		}
		if *into, err = io.ReadAll(io.LimitReader(archive, maxFileBytes)); err != nil {
			return nil, nil, err
		}
	}
}
