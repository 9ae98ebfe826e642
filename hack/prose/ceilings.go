// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
)

const ceilingsFile = "hack/prose/ceilings.txt"

const ceilingsHead = `# How many errors and warnings each page and package may have: kind, path, errors, warnings.
# They only fall: "hack/prose.sh --lower" writes them. A page or package without a line may have none.
# After a merge, the lower of two lines applies.
`

type ceiling struct{ errors, warnings int }

// parseCeilings parses the ceilings file. The key of a ceiling is its kind and path. If two lines
// have the same key, the lower numbers apply.
func parseCeilings(content []byte) (map[string]ceiling, error) {
	ceilings := make(map[string]ceiling)
	for line := range strings.Lines(string(content)) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		var kind, path string
		var c ceiling
		if _, err := fmt.Sscanf(line, "%s %s %d %d", &kind, &path, &c.errors, &c.warnings); err != nil {
			return nil, fmt.Errorf("%s: line %q: %w", ceilingsFile, line, err)
		}
		key := kind + " " + path
		if old, ok := ceilings[key]; ok {
			c = ceiling{min(c.errors, old.errors), min(c.warnings, old.warnings)}
		}
		ceilings[key] = c
	}
	return ceilings, nil
}

// differences returns a line for each unit whose number of findings differs from its ceiling, and
// for each ceiling without a unit.
func differences(units []unit, ceilings map[string]ceiling) []string {
	var found []string
	seen := make(map[string]bool)
	above := func(u unit, what string, n, limit int) {
		found = append(found, fmt.Sprintf("%s %s: %d %s, at most %d are allowed: hack/prose.sh %s",
			u.kind, u.path, n, what, limit, u.path))
	}
	for _, u := range units {
		key := u.kind + " " + u.path
		seen[key] = true
		c := ceilings[key]
		switch {
		case u.errors > c.errors:
			above(u, "errors", u.errors, c.errors)
		case u.warnings > c.warnings:
			above(u, "warnings", u.warnings, c.warnings)
		case u.errors < c.errors || u.warnings < c.warnings:
			found = append(found, key+": fewer findings than its ceiling: run hack/prose.sh --lower")
		}
	}
	for key := range ceilings {
		if !seen[key] {
			found = append(found, key+": has a ceiling but no text: run hack/prose.sh --lower")
		}
	}
	slices.Sort(found)
	return found
}

func compare(units []unit) error {
	content, err := os.ReadFile(ceilingsFile)
	if err != nil {
		return err
	}
	ceilings, err := parseCeilings(content)
	if err != nil {
		return err
	}
	if found := differences(units, ceilings); len(found) > 0 {
		return errors.New(strings.Join(found, "\n"))
	}
	return nil
}

// lowerCeilings lowers the ceilings in the file to the current findings. If the file does not
// exist, it writes the current findings.
func lowerCeilings(units []unit) error {
	content, err := os.ReadFile(ceilingsFile)
	var ceilings map[string]ceiling
	switch {
	case err == nil:
		ceilings, err = parseCeilings(content)
		if err != nil {
			return err
		}
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	return os.WriteFile(ceilingsFile, lowered(units, ceilings), 0o644) //nolint:gosec // not a secret
}

// lowered returns the content of the ceilings file after lowering. If ceilings is nil, each ceiling
// is the current number of findings.
func lowered(units []unit, ceilings map[string]ceiling) []byte {
	out := bytes.NewBufferString(ceilingsHead)
	for _, u := range units {
		key := u.kind + " " + u.path
		c := ceiling{u.errors, u.warnings}
		if old := ceilings[key]; ceilings != nil {
			c = ceiling{min(c.errors, old.errors), min(c.warnings, old.warnings)}
		}
		if cmp.Or(c.errors, c.warnings) > 0 {
			fmt.Fprintf(out, "%s %d %d\n", key, c.errors, c.warnings)
		}
	}
	return out.Bytes()
}
