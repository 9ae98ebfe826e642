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

// Path is a way by which somebody may reach an identity.
type Path struct {
	// Name says how.
	Name string
	// All must be allowed to one subject, each of them.
	All []Question
}

// workloads are the built-in resources whose pods run as a service account of their namespace.
func workloads() map[string][]string {
	return map[string][]string{
		"":      {"pods", "replicationcontrollers"},
		"apps":  {"daemonsets", "deployments", "replicasets", "statefulsets"},
		"batch": {"cronjobs", "jobs"},
	}
}

// PathsTo returns the paths by which somebody may reach a user: by acting as it, by a credential of it, and
// by rules that give what it may do. A service account is reached in its namespace too.
func PathsTo(name string) []Path {
	question := func(verb, group, resource, subresource, namespace, object string) Question {
		return Question{AttributesRecord: authorizer.AttributesRecord{ResourceRequest: true, APIVersion: "*", Verb: verb, APIGroup: group, Resource: resource,
			Subresource: subresource, Namespace: namespace, Name: object}}
	}
	one := func(path, verb, group, resource, subresource, namespace, object string) Path {
		return Path{path, []Question{question(verb, group, resource, subresource, namespace, object)}}
	}
	const (
		certificates = certificatesv1.GroupName
		rbacGroup    = "rbac.authorization.k8s.io"
	)
	signer := certificatesv1.KubeAPIServerClientSignerName
	var paths []Path
	namespace, account, err := serviceaccount.SplitUsername(name)
	if err == nil {
		paths = append(paths,
			one("impersonate", "impersonate", "", "serviceaccounts", "", namespace, account),
			one("impersonate (constrained)", "impersonate:serviceaccount", "authentication.k8s.io", "serviceaccounts", "", namespace, account),
			one("a token of it", "create", "", "serviceaccounts", "token", namespace, account),
			Path{"make a token Secret of it, and read it", []Question{question("create", "", "secrets", "", namespace, ""), question("get", "", "secrets", "", namespace, "")}})
		for _, verb := range []string{"get", "list", "watch"} {
			paths = append(paths, one("read a token Secret of it, if there is one", verb, "", "secrets", "", namespace, ""))
		}
		for _, verb := range []string{"create", "get"} {
			paths = append(paths,
				one("exec into its pods", verb, "", "pods", "exec", namespace, ""),
				one("attach to its pods", verb, "", "pods", "attach", namespace, ""),
				one("through the kubelet of its pods", verb, "", "nodes", "proxy", "", ""))
		}
		for _, verb := range []string{"patch", "update"} {
			paths = append(paths, one("debug its pods", verb, "", "pods", "ephemeralcontainers", namespace, ""))
		}
		for group, resources := range workloads() {
			for _, resource := range resources {
				for _, verb := range []string{"create", "update", "patch"} {
					paths = append(paths, one("a pod that runs as it", verb, group, resource, "", namespace, ""))
				}
			}
		}
		paths = append(paths,
			one("bind what it may do", "bind", rbacGroup, "roles", "", namespace, ""),
			one("bind what it may do", "bind", rbacGroup, "clusterroles", "", namespace, ""),
			one("widen its roles", "escalate", rbacGroup, "roles", "", namespace, ""))
	} else {
		paths = append(paths,
			one("impersonate", "impersonate", "", "users", "", "", name),
			one("impersonate (constrained)", "impersonate:user-info", "authentication.k8s.io", "users", "", "", name))
	}
	if err != nil { // a certificate with a service account's name is refused
		paths = append(paths,
			Path{"approve a certificate for it", []Question{question("update", certificates, "certificatesigningrequests", "approval", "", ""),
				question("approve", certificates, "signers", "", "", signer)}},
			Path{"approve a certificate for it", []Question{question("patch", certificates, "certificatesigningrequests", "approval", "", ""),
				question("approve", certificates, "signers", "", "", signer)}},
			Path{"sign a certificate for it", []Question{question("update", certificates, "certificatesigningrequests", "status", "", ""),
				question("sign", certificates, "signers", "", "", signer)}},
			Path{"sign a certificate for it", []Question{question("patch", certificates, "certificatesigningrequests", "status", "", ""),
				question("sign", certificates, "signers", "", "", signer)}})
	}
	return append(paths,
		one("bind what it may do", "bind", rbacGroup, "clusterroles", "", "", ""),
		one("widen its roles", "escalate", rbacGroup, "clusterroles", "", "", ""))
}

// Questions returns all that the paths ask.
func Questions(paths []Path) []Question {
	var all []Question
	for _, path := range paths {
		all = append(all, path.All...)
	}
	return all
}

// WhoCanBecome returns who may go one of the paths to an identity of a tenant; zero where it is not known.
func (p *Policy) WhoCanBecome(ctx context.Context, b *Boundary, paths []Path, owner tenant.ID) []Answer {
	var all []Answer
	for _, path := range paths {
		answers := p.WhoCan(ctx, b, &path.All[0])
		for _, further := range path.All[1:] {
			others := p.WhoCan(ctx, b, &further)
			answers = slices.DeleteFunc(answers, func(a Answer) bool {
				return !slices.ContainsFunc(others, func(o Answer) bool { return o.Kind == a.Kind && o.Name == a.Name })
			})
		}
		for _, a := range answers {
			a.Path = path.Name
			if q := path.All[0]; strings.HasPrefix(path.Name, "a pod") {
				a.Path += " (" + strings.TrimSuffix(q.Resource+"."+q.APIGroup, ".") + ")"
			}
			a.Across = !owner.IsZero() && slices.ContainsFunc(a.Tenants, func(t string) bool { return t != owner.String() && t != AnyTenant })
			all = append(all, a)
		}
	}
	slices.SortFunc(all, compareAnswers)
	return slices.CompactFunc(all, func(a, b Answer) bool {
		return compareAnswers(a, b) == 0 && slices.Equal(a.Tenants, b.Tenants) && a.Only == b.Only
	})
}
