// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package managed_test

import (
	"fmt"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/kubetenant/kubetenant/plugins/managed"
)

// TestPublishedRoles checks that the author of a published Role or RoleBinding must have its rules
// in the whole cluster, or must be allowed to escalate or bind the role.
func TestPublishedRoles(t *testing.T) {
	rule := func(groups, resources, names, verbs []string, urls ...string) rbacv1.PolicyRule {
		return rbacv1.PolicyRule{
			APIGroups:       groups,
			Resources:       resources,
			ResourceNames:   names,
			Verbs:           verbs,
			NonResourceURLs: urls,
		}
	}
	core, all := []string{""}, []string{"*"}
	large := func(resources []string) rbacv1.PolicyRule { return rule(core, resources, nil, all) }
	many := make([]string, 2000)
	for i := range many {
		many[i] = fmt.Sprint("r", i)
	}
	two := []string{"get", "list"}
	cluster := &rbacv1.RoleRef{Kind: "ClusterRole", Name: "edit"}
	local := &rbacv1.RoleRef{Kind: "Role", Name: "edit"}
	base := func(resource string) []string {
		return []string{"get " + resource + " platform x", "create " + resource, "update " + resource}
	}
	for name, c := range map[string]struct {
		of     managed.Content
		rights []string
		ok     bool
		most   int
	}{
		"no rules": {ok: true},
		"a rule of the author": {
			of:     managed.Content{Rules: []rbacv1.PolicyRule{rule(core, []string{"pods"}, nil, two)}},
			rights: []string{"get pods", "list pods"},
			ok:     true,
		},
		"one verb is missing": {
			of:     managed.Content{Rules: []rbacv1.PolicyRule{rule(core, []string{"pods"}, nil, two)}},
			rights: []string{"get pods"},
		},
		"one resource is missing": {
			of:     managed.Content{Rules: []rbacv1.PolicyRule{rule(core, []string{"pods", "nodes"}, nil, two[:1])}},
			rights: []string{"get pods"},
		},
		"the second rule is missing": {
			of: managed.Content{
				Rules: []rbacv1.PolicyRule{rule(core, []string{"pods"}, nil, two[:1]), rule(core, []string{"nodes"}, nil, two[:1])},
			},
			rights: []string{"get pods"},
		},
		"a subresource": {
			of:     managed.Content{Rules: []rbacv1.PolicyRule{rule(core, []string{"pods/log"}, nil, two[:1])}},
			rights: []string{"get pods/log"},
			ok:     true,
		},
		"only the resource": {
			of:     managed.Content{Rules: []rbacv1.PolicyRule{rule(core, []string{"pods/log"}, nil, two[:1])}},
			rights: []string{"get pods"},
		},
		"a wildcard verb": {
			of:     managed.Content{Rules: []rbacv1.PolicyRule{rule(core, []string{"pods"}, nil, all)}},
			rights: []string{"get pods", "list pods"},
		},
		"a wildcard resource": {
			of:     managed.Content{Rules: []rbacv1.PolicyRule{rule(core, all, nil, two[:1])}},
			rights: []string{"get pods"},
		},
		"a name": {
			of:     managed.Content{Rules: []rbacv1.PolicyRule{rule(core, []string{"pods"}, []string{"p"}, two[:1])}},
			rights: []string{"get pods  p"},
			ok:     true,
		},
		"all names for one": {
			of:     managed.Content{Rules: []rbacv1.PolicyRule{rule(core, []string{"pods"}, nil, two[:1])}},
			rights: []string{"get pods  p"},
		},
		"a path": {
			of:     managed.Content{Rules: []rbacv1.PolicyRule{rule(nil, nil, nil, two[:1], "/metrics")}},
			rights: []string{"get /metrics"},
			ok:     true,
		},
		"a path is missing": {
			of:     managed.Content{Rules: []rbacv1.PolicyRule{rule(nil, nil, nil, two[:1], "/metrics", "/x")}},
			rights: []string{"get /metrics"},
		},
		"escalate": {
			of:     managed.Content{Rules: []rbacv1.PolicyRule{rule(all, all, nil, all)}},
			rights: []string{"escalate roles"},
			ok:     true,
		},
		"bind does not allow a Role": {
			of:     managed.Content{Rules: []rbacv1.PolicyRule{rule(all, all, nil, all)}},
			rights: []string{"bind roles  edit"},
		},
		"too many rules": {of: managed.Content{Rules: []rbacv1.PolicyRule{rule(core, many, nil, all)}}, most: 20},
		"too many in total": {
			of:   managed.Content{Rules: []rbacv1.PolicyRule{large(many[:600]), large(many[:600])}},
			most: 20,
		},
		"far too many": {of: managed.Content{Rules: []rbacv1.PolicyRule{rule(many, many, many, many, many...)}}, most: 20},
		"too many rules with escalate": {
			of:     managed.Content{Rules: []rbacv1.PolicyRule{rule(core, many, nil, all)}},
			rights: []string{"escalate roles"},
			ok:     true,
			most:   20,
		},
		"bind": {
			of:     managed.Content{Ref: cluster, Rules: []rbacv1.PolicyRule{rule(all, all, nil, all)}},
			rights: []string{"bind clusterroles  edit"},
			ok:     true,
		},
		"bind of another role or kind": {
			of:     managed.Content{Ref: cluster, Rules: []rbacv1.PolicyRule{rule(all, all, nil, all)}},
			rights: []string{"bind clusterroles  view", "bind roles  edit"},
		},
		"bind of a Role": {
			of:     managed.Content{Ref: local, Rules: []rbacv1.PolicyRule{rule(all, all, nil, all)}},
			rights: []string{"bind roles  edit"},
			ok:     true,
		},
		"bind of a ClusterRole with the name of the Role": {
			of:     managed.Content{Ref: local, Rules: []rbacv1.PolicyRule{rule(all, all, nil, all)}},
			rights: []string{"bind clusterroles  edit"},
		},
		"escalate does not allow a RoleBinding": {
			of:     managed.Content{Ref: cluster, Rules: []rbacv1.PolicyRule{rule(all, all, nil, all)}},
			rights: []string{"escalate roles", "escalate clusterroles"},
		},
		"the rules of the role": {
			of:     managed.Content{Ref: cluster, Rules: []rbacv1.PolicyRule{rule(core, []string{"pods"}, nil, two[:1])}},
			rights: []string{"get pods"},
			ok:     true,
		},
		"a role that does not exist": {of: managed.Content{Ref: cluster, UnknownRules: true}},
		"bind of a role that does not exist": {
			of:     managed.Content{Ref: cluster, UnknownRules: true},
			rights: []string{"bind clusterroles  edit"},
			ok:     true,
		},
		"an empty role": {of: managed.Content{Ref: cluster}, ok: true},
	} {
		t.Run(name, func(t *testing.T) {
			kind, resource := "Role", "roles"
			if c.of.Ref != nil {
				kind, resource = "RoleBinding", "rolebindings"
			}
			c.of.Hash = "h"
			p := publishing{
				rights:  append(base(resource), c.rights...),
				sources: map[string]*managed.Content{"platform/x": &c.of},
			}
			obj := published(kind+" platform/x", "", nil)
			w := write{by: &user.DefaultInfo{Name: "root"}, resource: publicationsResource, obj: obj}
			err := p.plugin().Validate(t.Context(), w.attributes(), nil)
			if (err == nil) != c.ok {
				t.Errorf("%v", err)
			}
			if c.most > 0 && p.requests > c.most {
				t.Errorf("%d requests", p.requests)
			}
		})
	}
}
