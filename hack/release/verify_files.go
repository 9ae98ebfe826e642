// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"
)

// maxFile is the maximum size of a file in bytes. It is larger than the largest program, and limits
// the memory that a manipulated archive could require.
const maxFile = 1 << 30

// visit is called for each file of an archive, in order.
type visit func(name string, mode fs.FileMode, content io.Reader) error

func readTarGz(r io.Reader, each visit) error {
	z, err := gzip.NewReader(r)
	if err != nil {
		return err
	}
	if err := readTar(z, each); err != nil {
		return err
	}
	// At the end, the reader compares the checksum.
	switch _, err := io.CopyN(io.Discard, z, 1); {
	case err == nil:
		return errors.New("other bytes follow the archive")
	case !errors.Is(err, io.EOF):
		return err
	}
	return nil
}

func readTar(r io.Reader, each visit) error {
	t := tar.NewReader(r)
	for {
		header, err := t.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if header.Typeflag != tar.TypeReg && header.Typeflag != tar.TypeDir {
			return fmt.Errorf("%s is neither a file nor a folder", header.Name)
		}
		if header.Uid != 0 || header.Gid != 0 {
			return fmt.Errorf("%s belongs to user %d", header.Name, header.Uid)
		}
		if err := each(header.Name, fs.FileMode(header.Mode)&0o7777, t); err != nil { //nolint:gosec // masked
			return err
		}
	}
}

func readZip(data []byte, each visit) error {
	z, err := zip.NewReader(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		return err
	}
	for _, f := range z.File {
		content, err := f.Open()
		if err != nil {
			return err
		}
		err = each(f.Name, f.Mode(), content)
		if err := errors.Join(err, content.Close()); err != nil {
			return err
		}
	}
	return nil
}

// checkArchive checks the files in an archive, and that the program is built for the platform. It
// returns the digest of the license.
func (v *verifier) checkArchive(a artifact) (license string, err error) {
	p := a.platforms[0]
	want := []string{"-rw-r--r-- LICENSE", "-rwxr-xr-x " + binaryName(a.program, p)}
	if a.program == plugin && p.os != "windows" {
		want = append(want, "-rwxr-xr-x "+completion)
	}
	var got []string
	each := func(name string, mode fs.FileMode, content io.Reader) error {
		got = append(got, mode.String()+" "+name)
		data, err := io.ReadAll(io.LimitReader(content, maxFile))
		if err != nil {
			return err
		}
		sum := sha256.Sum256(data)
		switch name {
		case binaryName(a.program, p):
			v.binaries[a.program+" "+p.String()] = hex.EncodeToString(sum[:])
			return checkBinary(data, a.program, v.version, p)
		case "LICENSE":
			license = string(sum[:])
		}
		return nil
	}
	data, err := v.read(a.file)
	if err != nil {
		return "", err
	}
	if strings.HasSuffix(a.file, ".zip") {
		err = readZip(data, each)
	} else {
		err = readTarGz(bytes.NewReader(data), each)
	}
	if err == nil && !slices.Equal(got, want) {
		err = fmt.Errorf("it has the files %q; want %q", got, want)
	}
	return license, err
}

// checkBinary checks the build information of a program. Go does not record the linker flags, so
// checkBinary only checks that the program contains the version.
func checkBinary(data []byte, program, version string, p platform) error {
	info, err := buildinfo.Read(bytes.NewReader(data))
	if err != nil {
		return err
	}
	if want := module + "/cmd/" + program; info.Path != want {
		return fmt.Errorf("the program is %s; want %s", info.Path, want)
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
			return fmt.Errorf("the program was built with %s=%s; want %s", key, settings[key], want)
		}
	}
	if !bytes.Contains(data, []byte(version)) {
		return fmt.Errorf("the program does not contain its version %s", version)
	}
	return nil
}
