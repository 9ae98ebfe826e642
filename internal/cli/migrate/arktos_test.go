// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package migrate_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubetenant/kubetenant/internal/cli/migrate"
)

// converted returns the result of converting text, which is a file of the given kind.
func converted(t *testing.T, kind, text string) *migrate.Result {
	t.Helper()
	r, err := migrate.From()[kind]([]byte(text), migrate.Options{GroupsPrefix: "keystone:"})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// same reports an error if the two values differ.
func same[T any](t *testing.T, what string, want, got T) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// conversion is an input with the expected output and the expected reports.
type conversion struct {
	text, want string
	left       []string
}

// TestArktosTokens checks that a record retains its tenant. A record without a tenant belongs to
// the system tenant. An ambiguous record is not converted.
func TestArktosTokens(t *testing.T) {
	for name, c := range map[string]conversion{
		"a tenant":                {"S1,alice,1,dev,,acme\n", "S1,alice,1,dev,,acme\n", nil},
		"a tenant, no groups":     {"S1,alice,1,,acme\n", "S1,alice,1,,acme\n", nil},
		"a tenant, empty groups":  {"S1,alice,1,,,acme\n", "S1,alice,1,,acme\n", nil},
		"no tenant":               {"S1,alice,1\n", "S1,alice,1,,system\n", nil},
		"no tenant, with groups":  {"S1,alice,1,\"dev,ops\"\n", "S1,alice,1,\"dev,ops\",,system\n", nil},
		"system tenant":           {"S1,alice,1,dev,,system\n", "S1,alice,1,dev,,system\n", nil},
		"no tenant, system group": {"S1,alice,1,system:masters\n", "S1,alice,1,system:masters,,system\n", nil},
		"fields after the groups": {
			"S1,alice,1,dev,acme\n",
			"",
			[]string{
				"line 1: fields after the groups, but no tenant; Arktos used the system tenant, but another tenant may be intended",
			},
		},
		"too few fields": {"S1,alice\n", "", []string{"line 1: 2 fields instead of at least 3"}},
		"no secret":      {",alice,1\n", "", []string{"line 1: the secret is missing; Arktos ignored the record"}},
		"no user":        {"S1,,1\n", "", []string{"line 1: the user name is missing"}},
		"no UID, four fields": {
			"S1,alice,,acme\n",
			"",
			[]string{"line 1: the UID is missing; Arktos read the next field as the tenant, but it may be a group"},
		},
		"no UID":         {"S1,alice,\n", "", []string{"line 1: the UID is missing"}},
		"invalid tenant": {"S1,alice,1,,all\n", "", []string{"line 1: tenant field: invalid tenant: reserved name"}},
		"some reserved groups": {
			"\nS1,alice,1,\"dev,system:nodes,tenant:globex,ops\",,acme\n",
			"S1,alice,1,\"dev,ops\",,acme\n",
			[]string{"line 2: the groups system:nodes, tenant:globex, which are reserved for the system tenant"},
		},
		"only reserved groups": {
			"S1,alice,1,kubeadm:cluster-admins,,acme\n",
			"S1,alice,1,,acme\n",
			[]string{"line 1: the groups kubeadm:cluster-admins, which are reserved for the system tenant"},
		},
		"ignored fields": {
			"S1,alice,1,dev,x,y,,acme\n",
			"S1,alice,1,dev,,acme\n",
			[]string{"line 1: the fields between the groups and the tenant (Arktos ignored them)"},
		},
		"duplicate token": {
			"S1,alice,1\nS2,bob,2\nS1,carol,3\n",
			"S2,bob,2,,system\nS1,carol,3,,system\n",
			[]string{"line 1: replaced by line 3, which Arktos used instead"},
		},
		"a user with two tokens": {"S1,alice,1\nS2,alice,1\n", "S1,alice,1,,system\nS2,alice,1,,system\n", nil},
	} {
		t.Run(name, func(t *testing.T) {
			r := converted(t, "arktos-tokens", c.text)
			same(t, name+": tokens.csv", c.want, r.Files["tokens.csv"])
			same(t, name+": left", c.left, r.Unconverted)
		})
	}
}

// TestArktosPasswords checks that only the last of several passwords of a user is converted.
// Users of different tenants are different users, even if they have the same name.
func TestArktosPasswords(t *testing.T) {
	r := converted(t, "arktos-passwords", "S1,alice,1,,acme\nS1,bob,2,,acme\nS2,alice,1,,globex\nS3,alice,1,dev,,acme\n")
	same(t, "passwords.csv", "S1,bob,2,,acme\nS2,alice,1,,globex\nS3,alice,1,dev,,acme\n", r.Files["passwords.csv"])
	same(t, "left", []string{"line 1: replaced by line 4, which Arktos used instead"}, r.Unconverted)
	same(t, "tenancy.yaml", `apiVersion: kubetenant.dev/v1alpha1
kind: TenancyConfiguration
authentication:
  sources:
  - { name: passwords, basicAuthFile: { path: passwords.csv, defaultTenant: "" } }
`, r.Files["tenancy.yaml"])
}

// TestArktosOmissions checks that the next steps contain the number of records without a tenant,
// which Arktos assigned to the system tenant.
func TestArktosOmissions(t *testing.T) {
	for text, want := range map[string][]string{
		"S1,alice,1,,acme\nS2,bob,2,,system\n": nil,
		"S1,alice,1\nS2,bob,2,dev\nS3,carol,3,,acme\n": {
			"check the records of tokens.csv that end with ,,system: 2 of them had no tenant in Arktos",
		},
		"S1,alice,1\nS1,alice,1,,acme\n": nil,
	} {
		t.Run(text, func(t *testing.T) {
			same(t, text, want, converted(t, "arktos-tokens", text).Next)
		})
	}
}

// TestArktosNoFile checks that the error for an invalid file contains the line number and no
// secret.
func TestArktosNoFile(t *testing.T) {
	for _, text := range []string{"S1,alice,1\n\"SECRET,bob,2\n", "S1,alice,1\nSECRET,b\"ob,2\n"} {
		_, err := migrate.From()["arktos-tokens"]([]byte(text), migrate.Options{})
		if err == nil || !strings.HasPrefix(err.Error(), "line 2: ") || strings.Contains(err.Error(), "SECRET") {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// TestArktosPolicy checks that a converted line applies only to objects of its own tenant. The
// tenant is in a field, or before the colon in the user's name. No converted line applies to
// another tenant, or to more callers than before.
func TestArktosPolicy(t *testing.T) {
	spec := func(text string) string {
		return `{"apiVersion":"abac.authorization.kubernetes.io/v1beta1","kind":"Policy","spec":{` + text + "}}\n"
	}
	everybody := []string{
		"line 1: it applied to every caller and now applies only to callers of the system tenant; for other callers, set " +
			`"tenant" and "space"`,
	}
	every := []string{
		"line 1: the line applies to every tenant; write one line for each tenant, with its own space",
	}
	for name, c := range map[string]conversion{
		"a tenant": {
			spec(`"resource":"pods","tenant":"acme","user":"bob"`),
			spec(`"resource":"pods","space":"acme","tenant":"acme","user":"bob"`),
			nil,
		},
		"a tenant in the name": {
			spec(`"resource":"pods","user":"acme:bob"`),
			spec(`"resource":"pods","space":"acme","tenant":"acme","user":"acme:bob"`),
			nil,
		},
		"a tenant in both": {
			spec(`"resource":"pods","tenant":"globex","user":"acme:bob"`),
			spec(`"resource":"pods","space":"globex","tenant":"globex","user":"acme:bob"`),
			nil,
		},
		"fields next to spec": {
			`{"apiVersion":"x","kind":"Policy","readonly":true,"spec":{"resource":"pods","tenant":"acme","user":"bob"}}`,
			spec(`"resource":"pods","space":"acme","tenant":"acme","user":"bob"`),
			[]string{`line 1: "readonly": Arktos ignored it`},
		},
		"API group in the unversioned format": {
			`{"user":"bob","tenant":"acme","apiGroup":"apps"}`,
			"",
			[]string{
				"line 1: apiGroup: Arktos ignored it in the unversioned format, so the line would apply to all API groups; use " +
					"the format with apiVersion, kind and spec",
			},
		},
		"space of another tenant": {
			spec(`"resource":"pods","space":"globex","tenant":"acme","user":"bob"`),
			spec(`"resource":"pods","space":"acme","tenant":"acme","user":"bob"`),
			[]string{"line 1: spec.space: Arktos ignored it"},
		},
		"space, no tenant": {
			spec(`"resource":"pods","space":"globex","user":"bob"`),
			spec(`"resource":"pods","user":"bob"`),
			[]string{"line 1: spec.space: Arktos ignored it"},
		},
		"system tenant in the field": {
			spec(`"resource":"pods","tenant":"system","user":"bob"`), spec(`"resource":"pods","user":"bob"`), nil,
		},
		"system prefix in the name": {
			spec(`"resource":"pods","user":"system:admin"`), spec(`"resource":"pods","user":"system:admin"`), nil,
		},
		"unversioned format": {
			`{"user":"bob","tenant":"acme","readonly":true}`,
			spec(`"apiGroup":"*","namespace":"*","readonly":true,"resource":"*","space":"acme","tenant":"acme","user":"bob"`),
			nil,
		},
		"unversioned format with a namespace": {
			`{"user":"bob","namespace":"web","resource":"pods"}`,
			spec(`"apiGroup":"*","namespace":"web","resource":"pods","user":"bob"`),
			nil,
		},
		"every user":  {spec(`"resource":"pods","user":"*"`), spec(`"resource":"pods","user":"*"`), everybody},
		"every group": {spec(`"group":"*","resource":"pods"`), spec(`"group":"*","resource":"pods"`), everybody},
		"all authenticated users": {
			spec(`"group":"system:authenticated","resource":"pods"`),
			spec(`"group":"system:authenticated","resource":"pods"`),
			everybody,
		},
		"every user of a tenant": {
			spec(`"resource":"pods","tenant":"acme","user":"*"`),
			spec(`"resource":"pods","space":"acme","tenant":"acme","user":"*"`),
			nil,
		},
		"every tenant":                               {spec(`"resource":"pods","tenant":"*","user":"bob"`), "", every},
		"every tenant in the name":                   {spec(`"resource":"pods","user":"*:bob"`), "", every},
		"every tenant in the name, one in the field": {spec(`"resource":"pods","tenant":"acme","user":"*:bob"`), "", every},
		"no user or group": {
			spec(`"resource":"pods"`), "", []string{"line 1: spec: user or group is required"},
		},
		"no object": {"# comment\n\n[]\n", "", []string{"line 3: the line is not a JSON object"}},
		"invalid tenant": {
			spec(`"resource":"pods","tenant":"a b","user":"bob"`),
			"",
			[]string{"line 1: tenant: invalid tenant: not a valid label value"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := converted(t, "arktos-policy", c.text)
			same(t, name+": policy.jsonl", c.want, r.Files["policy.jsonl"])
			same(t, name+": left", c.left, r.Unconverted)
		})
	}
}
