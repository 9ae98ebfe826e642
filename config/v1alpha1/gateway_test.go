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

// TestObjectViews checks that the problem of each invalid field of a view of objects has the path
// of the field.
func TestObjectViews(t *testing.T) {
	const at = "gateway.views.objects[0]."
	for what, c := range map[string]struct{ old, new, at string }{
		"nothing is wrong":    {"", "", ""},
		"the core group":      {"group: core.oam.dev, ", "", ""},
		"the namespace's own": {"[spec.type,", `[spec.type, "spec.resources[*].namespace",`, ""},
		"an annotation":       {"metadata.uid", `"metadata.annotations['a.b/c']"`, ""},
		"no name":             {"name: trackers", `name: ""`, at + "name"},
		"a name with a dot":   {"name: trackers", "name: a.b", at + "name"},
		"a name with a digit": {"name: trackers", "name: 1a", at + "name"},
		"the other view":      {"name: trackers", "name: clusters", at + "name"},
		"an unknown field":    {"name: trackers", "names: trackers", `unknown field "` + at + `names"`},
		"no version":          {"version: v1beta1, ", "", at + "of.version"},
		"no resource":         {", resource: resourcetrackers", "", at + "of.resource"},
		"any resource":        {"resource: resourcetrackers", `resource: "*"`, at + "of.resource"},
		"a subresource":       {"resource: resourcetrackers", "resource: a/b", at + "of.resource"},
		"any group":           {"group: core.oam.dev", `group: "*"`, at + "of.group"},
		"a path as a group":   {"group: core.oam.dev", `group: "../api"`, at + "of.group"},
		"any version":         {"version: v1beta1", `version: "*"`, at + "of.version"},
		"no namespace":        {"namespaceFrom: spec.resources[*].namespace", "", at + "namespaceFrom"},
		"a malformed path":    {"spec.resources[*].namespace", "spec.resources[0].namespace", at + "namespaceFrom"},
		"a namespace of an object": {
			"namespaceFrom: spec.resources[*].namespace", "namespaceFrom: spec", at + "namespaceFrom",
		},
		"no fields":            {"[spec.type, ", "[] # ", at + "fields"},
		"a malformed field":    {"spec.type", "spec..type", at + "fields[0]"},
		"the same field":       {"[spec.type,", "[spec.type, spec.type,", at + "fields[1]"},
		"an object":            {"[spec.type,", "[spec,", at + "fields[0]"},
		"the list itself":      {"[spec.type,", "[spec.resources,", at + "fields[0]"},
		"its entries":          {"[spec.type,", `["spec.resources[*]",`, at + "fields[0]"},
		"entries of a list":    {"[spec.type,", `["spec.namespaces[*]",`, at + "fields[0]"},
		"a kind":               {"[spec.type,", "[kind,", at + "fields[0]"},
		"a field of a version": {"[spec.type,", "[apiVersion,", at + "fields[0]"},
		"all metadata":         {"metadata.uid", "metadata", at + "fields"},
		"all labels":           {"metadata.uid", "metadata.annotations", at + "fields[3]"},
		"managed fields":       {"metadata.uid", `"metadata.managedFields[*].manager"`, at + "fields[3]"},
		"owners":               {"metadata.uid", `"metadata.ownerReferences[*].name"`, at + "fields[3]"},
		"the name":             {"metadata.uid", "metadata.name", at + "fields[3]"},
		"another object in text": {
			"metadata.uid", `"metadata.annotations['kubectl.kubernetes.io/last-applied-configuration']"`, at + "fields[3]",
		},
		"a name twice": {
			"  views:\n    objects:\n",
			"  views:\n    objects:\n    - { name: trackers, of: { version: v1, resource: nodes }, " +
				"namespaceFrom: spec.a, fields: [spec.b] }\n", "gateway.views.objects[1].name",
		},
	} {
		t.Run(what, func(t *testing.T) {
			text := strings.Replace(objectView, c.old, c.new, 1)
			if c.old != "" && text == objectView {
				t.Fatalf("%q is not there", c.old)
			}
			_, err := v1alpha1.Decode([]byte(gatewayHeader + gatewayCluster + text))
			if c.at == "" && err != nil || c.at != "" && (err == nil || !strings.Contains(err.Error(), c.at)) {
				t.Errorf("%v, want %s", err, c.at)
			}
		})
	}
}

// TestGatewaySection checks that the problem of each invalid field of the section gateway has the
// path of the field.
func TestGatewaySection(t *testing.T) {
	for what, c := range map[string]struct{ old, new, at string }{
		"nothing is wrong":    {"", "", ""},
		"a name":              {"name: eu1", "name: EU1", "gateway.clusters[0].name"},
		"a name with a slash": {"name: eu1", "name: eu1/x", "gateway.clusters[0].name"},
		"an unknown field":    {"root: true", "rood: true", `unknown field "gateway.clusters[0].rood"`},
		"nobody may":          {`tenants: ["*", system]`, "tenants: []", "gateway.clusters[0].tenants"},
		"no tenant":           {`tenants: ["*", system]`, `tenants: ["a b"]`, "gateway.clusters[0].tenants[0]"},
		"no reader": {
			"reader: { kubeConfigFile: reader }", "reader: {}", "gateway.clusters[0].reader.kubeConfigFile",
		},
		"no impersonator": {"kubeConfigFile: imp, ", "", "gateway.clusters[0].impersonator.kubeConfigFile"},
		"a mode":          {"mode: Constrained", "mode: Constraint", "gateway.clusters[0].impersonator.mode"},
		"tokens":          {"tokens: Pass", "tokens: Maybe", "gateway.clusters[0].serviceAccounts.tokens"},
		"no issuer":       {`issuers: ["https://i"]`, "issuers: []", "gateway.clusters[0].serviceAccounts.issuers"},
		"an empty issuer": {`issuers: ["https://i"]`, `issuers: [""]`, "gateway.clusters[0].serviceAccounts.issuers[0]"},
		"the system is mapped": {
			"tenantMap: { acme: acme-eu }", "tenantMap: { system: acme }", "gateway.clusters[0].tenantMap[system]",
		},
		"a tenant becomes the system": {
			"tenantMap: { acme: acme-eu }", "tenantMap: { acme: system }", "gateway.clusters[0].tenantMap[acme]",
		},
		"two tenants become one": {
			"tenantMap: { acme: acme-eu }", "tenantMap: { acme: x, globex: x }", "gateway.clusters[0].tenantMap[globex]",
		},
		"a tenant becomes nothing": {
			"tenantMap: { acme: acme-eu }", `tenantMap: { acme: "" }`, "gateway.clusters[0].tenantMap[acme]",
		},
		"a reserved default user": {
			`defaultUser: "kubetenant:gateway"`, `defaultUser: "system:admin"`, "gateway.clusters[0].identity.defaultUser",
		},
		"nobody asks": {
			`withUser: true, defaultUser: "kubetenant:gateway"`, "withUser: false", "gateway.clusters[0].identity.defaultUser",
		},
		"a pattern":                 {`"dev-.*"`, `"dev-("`, "gateway.clusters[0].identity.groupPattern"},
		"a pattern that breaks out": {`"dev-.*"`, `"a)|(b"`, "gateway.clusters[0].identity.groupPattern"},
		"a prefix of the cluster's": {
			`usernamePrefix: "kt:"`, `usernamePrefix: "system:x"`, "gateway.clusters[0].identity.usernamePrefix",
		},
		"half a prefix of that": {
			`usernamePrefix: "kt:"`, `usernamePrefix: "sys"`, "gateway.clusters[0].identity.usernamePrefix",
		},
		"a prefix of tenants' groups": {
			`groupsPrefix: "g:"`, `groupsPrefix: "tenant:"`, "gateway.clusters[0].identity.groupsPrefix",
		},
		"an extra without a domain": {
			"extras: [example.com/floor]", "extras: [floor]", "gateway.clusters[0].identity.extras[0]",
		},
		"an extra in upper case": {
			"extras: [example.com/floor]", "extras: [example.com/Floor]", "gateway.clusters[0].identity.extras[0]",
		},
		"an extra that a server sets": {
			"extras: [example.com/floor]", "extras: [kubetenant.dev/tenant]", "gateway.clusters[0].identity.extras[0]",
		},
		"a user of no tenant": {"tenant: acme, user", `tenant: "", user`, "gateway.clusters[0].identity.users[0].tenant"},
		"a user of the system": {
			"tenant: acme, user", "tenant: system, user", "gateway.clusters[0].identity.users[0].tenant",
		},
		"a user without a name":        {"user: alice", `user: ""`, "gateway.clusters[0].identity.users[0].user"},
		"a user becomes the cluster's": {"as: bob", `as: "system:admin"`, "gateway.clusters[0].identity.users[0].as"},
		"a user becomes nobody":        {"as: bob", `as: ""`, "gateway.clusters[0].identity.users[0].as"},
		"a user becomes an unmapped":   {"as: bob", `as: "kt:bob"`, "gateway.clusters[0].identity.users[0].as"},
		"a user becomes a system's": {
			`usernamePrefix: "kt:", groupsPrefix: "g:", extras: [example.com/floor], withUID: true, ` +
				`users: [ { tenant: acme, user: alice, as: bob } ], unmapped: Keep`,
			"users: [ { tenant: acme, user: alice, as: root } ], unmapped: Deny",
			"gateway.clusters[0].identity.users[0].as",
		},
		"a user twice": {
			"as: bob }", "as: bob }, { tenant: acme, user: alice, as: eve }", "gateway.clusters[0].identity.users[1]",
		},
		"users, and one for all": {"withUser: true", "withUser: false", "gateway.clusters[0].identity.users"},
		"the unmapped":           {"unmapped: Keep", "unmapped: Drop", "gateway.clusters[0].identity.unmapped"},
		"admission":              {"admission: Unchecked", "admission: Never", "gateway.clusters[0].admission"},
		"a namespace":            {"namespace: kubetenant-system", "namespace: a/b", "gateway.clusters[0].namespace"},
		"a label":                {"region: eu", "region: \"e u\"", "gateway.clusters[0].labels"},
		"a label's key":          {"region: eu", "\"a b\": eu", "gateway.clusters[0].labels"},
		"a view": {
			"  clusters:", "  views: { clusters: { enabled: maybe } }\n  clusters:", "gateway.views.clusters.enabled",
		},
		"another view": {
			"  clusters:", "  views: { nodes: { enabled: true } }\n  clusters:", `unknown field "gateway.views.nodes"`,
		},
		"no bodies":              {"  clusters:", "  limits: { bodyBytes: 0 }\n  clusters:", "gateway.limits.bodyBytes"},
		"no time":                {"  clusters:", "  limits: { timeout: 0s }\n  clusters:", "gateway.limits.timeout"},
		"no concurrent requests": {"  clusters:", "  limits: { concurrent: 0 }\n  clusters:", "gateway.limits.concurrent"},
		"too many concurrent requests": {
			"  clusters:", "  limits: { concurrent: 10001 }\n  clusters:", "gateway.limits.concurrent",
		},
		"fewer than none wait": {"  clusters:", "  limits: { queued: -1 }\n  clusters:", "gateway.limits.queued"},
		"too many wait":        {"  clusters:", "  limits: { queued: 100001 }\n  clusters:", "gateway.limits.queued"},
		"no request waits":     {"  clusters:", "  limits: { concurrent: 10000, queued: 0 }\n  clusters:", ""},
		"too many goaways": {
			"  clusters:", "  limits: { goawayPerMillion: 20001 }\n  clusters:", "gateway.limits.goawayPerMillion",
		},
		"fewer than none": {
			"  clusters:", "  limits: { goawayPerMillion: -1 }\n  clusters:", "gateway.limits.goawayPerMillion",
		},
		"the end of sessions": {
			"  clusters:", "  sessions: { endWithCredential: maybe }\n  clusters:", "gateway.sessions.endWithCredential",
		},
		"audit without a log":    {"  clusters:", "  audit: { policyFile: p }\n  clusters:", "gateway.audit.logPath"},
		"audit without a policy": {"  clusters:", "  audit: { logPath: l }\n  clusters:", "gateway.audit.policyFile"},
		"an unknown failure": {
			"  clusters:", "  audit: { policyFile: p, logPath: l, onFailure: Drop }\n  clusters:", "gateway.audit.onFailure",
		},
		"a failure that is ignored": {
			"  clusters:", "  audit: { policyFile: p, logPath: l, onFailure: Ignore }\n  clusters:", "",
		},
		"a log of any size and age": {
			"  clusters:",
			"  audit: { policyFile: p, logPath: l, maxSizeMegabytes: 0, maxBackups: 0, maxAgeDays: 0 }\n  clusters:", "",
		},
		"a negative size": {
			"  clusters:", "  audit: { policyFile: p, logPath: l, maxSizeMegabytes: -1 }\n  clusters:",
			"gateway.audit.maxSizeMegabytes",
		},
		"a log that is too large": {
			"  clusters:", "  audit: { policyFile: p, logPath: l, maxSizeMegabytes: 1048577 }\n  clusters:",
			"gateway.audit.maxSizeMegabytes",
		},
		"negative backups": {
			"  clusters:", "  audit: { policyFile: p, logPath: l, maxBackups: -1 }\n  clusters:", "gateway.audit.maxBackups",
		},
		"a negative age": {
			"  clusters:", "  audit: { policyFile: p, logPath: l, maxAgeDays: -1 }\n  clusters:", "gateway.audit.maxAgeDays",
		},
		"an age that is too high": {
			"  clusters:", "  audit: { policyFile: p, logPath: l, maxAgeDays: 36501 }\n  clusters:", "gateway.audit.maxAgeDays",
		},
		"rotation of standard output": {
			"  clusters:", "  audit: { policyFile: p, logPath: \"-\", maxBackups: 1 }\n  clusters:", "gateway.audit.maxBackups",
		},
		"a second root": {
			"  clusters:",
			"  clusters:\n  - { name: us1, root: true, tenants: [a], reader: { kubeConfigFile: r }, impersonator: " +
				"{ kubeConfigFile: i } }",
			"gateway.clusters[1].root",
		},
		"a name twice": {
			"  clusters:",
			"  clusters:\n  - { name: eu1, tenants: [a], reader: { kubeConfigFile: r }, impersonator: { kubeConfigFile: i } }",
			"gateway.clusters[1].name",
		},
	} {
		t.Run(what, func(t *testing.T) {
			text := strings.Replace(gatewayCluster, c.old, c.new, 1)
			if c.old != "" && text == gatewayCluster {
				t.Fatalf("%q is not there", c.old)
			}
			_, err := v1alpha1.Decode([]byte(gatewayHeader + text))
			if c.at == "" && err != nil || c.at != "" && (err == nil || !strings.Contains(err.Error(), c.at)) {
				t.Errorf("%v, want %s", err, c.at)
			}
		})
	}
	if _, err := v1alpha1.Decode([]byte(gatewayHeader + "  clusters: []\n")); err == nil ||
		!strings.Contains(err.Error(), "gateway.clusters") {
		t.Errorf("no cluster: %v", err)
	}
	const proxy = "authentication: { sources: [ { name: p, tenants: [acme], frontProxy: {} } ] }\n"
	if _, err := v1alpha1.Decode([]byte(gatewayHeader + gatewayCluster + proxy)); err == nil ||
		!strings.Contains(err.Error(), "authentication.sources[0].frontProxy") {
		t.Errorf("headers of a proxy: %v", err)
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
