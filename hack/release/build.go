// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"debug/buildinfo"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

var commitHash = regexp.MustCompile(`^[0-9a-f]{40}$`)

// A release contains the values that are common to all artifacts.
type release struct {
	version, commit string
	// time is the time of the commit. It is the only time in artifacts, except for the build times
	// in the provenance.
	time      time.Time
	platforms []platform

	source, binaries, tools, dist, scratch string

	key                 string
	keyless, unsigned   bool
	builder, invocation string
	started             time.Time
}

// parallel returns the maximum number of artifacts that are built or read concurrently.
func parallel() int { return max(2, runtime.GOMAXPROCS(0)) }

// check returns an error if the verification of the release would fail.
func (r *release) check() error {
	if err := checkVersion(r.version); err != nil {
		return err
	}
	if !commitHash.MatchString(r.commit) {
		return fmt.Errorf("commit %q: must have 40 hexadecimal digits", r.commit)
	}
	if isSnapshot(r.version) && !strings.HasPrefix(r.commit, strings.TrimPrefix(r.version, "v0.0.0-")) {
		return fmt.Errorf("version %s is not the snapshot of commit %s", r.version, r.commit)
	}
	if r.key != "" && r.keyless {
		return errors.New("use either a key or keyless signatures")
	}
	if r.key == "" && !r.keyless && !r.unsigned && !isSnapshot(r.version) {
		return errors.New("a release needs signatures: set KEY=cosign.key, KEYLESS=1 or UNSIGNED=1")
	}
	if !isSnapshot(r.version) && len(r.platforms) != len(allPlatforms()) {
		return errors.New("a release needs all platforms: do not set PLATFORMS, or make a snapshot")
	}
	return nil
}

func (r *release) binary(program string, p platform) string {
	return filepath.Join(r.binaries, p.os+"_"+p.arch, binaryName(program, p))
}

// build writes all files of the release. If the output folder exists, it must be empty.
func (r *release) build(ctx context.Context) error {
	if err := os.MkdirAll(r.dist, 0o755); err != nil { //nolint:gosec // the files of a release are public
		return err
	}
	if existing, err := os.ReadDir(r.dist); err != nil || len(existing) > 0 {
		return errors.Join(err, fmt.Errorf("%s must be empty: remove its files", r.dist))
	}
	if err := r.checkPrograms(); err != nil {
		return err
	}
	images, err := r.buildPackages()
	if err != nil {
		return err
	}
	if err := r.buildSBOMs(ctx); err != nil {
		return err
	}
	if err := r.buildProvenance(images); err != nil {
		return fmt.Errorf("provenance: %w", err)
	}
	return r.finish(ctx)
}

// checkPrograms checks that the programs were built with the Go version of this tool. The
// provenance names one version, and the version of this tool determines the compressed bytes.
func (r *release) checkPrograms() error {
	for _, a := range artifacts(r.version, r.platforms) {
		if a.image {
			continue
		}
		path := r.binary(a.program, a.platforms[0])
		info, err := buildinfo.ReadFile(path)
		if err != nil {
			return err
		}
		if info.GoVersion != runtime.Version() {
			return fmt.Errorf("%s was built with %s, and this tool with %s: remove bin/release and use one version of Go",
				path, info.GoVersion, runtime.Version())
		}
	}
	return nil
}

// buildPackages writes the files that depend only on the source, the programs and the time of the
// commit: the archives, images, charts, the krew manifest and the release notes. It returns the
// digests of the images.
func (r *release) buildPackages() (map[string]string, error) {
	images, err := r.buildArtifacts()
	if err != nil {
		return nil, err
	}
	for chart := range charts() {
		if err := r.buildChart(chart, images[chart]); err != nil {
			return nil, fmt.Errorf("chart %s: %w", chart, err)
		}
	}
	return images, errors.Join(r.buildKrew(), r.buildNotes())
}

// finish writes the checksums and the signatures.
func (r *release) finish(ctx context.Context) error {
	for _, file := range signed(r.version) {
		if file == checksumsFile {
			if err := r.buildChecksums(); err != nil {
				return err
			}
		}
		if r.key == "" && !r.keyless {
			continue
		}
		if err := r.sign(ctx, file); err != nil {
			return fmt.Errorf("sign %s: %w", file, err)
		}
	}
	return nil
}

// buildArtifacts writes the archives and the images, and returns the digests of the images.
func (r *release) buildArtifacts() (map[string]string, error) {
	images := map[string]string{}
	var mu sync.Mutex
	var g errgroup.Group
	g.SetLimit(parallel())
	for _, a := range artifacts(r.version, r.platforms) {
		g.Go(func() error {
			if !a.image {
				return named(a.file, r.buildArchive(a))
			}
			digest, err := r.buildImage(a)
			mu.Lock()
			defer mu.Unlock()
			images[a.program] = digest
			return named(a.file, err)
		})
	}
	return images, g.Wait()
}

func (r *release) buildSBOMs(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(parallel())
	for _, a := range artifacts(r.version, r.platforms) {
		g.Go(func() error { return named(a.sbom(), r.buildSBOM(ctx, a)) })
	}
	return g.Wait()
}

// named adds the name of a file to an error. If err is nil, it returns nil.
func named(file string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", file, err)
}
