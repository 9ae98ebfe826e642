package main

import (
	"bytes"
	"fmt"
	"os"
	"strings"
)

// The table stands between these lines of the page.
const (
	begin = "<!-- written by make test-upstream -->\n"
	end   = "<!-- end -->\n"
)

// writePage writes the table of results into a page.
func writePage(path string, results []compared) error {
	page, err := os.ReadFile(path) // #nosec G304 -- the caller's
	if err != nil {
		return err
	}
	before, rest, found := bytes.Cut(page, []byte(begin))
	_, after, ends := bytes.Cut(rest, []byte(end))
	if !found || !ends {
		return fmt.Errorf("%s: no place for the table", path)
	}
	var table strings.Builder
	table.WriteString("| package | upstream's server | with tenancy | differences by design |\n|---|---|---|---|\n")
	for i := range results {
		c := &results[i]
		fmt.Fprintf(&table, "| %s | %s | %s | %d |\n", c.name(), counts(c.vanilla), counts(c.tenancy), len(c.listed))
	}
	reasons := ""
	for i := range results {
		for _, d := range results[i].listed {
			reasons += fmt.Sprintf("- `%s` of %s: %s, with tenancy %s. %s\n", d.Test, d.Package, d.Vanilla, d.Tenancy, d.Reason)
		}
	}
	if reasons != "" {
		table.WriteString("\n" + reasons)
	}
	return os.WriteFile(path, bytes.Join([][]byte{before, []byte(begin), []byte(table.String()), []byte(end), after}, nil), 0o600) // #nosec G703 -- the caller's
}

// counts are the tests by their outcomes, subtests left out.
func counts(of map[string]outcome) string {
	var parts []string
	for _, o := range []outcome{"passed", "failed", "skipped", "pending", "panicked", "timedout"} {
		if n := count(of, o); n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, o))
		}
	}
	if len(parts) == 0 {
		return "none"
	}
	return strings.Join(parts, ", ")
}
