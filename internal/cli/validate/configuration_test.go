// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package validate_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubetenant/kubetenant/internal/cli/validate"
)

const (
	header      = "apiVersion: kubetenant.dev/v1alpha1\nkind: TenancyConfiguration\n"
	revocations = "apiVersion: kubetenant.dev/v1alpha1\nkind: Revocation\n"
)

// TestConfiguration checks that each finding for a configuration has the position of its field, or
// of the nearest existing parent field.
func TestConfiguration(t *testing.T) {
	checkFindings(t, validate.Config, map[string]finding{
		"good": {header + "authorization: { mode: Shadow }\n", nil},
		"invalid YAML": {
			header + "a: b: c\n",
			[]string{
				"3:1: mapping values are not allowed in this context | check the indentation, and quote strings with : " +
					"or # in them",
			},
		},
		"an unknown field": {
			header + "authorization:\n  mood: red\n",
			[]string{`4:3: authorization.mood: unknown field "mood"; did you mean "mode"? | write mode`},
		},
		"unsupported value": {
			header + "authorization: { mode: Perhaps }\n",
			[]string{
				`3:18: authorization.mode: Unsupported value: "Perhaps": supported values: "Enforce", ` +
					`"Shadow" | write one of the supported values`,
			},
		},
		"list": {"- a\n", []string{"1:1: must be a map | write apiVersion, kind and the fields of the kind"}},
		"invalid quantity": {
			header + "admission:\n  quota: { default: { pods: x, secrets: 10 } }\n",
			[]string{
				"4:23: admission.quota.default.pods: must be a quantity, for example 10 or 500Mi | " +
					"write a quantity, for example 10 or 500Mi",
			},
		},
		"fraction for a whole number": {
			header + "fairUse: { inFlight: 1.5 }\n",
			[]string{"3:12: fairUse.inFlight: must be a whole number, but is a number | write a whole number"},
		},
		"too many bits": {
			header + "fairUse: { inFlight: 9999999999, watches: 99999999999999999999 }\n",
			[]string{
				"3:12: fairUse.inFlight: must be a whole number of at most 32 bits | write a whole number of at most 32 bits",
				"3:34: fairUse.watches: must be a whole number of at most 32 bits | write a whole number of at most 32 bits",
			},
		},
		"number out of range": {
			header + "fairUse: { inFlight: -4 }\n",
			[]string{
				"3:12: fairUse.inFlight: Invalid value: -4: must be between 1 and 100000 | write a value between 1 and 100000",
			},
		},
		"number for a duration": {
			header + "authorization: { mode: Shadow }\nadmission:\n  quota: { reservation: 10 }\n",
			[]string{
				"5:12: admission.quota.reservation: must be a duration, for example 30s or 1h30m | " +
					"write a duration, for example 30s or 1h30m",
			},
		},
		"missing path": {
			header +
				"authentication:\n  sources:\n  - { name: a, tokenFile: { path: t.csv } }\n  - name: b\n    tokenFile: {}\n",
			[]string{"7:5: authentication.sources[1].tokenFile.path: Required value | add path"},
		},
		"duplicate name": {
			header + "authentication:\n  sources:\n  - { name: a, tokenFile: { path: t.csv } }\n" +
				"  - { name: a, tokenFile: { path: u.csv } }\n",
			[]string{`6:7: authentication.sources[1].name: Duplicate value: "a" | write it once`},
		},
		"duplicate key": {
			header + "authorization: {}\nauthorization: {}\n",
			[]string{`4:1: authorization: the key "authorization" is already in line 3 | remove the duplicate key`},
		},
		"warning": {
			header + "admission:\n  attribution: { workloadUser: { externalUsers: [ 'a.*', 'a:' ] } }\n",
			[]string{
				"4:58: warning: admission.attribution.workloadUser.externalUsers[1]: the pattern must match the whole name, " +
					"and no name ends with a colon: append .* | ",
			},
		},
		"missing files": {
			header + "authentication:\n  sources:\n  - { name: a, tokenFile: { path: /nowhere/a.csv } }\n" +
				"  - { name: b, tokenFile: { path: /nowhere/b.csv } }\n",
			[]string{
				`5:5: authentication.sources[0]: source "a": stat /nowhere/a.csv: no such file or directory | ` +
					"create the file, or write the path of another one",
				`6:5: authentication.sources[1]: source "b": stat /nowhere/b.csv: no such file or directory | ` +
					"create the file, or write the path of another one",
			},
		},
	})
}

// TestRevocation checks the findings for an invalid Revocation.
func TestRevocation(t *testing.T) {
	checkFindings(t, validate.Revocation, map[string]finding{
		"good": {revocations + "users: [ { tenant: acme, name: eve } ]\n", nil},
		"invalid YAML": {
			revocations + "users: [\n",
			[]string{
				"3:1: did not find expected node content | check the indentation, and quote strings with : " +
					"or # in them",
			},
		},
		"an unknown field": {
			revocations + "user: []\n",
			[]string{`3:1: user: unknown field "user"; did you mean "users"? | write users`},
		},
		"invalid time": {
			revocations + "tokens: [ { issuer: 'https://a', issuedBefore: yesterday } ]\n",
			[]string{
				"3:34: tokens[0].issuedBefore: must be a time, for example 2026-01-31T12:00:00Z | " +
					"write a time, for example 2026-01-31T12:00:00Z",
			},
		},
		"system tenant": {
			revocations + "tenants:\n- { name: acme }\n- { name: system }\n",
			[]string{
				"5:5: tenants[1].name: Forbidden: the system tenant may not be revoked, because no caller could undo it | " +
					"remove it",
			},
		},
	})
}

// TestNamedFiles checks that the findings for a configuration include those for the files that it
// refers to. The configuration determines the kind and the default tenant of each file.
func TestNamedFiles(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir) // the configuration has relative paths, so the findings have them too
	for name, text := range map[string]string{
		"none.csv":      "S1,alice,1\n",
		"unset.csv":     "S8,heidi,8\n",
		"system.csv":    "S2,bob,2\n",
		"acme.csv":      "S3,system:admin,3\nS5,erin,5,,globex\n",
		"mixed.csv":     "S6,frank,6,,acme\nS7,grace,7\n",
		"passwords.csv": ",dave,4,,acme\n",
		"policy.jsonl":  `{"group":"dev","tenant":"acme"}`,
		"revoked.yaml":  revocations + "user: []\n",
		"tenancy.yaml": header + `authentication:
  revocation: { path: revoked.yaml }
  sources:
  - { name: none, tokenFile: { path: none.csv, defaultTenant: "" } }
  - { name: unset, tokenFile: { path: unset.csv } }
  - { name: system, tokenFile: { path: system.csv, defaultTenant: system } }
  - { name: acme, tokenFile: { path: acme.csv, defaultTenant: acme } }
  - { name: mixed, tokenFile: { path: mixed.csv } }
  - { name: said, tokenFile: { path: mixed.csv, defaultTenant: system } }
  - { name: passwords, basicAuthFile: { path: passwords.csv } }
authorization: { abac: { path: policy.jsonl } }
`,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod("system.csv", 0o644); err != nil { // #nosec G302 -- the test needs this mode
		t.Fatal(err)
	}
	problems, err := check(t.Context(), "tenancy.yaml", "")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, p := range problems {
		text, _, _ := strings.Cut(p.String(), "; ")
		got = append(got, text)
	}
	want := []string{
		`acme.csv:1:1: the user name "system:admin" is the system tenant's`,
		"mixed.csv:2:10: no tenant: name the tenant in the record, or set defaultTenant in the configuration",
		"mixed.csv:2:10: warning: the record names no tenant: it is the system tenant's",
		"none.csv:1:10: no tenant: name the tenant in the record, or set defaultTenant in the configuration",
		"passwords.csv:1:1: empty password",
		"policy.jsonl:1:1: space is required if tenant is set: otherwise the line would apply to the system tenant's space",
		`revoked.yaml:3:1: user: unknown field "user"`,
		"system.csv:1:1: warning: other users may read the file (mode 0644)",
		"system.csv:1:8: warning: the record names no tenant: it is the system tenant's",
		"unset.csv:1:10: no tenant: name the tenant in the record, or set defaultTenant in the configuration",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("findings (-want +got):\n%s", diff)
	}
}

// TestNamedAndMissing checks that a warning about one file does not hide an error about another
// file.
func TestNamedAndMissing(t *testing.T) {
	t.Chdir(t.TempDir())
	text := header +
		"authentication:\n  sources:\n  - { name: old, tokenFile: { path: old.csv, defaultTenant: system } }\n" +
		"  - { name: missing, tokenFile: { path: missing.csv } }\n"
	for name, text := range map[string]string{"old.csv": "S1,alice,1\n", "tenancy.yaml": text} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want := []string{
		`1:10: warning: the record names no tenant: it is the system tenant's | end it with ,,TENANT ` +
			`(,,system for the system tenant), or set defaultTenant: "" in the configuration`,
		`6:5: authentication.sources[1]: source "missing": ` +
			"stat missing.csv: no such file or directory | create the file, or write the path of another one",
	}
	if diff := cmp.Diff(want, found(t, "tenancy.yaml", "")); diff != "" {
		t.Errorf("findings (-want +got):\n%s", diff)
	}
}

// TestKinds checks that the content of a file takes precedence over its name when its kind is
// detected. An unknown kind is an error that lists the valid kinds.
func TestKinds(t *testing.T) {
	for name, c := range map[string]struct{ file, text, want string }{
		"tokens, by name":             {"file.csv", "S1,alice\n", "must have at least"},
		"tokens, by content":          {"file", "S1,alice,\n", "empty"},
		"passwords, by name":          {"PassWords.csv", ",alice,1,,acme\n", "empty password"},
		"policy, by name":             {"file.jsonl", "nonsense\n", "JSON"},
		"policy, by content":          {"file.csv", "# comment\n{\"user\":\"alice\",\"x\":1}\n", "unknown field"},
		"policy with an invalid line": {"file", "{\"user\"\n", "one whole JSON object"},
		"configuration in JSON": {
			"file", `{"kind":"TenancyConfiguration","apiVersion":"v1"}`, "write apiVersion: kubetenant.dev/v1alpha1",
		},
		"configuration in YAML": {"file", header + "x: 1\n", `unknown field "x"`},
		"revocation":            {"file.yaml", revocations + "user: []\n", "unknown field \"user\""},
		"CertificateSigningRequest": {
			"file.yaml", "apiVersion: certificates.k8s.io/v1\nkind: CertificateSigningRequest\n", "spec.signerName",
		},
		"PEM": {
			"file.csv",
			"-----BEGIN CERTIFICATE REQUEST-----\nAAAA\n-----END CERTIFICATE REQUEST-----\n",
			"is not a certificate request",
		},
		"PEM with the header NEW": {
			"file.csv",
			"-----BEGIN NEW CERTIFICATE REQUEST-----\nAAAA\n-----END NEW CERTIFICATE REQUEST-----\n",
			"is not a certificate request",
		},
		"content and name differ": {
			"file.csv", "kind: CertificateSigningRequest\n", "apiVersion: does not match the kind",
		},
	} {
		t.Run(name, func(t *testing.T) {
			if got := found(t, file(t, c.file, c.text), ""); !strings.Contains(strings.Join(got, "\n"), c.want) {
				t.Errorf("%v, want %s", got, c.want)
			}
		})
	}
	if _, err := check(t.Context(), file(t, "file", ""), "nothing"); err == nil ||
		!strings.Contains(err.Error(), strings.Join(validate.Kinds(), ", ")) {
		t.Errorf("unknown kind: %v", err)
	}
	missing := filepath.Join(t.TempDir(), "missing")
	if _, err := check(t.Context(), missing, validate.Tokens); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("missing file: %v", err)
	}
}
