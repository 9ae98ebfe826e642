// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package abac_test

import (
	"strings"
	"testing"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/kubetenant/kubetenant/authz"
	"github.com/kubetenant/kubetenant/authz/abac"
	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/tenanttest"
)

// The files abac.yaml and invalid-abac.yaml in testdata/scenarios test policy lines and their
// decisions. The tests in cmd/kube-apiserver/test/differential compare decisions with those of
// upstream.

const v1beta1 = `{"apiVersion":"abac.authorization.kubernetes.io/v1beta1","kind":"Policy","spec":`

// TestZeroPolicy checks that an empty policy allows nothing.
func TestZeroPolicy(t *testing.T) {
	for _, p := range []*abac.Policy{{}, parse(t, ""), parse(t, "# nothing\n\n")} {
		a := authorizer.AttributesRecord{User: &user.DefaultInfo{Name: "x"}, Verb: "get", Path: "/"}
		if p.Allows(tenanttest.ID(t, "a"), authz.ObjectOwner{ID: tenanttest.ID(t, "a")}, a) ||
			p.Allows(tenant.System(), authz.ObjectOwner{All: true}, a) {
			t.Error("allowed")
		}
		if resources, paths, _ := p.RulesFor(tenanttest.ID(t, "a"), authz.ObjectOwner{ID: tenanttest.ID(t, "a")},
			a.User, "ns"); len(resources)+len(paths) > 0 {
			t.Error("listed rules of an empty policy")
		}
	}
}

func parse(t testing.TB, text string) *abac.Policy {
	t.Helper()
	p, err := abac.Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestLongLines checks that the error contains the number of a line that is too long or incomplete.
func TestLongLines(t *testing.T) {
	long := v1beta1 + `{"user":"` + strings.Repeat("x", 70_000) + `","resource":"pods"}}`
	if _, err := abac.Parse([]byte("\n# x\n" + long)); err == nil || !strings.HasPrefix(err.Error(), "line 3: longer") {
		t.Errorf("error %.80v", err)
	}
	if _, err := abac.Parse([]byte(`{"user":"x"` + "\n")); err == nil || !strings.HasPrefix(err.Error(), "line 1: ") {
		t.Errorf("error %v", err)
	}
}

// TestRulesFor checks that RulesFor lists only the rules of lines that apply.
func TestRulesFor(t *testing.T) {
	p := parse(t, strings.Join([]string{
		v1beta1 +
			`{"user":"alice","tenant":"a","space":"a","apiGroup":"apps","resource":"deployments","namespace":"a--web"}}`,
		v1beta1 + `{"user":"alice","tenant":"a","space":"a","resource":"pods","namespace":"*","readonly":true}}`,
		v1beta1 + `{"user":"alice","tenant":"a","space":"a","resource":"secrets","namespace":"a--other"}}`,
		v1beta1 + `{"user":"alice","tenant":"a","space":"b","resource":"configmaps","namespace":"*"}}`,
		v1beta1 + `{"user":"alice","tenant":"a","space":"a","resource":"*","namespace":"*","readonly":true}}`,
		v1beta1 + `{"user":"alice","group":"ops","tenant":"a","space":"a","resource":"services","namespace":"*"}}`,
		v1beta1 + `{"user":"bob","tenant":"a","space":"a","resource":"events","namespace":"*"}}`,
		v1beta1 + `{"user":"alice","tenant":"a","space":"system","nonResourcePath":"/metrics","readonly":true}}`,
	}, "\n"))
	resources, paths, incomplete := p.RulesFor(tenanttest.ID(t, "a"), authz.ObjectOwner{ID: tenanttest.ID(t, "a")},
		&user.DefaultInfo{Name: "alice", Groups: []string{"dev"}}, "a--web")
	var got []string
	for _, r := range resources {
		got = append(got, r.GetResources()[0]+":"+strings.Join(r.GetVerbs(), ","))
	}
	if want := "deployments:get,list,watch,create,update,patch,delete,deletecollection " +
		"pods:get,list,watch"; strings.Join(got, " ") != want {
		t.Errorf("rules %v, want %s", got, want)
	}
	if len(paths) != 1 || !incomplete {
		t.Errorf("%d paths, incomplete %t", len(paths), incomplete)
	}
}

// FuzzParse checks that Parse returns either a policy or an error. It also checks that a policy
// never allows a caller without a tenant, impersonation, or a request for unowned objects. A line
// without a tenant must apply only to callers of the system tenant. A line without a space must
// apply only to objects of the system tenant.
func FuzzParse(f *testing.F) {
	for _, s := range []string{
		v1beta1 + `{"user":"alice","tenant":"a","space":"*","resource":"*","namespace":"*","apiGroup":"*"}}`,
		`{"user":"alice"}`, `{}`, `{"group":"*","readonly":true}`,
		v1beta1 + `{"group":"dev","nonResourcePath":"/api*"}}`, "# x\n\n" + `{"namespace":"ns"}`,
		v1beta1 + `{"user":"*","tenant":"*","space":"*","resource":"*","namespace":"*"}}`,
		"null", "[]", `{"kind":"Policy"}`, `{"user":"a","user":"b"}`, "{\"user\":\"alice\u00a0\"}",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		p, err := abac.Parse([]byte(text))
		if (p == nil) == (err == nil) {
			t.Fatalf("%v and %v", p, err)
		}
		if err != nil {
			if !strings.HasPrefix(err.Error(), "line ") {
				t.Fatalf("error %q names no line", err)
			}
			return
		}
		b := tenanttest.ID(t, "b")
		for _, a := range []authorizer.AttributesRecord{
			{
				Verb:            "get",
				Resource:        "pods",
				Namespace:       "ns",
				Name:            "p",
				ResourceRequest: true,
			},
			{Verb: "get", Path: "/metrics"},
			{
				Verb:            "impersonate",
				Resource:        "users",
				Name:            "root",
				ResourceRequest: true,
			},
			{
				Verb:            "impersonate-on:user-info:get",
				Resource:        "pods",
				Namespace:       "ns",
				ResourceRequest: true,
			},
		} {
			a.User = &user.DefaultInfo{Name: "alice", Groups: []string{"dev", user.AllAuthenticated}}
			impersonation := strings.HasPrefix(a.Verb, "impersonate")
			if p.Allows(tenant.ID{}, authz.ObjectOwner{ID: b}, a) || p.Allows(b, authz.ObjectOwner{}, a) ||
				impersonation && p.Allows(b, authz.ObjectOwner{ID: b}, a) {
				t.Fatalf("%q allows %+v", text, a)
			}
			if strings.Contains(text, `\u`) {
				continue // JSON escapes may hide the key from the checks below
			}
			if !strings.Contains(text, "tenant") && p.Allows(b, authz.ObjectOwner{ID: b}, a) ||
				!strings.Contains(text, "space") && p.Allows(tenant.System(), authz.ObjectOwner{ID: b}, a) {
				t.Fatalf("%q without a tenant or a space allows %+v", text, a)
			}
		}
	})
}
