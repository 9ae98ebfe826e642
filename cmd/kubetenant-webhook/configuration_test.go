// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"strings"
	"testing"
)

// TestCheckConfiguration checks that each kind of problem in a Secret is reported with its
// position. No message may contain a credential, and no temporary file may remain.
func TestCheckConfiguration(t *testing.T) {
	const (
		head   = "apiVersion: kubetenant.dev/v1alpha1\nkind: TenancyConfiguration\n"
		source = "authentication:\n  sources:\n  - name: tokens\n    tokenFile: { path: PATH }\n"
		tokens = "s3cret-token,alice,u1,dev,,acme\n"
	)
	in := func(path string) string { return head + strings.Replace(source, "PATH", path, 1) }
	for name, c := range map[string]struct {
		data map[string]string
		want string // "" if the configuration is valid
	}{
		"valid":    {map[string]string{"tenancy.yaml": in("tokens.csv"), "tokens.csv": tokens}, ""},
		"defaults": {map[string]string{"tenancy.yaml": head}, ""},
		"a file in a folder": {
			map[string]string{"tenancy.yaml": in("files/tokens.csv"), secretKey("files/tokens.csv"): tokens},
			"",
		},
		"a path below the mount": {
			map[string]string{"tenancy.yaml": in("/etc/kubetenant/config/tokens.csv"), "tokens.csv": tokens},
			"",
		},
		"a section of a gateway": {map[string]string{"tenancy.yaml": head + "gateway:\n  clusters:\n  - name: eu1\n" +
			"    tenants: ['*', system]\n    reader: { kubeConfigFile: eu1-reader }\n" +
			"    impersonator: { kubeConfigFile: eu1-imp }\n"}, ""},
		"files that the service writes": {map[string]string{"tenancy.yaml": head + "audit: { directory: " +
			"/var/lib/kubetenant/audit }\nusage:\n  directory: /var/lib/kubetenant/usage\n" +
			"  file: { path: /var/lib/kubetenant/records/usage.jsonl }\n"}, ""},
		"the token of an endpoint": {
			map[string]string{"tenancy.yaml": head + "usage:\n  directory: /var/lib/kubetenant/usage\n" +
				"  endpoint: { url: https://billing.example.com, tokenFile: billing.token }\n"},
			`names "billing.token", but the Secret has no key`,
		},
		"other keys":       {map[string]string{"tenancy.yaml": head, "notes": "{"}, ""},
		"no configuration": {map[string]string{"tokens.csv": tokens}, "the key tenancy.yaml is missing"},
		"empty":            {map[string]string{"tenancy.yaml": ""}, "tenancy.yaml"},
		"no YAML":          {map[string]string{"tenancy.yaml": head + "a: [\n"}, "tenancy.yaml:3:"},
		"an unknown field": {
			map[string]string{"tenancy.yaml": head + "authorisation: {}\n"},
			"tenancy.yaml:3:1: authorisation: ",
		},
		"a wrong value": {
			map[string]string{"tenancy.yaml": head + "authorization:\n  mode: Off\n"},
			"tenancy.yaml:4:",
		},
		"a missing file": {
			map[string]string{"tenancy.yaml": in("tokens.csv")},
			`names "tokens.csv", but the Secret has no key`,
		},
		"a file of the host": {map[string]string{"tenancy.yaml": in("/etc/passwd")}, "not a file of the Secret"},
		"a file outside":     {map[string]string{"tenancy.yaml": in("../tls/tls.key")}, "not a file of the Secret"},
		"a file outside of the mount": {
			map[string]string{"tenancy.yaml": in("/etc/kubetenant/config/../tls/tls.key")},
			"not a file of the Secret",
		},
		"a malformed record": {
			map[string]string{"tenancy.yaml": in("tokens.csv"), "tokens.csv": tokens + "s3cret-two,bob\n"},
			"tokens.csv:2:",
		},
	} {
		t.Run(name, func(t *testing.T) {
			temporary := t.TempDir()
			t.Setenv("TMPDIR", temporary)
			data := map[string][]byte{}
			for key, text := range c.data {
				data[key] = []byte(text)
			}
			problems, err := checkConfiguration(t.Context(), data)
			text := strings.Join(problems, "; ")
			if err != nil || (c.want == "") != (len(problems) == 0) || !strings.Contains(text, c.want) {
				t.Errorf("%q, %v; want %q", problems, err, c.want)
			}
			if strings.Contains(text, "s3cret") || strings.Contains(text, temporary) {
				t.Errorf("%q has a credential or a path of the server", text)
			}
			if left, err := os.ReadDir(temporary); err != nil || len(left) > 0 {
				t.Errorf("left %v, %v", left, err)
			}
		})
	}
	t.Setenv("TMPDIR", "/nonexistent")
	if problems, err := checkConfiguration(t.Context(), map[string][]byte{"tenancy.yaml": []byte(head)}); err == nil {
		t.Errorf("without a temporary directory: %q", problems)
	}
}
