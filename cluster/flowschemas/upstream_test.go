// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package flowschemas

import (
	"cmp"
	"slices"
	"strings"
	"testing"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	"k8s.io/apiserver/pkg/apis/flowcontrol/bootstrap"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/kubetenant/kubetenant/tenant/tenanttest"
)

// matcher finds the FlowSchema that matches a request, as kube-apiserver does. The package of
// kube-apiserver cannot be used, because it imports the etcd client (k8s.io/apiserver
// pkg/util/flowcontrol, rule.go and apf_controller.go, v0.37.1).
type matcher []*flowcontrolv1.FlowSchema

// newMatcher returns a matcher for the given FlowSchemas and kube-apiserver's default ones.
func newMatcher(schemas ...*flowcontrolv1.FlowSchema) matcher {
	m := matcher(append(upstream(), schemas...))
	slices.SortFunc(m, func(a, b *flowcontrolv1.FlowSchema) int {
		return cmp.Or(cmp.Compare(a.Spec.MatchingPrecedence, b.Spec.MatchingPrecedence), cmp.Compare(a.Name, b.Name))
	})
	return m
}

// upstream returns the FlowSchemas that kube-apiserver creates by default.
func upstream() []*flowcontrolv1.FlowSchema {
	return slices.Concat(bootstrap.MandatoryFlowSchemas, bootstrap.SuggestedFlowSchemas)
}

// classified contains the FlowSchema, the priority level and the flow of a request.
type classified struct{ schema, level, flow string }

func (m matcher) classify(who user.Info, r *request.RequestInfo) classified {
	for _, f := range m {
		for i := range f.Spec.Rules {
			if !matches(&f.Spec.Rules[i], who, r) {
				continue
			}
			is := classified{f.Name, f.Spec.PriorityLevelConfiguration.Name, ""}
			if d := f.Spec.DistinguisherMethod; d != nil {
				is.flow = r.Namespace
				if d.Type == flowcontrolv1.FlowDistinguisherMethodByUserType {
					is.flow = who.GetName()
				}
			}
			return is
		}
	}
	return classified{}
}

// includes reports whether a list contains an item or is ["*"].
func includes(list []string, item string) bool {
	return slices.Equal(list, []string{"*"}) || slices.Contains(list, item)
}

func matches(rule *flowcontrolv1.PolicyRulesWithSubjects, who user.Info, r *request.RequestInfo) bool {
	switch {
	case !slices.ContainsFunc(rule.Subjects, func(s flowcontrolv1.Subject) bool { return isSubject(&s, who) }):
		return false
	case !r.IsResourceRequest:
		return slices.ContainsFunc(rule.NonResourceRules, func(n flowcontrolv1.NonResourcePolicyRule) bool {
			return includes(n.Verbs, r.Verb) && includes(n.NonResourceURLs, r.Path)
		})
	}
	return slices.ContainsFunc(rule.ResourceRules, func(n flowcontrolv1.ResourcePolicyRule) bool {
		return includes(n.Verbs, r.Verb) && includes(n.Resources, r.Resource) && includes(n.APIGroups, r.APIGroup) &&
			(r.Namespace == "" && n.ClusterScope || r.Namespace != "" && includes(n.Namespaces, r.Namespace))
	})
}

func isSubject(s *flowcontrolv1.Subject, who user.Info) bool {
	switch s.Kind {
	case flowcontrolv1.SubjectKindUser:
		return s.User.Name == flowcontrolv1.NameAll || s.User.Name == who.GetName()
	case flowcontrolv1.SubjectKindGroup:
		return s.Group.Name == flowcontrolv1.NameAll || slices.Contains(who.GetGroups(), s.Group.Name)
	}
	rest, is := strings.CutPrefix(who.GetName(), "system:serviceaccount:"+s.ServiceAccount.Namespace+":")
	return is && (s.ServiceAccount.Name == flowcontrolv1.NameAll || s.ServiceAccount.Name == rest)
}

// resourceRequest returns a request for a resource. An empty namespace means the whole cluster.
func resourceRequest(verb, group, resource, namespace string) *request.RequestInfo {
	return &request.RequestInfo{
		IsResourceRequest: true,
		Verb:              verb,
		APIGroup:          group,
		APIVersion:        "v1",
		Resource:          resource,
		Namespace:         namespace,
	}
}

func caller(name string, groups ...string) user.Info {
	return &user.DefaultInfo{Name: name, Groups: append(groups, user.AllAuthenticated)}
}

func serviceAccount(namespace, name string) user.Info {
	return caller("system:serviceaccount:"+namespace+":"+name, "system:serviceaccounts",
		"system:serviceaccounts:"+namespace)
}

// TestUpstream checks that requests from system components still match kube-apiserver's default
// FlowSchemas. All requests from a tenant with spec.fairUse.level share one flow. Requests from
// other callers share one flow for each namespace.
func TestUpstream(t *testing.T) {
	m := newMatcher(namespacesSchema(), tenantSchema(tenanttest.ID(t, "acme"), Level, []string{"acme--web", "shop"}),
		tenantSchema(tenanttest.ID(t, "initech"), "kubetenant-gold", nil))
	pods, all := resourceRequest("list", "", "pods", "acme--web"), resourceRequest("list", "", "pods", "")
	lease := resourceRequest("update", "coordination.k8s.io", "leases", "kube-system")
	system := resourceRequest("list", "", "secrets", "kube-system")
	node := resourceRequest("update", "", "nodes", "")
	healthz := &request.RequestInfo{Verb: "get", Path: "/healthz"}
	version := &request.RequestInfo{Verb: "get", Path: "/version"}
	kubelet := caller("system:node:a", user.NodesGroup)
	const gold, acme = "kubetenant-gold", TenantPrefix + "acme"
	for name, c := range map[string]struct {
		who     user.Info
		request *request.RequestInfo
		want    classified
	}{
		"an administrator": {caller("root", user.SystemPrivilegedGroup), pods, classified{"exempt", "exempt", ""}},
		"an administrator with a tenant": {
			caller("root", "tenant:acme", user.SystemPrivilegedGroup), pods, classified{"exempt", "exempt", ""},
		},
		"the server itself": {
			caller(user.APIServerUser, user.SystemPrivilegedGroup),
			all,
			classified{"exempt", "exempt", ""},
		},
		"a probe":           {caller("acme", "tenant:acme"), healthz, classified{"probes", "exempt", ""}},
		"a kubelet's Node":  {kubelet, node, classified{"system-node-high", "node-high", "system:node:a"}},
		"a kubelet's Lease": {kubelet, lease, classified{"system-node-high", "node-high", "system:node:a"}},
		"a kubelet's Pods":  {kubelet, pods, classified{"system-nodes", "system", "system:node:a"}},
		"kube-controller-manager": {
			caller(user.KubeControllerManager),
			pods,
			classified{"kube-controller-manager", "workload-high", "acme--web"},
		},
		"the scheduler": {
			caller(user.KubeScheduler),
			pods,
			classified{"kube-scheduler", "workload-high", "acme--web"},
		},
		"leader election of the scheduler": {
			caller(user.KubeScheduler),
			lease,
			classified{"system-leader-election", "leader-election", user.KubeScheduler},
		},
		"a service account in kube-system": {
			serviceAccount("kube-system", "dns"),
			system,
			classified{"kube-system-service-accounts", "workload-high", "kube-system"},
		},
		"leader election in kube-system": {
			serviceAccount("kube-system", "dns"), lease,
			classified{"system-leader-election", "leader-election", "system:serviceaccount:kube-system:dns"},
		},

		"a tenant's user":                            {caller("eve", "tenant:acme"), pods, classified{acme, Level, ""}},
		"a tenant's user, all namespaces":            {caller("bob", "tenant:acme"), all, classified{acme, Level, ""}},
		"a tenant's user, non-resource":              {caller("bob", "tenant:acme"), version, classified{acme, Level, ""}},
		"a tenant's user, kube-system":               {caller("bob", "tenant:acme"), system, classified{acme, Level, ""}},
		"a tenant's service account":                 {serviceAccount("acme--web", "ci"), pods, classified{acme, Level, ""}},
		"a tenant's service account, all namespaces": {serviceAccount("shop", "ci"), all, classified{acme, Level, ""}},
		"a tenant with another level": {
			caller("eve", "tenant:initech"),
			pods,
			classified{TenantPrefix + "initech", gold, ""},
		},
		"a namespace with the same prefix": {
			serviceAccount("shop2", "ci"),
			pods,
			classified{NamespacesName, Level, "acme--web"},
		},
		"a service account of a tenant without a level": {
			serviceAccount("other", "ci"),
			pods,
			classified{NamespacesName, Level, "acme--web"},
		},
		"a user of a tenant without a level": {
			caller("eve", "tenant:other"),
			system,
			classified{NamespacesName, Level, "kube-system"},
		},

		"another service account, all namespaces": {
			serviceAccount("other", "ci"),
			all,
			classified{"service-accounts", "workload-low", "system:serviceaccount:other:ci"},
		},
		"another user, all namespaces": {caller("eve"), all, classified{"global-default", "global-default", "eve"}},
		"another user, non-resource":   {caller("eve"), version, classified{"global-default", "global-default", "eve"}},
		"an anonymous caller": {
			&user.DefaultInfo{Name: user.Anonymous, Groups: []string{user.AllUnauthenticated}}, pods,
			classified{"global-default", "global-default", user.Anonymous},
		},
	} {
		t.Run(name, func(t *testing.T) {
			if got := m.classify(c.who, c.request); got != c.want {
				t.Errorf("%+v, want %+v", got, c.want)
			}
		})
	}
}

// TestPrecedence checks that each FlowSchema of this package comes after the FlowSchemas for system
// components, and before the FlowSchemas for all callers.
func TestPrecedence(t *testing.T) {
	general := map[string]bool{"service-accounts": true, "global-default": true, "catch-all": true}
	ours := []*flowcontrolv1.FlowSchema{namespacesSchema(), tenantSchema(tenanttest.ID(t, "acme"), Level, nil)}
	if len(upstream()) < 11 {
		t.Fatalf("%d FlowSchemas", len(upstream()))
	}
	for _, f := range upstream() {
		for _, o := range ours {
			if before := f.Spec.MatchingPrecedence < o.Spec.MatchingPrecedence; before == general[f.Name] {
				t.Errorf("%s has %d, %s has %d", f.Name, f.Spec.MatchingPrecedence, o.Name, o.Spec.MatchingPrecedence)
			}
		}
	}
	if namespacesSchema().Spec.MatchingPrecedence <= tenantPrecedence {
		t.Error("the FlowSchema of namespaces comes before those of tenants")
	}
}

// TestNames checks that the name of a tenant's FlowSchema is not too long, even for the longest
// tenant ID.
func TestNames(t *testing.T) {
	for _, id := range []string{"a", "A_b.c", "x123456789012345678901234567890123456789012345678901234567890_x"} {
		f := tenantSchema(tenanttest.ID(t, id), Level, nil)
		if len(f.Name) > 253 || f.Name == TenantPrefix {
			t.Errorf("%s: %s", id, f.Name)
		}
	}
}
