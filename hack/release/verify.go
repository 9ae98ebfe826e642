// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// A verifier checks the files of a release. It knows which files are required, but not how the
// release was built.
type verifier struct {
	dist, tools string
	// publicKey is in PEM. If it is empty, the signatures must have the keyless identity.
	publicKey []byte
	keyless   identity
	unsigned  bool

	version   string
	platforms []platform
	files     map[string]string // digests by the names of the files
	binaries  map[string]string // digests of programs by program and platform
	images    map[string]string // digests of the indexes by the names of the images
}

// verify returns the problems of the release. If the digests or the signatures are wrong, verify
// does not check the content of the files.
func (v *verifier) verify(ctx context.Context, want string) error {
	if err := v.verifyFiles(ctx, want); err != nil {
		return err
	}
	return v.checkContents()
}

// verifyFiles checks the names, the digests and the signatures of the files.
func (v *verifier) verifyFiles(ctx context.Context, want string) error {
	var err error
	if v.files, err = digests(v.dist); err != nil {
		return err
	}
	if err := v.identify(want); err != nil {
		return err
	}
	text, err := v.read(checksumsFile)
	if err != nil {
		return err
	}
	problems := append(checkChecksums(string(text), v.files), v.checkNames()...)
	return errors.Join(append(problems, v.checkSignatures(ctx)...)...)
}

// checkContents compares the artifacts with each other.
func (v *verifier) checkContents() error {
	v.binaries, v.images = map[string]string{}, map[string]string{}
	var problems []error
	var licenses []string
	for _, a := range artifacts(v.version, v.platforms) {
		if a.image {
			continue
		}
		license, err := v.checkArchive(a)
		problems = append(problems, named(a.file, err))
		licenses = append(licenses, license)
	}
	if len(slices.Compact(licenses)) != 1 {
		problems = append(problems, fmt.Errorf("the archives have different files %s", license))
	}
	commit, err := v.commit()
	problems = append(problems, err)
	for _, program := range servers() {
		problems = append(problems, named(layoutOf(program), v.checkImage(program, commit)))
	}
	for _, chart := range slices.Sorted(maps.Keys(charts())) {
		file := chartName(chart, v.version)
		data, err := v.read(file)
		if err == nil {
			err = checkChart(data, chart, v.version, reference(chart, v.version, v.images[chart]))
		}
		problems = append(problems, named(file, err))
	}
	for _, a := range artifacts(v.version, v.platforms) {
		data, err := v.read(a.sbom())
		if err == nil {
			err = checkSBOM(data, a.file, v.version, v.files[a.file])
		}
		problems = append(problems, named(a.sbom(), err))
	}
	return errors.Join(append(problems, v.checkProvenance(), v.checkKrew(), v.checkNotes())...)
}

func (v *verifier) read(file string) ([]byte, error) {
	return os.ReadFile(filepath.Join(v.dist, filepath.FromSlash(file)))
}

// identify determines the version and the platforms of the release from the names of the files.
func (v *verifier) identify(want string) error {
	for name := range v.files {
		version, found := strings.CutPrefix(name, servers()[0]+"_")
		if version, isImage := strings.CutSuffix(version, "_image.tar"); found && isImage {
			if v.version != "" {
				return fmt.Errorf("the folder has files of the versions %s and %s", v.version, version)
			}
			v.version = version
		}
	}
	if v.version == "" {
		return fmt.Errorf("the folder has no image %s: it is not a release, or not complete",
			imageName(servers()[0], "VERSION"))
	}
	if err := checkVersion(v.version); err != nil {
		return err
	}
	if want != "" && want != v.version {
		return fmt.Errorf("the folder has the version %s; want %s", v.version, want)
	}
	if v.unsigned && !isSnapshot(v.version) {
		return fmt.Errorf("%s is a release, so it must be verified with signatures: set PUBLIC=cosign.pub", v.version)
	}
	v.platforms = allPlatforms()
	if isSnapshot(v.version) {
		v.platforms = slices.DeleteFunc(v.platforms, func(p platform) bool {
			return v.files[archiveName(plugin, v.version, p)] == ""
		})
	}
	if len(linux(v.platforms)) == 0 {
		return fmt.Errorf("the folder has no archive of %s for linux", plugin)
	}
	return nil
}

// checkNames checks that the folder contains exactly the files of a release.
func (v *verifier) checkNames() []error {
	expected := expectedFiles(v.version, v.platforms)
	if !v.unsigned {
		for _, file := range signed(v.version) {
			expected = append(expected, file+bundleSuffix)
		}
	}
	slices.Sort(expected)
	var problems []error
	for _, name := range expected {
		if v.files[name] == "" {
			problems = append(problems, fmt.Errorf("%s is missing", name))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(v.files)) {
		inLayout := slices.ContainsFunc(servers(), func(program string) bool {
			return strings.HasPrefix(name, layoutOf(program)+"/") // see checkImage
		})
		if _, found := slices.BinarySearch(expected, name); !found && !inLayout {
			problems = append(problems, fmt.Errorf("%s does not belong to a release", name))
		}
	}
	return problems
}

func (v *verifier) checkSignatures(ctx context.Context) []error {
	if v.unsigned {
		return nil
	}
	var problems []error
	for _, file := range signed(v.version) {
		if len(v.publicKey) == 0 {
			err := checkKeyless(ctx, v.tools, filepath.Join(v.dist, file), v.keyless)
			problems = append(problems, named(file+bundleSuffix, err))
			continue
		}
		data, err := v.read(file)
		if err == nil {
			var bundle []byte
			if bundle, err = v.read(file + bundleSuffix); err == nil {
				err = checkSignature(data, bundle, v.publicKey)
			}
		}
		problems = append(problems, named(file+bundleSuffix, err))
	}
	return problems
}

// subjectFiles returns the files that the provenance describes.
func (v *verifier) subjectFiles() map[string]string {
	files := maps.Clone(v.files)
	delete(files, checksumsFile)
	delete(files, provenanceFile)
	maps.DeleteFunc(files, func(name, _ string) bool { return strings.HasSuffix(name, bundleSuffix) })
	return files
}

// commit returns the commit in the first image. checkImage checks that each image has the same
// commit.
func (v *verifier) commit() (string, error) {
	commit, err := imageCommit(filepath.Join(v.dist, filepath.FromSlash(layoutOf(servers()[0]))))
	if err == nil && isSnapshot(v.version) && !strings.HasPrefix(commit, strings.TrimPrefix(v.version, "v0.0.0-")) {
		err = fmt.Errorf("the images are built from commit %s, not from the commit of the snapshot", commit)
	}
	return commit, err
}

func (v *verifier) checkProvenance() error {
	data, err := v.read(provenanceFile)
	if err != nil {
		return err
	}
	commit, err := checkProvenance(data, v.version, v.subjectFiles(), v.images)
	if err != nil {
		return named(provenanceFile, err)
	}
	if images, err := v.commit(); err != nil || commit != images {
		return errors.Join(err, fmt.Errorf("%s is about commit %s, the images about %s", provenanceFile, commit, images))
	}
	return nil
}

func (v *verifier) checkKrew() error {
	got, err := v.read(krewFile)
	if err != nil {
		return err
	}
	want, err := krewManifest(v.version, v.platforms, v.files)
	if err != nil {
		return err
	}
	if string(got) != string(want) {
		return fmt.Errorf("%s is not the manifest of these archives", krewFile)
	}
	return nil
}

func (v *verifier) checkNotes() error {
	text, err := v.read(notesFile)
	if err == nil && !strings.HasPrefix(string(text), "# kubetenant "+v.version+"\n") {
		err = fmt.Errorf("%s is not about version %s", notesFile, v.version)
	}
	return err
}
