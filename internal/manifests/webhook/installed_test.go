// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package webhook_test

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/kubetenant/kubetenant/internal/manifests"
	"github.com/kubetenant/kubetenant/internal/manifests/webhook"
)

// findingsAfter generates a set of files, changes the files, and returns the findings of Check.
func findingsAfter(t *testing.T, o webhook.Options, change func(map[string][]byte)) []string {
	t.Helper()
	files, err := webhook.Generate(o)
	if err != nil {
		t.Fatal(err)
	}
	change(files)
	return findings(t, o, files)
}

// findings writes a set of files and returns the findings of Check.
func findings(t *testing.T, o webhook.Options, files map[string][]byte) []string {
	t.Helper()
	dir := t.TempDir()
	if err := manifests.Write(dir, "", files); err != nil {
		t.Fatal(err)
	}
	all, err := webhook.Check(dir, o.Config, o.Namespace)
	if err != nil {
		t.Fatal(err)
	}
	var texts []string
	for _, f := range all {
		texts = append(texts, f.String())
	}
	return texts
}

// expectFinding fails the test unless a finding contains want. If want is empty, there must be no
// findings.
func expectFinding(t *testing.T, name string, found []string, want string) {
	t.Helper()
	matches := slices.ContainsFunc(found, func(text string) bool { return strings.Contains(text, want) })
	if want == "" && len(found) > 0 || want != "" && !matches {
		t.Errorf("%s: found %q; want %q", name, found, want)
	}
}

// TestCheckFlags checks that flags are reported if they allow reserved names in claims, cache
// tokens, or disable rejections. Other flags are not reported.
func TestCheckFlags(t *testing.T) {
	const issuer = "--oidc-issuer-url=https://i\n"
	for name, c := range map[string]struct{ flags, want string }{
		"an issuer":     {issuer, ""},
		"a good prefix": {issuer + "--oidc-username-prefix=oidc:\n--oidc-groups-claim=g\n--oidc-groups-prefix=oidc:", ""},
		"users with a system prefix": {
			issuer + "--oidc-username-prefix=system:", "--oidc-username-prefix=system:: a claim can create",
		},
		"a part of system:":       {issuer + "--oidc-username-prefix=sys", "--oidc-username-prefix=sys: a claim can create"},
		"groups without a prefix": {issuer + "--oidc-groups-claim=g", "--oidc-groups-prefix=: a claim can create"},
		"groups of tenants": {
			issuer + "--oidc-groups-claim=g\n--oidc-groups-prefix=tenant:a", "--oidc-groups-prefix=tenant:a: a claim can create",
		},
		"a prefix without a groups claim": {issuer + "--oidc-groups-prefix=-", ""},
		"no issuer":                       {"--oidc-username-prefix=-", ""},
		"another plugin":                  {"--disable-admission-plugins=LimitRanger,PodSecurity", ""},
		"mutating webhooks": {
			"--disable-admission-plugins=LimitRanger,MutatingAdmissionWebhook", "cannot reject writes",
		},
		"validating webhooks":     {"--disable-admission-plugins=ValidatingAdmissionWebhook", "cannot reject writes"},
		"the default token cache": {"--authentication-token-webhook-cache-ttl=", "must be at most 1s"},
		"no token cache":          {"--authentication-token-webhook-cache-ttl=0s", ""},
	} {
		t.Run(name, func(t *testing.T) {
			expectFinding(t, name, findingsAfter(t, options(t), func(files map[string][]byte) {
				files["control-plane/flags.txt"] = append(files["control-plane/flags.txt"], "\n"+c.flags+"\n"...)
			}), c.want)
		})
	}
	expectFinding(t, "the flags of another program", findingsAfter(t, options(t), func(files map[string][]byte) {
		files["other.txt"] = []byte("--oidc-issuer-url=https://i\n--disable-admission-plugins=ValidatingAdmissionPolicy")
	}), "")
	expectFinding(t, "no environment",
		findingsAfter(t, options(t), func(files map[string][]byte) { delete(files, "control-plane/environment.txt") }),
		"environment.txt is missing")
	expectFinding(t, "no authorization",
		findingsAfter(t, options(t), func(files map[string][]byte) { delete(files, "control-plane/authorization.yaml") }),
		"the AuthorizationConfiguration is missing")
	expectFinding(
		t,
		"no rights",
		findingsAfter(t, options(t), func(files map[string][]byte) { delete(files, "cluster/accounts.yaml") }),
		"ClusterRole/kubetenant-webhook is missing: a part of the service lacks the rights",
	)
}

// TestCheckOtherObjects checks which other objects of the cluster are reported because of the
// rights that they grant. Objects that do not affect the service are ignored.
func TestCheckOtherObjects(t *testing.T) {
	const sa = "kubetenant-system"
	other := func(kind, name, rest string) string {
		return "{apiVersion: admissionregistration.k8s.io/v1, kind: " + kind + ", metadata: {name: " + name + "}, " + rest +
			"}"
	}
	authority := func(lifetime time.Duration) string {
		return "{apiVersion: v1, kind: ConfigMap, metadata: {name: kubetenant-webhook-ca}, data: {ca.crt: " +
			strconv.Quote(certificate(t, "old", lifetime)) + "}}"
	}
	harmless, harmful, wants := map[string][]byte{}, map[string][]byte{}, map[string]string{}
	for name, c := range map[string]struct{ text, want string }{
		"foreign webhooks": {
			other("MutatingWebhookConfiguration", "other",
				"webhooks: [{name: a.b.c, failurePolicy: Ignore, matchPolicy: Exact}]"),
			"",
		},
		"a foreign policy": {other("ValidatingAdmissionPolicy", "p.example.com", "spec: {failurePolicy: Ignore}"), ""},
		"a foreign policy binding": {
			other("ValidatingAdmissionPolicyBinding", "p.example.com", "spec: {validationActions: [Warn], matchResources: {}}"),
			"",
		},
		"a role in a namespace": {
			strings.Replace(binding("{kind: ServiceAccount, name: kubetenant-webhook, namespace: "+sa+"}"),
				"kind: ClusterRoleBinding", "kind: RoleBinding", 1),
			"RoleBinding b grants additional rights to kubetenant-webhook",
		},
		"the account's user name": {
			binding("{kind: User, name: 'system:serviceaccount:" + sa + ":kubetenant-webhook'}"), "additional rights",
		},
		"name in another namespace": {binding("{kind: ServiceAccount, name: kubetenant-webhook, namespace: web}"), ""},
		"another account":           {binding("{kind: ServiceAccount, name: prometheus, namespace: " + sa + "}"), ""},
		"accounts of the system": {
			"{apiVersion: v1, kind: Namespace, metadata: {name: kube-system}}\n---\n" +
				binding("{kind: ServiceAccount, name: p, namespace: kube-system}"),
			"",
		},
		"an unknown namespace": {binding("{kind: ServiceAccount, name: p, namespace: elsewhere}"), ""},
		"bootstrap tokens":     {binding("{kind: User, name: 'system:bootstrap:abc'}"), ""},
		"a node by its name": {
			binding("{kind: User, name: 'system:node:n1'}"), "user system:node:n1 has a binding but would have no tenant",
		},
		"all authenticated callers": {binding("{kind: Group, name: 'system:authenticated'}"), ""},
		"accounts of a namespace":   {binding("{kind: Group, name: 'system:serviceaccounts:web'}"), ""},
		"a person":                  {binding("{kind: User, name: alice}"), ""},
		"an expired authority":      {authority(-time.Minute), ""},
		"users without a prefix": {
			strings.Replace(authentication("groups: { claim: g, prefix: 'oidc:' }"), "prefix: 'oidc:' },", "prefix: '' },", 1),
			"username has no prefix",
		},
		"another domain's extra": {authentication("extra: [ { key: example.com/tenant, valueExpression: claims.t } ]"), ""},
		"part of a literal": {
			authentication(`groups: { expression: '"te" + claims.g' }`), "does not begin with a literal prefix",
		},
	} {
		if c.want == "" {
			harmless[name+".yml"] = []byte(c.text)
		} else {
			harmful[name+".yml"] = []byte(c.text)
			wants[name] = c.want
		}
	}
	expectFinding(
		t,
		"ignored objects",
		findingsAfter(t, options(t), func(files map[string][]byte) { maps.Copy(files, harmless) }),
		"",
	)
	all := findingsAfter(t, options(t), func(files map[string][]byte) { maps.Copy(files, harmful) })
	for name, want := range wants {
		t.Run(name, func(t *testing.T) {
			expectFinding(t, name,
				slices.DeleteFunc(slices.Clone(all), func(text string) bool { return !strings.HasPrefix(text, name+".yml: ") }),
				want)
		})
	}
}

// TestCheckCopiedAuthorities checks that kube-apiserver's file must contain each authority of the
// cluster. Authorities that expire soon are not reported.
func TestCheckCopiedAuthorities(t *testing.T) {
	one, two := certificate(t, "one", time.Hour), certificate(t, "two", time.Hour)
	for copied, want := range map[string]string{
		one:       "webhook-ca.crt lacks the authority CN=two",
		one + two: "",
		two + one: "",
	} {
		t.Run(copied, func(t *testing.T) {
			expectFinding(t, "copied", findingsAfter(t, options(t), func(files map[string][]byte) {
				files["control-plane/webhook-ca.crt"] = []byte(copied)
				files["more.yaml"] = []byte("{apiVersion: v1, kind: ConfigMap, metadata: {name: kubetenant-webhook-ca}, data: " +
					"{ca.crt: " + strconv.Quote(one+two) + "}}")
			}), want)
		})
	}
}

// TestCheckSelectors checks that a webhook is reported if it excludes a namespace or has a URL
// without https.
func TestCheckSelectors(t *testing.T) {
	outside := options(t)
	outside.External, outside.Image = true, ""
	for name, c := range map[string]struct {
		o              webhook.Options
		old, new, want string
	}{
		"without TLS": {outside, "url: https://", "url: http://", "the URL does not begin with https://"},
		"another namespace": {
			options(t),
			"operator: NotIn, values: [kubetenant-system]",
			"operator: NotIn, values: [kubetenant-system, web]",
			"namespaceSelector on kubernetes.io/metadata.name excludes namespaces",
		},
		"one namespace only": {
			options(t),
			"operator: NotIn, values: [kubetenant-system]",
			"operator: In, values: [kubetenant-system]",
			"namespaceSelector on kubernetes.io/metadata.name excludes namespaces",
		},
		"by a label": {
			options(t),
			"  namespaceSelector:\n",
			"  namespaceSelector:\n    matchLabels: { app: x }\n",
			"namespaceSelector on app excludes every other namespace",
		},
	} {
		t.Run(name, func(t *testing.T) {
			expectFinding(t, name, findingsAfter(t, c.o, func(files map[string][]byte) {
				spoiled := strings.Replace(string(files["cluster/webhooks.yaml"]), c.old, c.new, 1)
				if spoiled == string(files["cluster/webhooks.yaml"]) {
					t.Fatalf("there is no %q", c.old)
				}
				files["cluster/webhooks.yaml"] = []byte(spoiled)
			}), c.want)
		})
	}
}

// TestCheckStatic checks that policies in static manifests are checked like policies in the
// cluster, although their names have another suffix.
func TestCheckStatic(t *testing.T) {
	o := options(t)
	o.StaticPolicies = true
	const path = "control-plane/policies/policies.yaml"
	for name, c := range map[string]struct{ old, new, want string }{
		"as written": {"", "", ""},
		"failurePolicy Ignore": {
			"failurePolicy: Fail", "failurePolicy: Ignore", "policy restriction.kubetenant.static.k8s.io: failurePolicy Ignore",
		},
		"only warnings": {"validationActions: [Deny]", "validationActions: [Warn]", "validationActions lacks Deny"},
		"another rule":  {"      !variables.foreign", "      true || !variables.foreign", "the field spec differs"},
	} {
		t.Run(name, func(t *testing.T) {
			expectFinding(t, name, findingsAfter(t, o, func(files map[string][]byte) {
				if strings.Contains(string(files[path]), ".kubetenant.dev\n") || !strings.Contains(string(files[path]), c.old) {
					t.Errorf("the static policies are\n%s", files[path])
				}
				files[path] = []byte(strings.Replace(string(files[path]), c.old, c.new, 1))
			}), c.want)
		})
	}
}

// TestCheckComparesWithConfiguration checks that files that were generated from another
// configuration are reported if the difference affects the installed objects.
func TestCheckComparesWithConfiguration(t *testing.T) {
	plain := options(t)
	for name, settings := range map[string]string{
		"grants are off":          "authorization: {grants: {enabled: false}}",
		"quotas are off":          "admission: {quota: {enabled: false}}",
		"other workloads":         "admission: {workloads: [{group: x.io, kind: Thing, paths: [spec.template]}]}",
		"no namespace prefix":     "admission: {namespace: {namespacePrefix: None}}",
		"upstream's RBAC":         "authorization: {rbac: {evaluator: Upstream}}",
		"no restricted resources": "admission: {restriction: {resources: []}}",
		"the system is exempt":    "admission: {restriction: {exemptSystem: true}}",
		"other system names":      "authorization: {systemSubjects: {groups: [ops]}}",
		"tenant from groups":      "authorization: {subject: {fromGroups: true}}",
		"TenantGate":              "admission: {gate: {mode: Enforce}}",
		"closed probes":           "authorization: {unboundAllow: {paths: []}}",
	} {
		t.Run(name, func(t *testing.T) {
			o := options(t)
			write(t, o.Config, "{apiVersion: kubetenant.dev/v1alpha1, kind: TenancyConfiguration, "+settings+"}")
			files, err := webhook.Generate(o)
			if err != nil {
				t.Errorf("%v", err)
				return
			}
			dir := t.TempDir()
			if err := manifests.Write(dir, "", files); err != nil {
				t.Fatal(err)
			}
			if all, err := webhook.Check(dir, plain.Config, o.Namespace); err != nil || len(all) == 0 {
				t.Errorf("no findings with another configuration, %v", err)
			}
			if all, err := webhook.Check(dir, o.Config, o.Namespace); err != nil ||
				name != "closed probes" && name != "other system names" && len(all) > 0 {
				t.Errorf("with its own configuration: %v, %v", all, err)
			}
		})
	}
}

// TestUnreadableFilesAreAnError checks that Check returns an error if files cannot be read, and
// not a set without findings.
func TestUnreadableFilesAreAnError(t *testing.T) {
	o := options(t)
	if found, err := webhook.Check(filepath.Join(t.TempDir(), "none"), o.Config, o.Namespace); err == nil || found != nil {
		t.Errorf("no folder: %v, %v", found, err)
	}
	if found, err := webhook.Check(t.TempDir(), o.Config+".none", o.Namespace); !os.IsNotExist(err) || found != nil {
		t.Errorf("no configuration: %v, %v", found, err)
	}
	if found, err := webhook.Check(t.TempDir(), o.Config, o.Namespace); err != nil || len(found) == 0 {
		t.Errorf("an empty folder: %v, %v", found, err)
	}
}
