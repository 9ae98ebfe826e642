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
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// maxFile is the maximum size of a file in bytes. It is larger than the largest program, and limits
// the memory that a manipulated archive could require.
const maxFile = 1 << 30

// visit is called for each file of an archive, in order. mode is the mode in octal, with the bits
// for setuid, setgid and sticky.
type visit func(name, mode string, content io.Reader) error

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
		// Other formats can contain more attributes, such as the capabilities of a program.
		if header.Format != tar.FormatUSTAR {
			return fmt.Errorf("%s has the tar format %v", header.Name, header.Format)
		}
		if err := each(header.Name, fmt.Sprintf("%#o", header.Mode), t); err != nil {
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
		err = each(f.Name, fmt.Sprintf("%#o", uint32(f.Mode())), content)
		if err := errors.Join(err, content.Close()); err != nil {
			return err
		}
	}
	return nil
}

// checkArchive checks the files in an archive, and that the program is built for the platform. The
// other files must be equal to those of the source.
func (v *verifier) checkArchive(a artifact) error {
	p := a.platforms[0]
	want := []string{"0644 " + license, "0755 " + binaryName(a.program, p)}
	if a.program == plugin && p.os != "windows" {
		want = append(want, "0755 "+completion)
	}
	var got []string
	each := func(name, mode string, content io.Reader) error {
		got = append(got, mode+" "+name)
		data, err := io.ReadAll(io.LimitReader(content, maxFile))
		if err != nil {
			return err
		}
		switch name {
		case binaryName(a.program, p):
			return v.checkBinary(data, a.program, p)
		case license:
			return v.compare(data, license)
		case completion:
			return v.compare(data, "cmd", plugin, completion)
		}
		return nil
	}
	data, err := v.read(a.file)
	if err != nil {
		return err
	}
	if strings.HasSuffix(a.file, ".zip") {
		err = readZip(data, each)
	} else {
		err = readTarGz(bytes.NewReader(data), each)
	}
	if err == nil && !slices.Equal(got, want) {
		err = fmt.Errorf("it has the files %q; want %q", got, want)
	}
	return err
}

// compare returns an error if data is not the content of a file in the source.
func (v *verifier) compare(data []byte, path ...string) error {
	want, err := os.ReadFile(filepath.Join(append([]string{v.made.source}, path...)...))
	if err == nil && !bytes.Equal(data, want) {
		err = v.differs(path[len(path)-1])
	}
	return err
}

// differs returns the error about a file that the source does not make.
func (v *verifier) differs(file string) error {
	return fmt.Errorf("%s is not the one that the source makes: verify from the repository at commit %s",
		file, v.made.commit)
}

// checkBinary checks the build information of a program, and records the program. Go does not
// record the linker flags. Therefore checkBinary only checks that the program contains the version
// and the commit.
func (v *verifier) checkBinary(data []byte, program string, p platform) error {
	info, err := buildinfo.Read(bytes.NewReader(data))
	if err != nil {
		return err
	}
	sum := sha256.Sum256(data)
	v.programs[program+" "+p.String()] = built{digest: hex.EncodeToString(sum[:]), info: info}
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
	for _, want := range []string{v.version, v.made.commit} {
		if !bytes.Contains(data, []byte(want)) {
			return fmt.Errorf("the program does not contain %s", want)
		}
	}
	return nil
}
