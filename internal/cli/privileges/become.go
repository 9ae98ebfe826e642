// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package privileges

import (
	"context"
	"slices"
	"strings"

	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/kubetenant/kubetenant/tenant"
)

// Path is a way to act as another identity, such as impersonation.
type Path struct {
	// Name describes the path for the user.
	Name string
	// All contains the actions of the path. A subject can use the path only if it may perform all
	// of them.
	All []Action
}

// workloads returns the built-in resources whose Pods run as a service account of their namespace.
func workloads() map[string][]string {
	return map[string][]string{
		"":      {"pods", "replicationcontrollers"},
		"apps":  {"daemonsets", "deployments", "replicasets", "statefulsets"},
		"batch": {"cronjobs", "jobs"},
	}
}

// PathsTo returns the ways to act as a user: impersonation, a credential of the user, and the
// right to bind or escalate the user's roles. For a service account, it includes the ways that
// need access to the namespace of the account.
func PathsTo(name string) []Path {
	paths := pathsToUser(name)
	if namespace, account, err := serviceaccount.SplitUsername(name); err == nil {
		paths = pathsToAccount(namespace, account) // the server rejects a certificate with this name
	}
	return append(paths,
		path("bind its roles", on("bind", rbacGroup, "clusterroles", "")),
		path("escalate its roles", on("escalate", rbacGroup, "clusterroles", "")))
}

const rbacGroup = "rbac.authorization.k8s.io"

func path(text string, needs ...Action) Path { return Path{text, needs} }

// on returns an action with a verb on a resource in a namespace. full may contain a subresource.
func on(verb, group, full, namespace string) Action {
	resource, subresource, _ := strings.Cut(full, "/")
	return Action{AttributesRecord: authorizer.AttributesRecord{
		ResourceRequest: true,
		APIVersion:      "*",
		Verb:            verb,
		APIGroup:        group,
		Resource:        resource,
		Subresource:     subresource,
		Namespace:       namespace,
	}}
}

// withName limits an action to the object with the given name.
func (q Action) withName(name string) Action {
	q.Name = name
	return q
}

func pathsToAccount(namespace, account string) []Path {
	paths := []Path{
		path("impersonate", on("impersonate", "", "serviceaccounts", namespace).withName(account)),
		path("impersonate (constrained)",
			on("impersonate:serviceaccount", "authentication.k8s.io", "serviceaccounts", namespace).withName(account)),
		path("request a token for it", on("create", "", "serviceaccounts/token", namespace).withName(account)),
		path("create and read a token Secret for it", on("create", "", "secrets", namespace),
			on("get", "", "secrets", namespace)),
	}
	each := func(text string, verbs []string, group, full, namespace string) {
		for _, verb := range verbs {
			paths = append(paths, path(text, on(verb, group, full, namespace)))
		}
	}
	each("read its token Secret, if one exists", []string{"get", "list", "watch"}, "", "secrets", namespace)
	for _, verb := range []string{"create", "get"} {
		each("exec into its pods", []string{verb}, "", "pods/exec", namespace)
		each("attach to its pods", []string{verb}, "", "pods/attach", namespace)
		each("reach its pods through the kubelet", []string{verb}, "", "nodes/proxy", "")
	}
	each("debug its pods", []string{"patch", "update"}, "", "pods/ephemeralcontainers", namespace)
	for group, resources := range workloads() {
		for _, resource := range resources {
			each("run a pod as it", []string{"create", "update", "patch"}, group, resource, namespace)
		}
	}
	each("bind its roles", []string{"bind"}, rbacGroup, "roles", namespace)
	each("bind its roles", []string{"bind"}, rbacGroup, "clusterroles", namespace)
	each("escalate its roles", []string{"escalate"}, rbacGroup, "roles", namespace)
	return paths
}

func pathsToUser(name string) []Path {
	const group = certificatesv1.GroupName
	signer := func(verb string) Action {
		return on(verb, group, "signers", "").withName(certificatesv1.KubeAPIServerClientSignerName)
	}
	paths := []Path{
		path("impersonate", on("impersonate", "", "users", "").withName(name)),
		path("impersonate (constrained)", on("impersonate:user-info", "authentication.k8s.io", "users", "").withName(name)),
	}
	for _, verb := range []string{"update", "patch"} {
		paths = append(paths,
			path("approve a certificate for it", on(verb, group, "certificatesigningrequests/approval", ""), signer("approve")))
	}
	for _, verb := range []string{"update", "patch"} {
		paths = append(paths,
			path("sign a certificate for it", on(verb, group, "certificatesigningrequests/status", ""), signer("sign")))
	}
	return paths
}

// Actions returns the actions of all paths.
func Actions(paths []Path) []Action {
	var all []Action
	for _, path := range paths {
		all = append(all, path.All...)
	}
	return all
}

// WhoCanBecome returns the subjects that can use at least one of the paths. owner is the tenant of
// the target identity, or the zero ID if its tenant is unknown.
func (b *Boundary) WhoCanBecome(ctx context.Context, paths []Path, owner tenant.ID) []Answer {
	var all []Answer
	for _, path := range paths {
		answers := b.WhoCan(ctx, &path.All[0])
		for _, further := range path.All[1:] {
			others := b.WhoCan(ctx, &further)
			answers = slices.DeleteFunc(answers, func(a Answer) bool {
				return !slices.ContainsFunc(others, func(o Answer) bool { return o.Kind == a.Kind && o.Name == a.Name })
			})
		}
		for _, a := range answers {
			a.Path = path.Name
			if q := path.All[0]; strings.HasPrefix(path.Name, "run a pod") {
				a.Path += " (" + strings.TrimSuffix(q.Resource+"."+q.APIGroup, ".") + ")"
			}
			system := tenant.System().String()
			isOther := func(t string) bool { return t != owner.String() && t != AnyTenant }
			a.Across = !owner.IsZero() &&
				slices.ContainsFunc(a.Tenants, func(t string) bool { return isOther(t) && t != system })
			a.SystemOnly = !owner.IsZero() && !a.Across && isOther(system) && slices.Contains(a.Tenants, system)
			all = append(all, a)
		}
	}
	slices.SortFunc(all, func(a, b Answer) int {
		if a.Across != b.Across { // list paths between tenants first
			return map[bool]int{true: -1, false: 1}[a.Across]
		}
		return compareAnswers(a, b)
	})
	return slices.CompactFunc(all, func(a, b Answer) bool {
		return compareAnswers(a, b) == 0 && slices.Equal(a.Tenants, b.Tenants) && a.Only == b.Only
	})
}
