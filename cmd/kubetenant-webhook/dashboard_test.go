// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/kubetenant/kubetenant/deploy"
)

// source is a Grafana data source.
type source struct{ Type, UID string }

// dashboardPanel is a panel of the dashboard, or a row of panels.
type dashboardPanel struct {
	ID                       int
	Type, Title, Description string
	GridPos                  struct{ X, Y, W, H int }
	Datasource               source
	FieldConfig              struct {
		Defaults struct {
			Unit       string
			Thresholds struct{ Steps []struct{ Value *float64 } }
			Custom     struct{ ThresholdsStyle struct{ Mode string } }
		}
	}
	Targets []struct {
		Expr, RefID string
		Datasource  source
	}
}

type dashboard struct {
	Templating struct {
		List []struct{ Name, Type string }
	}
	Panels []dashboardPanel
}

func readDashboard(t *testing.T) *dashboard {
	t.Helper()
	data, err := deploy.Files.ReadFile("dashboard.json")
	if err != nil {
		t.Fatal(err)
	}
	d := &dashboard{}
	if err := json.Unmarshal(data, d); err != nil {
		t.Fatal(err)
	}
	return d
}

// labelsOfMetrics returns the labels of each metric according to the reference page.
func labelsOfMetrics(t *testing.T) map[string][]string {
	t.Helper()
	page, err := os.ReadFile("../../docs/reference/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	labels := map[string][]string{}
	rows := regexp.MustCompile("(?m)^\\| `(\\w+)` \\| \\w+ \\| ([^|]*) \\|").FindAllStringSubmatch(string(page), -1)
	for _, row := range rows {
		labels[row[1]] = strings.Split(row[2], ", ")
	}
	return labels
}

// TestDashboardVariables checks that each panel uses the variables for the data source, the
// namespace, the job and, if its metric has the label tenant, the tenant.
func TestDashboardVariables(t *testing.T) {
	d, labels := readDashboard(t), labelsOfMetrics(t)
	var names []string
	for _, v := range d.Templating.List {
		names = append(names, v.Name)
	}
	if !slices.Equal(names, []string{"datasource", "namespace", "job", "tenant"}) ||
		d.Templating.List[0].Type != "datasource" {
		t.Errorf("variables: %v", d.Templating.List)
	}
	want := source{"prometheus", "${datasource}"}
	selectors := regexp.MustCompile(`([a-z_]+)\{([^}]*)\}`)
	metrics := regexp.MustCompile(`(kubetenant|authorization)_[a-z_]+`)
	for _, p := range d.Panels {
		if p.Type == "row" {
			continue
		}
		if p.Datasource != want {
			t.Errorf("%s: data source %v", p.Title, p.Datasource)
		}
		for _, q := range p.Targets {
			if q.Datasource != want {
				t.Errorf("%s, %s: data source %v", p.Title, q.RefID, q.Datasource)
			}
			found := selectors.FindAllStringSubmatch(q.Expr, -1)
			if len(found) != len(metrics.FindAllString(q.Expr, -1)) {
				t.Errorf("%s, %s: a metric has no selector: %s", p.Title, q.RefID, q.Expr)
			}
			for _, s := range found {
				need := []string{`namespace=~"$namespace"`, `job=~"$job"`}
				if slices.Contains(labels[strings.TrimSuffix(s[1], "_bucket")], "tenant") {
					need = append(need, `tenant=~"$tenant"`)
				}
				for _, matcher := range need {
					if !slices.Contains(strings.Split(s[2], ","), matcher) {
						t.Errorf("%s, %s: %s lacks %s", p.Title, q.RefID, s[0], matcher)
					}
				}
			}
		}
	}
}

// TestDashboardPanels checks that each panel has a description, a unit and a position. A panel
// whose value has a limit must have thresholds.
func TestDashboardPanels(t *testing.T) {
	d := readDashboard(t)
	limited := []string{"Webhook service: time to answer, 99th percentile"} // an alert defines the limit
	ids, titles := map[int]bool{}, map[string]bool{}
	for i, p := range d.Panels {
		if ids[p.ID] || titles[p.Title] || p.Title == "" || p.ID == 0 {
			t.Errorf("%d, %q: the ID or the title is not unique", p.ID, p.Title)
		}
		ids[p.ID], titles[p.Title] = true, true
		a := p.GridPos
		for _, other := range d.Panels[:i] {
			b := other.GridPos
			if a.X < b.X+b.W && b.X < a.X+a.W && a.Y < b.Y+b.H && b.Y < a.Y+a.H {
				t.Errorf("%s covers %s", p.Title, other.Title)
			}
		}
		if a.W == 0 || a.H == 0 || a.X+a.W > 24 {
			t.Errorf("%s has the position %v", p.Title, a)
		}
		if p.Type == "row" {
			continue
		}
		defaults := p.FieldConfig.Defaults
		if p.Description == "" || defaults.Unit == "" || len(p.Targets) == 0 {
			t.Errorf("%s: no description, no unit or no query", p.Title)
		}
		steps := len(defaults.Thresholds.Steps)
		must := p.Type == "stat" || defaults.Unit == "percentunit" || slices.Contains(limited, p.Title)
		if must && steps < 2 {
			t.Errorf("%s has no threshold", p.Title)
		}
		if p.Type == "timeseries" && steps > 0 && defaults.Custom.ThresholdsStyle.Mode == "" {
			t.Errorf("%s does not show its threshold", p.Title)
		}
	}
}

// TestDashboardContent checks that there are panels for every deployment mode and for the metrics
// about tenants.
func TestDashboardContent(t *testing.T) {
	d := readDashboard(t)
	queries, panels, row := map[string]string{}, map[string]int{}, ""
	for _, p := range d.Panels {
		if p.Type == "row" {
			row = p.Title
			continue
		}
		panels[row]++
		for _, q := range p.Targets {
			queries[p.Title] += q.Expr + "\n"
		}
	}
	for _, mode := range []string{"kube-apiserver with kubetenant compiled in", "Webhook service", "Gateway"} {
		if panels[mode] < 2 {
			t.Errorf("%s: %d panels", mode, panels[mode])
		}
	}
	if panels[""] > 0 {
		t.Errorf("%d panels are in no row", panels[""])
	}
	for title, metrics := range map[string][]string{
		"Quotas: used and hard":                    {"kubetenant_quota_used", "kubetenant_quota_hard"},
		"Used part of quotas":                      {"kubetenant_quota_used", "kubetenant_quota_hard"},
		"Grants by state":                          {"by (state) (kubetenant_grants"},
		"Tenants' requests a second":               {"by (tenant) (rate(kubetenant_tenant_requests_total"},
		"Tenants' denied requests a second":        {"by (tenant) (rate(kubetenant_tenant_denials_total"},
		"Tenants' requests above a limit a second": {"by (tenant, limit) (rate(kubetenant_tenant_limited_total"},
	} {
		t.Run(title, func(t *testing.T) {
			for _, metric := range metrics {
				if !strings.Contains(queries[title], metric) {
					t.Errorf("%s lacks %s: %q", title, metric, queries[title])
				}
			}
		})
	}
}
