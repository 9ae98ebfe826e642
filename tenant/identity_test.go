// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package tenant_test

import (
	"errors"
	"reflect"
	"testing"

	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/kubetenant/kubetenant/tenant"
)

func TestIdentity(t *testing.T) {
	id, err := tenant.Parse("a")
	if err != nil {
		t.Fatal(err)
	}
	u := &user.DefaultInfo{Name: "alice, the first", UID: "u1", Groups: []string{"dev,ops", "tenant:a"}}
	identity := tenant.IdentityOf(u, id)
	if text := identity.String(); text != `{"user":"alice, the first","uid":"u1","tenant":"a",`+
		`"groups":["dev,ops","tenant:a"]}` {
		t.Error(text)
	}
	got, err := tenant.ParseIdentity(identity.String())
	if err != nil || !reflect.DeepEqual(got, identity) {
		t.Errorf("%+v, %v", got, err)
	}
	for _, text := range []string{
		"", "null", "{}", `{"tenant":"all"}`, `{"tenant":"System"}`, `{"tenant":"a"`, `{"tenant":["a"]}`,
	} {
		if got, err := tenant.ParseIdentity(text); err == nil || !reflect.DeepEqual(got, tenant.Identity{}) {
			t.Errorf("%s: %+v, %v", text, got, err)
		}
	}
	if _, err := tenant.ParseIdentity("{}"); !errors.Is(err, tenant.ErrInvalid) {
		t.Error(err)
	}
}

// FuzzParseIdentity checks that an error comes with the zero value. It also checks that a parsed
// identity names a tenant and stays the same after it is written and parsed again.
func FuzzParseIdentity(f *testing.F) {
	f.Add(`{"user":"alice","tenant":"a","groups":["dev"]}`)
	f.Add(`{"tenant":"a"}`)
	f.Fuzz(func(t *testing.T, text string) {
		identity, err := tenant.ParseIdentity(text)
		if err != nil {
			if !reflect.DeepEqual(identity, tenant.Identity{}) {
				t.Errorf("%q: %+v with an error", text, identity)
			}
			return
		}
		if _, err := tenant.Parse(identity.Tenant); err != nil {
			t.Errorf("%q: %v", text, err)
		}
		again, err := tenant.ParseIdentity(identity.String())
		if err != nil || again.String() != identity.String() {
			t.Errorf("%q: %q, %v", text, again.String(), err)
		}
	})
}
