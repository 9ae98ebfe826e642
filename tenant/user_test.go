// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package tenant_test

import (
	"errors"
	"fmt"
	"testing"

	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/kubetenant/kubetenant/tenant"
)

func TestOf(t *testing.T) {
	for _, c := range []struct {
		name  string
		extra map[string][]string
		want  string
		err   error
	}{
		{"one value", map[string][]string{tenant.ExtraKey: {"a"}}, "a", nil},
		{"with other keys", map[string][]string{tenant.ExtraKey: {"a"}, "x": {"y"}}, "a", nil},
		{"none", nil, "", tenant.ErrUnbound},
		{"no values", map[string][]string{tenant.ExtraKey: {}}, "", tenant.ErrInvalid},
		{"empty value", map[string][]string{tenant.ExtraKey: {""}}, "", tenant.ErrInvalid},
		{"reserved value", map[string][]string{tenant.ExtraKey: {"all"}}, "", tenant.ErrInvalid},
		{"two values", map[string][]string{tenant.ExtraKey: {"a", "b"}}, "", tenant.ErrAmbiguous},
		{"one value twice", map[string][]string{tenant.ExtraKey: {"a", "a"}}, "", tenant.ErrAmbiguous},
		{"another case", map[string][]string{"Kubetenant.dev/tenant": {"a"}}, "", tenant.ErrInvalid},
		{
			"an additional key in another case",
			map[string][]string{tenant.ExtraKey: {"a"}, "kubetenant.dev/TENANT": {"a"}},
			"",
			tenant.ErrInvalid,
		},
		{
			"an additional key with case folding",
			map[string][]string{tenant.ExtraKey: {"a"}, "\u212aubetenant.dev/tenant": {"b"}},
			"",
			tenant.ErrInvalid,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			id, err := tenant.Of(&user.DefaultInfo{Name: "u", Extra: c.extra})
			if id.String() != c.want || !errors.Is(err, c.err) {
				t.Errorf("Of() = %q, %v; want %q, %v", id, err, c.want, c.err)
			}
		})
	}
	if id, err := tenant.Of(nil); !id.IsZero() || !errors.Is(err, tenant.ErrUnbound) {
		t.Errorf("Of(nil) = %q, %v; want ErrUnbound", id, err)
	}
}

func TestBind(t *testing.T) {
	a, err := tenant.Parse("a")
	if err != nil {
		t.Fatal(err)
	}
	before := &user.DefaultInfo{
		Name:   "u",
		UID:    "1",
		Groups: []string{"g"},
		Extra: map[string][]string{
			tenant.ExtraKey:         {"b", "c"},
			"KUBETENANT.DEV/TENANT": {"b"},
			"x":                     {"y"},
		},
	}
	after := tenant.Bind(before, a)
	if id, err := tenant.Of(after); err != nil || id != a {
		t.Errorf("Of(Bind()) = %q, %v; want a", id, err)
	}
	if after.Name != "u" || after.UID != "1" || after.Groups[0] != "g" || after.Extra["x"][0] != "y" {
		t.Errorf("Bind() = %+v; want the rest unchanged", after)
	}
	if _, err := tenant.Of(before); !errors.Is(err, tenant.ErrInvalid) {
		t.Errorf("Bind() changed its argument: %+v", before)
	}
	if _, err := tenant.Of(tenant.Bind(before, tenant.ID{})); !errors.Is(err, tenant.ErrUnbound) {
		t.Errorf("Bind with the zero ID = %v; want ErrUnbound", err)
	}
}

func TestSet(t *testing.T) {
	id := func(s string) tenant.ID {
		t.Helper()
		id, err := tenant.Parse(s)
		if err != nil {
			t.Fatal(err)
		}
		return id
	}
	for name, c := range map[string]struct {
		names []string
		in    []tenant.ID
		out   []tenant.ID
	}{
		"no names":    {nil, nil, []tenant.ID{id("a"), tenant.System(), {}}},
		"one tenant":  {[]string{"a"}, []tenant.ID{id("a")}, []tenant.ID{id("A"), id("b"), tenant.System(), {}}},
		"all tenants": {[]string{"*"}, []tenant.ID{id("a"), id("b")}, []tenant.ID{tenant.System(), {}}},
		"all tenants and the system tenant": {
			[]string{"*", "system"}, []tenant.ID{id("a"), tenant.System()}, []tenant.ID{{}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := tenant.ParseSet(c.names)
			if err != nil {
				t.Fatal(err)
			}
			for _, in := range c.in {
				if !s.Has(in) {
					t.Errorf("Has(%q) = false", in)
				}
			}
			for _, out := range c.out {
				if s.Has(out) {
					t.Errorf("Has(%q) = true", out)
				}
			}
		})
	}
	if _, err := tenant.ParseSet([]string{"a", "b c"}); !errors.Is(err, tenant.ErrInvalid) {
		t.Errorf("ParseSet of a bad name = %v; want ErrInvalid", err)
	}
	if (tenant.Set{}).Has(id("a")) {
		t.Error("the zero Set has a tenant")
	}
}

func TestReservedNames(t *testing.T) {
	n := &tenant.SystemNames{
		Users:         []string{"ops"},
		UserPrefixes:  []string{"infra-"},
		Groups:        []string{"root"},
		Organizations: []string{"corp"},
	}
	for name, want := range map[string]bool{
		"ops":      true,
		"infra-1":  true,
		"system:x": true,
		"system":   false,
		"alice":    false,
		"Ops":      false,
	} {
		t.Run(name, func(t *testing.T) {
			if n.ReservedUser(name) != want {
				t.Errorf("ReservedUser(%q) = %v", name, !want)
			}
		})
	}
	for name, want := range map[string]bool{
		"root":           true,
		"corp":           true,
		"system:masters": true,
		"tenant:a":       true,
		"tenant":         false,
		"dev":            false,
	} {
		t.Run(name, func(t *testing.T) {
			if n.ReservedGroup(name) != want {
				t.Errorf("ReservedGroup(%q) = %v", name, !want)
			}
		})
	}
	if n.Has(&user.DefaultInfo{Name: "x", Groups: []string{"corp"}}) {
		t.Error("an organization is treated as a group of the system tenant")
	}
	var none *tenant.SystemNames
	if !none.ReservedUser("system:x") || !none.ReservedGroup("tenant:a") || none.ReservedGroup("dev") ||
		none.Has(&user.DefaultInfo{Name: "x", Groups: []string{"g"}}) {
		t.Error("nil has a name, or does not reserve the prefixes")
	}
	if (&tenant.SystemNames{}).Has(&user.DefaultInfo{Name: "system:apiserver", Groups: []string{"system:masters"}}) {
		t.Error("the zero SystemNames has a caller")
	}
	for key, want := range map[string]bool{
		"kubetenant.dev/x":               true,
		"KUBETENANT.dev/x":               true,
		"a.k8s.io/x":                     true,
		"k8s.io":                         true,
		"authentication.kubernetes.io/x": true,
		"ak8s.io/x":                      false,
		"example.com/k8s.io":             false,
		"scope":                          false,
	} {
		t.Run(key, func(t *testing.T) {
			if tenant.IsReservedExtraKey(key) != want {
				t.Errorf("IsReservedExtraKey(%q) = %v", key, !want)
			}
		})
	}
}

func ExampleOf() {
	caller := &user.DefaultInfo{Name: "alice", Extra: map[string][]string{tenant.ExtraKey: {"acme"}}}
	id, err := tenant.Of(caller)
	fmt.Println(id, err)
	_, err = tenant.Of(&user.DefaultInfo{Name: "acme:alice"}) // a user name does not name a tenant
	fmt.Println(errors.Is(err, tenant.ErrUnbound))
	// Output:
	// acme <nil>
	// true
}

func ExampleParse() {
	id, err := tenant.Parse("acme")
	fmt.Println(id, id.Group(), err)
	_, err = tenant.Parse("SYSTEM")
	fmt.Println(err)
	// Output:
	// acme tenant:acme <nil>
	// invalid tenant: reserved name
}
