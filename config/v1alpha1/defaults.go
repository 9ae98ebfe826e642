// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/kubetenant/kubetenant/tenant"
	tenantv1alpha1 "github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

// Default sets each unset field of s to the default in its comment. If the comment says that a
// configured list extends the default, Default adds the missing default entries. Any other
// configured list is not changed, even if it is []. [Settings.Warnings] reports default entries
// that are missing from a list that gives rights. A second call to Default changes nothing.
func Default(s *Settings) {
	limits := tenant.DefaultLimits()
	defaultNumber(&s.Authentication.Limits.Bytes, limits.Bytes)
	defaultNumber(&s.Authentication.Limits.Groups, limits.Groups)
	for i := range s.Authentication.Sources {
		src := &s.Authentication.Sources[i]
		src.kinds(func(_ string, config sourceConfig) { config.setDefaults(src) })
	}
	z := &s.Authorization
	extendList(&z.SystemSubjects.Users, "system:apiserver", user.KubeControllerManager, user.KubeScheduler,
		user.KubeProxy, "system:cloud-controller-manager", "system:konnectivity-server")
	extendList(&z.SystemSubjects.UserPrefixes, "system:bootstrap:")
	extendList(&z.SystemSubjects.Groups, user.SystemPrivilegedGroup, user.NodesGroup, user.MonitoringGroup,
		"kubeadm:cluster-admins")
	defaultList(&z.SystemNamespaces, "kube-system", "kube-public", "kube-node-lease", "default")
	defaultList(&z.UnboundAllow.Paths, unboundPaths()...)
	defaultList(&z.UnboundAllow.Resources, unboundResources()...)
	defaultList(&z.SharedClusterResources, sharedResources()...)
	defaultText(&z.Mode, ModeEnforce)
	defaultText(&z.RequireTenant, RequireTenantNever)
	defaultText(&z.RBAC.Evaluator, EvaluatorIndexed)
	defaultValue(&z.Grants.Enabled, true)
	defaultList(&z.SelectableResources, selectableResources()...)
	defaultList(&s.Admission.Restriction.Resources, restrictedResources()...)
	defaultText(&s.Admission.Namespace.NamespacePrefix, tenantv1alpha1.NamespacePrefixRequired)
	defaultText(&s.Admission.Namespace.PodSecurity, "baseline")
	defaultAdmission(&s.Admission)
	defaultUsage(&s.Usage)
	s.Audit.setDefaults()
	defaultService(&s.Service)
	defaultGateway(s.Gateway)
	mode := GateOff
	if s.Gateway != nil {
		mode = GateShadow
		defaultValue(&s.FairUse.InFlight, 64)
		defaultValue(&s.FairUse.Watches, 200)
	}
	defaultText(&s.Admission.Gate.Mode, mode)
}

func defaultAdmission(a *Admission) {
	p := &a.Placement.PlacementRules
	defaultValue(&p.NodeSelector, FieldRule{Allowed: nodeLabels()})
	defaultValue(&p.NodeAffinity, FieldRule{Allowed: nodeLabels()})
	defaultValue(&p.TopologySpread, FieldRule{Allowed: topologies()})
	p.setDefaults()
	for i := range a.Placement.Tenants {
		a.Placement.Tenants[i].setDefaults()
	}
	defaultPolicy(&a.Policy)
	w := &a.Attribution.WorkloadUser
	defaultValue(&a.Attribution.Creator.Enabled, true)
	defaultValue(&w.Enabled, true)
	defaultValue(&w.TrustControllers, true)
	defaultText(&w.Foreign, ForeignRestamp)
	// The controllers that create Pods, or objects that create Pods (k8s.io/kubernetes
	// cmd/kube-controller-manager, v1.37.1).
	extendList(&w.SystemUsers, user.KubeControllerManager,
		`system:serviceaccount:kube-system:(cronjob|daemon-set|deployment|job|replicaset|replication|statefulset)-controller`)
	if w.Scheduling != nil {
		defaultText(&w.Scheduling.SchedulerName, "yunikorn")
	}
	defaultValue(&a.Quota.Enabled, true)
	defaultDuration(&a.Quota.Reservation, 2*time.Minute)
	defaultText(&a.Services.ExternalIPs, PermissionAllow)
	defaultText(&a.PersistentVolumeClaims.VolumeName, PermissionAllow)
}

func defaultService(s *Service) {
	defaultList(&s.APIAudiences, "https://kubernetes.default.svc", "https://kubernetes.default.svc.cluster.local")
	defaultDuration(&s.StaleAfter, 10*time.Second)
	defaultDuration(&s.Drain, 10*time.Second)
	defaultValue(&s.TenantMetrics, 500)
	defaultValue(&s.Limits.Concurrent, 256)
	defaultValue(&s.Limits.Queued, 1024)
	defaultDuration(&s.Limits.Timeout, 10*time.Second)
	defaultValue(&s.Limits.BodyBytes, 8<<20) // more than twice the 3 MiB that kube-apiserver accepts in a request
}

// unboundPaths returns the paths that callers without a tenant may request by default.
func unboundPaths() []string {
	return []string{
		"/healthz", "/livez", "/readyz", "/version", "/version/",
		"/.well-known/openid-configuration", "/openid/v1/jwks",
	}
}

// unboundResources returns the requests for objects that callers without a tenant may make by
// default.
func unboundResources() []ObjectVerb {
	return []ObjectVerb{{
		Verb:      "get",
		Resource:  "configmaps",
		Namespace: "kube-public",
		Name:      "cluster-info",
	}}
}

// sharedResources returns the cluster-scoped resources that tenants may read by default.
func sharedResources() []GroupResource {
	return []GroupResource{
		{"storage.k8s.io", "storageclasses"},
		{"storage.k8s.io", "volumeattributesclasses"},
		{"networking.k8s.io", "ingressclasses"},
		{"gateway.networking.k8s.io", "gatewayclasses"},
		{"node.k8s.io", "runtimeclasses"},
		{"scheduling.k8s.io", "priorityclasses"},
		{"snapshot.storage.k8s.io", "volumesnapshotclasses"},
		{"resource.k8s.io", "deviceclasses"},
	}
}

// selectableResources returns the resources of aggregated servers that tenants may list over all
// namespaces by default.
func selectableResources() []GroupResource { return []GroupResource{{"metrics.k8s.io", "pods"}} }

// restrictedResources returns the resources that are reserved for the system tenant by default.
func restrictedResources() []GroupResource {
	return []GroupResource{{"", "nodes"}, {"apps", "daemonsets"}}
}

// nodeLabels returns the labels of nodes that Pods may select by default. A configured list extends
// them.
func nodeLabels() []string { return []string{corev1.LabelOSStable, corev1.LabelArchStable} }

// topologies returns the topology keys that Pods may use by default. A configured list extends
// them.
func topologies() []string {
	return []string{corev1.LabelTopologyZone, corev1.LabelTopologyRegion, corev1.LabelHostname}
}

// setDefaults sets the default policies. It also adds the default entries to the configured lists
// of node labels and topology keys. To allow no value of a field, set its policy to Forbid.
func (r *PlacementRules) setDefaults() {
	defaultRules(r.fields())
	for rule, values := range map[*FieldRule][]string{
		r.NodeSelector: nodeLabels(), r.NodeAffinity: nodeLabels(), r.TopologySpread: topologies(),
	} {
		if rule != nil && rule.Policy == FieldAllowListed && len(rule.Allowed) > 0 {
			extendList(&rule.Allowed, values...)
		}
	}
}

func defaultList[T any](list *[]T, values ...T) {
	if *list == nil {
		*list = values
	}
}

// extendList appends to list the values that it does not contain.
func extendList[T comparable](list *[]T, values ...T) {
	*list = append(slices.Clip(*list), absent(*list, values)...)
}

// absent returns the values that list does not contain.
func absent[T comparable](list, values []T) []T {
	return slices.DeleteFunc(slices.Clone(values), func(v T) bool { return slices.Contains(list, v) })
}

func defaultDuration(d **metav1.Duration, value time.Duration) {
	defaultValue(d, metav1.Duration{Duration: value})
}

func defaultValue[T any](at **T, value T) {
	if *at == nil {
		*at = &value
	}
}

func defaultNumber(number *int, value int) {
	if *number == 0 {
		*number = value
	}
}

func defaultText[T ~string](text *T, value T) {
	if *text == "" {
		*text = value
	}
}
