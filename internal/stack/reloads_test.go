// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package stack_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/component-base/metrics"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"

	"github.com/kubetenant/kubetenant/cluster/lookup/lookuptest"
	configv1alpha1 "github.com/kubetenant/kubetenant/config/v1alpha1"
	"github.com/kubetenant/kubetenant/internal/stack"
)

// lastReload returns the value of a metric for the file at path. It returns false if there is no
// series.
func lastReload(t *testing.T, registry metrics.KubeRegistry, name, path string) (float64, bool) {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == "kubetenant_config_last_reload_"+name && m.GetLabel()[0].GetValue() == path {
				return m.GetGauge().GetValue(), true
			}
		}
	}
	return 0, false
}

// TestLastReload checks that the metrics show whether the version of a file on disk is in effect,
// and when a version last took effect.
func TestLastReload(t *testing.T) {
	dir := t.TempDir()
	path, tokens := filepath.Join(dir, "tenancy.yaml"), filepath.Join(dir, "tokens.csv")
	replace(t, dir, map[string]string{"tenancy.yaml": config, "tokens.csv": "tok,alice,1,,a\n", "passwords.csv": ""})
	registry := metrics.NewKubeRegistry()
	s, err := stack.Open(t.Context(), path,
		stack.Server{Cluster: lookuptest.OwnedBy(owners(t)), Register: registry.Register})
	if err != nil {
		t.Fatal(err)
	}
	shows := func(path string, want float64) func() bool {
		return func() bool {
			got, ok := lastReload(t, registry, "successful", path)
			return ok && got == want
		}
	}
	since := func(path string) float64 {
		at, _ := lastReload(t, registry, "success_timestamp_seconds", path)
		return at
	}
	isMissing := func(path string) func() bool {
		return func() bool {
			_, ok := lastReload(t, registry, "successful", path)
			return !ok
		}
	}
	begun := since(path)
	if !shows(path, 1)() || begun == 0 || !isMissing(tokens)() {
		t.Errorf("at the start: loaded at %v", begun)
	}
	replace(t, dir, map[string]string{"tenancy.yaml": config + "nonsense: true\n"})
	eventually(t, "a rejected configuration is shown", shows(path, 0))
	if since(path) != begun {
		t.Error("a rejected version changed the time of the last load")
	}
	replace(t, dir, map[string]string{"tokens.csv": "tok,alice\n"})
	eventually(t, "a rejected token file is shown", shows(tokens, 0))
	if at := since(tokens); at == 0 || at > float64(time.Now().Unix()) {
		t.Errorf("the token file was loaded at %v", at)
	}
	replace(t, dir, map[string]string{"others.csv": "tok,alice,1,,a\n"})
	replace(t, dir, map[string]string{"tenancy.yaml": strings.Replace(config, "tokens.csv", "others.csv", 1)})
	eventually(t, "the new configuration is shown", shows(path, 1))
	if since(path) <= begun {
		t.Error("a new version did not change the time of the last load")
	}
	eventually(t, "a file that the configuration no longer names is not shown", isMissing(tokens))
	if err := os.Remove(filepath.Join(dir, "others.csv")); err != nil {
		t.Fatal(err)
	}
	eventually(t, "a missing file is shown", shows(filepath.Join(dir, "others.csv"), 0))
	replace(t, dir, map[string]string{"others.csv": "tok,alice,1,,a\n"})
	eventually(t, "a file that exists again is shown", shows(filepath.Join(dir, "others.csv"), 1))

	s.SetFollowedFiles(path, "kubeconfig")
	s.RecordReload(t.Context(), "kubeconfig", os.ErrNotExist)
	if !shows("kubeconfig", 0)() {
		t.Error("a rejected followed file is not shown")
	}
	s.SetFollowedFiles(path, "another")
	if !isMissing("kubeconfig")() || !shows("another", 1)() || !shows(path, 1)() {
		t.Error("SetFollowedFiles did not replace the followed files")
	}
}

// TestReloadMayNotLockOutAdmins checks that a new version of the configuration is rejected if it
// would reject the certificates of the cluster's admins.
func TestReloadMayNotLockOutAdmins(t *testing.T) {
	own, other := authority(t, "own"), authority(t, "other")
	content, err := dynamiccertificates.NewStaticCAContent("own", []byte(own))
	if err != nil {
		t.Fatal(err)
	}
	const all = `tenants: ["*", system], x509: { clientCAFile: `
	sources := func(list string) string {
		return "apiVersion: kubetenant.dev/v1alpha1\nkind: TenancyConfiguration\n" +
			"authentication: { sources: [ " + list + " ] }\n"
	}
	for what, c := range map[string]struct {
		list   string
		passes bool
	}{
		"no source":                     {"", true},
		"a source of another authority": {"{ name: certs, tenants: [acme], x509: { clientCAFile: other.crt } }", true},
		"all tenants":                   {"{ name: certs, " + all + "own.crt } }", true},
		"one tenant":                    {"{ name: certs, tenants: [acme], x509: { clientCAFile: own.crt } }", false},
		"one tenant, a larger bundle":   {"{ name: certs, tenants: [acme], x509: { clientCAFile: both.crt } }", false},
		"one tenant first": {
			"{ name: one, tenants: [acme], x509: { clientCAFile: own.crt } }, { name: all, " + all + "own.crt } }", false,
		},
		"one tenant last": {
			"{ name: all, " + all + "own.crt } }, { name: one, tenants: [acme], x509: { clientCAFile: own.crt } }", true,
		},
		"without system:masters": {"{ name: certs, " + all + "own.crt, systemOrganizations: [ops] } }", false},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			replace(t, dir, map[string]string{
				"own.crt":      own,
				"other.crt":    other,
				"both.crt":     other + own,
				"tenancy.yaml": sources(""),
			})
			open := func() (*stack.Stack, error) {
				return stack.Open(t.Context(), filepath.Join(dir, "tenancy.yaml"), stack.Server{
					Cluster:        lookuptest.OwnedBy(owners(t)),
					Authentication: stack.Authentication{ClientCA: content},
				})
			}
			opened, err := open()
			if err != nil {
				t.Fatal(err)
			}
			config, err := configv1alpha1.Decode([]byte(sources(c.list)))
			if err != nil {
				t.Fatal(err)
			}
			config.ResolvePaths(dir)
			commit, _, err := opened.Prepare(t.Context(), &config.Settings)
			if c.passes != (err == nil) || err != nil && !strings.Contains(err.Error(), "system:masters") {
				t.Fatalf("Prepare() = %v", err)
			}
			if err == nil {
				commit()
			}
			replace(t, dir, map[string]string{"tenancy.yaml": sources(c.list)})
			if _, err := open(); err != nil {
				t.Errorf("Open() with the configuration = %v", err)
			}
		})
	}
}

// TestServiceSectionNeedsRestart checks that a change of the section service is logged if it
// requires a restart. A setting that takes effect without a restart is not logged.
func TestServiceSectionNeedsRestart(t *testing.T) {
	logger := ktesting.NewLogger(t, ktesting.NewConfig(ktesting.BufferLogs(true)))
	ctx := klog.NewContext(t.Context(), logger)
	settings := func(service string) *configv1alpha1.Settings {
		config, err := configv1alpha1.Decode([]byte("apiVersion: kubetenant.dev/v1alpha1\nkind: TenancyConfiguration\n" +
			"authentication: { sources: [] }\nservice: { " + service + " }\n"))
		if err != nil {
			t.Fatal(err)
		}
		return &config.Settings
	}
	s, err := stack.New(ctx, settings("drain: 5s"), stack.Server{Cluster: lookuptest.OwnedBy(owners(t))})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, service string
		told          int
	}{
		{"no change", "drain: 5s", 0},
		{"a setting that needs no restart", "drain: 5s, tenantMetrics: 7", 0},
		{"a setting that needs a restart", "drain: 6s", 1},
		{"the same change again", "drain: 6s", 2},
		{"the original setting", "drain: 5s", 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			commit, _, err := s.Prepare(ctx, settings(c.service))
			if err != nil {
				t.Fatal(err)
			}
			commit()
			log := logger.GetSink().(ktesting.Underlier).GetBuffer().String()
			if told := strings.Count(log, "The section service of the configuration is not the one"); told != c.told {
				t.Errorf("the log reports the change %d times, want %d", told, c.told)
			}
		})
	}
}
