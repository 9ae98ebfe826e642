// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/kubetenant/kubetenant/internal/yamlfile"
)

// keystonePolicy is a policy of k8s-keystone-auth (cloud-provider-openstack
// pkg/identity/keystone/policy.go). Version 1 has resource, nonresource and match. Version 2 has
// users and permissions.
type keystonePolicy struct {
	Resource *struct {
		Verbs     []string `json:"verbs"`
		Resources []string `json:"resources"`
		APIGroup  *string  `json:"version"`
		Namespace *string  `json:"namespace"`
	} `json:"resource"`
	NonResource *struct {
		Verbs []string `json:"verbs"`
		Path  *string  `json:"path"`
	} `json:"nonresource"`
	Match []struct {
		Type   string   `json:"type"`
		Values []string `json:"values"`
	} `json:"match"`
	Users                  map[string][]string `json:"users"`
	ResourcePermissions    map[string][]string `json:"resource_permissions"`
	NonResourcePermissions map[string][]string `json:"nonresource_permissions"`
}

var projectID = regexp.MustCompile(`^[0-9a-f]{32}$`)

// keystoneAuth converts policies. data is a JSON list, or a ConfigMap with the JSON list in the
// key policies.
func keystoneAuth(data []byte, o Options) (*Result, error) {
	result := &Result{Files: map[string]string{}}
	list := data
	if holders, err := documents(data); err == nil && len(holders) == 1 {
		list = configMapPolicies(holders[0], result)
	}
	var policies []keystonePolicy
	var contents []map[string]any
	err := json.Unmarshal(list, &policies)
	if err == nil {
		err = json.Unmarshal(list, &contents)
	}
	if err != nil {
		return nil, fmt.Errorf("decode the list of policies: %w", err)
	}
	var objects []any
	for i := range policies {
		k := &keystone{
			result:   result,
			location: fmt.Sprintf("policy %d", i),
			name:     fmt.Sprintf("keystone-%d", i),
			prefix:   o.GroupsPrefix,
		}
		objects = append(objects, k.convert(&policies[i])...)
		k.reportUnread(contents[i])
	}
	text, err := yamlfile.Marshal(objects...)
	result.Files["rbac.yaml"] = text
	file := quoted(o.Dir, "rbac.yaml")
	result.Next = []string{
		"review " + file + " before you apply it: a ClusterRoleBinding to a user applies to the users of that name " +
			"in every tenant, including the system tenant",
		"kubectl apply -f " + file + "; the group names assume a keystone source with groupsPrefix " + o.GroupsPrefix,
		"the boundary limits cluster-wide bindings to each tenant's own namespaces, so users may have fewer rights than " +
			"before",
	}
	return result, err
}

// configMapPolicies returns the policies in a ConfigMap, and reports the other data of the
// ConfigMap.
func configMapPolicies(holder map[string]any, r *Result) []byte {
	n := newDocument("ConfigMap", holder, r)
	for _, key := range []string{"apiVersion", "kind", "metadata"} {
		n.get(key).consume()
	}
	text := n.get("data").get("policies").text()
	n.reportUnhandled(reasons{"data": "k8s-keystone-auth does not read policies from it; convert it by hand"})
	return []byte(text)
}

// keystoneFields contains the supported fields of a policy with their subfields. "*" means that any
// subfield is supported.
var keystoneFields = map[string][]string{
	"resource":                {"verbs", "resources", "version", "namespace"},
	"nonresource":             {"verbs", "path"},
	"match":                   {"type", "values"},
	"users":                   {"*"},
	"resource_permissions":    {"*"},
	"nonresource_permissions": {"*"},
}

// reportUnread reports the unsupported fields of a policy. Like k8s-keystone-auth, it ignores the
// case of field names.
func (k *keystone) reportUnread(policy map[string]any) {
	n := newDocument(k.location, policy, k.result)
	for _, key := range n.keys() {
		field := n.get(key)
		known, ok := keystoneFields[strings.ToLower(key)]
		for _, entry := range append(field.items(), field) {
			for _, name := range entry.keys() {
				if ok && (known[0] == "*" || slices.Contains(known, strings.ToLower(name))) {
					entry.get(name).consume()
				}
			}
		}
	}
	n.reportUnhandled(nil)
}

// keystone is the conversion of one policy.
type keystone struct {
	result                 *Result
	location, name, prefix string
}

func (k *keystone) convert(p *keystonePolicy) []any {
	subjects := k.subjects(p)
	if len(subjects) == 0 {
		return nil
	}
	rules := k.rules(p)
	var out []any
	for _, namespace := range slices.Sorted(maps.Keys(rules)) {
		role, binding := "ClusterRole", "ClusterRoleBinding"
		meta := metav1.ObjectMeta{Name: k.name, Namespace: namespace}
		if namespace != "" {
			role, binding = "Role", "RoleBinding"
		}
		const version = "rbac.authorization.k8s.io/v1"
		out = append(out, &rbacv1.Role{TypeMeta: typeMeta(version, role), ObjectMeta: meta, Rules: rules[namespace]},
			&rbacv1.RoleBinding{
				TypeMeta:   typeMeta(version, binding),
				ObjectMeta: meta,
				Subjects:   subjects,
				RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: role, Name: k.name},
			})
	}
	return out
}

// rules returns the rules of the policy, keyed by namespace. The key "" is for the whole
// cluster. rules rejects a policy that has fields of both versions, because k8s-keystone-auth
// ignored some of them.
func (k *keystone) rules(p *keystonePolicy) map[string][]rbacv1.PolicyRule {
	rules := map[string][]rbacv1.PolicyRule{}
	switch {
	case p.Resource != nil && p.NonResource != nil:
		k.result.reportUnconverted(k.location, "a policy with resource and nonresource never matched in k8s-keystone-auth")
		return nil
	case (p.Resource != nil || p.NonResource != nil) && len(p.ResourcePermissions)+len(p.NonResourcePermissions) > 0:
		k.result.reportUnconverted(k.location, "the policy has permissions of both versions; split it into two policies")
		return nil
	}
	k.resource(rules, p)
	k.nonResource(rules, p)
	for _, key := range slices.Sorted(maps.Keys(p.ResourcePermissions)) {
		namespace, resources, found := strings.Cut(key, "/")
		if !found || namespace == "" || strings.Contains(resources, "/") {
			k.result.reportUnconverted(
				k.location,
				"%q must be namespace/resource; for cluster-scoped resources, write a ClusterRole by "+
					"hand",
				key,
			)
			continue
		}
		k.rule(rules, namespace, lower(list(resources)), lower(p.ResourcePermissions[key]), "*")
	}
	for _, path := range slices.Sorted(maps.Keys(p.NonResourcePermissions)) {
		k.path(rules, path, p.NonResourcePermissions[path])
	}
	return rules
}

// resource adds a rule for the field resource if the policy has this field.
func (k *keystone) resource(rules map[string][]rbacv1.PolicyRule, p *keystonePolicy) {
	r := p.Resource
	if r == nil {
		return
	}
	if r.APIGroup == nil || r.Namespace == nil || *r.Namespace == "" {
		k.result.reportUnconverted(k.location, "a resource without version or namespace never matched in k8s-keystone-auth")
		return
	}
	k.rule(rules, *r.Namespace, r.Resources, r.Verbs, *r.APIGroup)
}

// nonResource adds a rule for the field nonresource if the policy has this field.
func (k *keystone) nonResource(rules map[string][]rbacv1.PolicyRule, p *keystonePolicy) {
	n := p.NonResource
	if n == nil {
		return
	}
	if n.Path == nil {
		k.result.reportUnconverted(k.location, "a nonresource without path never matched in k8s-keystone-auth")
		return
	}
	k.path(rules, *n.Path, n.Verbs)
}

// path adds a rule for a path. k8s-keystone-auth compared paths literally, but RBAC interprets a
// "*" at the end of a path as a wildcard. Therefore, path rejects a path that ends in "*".
func (k *keystone) path(rules map[string][]rbacv1.PolicyRule, path string, verbs []string) {
	if strings.HasSuffix(path, "*") {
		k.result.reportUnconverted(
			k.location,
			"the path %q would be a wildcard in RBAC, but may not have been one before; list the "+
				"paths",
			path,
		)
		return
	}
	rules[""] = append(rules[""], rbacv1.PolicyRule{Verbs: verbs, NonResourceURLs: []string{path}})
}

// rule adds a rule. It rejects a name that begins with "!", because k8s-keystone-auth excluded
// this name, which RBAC cannot express.
func (k *keystone) rule(
	rules map[string][]rbacv1.PolicyRule, namespace string, resources, verbs []string, group string,
) {
	namespaces := list(namespace)
	for _, text := range slices.Concat([]string{namespace}, namespaces, resources) {
		if strings.HasPrefix(text, "!") {
			k.result.reportUnconverted(k.location, "%q: RBAC cannot express exceptions; list the allowed names", text)
			return
		}
	}
	if len(resources) == 0 || len(verbs) == 0 {
		k.result.reportUnconverted(k.location, "a rule needs resources and verbs")
		return
	}
	for _, ns := range namespaces {
		if ns != "*" && len(validation.IsDNS1123Label(ns)) > 0 {
			k.result.reportUnconverted(k.location, "%q is not a valid namespace name", ns)
			continue
		}
		if ns == "*" {
			ns = ""
		}
		rules[ns] = append(rules[ns], rbacv1.PolicyRule{APIGroups: []string{group}, Resources: resources, Verbs: verbs})
	}
}

// list parses a name, or a list of names such as ['a', 'b'].
func list(text string) []string {
	inside, isList := strings.CutPrefix(strings.TrimSpace(text), "[")
	if !isList {
		return []string{text}
	}
	var out []string
	for part := range strings.SplitSeq(strings.TrimSuffix(inside, "]"), ",") {
		out = append(out, strings.Trim(strings.TrimSpace(part), `'"`))
	}
	return out
}

func lower(all []string) []string {
	out := make([]string, len(all))
	for i, s := range all {
		out[i] = strings.ToLower(s)
	}
	return out
}

// subjects returns the subjects of the policy, or nil if RBAC cannot express them. A policy can
// require several properties of a user at the same time, but RBAC can only bind alternatives.
// The exception is a role in a project, because the keystone source has one group for each role
// in each project.
func (k *keystone) subjects(p *keystonePolicy) []rbacv1.Subject {
	wanted := k.matchedNames(p)
	users, groups, projects, roles := wanted["user"], wanted["group"], wanted["project"], wanted["role"]
	switch {
	case wanted == nil:
		return nil
	case len(groups) > 0:
		k.result.reportUnconverted(
			k.location,
			"the groups %s: in k8s-keystone-auth, groups are project IDs, which are not groups in "+
				"kubetenant",
			strings.Join(groups, ", "),
		)
		return nil
	case slices.Contains(slices.Concat(users, projects, roles), "*"):
		k.result.reportUnconverted(k.location, "\"*\" is not supported for users, projects and roles; list the names")
		return nil
	case len(users) > 0 && len(projects)+len(roles) > 0:
		k.result.reportUnconverted(k.location, "a user together with a project or role: RBAC cannot require both")
		return nil
	case len(users) > 0 && slices.ContainsFunc(users, func(u string) bool { return strings.HasPrefix(u, "system:") }):
		k.result.reportUnconverted(k.location, "the users %s: names that start with \"system:\" are not Keystone "+
			"users", strings.Join(users, ", "))
		return nil
	case len(users) > 0:
		return subjectsNamed(rbacv1.UserKind, users)
	case len(projects) == 0:
		k.result.reportUnconverted(k.location, "a role in any project: each group is for one project; list the projects")
		return nil
	}
	if at := slices.IndexFunc(projects, projectID.MatchString); at >= 0 {
		k.result.reportUnconverted(k.location, "the project %s is given by its ID, but groups use the project name; use the "+
			"name", projects[at])
		return nil
	}
	var names []string
	for _, project := range projects {
		for _, role := range roles {
			names = append(names, k.prefix+"role:"+escape(project)+":"+escape(role))
		}
		if len(roles) == 0 {
			names = append(names, k.prefix+"project:"+escape(project))
		}
	}
	return subjectsNamed(rbacv1.GroupKind, names)
}

// matchedNames returns the names that a policy matches, keyed by type (such as user or project).
// It returns nil if RBAC cannot express the match.
func (k *keystone) matchedNames(p *keystonePolicy) map[string][]string {
	wanted := map[string][]string{}
	if len(p.Match) > 0 && len(p.Users) > 0 {
		k.result.reportUnconverted(k.location, "users and match in one policy: RBAC cannot require both")
		return nil
	}
	for _, m := range p.Match {
		if len(m.Values) == 0 {
			k.result.reportUnconverted(
				k.location,
				"a match of type %s without values never matched in k8s-keystone-auth",
				m.Type,
			)
			return nil
		}
		if _, twice := wanted[m.Type]; twice {
			k.result.reportUnconverted(k.location, "two matches of type %s: RBAC cannot require both", m.Type)
			return nil
		}
		wanted[m.Type] = m.Values
	}
	for _, key := range slices.Sorted(maps.Keys(p.Users)) {
		switch {
		case key != "roles" && key != "projects":
			k.result.reportUnconverted(k.location, "users.%s: k8s-keystone-auth only read users.roles and users.projects", key)
			return nil
		case key == "roles" && len(p.Users[key]) > 1:
			k.result.reportUnconverted(
				k.location,
				"the roles %s: all of them were required, but RBAC cannot require several roles",
				strings.Join(p.Users[key], ", "),
			)
			return nil
		}
		wanted[strings.TrimSuffix(key, "s")] = p.Users[key]
	}
	for kind := range wanted {
		if !slices.Contains([]string{"user", "group", "project", "role"}, kind) {
			k.result.reportUnconverted(k.location, "matches of type %s are not supported", kind)
			return nil
		}
	}
	return wanted
}

func subjectsNamed(kind string, names []string) (out []rbacv1.Subject) {
	for _, name := range names {
		out = append(out, rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: kind, Name: name})
	}
	return out
}

// escape escapes a name for a group in the same way as the keystone source.
func escape(name string) string { return strings.NewReplacer("%", "%25", ":", "%3A").Replace(name) }
