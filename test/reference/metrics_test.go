// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package reference_test

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/rest"
	"k8s.io/component-base/metrics"

	"github.com/kubetenant/kubetenant/cluster"
	configv1alpha1 "github.com/kubetenant/kubetenant/config/v1alpha1"
	"github.com/kubetenant/kubetenant/internal/gateway"
	"github.com/kubetenant/kubetenant/internal/serving"
	"github.com/kubetenant/kubetenant/internal/serving/certificates"
	"github.com/kubetenant/kubetenant/internal/serving/state"
	"github.com/kubetenant/kubetenant/internal/stack"
	"github.com/kubetenant/kubetenant/internal/tenantaudit"
	"github.com/kubetenant/kubetenant/internal/webhook/controller"
	"github.com/kubetenant/kubetenant/internal/webhook/service"
)

// metric is a row of the page.
type metric struct {
	name, kind, labels, help string
	modes                    []string
}

// mode is a process that exposes metrics.
type mode struct {
	name       string
	registered []prometheus.Collector
	registry   metrics.KubeRegistry
}

// register registers a metric as the process does.
func (m *mode) register(r metrics.Registerable) error {
	m.registered = append(m.registered, r)
	return m.registry.Register(r)
}

// unreachable returns the configuration of a client without a server. No request is sent.
func unreachable() *rest.Config { return &rest.Config{Host: "https://127.0.0.1:1"} }

func newMode(name string) *mode { return &mode{name: name, registry: metrics.NewKubeRegistry()} }

// modes returns each process that exposes metrics, with the metrics that it registers.
func modes(t *testing.T) []*mode {
	t.Helper()
	settings := &configv1alpha1.Settings{}
	configv1alpha1.Default(settings)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}

	compiledIn := newMode("kube-apiserver")
	clients, err := cluster.NewClients(unreachable())
	must(err)
	known, err := cluster.New(clients, informers.NewSharedInformerFactory(clients.Typed, 0))
	must(err)
	_, err = stack.New(t.Context(), settings, stack.Server{
		Register: compiledIn.register,
		Cluster:  known,
	})
	must(err)
	for _, r := range tenantaudit.NewMetrics().Registerables() {
		must(compiledIn.register(r))
	}
	quotas, err := known.QuotaStore.Metrics()
	must(err)
	all := slices.Concat(quotas, known.TenantStore.Metrics(), known.GrantController.Metrics(), known.Published.Metrics(),
		known.Definitions.Metrics(), known.Projects.Metrics(), known.Stored.Registerables())
	for _, r := range all {
		must(compiledIn.register(r))
	}

	webhook := newMode("kubetenant-webhook")
	followed, err := state.NewForWebhooks(unreachable(), settings, "kubetenant-system", webhook.register)
	must(err)
	served, err := stack.New(t.Context(), settings, followed.Server)
	must(err)
	_, err = service.New(service.Options{Stack: served, Register: webhook.register})
	must(err)
	for _, r := range tenantaudit.NewMetrics().Registerables() {
		must(webhook.register(r))
	}
	webhook.registered = append(webhook.registered,
		serving.WebhookMetrics(&serving.Server{}, func() bool { return true })...)

	control := newMode("kubetenant-webhook controller")
	tasks, err := controller.NewTasks(unreachable(), "kubetenant-system", nil, &configv1alpha1.PublicationRules{},
		func() *configv1alpha1.Source { return nil })
	must(err)
	for _, r := range append(tasks.Metrics, controller.UnlabeledMetric()) {
		must(control.register(r))
	}
	control.registered = append(control.registered, serving.LeadingMetric("x", func() bool { return true }))

	rotation := newMode("kubetenant-webhook certificates")
	must(rotation.register(certificates.New(nil, "", nil).Due))
	rotation.registered = append(rotation.registered, serving.LeadingMetric("x", func() bool { return true }))

	proxy := newMode("kubetenant-gateway")
	opened, err := gateway.Open(t.Context(), gatewayFile(t), gateway.Options{Register: proxy.register})
	must(err)
	proxy.registry.CustomMustRegister(opened.Collector())
	return []*mode{compiledIn, webhook, control, rotation, proxy}
}

// gatewayFile returns the path of a configuration with a cluster that cannot be reached.
func gatewayFile(t *testing.T) string {
	t.Helper()
	folder := t.TempDir()
	for name, text := range map[string]string{
		"kubeconfig": `{ apiVersion: v1, kind: Config, current-context: c,
  clusters: [ { name: c, cluster: { server: "https://127.0.0.1:1" } } ],
  contexts: [ { name: c, context: { cluster: c, user: u } } ],
  users: [ { name: u, user: { token: t } } ] }`,
		"tenancy.yaml": `apiVersion: kubetenant.dev/v1alpha1
kind: TenancyConfiguration
gateway:
  clusters:
  - name: c
    tenants: ["*"]
    reader: { kubeConfigFile: kubeconfig }
    impersonator: { kubeConfigFile: kubeconfig }
`,
	} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return filepath.Join(folder, "tenancy.yaml")
}

// description parses the text of a prometheus.Desc, which has no accessors.
var description = regexp.MustCompile(
	`^Desc\{fqName: "(.*?)", help: "(.*)", unit: "", constLabels: \{(.*?)\}, variableLabels: \{(.*?)\}\}$`)

// described returns the rows of the metrics that a process has registered.
func described(t *testing.T, m *mode) []metric {
	t.Helper()
	var all []metric
	for _, collector := range m.registered {
		descriptions := make(chan *prometheus.Desc, 10)
		collector.Describe(descriptions)
		close(descriptions)
		for d := range descriptions {
			parts := description.FindStringSubmatch(d.String())
			if parts == nil {
				t.Fatalf("a description has another form: %s", d)
			}
			constant, _, _ := strings.Cut(parts[3], "=")
			labels := strings.Split(strings.Trim(constant+","+parts[4], ","), ",")
			all = append(all, metric{
				name:   parts[1],
				kind:   kindOf(t, collector),
				labels: strings.Join(labels, ", "),
				help:   strings.TrimPrefix(parts[2], "[ALPHA] "),
			})
		}
	}
	// Some collectors create their metrics only when the metrics are gathered.
	families, err := m.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if !slices.ContainsFunc(all, func(m metric) bool { return m.name == f.GetName() }) {
			var labels []string
			for _, l := range f.GetMetric()[0].GetLabel() {
				labels = append(labels, l.GetName())
			}
			all = append(all, metric{
				name:   f.GetName(),
				kind:   strings.ToLower(dto.MetricType_name[int32(f.GetType())]),
				labels: strings.Join(labels, ", "),
				help:   strings.TrimPrefix(f.GetHelp(), "[ALPHA] "),
			})
		}
	}
	return all
}

// kindOf returns the type of a metric. It derives the type from the Go type, because a vector
// without values does not report its type.
func kindOf(t *testing.T, collector prometheus.Collector) string {
	t.Helper()
	name := reflect.TypeOf(collector).String()
	for _, kind := range []string{"Counter", "Gauge", "Histogram"} {
		if strings.Contains(name, kind) || strings.Contains(name, strings.ToLower(kind)) {
			return strings.ToLower(kind)
		}
	}
	if name == "*prometheus.valueFunc" {
		return "gauge"
	}
	t.Fatalf("%s is of no known type", name)
	return ""
}

// TestMetricsPage compares docs/reference/metrics.md with the metrics that the processes register.
func TestMetricsPage(t *testing.T) {
	byName := map[string]*metric{}
	for _, m := range modes(t) {
		for _, d := range described(t, m) {
			if byName[d.name] == nil {
				byName[d.name] = &d
			}
			if d.help == "" || !strings.HasSuffix(d.help, ".") {
				t.Errorf("%s: the help %q is not a sentence", d.name, d.help)
			}
			byName[d.name].modes = append(byName[d.name].modes, m.name)
		}
	}
	checkConstructors(t, byName)
	var text strings.Builder
	text.WriteString(generated + `
# Metrics

Each process exposes its metrics at ` + "`/metrics`" + `. A kube-apiserver with tenants compiled in exposes them
next to its own. The stability of all metrics is ALPHA. [../webhook.md](../webhook.md#metrics) describes the alerts
and the dashboard.

| metric | type | labels | help | exposed by |
|---|---|---|---|---|
`)
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		m := byName[name]
		fmt.Fprintf(&text, "| `%s` | %s | %s | %s | %s |\n", m.name, m.kind, cmp.Or(m.labels, "none"), m.help,
			strings.Join(m.modes, ", "))
	}
	compare(t, "metrics.md", text.String())
}
