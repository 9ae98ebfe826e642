// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package v1alpha1_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kubetenant/kubetenant/config/v1alpha1"
)

const gatewayHeader = "apiVersion: kubetenant.dev/v1alpha1\nkind: TenancyConfiguration\ngateway:\n"

// gatewayCluster is a valid gateway section with one cluster that sets every field.
const gatewayCluster = `  clusters:
  - name: eu1
    root: true
    labels: { region: eu }
    tenants: ["*", system]
    reader: { kubeConfigFile: reader }
    impersonator: { kubeConfigFile: imp, mode: Constrained }
    serviceAccounts: { tokens: Pass, issuers: ["https://i"] }
    tenantMap: { acme: acme-eu }
    identity: { withUser: true, defaultUser: "kubetenant:gateway", groupPattern: "dev-.*", usernamePrefix: "kt:", ` +
	`groupsPrefix: "g:", extras: [example.com/floor], withUID: true, users: [ { tenant: acme, user: alice, as: bob } ], ` +
	`unmapped: Keep }
    admission: Unchecked
    namespace: kubetenant-system
`

// objectView is a valid views section with one view of objects.
const objectView = `  views:
    objects:
    - name: trackers
      of: { group: core.oam.dev, version: v1beta1, resource: resourcetrackers }
      namespaceFrom: spec.resources[*].namespace
      fields: [spec.type, "spec.resources[*].name", "metadata.labels['a.b/c']", metadata.uid]
`

// TestObjectViews checks that valid object views are accepted, and that the error for an invalid
// field contains the path of the field.
func TestObjectViews(t *testing.T) {
	const at = "gateway.views.objects[0]."
	for what, c := range map[string]struct{ old, new, at string }{
		"valid":                    {"", "", ""},
		"core group":               {"group: core.oam.dev, ", "", ""},
		"field of the namespace":   {"[spec.type,", `[spec.type, "spec.resources[*].namespace",`, ""},
		"annotation":               {"metadata.uid", `"metadata.annotations['a.b/c']"`, ""},
		"no name":                  {"name: trackers", `name: ""`, at + "name"},
		"name with a dot":          {"name: trackers", "name: a.b", at + "name"},
		"name begins with a digit": {"name: trackers", "name: 1a", at + "name"},
		"reserved name clusters":   {"name: trackers", "name: clusters", at + "name"},
		"unknown field":            {"name: trackers", "names: trackers", `unknown field "` + at + `names"`},
		"no version":               {"version: v1beta1, ", "", at + "of.version"},
		"no resource":              {", resource: resourcetrackers", "", at + "of.resource"},
		"any resource":             {"resource: resourcetrackers", `resource: "*"`, at + "of.resource"},
		"subresource":              {"resource: resourcetrackers", "resource: a/b", at + "of.resource"},
		"any group":                {"group: core.oam.dev", `group: "*"`, at + "of.group"},
		"path as group":            {"group: core.oam.dev", `group: "../api"`, at + "of.group"},
		"any version":              {"version: v1beta1", `version: "*"`, at + "of.version"},
		"no namespace":             {"namespaceFrom: spec.resources[*].namespace", "", at + "namespaceFrom"},
		"malformed namespaceFrom":  {"spec.resources[*].namespace", "spec.resources[0].namespace", at + "namespaceFrom"},
		"namespaceFrom is an object": {
			"namespaceFrom: spec.resources[*].namespace", "namespaceFrom: spec", at + "namespaceFrom",
		},
		"no fields":                  {"[spec.type, ", "[] # ", at + "fields"},
		"malformed field":            {"spec.type", "spec..type", at + "fields[0]"},
		"duplicate field":            {"[spec.type,", "[spec.type, spec.type,", at + "fields[1]"},
		"field is an object":         {"[spec.type,", "[spec,", at + "fields[0]"},
		"field is a list":            {"[spec.type,", "[spec.resources,", at + "fields[0]"},
		"field is a list of objects": {"[spec.type,", `["spec.resources[*]",`, at + "fields[0]"},
		"field ends in a list":       {"[spec.type,", `["spec.namespaces[*]",`, at + "fields[0]"},
		"field kind":                 {"[spec.type,", "[kind,", at + "fields[0]"},
		"field apiVersion":           {"[spec.type,", "[apiVersion,", at + "fields[0]"},
		"all metadata":               {"metadata.uid", "metadata", at + "fields"},
		"all annotations":            {"metadata.uid", "metadata.annotations", at + "fields[3]"},
		"managed fields":             {"metadata.uid", `"metadata.managedFields[*].manager"`, at + "fields[3]"},
		"owner references":           {"metadata.uid", `"metadata.ownerReferences[*].name"`, at + "fields[3]"},
		"metadata.name":              {"metadata.uid", "metadata.name", at + "fields[3]"},
		"last applied configuration": {
			"metadata.uid", `"metadata.annotations['kubectl.kubernetes.io/last-applied-configuration']"`, at + "fields[3]",
		},
		"duplicate name": {
			"  views:\n    objects:\n",
			"  views:\n    objects:\n    - { name: trackers, of: { version: v1, resource: nodes }, " +
				"namespaceFrom: spec.a, fields: [spec.b] }\n", "gateway.views.objects[1].name",
		},
	} {
		t.Run(what, func(t *testing.T) {
			text := strings.Replace(objectView, c.old, c.new, 1)
			if c.old != "" && text == objectView {
				t.Fatalf("the template does not contain %q", c.old)
			}
			_, err := v1alpha1.Decode([]byte(gatewayHeader + gatewayCluster + text))
			if c.at == "" && err != nil || c.at != "" && (err == nil || !strings.Contains(err.Error(), c.at)) {
				t.Errorf("%v, want %s", err, c.at)
			}
		})
	}
}

// TestGatewaySection checks that valid gateway sections are accepted, and that the error for an
// invalid field contains the path of the field.
func TestGatewaySection(t *testing.T) {
	for what, c := range map[string]struct{ old, new, at string }{
		"valid":             {"", "", ""},
		"upper-case name":   {"name: eu1", "name: EU1", "gateway.clusters[0].name"},
		"name with a slash": {"name: eu1", "name: eu1/x", "gateway.clusters[0].name"},
		"unknown field":     {"root: true", "rood: true", `unknown field "gateway.clusters[0].rood"`},
		"no tenants":        {`tenants: ["*", system]`, "tenants: []", "gateway.clusters[0].tenants"},
		"invalid tenant":    {`tenants: ["*", system]`, `tenants: ["a b"]`, "gateway.clusters[0].tenants[0]"},
		"no reader": {
			"reader: { kubeConfigFile: reader }", "reader: {}", "gateway.clusters[0].reader.kubeConfigFile",
		},
		"no impersonator": {"kubeConfigFile: imp, ", "", "gateway.clusters[0].impersonator.kubeConfigFile"},
		"invalid mode":    {"mode: Constrained", "mode: Constraint", "gateway.clusters[0].impersonator.mode"},
		"invalid tokens":  {"tokens: Pass", "tokens: Maybe", "gateway.clusters[0].serviceAccounts.tokens"},
		"no issuers":      {`issuers: ["https://i"]`, "issuers: []", "gateway.clusters[0].serviceAccounts.issuers"},
		"empty issuer":    {`issuers: ["https://i"]`, `issuers: [""]`, "gateway.clusters[0].serviceAccounts.issuers[0]"},
		"system tenant is mapped": {
			"tenantMap: { acme: acme-eu }", "tenantMap: { system: acme }", "gateway.clusters[0].tenantMap[system]",
		},
		"tenant is mapped to system": {
			"tenantMap: { acme: acme-eu }", "tenantMap: { acme: system }", "gateway.clusters[0].tenantMap[acme]",
		},
		"two tenants have the same name": {
			"tenantMap: { acme: acme-eu }", "tenantMap: { acme: x, globex: x }", "gateway.clusters[0].tenantMap[globex]",
		},
		"tenant has an empty name": {
			"tenantMap: { acme: acme-eu }", `tenantMap: { acme: "" }`, "gateway.clusters[0].tenantMap[acme]",
		},
		"reserved default user": {
			`defaultUser: "kubetenant:gateway"`, `defaultUser: "system:admin"`, "gateway.clusters[0].identity.defaultUser",
		},
		"no default user": {
			`withUser: true, defaultUser: "kubetenant:gateway"`, "withUser: false", "gateway.clusters[0].identity.defaultUser",
		},
		"invalid pattern":               {`"dev-.*"`, `"dev-("`, "gateway.clusters[0].identity.groupPattern"},
		"pattern that closes its group": {`"dev-.*"`, `"a)|(b"`, "gateway.clusters[0].identity.groupPattern"},
		"reserved username prefix": {
			`usernamePrefix: "kt:"`, `usernamePrefix: "system:x"`, "gateway.clusters[0].identity.usernamePrefix",
		},
		"part of a reserved username prefix": {
			`usernamePrefix: "kt:"`, `usernamePrefix: "sys"`, "gateway.clusters[0].identity.usernamePrefix",
		},
		"groups prefix tenant:": {
			`groupsPrefix: "g:"`, `groupsPrefix: "tenant:"`, "gateway.clusters[0].identity.groupsPrefix",
		},
		"extra without a domain": {
			"extras: [example.com/floor]", "extras: [floor]", "gateway.clusters[0].identity.extras[0]",
		},
		"upper-case extra": {
			"extras: [example.com/floor]", "extras: [example.com/Floor]", "gateway.clusters[0].identity.extras[0]",
		},
		"reserved extra": {
			"extras: [example.com/floor]", "extras: [kubetenant.dev/tenant]", "gateway.clusters[0].identity.extras[0]",
		},
		"user without a tenant": {"tenant: acme, user", `tenant: "", user`, "gateway.clusters[0].identity.users[0].tenant"},
		"mapped user of the system tenant": {
			"tenant: acme, user", "tenant: system, user", "gateway.clusters[0].identity.users[0].tenant",
		},
		"mapped user without a name":        {"user: alice", `user: ""`, "gateway.clusters[0].identity.users[0].user"},
		"user is mapped to a reserved name": {"as: bob", `as: "system:admin"`, "gateway.clusters[0].identity.users[0].as"},
		"user is mapped to an empty name":   {"as: bob", `as: ""`, "gateway.clusters[0].identity.users[0].as"},
		"unmapped user could have the name": {"as: bob", `as: "kt:bob"`, "gateway.clusters[0].identity.users[0].as"},
		"system user could have the name": {
			`usernamePrefix: "kt:", groupsPrefix: "g:", extras: [example.com/floor], withUID: true, ` +
				`users: [ { tenant: acme, user: alice, as: bob } ], unmapped: Keep`,
			"users: [ { tenant: acme, user: alice, as: root } ], unmapped: Deny",
			"gateway.clusters[0].identity.users[0].as",
		},
		"duplicate mapped user": {
			"as: bob }", "as: bob }, { tenant: acme, user: alice, as: eve }", "gateway.clusters[0].identity.users[1]",
		},
		"users without withUser": {"withUser: true", "withUser: false", "gateway.clusters[0].identity.users"},
		"invalid unmapped":       {"unmapped: Keep", "unmapped: Drop", "gateway.clusters[0].identity.unmapped"},
		"invalid admission":      {"admission: Unchecked", "admission: Never", "gateway.clusters[0].admission"},
		"invalid namespace":      {"namespace: kubetenant-system", "namespace: a/b", "gateway.clusters[0].namespace"},
		"invalid label":          {"region: eu", "region: \"e u\"", "gateway.clusters[0].labels"},
		"invalid label key":      {"region: eu", "\"a b\": eu", "gateway.clusters[0].labels"},
		"invalid clusters view": {
			"  clusters:", "  views: { clusters: { enabled: maybe } }\n  clusters:", "gateway.views.clusters.enabled",
		},
		"unknown view": {
			"  clusters:", "  views: { nodes: { enabled: true } }\n  clusters:", `unknown field "gateway.views.nodes"`,
		},
		"bodyBytes is 0":         {"  clusters:", "  limits: { bodyBytes: 0 }\n  clusters:", "gateway.limits.bodyBytes"},
		"timeout is 0":           {"  clusters:", "  limits: { timeout: 0s }\n  clusters:", "gateway.limits.timeout"},
		"no concurrent requests": {"  clusters:", "  limits: { concurrent: 0 }\n  clusters:", "gateway.limits.concurrent"},
		"too many concurrent requests": {
			"  clusters:", "  limits: { concurrent: 10001 }\n  clusters:", "gateway.limits.concurrent",
		},
		"queued is negative":  {"  clusters:", "  limits: { queued: -1 }\n  clusters:", "gateway.limits.queued"},
		"queued is too large": {"  clusters:", "  limits: { queued: 100001 }\n  clusters:", "gateway.limits.queued"},
		"queued is 0":         {"  clusters:", "  limits: { concurrent: 10000, queued: 0 }\n  clusters:", ""},
		"goawayPerMillion is too large": {
			"  clusters:", "  limits: { goawayPerMillion: 20001 }\n  clusters:", "gateway.limits.goawayPerMillion",
		},
		"goawayPerMillion is negative": {
			"  clusters:", "  limits: { goawayPerMillion: -1 }\n  clusters:", "gateway.limits.goawayPerMillion",
		},
		"invalid endWithCredential": {
			"  clusters:", "  sessions: { endWithCredential: maybe }\n  clusters:", "gateway.sessions.endWithCredential",
		},
		"audit without a log":    {"  clusters:", "  audit: { policyFile: p }\n  clusters:", "gateway.audit.logPath"},
		"audit without a policy": {"  clusters:", "  audit: { logPath: l }\n  clusters:", "gateway.audit.policyFile"},
		"unknown onFailure": {
			"  clusters:", "  audit: { policyFile: p, logPath: l, onFailure: Drop }\n  clusters:", "gateway.audit.onFailure",
		},
		"onFailure is Ignore": {
			"  clusters:", "  audit: { policyFile: p, logPath: l, onFailure: Ignore }\n  clusters:", "",
		},
		"no limits of the log": {
			"  clusters:",
			"  audit: { policyFile: p, logPath: l, maxSizeMegabytes: 0, maxBackups: 0, maxAgeDays: 0 }\n  clusters:", "",
		},
		"negative size": {
			"  clusters:", "  audit: { policyFile: p, logPath: l, maxSizeMegabytes: -1 }\n  clusters:",
			"gateway.audit.maxSizeMegabytes",
		},
		"size is too large": {
			"  clusters:", "  audit: { policyFile: p, logPath: l, maxSizeMegabytes: 1048577 }\n  clusters:",
			"gateway.audit.maxSizeMegabytes",
		},
		"negative backups": {
			"  clusters:", "  audit: { policyFile: p, logPath: l, maxBackups: -1 }\n  clusters:", "gateway.audit.maxBackups",
		},
		"negative age": {
			"  clusters:", "  audit: { policyFile: p, logPath: l, maxAgeDays: -1 }\n  clusters:", "gateway.audit.maxAgeDays",
		},
		"age is too large": {
			"  clusters:", "  audit: { policyFile: p, logPath: l, maxAgeDays: 36501 }\n  clusters:", "gateway.audit.maxAgeDays",
		},
		"rotation of standard output": {
			"  clusters:", "  audit: { policyFile: p, logPath: \"-\", maxBackups: 1 }\n  clusters:", "gateway.audit.maxBackups",
		},
		"two root clusters": {
			"  clusters:",
			"  clusters:\n  - { name: us1, root: true, tenants: [a], reader: { kubeConfigFile: r }, impersonator: " +
				"{ kubeConfigFile: i } }",
			"gateway.clusters[1].root",
		},
		"duplicate cluster name": {
			"  clusters:",
			"  clusters:\n  - { name: eu1, tenants: [a], reader: { kubeConfigFile: r }, impersonator: { kubeConfigFile: i } }",
			"gateway.clusters[1].name",
		},
	} {
		t.Run(what, func(t *testing.T) {
			text := strings.Replace(gatewayCluster, c.old, c.new, 1)
			if c.old != "" && text == gatewayCluster {
				t.Fatalf("the template does not contain %q", c.old)
			}
			_, err := v1alpha1.Decode([]byte(gatewayHeader + text))
			if c.at == "" && err != nil || c.at != "" && (err == nil || !strings.Contains(err.Error(), c.at)) {
				t.Errorf("%v, want %s", err, c.at)
			}
		})
	}
	if _, err := v1alpha1.Decode([]byte(gatewayHeader + "  clusters: []\n")); err == nil ||
		!strings.Contains(err.Error(), "gateway.clusters") {
		t.Errorf("no clusters: %v", err)
	}
	const proxy = "authentication: { sources: [ { name: p, tenants: [acme], frontProxy: {} } ] }\n"
	if _, err := v1alpha1.Decode([]byte(gatewayHeader + gatewayCluster + proxy)); err == nil ||
		!strings.Contains(err.Error(), "authentication.sources[0].frontProxy") {
		t.Errorf("frontProxy source: %v", err)
	}
}

// TestGatewayPaths checks that relative paths in the section gateway become relative to the
// directory of the configuration file, and that logPath "-" does not change.
func TestGatewayPaths(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "tenancy.yaml")
	text := gatewayHeader + "  audit: { policyFile: policy.yaml, logPath: \"-\" }\n" + gatewayCluster
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := v1alpha1.Load(path)
	if err != nil {
		t.Fatal(err)
	}
	g := c.Gateway
	got := fmt.Sprint(g.Clusters[0].Reader.KubeConfigFile, " ", g.Clusters[0].Impersonator.KubeConfigFile, " ",
		g.Audit.PolicyFile, " ", g.Audit.LogPath)
	if want := fmt.Sprint(dir, "/reader ", dir, "/imp ", dir, "/policy.yaml -"); got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
