// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"io"
	"log"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	ggcr "github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/validate"
)

func TestAPushedReleaseHasTheSameDigests(t *testing.T) {
	v := newVerifier(t)
	server := httptest.NewServer(ggcr.New(ggcr.Logger(log.New(io.Discard, "", 0))))
	defer server.Close()
	to := strings.TrimPrefix(server.URL, "http://") + "/kubetenant"
	var out bytes.Buffer
	if err := v.push(t.Context(), to, &out); err != nil {
		t.Fatal(err)
	}
	if got := strings.Count(out.String(), " pushed\n"); got != 5 {
		t.Errorf("pushed %d: %s", got, out.String())
	}
	for _, program := range servers() {
		index, err := remote.Index(parse(t, to+"/"+program+":"+v.version))
		if err != nil {
			t.Fatal(err)
		}
		want, err := openIndex(filepath.Join(v.dist, layoutsFolder, program))
		if err != nil {
			t.Fatal(err)
		}
		wantDigest, err := want.Digest()
		if err != nil {
			t.Fatal(err)
		}
		if digest, err := index.Digest(); err != nil || digest != wantDigest {
			t.Errorf("%s has the digest %s, %v; want %s", program, digest, err, wantDigest)
		}
		if err := validate.Index(index); err != nil {
			t.Error(err)
		}
	}
	for chart := range charts() {
		image, err := remote.Image(parse(t, to+"/charts/"+chart+":"+chartVersion(v.version)))
		if err != nil {
			t.Fatal(err)
		}
		manifest, err := image.Manifest()
		if err != nil {
			t.Fatal(err)
		}
		want := v1.Hash{Algorithm: "sha256", Hex: v.files[chartName(chart, v.version)]}
		if len(manifest.Layers) != 1 || manifest.Layers[0].Digest != want ||
			manifest.Config.MediaType != chartConfigType || manifest.Layers[0].MediaType != chartContentType {
			t.Errorf("chart %s is %+v; want a layer with the digest %s", chart, manifest, want)
		}
	}

	t.Run("a second push changes nothing", func(t *testing.T) {
		out.Reset()
		if err := v.push(t.Context(), to, &out); err != nil {
			t.Fatal(err)
		}
		if got := strings.Count(out.String(), " unchanged\n"); got != 5 {
			t.Errorf("unchanged %d: %s", got, out.String())
		}
	})
	t.Run("a tag with another digest is not replaced", func(t *testing.T) {
		if err := remote.WriteIndex(parse(t, to+"/kube-apiserver:"+v.version), empty.Index); err != nil {
			t.Fatal(err)
		}
		requireProblem(t, v.push(t.Context(), to, &out), "a released version never changes")
	})
}

func parse(t *testing.T, text string) name.Reference {
	t.Helper()
	ref, err := name.ParseReference(text)
	if err != nil {
		t.Fatal(err)
	}
	return ref
}
