package v1alpha1

import (
	"maps"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// KindTenant is the kind of a tenant's object.
const KindTenant = "Tenant"

// Tenant is a tenant: that there is one, how far its callers may go, and what is given in each of
// its namespaces. Cluster-scoped, and named by [tenant.ID.ObjectName], so that no two are of one
// tenant; one of another name counts for nothing. Whose a namespace is says its label alone.
type Tenant struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              TenantSpec `json:"spec"`
	// status is the server's own.
	// +optional
	Status TenantStatus `json:"status,omitempty"`
}

// TenantSpec says who the tenant is.
type TenantSpec struct {
	// id of the tenant, as credentials and the label of namespaces name it. It never changes.
	// +required
	ID string `json:"id"`
	// access of the tenant's callers: Open (default), ReadOnly or Closed.
	// +optional
	Access TenantAccess `json:"access,omitempty"`
	// suspension is ReadOnly or Closed while the tenant is suspended. Of it and access the
	// stricter counts. Written by kubectl tenant suspend and resume, and left out where
	// the object is kept in Git.
	// +optional
	Suspension TenantAccess `json:"suspension,omitempty"`
	// admins specifies the subjects who have the ClusterRole admin in every namespace of the tenant.
	// If the server evaluates RBAC by kubetenant, they also have the ClusterRole
	// kubetenant:tenant-admin, which allows creating namespaces of the tenant. A subject is a user, a
	// group, or a service account of one of the tenant's namespaces. The writer of an admin must be
	// allowed to bind both roles in the whole cluster. The list is atomic.
	// +optional
	Admins []rbacv1.Subject `json:"admins,omitempty"`
	// bindings are given in every namespace of the tenant, now and later, with the same conditions.
	// +optional
	Bindings []TenantBinding `json:"bindings,omitempty"`
	// memberRoles are the ClusterRoles that the tenant itself may give, by its TenantMembers. Whoever
	// adds one must be allowed to bind it everywhere.
	// +optional
	MemberRoles []string `json:"memberRoles,omitempty"`
	// namespaces says what the tenant's namespaces are like.
	// +optional
	Namespaces TenantSpaces `json:"namespaces,omitempty"`
	// quota is what the tenant may use over all its namespaces, by the names of a TenantQuota, which
	// it becomes. Left out: another may be made for the tenant, or none.
	// +optional
	Quota corev1.ResourceList `json:"quota,omitempty"`
	// deletionPolicy says what the deletion of the Tenant does: Protect (default), Delete or Orphan.
	// +optional
	DeletionPolicy TenantDeletionPolicy `json:"deletionPolicy,omitempty"`
	// deletionDelay is how long nothing is deleted after the Tenant was, at most a week: meanwhile the
	// tenant's callers may only read, and the annotation kubetenant.dev/take-back: "true" takes it
	// back. Left out: it begins at once.
	// +optional
	DeletionDelay *metav1.Duration `json:"deletionDelay,omitempty"`
	// replaces is the UID of the Tenant that had the ID before and was deleted, as kubectl tenant
	// retired shows it. Without it the ID of a tenant that was deleted is nobody's. It counts
	// when the Tenant is made.
	// +optional
	Replaces string `json:"replaces,omitempty"`
	// acceptUndated lets credentials of a replaced tenant's name count that do not say when they were
	// issued: lines of token and password files, opaque tokens, front proxies, and in the webhook
	// shape client certificates.
	// +optional
	AcceptUndated bool `json:"acceptUndated,omitempty"`
}

// TenantDeletionPolicy says what the deletion of a Tenant does.
type TenantDeletionPolicy string

// The policies.
const (
	// TenantDeletionProtect refuses it.
	TenantDeletionProtect TenantDeletionPolicy = "Protect"
	// TenantDeletionDelete deletes the tenant's namespaces with all that is in them.
	TenantDeletionDelete TenantDeletionPolicy = "Delete"
	// TenantDeletionOrphan leaves the namespaces with their label to the cluster's admins;
	// what the Tenant gave goes.
	TenantDeletionOrphan TenantDeletionPolicy = "Orphan"
)

// TenantSpaces says what the namespaces of a tenant are like, from the moment they are made.
type TenantSpaces struct {
	// labels stand on each of them, whatever its creator says. The tenant cannot change them.
	// +optional
	Labels map[string]string `json:"labels,omitempty"`
	// podSecurity is the level that PodSecurity admission enforces in them: privileged,
	// baseline or restricted. Left out: admission.namespace.podSecurity of the configuration,
	// on those that the tenant makes.
	// +optional
	PodSecurity string `json:"podSecurity,omitempty"`
	// prefix Required demands that they are named "<id>--...", and keeps such names for the
	// tenant, also where admission.namespace.namespacePrefix of the configuration is None.
	// Those that are there stay.
	// +optional
	Prefix NamespacePrefix `json:"prefix,omitempty"`
	// max is how many there may be, those too that are being deleted; it becomes count/namespaces of
	// the tenant's TenantQuota. Where there are more already none comes.
	// +optional
	Max *int32 `json:"max,omitempty"`
	// templates are the names of NamespaceTemplates: what they say is in each of the
	// namespaces. One that is not there leaves what was made of it before, and no namespace is
	// prepared while it is not.
	// +optional
	Templates []string `json:"templates,omitempty"`
}

// Hard returns what the TenantQuota of a Tenant limits; empty where it gives none.
func (s *TenantSpec) Hard() corev1.ResourceList {
	if s.Namespaces.Max == nil {
		return s.Quota
	}
	out := corev1.ResourceList{"count/namespaces": *resource.NewQuantity(int64(*s.Namespaces.Max), resource.DecimalSI)}
	maps.Copy(out, s.Quota)
	return out
}

// TenantBinding gives a ClusterRole in every namespace of a tenant.
type TenantBinding struct {
	// clusterRole that is given. No two bindings of a Tenant give the same.
	// +required
	ClusterRole string `json:"clusterRole"`
	// subjects to whom it is given, as in admins.
	// +required
	Subjects []rbacv1.Subject `json:"subjects"`
}

const (
	// AdminRole is the ClusterRole of a tenant's admins in its namespaces.
	AdminRole = "admin"
	// NamespacesRole is the ClusterRole by which they create, label and delete namespaces
	// and write TenantMembers.
	NamespacesRole = "kubetenant:tenant-admin"
	// MemberRole is the ClusterRole by which every caller of a tenant reads its
	// namespaces, Tenant and quota.
	MemberRole = "kubetenant:tenant-member"
)

// ConditionPrepared of a Tenant says whether every namespace has what it gives, ConditionReady
// whether besides there is nothing for anybody to do, and ConditionSuspended whether its
// callers may do less than all.
const (
	ConditionPrepared  = "Prepared"
	ConditionReady     = "Ready"
	ConditionSuspended = "Suspended"
)

// The further reasons of [ConditionReady] and [ConditionSuspended]; that of one who is
// suspended is his access.
const (
	ReasonReady          = "Ready"
	ReasonManyNamespaces = "TooManyNamespaces"
	ReasonOtherNames     = "OtherNames" // namespaces without the prefix that is required
	ReasonOpen           = "Open"
)

// The reasons of [ConditionPrepared].
const (
	ReasonPrepared  = "Prepared"
	ReasonPreparing = "Preparing"
	ReasonFailed    = "Failed"
	ReasonSubject   = "SubjectRefused"
	ReasonQuota     = "QuotaTaken"
	ReasonTemplate  = "TemplateRefused"
)

// The reasons of what waits for a CustomResourceDefinition of the project.
const (
	ReasonDefinition       = "DefinitionMissing"   // or outdated, or not established
	ReasonDefinitionUsable = "DefinitionInstalled" // of an event
)

// ConditionDeleting of a Tenant that is deleted says what is being done, ConditionNamespacesGone
// that it had no namespace any more, and ConditionDeletionHeld why nothing is done.
const (
	ConditionDeleting       = "Deleting"
	ConditionNamespacesGone = "NamespacesGone"
	ConditionDeletionHeld   = "DeletionHeld"
)

// The reasons of these.
const (
	ReasonNamespaces = "Namespaces" // are being deleted
	ReasonStuck      = "Stuck"      // some for long
	ReasonSettling   = "Settling"   // it is looked once more
	ReasonRetiring   = "Retiring"   // the rest goes
	ReasonProtected  = "Protected"
	ReasonTooMany    = "TooMany"
	ReasonDelayed    = "Delayed"   // spec.deletionDelay is not over
	ReasonTakenBack  = "TakenBack" // of an event: nothing was deleted
	ReasonReleased   = "Released"  // it is not held any more
)

// TenantStatus says what became of a Tenant.
type TenantStatus struct {
	// observedGeneration is the generation that the rest is about.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// namespaces counts those of the tenant.
	// +optional
	Namespaces TenantNamespaces `json:"namespaces,omitempty"`
	// quota is the name of the TenantQuota that was made of the Tenant's.
	// +optional
	Quota string `json:"quota,omitempty"`
	// conditions: Ready, Prepared, Suspended, and while it is deleted Deleting,
	// NamespacesGone and DeletionHeld.
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// TenantNamespaces counts the namespaces of a tenant that are not being deleted.
type TenantNamespaces struct {
	Total int32 `json:"total"`
	// prepared are those that have what the Tenant gives, failed those where the
	// last try to give it failed.
	Prepared int32 `json:"prepared"`
	Failed   int32 `json:"failed"`
}

// TenantOf decodes a Tenant as a server keeps it.
func TenantOf(obj runtime.Object) (*Tenant, error) {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	if err != nil {
		return nil, err
	}
	t := &Tenant{}
	return t, runtime.DefaultUnstructuredConverter.FromUnstructured(content, t)
}

// TenantAccess is how far a tenant's callers may go.
type TenantAccess string

// The accesses.
const (
	// TenantAccessOpen takes nothing away.
	TenantAccessOpen TenantAccess = "Open"
	// TenantAccessReadOnly leaves get, list, watch and delete; of subresources,
	// reading status, scale and log.
	TenantAccessReadOnly TenantAccess = "ReadOnly"
	// TenantAccessClosed leaves nothing but reviews of oneself.
	TenantAccessClosed TenantAccess = "Closed"
)

// NamespacePrefix says how a tenant's namespaces must be named.
type NamespacePrefix string

const (
	// NamespacePrefixRequired demands "<tenant>--" before the name, and keeps such names for
	// that tenant, whoever asks.
	NamespacePrefixRequired NamespacePrefix = "Required"
	// NamespacePrefixNone demands nothing. Two tenants then race for a name, and learn from a
	// conflict that the other has it.
	NamespacePrefixNone NamespacePrefix = "None"
)
