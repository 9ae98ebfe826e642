// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package isolation

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

// TestFindingsAreGrouped checks that requests with the same outcome and group are one finding,
// and that the report prints at most ten findings.
func TestFindingsAreGrouped(t *testing.T) {
	m := &matrix{}
	for i := range 12 {
		for n := range i + 1 {
			m.note(
				callers[n%2],
				targets[1+n%2],
				Leaked,
				"",
				fmt.Sprintf("get kind%02d", i),
				fmt.Sprintf("GET /%d/%d: 200", i, n),
			)
		}
	}
	m.note(callerUser, targetOwn, Refused, "", "get pods", "GET /pods: 403")
	m.note(callerUser, targetOwn, Untested, untestedThrottled, "get pods", "GET /pods: 429")
	m.note(callerUser, targetOwn, Passed, "", "get pods", "")
	m.report.finish()
	var b strings.Builder
	m.report.Write(&b)
	text := b.String()
	for _, want := range []string{
		"LEAKED: get kind11: 12 requests by tenant service account, tenant user in another tenant, system, " +
			"for example GET /11/0: 200\n",
		"... and 4 more (use -o json to see all)\n",
		"NOT ISOLATED: 78 leaked, 0 contradicted, 1 refused in the caller's own namespaces, 1 not tested " +
			"(81 requests in total)\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("missing in the report: %s\n%s", want, text)
		}
	}
	if n := strings.Count(text, "LEAKED: "); n != 10 ||
		strings.Index(text, "get kind11") > strings.Index(text, "get kind10") {
		t.Errorf("%d groups:\n%s", n, text)
	}
	data, err := json.Marshal(&m.report)
	if err != nil {
		t.Fatal(err)
	}
	var all struct {
		Findings []struct{ Outcome, What string }
	}
	if err := json.Unmarshal(data, &all); err != nil || len(all.Findings) != 14 ||
		all.Findings[13].Outcome != "NOT TESTED" {
		t.Errorf("%v: %s", err, data)
	}
}

// TestVerdict checks that the verdict is "isolated" only if every request was tested, and there
// are denied and allowed requests.
func TestVerdict(t *testing.T) {
	const onesided = "NOT PROVEN: no request was denied, or no request was allowed"
	for name, c := range map[string]struct {
		outcomes         []Outcome
		want             string
		isOK, isComplete bool
	}{
		"all denied": {
			[]Outcome{Denied, Limited, Passed}, "isolated: 3 requests to 7 resources and subresources", true, true,
		},
		"one request not tested": {
			[]Outcome{Denied, Passed, Untested},
			"NOT PROVEN: no request leaked, 1 not tested (3 requests in total)",
			true, false,
		},
		"no requests":         {nil, onesided, true, false},
		"no request denied":   {[]Outcome{Passed, Limited}, onesided, true, false},
		"all requests denied": {[]Outcome{Denied}, onesided, true, false},
		"leak":                {[]Outcome{Denied, Passed, Leaked}, "NOT ISOLATED: 1 leaked", false, true},
		"own request denied": {
			[]Outcome{Denied, Passed, Refused}, "NOT ISOLATED: 0 leaked, 0 contradicted, 1 refused", false, true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			m := &matrix{}
			for _, o := range c.outcomes {
				m.note(callerUser, targetOwn, o, "why", "get pods", "")
			}
			m.report.Resources = 7
			m.report.finish()
			if r := &m.report; !strings.HasPrefix(r.Verdict, c.want) || r.OK() != c.isOK || r.Complete() != c.isComplete {
				t.Errorf("%q, OK %t, complete %t", r.Verdict, r.OK(), r.Complete())
			}
		})
	}
}
