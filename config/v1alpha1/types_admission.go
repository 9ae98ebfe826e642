package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	tenantv1alpha1 "github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

// Admission configures the admission plugins.
type Admission struct {
	// restriction configures TenantRestriction.
	// +optional
	Restriction Restriction `json:"restriction,omitempty"`
	// namespace configures TenantNamespace.
	// +optional
	Namespace Namespace `json:"namespace,omitempty"`
	// workloads are the kinds, besides the built-in ones, whose objects hold templates of pods:
	// TenantPlacement, TenantPolicy and TenantAttribution look there too.
	// +optional
	Workloads []WorkloadKind `json:"workloads,omitempty"`
	// placement configures TenantPlacement.
	// +optional
	Placement Placement `json:"placement,omitempty"`
	// policy configures TenantPolicy.
	// +optional
	Policy Policy `json:"policy,omitempty"`
	// attribution configures TenantAttribution.
	// +optional
	Attribution Attribution `json:"attribution,omitempty"`
	// binding configures TenantBinding.
	// +optional
	Binding Binding `json:"binding,omitempty"`
	// status configures TenantStatus, which keeps the status of built-in objects their controllers'.
	// +optional
	Status Status `json:"status,omitempty"`
	// services says what tenants may have in theirs.
	// +optional
	Services Services `json:"services,omitempty"`
	// persistentVolumeClaims says what tenants may have in theirs.
	// +optional
	PersistentVolumeClaims PersistentVolumeClaims `json:"persistentVolumeClaims,omitempty"`
	// roleBinding is refused: what stood here has moved.
	// +optional
	RoleBinding MovedRoleBinding `json:"roleBinding,omitempty"`
	// quota configures TenantQuota.
	// +optional
	Quota Quota `json:"quota,omitempty"`
	// gate configures TenantGate.
	// +optional
	Gate Gate `json:"gate,omitempty"`
}

// Restriction configures TenantRestriction, which keeps resources out of tenant space.
type Restriction struct {
	// resources that no tenant's caller may create or update anywhere, nor anybody in a tenant's
	// namespace. Default: nodes and daemonsets.apps. An empty list switches the plugin off.
	// +optional
	Resources []GroupResource `json:"resources"`
	// exemptSystem lets callers of the system tenant do so in a tenant's namespace.
	// Default: false.
	// +optional
	ExemptSystem bool `json:"exemptSystem,omitempty"`
}

// Namespace configures TenantNamespace, which guards the Namespace objects of tenants.
type Namespace struct {
	// namespacePrefix is Required (default) or None.
	// +optional
	NamespacePrefix tenantv1alpha1.NamespacePrefix `json:"namespacePrefix,omitempty"`
	// podSecurity is the value of pod-security.kubernetes.io/enforce on the namespaces that tenants
	// create: privileged, baseline (default) or restricted.
	// +optional
	// +kubebuilder:validation:Enum=privileged;baseline;restricted
	PodSecurity string `json:"podSecurity,omitempty"`
	// allowedLabels are the label keys that tenants may set on their namespaces. A key without a
	// domain is allowed anyway, as are app.kubernetes.io/managed-by, part-of, version and created-by,
	// helm.sh/chart and kustomize.toolkit.fluxcd.io/name and namespace, which tools write;
	// "example.com/*" allows a whole domain; but istio-injection, control-plane and keys by which a
	// webhook or policy selects namespaces must be listed as they are.
	// +optional
	AllowedLabels []string `json:"allowedLabels"`
	// allowedAnnotations are the annotation keys with a domain that tenants may set on their
	// namespaces, in the same form. Default: what kubectl apply, Helm and Argo CD write:
	// kubectl.kubernetes.io/last-applied-configuration, meta.helm.sh/release-name,
	// meta.helm.sh/release-namespace, argocd.argoproj.io/tracking-id, argocd.argoproj.io/sync-wave.
	// +optional
	AllowedAnnotations []string `json:"allowedAnnotations"`
}

// WorkloadKind is a kind whose objects hold templates of pods.
type WorkloadKind struct {
	// group is the API group, empty for the core group.
	// +optional
	Group string `json:"group,omitempty"`
	// +required
	Kind string `json:"kind"`
	// paths to the templates: names of fields separated by dots, "*" for every element of a list or a
	// map, for example spec.replicaSpecs.*.template.
	// +required
	Paths []string `json:"paths"`
}

// Gate configures TenantGate, which asks the boundary about writes of callers who went around a
// gateway. Where kube-apiserver asks the boundary itself it finds nothing more.
type Gate struct {
	// mode is Off, Shadow or Enforce. Default: Shadow where a gateway is configured, else Off.
	// +optional
	Mode GateMode `json:"mode,omitempty"`
}

// GateMode says what becomes of writes that the boundary denies.
//
// +kubebuilder:validation:Enum=Off;Shadow;Enforce
type GateMode string

// The modes of TenantGate.
const (
	GateOff     GateMode = "Off"
	GateShadow  GateMode = "Shadow"
	GateEnforce GateMode = "Enforce"
)

// FieldPolicy says what becomes of a field of tenants' objects.
//
// +kubebuilder:validation:Enum=Forbid;AllowListed;Ignore
type FieldPolicy string

const (
	// FieldForbid refuses every value.
	FieldForbid FieldPolicy = "Forbid"
	// FieldAllowListed refuses what is not on the list.
	FieldAllowListed FieldPolicy = "AllowListed"
	// FieldIgnore refuses nothing.
	FieldIgnore FieldPolicy = "Ignore"
)

// FieldRule is the policy of one field.
type FieldRule struct {
	// policy is Forbid, AllowListed (default where allowed is given) or Ignore.
	// +optional
	Policy FieldPolicy `json:"policy,omitempty"`
	// allowed is the list. Of placement: keys, or "key=value", of labels, taints and topologies; or
	// names of nodes and classes. Of policy: as each field says.
	// +optional
	Allowed []string `json:"allowed,omitempty"`
}

// PlacementRules are the policies of the fields that say where pods run. A field that is left out
// and has no default is forbidden.
type PlacementRules struct {
	// nodeName, also of bindings.
	// +optional
	NodeName *FieldRule `json:"nodeName,omitempty"`
	// nodeSelector by label. Default: kubernetes.io/os and kubernetes.io/arch are allowed.
	// +optional
	NodeSelector *FieldRule `json:"nodeSelector,omitempty"`
	// nodeAffinity by label, and "metadata.name". Default: kubernetes.io/os and
	// kubernetes.io/arch are allowed.
	// +optional
	NodeAffinity *FieldRule `json:"nodeAffinity,omitempty"`
	// tolerations by taint. One without a key tolerates everything and is on no list.
	// +optional
	Tolerations *FieldRule `json:"tolerations,omitempty"`
	// topologySpread by topology key. Default: topology.kubernetes.io/zone,
	// topology.kubernetes.io/region and kubernetes.io/hostname are allowed.
	// +optional
	TopologySpread *FieldRule `json:"topologySpread,omitempty"`
	// runtimeClassName by name. What the class itself puts into pods must be allowed as well.
	// +optional
	RuntimeClassName *FieldRule `json:"runtimeClassName,omitempty"`
	// priorityClassName by name. The global default is always allowed.
	// +optional
	PriorityClassName *FieldRule `json:"priorityClassName,omitempty"`
	// schedulerName by name. The default scheduler is always allowed.
	// +optional
	SchedulerName *FieldRule `json:"schedulerName,omitempty"`
	// podAffinity by the namespaces that affinity and anti-affinity to other pods name; those of the
	// pod's own tenant are always allowed, as is a namespaceSelector that demands its label. Any
	// other selector is on no list.
	// +optional
	PodAffinity *FieldRule `json:"podAffinity,omitempty"`
	// defaults are put into new pods, and always allowed.
	// +optional
	Defaults *PlacementDefaults `json:"defaults,omitempty"`
}

// PlacementDefaults are put into new pods.
type PlacementDefaults struct {
	// nodeSelector is demanded: no pod of the tenant stands on other nodes.
	// +optional
	NodeSelector map[string]string `json:"nodeSelector,omitempty"`
	// tolerations are added.
	// +optional
	Tolerations []corev1.Toleration `json:"tolerations,omitempty"`
	// schedulerName of pods that name none.
	// +optional
	SchedulerName string `json:"schedulerName,omitempty"`
}

// Placement configures TenantPlacement, which keeps tenants' pods from choosing where they run.
type Placement struct {
	PlacementRules `json:",inline"`
	// tenants have rules of their own. A field that is given replaces the one above.
	// +optional
	Tenants []TenantPlacement `json:"tenants,omitempty"`
}

// TenantPlacement is what holds for some tenants.
type TenantPlacement struct {
	// tenants, each in one entry only.
	// +required
	Tenants        []string `json:"tenants"`
	PlacementRules `json:",inline"`
}

// PolicyRules are what tenants' objects may ask of the cluster. In their lists "{tenant}" stands
// for the name of the tenant, where that is a DNS label; the entry is none for other tenants. A
// field that is left out holds nothing.
type PolicyRules struct {
	// imageRegistries are registries, as docker.io or registry.example.com:5000, or repositories, as
	// registry.example.com/{tenant}, with all beneath them; of containers and of volumes that are
	// images. A name without a registry is Docker Hub's.
	// +optional
	ImageRegistries *FieldRule `json:"imageRegistries,omitempty"`
	// imagePullPolicies are Always, IfNotPresent and Never.
	// +optional
	ImagePullPolicies *FieldRule `json:"imagePullPolicies,omitempty"`
	// ingressClasses by name. With a list every Ingress must name one, or get one by default.
	// +optional
	IngressClasses *FieldRule `json:"ingressClasses,omitempty"`
	// gatewayClasses by name, of the Gateway API.
	// +optional
	GatewayClasses *FieldRule `json:"gatewayClasses,omitempty"`
	// hosts of ingresses, gateways, their listeners and routes, and of what ingress-nginx and
	// external-dns read from annotations. "*.example.com" is all beneath example.com. With a list
	// everything must name its hosts.
	// +optional
	Hosts *FieldRule `json:"hosts,omitempty"`
	// storageClasses by name. With a list every claim must name one, or get one by default.
	// +optional
	StorageClasses *FieldRule `json:"storageClasses,omitempty"`
	// serviceTypes are NodePort, LoadBalancer and ExternalName. ClusterIP is always allowed.
	// +optional
	ServiceTypes *FieldRule `json:"serviceTypes,omitempty"`
}

// Policy configures TenantPolicy, which holds what tenants' objects ask of the cluster to
// what is offered to them.
type Policy struct {
	PolicyRules `json:",inline"`
	// tenants have rules of their own. A field that is given replaces the one above.
	// +optional
	Tenants []TenantPolicy `json:"tenants,omitempty"`
}

// TenantPolicy is what holds for some tenants.
type TenantPolicy struct {
	// tenants, each in one entry only.
	// +required
	Tenants     []string `json:"tenants"`
	PolicyRules `json:",inline"`
}

// Attribution configures TenantAttribution, which records who asked for what.
type Attribution struct {
	// creator configures the annotations kubetenant.dev/creator and kubetenant.dev/on-behalf-of.
	// +optional
	Creator CreatorAttribution `json:"creator,omitempty"`
	// workloadUser configures the annotation yunikorn.apache.org/user.info.
	// +optional
	WorkloadUser WorkloadUser `json:"workloadUser,omitempty"`
}

// CreatorAttribution configures the record of creators.
type CreatorAttribution struct {
	// enabled records the creator of every object. Default: true.
	// +optional
	Enabled *bool `json:"enabled,omitempty"`
}

// WorkloadUser configures the user of pods, as YuniKorn's admission controller does. Patterns are
// RE2 and match whole names, as the server sees them: without qualifyNames, of every tenant.
type WorkloadUser struct {
	// enabled stamps pods and their templates, and protects what is stamped. Default: true.
	// +optional
	Enabled *bool `json:"enabled,omitempty"`
	// bypassAuth lets every caller supply a valid annotation. Default: false.
	// +optional
	BypassAuth bool `json:"bypassAuth,omitempty"`
	// trustControllers lets systemUsers supply it. Default: true.
	// +optional
	TrustControllers *bool `json:"trustControllers,omitempty"`
	// systemUsers are controllers that create pods; what they make takes the annotation from its
	// owner. They must be the system tenant's. Default: the controllers of kube-system that do, by
	// name, and system:kube-controller-manager.
	// +optional
	SystemUsers []string `json:"systemUsers"`
	// externalUsers may supply it, but no reserved names. Default: none.
	// +optional
	ExternalUsers []string `json:"externalUsers,omitempty"`
	// externalGroups may supply it, but no reserved names. Default: none.
	// +optional
	ExternalGroups []string `json:"externalGroups,omitempty"`
	// foreign says what becomes of another's annotation on a new template: of a manifest that was
	// exported, or a Job made of a colleague's CronJob. Default: Refuse.
	// +optional
	Foreign ForeignUser `json:"foreign,omitempty"`
	// scheduling hands the pods of tenants to a scheduler that reads the annotation.
	// +optional
	Scheduling *WorkloadScheduling `json:"scheduling,omitempty"`
}

// ForeignUser says what becomes of a user that a new template names, where its
// author may not supply it.
//
// +kubebuilder:validation:Enum=Refuse;Restamp
type ForeignUser string

const (
	// ForeignRefuse refuses the object.
	ForeignRefuse ForeignUser = "Refuse"
	// ForeignRestamp puts the author in the user's place, with a warning. A Pod
	// is refused all the same.
	ForeignRestamp ForeignUser = "Restamp"
)

// WorkloadScheduling is what a scheduler of YuniKorn's kind expects of a pod.
type WorkloadScheduling struct {
	// schedulerName of pods that name none. Default: yunikorn.
	// +optional
	SchedulerName string `json:"schedulerName,omitempty"`
	// queue of pods that name none; {tenant} and {namespace} are replaced. Default: no queue.
	// +optional
	Queue string `json:"queue,omitempty"`
}

// Binding configures TenantBinding, which records with whose rights a controller acts on an object.
type Binding struct {
	// kinds that are governed, in every version. Default: none.
	// +optional
	Kinds []BindingKind `json:"kinds,omitempty"`
}

// BindingKind is an application-like kind.
type BindingKind struct {
	// group is the API group.
	// +required
	Group string `json:"group"`
	// +required
	Kind string `json:"kind"`
	// kubeVela also writes app.oam.dev/username and app.oam.dev/group. Default: false.
	// +optional
	KubeVela bool `json:"kubeVela,omitempty"`
}

// Status says which tenants may write the status of built-in objects that controllers own.
type Status struct {
	// allowed are exceptions. Default: none.
	// +optional
	Allowed []StatusException `json:"allowed,omitempty"`
}

// StatusException lets tenants write the status of resources.
type StatusException struct {
	// tenants by name; "*" for all.
	// +required
	Tenants []string `json:"tenants"`
	// resources whose status they may write.
	// +required
	Resources []GroupResource `json:"resources"`
}

// Permission says whether tenants may set a field.
//
// +kubebuilder:validation:Enum=Allow;Forbid
type Permission string

const (
	// PermissionAllow lets them.
	PermissionAllow Permission = "Allow"
	// PermissionForbid does not.
	PermissionForbid Permission = "Forbid"
)

// Services says what tenants may have in theirs. TenantRoleBinding holds it.
type Services struct {
	// externalIPs, spec.externalIPs, is Allow (default) or Forbid.
	// +optional
	ExternalIPs Permission `json:"externalIPs,omitempty"`
}

// PersistentVolumeClaims says what tenants may have in theirs. TenantRoleBinding holds it.
type PersistentVolumeClaims struct {
	// volumeName, spec.volumeName, is Allow (default) or Forbid.
	// +optional
	VolumeName Permission `json:"volumeName,omitempty"`
}

// MovedRoleBinding is where two settings stood before. It is refused with
// the name of the new place.
type MovedRoleBinding struct {
	// serviceExternalIPs is admission.services.externalIPs now.
	// +optional
	ServiceExternalIPs Permission `json:"serviceExternalIPs,omitempty"`
	// claimVolumeName is admission.persistentVolumeClaims.volumeName now.
	// +optional
	ClaimVolumeName Permission `json:"claimVolumeName,omitempty"`
}

// Quota configures TenantQuota.
type Quota struct {
	// enabled lets TenantQuota objects count. Default: true.
	// +optional
	Enabled *bool `json:"enabled,omitempty"`
	// default limits a tenant that has no TenantQuota: one is made for it, which follows what stands
	// here. Default: such a tenant is not limited.
	// +optional
	Default corev1.ResourceList `json:"default,omitempty"`
	// reservation is how long a write that was let through may take to be stored and seen. It must be
	// longer than requests may take (--request-timeout) and caches may be behind. Default: 2m.
	// +optional
	Reservation *metav1.Duration `json:"reservation,omitempty"`
}
