// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"io"
	"path/filepath"

	"sigs.k8s.io/yaml"
)

// krewPlugin is a plugin manifest in the format of krew (sigs.k8s.io/krew, pkg/index/types.go,
// v0.4.5). krew's own types are not imported because they would require a different version of
// client-go.
type krewPlugin struct {
	APIVersion string       `json:"apiVersion"`
	Kind       string       `json:"kind"`
	Metadata   krewMetadata `json:"metadata"`
	Spec       krewSpec     `json:"spec"`
}

type krewMetadata struct {
	Name string `json:"name"`
}

type krewSpec struct {
	Version          string         `json:"version"`
	Homepage         string         `json:"homepage"`
	ShortDescription string         `json:"shortDescription"`
	Description      string         `json:"description"`
	Platforms        []krewPlatform `json:"platforms"`
}

type krewPlatform struct {
	Selector krewSelector `json:"selector"`
	URI      string       `json:"uri"`
	Sha256   string       `json:"sha256"`
	Bin      string       `json:"bin"`
}

type krewSelector struct {
	MatchLabels map[string]string `json:"matchLabels"`
}

// krewManifest returns the krew manifest of kubectl-tenant. files contains the digests of the
// archives.
func krewManifest(version string, platforms []platform, files map[string]string) ([]byte, error) {
	manifest := krewPlugin{
		APIVersion: "krew.googlecontainertools.github.com/v1alpha2",
		Kind:       "Plugin",
		Metadata:   krewMetadata{"tenant"},
		Spec: krewSpec{
			Version:          version,
			Homepage:         repository,
			ShortDescription: "Manage the tenants of a cluster",
			Description: "Manages the identities, privileges and tenants of a Kubernetes cluster. It shows which\n" +
				"tenant a caller has, what the caller may do and why.\n",
		},
	}
	for _, p := range platforms {
		archive := archiveName(plugin, version, p)
		manifest.Spec.Platforms = append(manifest.Spec.Platforms, krewPlatform{
			Selector: krewSelector{map[string]string{"os": p.os, "arch": p.arch}},
			URI:      repository + "/releases/download/" + version + "/" + archive,
			Sha256:   files[archive],
			Bin:      binaryName(plugin, p),
		})
	}
	return yaml.Marshal(manifest)
}

func (r *release) buildKrew() error {
	files, err := digests(r.dist)
	if err != nil {
		return err
	}
	text, err := krewManifest(r.version, r.platforms, files)
	if err != nil {
		return err
	}
	return writeFile(filepath.Join(r.dist, krewFile), func(w io.Writer) error {
		_, err := w.Write(text)
		return err
	})
}
