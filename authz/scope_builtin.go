// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package authz

import "k8s.io/apimachinery/pkg/runtime/schema"

// builtIn contains the resources that kube-apiserver serves itself, keyed by resource name. It
// includes resources of every version and behind every feature gate (k8s.io/kubernetes
// api/discovery, v1.37.1). A test compares it with a live server.
var builtIn = index(
	map[string][]string{ // namespaced
		"": {
			"bindings", "configmaps", "endpoints", "events", "limitranges", "persistentvolumeclaims", "pods", "podtemplates",
			"replicationcontrollers", "resourcequotas", "secrets", "serviceaccounts", "services",
		},
		"apps":                      {"controllerrevisions", "daemonsets", "deployments", "replicasets", "statefulsets"},
		"authorization.k8s.io":      {"localsubjectaccessreviews"},
		"autoscaling":               {"horizontalpodautoscalers"},
		"batch":                     {"cronjobs", "jobs"},
		"certificates.k8s.io":       {"podcertificaterequests"},
		"coordination.k8s.io":       {"leasecandidates", "leases"},
		"discovery.k8s.io":          {"endpointslices"},
		"events.k8s.io":             {"events"},
		"lifecycle.k8s.io":          {"evictionrequests", "evictions"},
		"networking.k8s.io":         {"ingresses", "networkpolicies"},
		"policy":                    {"poddisruptionbudgets"},
		"rbac.authorization.k8s.io": {"rolebindings", "roles"},
		"resource.k8s.io":           {"resourceclaims", "resourceclaimtemplates"},
		"scheduling.k8s.io":         {"compositepodgroups", "podgroups", "workloads"},
		"storage.k8s.io":            {"csistoragecapacities"},
	},
	map[string][]string{ // cluster-scoped
		"": {"componentstatuses", "namespaces", "nodes", "persistentvolumes"},
		"admissionregistration.k8s.io": {
			"mutatingadmissionpolicies", "mutatingadmissionpolicybindings", "mutatingwebhookconfigurations",
			"validatingadmissionpolicies", "validatingadmissionpolicybindings", "validatingwebhookconfigurations",
		},
		"apiextensions.k8s.io":         {"customresourcedefinitions"},
		"apiregistration.k8s.io":       {"apiservices"},
		"authentication.k8s.io":        {"selfsubjectreviews", "tokenreviews"},
		"authorization.k8s.io":         {"selfsubjectaccessreviews", "selfsubjectrulesreviews", "subjectaccessreviews"},
		"certificates.k8s.io":          {"certificatesigningrequests", "clustertrustbundles"},
		"flowcontrol.apiserver.k8s.io": {"flowschemas", "prioritylevelconfigurations"},
		"internal.apiserver.k8s.io":    {"storageversions"},
		"networking.k8s.io":            {"ingressclasses", "ipaddresses", "servicecidrs"},
		"node.k8s.io":                  {"runtimeclasses"},
		"rbac.authorization.k8s.io":    {"clusterrolebindings", "clusterroles"},
		"resource.k8s.io":              {"deviceclasses", "devicetaintrules", "resourcepoolstatusrequests", "resourceslices"},
		"scheduling.k8s.io":            {"priorityclasses"},
		"storage.k8s.io": {
			"csidrivers", "csinodes", "storageclasses", "volumeattachments", "volumeattributesclasses",
		},
		"storagemigration.k8s.io": {"storageversionmigrations"},
	},
)

// groupScope is the scope of a resource in one group.
type groupScope struct {
	group string
	scope Scope
}

// index returns the scopes keyed by resource name alone. Few names occur in two groups, and a
// lookup by one string is faster than a lookup by two.
func index(namespaced, cluster map[string][]string) map[string][]groupScope {
	all := map[string][]groupScope{}
	add := func(groups map[string][]string, scope Scope) {
		for group, resources := range groups {
			for _, resource := range resources {
				all[resource] = append(all[resource], groupScope{group, scope})
			}
		}
	}
	add(namespaced, ScopeNamespaced)
	add(cluster, ScopeCluster)
	return all
}

func builtInScope(resource schema.GroupResource) Scope {
	for _, s := range builtIn[resource.Resource] {
		if s.group == resource.Group {
			return s.scope
		}
	}
	return ScopeUnknown
}
