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
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"time"
)

// A verifier checks the files of a release. It makes the release again from the repository and the
// programs in the archives, and does not build the programs.
type verifier struct {
	dist, tools string
	// publicKey is in PEM. If it is empty, the signatures must have the keyless identity.
	publicKey []byte
	keyless   identity
	unsigned  bool
	// source is the folder of the repository. commit is its commit, and time the commit's time.
	source, commit string
	time           time.Time

	version   string
	platforms []platform
	files     map[string]string // digests by the names of the files
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
	return v.checkFiles(ctx, want)
}

// checkFiles checks the names and the signatures of the files, and that they have the digests in
// checksums.txt.
func (v *verifier) checkFiles(ctx context.Context, want string) error {
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

// checkContents makes the release again, and compares the files. It checks the SBOMs and the
// provenance separately, because they cannot be made again.
func (v *verifier) checkContents() error {
	made, err := v.remake()
	if err != nil {
		return err
	}
	return errors.Join(v.compare(made), os.RemoveAll(made.scratch))
}

// remake returns the release that the source should make. Its dist is an empty temporary folder
// below scratch.
func (v *verifier) remake() (*release, error) {
	if isSnapshot(v.version) && !strings.HasPrefix(v.commit, strings.TrimPrefix(v.version, "v0.0.0-")) {
		return nil, fmt.Errorf("%s is not a snapshot of the repository's commit %s: check out its commit",
			v.version, v.commit)
	}
	data, err := v.read(provenanceFile)
	if err != nil {
		return nil, err
	}
	_, provenance, err := readProvenance(data)
	if err != nil {
		return nil, named(provenanceFile, err)
	}
	if made := goVersionOf(provenance); made != runtime.Version() {
		return nil, fmt.Errorf("the release was made with %s, and this tool with %s, which may compress differently: "+
			"remove bin/release and run make verify-release with that version", made, runtime.Version())
	}
	scratch, err := os.MkdirTemp("", "verify-release-*")
	if err != nil {
		return nil, err
	}
	made := &release{
		version:   v.version,
		commit:    v.commit,
		time:      v.time,
		platforms: v.platforms,
		source:    v.source,
		scratch:   scratch,
		binaries:  filepath.Join(scratch, "programs"),
		dist:      filepath.Join(scratch, "dist"),
	}
	return made, os.Mkdir(made.dist, 0o700)
}

// compare makes the files of a release again, and compares them with the verified ones.
func (v *verifier) compare(made *release) error {
	programs := map[string][]*debug.BuildInfo{} // by name
	var problems []error
	for _, a := range artifacts(v.version, v.platforms) {
		if a.image {
			continue
		}
		info, err := v.extract(a, made)
		if err == nil && info.GoVersion != runtime.Version() {
			err = fmt.Errorf("%s was built with %s, not with %s", a.program, info.GoVersion, runtime.Version())
		}
		problems = append(problems, named(a.file, err))
		programs[a.file] = []*debug.BuildInfo{info}
		programs[a.program] = append(programs[a.program], info)
	}
	if err := errors.Join(problems...); err != nil {
		return err
	}
	images, err := made.buildPackages()
	if err != nil {
		return err
	}
	files, err := digests(made.dist)
	if err != nil {
		return err
	}
	problems = v.differences(files)
	for _, a := range artifacts(v.version, v.platforms) {
		contained := programs[a.file]
		if a.image {
			contained = programs[a.program]
		}
		data, err := v.read(a.sbom())
		if err == nil {
			err = checkSBOM(data, a.file, v.version, v.files[a.file], modulesOf(contained))
		}
		problems = append(problems, named(a.sbom(), err))
	}
	data, err := v.read(provenanceFile)
	if err == nil {
		err = made.checkProvenance(data, v.subjectFiles(), images)
	}
	return errors.Join(append(problems, named(provenanceFile, err))...)
}

// differences returns the files whose digests are not the given ones. The folders of the images
// must have no other files.
func (v *verifier) differences(want map[string]string) (problems []error) {
	for _, name := range slices.Sorted(maps.Keys(want)) {
		if v.files[name] != want[name] {
			problems = append(problems, fmt.Errorf("%s is not the file that commit %s makes", name, v.commit))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(v.files)) {
		if want[name] == "" && strings.HasPrefix(name, layoutsFolder+"/") {
			problems = append(problems, fmt.Errorf("%s does not belong to an image", name))
		}
	}
	return problems
}

func (v *verifier) read(file string) ([]byte, error) {
	return os.ReadFile(filepath.Join(v.dist, filepath.FromSlash(file)))
}

// identify determines the version and the platforms of the release from the names of the files.
func (v *verifier) identify(want string) error {
	v.version = ""
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
			return strings.HasPrefix(name, layoutOf(program)+"/") // see differences
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
