// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

// Command prose checks the English of this project with Vale and the style in hack/vale. It
// checks pages, messages in Go code, and comments. It passes each paragraph to Vale on one line,
// without code, link targets and tables. It then maps the findings to positions in the files.
package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

const usage = `Usage: hack/prose.sh [--check | --lower | PATH...]

Without a flag, it prints words, errors and warnings of each page and package. With
paths (a page, a file or a folder), it prints each finding as file:line:column.
The kinds are doc (pages), message (what a user sees of Go code and charts) and comment.

  --check   fail if a page or package differs from its ceiling in hack/prose/ceilings.txt
  --lower   lower the ceilings to the findings; never raises one
`

// An action specifies how the findings are used.
type action string

const (
	report action = "report"
	check  action = "check"
	lower  action = "lower"
)

func main() {
	checking := flag.Bool(string(check), false, "")
	lowering := flag.Bool(string(lower), false, "")
	flag.Usage = func() { fmt.Fprint(os.Stderr, usage) }
	flag.Parse()
	do := report
	switch {
	case *checking:
		do = check
	case *lowering:
		do = lower
	}
	if err := run(context.Background(), do, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "prose:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, do action, paths []string) error {
	if len(paths) > 0 && do != report {
		return fmt.Errorf("--%s applies to all files and has no paths", do)
	}
	names, err := tracked(ctx)
	if err != nil {
		return err
	}
	if len(paths) > 0 {
		names = slices.DeleteFunc(names, func(name string) bool { return !isUnder(name, paths) })
	}
	sources, err := read(names)
	if err != nil {
		return err
	}
	if err := vale(ctx, "bin/vale", ".vale.ini", sources); err != nil {
		return err
	}
	units := unitsOf(sources)
	switch {
	case do == check:
		return compare(units)
	case do == lower:
		return lowerCeilings(units)
	case len(paths) > 0:
		printFindings(os.Stdout, sources)
	default:
		printUnits(os.Stdout, units)
	}
	return nil
}

// tracked returns the existing files that Git tracks, and the files that "git add" would add.
func tracked(ctx context.Context) ([]string, error) {
	out, err := exec.CommandContext(ctx, "git", "ls-files", "-z", "--cached", "--others", "--exclude-standard").Output()
	if err != nil {
		return nil, fmt.Errorf("git ls-files: %w", err)
	}
	names := strings.Split(strings.TrimRight(string(out), "\x00"), "\x00")
	return slices.DeleteFunc(names, func(name string) bool {
		_, err := os.Stat(name)
		return err != nil
	}), nil
}

func isUnder(name string, paths []string) bool {
	return slices.ContainsFunc(paths, func(p string) bool {
		p = path.Clean(filepath.ToSlash(p))
		return p == "." || name == p || strings.HasPrefix(name, p+"/")
	})
}

// Kinds of texts.
const (
	kindDoc     = "doc"
	kindMessage = "message"
	kindComment = "comment"
)

// A source contains the texts of one kind in a file.
type source struct {
	kind, name string
	unit       string // the page, or the folder of the package
	content    []byte
	texts      []text
	findings   []finding
}

var (
	outOfScope = regexp.MustCompile(`(?:^|/)testdata/|^docs/(?:cli|reference)/|^tenant/client/|zz_generated`)
	chartText  = regexp.MustCompile(`^deploy/.*/(?:values\.yaml|NOTES\.txt)$`)
	// internalCode matches tests and tools. Users of kubetenant do not see their messages.
	internalCode = regexp.MustCompile(`_test\.go$|^(?:test|hack|examples)/|^cmd/kube-apiserver/test/`)
	// apiCode matches the API types. Comments on these types are messages, because kubectl
	// explain and the reference pages print them.
	apiCode = regexp.MustCompile(`^(?:tenant|config)/v1alpha1/`)
)

func isChecked(name string) bool {
	if outOfScope.MatchString(name) {
		return false
	}
	return strings.HasSuffix(name, ".md") || strings.HasSuffix(name, ".go") || chartText.MatchString(name)
}

func read(names []string) ([]*source, error) {
	var sources []*source
	for _, name := range names {
		if !isChecked(name) {
			continue
		}
		content, err := os.ReadFile(name) //nolint:gosec // a file of this repository
		if err != nil {
			return nil, err
		}
		found, err := extract(name, content)
		if err != nil {
			return nil, err
		}
		sources = append(sources, found...)
	}
	return sources, nil
}

// extract returns the texts of a file, one source for each kind.
func extract(name string, content []byte) ([]*source, error) {
	var sources []*source
	add := func(kind, unit string, all []text) {
		var texts []text
		for _, t := range all {
			if t = t.trim(); len(t.b) > 0 {
				texts = append(texts, t)
			}
		}
		if len(texts) > 0 {
			sources = append(sources, &source{
				kind:    kind,
				name:    name,
				unit:    unit,
				content: content,
				texts:   texts,
			})
		}
	}
	switch path.Ext(name) {
	case ".md":
		add(kindDoc, name, markdown(content))
	case ".yaml":
		add(kindMessage, name, yamlComments(content))
	case ".txt":
		add(kindMessage, name, notes(content))
	case ".go":
		texts, err := goSource(name, content)
		if err != nil {
			return nil, err
		}
		if apiCode.MatchString(name) {
			texts.messages = append(texts.messages, texts.explained...)
		} else {
			texts.comments = append(texts.comments, texts.explained...)
		}
		if !internalCode.MatchString(name) {
			add(kindMessage, path.Dir(name), texts.messages)
		}
		add(kindComment, path.Dir(name), texts.comments)
	}
	return sources, nil
}

// position returns the line and the column of an offset, starting at 1.
func position(content []byte, offset int) (line, column int) {
	before := content[:offset]
	return bytes.Count(before, []byte("\n")) + 1, offset - bytes.LastIndexByte(before, '\n')
}
