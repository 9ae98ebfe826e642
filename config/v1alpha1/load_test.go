// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package v1alpha1_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"

	"github.com/kubetenant/kubetenant/config/v1alpha1"
)

const header = "apiVersion: kubetenant.dev/v1alpha1\nkind: TenancyConfiguration\n"

func TestDecodeIsStrict(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"empty": {"", "but has 0"},
		"another kind": {
			"apiVersion: kubetenant.dev/v1alpha1\nkind: Other\n",
			"must have apiVersion kubetenant.dev/v1alpha1 and kind TenancyConfiguration",
		},
		"another version": {"apiVersion: kubetenant.dev/v1\nkind: TenancyConfiguration\n", "must have apiVersion"},
		"no kind":         {"authentication: {}\n", "must have apiVersion"},
		"unknown field":   {header + "authentication: { surces: [] }\n", `unknown field "authentication.surces"`},
		"wrong case":      {header + "Authentication: {}\n", `unknown field "Authentication"`},
		"duplicate field": {header + "authentication: {}\nauthentication: {}\n", "already set in map"},
		"unknown in a list": {
			header + "authentication: { sources: [ { name: x, x509: { ca: y } } ] }\n",
			`unknown field "authentication.sources[0].x509.ca"`,
		},
		"wrong type":            {header + "authentication: { qualifyNames: maybe }\n", "cannot unmarshal string"},
		"two documents":         {header + "---\n" + header, "but has 2"},
		"kind Secret":           {"apiVersion: v1\nkind: Secret\ndata: {}\n", "must have apiVersion"},
		"two kinds of problems": {header + "nonsense: 1\nadmission: { namespace: { podSecurity: loose } }\n", "podSecurity"},
		"not YAML":              {header + "\t{", "yaml"},
		"a list":                {"- a\n", "cannot unmarshal array"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := v1alpha1.Decode([]byte(c.text))
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("Decode() = %v; want %q", err, c.want)
			}
		})
	}
}

// TestProblemsAreInOrder checks that the error for an invalid configuration has the same text each
// time.
func TestProblemsAreInOrder(t *testing.T) {
	text := []byte(header + `
authentication: { sources: [ { name: a, x509: {} } ] }
admission:
  attribution: { workloadUser: { systemUsers: [ "" ], externalUsers: [ "" ], externalGroups: [ "" ] } }
  placement:
    nodeName: { policy: Nothing }
    nodeSelector: { policy: Nothing }
    tolerations: { policy: Nothing }
    schedulerName: { policy: Nothing }
    defaults: { nodeSelector: { "a b": x, "b c": x, "c d": x, "d e": x } }
  policy: { storageClasses: { policy: Nothing }, ingressClasses: { policy: Nothing } }
  quota: { default: { a: -1, b: -1, c: -1, d: -1 } }
gateway: { clusters: [], limits: { bodyBytes: -1 } }
fairUse: { requestsPerSecond: 0, inFlight: -1, watches: 0 }
`)
	_, first := v1alpha1.Decode(text)
	var all utilerrors.Aggregate
	if !errors.As(first, &all) || len(all.Errors()) < 15 {
		t.Fatalf("Decode() = %v; want every problem", first)
	}
	for range 20 {
		if _, err := v1alpha1.Decode(text); err == nil || err.Error() != first.Error() {
			t.Fatalf("%v\nand\n%v", first, err)
		}
	}
}

// TestFamilyWarnings checks that Warnings reports a list whose "domain/*" entry lets tenants select
// individual nodes.
func TestFamilyWarnings(t *testing.T) {
	s, err := v1alpha1.Decode([]byte(header + `
authentication: { sources: [ { name: a, tokenFile: { path: x } } ] }
admission:
  placement:
    nodeSelector: { allowed: [ "example.com/*", "kubernetes.io/*" ] }
    topologySpread: { allowed: [ "kubernetes.io/*" ] }
    tenants: [ { tenants: [ a ], nodeAffinity: { allowed: [ "kubernetes.io/*" ] } } ]
`))
	if err != nil {
		t.Fatal(err)
	}
	const text = ": kubernetes.io/* includes kubernetes.io/hostname, with which tenants choose single nodes"
	want := []string{
		"admission.placement.nodeSelector.allowed[1]" + text,
		"admission.placement.tenants[0].nodeAffinity.allowed[0]" + text,
	}
	var got []string
	for _, w := range s.Warnings() {
		if strings.HasPrefix(w, "admission.placement.") {
			got = append(got, w)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestDecodeReportsEveryProblem(t *testing.T) {
	_, err := v1alpha1.Decode([]byte(header + `
authentication:
  sources:
  - { name: "A", x509: {} }
  - { name: two, tenants: ["a b"], tokenFile: { path: "" } }
admission: { namespace: { podSecurity: loose } }
`))
	var all utilerrors.Aggregate
	if !errors.As(err, &all) || len(all.Errors()) != 5 {
		t.Errorf("Decode() = %v; want five problems", err)
	}
}

func TestDefaults(t *testing.T) {
	c, err := v1alpha1.Decode([]byte(header + `
authentication:
  sources:
  - { name: certs, x509: { clientCAFile: ca.crt } }
  - { name: tokens, tokenFile: { path: t.csv } }
  - { name: proxy, tenants: [a], frontProxy: {} }
authorization: { sharedClusterResources: [] }
`))
	if err != nil {
		t.Fatal(err)
	}
	certs, tokens := c.Authentication.Sources[0], c.Authentication.Sources[1]
	if diff := cmp.Diff([]string{"*", "system"}, certs.Tenants); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"system:masters", "kubeadm:cluster-admins"}, certs.X509.SystemOrganizations); diff != "" {
		t.Error(diff)
	}
	if certs.X509.OldFormat != v1alpha1.OldFormatAllow || tokens.TokenFile.DefaultTenant != "" {
		t.Errorf("defaults = %v, %v", certs.X509.OldFormat, tokens.TokenFile.DefaultTenant)
	}
	z := c.Authorization
	if len(z.SystemSubjects.Users) != 6 || len(z.SystemSubjects.Groups) != 4 || len(z.SystemNamespaces) != 4 ||
		len(z.UnboundAllow.Paths) != 7 {
		t.Errorf("defaults = %+v", z)
	}
	if z.SharedClusterResources == nil || len(z.SharedClusterResources) != 0 {
		t.Errorf("an empty list was replaced: %v", z.SharedClusterResources)
	}
}

// TestListsThatTheClusterNeeds checks which configured lists Default extends with the missing
// default entries, and which lists it does not change. A second call must change nothing.
func TestListsThatTheClusterNeeds(t *testing.T) {
	const placement = "admission: { placement: { tenants: [ { tenants: [a], "
	for name, c := range map[string]struct {
		text string
		list func(*v1alpha1.Settings) []string
		want []string
	}{
		"system users of attribution": {
			"admission: { attribution: { workloadUser: { systemUsers: [velero] } } }",
			func(s *v1alpha1.Settings) []string { return s.Admission.Attribution.WorkloadUser.SystemUsers },
			[]string{"velero", "system:kube-controller-manager", controllers},
		},
		"no system users of attribution": {
			"admission: { attribution: { workloadUser: { systemUsers: [] } } }",
			func(s *v1alpha1.Settings) []string { return s.Admission.Attribution.WorkloadUser.SystemUsers },
			[]string{"system:kube-controller-manager", controllers},
		},
		"a default system user of attribution": {
			"admission: { attribution: { workloadUser: { systemUsers: [system:kube-controller-manager, velero] } } }",
			func(s *v1alpha1.Settings) []string { return s.Admission.Attribution.WorkloadUser.SystemUsers },
			[]string{"system:kube-controller-manager", "velero", controllers},
		},
		"users": {
			"authorization: { systemSubjects: { users: [ops] } }",
			func(s *v1alpha1.Settings) []string { return s.Authorization.SystemSubjects.Users },
			[]string{
				"ops", "system:apiserver", "system:kube-controller-manager", "system:kube-scheduler", "system:kube-proxy",
				"system:cloud-controller-manager", "system:konnectivity-server",
			},
		},
		"prefixes": {
			"authorization: { systemSubjects: { userPrefixes: [] } }",
			func(s *v1alpha1.Settings) []string { return s.Authorization.SystemSubjects.UserPrefixes },
			[]string{"system:bootstrap:"},
		},
		"groups": {
			"authorization: { systemSubjects: { groups: [ops] } }",
			func(s *v1alpha1.Settings) []string { return s.Authorization.SystemSubjects.Groups },
			[]string{"ops", "system:masters", "system:nodes", "system:monitoring", "kubeadm:cluster-admins"},
		},
		"node selector": {
			"admission: { placement: { nodeSelector: { allowed: [pool] } } }",
			func(s *v1alpha1.Settings) []string { return s.Admission.Placement.NodeSelector.Allowed },
			[]string{"pool", "kubernetes.io/os", "kubernetes.io/arch"},
		},
		"node affinity of a tenant": {
			placement + "nodeAffinity: { allowed: [pool] } } ] } }",
			func(s *v1alpha1.Settings) []string { return s.Admission.Placement.Tenants[0].NodeAffinity.Allowed },
			[]string{"pool", "kubernetes.io/os", "kubernetes.io/arch"},
		},
		"topology of a tenant": {
			placement + "topologySpread: { policy: AllowListed, allowed: [kubernetes.io/hostname, rack] } } ] } }",
			func(s *v1alpha1.Settings) []string { return s.Admission.Placement.Tenants[0].TopologySpread.Allowed },
			[]string{"kubernetes.io/hostname", "rack", "topology.kubernetes.io/zone", "topology.kubernetes.io/region"},
		},
		"a forbidden node selector": {
			"admission: { placement: { nodeSelector: { policy: Forbid } } }",
			func(s *v1alpha1.Settings) []string { return s.Admission.Placement.NodeSelector.Allowed },
			nil,
		},
		"tolerations": {
			"admission: { placement: { tolerations: { allowed: [pool] } } }",
			func(s *v1alpha1.Settings) []string { return s.Admission.Placement.Tolerations.Allowed },
			[]string{"pool"},
		},
		"labels": {
			"admission: { namespace: { allowedLabels: [example.com/a] } }",
			func(s *v1alpha1.Settings) []string { return s.Admission.Namespace.AllowedLabels },
			[]string{"example.com/a"},
		},
		"system namespaces": {
			"authorization: { systemNamespaces: [kube-system] }",
			func(s *v1alpha1.Settings) []string { return s.Authorization.SystemNamespaces },
			[]string{"kube-system"},
		},
		"paths": {
			"authorization: { unboundAllow: { paths: [/livez] } }",
			func(s *v1alpha1.Settings) []string { return s.Authorization.UnboundAllow.Paths },
			[]string{"/livez"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			decoded, err := v1alpha1.Decode([]byte(header + c.text + "\n"))
			if err != nil {
				t.Errorf("%v", err)
				return
			}
			for _, times := range []string{"once", "twice"} {
				if diff := cmp.Diff(c.want, c.list(&decoded.Settings)); diff != "" {
					t.Errorf("%s, defaulted %s: %s", name, times, diff)
				}
				v1alpha1.Default(&decoded.Settings)
			}
		})
	}
}

const controllers = "system:serviceaccount:kube-system:" +
	"(cronjob|daemon-set|deployment|job|replicaset|replication|statefulset)-controller"

// TestWarningsOfReplacedLists checks that Warnings reports the default entries that a configured
// list lacks, unless the list is empty.
func TestWarningsOfReplacedLists(t *testing.T) {
	const text = ": the list replaces the default list and does not contain its entries "
	for config, want := range map[string]string{
		"authorization: {}": "",
		"authorization: { unboundAllow: { paths: [], resources: [] }, sharedClusterResources: [], " +
			"selectableResources: [] }\nadmission: { restriction: { resources: [] } }": "",
		"authorization: { unboundAllow: { paths: [/livez, /version, /x] } }": "authorization.unboundAllow.paths" + text +
			"/healthz, /readyz, /version/, /.well-known/openid-configuration, /openid/v1/jwks",
		"authorization: { unboundAllow: { resources: [ { verb: get, resource: pods, namespace: a, name: b } ] } }": "" +
			"authorization.unboundAllow.resources" + text + "get configmaps kube-public/cluster-info",
		"authorization: { sharedClusterResources: [ { resource: nodes } ] }": "" +
			"authorization.sharedClusterResources" + text + "storageclasses.storage.k8s.io, " +
			"volumeattributesclasses.storage.k8s.io, ingressclasses.networking.k8s.io, " +
			"gatewayclasses.gateway.networking.k8s.io, runtimeclasses.node.k8s.io, priorityclasses.scheduling.k8s.io, " +
			"volumesnapshotclasses.snapshot.storage.k8s.io, deviceclasses.resource.k8s.io",
		"authorization: { selectableResources: [ { group: x.io, resource: things } ] }": "" +
			"authorization.selectableResources" + text + "pods.metrics.k8s.io",
		"admission: { restriction: { resources: [ { group: batch, resource: jobs }, { resource: nodes } ] } }": "" +
			"admission.restriction.resources" + text + "daemonsets.apps",
		"admission: { restriction: { resources: [ { group: apps, resource: daemonsets } ] } }": "" +
			"admission.restriction.resources" + text + "nodes",
		"authentication: { sources: [ { name: c, x509: { clientCAFile: ca.crt, systemOrganizations: [corp] } } ] }": "" +
			"authentication.sources[0].x509.systemOrganizations" + text + "system:masters",
		"authentication: { sources: [ { name: c, x509: { clientCAFile: ca.crt, " +
			"systemOrganizations: [system:masters] } } ] }": "",
		"admission: { attribution: { workloadUser: { systemUsers: [] } }, namespace: { allowedAnnotations: [] } }": "",
	} {
		t.Run(config, func(t *testing.T) {
			c, err := v1alpha1.Decode([]byte(header + config + "\n"))
			if err != nil {
				t.Errorf("%v", err)
				return
			}
			if got := strings.Join(c.Warnings(), "\n"); got != want {
				t.Errorf("Warnings() = %q, want %q", got, want)
			}
		})
	}
}

// TestWarningsOfTenants checks that Warnings reports each field with a tenant whose name cannot
// be the prefix of a namespace name.
func TestWarningsOfTenants(t *testing.T) {
	const (
		jwt  = "jwt: { issuer: { url: https://i, audiences: [k] }, claimMappings: { username: { claim: sub, prefix: '' } } }"
		text = " cannot create a namespace, because the name of a namespace cannot begin with "
	)
	source := func(s string) string { return "authentication: { sources: [ { name: a, " + s + " } ] }" }
	for config, want := range map[string]string{
		source("tenants: [acme, '*'], x509: { clientCAFile: c }"): "",
		source("tenants: [Default], x509: { clientCAFile: c }"):   "tenants[0]: tenant Default" + text + "Default--",
		source("tokenFile: { path: t, defaultTenant: a.b }"):      "tokenFile.defaultTenant: tenant a.b" + text,
		source("basicAuthFile: { path: t, defaultTenant: a_b }"):  "basicAuthFile.defaultTenant: tenant a_b" + text,
		source("tenants: ['*'], oidc: { " + jwt + ", tenant: { value: Default } }"): "oidc.tenant.value: tenant Default" +
			text,
		source("tenants: ['*'], webhook: { kubeConfigFile: k, match: { opaque: true }, tenant: { value: ACME } }"): "" +
			"webhook.tenant.value: tenant ACME" + text,
		source("tenants: ['*'], keystone: { authURL: 'https://k', cloud: c, cloudsFile: f, tenantMap: { D: " +
			"Default, E: e } }"): "" +
			"keystone.tenantMap[D]: tenant Default" + text,
		source("tenants: [Default], x509: { clientCAFile: c }") + "\nadmission: { namespace: { namespacePrefix: None } }": "",
	} {
		t.Run(config, func(t *testing.T) {
			c, err := v1alpha1.Decode([]byte(header + config + "\n"))
			if err != nil {
				t.Errorf("%v", err)
				return
			}
			got := c.Warnings()
			if want == "" && len(got) > 0 || want != "" && (len(got) != 1 ||
				!strings.HasPrefix(got[0], "authentication.sources[0]."+want)) {
				t.Errorf("Warnings() = %q, want %q", got, want)
			}
		})
	}
}

// TestDefaultTenant checks that Default returns the zero ID if defaultTenant is empty or invalid.
func TestDefaultTenant(t *testing.T) {
	for value, want := range map[string]string{
		"":       "",
		"acme":   "acme",
		"system": "system",
		"ALL":    "",
	} {
		t.Run(value, func(t *testing.T) {
			f := v1alpha1.CredentialFile{DefaultTenant: value}
			if got := f.Default(); got.String() != want {
				t.Errorf("Default() of %q = %q, want %q", value, got, want)
			}
		})
	}
}

func TestLoadResolvesPaths(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "tenancy.yaml")
	text := header + "authentication: { sources: [ { name: a, tokenFile: { path: t.csv } }, { name: b, tokenFile: " +
		"{ path: /abs/t.csv } } ] }\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := v1alpha1.Load(path)
	if err != nil {
		t.Fatal(err)
	}
	if got := c.Authentication.Sources[0].TokenFile.Path; got != filepath.Join(dir, "t.csv") {
		t.Errorf("relative path = %s", got)
	}
	if got := c.Authentication.Sources[1].TokenFile.Path; got != "/abs/t.csv" {
		t.Errorf("absolute path = %s", got)
	}
	if _, err := v1alpha1.Load(dir); err == nil || !strings.Contains(err.Error(), "regular file") {
		t.Errorf("Load of a directory = %v", err)
	}
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(header + "authentication: { sources: [ { name: a, tokenFile: { path: t.csv } } ] }\n"))
	f.Add([]byte(`{"apiVersion":"kubetenant.dev/v1alpha1","kind":"TenancyConfiguration"}`))
	f.Add([]byte(header + "authentication: &a { sources: *a }\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := v1alpha1.Decode(data)
		if (c == nil) == (err == nil) {
			t.Fatalf("Decode() = %v, %v; want one of them", c, err)
		}
		if err == nil && len(v1alpha1.Validate(&c.Settings, nil)) > 0 {
			t.Fatal("a decoded configuration is not valid")
		}
	})
}

func TestDecodeRevocation(t *testing.T) {
	const head = "apiVersion: kubetenant.dev/v1alpha1\nkind: Revocation\n"
	r, err := v1alpha1.DecodeRevocation([]byte(head + `certificates:
- { serial: "00:0A:bC", issuer: CN=x }
- { serial: "0", issuer: CN=x }
- { sha256: "AA:aa` + strings.Repeat("00", 30) + `" }
`))
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{"abc", "0"} {
		if got := r.Certificates[i].Serial; got != want {
			t.Errorf("serial %d = %q, want %q", i, got, want)
		}
	}
	if got := r.Certificates[2].SHA256; got != "aaaa"+strings.Repeat("00", 30) {
		t.Errorf("sha256 = %q", got)
	}
	if empty, err := v1alpha1.DecodeRevocation([]byte(head)); err != nil || len(empty.Certificates) != 0 {
		t.Errorf("an empty list = %+v, %v", empty, err)
	}
}

// FuzzDecodeRevocation checks that each certificate and token has its required fields if
// DecodeRevocation accepts the file.
func FuzzDecodeRevocation(f *testing.F) {
	const head = "apiVersion: kubetenant.dev/v1alpha1\nkind: Revocation\n"
	f.Add(head + "tokens: [ { issuer: x, id: y } ]\ntenants: [ { name: a } ]\n")
	f.Add(head + "certificates: [ { serial: \"0a\", issuer: CN=x } ]\n")
	f.Add(head + "users: [ { tenant: a, name: b } ]\nserviceAccounts: [ { uid: c } ]\n")
	f.Fuzz(func(t *testing.T, text string) {
		r, err := v1alpha1.DecodeRevocation([]byte(text))
		if (r == nil) == (err == nil) {
			t.Fatalf("DecodeRevocation() = %v, %v", r, err)
		}
		if err != nil {
			return
		}
		for _, c := range r.Certificates {
			if (c.SHA256 == "") == (c.Serial == "") || c.Serial != "" && c.Issuer == "" {
				t.Errorf("certificate %+v", c)
			}
		}
		for _, x := range r.Tokens {
			if x.Issuer == "" || x.ID == "" && x.Subject == "" && x.IssuedBefore == nil {
				t.Errorf("token %+v", x)
			}
		}
	})
}
