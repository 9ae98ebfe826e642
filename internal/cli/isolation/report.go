// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package isolation

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/kubetenant/kubetenant/internal/cli/installation"
	"github.com/kubetenant/kubetenant/internal/cli/output"
)

// Cell contains the number of requests with each outcome, for one caller and target.
type Cell struct {
	Caller string          `json:"caller"`
	Target string          `json:"space"`
	Counts map[Outcome]int `json:"counts"`
}

// Finding is a group of requests that probably have the same cause.
type Finding struct {
	Outcome Outcome `json:"outcome"`
	// Group is the verb and the resource, or the reason for [Untested].
	Group    string   `json:"what"`
	Requests int      `json:"requests"`
	Callers  []string `json:"callers,omitempty"`
	Targets  []string `json:"spaces,omitempty"`
	Example  string   `json:"example"`
}

// Report is the result of a run.
type Report struct {
	Mode      installation.Mode `json:"mode"`
	APIGroups []string          `json:"apiGroups,omitempty"` // if empty, all groups
	Resources int               `json:"resources"`           // number of tested resources and subresources
	Verdict   string            `json:"verdict"`
	Cells     []*Cell           `json:"cells"`
	Findings  []*Finding        `json:"findings"`
	Notes     []string          `json:"notes,omitempty"`
}

// Total returns the number of requests with an outcome.
func (r *Report) Total(o Outcome) int {
	n := 0
	for _, c := range r.Cells {
		n += c.Counts[o]
	}
	return n
}

// found returns the number of requests with the given outcome in the findings.
func (r *Report) found(o Outcome) int {
	n := 0
	for _, f := range r.Findings {
		if f.Outcome == o {
			n += f.Requests
		}
	}
	return n
}

// OK reports whether no request leaked, no request of a caller for its own objects was denied,
// and no two responses contradict each other.
func (r *Report) OK() bool {
	return r.found(Leaked)+r.found(Refused)+r.found(Contradicted) == 0
}

// Complete reports whether every response shows the boundary's decision, and the run contains
// both denied and allowed requests.
func (r *Report) Complete() bool {
	return r.found(Untested) == 0 && r.Total(Denied) > 0 && r.Total(Passed) > 0
}

// finish sorts the report and sets its verdict.
func (r *Report) finish() {
	slices.SortFunc(r.Cells, func(a, b *Cell) int {
		return cmp.Or(cmp.Compare(slices.Index(callers, a.Caller), slices.Index(callers, b.Caller)),
			cmp.Compare(slices.Index(targets, a.Target), slices.Index(targets, b.Target)))
	})
	order := []Outcome{Leaked, Contradicted, Refused, Untested}
	slices.SortFunc(r.Findings, func(a, b *Finding) int {
		return cmp.Or(cmp.Compare(slices.Index(order, a.Outcome), slices.Index(order, b.Outcome)),
			cmp.Compare(b.Requests, a.Requests), cmp.Compare(a.Group, b.Group))
	})
	for _, f := range r.Findings {
		slices.Sort(f.Callers)
		slices.Sort(f.Targets)
	}
	r.Verdict = r.verdict()
}

func (r *Report) verdict() string {
	tried := 0
	for _, c := range r.Cells {
		for _, n := range c.Counts {
			tried += n
		}
	}
	untested := ""
	if n := r.found(Untested); n > 0 {
		untested = fmt.Sprintf(", %d not tested", n)
	}
	switch {
	case !r.OK():
		return fmt.Sprintf("NOT ISOLATED: %d leaked, %d contradicted, %d refused in the caller's own namespaces%s "+
			"(%d requests in total)",
			r.found(Leaked), r.found(Contradicted), r.found(Refused), untested, tried)
	case untested != "":
		return fmt.Sprintf("NOT PROVEN: no request leaked%s (%d requests in total)", untested, tried)
	case !r.Complete():
		return "NOT PROVEN: no request was denied, or no request was allowed"
	}
	return fmt.Sprintf("isolated: %d requests to %d resources and subresources", tried, r.Resources)
}

// shownFindings is the maximum number of findings that [Report.Write] prints.
const shownFindings = 10

// columns are the outcomes in the table.
var columns = []Outcome{Denied, Limited, Passed, Leaked, Refused, Untested}

// Write writes the table, the first findings and the verdict.
func (r *Report) Write(w io.Writer) {
	out := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprint(out, "CALLER\tTARGET\tREQUESTS")
	for _, o := range columns {
		_, _ = fmt.Fprintf(out, "\t%s", o)
	}
	_, _ = fmt.Fprintln(out)
	row := func(caller, target string, counts map[Outcome]int) {
		tried := 0
		for _, n := range counts {
			tried += n
		}
		_, _ = fmt.Fprintf(out, "%s\t%s\t%d", caller, target, tried)
		for _, o := range columns {
			_, _ = fmt.Fprintf(out, "\t%d", counts[o])
		}
		_, _ = fmt.Fprintln(out)
	}
	all := map[Outcome]int{}
	for _, c := range r.Cells {
		row(c.Caller, c.Target, c.Counts)
		for o, n := range c.Counts {
			all[o] += n
		}
	}
	row("all", "", all)
	_ = out.Flush()
	for _, note := range r.Notes {
		_, _ = fmt.Fprintln(w, "note:", output.Safe(note))
	}
	for _, f := range r.Findings[:min(shownFindings, len(r.Findings))] {
		_, _ = fmt.Fprintln(w, output.Safe(f.String()))
	}
	if more := len(r.Findings) - shownFindings; more > 0 {
		_, _ = fmt.Fprintf(w, "... and %d more (use -o json to see all)\n", more)
	}
	_, _ = fmt.Fprintln(w, r.Verdict)
}

// String returns a finding on one line.
func (f *Finding) String() string {
	var b strings.Builder
	_, _ = fmt.Fprintf(&b, "%s: %s: %d requests", f.Outcome, f.Group, f.Requests)
	if f.Requests == 1 {
		b.Reset()
		_, _ = fmt.Fprintf(&b, "%s: %s: 1 request", f.Outcome, f.Group)
	}
	if len(f.Callers) > 0 {
		_, _ = fmt.Fprintf(&b, " by %s", strings.Join(f.Callers, ", "))
	}
	if len(f.Targets) > 0 {
		_, _ = fmt.Fprintf(&b, " in %s", strings.Join(f.Targets, ", "))
	}
	if f.Example != "" {
		_, _ = fmt.Fprintf(&b, ", for example %s", f.Example)
	}
	return b.String()
}

// count adds a request with the given outcome to the cell of a caller and a target.
func (m *matrix) count(caller, target string, o Outcome) {
	m.mu.Lock()
	defer m.mu.Unlock()
	at := slices.IndexFunc(m.report.Cells, func(c *Cell) bool { return c.Caller == caller && c.Target == target })
	if at < 0 {
		at = len(m.report.Cells)
		m.report.Cells = append(m.report.Cells, &Cell{Caller: caller, Target: target, Counts: map[Outcome]int{}})
	}
	m.report.Cells[at].Counts[o]++
}

// find adds a request to the finding with the given outcome and group, or adds a new finding.
func (m *matrix) find(o Outcome, caller, target, group, example string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	at := slices.IndexFunc(m.report.Findings, func(f *Finding) bool { return f.Outcome == o && f.Group == group })
	if at < 0 {
		at = len(m.report.Findings)
		m.report.Findings = append(m.report.Findings, &Finding{Outcome: o, Group: group, Example: example})
	}
	f := m.report.Findings[at]
	f.Requests++
	if caller != "" && !slices.Contains(f.Callers, caller) {
		f.Callers = append(f.Callers, caller)
	}
	if target != "" && !slices.Contains(f.Targets, target) {
		f.Targets = append(f.Targets, target)
	}
}

// note records a request. For [Leaked], [Refused] and [Untested], it also adds the request to a
// finding. group is the verb and the resource. reason is the reason for [Untested].
func (m *matrix) note(caller, target string, o Outcome, reason, group, example string) {
	m.count(caller, target, o)
	switch o {
	case Leaked, Refused:
		m.find(o, caller, target, group, example)
	case Untested:
		m.find(o, caller, target, reason, example)
	}
}
