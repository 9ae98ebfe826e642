// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package migrate_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"

	"github.com/kubetenant/kubetenant/internal/cli/migrate"
)

// rules returns the roles and bindings in an RBAC file, one line for each rule and each subject.
func rules(t *testing.T, text string) (all []string) {
	t.Helper()
	for document := range strings.SplitSeq(text, "---\n") {
		var o struct {
			rbacv1.RoleBinding
			Rules []rbacv1.PolicyRule `json:"rules"`
		}
		if err := yaml.UnmarshalStrict([]byte(document), &o); err != nil {
			t.Fatal(err)
		}
		for _, r := range o.Rules {
			all = append(all, fmt.Sprintf("%s %s/%s: %v %q %v%v",
				o.Kind, o.Namespace, o.Name, r.Verbs, r.APIGroups, r.Resources, r.NonResourceURLs))
		}
		for _, s := range o.Subjects {
			all = append(all, fmt.Sprintf("%s %s/%s: %s %s to %s %s",
				o.Kind, o.Namespace, o.Name, s.Kind, s.Name, o.RoleRef.Kind, o.RoleRef.Name))
		}
	}
	return all
}

// TestKeystoneSubjects checks that a policy for users, or for roles in projects, is converted.
// Each role in a project is one group. A subject that RBAC cannot express gets no rights.
func TestKeystoneSubjects(t *testing.T) {
	for name, c := range map[string]struct {
		whom string
		want []string // Kind Name
		left string
	}{
		"a user":    {`"match":[{"type":"user","values":["alice","bob"]}]`, []string{"User alice", "User bob"}, ""},
		"a project": {`"users":{"projects":["web"]}`, []string{"Group keystone:project:web"}, ""},
		"roles in projects": {
			`"match":[{"type":"project","values":["web","db"]},{"type":"role","values":["r1","r2"]}]`,
			[]string{
				"Group keystone:role:web:r1", "Group keystone:role:web:r2", "Group keystone:role:db:r1",
				"Group keystone:role:db:r2",
			},
			"",
		},
		"names with a colon": {
			`"users":{"projects":["a:b"],"roles":["50%"]}`, []string{"Group keystone:role:a%3Ab:50%25"}, "",
		},
		"a role in any project": {
			`"users":{"roles":["member"]}`, nil, "a role in any project: each group is for one project; list the projects",
		},
		"a user and a project": {
			`"match":[{"type":"user","values":["alice"]},{"type":"project","values":["web"]}]`,
			nil,
			"a user together with a project or role: RBAC cannot require both",
		},
		"a user and a role": {
			`"match":[{"type":"user","values":["alice"]},{"type":"role","values":["member"]}]`,
			nil,
			"a user together with a project or role: RBAC cannot require both",
		},
		"groups": {
			`"match":[{"type":"group","values":["g","h"]}]`,
			nil,
			"the groups g, h: in k8s-keystone-auth, groups are project IDs, which are not groups in kubetenant",
		},
		"any role": {
			`"users":{"projects":["web"],"roles":["*"]}`, nil,
			`"*" is not supported for users, projects and roles; list the names`,
		},
		"any project": {
			`"users":{"projects":["*"]}`, nil,
			`"*" is not supported for users, projects and roles; list the names`,
		},
		"a system user": {
			`"match":[{"type":"user","values":["alice","system:admin"]}]`,
			nil,
			`the users alice, system:admin: names that start with "system:" are not Keystone users`,
		},
		"a project ID": {
			`"users":{"projects":["web","0123456789abcdef0123456789abcdef"]}`,
			nil,
			"the project 0123456789abcdef0123456789abcdef is given by its ID, but groups use the project name; use the name",
		},
		"two matches of a type": {
			`"match":[{"type":"role","values":["a"]},{"type":"role","values":["b"]}]`,
			nil,
			"two matches of type role: RBAC cannot require both",
		},
		"a match of another type": {
			`"match":[{"type":"domain","values":["a"]}]`, nil, "matches of type domain are not supported",
		},
		"another type in version 2": {
			`"users":{"projects":["web"],"domains":["a"]}`,
			nil,
			"users.domains: k8s-keystone-auth only read users.roles and users.projects",
		},
		"users in version 2": {
			`"users":{"users":["alice"]}`, nil, "users.users: k8s-keystone-auth only read users.roles and users.projects",
		},
		"a singular key": {
			`"users":{"project":["web"]}`,
			nil,
			"users.project: k8s-keystone-auth only read users.roles and users.projects",
		},
		"several roles": {
			`"users":{"projects":["web"],"roles":["a","b"]}`,
			nil,
			"the roles a, b: all of them were required, but RBAC cannot require several roles",
		},
		"a match without values": {
			`"match":[{"type":"project","values":["web"]},{"type":"role","values":[]}]`,
			nil,
			"a match of type role without values never matched in k8s-keystone-auth",
		},
		"users and match": {
			`"users":{"projects":["web"]},"match":[{"type":"role","values":["a"]}]`,
			nil,
			"users and match in one policy: RBAC cannot require both",
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := converted(t, "k8s-keystone-auth", `[{"nonresource_permissions":{"/x":["get"]},`+c.whom+"}]")
			want := []string{`ClusterRole /keystone-0: [get] [] [][/x]`}
			for _, s := range c.want {
				want = append(want, "ClusterRoleBinding /keystone-0: "+s+" to ClusterRole keystone-0")
			}
			left := []string{"policy 0: " + c.left}
			if c.left == "" {
				left = nil
			} else {
				want = nil
			}
			same(t, name, want, rules(t, r.Files["rbac.yaml"]))
			same(t, name+": left", left, r.Unconverted)
		})
	}
}

// TestKeystoneRules checks that the rights of a policy become rules of a role in each namespace or
// in the cluster. Rights that RBAC cannot express are omitted, never extended.
func TestKeystoneRules(t *testing.T) {
	const role, cluster = "Role %s/keystone-0: ", "ClusterRole /keystone-0: "
	in := func(namespace, rule string) string { return fmt.Sprintf(role, namespace) + rule }
	for name, c := range map[string]struct {
		what string
		want []string
		left []string
	}{
		"one namespace": {
			`"resource":{"verbs":["get"],"resources":["pods"],"version":"apps","namespace":"web"}`,
			[]string{in("web", `[get] ["apps"] [pods][]`)},
			nil,
		},
		"all namespaces": {
			`"resource":{"verbs":["get"],"resources":["pods"],"version":"","namespace":"*"}`,
			[]string{cluster + `[get] [""] [pods][]`},
			nil,
		},
		"some namespaces": {
			`"resource_permissions":{"['a', \"b\"]/['pods','services']":["Get"]}`,
			[]string{in("a", `[get] ["*"] [pods services][]`), in("b", `[get] ["*"] [pods services][]`)},
			nil,
		},
		"two rules": {
			`"resource_permissions":{"a/pods":["get"],"a/secrets":["list"]}`,
			[]string{in("a", `[get] ["*"] [pods][]`), in("a", `[list] ["*"] [secrets][]`)},
			nil,
		},
		"a path, version 1": {
			`"nonresource":{"verbs":["get"],"path":"/healthz"}`, []string{cluster + `[get] [] [][/healthz]`}, nil,
		},
		"a path, version 2": {
			`"nonresource_permissions":{"/healthz":["get"]}`, []string{cluster + `[get] [] [][/healthz]`}, nil,
		},
		"paths that end in a star": {
			`"nonresource_permissions":{"/x/*":["get"],"*":["get"],"/y":["get"]}`,
			[]string{cluster + `[get] [] [][/y]`},
			[]string{
				`the path "*" would be a wildcard in RBAC, but may not have been one before; list the paths`,
				`the path "/x/*" would be a wildcard in RBAC, but may not have been one before; list the paths`,
			},
		},
		"upper case, version 1": {
			`"resource":{"verbs":["GET"],"resources":["Secrets"],"version":"","namespace":"web"}`,
			[]string{in("web", `[GET] [""] [Secrets][]`)},
			nil,
		},
		"fields of both versions": {
			`"resource_permissions":{"a/pods":["get"]},"nonresource":{"verbs":["get"],"path":"/x"}`,
			nil,
			[]string{"the policy has permissions of both versions; split it into two policies"},
		},
		"a subresource, version 2": {
			`"resource_permissions":{"a/pods/log":["get"]}`,
			nil,
			[]string{`"a/pods/log" must be namespace/resource; for cluster-scoped resources, write a ClusterRole by hand`},
		},
		"no path": {
			`"nonresource":{"verbs":["get"]}`, nil, []string{"a nonresource without path never matched in k8s-keystone-auth"},
		},
		"no version": {
			`"resource":{"verbs":["get"],"resources":["pods"],"namespace":"web"}`,
			nil,
			[]string{"a resource without version or namespace never matched in k8s-keystone-auth"},
		},
		"no namespace": {
			`"resource":{"verbs":["get"],"resources":["pods"],"version":""}`,
			nil,
			[]string{"a resource without version or namespace never matched in k8s-keystone-auth"},
		},
		"an empty namespace": {
			`"resource":{"verbs":["get"],"resources":["pods"],"version":"","namespace":""}`,
			nil,
			[]string{"a resource without version or namespace never matched in k8s-keystone-auth"},
		},
		"resource and nonresource": {
			`"resource":{},"nonresource":{"verbs":["get"],"path":"/x"}`,
			nil,
			[]string{"a policy with resource and nonresource never matched in k8s-keystone-auth"},
		},
		"no verbs": {`"resource_permissions":{"a/pods":[]}`, nil, []string{"a rule needs resources and verbs"}},
		"no resources": {
			`"resource":{"verbs":["get"],"version":"","namespace":"web"}`, nil, []string{"a rule needs resources and verbs"},
		},
		"excluded namespace": {
			`"resource_permissions":{"!a/pods":["get"]}`,
			nil,
			[]string{`"!a": RBAC cannot express exceptions; list the allowed names`},
		},
		"excluded namespace in a list": {
			`"resource_permissions":{"['!a','b']/pods":["get"]}`,
			nil,
			[]string{`"!a": RBAC cannot express exceptions; list the allowed names`},
		},
		"excluded resource": {
			`"resource_permissions":{"a/!pods":["get"]}`,
			nil,
			[]string{`"!pods": RBAC cannot express exceptions; list the allowed names`},
		},
		"invalid namespace": {
			`"resource_permissions":{"['A_B','b']/pods":["get"]}`,
			[]string{in("b", `[get] ["*"] [pods][]`)},
			[]string{`"A_B" is not a valid namespace name`},
		},
		"cluster-scoped resources": {
			`"resource_permissions":{"/nodes":["get"],"nodes":["get"]}`,
			nil,
			[]string{
				`"/nodes" must be namespace/resource; for cluster-scoped resources, write a ClusterRole by hand`,
				`"nodes" must be namespace/resource; for cluster-scoped resources, write a ClusterRole by hand`,
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := converted(t, "k8s-keystone-auth", `[{"users":{"projects":["web"]},`+c.what+"}]")
			same(t, name, c.want, slices.DeleteFunc(rules(t, r.Files["rbac.yaml"]), func(text string) bool {
				return strings.Contains(text, "Binding ")
			}))
			var left []string
			for _, text := range c.left {
				left = append(left, "policy 0: "+text)
			}
			same(t, name+": left", left, r.Unconverted)
		})
	}
}

// TestKeystoneUnread checks that an unsupported field is reported. Like k8s-keystone-auth, the
// conversion ignores the case of field names.
func TestKeystoneUnread(t *testing.T) {
	r := converted(t, "k8s-keystone-auth",
		`[{"USERS":{"projects":["web"]},"comment":"x","resource":{"verbs":["get"],"resources":["pods"],"version":"",`+
			`"namespace":"a","name":"b"}}]`)
	same(t, "rules",
		[]string{
			`Role a/keystone-0: [get] [""] [pods][]`, "RoleBinding a/keystone-0: Group keystone:project:web to Role keystone-0",
		}, rules(t, r.Files["rbac.yaml"]))
	const unknown = ": the field or its value is not supported; look up its effect and set it up by hand"
	same(t, "left", []string{"policy 0: comment" + unknown, "policy 0: resource.name" + unknown}, r.Unconverted)
	r = converted(t, "k8s-keystone-auth", "kind: ConfigMap\ndata: { policies: '[]', syncConfig: x }\n")
	same(
		t,
		"left",
		[]string{
			"ConfigMap: data.syncConfig: k8s-keystone-auth does not read policies from it; convert it by hand",
		},
		r.Unconverted,
	)
}

// TestKeystoneFiles checks that a JSON list and a ConfigMap with the list have the same result,
// and that the roles of each policy have their own names. The next steps contain the groups
// prefix.
func TestKeystoneFiles(t *testing.T) {
	const policies = `[{"users":{"projects":["web"]},"nonresource_permissions":{"/x":["get"]}},` +
		`{"users":{"projects":["db"]},"resource_permissions":{"a/pods":["get"]}}]`
	list := converted(t, "k8s-keystone-auth", policies)
	same(t, "ConfigMap", list, converted(t, "k8s-keystone-auth", "kind: ConfigMap\ndata:\n  policies: '"+policies+"'\n"))
	same(t, "RBAC", []string{
		"ClusterRole /keystone-0: [get] [] [][/x]",
		"ClusterRoleBinding /keystone-0: Group keystone:project:web to ClusterRole keystone-0",
		`Role a/keystone-1: [get] ["*"] [pods][]`,
		"RoleBinding a/keystone-1: Group keystone:project:db to Role keystone-1",
	}, rules(t, list.Files["rbac.yaml"]))
	if next := strings.Join(list.Next, "\n"); !strings.Contains(next, "groupsPrefix keystone:") ||
		!strings.Contains(next, "in every tenant") {
		t.Errorf("next: %s", next)
	}
	if _, err := migrate.From()["k8s-keystone-auth"]([]byte("data: {}\n"), migrate.Options{}); err == nil ||
		!strings.Contains(err.Error(), "decode the list of policies") {
		t.Errorf("no policies: %v", err)
	}
}
