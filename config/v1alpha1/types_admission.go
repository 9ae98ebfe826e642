// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	tenantv1alpha1 "github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

// Admission configures the admission plugins.
type Admission struct {
	// restriction specifies the settings of TenantRestriction.
	// +optional
	Restriction Restriction `json:"restriction,omitempty"`
	// namespace specifies the settings of TenantNamespace.
	// +optional
	Namespace Namespace `json:"namespace,omitempty"`
	// workloads specifies additional kinds whose objects contain templates of pods. TenantPlacement,
	// TenantPolicy and TenantAttribution check these templates. They always check the templates of the
	// built-in kinds. Defaults to none.
	// +optional
	Workloads []WorkloadKind `json:"workloads,omitempty"`
	// placement specifies the settings of TenantPlacement.
	// +optional
	Placement Placement `json:"placement,omitempty"`
	// policy specifies the settings of TenantPolicy.
	// +optional
	Policy Policy `json:"policy,omitempty"`
	// attribution specifies the settings of TenantAttribution.
	// +optional
	Attribution Attribution `json:"attribution,omitempty"`
	// binding specifies the settings of TenantBinding.
	// +optional
	Binding Binding `json:"binding,omitempty"`
	// publication specifies the objects that Publications may copy to namespaces of tenants. The
	// plugin TenantManaged checks the writers of Publications.
	// +optional
	Publication PublicationRules `json:"publication,omitempty"`
	// status specifies the settings of TenantStatus. TenantStatus allows only controllers to write the
	// status of built-in objects.
	// +optional
	Status Status `json:"status,omitempty"`
	// services specifies which fields tenants may set in Services.
	// +optional
	Services Services `json:"services,omitempty"`
	// persistentVolumeClaims specifies which fields tenants may set in PersistentVolumeClaims.
	// +optional
	PersistentVolumeClaims PersistentVolumeClaims `json:"persistentVolumeClaims,omitempty"`
	// roleBinding specifies nothing and must be empty. Its settings have moved to admission.services
	// and admission.persistentVolumeClaims.
	// +optional
	RoleBinding MovedRoleBinding `json:"roleBinding,omitempty"`
	// quota specifies the settings of TenantQuota.
	// +optional
	Quota Quota `json:"quota,omitempty"`
	// gate specifies the settings of TenantGate.
	// +optional
	Gate Gate `json:"gate,omitempty"`
}

// Restriction configures TenantRestriction, which reserves resources for the system tenant.
type Restriction struct {
	// resources specifies the restricted resources. A tenant's caller may not create or update them
	// anywhere. A caller of the system tenant may not create or update them in a tenant's namespace,
	// unless exemptSystem is true. It may always update the status and the finalizers of existing
	// objects. An empty list disables the plugin. Must not contain wildcards or subresources. Defaults
	// to nodes and daemonsets.apps.
	// +optional
	Resources []GroupResource `json:"resources"`
	// exemptSystem specifies whether callers of the system tenant may create and update restricted
	// resources in a tenant's namespace. Defaults to false.
	// +optional
	ExemptSystem bool `json:"exemptSystem,omitempty"`
}

// Namespace configures TenantNamespace, which protects the Namespace objects of tenants.
type Namespace struct {
	// namespacePrefix specifies whether the names of a tenant's namespaces must begin with
	// "<tenant>--": Required or None. Defaults to Required.
	// +optional
	// +kubebuilder:validation:Enum=Required;None
	NamespacePrefix tenantv1alpha1.NamespacePrefix `json:"namespacePrefix,omitempty"`
	// podSecurity specifies the value of the label pod-security.kubernetes.io/enforce on namespaces
	// that tenants create: privileged, baseline or restricted. Tenants may set a stricter level.
	// Defaults to baseline.
	// +optional
	// +kubebuilder:validation:Enum=privileged;baseline;restricted
	PodSecurity string `json:"podSecurity,omitempty"`
	// allowedLabels specifies the label keys that tenants may set on their namespaces. "example.com/*"
	// allows all keys of a domain. Keys without a domain and the labels that common tools write are
	// also allowed, unless a webhook or a policy of the cluster selects namespaces by the key. Such a
	// key, istio-injection and control-plane are allowed only if the list contains the exact key. Must
	// not contain keys of kubetenant.dev and pod-security.kubernetes.io. Defaults to none.
	// +optional
	AllowedLabels []string `json:"allowedLabels"`
	// allowedAnnotations specifies the annotation keys that tenants may set on their namespaces.
	// "example.com/*" allows all keys of a domain. Keys without a domain and the annotations that
	// common tools write are always allowed. Must not contain keys of kubetenant.dev and
	// pod-security.kubernetes.io. Defaults to none.
	// +optional
	AllowedAnnotations []string `json:"allowedAnnotations"`
	// clusterLabels specifies labels that the policies and webhooks of the cluster set on
	// namespaces, with their values. "{tenant}" in a value means the name of the tenant. A tenant
	// may set one of these labels only to the specified value, even if allowedLabels contains the
	// key. The server does not add or require these labels. Must not contain keys of
	// kubetenant.dev, pod-security.kubernetes.io/enforce or kubernetes.io/metadata.name. Defaults
	// to none.
	// +optional
	ClusterLabels map[string]string `json:"clusterLabels,omitempty"`
	// clusterAnnotations specifies annotations that the policies and webhooks of the cluster set on
	// namespaces, with their values. The rules of clusterLabels apply to them. Defaults to none.
	// +optional
	ClusterAnnotations map[string]string `json:"clusterAnnotations,omitempty"`
}

// WorkloadKind specifies a kind whose objects contain templates of pods.
type WorkloadKind struct {
	// group specifies the API group of the kind. Must not be the core group, apps or batch, because
	// the plugins know the templates of these groups. Required.
	// +required
	Group string `json:"group,omitempty"`
	// kind specifies the name of the kind, for example PyTorchJob. Required.
	// +required
	Kind string `json:"kind"`
	// paths specifies the paths of the templates in an object. A path consists of field names
	// separated by dots. "*" matches every element of a list or a map, as in
	// spec.replicaSpecs.*.template. Required.
	// +required
	Paths []string `json:"paths"`
}

// Gate configures TenantGate. TenantGate checks the boundary for writes that do not come through a
// gateway. It has no effect on writes for which kube-apiserver itself checks the boundary.
type Gate struct {
	// mode specifies how TenantGate handles a write that the boundary denies: Off, Shadow or Enforce.
	// Defaults to Shadow if gateway is set, otherwise to Off.
	// +optional
	Mode GateMode `json:"mode,omitempty"`
}

// GateMode specifies how TenantGate handles a write that the boundary denies.
//
// +kubebuilder:validation:Enum=Off;Shadow;Enforce
type GateMode string

// The modes of TenantGate.
const (
	// GateOff does not check the boundary.
	GateOff GateMode = "Off"
	// GateShadow records the write and allows it.
	GateShadow GateMode = "Shadow"
	// GateEnforce denies the write.
	GateEnforce GateMode = "Enforce"
)

// FieldPolicy specifies which values of a field are allowed in objects of tenants.
//
// +kubebuilder:validation:Enum=Forbid;AllowListed;Ignore
type FieldPolicy string

const (
	// FieldForbid denies objects that set the field.
	FieldForbid FieldPolicy = "Forbid"
	// FieldAllowListed denies objects in which the field has a value that the list does not allow.
	FieldAllowListed FieldPolicy = "AllowListed"
	// FieldIgnore does not check the field.
	FieldIgnore FieldPolicy = "Ignore"
)

// FieldRule specifies which values of one field are allowed in objects of tenants.
type FieldRule struct {
	// policy specifies which values are allowed: no value (Forbid), the values in allowed
	// (AllowListed) or every value (Ignore). Defaults to AllowListed if allowed is set, otherwise to
	// Forbid.
	// +optional
	Policy FieldPolicy `json:"policy,omitempty"`
	// allowed specifies the allowed values. In placement, an entry for a label, taint or topology is a
	// key, "key=value" or "domain/*", and an entry for a node or class is its name. "domain/*" allows
	// all keys of exactly that domain. In policy, the comment of the field specifies the form of its
	// entries. Required with AllowListed and not allowed with the other policies.
	// +optional
	Allowed []string `json:"allowed,omitempty"`
}

// PlacementRules specifies the rules of the fields that determine where a pod runs.
type PlacementRules struct {
	// nodeName specifies the names of nodes that pods may use in nodeName. The rule also applies to
	// Bindings. Defaults to Forbid.
	// +optional
	NodeName *FieldRule `json:"nodeName,omitempty"`
	// nodeSelector specifies the labels of nodes that pods may use in nodeSelector. A configured list
	// extends the default. Defaults to kubernetes.io/os and kubernetes.io/arch.
	// +optional
	NodeSelector *FieldRule `json:"nodeSelector,omitempty"`
	// nodeAffinity specifies the labels of nodes that pods may use in nodeAffinity. The entry
	// "metadata.name" allows pods to select nodes by the field metadata.name. A configured list
	// extends the default. Defaults to kubernetes.io/os and kubernetes.io/arch.
	// +optional
	NodeAffinity *FieldRule `json:"nodeAffinity,omitempty"`
	// tolerations specifies the taints that pods may tolerate. A list never allows a toleration
	// without a key, because it tolerates every taint. Defaults to Forbid.
	// +optional
	Tolerations *FieldRule `json:"tolerations,omitempty"`
	// topologySpread specifies the topology keys that pods may use in topologySpreadConstraints, and
	// in affinity and anti-affinity to other pods. The rule also applies to groups of pods. A
	// configured list extends the default. Defaults to topology.kubernetes.io/zone,
	// topology.kubernetes.io/region and kubernetes.io/hostname.
	// +optional
	TopologySpread *FieldRule `json:"topologySpread,omitempty"`
	// runtimeClassName specifies the RuntimeClasses that pods may use. With kubetenant-webhook, the
	// fields that a RuntimeClass sets in pods must be listed in cluster. Defaults to Forbid.
	// +optional
	RuntimeClassName *FieldRule `json:"runtimeClassName,omitempty"`
	// priorityClassName specifies the PriorityClasses that pods may use. The global default is always
	// allowed. Defaults to Forbid.
	// +optional
	PriorityClassName *FieldRule `json:"priorityClassName,omitempty"`
	// schedulerName specifies the schedulers that pods may use. The default scheduler is always
	// allowed. Defaults to Forbid.
	// +optional
	SchedulerName *FieldRule `json:"schedulerName,omitempty"`
	// podAffinity specifies the namespaces of other pods that affinity and anti-affinity may select.
	// Namespaces of the pod's own tenant are always allowed, and so is a namespaceSelector that
	// requires the label of the pod's own tenant. The entry kubetenant.dev/tenant=<id> allows a
	// selector that requires the label of another tenant. No entry allows other selectors. Defaults to
	// Forbid.
	// +optional
	PodAffinity *FieldRule `json:"podAffinity,omitempty"`
	// defaults specifies settings that the server adds to new pods. Pods may always have these
	// settings. If unset, the server adds no settings.
	// +optional
	Defaults *PlacementDefaults `json:"defaults,omitempty"`
	// cluster specifies settings that the plugins, policies and webhooks of the cluster add to pods.
	// Pods may always have these settings. The server itself does not add or require them. Defaults to
	// none.
	// +optional
	Cluster *PlacementCluster `json:"cluster,omitempty"`
}

// PlacementCluster specifies settings that the cluster itself adds to pods. Tenants may also set
// them.
type PlacementCluster struct {
	// nodeSelector specifies labels of nodes, with their values. Keys must be qualified names, and
	// values must be label values.
	// +optional
	NodeSelector map[string]string `json:"nodeSelector,omitempty"`
	// tolerations specifies tolerations. Each must have a key. The operator must be Exists or Equal.
	// +optional
	Tolerations []corev1.Toleration `json:"tolerations,omitempty"`
	// schedulerName specifies the name of a scheduler.
	// +optional
	SchedulerName string `json:"schedulerName,omitempty"`
	// runtimeClassName specifies the name of a RuntimeClass.
	// +optional
	RuntimeClassName string `json:"runtimeClassName,omitempty"`
	// priorityClassName specifies the name of a PriorityClass.
	// +optional
	PriorityClassName string `json:"priorityClassName,omitempty"`
}

// PlacementDefaults specifies settings that the server adds to new pods.
type PlacementDefaults struct {
	// nodeSelector specifies labels of nodes that the pods of the tenant must run on. The server adds
	// them to the nodeSelector of new pods. A pod with other values is denied. Keys must be qualified
	// names, and values must be label values.
	// +optional
	NodeSelector map[string]string `json:"nodeSelector,omitempty"`
	// tolerations specifies tolerations that the server adds to new pods. Each must have a key. The
	// operator must be Exists or Equal.
	// +optional
	Tolerations []corev1.Toleration `json:"tolerations,omitempty"`
	// schedulerName specifies the scheduler of new pods that do not name a scheduler. Must equal
	// attribution.workloadUser.scheduling.schedulerName if both are set.
	// +optional
	SchedulerName string `json:"schedulerName,omitempty"`
}

// Placement configures TenantPlacement, which restricts where the pods of tenants run.
type Placement struct {
	PlacementRules `json:",inline"`
	// tenants specifies rules for some tenants. A rule in an entry replaces the rule of the same name
	// that applies to all tenants. Defaults to none.
	// +optional
	Tenants []TenantPlacement `json:"tenants,omitempty"`
}

// TenantPlacement specifies the placement rules of some tenants.
type TenantPlacement struct {
	// tenants specifies the tenants that the rules apply to. A tenant may be in one entry only. Must
	// not contain system. Required.
	// +required
	Tenants        []string `json:"tenants"`
	PlacementRules `json:",inline"`
}

// PolicyRules specifies what the objects of tenants may request from the cluster. In an entry of
// a list, "{tenant}" means the name of the tenant. An entry with "{tenant}" applies only to
// tenants whose name is a DNS label.
type PolicyRules struct {
	// imageRegistries specifies the registries of the images of containers and image volumes. An entry
	// is a registry, for example registry.example.com:5000, or a repository, for example
	// registry.example.com/{tenant}. A repository includes everything below it. An image without a
	// registry is from docker.io. Defaults to Ignore.
	// +optional
	ImageRegistries *FieldRule `json:"imageRegistries,omitempty"`
	// imagePullPolicies specifies the pull policies of images: Always, IfNotPresent or Never. Defaults
	// to Ignore.
	// +optional
	ImagePullPolicies *FieldRule `json:"imagePullPolicies,omitempty"`
	// ingressClasses specifies the names of the IngressClasses that an Ingress may use. With a list,
	// an Ingress without a class is denied unless the cluster has a default IngressClass. Defaults to
	// Ignore.
	// +optional
	IngressClasses *FieldRule `json:"ingressClasses,omitempty"`
	// gatewayClasses specifies the names of the GatewayClasses of the Gateway API that a Gateway may
	// use. Defaults to Ignore.
	// +optional
	GatewayClasses *FieldRule `json:"gatewayClasses,omitempty"`
	// hosts specifies the host names of Ingresses, Gateways, listeners and routes. The rule also
	// applies to annotations of ingress-nginx and external-dns. "*.example.com" allows every host
	// below example.com. With a list, an object that names no host is denied. Defaults to Ignore.
	// +optional
	Hosts *FieldRule `json:"hosts,omitempty"`
	// storageClasses specifies the names of the StorageClasses that a PersistentVolumeClaim may use.
	// With a list, a claim without a class is denied unless the cluster has a default StorageClass.
	// Defaults to Ignore.
	// +optional
	StorageClasses *FieldRule `json:"storageClasses,omitempty"`
	// serviceTypes specifies the types of Services: NodePort, LoadBalancer or ExternalName. ClusterIP
	// is always allowed. Defaults to Ignore.
	// +optional
	ServiceTypes *FieldRule `json:"serviceTypes,omitempty"`
}

// Policy configures TenantPolicy, which restricts what the objects of tenants request from the
// cluster.
type Policy struct {
	PolicyRules `json:",inline"`
	// tenants specifies rules for some tenants. A rule in an entry replaces the rule of the same name
	// that applies to all tenants. Defaults to none.
	// +optional
	Tenants []TenantPolicy `json:"tenants,omitempty"`
}

// TenantPolicy specifies the policy rules of some tenants.
type TenantPolicy struct {
	// tenants specifies the tenants that the rules apply to. A tenant may be in one entry only. Must
	// not contain system. Required.
	// +required
	Tenants     []string `json:"tenants"`
	PolicyRules `json:",inline"`
}

// Binding configures TenantBinding, which records the identity whose permissions a controller uses
// for an object.
type Binding struct {
	// kinds specifies the kinds, in every version, whose objects get the record. Defaults to none.
	// +optional
	Kinds []BindingKind `json:"kinds,omitempty"`
}

// BindingKind specifies a kind whose objects a controller applies with the permissions of their
// creators.
type BindingKind struct {
	// group specifies the API group of the kind. Must not be the core group. Required.
	// +required
	Group string `json:"group"`
	// kind specifies the name of the kind, for example Application. Required.
	// +required
	Kind string `json:"kind"`
	// kubeVela specifies whether the plugin also writes the annotations app.oam.dev/username and
	// app.oam.dev/group. Defaults to false.
	// +optional
	KubeVela bool `json:"kubeVela,omitempty"`
}

// PublicationRules specifies which objects Publications may copy, and which labels and annotations
// are copied.
type PublicationRules struct {
	// kinds specifies kinds that Publications may copy in addition to ConfigMap, LimitRange,
	// NetworkPolicy, ResourceQuota, Role, RoleBinding and Secret. Must not contain kinds of
	// kubetenant.dev, kinds with a template of pods, kinds of admission.binding.kinds, or kinds that
	// hold data, locks or identities. Defaults to none.
	// +optional
	Kinds []PublicationKind `json:"kinds,omitempty"`
	// labels specifies the label keys that are copied. Do not list labels by which a tool tracks its
	// own objects, because the tool would delete the copies. Must not contain keys of kubetenant.dev.
	// Defaults to none.
	// +optional
	Labels []string `json:"labels,omitempty"`
	// annotations specifies the annotation keys that are copied. Must not contain keys of
	// kubetenant.dev or kubectl.kubernetes.io/last-applied-configuration. Defaults to none.
	// +optional
	Annotations []string `json:"annotations,omitempty"`
}

// PublicationKind specifies a namespaced kind and its resource.
type PublicationKind struct {
	// group specifies the API group of the kind. Defaults to the core group.
	// +optional
	Group string `json:"group,omitempty"`
	// kind specifies the name of the kind, for example Certificate. Required.
	// +required
	Kind string `json:"kind"`
	// resource specifies the resource of the kind, in the plural and in lower case, for example
	// certificates. Required.
	// +required
	Resource string `json:"resource"`
}

// Status configures TenantStatus, which protects the status of built-in objects that controllers
// write.
type Status struct {
	// allowed specifies the exceptions. Each exception allows tenants to write the status of some
	// resources. Defaults to none.
	// +optional
	Allowed []StatusException `json:"allowed,omitempty"`
}

// StatusException specifies tenants that may write the status of resources.
type StatusException struct {
	// tenants specifies the tenants of the exception: names, or "*" for every tenant except system.
	// Required.
	// +required
	Tenants []string `json:"tenants"`
	// resources specifies the resources whose status the tenants may write. Must not contain wildcards
	// or subresources. Required.
	// +required
	Resources []GroupResource `json:"resources"`
}

// Permission specifies whether tenants may set a field.
//
// +kubebuilder:validation:Enum=Allow;Forbid
type Permission string

const (
	// PermissionAllow allows tenants to set the field.
	PermissionAllow Permission = "Allow"
	// PermissionForbid denies objects of tenants that set the field.
	PermissionForbid Permission = "Forbid"
)

// Services specifies which fields tenants may set in Services. The plugin TenantRoleBinding
// enforces it.
type Services struct {
	// externalIPs specifies whether tenants may set spec.externalIPs: Allow or Forbid. Defaults to
	// Allow.
	// +optional
	ExternalIPs Permission `json:"externalIPs,omitempty"`
}

// PersistentVolumeClaims specifies which fields tenants may set in PersistentVolumeClaims. The
// plugin TenantRoleBinding enforces it.
type PersistentVolumeClaims struct {
	// volumeName specifies whether tenants may set spec.volumeName: Allow or Forbid. Defaults to
	// Allow.
	// +optional
	VolumeName Permission `json:"volumeName,omitempty"`
}

// MovedRoleBinding contains two settings that have moved. A file that sets one of them is invalid,
// and the error names the new field.
type MovedRoleBinding struct {
	// serviceExternalIPs specifies nothing and must be empty. Use admission.services.externalIPs.
	// +optional
	ServiceExternalIPs Permission `json:"serviceExternalIPs,omitempty"`
	// claimVolumeName specifies nothing and must be empty. Use
	// admission.persistentVolumeClaims.volumeName.
	// +optional
	ClaimVolumeName Permission `json:"claimVolumeName,omitempty"`
}

// Quota configures TenantQuota.
type Quota struct {
	// enabled specifies whether objects of kind TenantQuota apply. Defaults to true.
	// +optional
	Enabled *bool `json:"enabled,omitempty"`
	// default specifies the limits of a tenant that has no TenantQuota. The server creates a
	// TenantQuota with these limits for the tenant, and updates it when this field changes. Quantities
	// must not be negative. Defaults to no limits.
	// +optional
	Default corev1.ResourceList `json:"default,omitempty"`
	// reservation specifies how long the quota of an admitted write remains reserved if the server
	// does not observe the stored object. Must be longer than --request-timeout and the delay of
	// caches together. Must be a positive duration. Defaults to 2m.
	// +optional
	Reservation *metav1.Duration `json:"reservation,omitempty"`
}
