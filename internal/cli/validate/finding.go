// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package validate

import (
	"cmp"
	"fmt"
	"slices"
)

// Severity is the severity of a finding.
type Severity string

const (
	// Error means that the server rejects the file, or that the objects allow too much access.
	Error Severity = "error"
	// Warning means that the server accepts the file, but the file may not have the intended
	// effect.
	Warning Severity = "warning"
)

// Finding is one problem in a file or a cluster. It never contains a token or a password.
type Finding struct {
	// File is the name of the file. Cluster is the name of the cluster. Only one of them is set.
	File    string `json:"file,omitempty"`
	Cluster string `json:"cluster,omitempty"`
	// Line and Column start at 1. They are 0 if the position is unknown.
	Line   int `json:"line,omitempty"`
	Column int `json:"column,omitempty"`
	// Field is the path of the field, or the name of an object. It may be empty.
	Field    string   `json:"field,omitempty"`
	Severity Severity `json:"severity"`
	Reason   string   `json:"reason"`
	// Fix is the proposed change.
	Fix string `json:"fix,omitempty"`
}

// String returns the finding without its fix, in the format of a compiler message.
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

// withPosition sets the file and the defaults of findings, and sorts them by position.
func withPosition(file string, found []Finding) []Finding {
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

// hasError reports whether at least one finding is not a warning.
func hasError(found []Finding) bool {
	return slices.ContainsFunc(found, func(f Finding) bool { return f.Severity != Warning })
}
