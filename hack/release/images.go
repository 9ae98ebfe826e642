// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"cmp"
	"encoding/pem"
	"io"
	"os"
	"path/filepath"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"golang.org/x/crypto/x509roots/fallback/bundle"
)

// imageUser is the user of the processes in the images. The charts set the same number.
const imageUser = "65532:65532"

// imageLabels returns the labels of an image. The index of the image has the same annotations.
func imageLabels(program, version, commit string) map[string]string {
	return map[string]string{
		"org.opencontainers.image.title":    program,
		"org.opencontainers.image.version":  version,
		"org.opencontainers.image.revision": commit,
		"org.opencontainers.image.licenses": "Apache-2.0",
		"org.opencontainers.image.source":   repository,
		"org.opencontainers.image.url":      repository,
	}
}

// programFolder is the folder of the program in an image. It is in the PATH of containers, because
// kubeadm starts kube-apiserver without a path.
const programFolder = "usr/local/bin/"

// baseEntries returns the files of an image, except the program.
func baseEntries() []entry {
	return []entry{
		{name: "etc/", mode: 0o755},
		{
			name: "etc/group",
			data: []byte("root:x:0:\nnonroot:x:65532:\n"),
			mode: 0o644,
		},
		{
			name: "etc/passwd",
			data: []byte("root:x:0:0:root:/:/sbin/nologin\nnonroot:x:65532:65532:nonroot:/:/sbin/nologin\n"),
			mode: 0o644,
		},
		{name: "etc/ssl/", mode: 0o755},
		{name: "etc/ssl/certs/", mode: 0o755},
		{name: "etc/ssl/certs/ca-certificates.crt", data: certificates(), mode: 0o644},
		{name: "tmp/", mode: 0o1777},
		{name: "usr/", mode: 0o755},
		{name: "usr/local/", mode: 0o755},
		{name: programFolder, mode: 0o755},
	}
}

// certificates returns Mozilla's certificate authorities in PEM. They come from a Go module, so
// that the bytes are the same on each machine. certificates omits authorities with a constraint,
// because PEM cannot express it.
func certificates() []byte {
	var out bytes.Buffer
	for root := range bundle.Roots() {
		if root.Constraint == nil {
			_ = pem.Encode(&out, &pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate}) // a Buffer never fails
		}
	}
	return out.Bytes()
}

// buildImage writes an image as a folder and as an archive, and returns the digest of its index.
func (r *release) buildImage(a artifact) (string, error) {
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, p := range a.platforms {
		image, err := r.platformImage(a.program, p)
		if err != nil {
			return "", err
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{
			Add:        image,
			Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: p.os, Architecture: p.arch}},
		})
	}
	labels := imageLabels(a.program, r.version, r.commit)
	index, _ = mutate.Annotations(index, labels).(v1.ImageIndex)
	digest, err := index.Digest()
	if err != nil {
		return "", err
	}
	folder := filepath.Join(r.dist, filepath.FromSlash(layoutOf(a.program)))
	to, err := layout.Write(folder, mutate.IndexMediaType(empty.Index, types.OCIImageIndex))
	if err != nil {
		return "", err
	}
	err = to.AppendIndex(index, layout.WithAnnotations(map[string]string{
		"org.opencontainers.image.ref.name": r.version,
		"io.containerd.image.name":          registry + "/" + a.program + ":" + r.version,
	}))
	if err != nil {
		return "", err
	}
	files, err := filesUnder(folder, "")
	if err != nil {
		return "", err
	}
	return digest.String(), writeFile(filepath.Join(r.dist, a.file), func(w io.Writer) error {
		return writeTar(w, files, r.time)
	})
}

// platformImage returns an image with two layers: the files that all images contain, and the
// program.
func (r *release) platformImage(program string, p platform) (v1.Image, error) {
	image := mutate.MediaType(empty.Image, types.OCIManifestSchema1)
	image = mutate.ConfigMediaType(image, types.OCIConfigJSON)
	created := v1.Time{Time: r.time}
	for _, l := range []struct {
		entries []entry
		comment string
	}{
		{baseEntries(), "certificate authorities, passwd and group"},
		{[]entry{{name: programFolder + program, path: r.binary(program, p), mode: 0o755}}, program},
	} {
		layer, err := r.layer(l.entries)
		if err != nil {
			return nil, err
		}
		image, err = mutate.Append(image, mutate.Addendum{
			Layer:     layer,
			MediaType: types.OCILayer,
			History:   v1.History{Created: created, CreatedBy: "hack/release", Comment: l.comment},
		})
		if err != nil {
			return nil, err
		}
	}
	config, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.Created, config.OS, config.Architecture = created, p.os, p.arch
	config.Config = v1.Config{
		Entrypoint: []string{"/" + programFolder + program},
		Labels:     imageLabels(program, r.version, r.commit),
		User:       imageUser,
		WorkingDir: "/",
	}
	return mutate.ConfigFile(image, config)
}

// layer compresses the entries into a file. A layer in memory would be compressed twice: once for
// its digest, and once when it is written.
func (r *release) layer(entries []entry) (v1.Layer, error) {
	f, err := os.CreateTemp(r.scratch, "layer-*.tar.gz")
	if err != nil {
		return nil, err
	}
	if err := cmp.Or(writeTarGz(f, entries, r.time), f.Close()); err != nil {
		return nil, err
	}
	return tarball.LayerFromFile(f.Name(), tarball.WithMediaType(types.OCILayer))
}
