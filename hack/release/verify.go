// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"debug/buildinfo"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// A verifier checks the files of a release. It does not build the programs again.
type verifier struct {
	dist, tools string
	// publicKey is in PEM. If it is empty, the signatures must have the keyless identity.
	publicKey []byte
	keyless   identity
	unsigned  bool

	version   string
	platforms []platform
	files     map[string]string // digests by the names of the files
	programs  map[string]built  // the programs in the archives, by name and platform
	images    map[string]string // digests of the indexes by the names of the images

	// made makes the files again that depend only on the source, to compare them.
	made release
}

// built describes a program in an archive.
type built struct {
	digest string
	info   *buildinfo.BuildInfo
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
	if err := v.prepare(); err != nil {
		return err
	}
	var problems []error
	for _, a := range artifacts(v.version, v.platforms) {
		if !a.image {
			problems = append(problems, named(a.file, v.checkArchive(a)))
		}
	}
	for _, program := range servers() {
		problems = append(problems, named(layoutOf(program), v.checkImage(program)))
	}
	for _, chart := range slices.Sorted(maps.Keys(charts())) {
		problems = append(problems, named(chartName(chart, v.version), v.checkChart(chart)))
	}
	for _, a := range artifacts(v.version, v.platforms) {
		data, err := v.read(a.sbom())
		if err == nil {
			err = checkSBOM(data, a.file, v.version, v.files[a.file], v.modules(a))
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

// prepare sets what the checks of the content need. The commit and its time come from the first
// image. checkImage checks that each image has the same ones.
func (v *verifier) prepare() error {
	v.programs, v.images = map[string]built{}, map[string]string{}
	commit, when, err := imageSource(filepath.Join(v.dist, filepath.FromSlash(layoutOf(servers()[0]))))
	if err != nil {
		return err
	}
	if isSnapshot(v.version) && !strings.HasPrefix(commit, strings.TrimPrefix(v.version, "v0.0.0-")) {
		return fmt.Errorf("the images are built from commit %s, not from the commit of the snapshot", commit)
	}
	v.made.version, v.made.commit, v.made.time = v.version, commit, when
	return nil
}

// checkChart checks a chart, and that the source makes the same bytes.
func (v *verifier) checkChart(chart string) error {
	file := chartName(chart, v.version)
	data, err := v.read(file)
	if err != nil {
		return err
	}
	if err := checkChart(data, chart, v.version, reference(chart, v.version, v.images[chart])); err != nil {
		return err
	}
	want, err := v.made.chart(chart, v.images[chart])
	if err == nil && !bytes.Equal(data, want) {
		err = v.differs(file)
	}
	return err
}

// modules returns the versions of the modules in the programs of an artifact, by name.
func (v *verifier) modules(a artifact) map[string]string {
	modules := map[string]string{}
	for _, p := range a.platforms {
		program := v.programs[a.program+" "+p.String()]
		if program.info == nil {
			continue
		}
		for _, m := range program.info.Deps {
			if m.Replace != nil {
				m = m.Replace
			}
			modules[m.Path] = m.Version
		}
	}
	return modules
}

func (v *verifier) checkProvenance() error {
	data, err := v.read(provenanceFile)
	if err != nil {
		return err
	}
	commit, version, err := checkProvenance(data, v.version, v.subjectFiles(), v.images)
	if err != nil {
		return named(provenanceFile, err)
	}
	if commit != v.made.commit {
		return fmt.Errorf("%s is about commit %s, the images about %s", provenanceFile, commit, v.made.commit)
	}
	for name, program := range v.programs {
		if program.info.GoVersion != version {
			return fmt.Errorf("%s is about %s, but %s was built with %s", provenanceFile, version, name, program.info.GoVersion)
		}
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
	if err != nil {
		return err
	}
	want, err := v.made.notes()
	if err == nil && string(text) != want {
		err = v.differs(notesFile)
	}
	return err
}
