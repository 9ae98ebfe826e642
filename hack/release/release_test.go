// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sigstore/sigstore/pkg/cryptoutils"
)

// The tests in this file attack the snapshot that "make release-check" creates. Each test restores
// the files that it changes.

// snapshotFolder returns the folder of the snapshot.
func snapshotFolder(t *testing.T) string {
	t.Helper()
	folder := os.Getenv("KUBETENANT_RELEASE")
	if folder == "" {
		t.Skip("KUBETENANT_RELEASE is not set: run make release-check")
	}
	return folder
}

func publicKey(t *testing.T) []byte {
	t.Helper()
	key, err := readKey(filepath.Join(os.Getenv("KUBETENANT_RELEASE_KEYS"), "cosign.pub"))
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// verifyFiles verifies the digests and the signatures of the snapshot, but not the content of the
// files.
func verifyFiles(t *testing.T, folder string, key []byte) error {
	t.Helper()
	v := &verifier{dist: folder, publicKey: key}
	return v.verifyFiles(t.Context(), "")
}

// verifyChange verifies the snapshot after a change of one file. files contains the digests of the
// unchanged files, because reading all files again would take a second for each change.
func verifyChange(t *testing.T, folder string, key []byte, files map[string]string, name string) error {
	t.Helper()
	v := &verifier{dist: folder, publicKey: key, files: maps.Clone(files)}
	digest, err := digestOf(filepath.Join(folder, name))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		delete(v.files, name)
	case err != nil:
		t.Fatal(err)
	default:
		v.files[name] = digest
	}
	return v.checkFiles(t.Context(), "")
}

// requireProblem fails the test unless err names the file.
func requireProblem(t *testing.T, err error, file string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), file) {
		t.Errorf("got %v; want a problem of %s", err, file)
	}
}

// filesOf returns the digests of all files of the snapshot, by name.
func filesOf(t *testing.T, folder string) map[string]string {
	t.Helper()
	files, err := digests(folder)
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func TestSnapshotIsValid(t *testing.T) {
	v := newVerifier(t) // hack/release.sh and TestDifferentFilesAreFound verify the content
	if err := v.verifyFiles(t.Context(), ""); err != nil {
		t.Fatal(err)
	}
	if len(v.files) < 40 {
		t.Errorf("the snapshot has %d files", len(v.files))
	}
}

func TestAnotherVersionIsRejected(t *testing.T) {
	requireProblem(t, newVerifier(t).verify(t.Context(), "v9.9.9"), "want v9.9.9")
}

// flip changes one bit of the byte at an offset of a file.
func flip(t *testing.T, path string, at int64) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 1)
	if _, err := f.ReadAt(b, at); err != nil {
		t.Fatal(err)
	}
	b[0] ^= 1
	if _, err := f.WriteAt(b, at); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestOneFlippedByteInAnyFileIsFound(t *testing.T) {
	folder, key := snapshotFolder(t), publicKey(t)
	files := filesOf(t, folder)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(folder, name)
			info, err := os.Stat(path)
			if err != nil {
				t.Fatal(err)
			}
			middle := info.Size() / 2
			flip(t, path, middle)
			defer flip(t, path, middle)
			requireProblem(t, verifyChange(t, folder, key, files, name), filepath.Base(name))
		})
	}
}

// TestEachFlippedByteOfASignatureIsFound checks each byte of a signature, because some bytes could
// have no effect, such as the spare bits of base64.
func TestEachFlippedByteOfASignatureIsFound(t *testing.T) {
	folder, key := snapshotFolder(t), publicKey(t)
	data, err := os.ReadFile(filepath.Join(folder, checksumsFile))
	if err != nil {
		t.Fatal(err)
	}
	bundle, err := os.ReadFile(filepath.Join(folder, checksumsFile+bundleSuffix))
	if err != nil {
		t.Fatal(err)
	}
	if err := checkSignature(data, bundle, key); err != nil {
		t.Fatal(err)
	}
	for at := range bundle {
		for bit := range 8 {
			changed := bytes.Clone(bundle)
			changed[at] ^= 1 << bit
			if checkSignature(data, changed, key) == nil {
				t.Errorf("bit %d of byte %d has no effect", bit, at)
			}
		}
	}
	for size := range bundle {
		if checkSignature(data, bundle[:size], key) == nil {
			t.Errorf("the first %d bytes are a signature", size)
		}
	}
}

func TestARemovedFileIsFound(t *testing.T) {
	folder, key := snapshotFolder(t), publicKey(t)
	files := filesOf(t, folder)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		t.Run(name, func(t *testing.T) {
			path, aside := filepath.Join(folder, name), filepath.Join(filepath.Dir(folder), "aside")
			rename(t, path, aside)
			defer rename(t, aside, path)
			want := filepath.Base(name)
			// The names of two files determine the version and the platforms of a snapshot.
			switch version := strings.TrimSuffix(strings.TrimPrefix(want, servers()[0]+"_"), "_image.tar"); {
			case want == imageName(servers()[0], version):
				want = "the folder has no image " + imageName(servers()[0], "VERSION")
			case strings.HasPrefix(want, plugin+"_") && strings.HasSuffix(want, ".tar.gz"):
				want = "the folder has no archive of " + plugin
			}
			requireProblem(t, verifyChange(t, folder, key, files, name), want)
		})
	}
}

func rename(t *testing.T, from, to string) {
	t.Helper()
	if err := os.Rename(from, to); err != nil {
		t.Fatal(err)
	}
}

func TestAnAddedFileIsFound(t *testing.T) {
	folder, key := snapshotFolder(t), publicKey(t)
	for _, added := range []string{
		"added", ".hidden", "images/added", "images/kube-apiserver/added", "images/kube-apiserver/blobs/sha256/added",
		"checksums.txt.asc", "kubectl-tenant.sigstore.json", "new/added",
	} {
		t.Run(added, func(t *testing.T) {
			path := filepath.Join(folder, added)
			if filepath.Dir(added) == "new" {
				if err := os.Mkdir(filepath.Dir(path), 0o755); err != nil {
					t.Fatal(err)
				}
				defer func() { _ = os.Remove(filepath.Dir(path)) }()
			}
			if err := os.WriteFile(path, []byte("x"), 0o644); err != nil {
				t.Fatal(err)
			}
			defer func() { _ = os.Remove(path) }()
			requireProblem(t, verifyFiles(t, folder, key), added+" is not in")
		})
	}
}

func TestASymbolicLinkIsRefused(t *testing.T) {
	folder, key := snapshotFolder(t), publicKey(t)
	path, aside := filepath.Join(folder, notesFile), filepath.Join(filepath.Dir(folder), "aside")
	rename(t, path, aside)
	defer rename(t, aside, path)
	if err := os.Symlink(aside, path); err != nil {
		t.Fatal(err)
	}
	requireProblem(t, verifyFiles(t, folder, key), notesFile+" is not a regular file")
}

func TestSwappedFilesAreFound(t *testing.T) {
	folder, key := snapshotFolder(t), publicKey(t)
	for _, suffix := range []string{".tar.gz", ".tgz", "_image.tar", sbomSuffix, "_image.tar" + bundleSuffix} {
		t.Run(suffix, func(t *testing.T) {
			var pair []string
			for _, name := range slices.Sorted(maps.Keys(filesOf(t, folder))) {
				if strings.HasSuffix(name, suffix) && len(pair) < 2 {
					pair = append(pair, filepath.Join(folder, name))
				}
			}
			if len(pair) < 2 {
				t.Fatalf("there are not two files %s", suffix)
			}
			swap := func() {
				aside := filepath.Join(filepath.Dir(folder), "aside")
				rename(t, pair[0], aside)
				rename(t, pair[1], pair[0])
				rename(t, aside, pair[1])
			}
			swap()
			defer swap()
			requireProblem(t, verifyFiles(t, folder, key), filepath.Base(pair[0]))
		})
	}
}

func TestASignatureOfAnotherKeyIsRejected(t *testing.T) {
	folder := snapshotFolder(t)
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	other, err := cryptoutils.MarshalPublicKeyToPEM(private.Public())
	if err != nil {
		t.Fatal(err)
	}
	err = verifyFiles(t, folder, other)
	for _, file := range signed(versionOf(t, folder)) {
		requireProblem(t, err, file+bundleSuffix+": the signature was made with another key")
	}
}

// TestAForgedHintIsRejected checks that a bundle whose key hint is that of another key is rejected.
// An attacker could write this hint.
func TestAForgedHintIsRejected(t *testing.T) {
	folder := snapshotFolder(t)
	key := publicKey(t)
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	other, err := cryptoutils.MarshalPublicKeyToPEM(private.Public())
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(filepath.Join(folder, checksumsFile))
	if err != nil {
		t.Fatal(err)
	}
	bundle, err := os.ReadFile(filepath.Join(folder, checksumsFile+bundleSuffix))
	if err != nil {
		t.Fatal(err)
	}
	forged := bytes.Replace(bundle, []byte(hintOf(key)), []byte(hintOf(other)), 1)
	if bytes.Equal(forged, bundle) {
		t.Fatal("the bundle does not contain the hint")
	}
	if err := checkSignature(data, forged, other); err == nil || !strings.Contains(err.Error(), "does not match") {
		t.Errorf("got %v", err)
	}
}

func versionOf(t *testing.T, folder string) string {
	t.Helper()
	v := &verifier{dist: folder}
	var err error
	if v.files, err = digests(folder); err != nil {
		t.Fatal(err)
	}
	if err := v.identify(""); err != nil {
		t.Fatal(err)
	}
	return v.version
}

func TestATruncatedFileIsFound(t *testing.T) {
	folder, key := snapshotFolder(t), publicKey(t)
	for _, name := range []string{checksumsFile, checksumsFile + bundleSuffix, provenanceFile} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(folder, name)
			data, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			for _, size := range []int{0, len(data) / 2, len(data) - 1} {
				write(t, path, data[:size])
				requireProblem(t, verifyFiles(t, folder, key), name)
			}
			write(t, path, data)
		})
	}
}

func write(t *testing.T, path string, data []byte) {
	t.Helper()
	if err := os.WriteFile(path, data, fs.FileMode(0o644)); err != nil {
		t.Fatal(err)
	}
}
