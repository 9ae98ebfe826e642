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

// lineRequest is a request for objects of owner. Missing fields have default values: alice of
// tenant a gets a pod in a--web.
type lineRequest struct {
	tenant, owner, user, groups string // owner "*": several tenants own the objects
	verb, resource, group       string
	namespace, subresource      string // namespace "-": none
	path                        string
}

func (q lineRequest) matchingLine(t *testing.T, p *abac.Policy) int {
	t.Helper()
	orDefault := func(s, other string) string {
		if s == "" {
			return other
		}
		return s
	}
	owner := authz.ObjectOwner{All: true}
	if id := orDefault(q.owner, "a"); id != "*" {
		owner = authz.ObjectOwner{}
		if id != "nobody" {
			owner.ID = tenanttest.ID(t, id)
		}
	}
	var groups []string
	if q.groups != "" {
		groups = strings.Split(q.groups, ",")
	}
	a := authorizer.AttributesRecord{
		User: &user.DefaultInfo{Name: orDefault(q.user, "alice"), Groups: groups},
		Verb: orDefault(q.verb, "get"),
		Path: q.path,
	}
	if q.path == "" {
		a.ResourceRequest, a.APIGroup, a.Resource, a.Subresource = true, q.group, orDefault(q.resource, "pods"), q.subresource
		if a.Namespace = orDefault(q.namespace, "a--web"); a.Namespace == "-" {
			a.Namespace = ""
		}
	}
	id := tenant.ID{}
	if name := orDefault(q.tenant, "a"); name != "nobody" {
		id = tenanttest.ID(t, name)
	}
	n := p.Line(id, owner, a)
	if p.Allows(id, owner, a) != (n > 0) {
		t.Errorf("%+v: Allows() and Line() differ", q)
	}
	return n
}

// TestLines checks which line of a file allows a request. The number 0 means that no line allows
// the request.
func TestLines(t *testing.T) {
	for name, c := range map[string]struct {
		spec string
		want map[lineRequest]int
	}{
		"a resource in one namespace": {
			`"user":"alice","tenant":"a","space":"a","resource":"pods","namespace":"a--web"`,
			map[lineRequest]int{
				{}:                                     1,
				{verb: "delete"}:                       1,
				{user: "bob"}:                          0,
				{tenant: "b"}:                          0,
				{tenant: "nobody"}:                     0,
				{owner: "b"}:                           0,
				{owner: "nobody"}:                      0,
				{owner: "*"}:                           0,
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
		"all namespaces": {
			`"user":"alice","tenant":"a","space":"a","resource":"pods","namespace":"*"`,
			map[lineRequest]int{
				{}:                   1,
				{namespace: "a--db"}: 1,
				{namespace: "-"}:     1,
				{namespace: "*"}:     1,
			},
		},
		"no namespace": {
			`"user":"alice","tenant":"a","space":"a","resource":"pods"`, map[lineRequest]int{{}: 0, {namespace: "-"}: 1},
		},
		"all resources": {
			`"user":"alice","tenant":"a","space":"a","resource":"*","apiGroup":"*","namespace":"*"`,
			map[lineRequest]int{{}: 1, {resource: "x", group: "y", namespace: "-"}: 1, {path: "/x"}: 0},
		},
		"a resource in an API group": {
			`"user":"alice","tenant":"a","space":"a","resource":"deployments","apiGroup":"apps","namespace":"*"`,
			map[lineRequest]int{{resource: "deployments", group: "apps"}: 1, {resource: "deployments"}: 0},
		},
		"reads only": {
			`"user":"alice","tenant":"a","space":"a","resource":"pods","namespace":"*","readonly":true`,
			map[lineRequest]int{
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
		"another tenant's space": {
			`"user":"alice","tenant":"a","space":"b","resource":"pods","namespace":"*"`,
			map[lineRequest]int{
				{}:                           0,
				{owner: "b"}:                 1,
				{owner: "*"}:                 0,
				{owner: "b", namespace: "-"}: 1,
			},
		},
		"all spaces": {
			`"user":"alice","tenant":"a","space":"*","resource":"pods","namespace":"*"`,
			map[lineRequest]int{
				{}:                1,
				{owner: "b"}:      1,
				{owner: "system"}: 1,
				{owner: "*"}:      1,
				{owner: "nobody"}: 0,
			},
		},
		"all tenants": {
			`"user":"alice","tenant":"*","space":"a","resource":"pods","namespace":"*"`,
			map[lineRequest]int{
				{}:                 1,
				{tenant: "b"}:      1,
				{tenant: "system"}: 1,
				{tenant: "nobody"}: 0,
			},
		},
		"a group": {
			`"group":"dev","tenant":"a","space":"a","resource":"pods","namespace":"*"`,
			map[lineRequest]int{
				{}:                           0,
				{groups: "dev"}:              1,
				{groups: "ops,dev"}:          1,
				{user: "dev"}:                0,
				{groups: "dev", tenant: "b"}: 0,
			},
		},
		"a user and a group": {
			`"user":"alice","group":"dev","tenant":"a","space":"a","resource":"pods","namespace":"*"`,
			map[lineRequest]int{{}: 0, {groups: "dev"}: 1, {user: "bob", groups: "dev"}: 0},
		},
		"all users": {
			`"user":"*","tenant":"a","space":"a","resource":"pods","namespace":"*"`,
			map[lineRequest]int{{}: 0, {groups: "system:authenticated"}: 1, {user: "bob", groups: "system:authenticated"}: 1},
		},
		"all groups": {
			`"group":"*","tenant":"a","space":"a","resource":"pods","namespace":"*"`,
			map[lineRequest]int{{groups: "dev"}: 0, {groups: "system:authenticated"}: 1},
		},
		"all users and groups": {
			`"user":"*","group":"*","tenant":"a","space":"a","resource":"pods","namespace":"*"`,
			map[lineRequest]int{{}: 0, {groups: "system:authenticated"}: 1},
		},
		"one path": {
			`"user":"alice","tenant":"a","space":"system","nonResourcePath":"/metrics"`,
			map[lineRequest]int{
				{path: "/metrics", owner: "system"}:   1,
				{path: "/metrics/x", owner: "system"}: 0,
				{path: "/metric", owner: "system"}:    0,
				{path: "/metrics"}:                    0,
				{owner: "system"}:                     0,
			},
		},
		"reads of a path prefix": {
			`"user":"alice","tenant":"a","space":"system","nonResourcePath":"/logs/*","readonly":true`,
			map[lineRequest]int{
				{path: "/logs/x", owner: "system"}:               1,
				{path: "/logs/", owner: "system"}:                1,
				{path: "/logs", owner: "system"}:                 0,
				{path: "/logs/x", owner: "system", verb: "post"}: 0,
			},
		},
		"all paths": {
			`"user":"alice","tenant":"a","space":"system","nonResourcePath":"*"`,
			map[lineRequest]int{{path: "/x", owner: "system"}: 1, {path: "/", owner: "system"}: 1, {owner: "system"}: 0},
		},
		"a path and a resource": {
			`"user":"alice","tenant":"a","space":"system","nonResourcePath":"/x","resource":"nodes"`,
			map[lineRequest]int{
				{path: "/x", owner: "system"}:                        1,
				{resource: "nodes", namespace: "-", owner: "system"}: 1,
				{resource: "pods", namespace: "-", owner: "system"}:  0,
			},
		},
		"no tenant and no space": {
			`"user":"root","resource":"*","apiGroup":"*","namespace":"*"`,
			map[lineRequest]int{
				{user: "root", tenant: "system", owner: "system"}: 1,
				{user: "root", tenant: "a", owner: "system"}:      0,
				{user: "root", tenant: "system"}:                  0,
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := parse(t, v1beta1+"{"+c.spec+"}}")
			for q, want := range c.want {
				if got := q.matchingLine(t, p); got != want {
					t.Errorf("%+v: line %d, want %d", q, got, want)
				}
			}
		})
	}
}

// TestUnversionedFormat checks the format without a version. A missing tenant or space is the
// system tenant. As in upstream, any other missing field matches everything.
func TestUnversionedFormat(t *testing.T) {
	for name, c := range map[string]struct {
		text string
		want map[lineRequest]int
	}{
		"a user": {
			`{"user":"alice"}`,
			map[lineRequest]int{
				{tenant: "system", owner: "system"}:              1,
				{tenant: "system", owner: "system", path: "/x"}:  1,
				{tenant: "system", owner: "system", user: "bob"}: 0,
				{tenant: "a", owner: "system"}:                   0,
			},
		},
		"no fields": {
			`{}`,
			map[lineRequest]int{
				{tenant: "system", owner: "system"}:                                 0,
				{tenant: "system", owner: "system", groups: "system:authenticated"}: 1,
			},
		},
		"a user and a resource": {
			`{"user":"alice","resource":"pods"}`,
			map[lineRequest]int{
				{tenant: "system", owner: "system", group: "apps"}:       1,
				{tenant: "system", owner: "system", resource: "secrets"}: 0,
				{tenant: "system", owner: "system", path: "/x"}:          0,
			},
		},
		"a user and a namespace": {
			`{"user":"alice","namespace":"ns"}`,
			map[lineRequest]int{
				{
					tenant:    "system",
					owner:     "system",
					namespace: "ns",
					resource:  "x",
				}: 1,
				{tenant: "system", owner: "system"}:             0,
				{tenant: "system", owner: "system", path: "/x"}: 0,
			},
		},
		"a tenant and a space": {
			`{"user":"alice","readonly":true,"tenant":"a","space":"a"}`,
			map[lineRequest]int{{}: 1, {verb: "create"}: 0, {path: "/x", owner: "system"}: 0},
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := parse(t, c.text)
			for q, want := range c.want {
				if got := q.matchingLine(t, p); got != want {
					t.Errorf("%+v: line %d, want %d", q, got, want)
				}
			}
		})
	}
}

// TestInvalidLines checks that a file with any of these lines is rejected, and that the error
// contains the number of the line.
func TestInvalidLines(t *testing.T) {
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

// TestLineSubjects checks the line numbers that commands print to explain a decision. A line for a
// resource and a path is listed once.
func TestLineSubjects(t *testing.T) {
	p := parse(t, strings.Join([]string{
		v1beta1 + `{"user":"alice","tenant":"a","space":"a","resource":"pods","nonResourcePath":"/x"}}`,
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
	for name, c := range map[string]struct {
		id     tenant.ID
		groups []string
		want   []int
	}{
		"the user without groups":          {a, nil, []int{1}},
		"a group of the user's line":       {a, []string{"ops"}, []int{1, 4}},
		"two groups":                       {a, []string{"ops", "dev"}, []int{1, 3, 4}},
		"another tenant":                   {b, []string{"dev"}, []int{3, 5}},
		"the system tenant with a group":   {tenant.System(), []string{"dev"}, []int{3}},
		"the system tenant without groups": {tenant.System(), nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			if got := p.LinesFor(c.id, &user.DefaultInfo{Name: "alice", Groups: c.groups}); !slices.Equal(got, c.want) {
				t.Errorf("lines %v, want %v", got, c.want)
			}
		})
	}
	if resources, paths, incomplete := p.RulesFor(tenant.ID{}, authz.ObjectOwner{ID: a},
		&user.DefaultInfo{Name: "alice"}, "a--web"); len(resources)+len(paths) > 0 || !incomplete {
		t.Error("listed rules for a caller without a tenant")
	}
	resources, paths, incomplete := p.RulesFor(a, authz.ObjectOwner{ID: a}, nil, "a--web")
	if len(resources)+len(paths) > 0 || !incomplete {
		t.Error("listed rules without a user")
	}
}
