// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package tenant_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/kubetenant/kubetenant/tenant"
)

func TestParse(t *testing.T) {
	for _, s := range []string{
		"a", "tenantA", "A", "0", "a.b", "a-b_c.d", "system", "systems", "alls", "tenants", strings.Repeat("a", 63),
	} {
		id, err := tenant.Parse(s)
		if err != nil || id.String() != s || id.IsZero() {
			t.Errorf("Parse(%q) = %q, %v; want itself", s, id, err)
		}
		if id.IsSystem() != (s == "system") || (id == tenant.System()) != (s == "system") {
			t.Errorf("Parse(%q).IsSystem() = %v", s, id.IsSystem())
		}
	}
	for _, s := range []string{
		"", " ", "a ", " a", "a b", "-a", "a-", ".a", "a.", "_", "a:b", "a/b", "é", "а", "a\x00", "a\n",
		"all", "ALL", "aLl", "tenant", "Tenant", "TENANT", "System", "SYSTEM", "sYstem", strings.Repeat("a", 64),
	} {
		id, err := tenant.Parse(s)
		if !errors.Is(err, tenant.ErrInvalid) || !id.IsZero() {
			t.Errorf("Parse(%q) = %q, %v; want ErrInvalid", s, id, err)
		}
		if err != nil && len(s) > 6 && strings.Contains(err.Error(), s) {
			t.Errorf("Parse(%q): the error repeats the input: %v", s, err)
		}
	}
}

func TestZeroID(t *testing.T) {
	var zero tenant.ID
	if !zero.IsZero() || zero.IsSystem() || zero.String() != "" || zero.Group() != "" {
		t.Errorf("zero ID = %q, group %q; want nothing", zero, zero.Group())
	}
	if zero.UnmarshalText(nil) == nil {
		t.Error("UnmarshalText(nil) = nil; want an error")
	}
}

func TestIDAsText(t *testing.T) {
	var got struct{ Tenant tenant.ID }
	if err := json.Unmarshal([]byte(`{"Tenant":"acme"}`), &got); err != nil || got.Tenant.String() != "acme" {
		t.Errorf("Unmarshal = %v, %v", got, err)
	}
	if out, err := json.Marshal(got); err != nil || string(out) != `{"Tenant":"acme"}` {
		t.Errorf("Marshal = %s, %v", out, err)
	}
	if err := json.Unmarshal([]byte(`{"Tenant":"All"}`), &got); !errors.Is(err, tenant.ErrInvalid) {
		t.Errorf("Unmarshal of a reserved name = %v; want ErrInvalid", err)
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{
		"a", "", "system", "SYSTEM", "all", "a.b-c_d", "-", "tenant:a", strings.Repeat("x", 64), "ſystem",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		id, err := tenant.Parse(s)
		reserved := s != "system" &&
			(strings.EqualFold(s, "all") || strings.EqualFold(s, "tenant") || strings.EqualFold(s, "system"))
		valid := s != "" && !reserved && len(validation.IsValidLabelValue(s)) == 0
		if (err == nil) != valid {
			t.Fatalf("Parse(%q) = %v; valid label value and not reserved: %v", s, err, valid)
		}
		if err != nil && !id.IsZero() || err == nil && id.String() != s {
			t.Fatalf("Parse(%q) = %q, %v", s, id, err)
		}
	})
}
