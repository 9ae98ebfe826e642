// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package abac_test

import (
	"slices"
	"strings"
	"testing"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/kubetenant/kubetenant/authz"
	"github.com/kubetenant/kubetenant/authz/abac"
	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/tenanttest"
)

// asked is a request for objects of space. Missing fields have default values: alice of tenant a
// gets a pod in a--web.
type asked struct {
	tenant, space, user, groups string // space "*": of several tenants
	verb, resource, group       string
	namespace, subresource      string // namespace "-": none
	path                        string
}

func (q asked) line(t *testing.T, p *abac.Policy) int {
	t.Helper()
	or := func(s, other string) string {
		if s == "" {
			return other
		}
		return s
	}
	space := authz.Space{All: true}
	if id := or(q.space, "a"); id != "*" {
		space = authz.Space{}
		if id != "nobody" {
			space.ID = tenanttest.ID(t, id)
		}
	}
	var groups []string
	if q.groups != "" {
		groups = strings.Split(q.groups, ",")
	}
	a := authorizer.AttributesRecord{
		User: &user.DefaultInfo{Name: or(q.user, "alice"), Groups: groups},
		Verb: or(q.verb, "get"),
		Path: q.path,
	}
	if q.path == "" {
		a.ResourceRequest, a.APIGroup, a.Resource, a.Subresource = true, q.group, or(q.resource, "pods"), q.subresource
		if a.Namespace = or(q.namespace, "a--web"); a.Namespace == "-" {
			a.Namespace = ""
		}
	}
	id := tenant.ID{}
	if of := or(q.tenant, "a"); of != "nobody" {
		id = tenanttest.ID(t, of)
	}
	n := p.Line(id, space, a)
	if p.Allows(id, space, a) != (n > 0) {
		t.Errorf("%+v: Allows() and Line() differ", q)
	}
	return n
}

// TestLines checks which line of a file allows a request. 0 means that none does.
func TestLines(t *testing.T) {
	for _, c := range []struct {
		spec string
		want map[asked]int
	}{
		{
			`"user":"alice","tenant":"a","space":"a","resource":"pods","namespace":"a--web"`,
			map[asked]int{
				{}:                                     1,
				{verb: "delete"}:                       1,
				{user: "bob"}:                          0,
				{tenant: "b"}:                          0,
				{tenant: "nobody"}:                     0,
				{space: "b"}:                           0,
				{space: "nobody"}:                      0,
				{space: "*"}:                           0,
				{resource: "secrets"}:                  0,
				{group: "apps"}:                        0,
				{namespace: "a--db"}:                   0,
				{namespace: "-"}:                       0,
				{subresource: "exec"}:                  1,
				{verb: "impersonate"}:                  0,
				{verb: "impersonate-on:user-info:get"}: 0,
				{path: "/api"}:                         0,
				{groups: "alice"}:                      1,
				{user: "bob", groups: "alice"}:         0,
			},
		},
		{
			`"user":"alice","tenant":"a","space":"a","resource":"pods","namespace":"*"`,
			map[asked]int{
				{}:                   1,
				{namespace: "a--db"}: 1,
				{namespace: "-"}:     1,
				{namespace: "*"}:     1,
			},
		},
		{`"user":"alice","tenant":"a","space":"a","resource":"pods"`, map[asked]int{{}: 0, {namespace: "-"}: 1}},
		{
			`"user":"alice","tenant":"a","space":"a","resource":"*","apiGroup":"*","namespace":"*"`,
			map[asked]int{{}: 1, {resource: "x", group: "y", namespace: "-"}: 1, {path: "/x"}: 0},
		},
		{
			`"user":"alice","tenant":"a","space":"a","resource":"deployments","apiGroup":"apps","namespace":"*"`,
			map[asked]int{{resource: "deployments", group: "apps"}: 1, {resource: "deployments"}: 0},
		},
		{
			`"user":"alice","tenant":"a","space":"a","resource":"pods","namespace":"*","readonly":true`,
			map[asked]int{
				{}:                           1,
				{verb: "list"}:               1,
				{verb: "watch"}:              1,
				{verb: "create"}:             0,
				{verb: "delete"}:             0,
				{verb: "use"}:                0,
				{subresource: "log"}:         1,
				{subresource: "exec"}:        0,
				{subresource: "attach"}:      0,
				{subresource: "portforward"}: 0,
				{subresource: "proxy"}:       0,
			},
		},
		{
			`"user":"alice","tenant":"a","space":"b","resource":"pods","namespace":"*"`,
			map[asked]int{
				{}:                           0,
				{space: "b"}:                 1,
				{space: "*"}:                 0,
				{space: "b", namespace: "-"}: 1,
			},
		},
		{
			`"user":"alice","tenant":"a","space":"*","resource":"pods","namespace":"*"`,
			map[asked]int{
				{}:                1,
				{space: "b"}:      1,
				{space: "system"}: 1,
				{space: "*"}:      1,
				{space: "nobody"}: 0,
			},
		},
		{
			`"user":"alice","tenant":"*","space":"a","resource":"pods","namespace":"*"`,
			map[asked]int{
				{}:                 1,
				{tenant: "b"}:      1,
				{tenant: "system"}: 1,
				{tenant: "nobody"}: 0,
			},
		},
		{
			`"group":"dev","tenant":"a","space":"a","resource":"pods","namespace":"*"`,
			map[asked]int{
				{}:                           0,
				{groups: "dev"}:              1,
				{groups: "ops,dev"}:          1,
				{user: "dev"}:                0,
				{groups: "dev", tenant: "b"}: 0,
			},
		},
		{
			`"user":"alice","group":"dev","tenant":"a","space":"a","resource":"pods","namespace":"*"`,
			map[asked]int{{}: 0, {groups: "dev"}: 1, {user: "bob", groups: "dev"}: 0},
		},
		{
			`"user":"*","tenant":"a","space":"a","resource":"pods","namespace":"*"`,
			map[asked]int{{}: 0, {groups: "system:authenticated"}: 1, {user: "bob", groups: "system:authenticated"}: 1},
		},
		{
			`"group":"*","tenant":"a","space":"a","resource":"pods","namespace":"*"`,
			map[asked]int{{groups: "dev"}: 0, {groups: "system:authenticated"}: 1},
		},
		{
			`"user":"*","group":"*","tenant":"a","space":"a","resource":"pods","namespace":"*"`,
			map[asked]int{{}: 0, {groups: "system:authenticated"}: 1},
		},
		{
			`"user":"alice","tenant":"a","space":"system","nonResourcePath":"/metrics"`,
			map[asked]int{
				{path: "/metrics", space: "system"}:   1,
				{path: "/metrics/x", space: "system"}: 0,
				{path: "/metric", space: "system"}:    0,
				{path: "/metrics"}:                    0,
				{space: "system"}:                     0,
			},
		},
		{
			`"user":"alice","tenant":"a","space":"system","nonResourcePath":"/logs/*","readonly":true`,
			map[asked]int{
				{path: "/logs/x", space: "system"}:               1,
				{path: "/logs/", space: "system"}:                1,
				{path: "/logs", space: "system"}:                 0,
				{path: "/logs/x", space: "system", verb: "post"}: 0,
			},
		},
		{
			`"user":"alice","tenant":"a","space":"system","nonResourcePath":"*"`,
			map[asked]int{{path: "/x", space: "system"}: 1, {path: "/", space: "system"}: 1, {space: "system"}: 0},
		},
		{
			`"user":"alice","tenant":"a","space":"system","nonResourcePath":"/x","resource":"nodes"`,
			map[asked]int{
				{path: "/x", space: "system"}:                        1,
				{resource: "nodes", namespace: "-", space: "system"}: 1,
				{resource: "pods", namespace: "-", space: "system"}:  0,
			},
		},
		{
			`"user":"root","resource":"*","apiGroup":"*","namespace":"*"`,
			map[asked]int{
				{user: "root", tenant: "system", space: "system"}: 1,
				{user: "root", tenant: "a", space: "system"}:      0,
				{user: "root", tenant: "system"}:                  0,
			},
		},
	} {
		p := parse(t, v1beta1+"{"+c.spec+"}}")
		for q, want := range c.want {
			if got := q.line(t, p); got != want {
				t.Errorf("{%s}\n%+v: line %d, want %d", c.spec, q, got, want)
			}
		}
	}
}

// TestOldForm checks the format without a version. Missing fields match everything, as in upstream,
// but only for objects of the system tenant.
func TestOldForm(t *testing.T) {
	for _, c := range []struct {
		text string
		want map[asked]int
	}{
		{
			`{"user":"alice"}`,
			map[asked]int{
				{tenant: "system", space: "system"}:              1,
				{tenant: "system", space: "system", path: "/x"}:  1,
				{tenant: "system", space: "system", user: "bob"}: 0,
				{tenant: "a", space: "system"}:                   0,
			},
		},
		{
			`{}`,
			map[asked]int{
				{tenant: "system", space: "system"}:                                 0,
				{tenant: "system", space: "system", groups: "system:authenticated"}: 1,
			},
		},
		{
			`{"user":"alice","resource":"pods"}`,
			map[asked]int{
				{tenant: "system", space: "system", group: "apps"}:       1,
				{tenant: "system", space: "system", resource: "secrets"}: 0,
				{tenant: "system", space: "system", path: "/x"}:          0,
			},
		},
		{
			`{"user":"alice","namespace":"ns"}`,
			map[asked]int{
				{
					tenant:    "system",
					space:     "system",
					namespace: "ns",
					resource:  "x",
				}: 1,
				{tenant: "system", space: "system"}:             0,
				{tenant: "system", space: "system", path: "/x"}: 0,
			},
		},
		{
			`{"user":"alice","readonly":true,"tenant":"a","space":"a"}`,
			map[asked]int{{}: 1, {verb: "create"}: 0, {path: "/x", space: "system"}: 0},
		},
	} {
		p := parse(t, c.text)
		for q, want := range c.want {
			if got := q.line(t, p); got != want {
				t.Errorf("%s\n%+v: line %d, want %d", c.text, q, got, want)
			}
		}
	}
}

// TestWhatIsNoLine checks that a file with any of these lines is rejected, and that the error names
// the line.
func TestWhatIsNoLine(t *testing.T) {
	for _, text := range []string{
		`[]`, `"x"`, `{"user":"x"} {"user":"y"}`, `{"user":"x","user":"y"}`, `{"User":"x"}`, `{"user":"x","verbs":["get"]}`,
		`{"user":1}`,
		`{"spec":{"user":"x"}}`, `{"user":"x","apiGroup":"apps"}`, `{"user":"x","nonResourcePath":"/x"}`,
		`{"user":"x","nonResourcePath":""}`,
		`{"apiVersion":"abac.authorization.kubernetes.io/v1beta1","spec":{"user":"x","resource":"pods"}}`,
		`{"kind":"Policy","spec":{"user":"x","resource":"pods"}}`,
		`{"apiVersion":"abac.authorization.kubernetes.io/v1","kind":"Policy","spec":{"user":"x","resource":"pods"}}`,
		`{"apiVersion":"abac.authorization.kubernetes.io/v1beta1","kind":"policy","spec":{"user":"x","resource":"pods"}}`,
		`{"apiVersion":"abac.authorization.kubernetes.io/v1beta1","kind":"Policy"}`,
		`{"apiVersion":"abac.authorization.kubernetes.io/v1beta1","kind":"Policy","spec":null}`,
		`{"apiVersion":"","kind":"","user":"x"}`,
		v1beta1 + `{"resource":"pods"}}`, v1beta1 + `{"user":"x"}}`, v1beta1 + `{"user":"x","namespace":"ns"}}`,
		v1beta1 + `{"user":"*","group":"dev","resource":"pods"}}`,
		v1beta1 + `{"user":"alice","group":"*","resource":"pods"}}`,
		v1beta1 + `{"user":"x","resource":"pods","tenant":"a"}}`, v1beta1 + `{"user":"x","resource":"pods","tenant":"*"}}`,
		v1beta1 + `{"user":"x","resource":"pods","tenant":"","space":"a"}}`,
		v1beta1 + `{"user":"x","resource":"pods","tenant":"a","space":""}}`,
		v1beta1 + `{"user":"x","resource":"pods","tenant":"all","space":"a"}}`,
		v1beta1 + `{"user":"x","resource":"pods","tenant":"a","space":"System"}}`,
		v1beta1 + `{"user":"x","resource":"pods","readonly":"yes"}}`,
		v1beta1 + `{"user":"x","resource":"pods","Tenant":"a","space":"a"}}`,
	} {
		p, err := abac.Parse([]byte("# one\n" + v1beta1 + `{"user":"x","resource":"pods"}}` + "\n" + text + "\n"))
		if err == nil || p != nil || !strings.HasPrefix(err.Error(), "line 3: ") {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// TestWhoLinesAreAbout checks the line numbers that commands print to explain a decision.
func TestWhoLinesAreAbout(t *testing.T) {
	p := parse(t, strings.Join([]string{
		v1beta1 + `{"user":"alice","tenant":"a","space":"a","resource":"pods","nonResourcePath":"/x"}}`, // is about both
		"# two",
		v1beta1 + `{"group":"dev","tenant":"*","space":"a","resource":"pods"}}`,
		v1beta1 + `{"user":"alice","group":"ops","tenant":"a","space":"a","resource":"pods"}}`,
		v1beta1 + `{"user":"alice","tenant":"b","space":"a","resource":"pods"}}`,
	}, "\n"))
	a, b := tenanttest.ID(t, "a"), tenanttest.ID(t, "b")
	want := []abac.LineSubject{
		{Number: 1, User: "alice", Tenant: a},
		{Number: 3, Group: "dev"},
		{
			Number: 4,
			User:   "alice",
			Group:  "ops",
			Tenant: a,
		},
		{Number: 5, User: "alice", Tenant: b},
	}
	if got := p.Subjects(); !slices.Equal(got, want) {
		t.Errorf("Subjects() = %+v", got)
	}
	for _, c := range []struct {
		id     tenant.ID
		groups []string
		want   []int
	}{
		{a, nil, []int{1}},
		{a, []string{"ops"}, []int{1, 4}},
		{a, []string{"ops", "dev"}, []int{1, 3, 4}},
		{b, []string{"dev"}, []int{3, 5}},
		{tenant.System(), []string{"dev"}, []int{3}},
		{tenant.System(), nil, nil},
	} {
		if got := p.Of(c.id, &user.DefaultInfo{Name: "alice", Groups: c.groups}); !slices.Equal(got, c.want) {
			t.Errorf("lines about alice of %s in %v: %v, want %v", c.id, c.groups, got, c.want)
		}
	}
	if resources, paths, incomplete := p.RulesFor(tenant.ID{}, authz.Space{ID: a},
		&user.DefaultInfo{Name: "alice"}, "a--web"); len(resources)+len(paths) > 0 || !incomplete {
		t.Error("rules of nobody")
	}
	if resources, paths, incomplete := p.RulesFor(a, authz.Space{ID: a}, nil, "a--web"); len(resources)+len(paths) > 0 ||
		!incomplete {
		t.Error("rules of no user")
	}
}
