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
		"field in a case": {header + "Authentication: {}\n", `unknown field "Authentication"`},
		"duplicate field": {header + "authentication: {}\nauthentication: {}\n", "already set in map"},
		"unknown in a list": {
			header + "authentication: { sources: [ { name: x, x509: { ca: y } } ] }\n",
			`unknown field "authentication.sources[0].x509.ca"`,
		},
		"wrong type":       {header + "authentication: { qualifyNames: maybe }\n", "cannot unmarshal string"},
		"two documents":    {header + "---\n" + header, "but has 2"},
		"another's fields": {"apiVersion: v1\nkind: Secret\ndata: {}\n", "must have apiVersion"},
		"both at once":     {header + "nonsense: 1\nadmission: { namespace: { podSecurity: loose } }\n", "podSecurity"},
		"not YAML":         {header + "\t{", "yaml"},
		"a list":           {"- a\n", "cannot unmarshal array"},
	} {
		_, err := v1alpha1.Decode([]byte(c.text))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: Decode() = %v; want %q", name, err, c.want)
		}
	}
}

// TestProblemsAreInOrder checks that a configuration is refused with the same text each time.
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
gateway: { clusters: [], limits: { perTenantRequests: -1, perTenantStreams: -1, bodyBytes: -1 } }
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

func TestDecodeReportsEveryProblem(t *testing.T) {
	_, err := v1alpha1.Decode([]byte(header + `
authentication:
  sources:
  - { name: "A", x509: {} }
  - { name: two, tenants: ["a b"], tokenFile: { path: "" } }
admission: { namespace: { podSecurity: loose } }
`))
	var all utilerrors.Aggregate
	if !errors.As(err, &all) || len(all.Errors()) != 6 {
		t.Errorf("Decode() = %v; want six problems", err)
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
	if certs.X509.OldFormat != v1alpha1.OldFormatAllow || tokens.TokenFile.DefaultTenant != nil {
		t.Errorf("defaults = %v, %v", certs.X509.OldFormat, tokens.TokenFile.DefaultTenant)
	}
	z := c.Authorization
	if len(z.SystemSubjects.Users) != 6 || len(z.SystemSubjects.Groups) != 4 || len(z.SystemNamespaces) != 4 ||
		len(z.UnboundAllow.Paths) != 7 {
		t.Errorf("defaults = %+v", z)
	}
	if z.SharedClusterResources == nil || len(z.SharedClusterResources) != 0 {
		t.Errorf("a list that is given was replaced: %v", z.SharedClusterResources)
	}
}

func TestDefaultTenant(t *testing.T) {
	empty, acme, invalid := "", "acme", "ALL"
	for name, c := range map[string]struct {
		value *string
		id    string
		isSet bool
	}{
		"unset":        {nil, "system", false},
		"none":         {&empty, "", true},
		"a tenant":     {&acme, "acme", true},
		"not a tenant": {&invalid, "", true},
	} {
		f := v1alpha1.CredentialFile{DefaultTenant: c.value}
		if id, isSet := f.Default(); id.String() != c.id || isSet != c.isSet {
			t.Errorf("%s: Default() = %q, %t; want %q, %t", name, id, isSet, c.id, c.isSet)
		}
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
		t.Errorf("Load of a folder = %v", err)
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

// FuzzDecodeRevocation: what is accepted says something definite.
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
