// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package validate

import (
	"cmp"
	"fmt"
	"slices"
)

// Severity says whether the server refuses what a finding is about.
type Severity string

const (
	// Error means that the server refuses the file, or that it does what the file must not do.
	Error Severity = "error"
	// Warning means that the server accepts the file, perhaps with another meaning than intended.
	Warning Severity = "warning"
)

// Finding is one problem of a file or of the cluster. It never holds a token or a password.
type Finding struct {
	// File is the name of the file, and Cluster that of the cluster. One of them is set.
	File    string `json:"file,omitempty"`
	Cluster string `json:"cluster,omitempty"`
	// Line and Column count from 1. They are 0 if the position is unknown.
	Line   int `json:"line,omitempty"`
	Column int `json:"column,omitempty"`
	// Field is the path of the field, or the name of an object. It may be empty.
	Field    string   `json:"field,omitempty"`
	Severity Severity `json:"severity"`
	Reason   string   `json:"reason"`
	// Fix says what to write instead.
	Fix string `json:"fix,omitempty"`
}

// String returns the finding without its fix, in the form of a compiler's message.
func (f *Finding) String() string {
	text := f.File
	if f.Cluster != "" {
		text = "cluster " + f.Cluster
	}
	if f.Line > 0 {
		text += fmt.Sprintf(":%d:%d", f.Line, max(f.Column, 1))
	}
	text += ": "
	if f.Severity == Warning {
		text += "warning: "
	}
	if f.Field != "" {
		text += f.Field + ": "
	}
	return text + f.Reason
}

// placed completes the findings about a file and sorts them by their positions.
func placed(file string, found []Finding) []Finding {
	for i := range found {
		f := &found[i]
		if f.File == "" {
			f.File = file
		}
		if f.Severity == "" {
			f.Severity = Error
		}
		if f.Line > 0 {
			f.Column = max(f.Column, 1)
		}
	}
	slices.SortStableFunc(found, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	return found
}

// hasError reports whether one of the findings is an error.
func hasError(found []Finding) bool {
	return slices.ContainsFunc(found, func(f Finding) bool { return f.Severity != Warning })
}
