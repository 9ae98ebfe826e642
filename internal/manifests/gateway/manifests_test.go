// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package gateway_test

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/cert"
	"sigs.k8s.io/yaml"

	"github.com/kubetenant/kubetenant/internal/manifests/gateway"
)

const header = "apiVersion: kubetenant.dev/v1alpha1\nkind: TenancyConfiguration\ngateway:\n  clusters:\n"

func generate(t *testing.T, clusters string, accounts bool) (dir string, o gateway.Options, files map[string][]byte) {
	t.Helper()
	dir = t.TempDir()
	o = gateway.Options{
		Config:    filepath.Join(dir, "tenancy.yaml"),
		Image:     "example.com/kubetenant-gateway:1",
		Namespace: "kubetenant-system",
		Accounts:  accounts,
	}
	if err := os.WriteFile(o.Config, []byte(header+clusters), 0o600); err != nil {
		t.Fatal(err)
	}
	files, err := gateway.Generate(o)
	if err != nil {
		t.Fatal(err)
	}
	return dir, o, files
}

const cluster = "  - { name: eu1, reader: { kubeConfigFile: r }, impersonator: { kubeConfigFile: i"

// rules returns the rules of the ClusterRole with the given name in a file.
func rules(t *testing.T, file []byte, name string) []rbacv1.PolicyRule {
	t.Helper()
	for _, text := range strings.Split(string(file), "---\n") {
		var role rbacv1.ClusterRole
		if err := yaml.Unmarshal([]byte(text), &role); err == nil && role.Kind == "ClusterRole" && role.Name == name {
			return role.Rules
		}
	}
	t.Fatalf("no ClusterRole %s in\n%s", name, file)
	return nil
}

// TestAccountRightsAreLimited checks that the reader can only read objects and send reviews, and
// that the impersonator can only impersonate the callers that the configuration allows.
func TestAccountRightsAreLimited(t *testing.T) {
	for what, c := range map[string]struct {
		more     string
		accounts bool
		want     []string // resource: names
		on       bool
	}{
		"any caller": {
			` }, tenants: ["*"] }`, false, []string{"users: ", "groups: ", "userextras/kubetenant.dev/tenant: "}, false,
		},
		"with service accounts": {
			` }, tenants: ["*"] }`,
			true,
			[]string{"users: ", "groups: ", "userextras/kubetenant.dev/tenant: ", "serviceaccounts: "},
			false,
		},
		"named tenants": {
			` }, tenants: [acme, globex], tenantMap: { acme: acme-eu } }`,
			false,
			[]string{"users: ", "groups: ", "userextras/kubetenant.dev/tenant: acme-eu globex"},
			false,
		},
		"all names listed": {
			` }, tenants: [acme], identity: { withUser: false, defaultUser: gw, groupPattern: "", extras: [example.com/a], ` +
				`withUID: true } }`,
			false,
			[]string{
				"users: gw", "groups: tenant:acme", "userextras/kubetenant.dev/tenant: acme", "userextras/example.com/a: ",
				"uids: ",
			},
			false,
		},
		"mapped users only": {
			` }, tenants: [acme], identity: { unmapped: Deny, groupPattern: "", users: [ { tenant: acme, user: a, as: b } ] } }`,
			false,
			[]string{"users: b", "groups: tenant:acme", "userextras/kubetenant.dev/tenant: acme"},
			false,
		},
		"no mapped users": {
			` }, tenants: [acme], identity: { unmapped: Deny, groupPattern: "" } }`,
			false,
			[]string{"groups: tenant:acme", "userextras/kubetenant.dev/tenant: acme"},
			false,
		},
		"mapped users and the system tenant": {
			` }, tenants: [acme, system], identity: { unmapped: Deny, usernamePrefix: "kt:", groupPattern: "", ` +
				`users: [ { tenant: acme, user: a, as: b } ] } }`,
			false,
			[]string{"users: ", "groups: tenant:acme tenant:system", "userextras/kubetenant.dev/tenant: acme system"},
			false,
		},
		"constrained": {
			`, mode: Constrained }, tenants: [acme], identity: { groupPattern: "" } }`,
			true,
			[]string{"users: ", "groups: tenant:acme", "userextras/kubetenant.dev/tenant: acme", "*: ", ": "},
			true,
		},
	} {
		t.Run(what, func(t *testing.T) {
			_, _, files := generate(t, cluster+c.more, c.accounts)
			file := files["clusters/eu1.yaml"]
			for _, r := range rules(t, file, gateway.ReaderAccount) {
				for _, verb := range r.Verbs {
					creates := verb == "create" &&
						(slices.Equal(r.Resources, []string{"tokenreviews"}) ||
							slices.Equal(r.Resources, []string{"subjectaccessreviews"}))
					if !creates && !slices.Contains([]string{"get", "list", "watch"}, verb) {
						t.Errorf("the reader may %s %v", verb, r.Resources)
					}
				}
			}
			var got []string
			for _, r := range rules(t, file, gateway.ImpersonatorAccount) {
				got = append(got, strings.Join(r.Resources, ",")+": "+strings.Join(r.ResourceNames, " "))
				// The verbs of non-resource requests in RequestInfo.
				for _, method := range []string{"get", "head", "post", "put", "patch", "delete", "options"} {
					if len(r.NonResourceURLs) > 0 && !slices.Contains(r.Verbs, "impersonate-on:user-info:"+method) {
						t.Errorf("the impersonator may not %s", method)
					}
				}
				for _, verb := range r.Verbs {
					if !strings.HasPrefix(verb, "impersonate") ||
						strings.HasPrefix(verb, "impersonate:") != c.on && !strings.HasPrefix(verb, "impersonate-on:user-info:") ||
						strings.HasPrefix(verb, "impersonate-on:") && !c.on {
						t.Errorf("the impersonator may %s %v", verb, r.Resources)
					}
				}
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
}

// TestViewRights checks that the reader gets the right to read the objects in the views, and no
// other right for them.
func TestViewRights(t *testing.T) {
	const views = `  views: { objects: [ { name: trackers, of: { group: core.oam.dev, version: v1beta1, ` +
		`resource: resourcetrackers }, namespaceFrom: spec.a, fields: [spec.b] } ] }` + "\n"
	has := func(more string) bool {
		_, _, files := generate(t, cluster+` }, tenants: ["*"] }`+"\n"+more, false)
		all := rules(t, files["clusters/eu1.yaml"], gateway.ReaderAccount)
		return slices.ContainsFunc(all, func(r rbacv1.PolicyRule) bool {
			return slices.Equal(r.APIGroups, []string{"core.oam.dev"}) &&
				slices.Equal(r.Resources, []string{"resourcetrackers"}) &&
				slices.Equal(r.Verbs, []string{"get", "list", "watch"})
		})
	}
	if !has(views) || has("") {
		t.Errorf("with a view: %t, without: %t", has(views), has(""))
	}
}

// TestGateway checks that all objects of the gateway are in one namespace.
func TestGateway(t *testing.T) {
	_, _, files := generate(t, cluster+` }, tenants: ["*"] }`, false)
	decoder := utilyaml.NewYAMLOrJSONDecoder(strings.NewReader(string(files["gateway.yaml"])), 4096)
	var kinds []string
	for {
		u := &unstructured.Unstructured{}
		if err := decoder.Decode(&u.Object); err != nil {
			break
		}
		if kinds = append(kinds, u.GetKind()); u.GetNamespace() != "kubetenant-system" {
			t.Errorf("%s is in %q", u.GetKind(), u.GetNamespace())
		}
	}
	if want := []string{
		"ServiceAccount", "Deployment", "Service", "PodDisruptionBudget", "NetworkPolicy",
	}; !slices.Equal(kinds, want) || !strings.Contains(string(files["gateway.yaml"]), "example.com/kubetenant-gateway:1") {
		t.Errorf("%v", kinds)
	}
}

// TestCheck checks that files that do not match the configuration are reported, and that the notes
// describe the rights of an impersonator.
func TestCheck(t *testing.T) {
	dir, o, files := generate(t, cluster+` }, tenants: ["*"], admission: Unchecked }`, false)
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"r", "i"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	wrong, notes, err := gateway.Check(dir, o)
	if said := strings.Join(notes, "\n"); err != nil || len(wrong) > 0 || !strings.Contains(said, "a cluster admin") ||
		!strings.Contains(said, "tenants are not listed") || !strings.Contains(said, "Unchecked") {
		t.Errorf("%v, %v, %v", wrong, notes, err)
	}
	o.Accounts = true
	if wrong, _, err := gateway.Check(dir, o); err != nil || len(wrong) != 1 ||
		!strings.Contains(wrong[0], "clusters/eu1.yaml") {
		t.Errorf("with other rights: %v, %v", wrong, err)
	}
	if err := os.Remove(filepath.Join(dir, "i")); err != nil {
		t.Fatal(err)
	}
	o.Accounts = false
	if wrong, _, err := gateway.Check(dir, o); err != nil || len(wrong) != 1 {
		t.Errorf("without a kubeconfig: %v, %v", wrong, err)
	}
	if err := os.WriteFile(o.Config, []byte("apiVersion: kubetenant.dev/v1alpha1\nkind: TenancyConfiguration\n"),
		0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := gateway.Check(dir, o); err == nil {
		t.Error("a configuration without a gateway is accepted")
	}
}

// TestNoteForUnlimitedImpersonator checks the notes about an impersonator that can impersonate
// users or groups that the configuration does not list.
func TestNoteForUnlimitedImpersonator(t *testing.T) {
	for what, c := range map[string]struct {
		more string
		told bool
	}{
		"any caller": {` }, tenants: [acme] }`, true},
		"any group":  {` }, tenants: [acme], identity: { withUser: false, defaultUser: gw } }`, true},
		"groups by a pattern": {
			` }, tenants: [acme], identity: { withUser: false, defaultUser: gw, groupPattern: "dev-.*" } }`, true,
		},
		"mapped users": {
			` }, tenants: [acme], identity: { unmapped: Deny, users: [ { tenant: acme, user: a, as: b } ] } }`, true,
		},
		"any tenant": {
			` }, tenants: ["*"], identity: { withUser: false, defaultUser: gw, groupPattern: "" } }`, true,
		},
		"the system tenant": {` }, tenants: [acme, system], identity: { unmapped: Deny, groupPattern: "" } }`, true},
		"one user in tenants' groups": {
			` }, tenants: [acme], identity: { withUser: false, defaultUser: gw, groupPattern: "" } }`, false,
		},
		"no mapped users": {` }, tenants: [acme], identity: { unmapped: Deny, groupPattern: "" } }`, false},
	} {
		t.Run(what, func(t *testing.T) {
			dir, o, _ := generate(t, cluster+c.more, false)
			_, notes, err := gateway.Check(dir, o)
			if told := strings.Contains(strings.Join(notes, "\n"), "a cluster admin"); err != nil || told != c.told {
				t.Errorf("%v, %v", notes, err)
			}
		})
	}
}

// TestKubeconfigs checks that kubeconfigs of both accounts are written for clusters with a context.
// They contain the address of the cluster and no credentials.
func TestKubeconfigs(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	write("ca.crt", "an authority")
	mine := write("mine", `{apiVersion: v1, kind: Config, current-context: b, users: [{name: me, user: {token: s3cret}}],
clusters: [{name: a, cluster: {server: "https://a:6443", certificate-authority: ca.crt,
proxy-url: "socks5://localhost:1080"}}, {name: b, cluster: {server: "https://b", insecure-skip-tls-verify: true}},
{name: d, cluster: {server: "http://d"}}],
contexts: [{name: a, context: {cluster: a, user: me}}, {name: b, context: {cluster: b, user: me}},
{name: c, context: {cluster: none, user: me}}, {name: d, context: {cluster: d, user: me}}]}`)
	config := write("tenancy.yaml", header+
		`  - { name: eu1, tenants: ["*"], reader: { kubeConfigFile: eu1-reader }, impersonator: { kubeConfigFile: eu1-imp } }
  - { name: ap1, tenants: ["*"], reader: { kubeConfigFile: eu1-reader }, impersonator: { kubeConfigFile: ap1-imp } }
  - { name: us1, tenants: ["*"], reader: { kubeConfigFile: us/kubeconfig }, impersonator: { kubeConfigFile: `+
		`us/imp/kubeconfig } }
`)
	generate := func(contexts map[string]string) (map[string][]byte, error) {
		return gateway.Generate(gateway.Options{
			Config:     config,
			Image:      "i",
			Namespace:  "kubetenant-system",
			Contexts:   contexts,
			Kubeconfig: mine,
		})
	}
	files, err := generate(map[string]string{"eu1": "a"})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"eu1-reader", "eu1-imp"} {
		got, err := clientcmd.Load(files["kubeconfigs/"+name])
		if err != nil {
			t.Fatal(err)
		}
		at, as := got.Clusters[got.Contexts[got.CurrentContext].Cluster],
			got.AuthInfos[got.Contexts[got.CurrentContext].AuthInfo]
		if at.Server != "https://a:6443" || at.ProxyURL != "" || string(at.CertificateAuthorityData) != "an authority" ||
			as.TokenFile != "/etc/kubetenant/tokens/"+name || as.Token != "" {
			t.Errorf("%s: %s", name, files["kubeconfigs/"+name])
		}
	}
	for name, text := range files {
		if strings.Contains(string(text), "s3cret") ||
			strings.HasPrefix(name, "kubeconfigs/") && !strings.Contains(name, "eu1") {
			t.Errorf("%s: %s", name, text)
		}
	}
	for what, contexts := range map[string]map[string]string{
		"no such cluster":           {"ap2": "a"},
		"no such context":           {"eu1": "x"},
		"a context of no cluster":   {"eu1": "c"},
		"unverified TLS":            {"eu1": "b"},
		"without TLS":               {"eu1": "d"},
		"files elsewhere":           {"us1": "a"},
		"one file for two clusters": {"eu1": "a", "ap1": "a"},
	} {
		t.Run(what, func(t *testing.T) {
			if _, err := generate(contexts); err == nil || strings.Contains(err.Error(), "s3cret") {
				t.Errorf("%v", err)
			}
		})
	}
}

// TestSecrets checks that generate with a certificate writes Secrets with the configuration,
// every file that the configuration names, and the certificate.
func TestSecrets(t *testing.T) {
	dir := t.TempDir()
	write := func(name string, text []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	certificate, key, err := cert.GenerateSelfSignedCertKey("gateway.example.com", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	_, otherKey, err := cert.GenerateSelfSignedCertKey("gateway.example.com", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	write("client-ca.crt", []byte("authorities"))
	o := gateway.Options{
		Config: write("tenancy.yaml", []byte(strings.Replace(header, "gateway:\n",
			"authentication: { sources: [ { name: certs, x509: { clientCAFile: client-ca.crt } } ] }\ngateway:\n", 1)+
			cluster+` }, tenants: ["*"] }`+"\n  audit: { policyFile: audit.yaml, logPath: /audit/audit.log }\n")),
		Image:     "i",
		Namespace: "kubetenant-system",
		Contexts:  map[string]string{"eu1": "a"},
		Kubeconfig: write("mine", []byte(`{apiVersion: v1, kind: Config, users: [{name: me, user: {token: s3cret}}],
clusters: [{name: a, cluster: {server: "https://a:6443"}}], contexts: [{name: a, context: {cluster: a, user: me}}]}`)),
		Certificate: write("tls.crt", certificate),
		Key:         write("tls.key", key),
	}
	if files, err := gateway.Generate(o); err == nil || !strings.Contains(err.Error(), "audit.yaml") {
		t.Errorf("without a file that the configuration names: %d files, %v", len(files), err)
	}
	write("audit.yaml", []byte("a policy"))
	files, err := gateway.Generate(o)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for text := range strings.SplitSeq(string(files["secrets.yaml"]), "---\n") {
		var secret corev1.Secret
		if err := yaml.Unmarshal([]byte(text), &secret); err != nil {
			t.Fatal(err)
		}
		for name, data := range secret.Data {
			got[secret.Namespace+"/"+secret.Name+"/"+name] = string(data)
		}
	}
	config, err := os.ReadFile(o.Config)
	if err != nil {
		t.Fatal(err)
	}
	in := "kubetenant-system/kubetenant-gateway-"
	if want := map[string]string{
		in + "config/tenancy.yaml":  string(config),
		in + "config/client-ca.crt": "authorities",
		in + "config/audit.yaml":    "a policy",
		in + "config/r":             string(files["kubeconfigs/r"]),
		in + "config/i":             string(files["kubeconfigs/i"]),
		in + "tls/tls.crt":          string(certificate),
		in + "tls/tls.key":          string(key),
	}; !maps.Equal(got, want) || strings.Contains(got[in+"config/r"], "s3cret") {
		t.Errorf("Secrets: %q, want %q", got, want)
	}
	if gateway := string(files["gateway.yaml"]); !strings.Contains(gateway,
		`{ secretName: "kubetenant-gateway-tokens", optional: false }`) {
		t.Errorf("the Pod does not wait for the tokens:\n%s", gateway)
	}
	write("tls.key", otherKey)
	if _, err := gateway.Generate(o); err == nil || strings.Contains(err.Error(), "PRIVATE KEY") {
		t.Errorf("the key of another certificate: %v", err)
	}
}

// TestServiceType checks that generate writes a Service of the requested type and rejects an
// unknown type.
func TestServiceType(t *testing.T) {
	_, o, _ := generate(t, cluster+` }, tenants: ["*"] }`, false)
	for name, wanted := range map[string]string{"": "ClusterIP", "LoadBalancer": "LoadBalancer", "ExternalName": ""} {
		t.Run("type "+name, func(t *testing.T) {
			o.ServiceType = name
			files, err := gateway.Generate(o)
			if (err == nil) != (wanted != "") ||
				wanted != "" && !strings.Contains(string(files["gateway.yaml"]), "\n  type: "+wanted+"\n") {
				t.Errorf("%v\n%s", err, files["gateway.yaml"])
			}
		})
	}
}
