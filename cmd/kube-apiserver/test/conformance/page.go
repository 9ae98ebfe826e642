// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
)

// The results table is between these lines of the page.
const (
	begin = "<!-- written by make test-upstream -->\n"
	end   = "<!-- end -->\n"
)

// row is a suite's row of the table.
type row struct {
	Vanilla, Tenancy string
	Listed           []difference
	AsDesigned       bool
}

// storeRow stores a suite's row for the page.
func (w *workspace) storeRow(c *comparison) error {
	text, err := json.Marshal(row{summary(c.vanilla), summary(c.tenancy), c.listed, c.asDesigned()})
	if err != nil {
		return err
	}
	return os.WriteFile(w.binary(c.suite)+".json", text, 0o600)
}

// writePage replaces the results table in a page. For a suite that did not run this time, the table
// shows the stored results of an earlier run, or "not run".
func (w *workspace) writePage(path string) error {
	page, err := os.ReadFile(path) // #nosec G304 -- a path from the caller
	if err != nil {
		return err
	}
	before, rest, found := bytes.Cut(page, []byte(begin))
	_, after, ends := bytes.Cut(rest, []byte(end))
	if !found || !ends {
		return fmt.Errorf("%s: no place for the table", path)
	}
	var table strings.Builder
	table.WriteString("| package | upstream's server | with kubetenant | differences by design |\n|---|---|---|---|\n")
	reasons := ""
	for _, s := range suites() {
		text, err := os.ReadFile(w.binary(s) + ".json")
		if errors.Is(err, os.ErrNotExist) {
			fmt.Fprintf(&table, "| %s | not run | not run | |\n", s.name())
			continue
		}
		var r row
		if err == nil {
			err = json.Unmarshal(text, &r)
		}
		if err != nil {
			return err
		}
		byDesign := fmt.Sprint(len(r.Listed))
		if !r.AsDesigned {
			byDesign += ", and others"
		}
		fmt.Fprintf(&table, "| %s | %s | %s | %s |\n", s.name(), r.Vanilla, r.Tenancy, byDesign)
		for _, d := range r.Listed {
			reasons += fmt.Sprintf("- `%s` of %s: %s, with kubetenant %s. %s\n",
				d.Test, d.Package, d.Vanilla, d.Tenancy, d.Reason)
		}
	}
	if reasons != "" {
		table.WriteString("\n" + reasons)
	}
	text := bytes.Join([][]byte{before, []byte(begin), []byte(table.String()), []byte(end), after}, nil)
	return os.WriteFile(path, text, 0o600) // #nosec G703 -- a path from the caller
}

// summary returns the number of tests with each outcome, without subtests.
func summary(outcomes map[string]outcome) string {
	var parts []string
	for _, o := range []outcome{"passed", "failed", "skipped", "pending", "crashed", "panicked", "timedout"} {
		if n := count(outcomes, o); n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, o))
		}
	}
	if len(parts) == 0 {
		return "none"
	}
	return strings.Join(parts, ", ")
}
