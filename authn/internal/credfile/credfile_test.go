// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package credfile_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubetenant/kubetenant/authn/internal/credfile"
	"github.com/kubetenant/kubetenant/tenant"
)

func rules() credfile.Rules {
	return credfile.Rules{
		Default:     tenant.System(),
		Check:       func(string, []string, tenant.ID) error { return nil },
		EmptySecret: func(int) error { return nil },
	}
}

// read returns each record in the form "secret user uid groups tenant".
func read(data string, r credfile.Rules) ([]string, error) {
	var out []string
	_, err := credfile.Read([]byte(data), r, func(rec credfile.Record) error {
		out = append(out, strings.Join([]string{
			rec.Secret, rec.Name, rec.UID, strings.Join(rec.Membership.Groups, "+"), rec.Membership.Tenant.String(),
		}, " "))
		return nil
	})
	return out, err
}

func TestReadRecords(t *testing.T) {
	got, err := read("s,u,1\ns,u,2,g\ns,u,3,\"g,h\",x\ns,u,4,,a\ns,u,5,g,,a\ns,u,6,\"\",x,,a\n,u,7\n\"s\ns\",u,8,,a\n",
		rules())
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"s u 1  system", "s u 2 g system", "s u 3 g+h system", "s u 4  a", "s u 5 g a", "s u 6  a", "s\ns u 8  a",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestReadErrorPosition(t *testing.T) {
	for name, c := range map[string]struct {
		data        string
		line, field int
	}{
		"too few fields":                     {"s,u\n", 1, -1},
		"an empty user after an empty line":  {"s,u,1\n\ns,,1\n", 3, 1},
		"an empty UID":                       {"s,u,\n", 1, 2},
		"an empty tenant, without groups":    {"s,u,1,,\n", 1, 4},
		"an empty tenant, with a group":      {"s,u,1,g,,\n", 1, 5},
		"an empty field before other fields": {"s,u,1,g,,x,,a\n", 1, 4},
		"an invalid tenant":                  {"s,u,1,g,,-\n", 1, 5},
		"a record after one with two lines":  {"\"a\nb\",u,1\ns,u\n", 3, -1},
		"text after a quoted field":          {"s,u,1\ns,\"u\"x,1\n", 2, -1},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := read(c.data, rules())
			var at *credfile.Error
			if !errors.As(err, &at) || at.Line != c.line || at.Field != c.field {
				t.Errorf("%v; want line %d, field %d", err, c.line, c.field)
			}
		})
	}
}

// TestReadCallbackErrorPosition checks that an error from the callback is reported for the
// secret field, or for the user field if the error is about the user.
func TestReadCallbackErrorPosition(t *testing.T) {
	refused := errors.New("refused")
	for err, field := range map[error]int{refused: 0, credfile.UserError(refused): 1} {
		var at *credfile.Error
		if _, got := credfile.Read([]byte("s,u,1\n"), rules(), func(credfile.Record) error { return err }); !errors.As(got,
			&at) || at.Line != 1 || at.Field != field {
			t.Errorf("%v; want line 1, field %d", got, field)
		}
	}
}

func TestReadChecksEachRecord(t *testing.T) {
	r := rules()
	refused := errors.New("refused")
	r.Check = func(name string, groups []string, id tenant.ID) error {
		if name == "u2" && groups[0] == "g" && id.String() == "a" {
			return refused
		}
		return nil
	}
	if _, err := read("s,u1,1,g,,a\ns,u2,2,g,,a\n", r); !errors.Is(err, refused) {
		t.Errorf("a check of a record with the groups and the tenant of an earlier record = %v", err)
	}
	r.Default = tenant.ID{}
	if _, err := read("s,u1,1\n", r); err == nil {
		t.Error("a record without a tenant was read, although there is no default")
	}
	r.EmptySecret = func(int) error { return refused }
	if _, err := read(",u1,1,,a\n", r); !errors.Is(err, refused) {
		t.Errorf("an empty secret = %v", err)
	}
}

func TestCount(t *testing.T) {
	accept := func(credfile.Record) error { return nil }
	count, err := credfile.Read([]byte("s,u,1\n,u,2\ns,u,3,,a\ns,u,4,,system\n"), rules(), accept)
	if want := (credfile.Count{Records: 3, System: 2}); err != nil || count != want {
		t.Errorf("Read() = %+v, %v; want %+v", count, err, want)
	}
}

// FuzzRead checks that no input causes a panic or is quoted in an error, and that every record is
// complete.
func FuzzRead(f *testing.F) {
	for _, s := range []string{
		"s,u,1\n", "s,u,1,g,,a\n", "s,u,1,\"g,h\",x,,a\n", ",u,1\n", "\"", "s,u,1,,,a", "\xff,u,1\n", "s,u,1\ns,v,2,,a\n",
		"SECRETSECRET,u,1,,\n",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, data string) {
		strict := rules()
		strict.Default = tenant.ID{}
		if _, err := credfile.Read([]byte(data), strict, func(r credfile.Record) error {
			if r.Membership.Tenant.IsSystem() && !strings.Contains(data, "system") {
				t.Fatal("a record without a tenant belongs to the system tenant")
			}
			return nil
		}); err == nil && strings.HasPrefix(data, "#") {
			t.Fatal("a file that begins with a comment was read")
		}
		_, err := credfile.Read([]byte(data), rules(), func(r credfile.Record) error {
			if r.Secret == "" || r.Name == "" || r.UID == "" || r.Membership.Tenant.IsZero() {
				t.Fatalf("incomplete record %+v", r)
			}
			for _, g := range r.Membership.Groups {
				if g == "" || strings.Contains(g, ",") {
					t.Fatalf("group %q", g)
				}
			}
			return nil
		})
		if err != nil && strings.Contains(data, "SECRETSECRET") && strings.Contains(err.Error(), "SECRETSECRET") {
			t.Fatalf("the error quotes the secret: %v", err)
		}
	})
}
