// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	spdxjson "github.com/spdx/tools-golang/json"
	"github.com/spdx/tools-golang/spdx/v2/common"
	"github.com/spdx/tools-golang/spdx/v2/v2_3"
)

// buildSBOM writes the SBOM of an archive or an image. Syft reads the programs in the artifact.
func (r *release) buildSBOM(ctx context.Context, a artifact) error {
	folder, err := os.MkdirTemp(r.scratch, "sbom-*")
	if err != nil {
		return err
	}
	for _, p := range a.platforms {
		path := filepath.Join(folder, p.os+"_"+p.arch, binaryName(a.program, p))
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			return err
		}
		if err := os.Link(r.binary(a.program, p), path); err != nil {
			return err
		}
	}
	//nolint:gosec // a tool of bin, whose folder the user specifies
	syft := exec.CommandContext(ctx, filepath.Join(r.tools, "syft"), "scan", "dir:"+folder, "--quiet",
		"--source-name", a.file, "--source-version", r.version, "--output", "spdx-json")
	syft.Env = append(os.Environ(), "SYFT_CHECK_FOR_APP_UPDATE=false")
	var stdout, stderr bytes.Buffer
	syft.Stdout, syft.Stderr = &stdout, &stderr
	if err := syft.Run(); err != nil {
		return fmt.Errorf("syft: %w: %s", err, stderr.String())
	}
	document, err := readSBOM(&stdout)
	if err != nil {
		return err
	}
	digest, err := digestOf(filepath.Join(r.dist, a.file))
	if err != nil {
		return err
	}
	subject, err := subjectOf(document)
	if err != nil {
		return err
	}
	// Syft writes the current time and a random namespace, so these fields are replaced.
	document.CreationInfo.Created = r.time.Format(time.RFC3339)
	document.DocumentNamespace = namespaceOf(a.file, digest)
	subject.PackageFileName = a.file
	subject.PackageChecksums = []common.Checksum{{Algorithm: common.SHA256, Value: digest}}
	return writeFile(filepath.Join(r.dist, a.sbom()), func(w io.Writer) error {
		return spdxjson.Write(document, w, spdxjson.Indent("  "), spdxjson.EscapeHTML(false))
	})
}

func namespaceOf(file, digest string) string {
	return repository + "/releases/sbom/" + file + "-" + digest
}

func readSBOM(in io.Reader) (*v2_3.Document, error) {
	document := &v2_3.Document{}
	if err := spdxjson.ReadInto(in, document); err != nil {
		return nil, fmt.Errorf("read the SBOM: %w", err)
	}
	return document, nil
}

// subjectOf returns the package of the artifact that an SBOM describes.
func subjectOf(document *v2_3.Document) (*v2_3.Package, error) {
	var subject *v2_3.Package
	for _, r := range document.Relationships {
		if r.Relationship != common.TypeRelationshipDescribe {
			continue
		}
		for _, p := range document.Packages {
			if p.PackageSPDXIdentifier != r.RefB.ElementRefID {
				continue
			}
			if subject != nil {
				return nil, fmt.Errorf("the SBOM describes more than one package")
			}
			subject = p
		}
	}
	if subject == nil {
		return nil, fmt.Errorf("the SBOM describes no package")
	}
	return subject, nil
}

// modulesOf returns the modules in programs, as their names with their versions, and the version of
// Go. Syft does not record the version of a module that a relative path replaces, so such a module
// is returned without a version.
func modulesOf(programs []*debug.BuildInfo) map[string]bool {
	modules := map[string]bool{}
	for _, info := range programs {
		modules["stdlib "+info.GoVersion] = true
		for _, m := range info.Deps {
			switch {
			case m.Replace == nil:
				modules[m.Path+" "+m.Version] = true
			case strings.HasPrefix(m.Replace.Path, "."):
				modules[m.Path] = true
			default:
				modules[m.Replace.Path+" "+m.Replace.Version] = true
			}
		}
	}
	return modules
}

// checkSBOM checks that an SBOM describes a file with the given digest, and contains the given
// modules, see [modulesOf].
func checkSBOM(data []byte, file, version, digest string, modules map[string]bool) error {
	document, err := readSBOM(bytes.NewReader(data))
	if err != nil {
		return err
	}
	subject, err := subjectOf(document)
	if err != nil {
		return err
	}
	if document.DocumentName != file || subject.PackageName != file || subject.PackageFileName != file ||
		subject.PackageVersion != version {
		return fmt.Errorf("it is about %s in version %s", subject.PackageName, subject.PackageVersion)
	}
	sums := subject.PackageChecksums
	if len(sums) != 1 || sums[0].Algorithm != common.SHA256 || sums[0].Value != digest ||
		document.DocumentNamespace != namespaceOf(file, digest) {
		return fmt.Errorf("it is about a file with another digest")
	}
	listed := map[string]bool{}
	for _, p := range document.Packages {
		listed[p.PackageName] = true
		listed[p.PackageName+" "+p.PackageVersion] = true
	}
	for _, name := range slices.Sorted(maps.Keys(modules)) {
		if !listed[name] {
			return fmt.Errorf("it does not list %s, which a program contains", name)
		}
	}
	return nil
}
