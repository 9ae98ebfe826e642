// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"encoding/json"
	"encoding/xml"
	"fmt"
	"io"
)

// Report collects and writes results.
type Report struct{ Results []Result }

// Add adds one result.
func (r *Report) Add(result Result) { r.Results = append(r.Results, result) }

// Count returns the number of results with a status.
func (r *Report) Count(status Status) int {
	n := 0
	for _, result := range r.Results {
		if result.Status == status {
			n++
		}
	}
	return n
}

// WriteText writes one line for each failure and a summary line.
func (r *Report) WriteText(w io.Writer) error {
	for _, result := range r.Results {
		if result.Status == Failed {
			if _, err := fmt.Fprintf(w, "%s: %s: %s: expected %s, got %s\n",
				result.File, result.Scenario, result.Case, result.Expected, result.Got); err != nil {
				return err
			}
		}
	}
	_, err := fmt.Fprintf(w, "%d passed, %d failed, %d skipped\n", r.Count(Passed), r.Count(Failed), r.Count(Skipped))
	return err
}

// WriteJSON writes all results as one JSON object.
func (r *Report) WriteJSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(struct {
		Passed  int      `json:"passed"`
		Failed  int      `json:"failed"`
		Skipped int      `json:"skipped"`
		Results []Result `json:"results"`
	}{r.Count(Passed), r.Count(Failed), r.Count(Skipped), append([]Result{}, r.Results...)})
}

type junitSuite struct {
	XMLName  xml.Name    `xml:"testsuite"`
	Name     string      `xml:"name,attr"`
	Tests    int         `xml:"tests,attr"`
	Failures int         `xml:"failures,attr"`
	Skipped  int         `xml:"skipped,attr"`
	Cases    []junitCase `xml:"testcase"`
}

type junitCase struct {
	Class   string        `xml:"classname,attr"`
	Name    string        `xml:"name,attr"`
	Failure *junitMessage `xml:"failure"`
	Skipped *junitMessage `xml:"skipped"`
}

type junitMessage struct {
	Message string `xml:"message,attr"`
}

// WriteJUnit writes all results in the JUnit XML format.
func (r *Report) WriteJUnit(w io.Writer) error {
	suite := junitSuite{
		Name:     "kubetenant",
		Tests:    len(r.Results),
		Failures: r.Count(Failed),
		Skipped:  r.Count(Skipped),
	}
	for _, result := range r.Results {
		c := junitCase{Class: result.File, Name: result.Scenario + ": " + result.Case}
		switch result.Status {
		case Failed:
			c.Failure = &junitMessage{fmt.Sprintf("expected %s, got %s", result.Expected, result.Got)}
		case Skipped:
			c.Skipped = &junitMessage{result.Got}
		}
		suite.Cases = append(suite.Cases, c)
	}
	if _, err := io.WriteString(w, xml.Header); err != nil {
		return err
	}
	e := xml.NewEncoder(w)
	e.Indent("", "  ")
	if err := e.Encode(suite); err != nil {
		return err
	}
	_, err := io.WriteString(w, "\n")
	return err
}
