// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"unicode"
)

// A unit is a page, or all texts of one kind in a package.
type unit struct {
	kind, path              string
	words, errors, warnings int
}

func (u unit) perThousand() float64 { return float64(u.warnings) * 1000 / float64(max(u.words, 1)) }

func unitsOf(sources []*source) []unit {
	byName := make(map[[2]string]*unit)
	for _, s := range sources {
		key := [2]string{s.kind, s.unit}
		u := byName[key]
		if u == nil {
			u = &unit{kind: s.kind, path: s.unit}
			byName[key] = u
		}
		for _, t := range s.texts {
			u.words += words(t)
		}
		for _, f := range s.findings {
			if f.isError {
				u.errors++
			} else {
				u.warnings++
			}
		}
	}
	units := make([]unit, 0, len(byName))
	for _, u := range byName {
		units = append(units, *u)
	}
	slices.SortFunc(units, func(a, b unit) int {
		return cmp.Or(slices.Index(kinds(), a.kind)-slices.Index(kinds(), b.kind), cmp.Compare(a.path, b.path))
	})
	return units
}

func kinds() []string { return []string{kindDoc, kindMessage, kindComment} }

// words returns the number of words in t that contain a letter or a digit.
func words(t text) int {
	n := 0
	for _, w := range strings.Fields(string(t.b)) {
		if strings.ContainsFunc(w, func(r rune) bool { return unicode.IsLetter(r) || unicode.IsDigit(r) }) {
			n++
		}
	}
	return n
}

func printUnits(w io.Writer, units []unit) {
	table := tabwriter.NewWriter(w, 0, 8, 2, ' ', tabwriter.AlignRight)
	row := func(u unit) {
		_, _ = fmt.Fprintf(table, "%d\t%d\t%d\t%.1f\t  %s %s\n",
			u.words, u.errors, u.warnings, u.perThousand(), u.kind, u.path)
	}
	_, _ = fmt.Fprintln(table, "words\terrors\twarnings\tper 1,000\t  text")
	for _, kind := range kinds() {
		sum := unit{kind: kind, path: "(all)"}
		for _, u := range units {
			if u.kind == kind {
				row(u)
				sum.words += u.words
				sum.errors += u.errors
				sum.warnings += u.warnings
			}
		}
		row(sum)
	}
	_ = table.Flush()
}

func printFindings(w io.Writer, sources []*source) {
	for _, s := range sources {
		for _, f := range s.findings {
			severity := "warning"
			if f.isError {
				severity = "error"
			}
			_, _ = fmt.Fprintf(w, "%s:%d:%d: %s %s: %s (%s)\n",
				s.name, f.line, f.column, s.kind, severity, f.text, f.rule)
		}
	}
}
