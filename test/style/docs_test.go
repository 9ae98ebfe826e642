// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package style_test

import (
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	fence   = regexp.MustCompile("(?ms)^[ \t]*```.*?^[ \t]*```[ \t]*$")
	link    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading = regexp.MustCompile(`(?m)^#+ +(.+)$`)
	// dropped matches the characters that GitHub removes from an anchor.
	dropped = regexp.MustCompile(`[^\p{L}\p{N}_ -]`)
)

// page returns the text of a Markdown file, without blocks of code.
func page(path string) (string, error) {
	text, err := os.ReadFile(path)
	return fence.ReplaceAllString(string(text), ""), err
}

// anchorsOf returns the anchors of a page's headings, as GitHub creates them.
func anchorsOf(text string) map[string]bool {
	anchors, used := map[string]bool{}, map[string]int{}
	for _, match := range heading.FindAllStringSubmatch(text, -1) {
		title := link.ReplaceAllString(match[1], "]")
		anchor := strings.ReplaceAll(dropped.ReplaceAllString(strings.ToLower(title), ""), " ", "-")
		if n := used[anchor]; n > 0 {
			anchors[fmt.Sprintf("%s-%d", anchor, n)] = true
		}
		used[anchor]++
		anchors[anchor] = true
	}
	return anchors
}

// brokenLink returns the problem with a link on the page in path, or "".
func brokenLink(path, target string) string {
	u, err := url.Parse(target)
	if err != nil {
		return err.Error()
	}
	if u.Scheme != "" {
		return "" // another site, which this test does not access
	}
	file := path
	if u.Path != "" {
		file = filepath.Join(filepath.Dir(path), filepath.FromSlash(u.Path))
	}
	if _, err := os.Stat(file); err != nil {
		return "no such file"
	}
	if u.Fragment == "" {
		return ""
	}
	text, err := page(file)
	if err != nil {
		return err.Error()
	}
	if !anchorsOf(text)[u.Fragment] {
		return "no such heading"
	}
	return ""
}

// TestLinks checks that each link from a Markdown page to the repository refers to an existing file
// and heading.
func TestLinks(t *testing.T) {
	root := git(t, ".", "rev-parse", "--show-toplevel")[0]
	links := 0
	for _, name := range git(t, root, "ls-files", "--", "*.md") {
		path := filepath.Join(root, name)
		text, err := page(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, match := range link.FindAllStringSubmatch(text, -1) {
			links++
			if problem := brokenLink(path, match[1]); problem != "" {
				t.Errorf("%s: %s: %s", name, match[1], problem)
			}
		}
	}
	if links < 300 {
		t.Errorf("found %d links", links)
	}
}

// firstCells returns the code in the first cell of each row of the tables in a section.
func firstCells(t *testing.T, text, section string) []string {
	t.Helper()
	_, text, found := strings.Cut(text, "\n## "+section+"\n")
	if !found {
		t.Fatalf("no section %s", section)
	}
	text, _, _ = strings.Cut(text, "\n## ")
	var cells []string
	for _, row := range regexp.MustCompile("(?m)^\\| `([^`]+)`").FindAllStringSubmatch(text, -1) {
		cells = append(cells, row[1])
	}
	return cells
}

// TestRunbook checks that the runbook contains exactly the alerts of the charts. The code must
// contain each message and annotation in the runbook's section about logs.
func TestRunbook(t *testing.T) {
	root := git(t, ".", "rev-parse", "--show-toplevel")[0]
	text, err := page(filepath.Join(root, "docs/runbook.md"))
	if err != nil {
		t.Fatal(err)
	}
	var rules []byte
	for _, chart := range []string{"chart", "gateway"} {
		template, err := os.ReadFile(filepath.Join(root, "deploy", chart, "templates/monitoring.yaml"))
		if err != nil {
			t.Fatal(err)
		}
		rules = append(rules, template...)
	}
	var want []string
	for _, alert := range regexp.MustCompile(`(?m)^ +- alert: (\w+)$`).FindAllStringSubmatch(string(rules), -1) {
		want = append(want, alert[1])
	}
	_, alerts, _ := strings.Cut(text, "\n## Alerts\n")
	alerts, _, _ = strings.Cut(alerts, "\n## ")
	var got []string
	for _, heading := range regexp.MustCompile(`(?m)^### (\w+)$`).FindAllStringSubmatch(alerts, -1) {
		got = append(got, heading[1])
	}
	if len(want) < 10 || strings.Join(got, " ") != strings.Join(want, " ") {
		t.Errorf("the runbook has the alerts %q; want %q", got, want)
	}
	var code strings.Builder
	for _, name := range git(t, root, "ls-files", "--", "*.go", ":!*_test.go") {
		src, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			t.Fatal(err)
		}
		code.Write(src)
	}
	messages := firstCells(t, text, "Logs")
	if len(messages) < 10 {
		t.Errorf("the runbook has the messages and annotations %q", messages)
	}
	for _, s := range messages {
		domain, key, isAnnotation := strings.Cut(s, "/")
		if isAnnotation { // the code joins the domain and the key
			if !strings.Contains(code.String(), domain+"/") || !strings.Contains(code.String(), key+`"`) {
				t.Errorf("no code writes the annotation %s", s)
			}
		} else if !strings.Contains(code.String(), `"`+s) {
			t.Errorf("no code writes the message %q", s)
		}
	}
}
