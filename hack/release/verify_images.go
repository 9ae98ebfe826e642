// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"path"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/google/go-containerregistry/pkg/v1/validate"
)

// openIndex returns the only image index in an image layout, and its descriptor.
func openIndex(folder string) (v1.ImageIndex, v1.Descriptor, error) {
	all, err := layout.ImageIndexFromPath(folder)
	if err != nil {
		return nil, v1.Descriptor{}, err
	}
	manifest, err := all.IndexManifest()
	if err != nil {
		return nil, v1.Descriptor{}, err
	}
	if len(manifest.Manifests) != 1 || manifest.Manifests[0].MediaType != types.OCIImageIndex {
		return nil, v1.Descriptor{}, errors.New("index.json must name one index")
	}
	descriptor := manifest.Manifests[0]
	index, err := all.ImageIndex(descriptor.Digest)
	return index, descriptor, err
}

// imageSource returns the commit in the annotations of an image index, and its time.
func imageSource(folder string) (string, time.Time, error) {
	index, _, err := openIndex(folder)
	if err != nil {
		return "", time.Time{}, err
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		return "", time.Time{}, err
	}
	commit := manifest.Annotations[revisionLabel]
	if !commitHash.MatchString(commit) || len(manifest.Manifests) == 0 {
		return "", time.Time{}, fmt.Errorf("the image has the commit %q and %d platforms", commit, len(manifest.Manifests))
	}
	image, err := index.Image(manifest.Manifests[0].Digest)
	if err != nil {
		return "", time.Time{}, err
	}
	config, err := image.ConfigFile()
	if err != nil {
		return "", time.Time{}, err
	}
	return commit, config.Created.Time, nil
}

// checkImage checks each blob and each platform in the folder of an image, and that the archive of
// the image contains the same files. It records the digest of the index.
func (v *verifier) checkImage(program string) error {
	folder := filepath.Join(v.dist, filepath.FromSlash(layoutOf(program)))
	index, descriptor, err := openIndex(folder)
	if err != nil {
		return err
	}
	if got := descriptor.Annotations; !maps.Equal(got, indexAnnotations(program, v.version)) {
		return fmt.Errorf("index.json has the annotations %v", got)
	}
	if err := validate.Index(index); err != nil {
		return err
	}
	v.images[program] = descriptor.Digest.String()
	manifest, err := index.IndexManifest()
	if err != nil {
		return err
	}
	if !maps.Equal(manifest.Annotations, imageLabels(program, v.version, v.made.commit)) {
		return fmt.Errorf("the index has the annotations %v", manifest.Annotations)
	}
	platforms := linux(v.platforms)
	if len(manifest.Manifests) != len(platforms) {
		return fmt.Errorf("the index has %d images; want one for each of %v", len(manifest.Manifests), platforms)
	}
	blobs := []string{descriptor.Digest.Hex}
	for i, p := range platforms {
		at := manifest.Manifests[i]
		if at.Platform == nil || at.Platform.OS != p.os || at.Platform.Architecture != p.arch {
			return fmt.Errorf("image %d of the index is not for %s", i, p)
		}
		image, err := index.Image(at.Digest)
		if err != nil {
			return err
		}
		found, err := v.checkPlatform(image, program, p)
		if err != nil {
			return fmt.Errorf("%s: %w", p, err)
		}
		blobs = append(append(blobs, at.Digest.Hex), found...)
	}
	return errors.Join(v.checkLayout(program, blobs), v.checkImageArchive(program))
}

// checkPlatform checks the configuration and the files of the image for one platform. It returns
// the digests of its blobs.
func (v *verifier) checkPlatform(image v1.Image, program string, p platform) ([]string, error) {
	config, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	// The files of the layers are checked below.
	wantConfig := v.made.imageConfig(program, p)
	wantConfig.RootFS, wantConfig.History = config.RootFS, config.History
	if !reflect.DeepEqual(*config, wantConfig) {
		return nil, fmt.Errorf("its configuration is %+v; want %+v", *config, wantConfig)
	}
	layers, err := image.Layers()
	if err != nil {
		return nil, err
	}
	var got []string
	for _, layer := range layers {
		content, err := layer.Uncompressed()
		if err != nil {
			return nil, err
		}
		err = readTar(content, func(name, mode string, content io.Reader) error {
			h := sha256.New()
			_, err := io.Copy(h, io.LimitReader(content, maxFile))
			got = append(got, fmt.Sprintf("%s %s %s", mode, name, hex.EncodeToString(h.Sum(nil))))
			return err
		})
		if err := errors.Join(err, content.Close()); err != nil {
			return nil, err
		}
	}
	if want := v.imageFiles(program, p); len(layers) != 2 || !slices.Equal(got, want) {
		return nil, fmt.Errorf("its files are %q; want %q", got, want)
	}
	manifest, err := image.Manifest()
	if err != nil {
		return nil, err
	}
	blobs := []string{manifest.Config.Digest.Hex}
	for _, layer := range manifest.Layers {
		blobs = append(blobs, layer.Digest.Hex)
	}
	return blobs, nil
}

// imageFiles returns the files that an image must contain. The program must be the one in the
// program's archive.
func (v *verifier) imageFiles(program string, p platform) []string {
	var files []string
	for _, e := range baseEntries() {
		sum := sha256.Sum256(e.data)
		files = append(files, fmt.Sprintf("%#o %s %s", e.mode, e.name, hex.EncodeToString(sum[:])))
	}
	return append(files, fmt.Sprintf("%#o %s %s", 0o755, program, v.programs[program+" "+p.String()].digest))
}

// checkLayout checks that the folder contains exactly the given blobs. The name of a blob is its
// digest.
func (v *verifier) checkLayout(program string, blobs []string) error {
	want := map[string]bool{"index.json": true, "oci-layout": true}
	for _, blob := range blobs {
		want["blobs/sha256/"+blob] = true
	}
	for name, digest := range v.files {
		name, inside := strings.CutPrefix(name, layoutOf(program)+"/")
		if !inside {
			continue
		}
		if !want[name] {
			return fmt.Errorf("%s does not belong to the image", name)
		}
		if path.Dir(name) == "blobs/sha256" && path.Base(name) != digest {
			return fmt.Errorf("%s has the digest %s", name, digest)
		}
	}
	return nil
}

// checkImageArchive writes the archive of an image again from the folder, and compares its digest
// with the digest of the archive.
func (v *verifier) checkImageArchive(program string) error {
	files, err := filesUnder(filepath.Join(v.dist, filepath.FromSlash(layoutOf(program))), "")
	if err != nil {
		return err
	}
	h := sha256.New()
	if err := writeTar(h, files, v.made.time); err != nil {
		return err
	}
	if file := imageName(program, v.version); hex.EncodeToString(h.Sum(nil)) != v.files[file] {
		return fmt.Errorf("%s does not have the same files as the folder", file)
	}
	return nil
}
