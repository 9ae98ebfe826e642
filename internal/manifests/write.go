// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

// Package manifests contains the common parts of the generate commands of the webhook service and
// of the gateway.
package manifests

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Write writes the files of a folder to dir, or all files if folder is empty. Only the current user
// can read files that it creates, because files can contain secrets from the files that the
// configuration names.
func Write(dir, folder string, files map[string][]byte) error {
	for _, name := range slices.Sorted(maps.Keys(files)) {
		rest := name
		if folder != "" {
			var ok bool
			if rest, ok = strings.CutPrefix(name, folder+"/"); !ok {
				continue
			}
		}
		path := filepath.Join(dir, filepath.FromSlash(rest))
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			return err
		}
		if err := os.WriteFile(path, files[name], 0o600); err != nil {
			return err
		}
	}
	return nil
}
