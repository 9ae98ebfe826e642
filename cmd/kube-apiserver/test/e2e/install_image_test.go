// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
)

// imageReference matches the reference of a release's image: name, tag and digest.
var imageReference = regexp.MustCompile(`^ghcr\.io/kubetenant/([a-z-]+):([\w.-]+)@(sha256:[0-9a-f]{64})$`)

// descriptor, index, manifest and imageConfig are the parts of OCI's image format that a node needs
// (opencontainers/image-spec v1.1).
type descriptor struct {
	Digest   string
	Platform struct{ OS, Architecture string }
}

type index struct{ Manifests []descriptor }

type manifest struct {
	Config descriptor
	Layers []descriptor
}

type imageConfig struct {
	Config struct {
		User            string
		Env, Entrypoint []string
		Cmd             []string
	}
}

// archives is the folder with the image archives of a release, from which the node pulls images.
type archives struct{ dir string }

// pull unpacks the image with the given reference into root, and returns the image's configuration.
// It reads the archive with the name and tag of the reference. The digest must match.
func (a archives) pull(reference, root string) (*imageConfig, error) {
	parts := imageReference.FindStringSubmatch(reference)
	if parts == nil {
		return nil, fmt.Errorf("%q is not an image of a release with a digest", reference)
	}
	blobs, err := readArchive(filepath.Join(a.dir, parts[1]+"_"+parts[2]+"_image.tar"))
	if err != nil {
		return nil, err
	}
	return blobs.image(parts[3], root)
}

// image unpacks the image with the given digest into root, for the platform of this machine.
func (f files) image(digest, root string) (*imageConfig, error) {
	var layout index
	if err := json.Unmarshal(f["index.json"], &layout); err != nil {
		return nil, err
	}
	if len(layout.Manifests) != 1 || layout.Manifests[0].Digest != digest {
		return nil, fmt.Errorf("the archive does not contain the image %s", digest)
	}
	var platforms index
	if err := f.decode(layout.Manifests[0], &platforms); err != nil {
		return nil, err
	}
	for _, m := range platforms.Manifests {
		if m.Platform.OS == "linux" && m.Platform.Architecture == runtime.GOARCH {
			return f.unpack(m, root)
		}
	}
	return nil, fmt.Errorf("the image has no platform linux/%s", runtime.GOARCH)
}

// files contains the content of an archive's files, keyed by file name.
type files map[string][]byte

func readArchive(path string) (files, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	all := files{}
	for archive := tar.NewReader(file); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return nil, err
		}
		if header.Typeflag != tar.TypeReg {
			continue
		}
		if all[strings.TrimPrefix(header.Name, "./")], err = io.ReadAll(archive); err != nil {
			return nil, err
		}
	}
}

// blob returns the content that a descriptor refers to. If the content does not have the
// descriptor's digest, blob returns an error.
func (f files) blob(d descriptor) ([]byte, error) {
	algorithm, digest, _ := strings.Cut(d.Digest, ":")
	data, ok := f["blobs/"+algorithm+"/"+digest]
	if sum := sha256.Sum256(data); !ok || algorithm != "sha256" || hex.EncodeToString(sum[:]) != digest {
		return nil, fmt.Errorf("the content of %s has another digest", d.Digest)
	}
	return data, nil
}

func (f files) decode(d descriptor, into any) error {
	data, err := f.blob(d)
	if err != nil {
		return err
	}
	return json.Unmarshal(data, into)
}

// unpack unpacks the image of one platform into root.
func (f files) unpack(d descriptor, root string) (*imageConfig, error) {
	var m manifest
	if err := f.decode(d, &m); err != nil {
		return nil, err
	}
	config := &imageConfig{}
	if err := f.decode(m.Config, config); err != nil {
		return nil, err
	}
	for _, layer := range m.Layers {
		data, err := f.blob(layer)
		if err != nil {
			return nil, err
		}
		uncompressed, err := gzip.NewReader(bytes.NewReader(data))
		if err != nil {
			return nil, err
		}
		if err := unpackLayer(uncompressed, root); err != nil {
			return nil, err
		}
	}
	return config, nil
}

// unpackLayer unpacks the folders and files of a layer into root, with their modes and owners.
func unpackLayer(layer io.Reader, root string) error {
	for archive := tar.NewReader(layer); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		name := strings.TrimPrefix(header.Name, "/")
		if name = filepath.Clean(name); !filepath.IsLocal(name) {
			return fmt.Errorf("the layer contains %q", header.Name)
		}
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil { // #nosec G301 -- of the image
			return err
		}
		switch header.Typeflag {
		case tar.TypeDir:
			err = os.MkdirAll(path, 0o755) // #nosec G301 -- of the image
		case tar.TypeReg:
			err = writeFrom(path, archive)
		default:
			return fmt.Errorf("the layer contains %q of type %q", header.Name, header.Typeflag)
		}
		if err := errors.Join(err, os.Lchown(path, header.Uid, header.Gid),
			os.Chmod(path, header.FileInfo().Mode().Perm())); err != nil {
			return err
		}
	}
}

func writeFrom(path string, from io.Reader) error {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(file, from)
	return errors.Join(err, file.Close())
}
