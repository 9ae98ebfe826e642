// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestCommandsOfTheSecurityPage runs the commands of "Verify a release" in SECURITY.md.
func TestCommandsOfTheSecurityPage(t *testing.T) {
	folder := snapshotFolder(t)
	page, err := os.ReadFile("../../SECURITY.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, found := strings.Cut(string(page), "\n## Verify a release\n")
	if !found {
		t.Fatal("SECURITY.md has no section about verification")
	}
	blocks := regexp.MustCompile("(?ms)^```\n(.*?)^```$").FindAllStringSubmatch(section, -1)
	if len(blocks) != 2 {
		t.Fatalf("the section has %d blocks of commands", len(blocks))
	}
	commands := blocks[0][1] + blocks[1][1]
	if out, err := runCommands(t, folder, "", commands); err != nil || strings.Count(out, "Verified OK") != 2 {
		t.Errorf("%v\n%s", err, out)
	}
	version := versionOf(t, folder)
	archive := archiveName(plugin, version, platform{"linux", "amd64"})
	for _, changed := range []string{checksumsFile, provenanceFile, archive} {
		t.Run("changed "+changed, func(t *testing.T) {
			if out, err := runCommands(t, folder, changed, commands); err == nil {
				t.Errorf("the commands accept the file:\n%s", out)
			}
		})
	}
}

// runCommands runs commands as a user who has downloaded the files of a folder. If changed is not
// empty, this file is modified first.
func runCommands(t *testing.T, folder, changed, commands string) (string, error) {
	t.Helper()
	dir := t.TempDir()
	keys, tools := os.Getenv("KUBETENANT_RELEASE_KEYS"), os.Getenv("KUBETENANT_BIN")
	files, err := os.ReadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		link(t, filepath.Join(folder, f.Name()), filepath.Join(dir, f.Name()))
	}
	link(t, filepath.Join(keys, "cosign.pub"), filepath.Join(dir, "cosign.pub"))
	if changed != "" {
		path := filepath.Join(dir, changed)
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		data[len(data)/2] ^= 1
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		write(t, path, data)
	}
	cmd := exec.CommandContext(t.Context(), "bash", "-euo", "pipefail", "-c", commands)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "PATH="+tools+":"+os.Getenv("PATH"))
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func link(t *testing.T, from, to string) {
	t.Helper()
	if err := os.Symlink(from, to); err != nil {
		t.Fatal(err)
	}
}
