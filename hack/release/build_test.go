// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestAReleaseIsRefused(t *testing.T) {
	commit := "0123456789ab" + strings.Repeat("c", 28)
	for name, c := range map[string]struct {
		r        release
		unsigned bool
		want     string
	}{
		"a release without a key": {release{version: "v0.1.0", commit: commit}, false, "needs signatures"},
		"a version without v":     {release{version: "0.1.0", commit: commit}, true, "semantic version"},
		"a version with two parts": {
			release{version: "v0.1", commit: commit}, true, "semantic version",
		},
		"a version with build metadata": {release{version: "v0.1.0+a", commit: commit}, true, "metadata"},
		"a short commit":                {release{version: "v0.1.0", commit: "0123"}, true, "40 hexadecimal"},
		"a snapshot of another commit": {
			release{version: "v0.0.0-ba9876543210", commit: commit}, true, "not the snapshot",
		},
		"a key and a workflow": {
			release{
				version: "v0.1.0",
				commit:  commit,
				key:     "k",
				keyless: true,
			},
			false,
			"either",
		},
		"a release for one platform": {
			release{version: "v0.1.0", commit: commit, platforms: allPlatforms()[:1]}, true, "all platforms",
		},
		"a release without a key is allowed on demand": {
			release{version: "v0.1.0", commit: commit}, true, "",
		},
		"a snapshot without a key is allowed": {
			release{version: "v0.0.0-0123456789ab", commit: commit, platforms: allPlatforms()[2:3]}, false, "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			if c.r.platforms == nil {
				c.r.platforms = allPlatforms()
			}
			c.r.unsigned = c.unsigned
			err := c.r.check()
			if c.want == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			requireProblem(t, err, c.want)
		})
	}
}

func TestPlatforms(t *testing.T) {
	for list, want := range map[string]string{
		"":                        "",
		"linux/amd64":             "",
		"linux/arm64,linux/amd64": "",
		"linux/amd64,linux/amd64": "choose different",
		"linux/riscv64":           "choose different",
		"darwin/arm64":            "add linux",
		"linux/amd64,":            "choose different",
	} {
		t.Run(list, func(t *testing.T) {
			_, err := parsePlatforms(list)
			if want == "" && err != nil {
				t.Error(err)
			}
			if want != "" {
				requireProblem(t, err, want)
			}
		})
	}
}

// TestArchivesAreReproducible checks that the bytes of archives depend only on names, modes,
// content and the specified time.
func TestArchivesAreReproducible(t *testing.T) {
	when := time.Unix(1_800_000_000, 0)
	var made [2][2]bytes.Buffer
	for i := range made {
		path := filepath.Join(t.TempDir(), strings.Repeat("d", i+1))
		if err := os.WriteFile(path, []byte("content"), 0o600); err != nil {
			t.Fatal(err)
		}
		other := time.Unix(int64(i), 0)
		if err := os.Chtimes(path, other, other); err != nil {
			t.Fatal(err)
		}
		at := when
		if i == 1 {
			at = when.In(time.FixedZone("elsewhere", 3600))
		}
		entries := []entry{
			{name: "a", path: path, mode: 0o755},
			{name: "d/", mode: 0o755},
			{name: "d/b", data: []byte("b"), mode: 0o644},
		}
		if err := writeTarGz(&made[i][0], entries, at); err != nil {
			t.Fatal(err)
		}
		if err := writeZip(&made[i][1], entries[:1], at); err != nil {
			t.Fatal(err)
		}
	}
	for i, format := range []string{"tar.gz", "zip"} {
		if !bytes.Equal(made[0][i].Bytes(), made[1][i].Bytes()) {
			t.Errorf("two archives %s differ", format)
		}
	}
}

func TestTheChangelogMustBeAboutTheRelease(t *testing.T) {
	for heading, want := range map[string]string{
		"0.1.0 - 2026-11-29": "",
		"Unreleased":         "Unreleased",
		"0.1.0":              "with the date",
		"0.2.0 - 2026-11-29": "0.2.0",
	} {
		t.Run(heading, func(t *testing.T) {
			err := checkHeading(heading, "v0.1.0")
			if want == "" && err != nil {
				t.Error(err)
			}
			if want != "" {
				requireProblem(t, err, want)
			}
		})
	}
	if err := checkHeading("Unreleased", "v0.0.0-0123456789ab"); err != nil {
		t.Errorf("a snapshot: %v", err)
	}
}

func TestCertificatesOfImages(t *testing.T) {
	if n := bytes.Count(certificates(), []byte("BEGIN CERTIFICATE")); n < 100 {
		t.Errorf("an image has %d certificate authorities", n)
	}
}

// TestAReleaseIsNotVerifiedWithoutSignatures checks that a release without signatures is rejected,
// because an attacker could have created it.
func TestAReleaseIsNotVerifiedWithoutSignatures(t *testing.T) {
	for version, want := range map[string]string{
		"v0.1.0":              "must be verified with signatures",
		"v0.0.0-0123456789ab": "no archive of kubectl-tenant",
	} {
		t.Run(version, func(t *testing.T) {
			v := &verifier{unsigned: true, files: map[string]string{imageName("kube-apiserver", version): "0"}}
			requireProblem(t, v.identify(""), want)
		})
	}
}
