// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"path/filepath"
	"slices"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
)

// Media types of a Helm chart in a registry (helm.sh/helm/v4, pkg/registry/constants.go, v4.3.1).
const (
	chartConfigType  = types.MediaType("application/vnd.cncf.helm.config.v1+json")
	chartContentType = types.MediaType("application/vnd.cncf.helm.chart.content.v1.tar+gzip")
)

// push uploads the images and the charts of a verified release to a registry, for example
// "ghcr.io/kubetenant". It returns an error if a tag already exists with a different digest. It
// uses the credentials in Docker's configuration.
func (v *verifier) push(ctx context.Context, to string, out io.Writer) error {
	options := []remote.Option{remote.WithContext(ctx), remote.WithAuthFromKeychain(authn.DefaultKeychain)}
	for _, program := range servers() {
		index, err := openIndex(filepath.Join(v.dist, filepath.FromSlash(layoutOf(program))))
		if err != nil {
			return err
		}
		err = pushNew(to+"/"+program+":"+v.version, index, out, options, func(ref name.Reference) error {
			return remote.WriteIndex(ref, index, options...)
		})
		if err != nil {
			return err
		}
	}
	for _, chart := range slices.Sorted(maps.Keys(charts())) {
		data, err := v.read(chartName(chart, v.version))
		if err != nil {
			return err
		}
		image, err := chartImage(data)
		if err != nil {
			return err
		}
		err = pushNew(to+"/charts/"+chart+":"+chartVersion(v.version), image, out, options, func(ref name.Reference) error {
			return remote.Write(ref, image, options...)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// openIndex returns the only image index in an image layout.
func openIndex(folder string) (v1.ImageIndex, error) {
	all, err := layout.ImageIndexFromPath(folder)
	if err != nil {
		return nil, err
	}
	manifest, err := all.IndexManifest()
	if err != nil {
		return nil, err
	}
	if len(manifest.Manifests) != 1 || manifest.Manifests[0].MediaType != types.OCIImageIndex {
		return nil, errors.New("index.json must name one index")
	}
	return all.ImageIndex(manifest.Manifests[0].Digest)
}

// pushNew calls write if the registry does not have the tag. If the tag exists with a different
// digest, pushNew returns an error.
func pushNew(
	at string, what interface{ Digest() (v1.Hash, error) }, out io.Writer, options []remote.Option,
	write func(name.Reference) error,
) error {
	ref, err := name.ParseReference(at, name.StrictValidation)
	if err != nil {
		return err
	}
	digest, err := what.Digest()
	if err != nil {
		return err
	}
	existing, err := remote.Head(ref, options...)
	switch {
	case err == nil && existing.Digest != digest:
		return fmt.Errorf("%s exists with the digest %s: a released version never changes", at, existing.Digest)
	case err == nil:
		_, err = fmt.Fprintf(out, "%s@%s unchanged\n", at, digest)
		return err
	case !isNotFound(err):
		return err
	}
	if err := write(ref); err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "%s@%s pushed\n", at, digest)
	return err
}

func isNotFound(err error) bool {
	var status *transport.Error
	return errors.As(err, &status) && status.StatusCode == http.StatusNotFound
}

// chartImage returns a chart in the format that "helm push" uploads.
func chartImage(data []byte) (v1.Image, error) {
	chart, err := loader.LoadArchive(bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	config, err := json.Marshal(chart.Metadata)
	if err != nil {
		return nil, err
	}
	artifact := &chartArtifact{
		config: config,
		layer:  static.NewLayer(data, chartContentType),
	}
	return partial.CompressedToImage(artifact)
}

// chartArtifact implements [partial.CompressedImageCore], because mutate would write a container
// configuration.
type chartArtifact struct {
	config []byte
	layer  v1.Layer
}

func (c *chartArtifact) MediaType() (types.MediaType, error) { return types.OCIManifestSchema1, nil }

func (c *chartArtifact) RawConfigFile() ([]byte, error) { return c.config, nil }

func (c *chartArtifact) RawManifest() ([]byte, error) {
	config, err := partial.Descriptor(static.NewLayer(c.config, chartConfigType))
	if err != nil {
		return nil, err
	}
	layer, err := partial.Descriptor(c.layer)
	if err != nil {
		return nil, err
	}
	return json.Marshal(v1.Manifest{
		SchemaVersion: 2,
		MediaType:     types.OCIManifestSchema1,
		Config:        *config,
		Layers:        []v1.Descriptor{*layer},
	})
}

func (c *chartArtifact) LayerByDigest(v1.Hash) (partial.CompressedLayer, error) { return c.layer, nil }
