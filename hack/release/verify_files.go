// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"debug/buildinfo"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
)

// maxFile is the maximum size of a program in bytes. It is larger than the largest program, and
// limits the memory that a manipulated archive could require.
const maxFile = 1 << 30

var errTooLarge = errors.New("the program is larger than 1 GiB")

// fileInTarGz returns the content of a file in an archive.
func fileInTarGz(archive []byte, name string) ([]byte, error) {
	z, err := gzip.NewReader(bytes.NewReader(archive))
	if err != nil {
		return nil, err
	}
	for t := tar.NewReader(z); ; {
		header, err := t.Next()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		if header.Name == name {
			return readProgram(t)
		}
	}
}

func fileInZip(archive []byte, name string) ([]byte, error) {
	z, err := zip.NewReader(bytes.NewReader(archive), int64(len(archive)))
	if err != nil {
		return nil, err
	}
	content, err := z.Open(name)
	if err != nil {
		return nil, err
	}
	data, err := readProgram(content)
	return data, errors.Join(err, content.Close())
}

func readProgram(r io.Reader) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(r, maxFile+1))
	if err == nil && len(data) > maxFile {
		err = errTooLarge
	}
	return data, err
}

// extract writes the program of an archive to the folder of made's programs, after it has checked
// the program. It returns the build information of the program.
func (v *verifier) extract(a artifact, made *release) (*debug.BuildInfo, error) {
	p := a.platforms[0]
	archive, err := v.read(a.file)
	if err != nil {
		return nil, err
	}
	read := fileInTarGz
	if strings.HasSuffix(a.file, ".zip") {
		read = fileInZip
	}
	data, err := read(archive, binaryName(a.program, p))
	if err != nil {
		return nil, err
	}
	info, err := checkBinary(data, a.program, made, p)
	if err != nil {
		return nil, err
	}
	path := made.binary(a.program, p)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, err
	}
	return info, os.WriteFile(path, data, 0o600)
}

// stamp returns the text that identifies the programs of a release (internal/version). Go does not
// record the linker flag that sets it.
func stamp(version, commit string) string {
	return "kubetenant-release:" + version + ":" + commit + ";"
}

// checkBinary checks the build information and the stamp of a program.
func checkBinary(data []byte, program string, of *release, p platform) (*debug.BuildInfo, error) {
	info, err := buildinfo.Read(bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	if want := module + "/cmd/" + program; info.Path != want {
		return nil, fmt.Errorf("the program is %s; want %s", info.Path, want)
	}
	settings := map[string]string{}
	for _, s := range info.Settings {
		settings[s.Key] = s.Value
	}
	for key, want := range map[string]string{
		"GOOS":        p.os,
		"GOARCH":      p.arch,
		"CGO_ENABLED": "0",
		"-trimpath":   "true",
	} {
		if settings[key] != want {
			return nil, fmt.Errorf("the program was built with %s=%s; want %s", key, settings[key], want)
		}
	}
	if want := stamp(of.version, of.commit); !bytes.Contains(data, []byte(want)) {
		return nil, fmt.Errorf("the program does not contain %s", want)
	}
	return info, nil
}
