// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
)

var (
	pageHeading = regexp.MustCompile(`(?m)^## (.+)$`)
	pageLink    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	// releaseHeading is a heading such as "0.1.0 - 2026-12-01".
	releaseHeading = regexp.MustCompile(`^(\S+) - \d{4}-\d{2}-\d{2}$`)
)

// buildNotes writes the release notes: the first section of the changelog, and of docs/upgrade.md.
func (r *release) buildNotes() error {
	changes, err := r.firstSection("CHANGELOG.md")
	if err != nil {
		return err
	}
	upgrade, err := r.firstSection("docs/upgrade.md")
	if err != nil {
		return err
	}
	text := fmt.Sprintf("# kubetenant %s\n\n[How to verify these files](%s/blob/%s/SECURITY.md#verify-a-release)\n\n%s",
		r.version, repository, r.commit, changes)
	for _, title := range []string{"Do this before the upgrade", "Do this during the upgrade"} {
		_, todo, found := strings.Cut("\n"+upgrade, "\n### "+title+"\n")
		if found {
			todo, _, _ = strings.Cut(todo, "\n### ")
			text += fmt.Sprintf("\n## %s\n\n%s\n", title, strings.TrimSpace(todo))
		}
	}
	text += fmt.Sprintf("\n[All notes about the upgrade](%s/blob/%s/docs/upgrade.md)\n", repository, r.commit)
	return writeFile(filepath.Join(r.dist, notesFile), func(w io.Writer) error {
		_, err := io.WriteString(w, text)
		return err
	})
}

// firstSection returns the first section of a page, with links that work outside the repository. If
// this is not a snapshot, the heading of the section must contain the version.
func (r *release) firstSection(page string) (string, error) {
	text, err := os.ReadFile(filepath.Join(r.source, filepath.FromSlash(page)))
	if err != nil {
		return "", err
	}
	headings := pageHeading.FindAllSubmatchIndex(text, 2)
	if len(headings) == 0 {
		return "", fmt.Errorf("%s has no section", page)
	}
	end := len(text)
	if len(headings) > 1 {
		end = headings[1][0]
	}
	title := string(text[headings[0][2]:headings[0][3]])
	if err := checkHeading(title, r.version); err != nil {
		return "", fmt.Errorf("%s: %w", page, err)
	}
	section := strings.TrimSpace(string(text[headings[0][1]:end])) + "\n"
	return pageLink.ReplaceAllStringFunc(section, func(link string) string {
		target := pageLink.FindStringSubmatch(link)[1]
		switch {
		case strings.Contains(target, "://"):
			return link
		case strings.HasPrefix(target, "#"):
			target = page + target
		default:
			target = path.Join(path.Dir(page), target)
		}
		return "](" + repository + "/blob/" + r.commit + "/" + target + ")"
	}), nil
}

func checkHeading(title, version string) error {
	if isSnapshot(version) {
		return nil
	}
	match := releaseHeading.FindStringSubmatch(title)
	if match == nil || match[1] != chartVersion(version) {
		return fmt.Errorf("the first section is %q: it must be %q with the date of the release",
			title, chartVersion(version)+" - 2026-12-01")
	}
	return nil
}
