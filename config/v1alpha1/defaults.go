package v1alpha1

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/kubetenant/kubetenant/tenant"
	tenantv1alpha1 "github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

// Default fills in what s leaves out, as the fields say. A list that is given, if only as [], is
// left as it is.
func Default(s *Settings) {
	limits := tenant.DefaultLimits()
	defaultNumber(&s.Authentication.Limits.Bytes, limits.Bytes)
	defaultNumber(&s.Authentication.Limits.Groups, limits.Groups)
	for i := range s.Authentication.Sources {
		src := &s.Authentication.Sources[i]
		src.kinds(func(_ string, config sourceConfig) { config.setDefaults(src) })
	}
	z := &s.Authorization
	defaultList(&z.SystemSubjects.Users, "system:apiserver", user.KubeControllerManager, user.KubeScheduler,
		user.KubeProxy, "system:cloud-controller-manager", "system:konnectivity-server")
	defaultList(&z.SystemSubjects.UserPrefixes, "system:bootstrap:")
	defaultList(&z.SystemSubjects.Groups, user.SystemPrivilegedGroup, user.NodesGroup, user.MonitoringGroup,
		"kubeadm:cluster-admins")
	defaultList(&z.SystemNamespaces, "kube-system", "kube-public", "kube-node-lease", "default")
	defaultList(&z.UnboundAllow.Paths, "/healthz", "/livez", "/readyz", "/version", "/version/",
		"/.well-known/openid-configuration", "/openid/v1/jwks")
	defaultList(&z.UnboundAllow.Resources,
		ObjectVerb{
			Verb:      "get",
			Resource:  "configmaps",
			Namespace: "kube-public",
			Name:      "cluster-info",
		})
	defaultList(&z.SharedClusterResources,
		GroupResource{"storage.k8s.io", "storageclasses"},
		GroupResource{"storage.k8s.io", "volumeattributesclasses"},
		GroupResource{"networking.k8s.io", "ingressclasses"},
		GroupResource{"gateway.networking.k8s.io", "gatewayclasses"},
		GroupResource{"node.k8s.io", "runtimeclasses"},
		GroupResource{"scheduling.k8s.io", "priorityclasses"},
		GroupResource{"snapshot.storage.k8s.io", "volumesnapshotclasses"},
		GroupResource{"resource.k8s.io", "deviceclasses"},
	)
	defaultText(&z.Mode, ModeEnforce)
	defaultText(&z.RequireTenant, RequireTenantNever)
	defaultText(&z.RBAC.Evaluator, EvaluatorIndexed)
	defaultValue(&z.Grants.Enabled, true)
	defaultList(&z.SelectableResources, GroupResource{"metrics.k8s.io", "pods"})
	defaultList(&s.Admission.Restriction.Resources, GroupResource{"", "nodes"}, GroupResource{"apps", "daemonsets"})
	defaultText(&s.Admission.Namespace.NamespacePrefix, tenantv1alpha1.NamespacePrefixRequired)
	defaultText(&s.Admission.Namespace.PodSecurity, "baseline")
	defaultAdmission(&s.Admission)
	defaultService(&s.Service)
	defaultGateway(s.Gateway)
	mode := GateOff
	if s.Gateway != nil {
		mode = GateShadow
	}
	defaultText(&s.Admission.Gate.Mode, mode)
}

func defaultAdmission(a *Admission) {
	p := &a.Placement.PlacementRules
	defaultValue(&p.NodeSelector, FieldRule{Allowed: []string{corev1.LabelOSStable, corev1.LabelArchStable}})
	defaultValue(&p.NodeAffinity, FieldRule{Allowed: []string{corev1.LabelOSStable, corev1.LabelArchStable}})
	defaultValue(&p.TopologySpread,
		FieldRule{Allowed: []string{corev1.LabelTopologyZone, corev1.LabelTopologyRegion, corev1.LabelHostname}})
	defaultRules(p.fields())
	for i := range a.Placement.Tenants {
		defaultRules(a.Placement.Tenants[i].fields())
	}
	defaultPolicy(&a.Policy)
	w := &a.Attribution.WorkloadUser
	defaultValue(&a.Attribution.Creator.Enabled, true)
	defaultValue(&w.Enabled, true)
	defaultValue(&w.TrustControllers, true)
	defaultText(&w.Foreign, ForeignRefuse)
	// k8s.io/kubernetes cmd/kube-controller-manager, v1.37.1: those that create pods or what does.
	defaultList(&w.SystemUsers, user.KubeControllerManager,
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
	defaultValue(&s.Limits.BodyBytes, 8<<20) // twice the 3 MiB that kube-apiserver takes of a request, and room
}

func defaultList[T any](list *[]T, values ...T) {
	if *list == nil {
		*list = values
	}
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
