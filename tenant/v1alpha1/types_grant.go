package v1alpha1

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// KindAccessGrant is the kind of [AccessGrant].
const KindAccessGrant = "AccessGrant"

// ConditionAccepted says whether an AccessGrant counts: whether its grantor may still
// do itself what it grants.
const ConditionAccepted = "Accepted"

// AccessGrant lets callers of another tenant reach named resources in its namespace.
type AccessGrant struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec AccessGrantSpec `json:"spec"`
	// +optional
	Status AccessGrantStatus `json:"status,omitempty"`
}

// AccessGrantSpec says who may do what.
type AccessGrantSpec struct {
	// from says whose callers may use the grant.
	// +required
	From AccessGrantFrom `json:"from"`
	// to lists what they may do. Nothing stands for everything: "*" is refused throughout.
	// +required
	To []AccessGrantRule `json:"to"`
	// expires is when the grant ends. Left out: never.
	// +optional
	Expires *metav1.Time `json:"expires,omitempty"`
	// announce lets all callers of the tenant in from list and watch this grant among those that are
	// announced to it, whole: who wrote it included. Left out: it is not told of.
	// +optional
	Announce bool `json:"announce,omitempty"`
	// grantor is who wrote this spec. The server sets it; what a client says is overwritten.
	// +optional
	Grantor *AccessGrantor `json:"grantor,omitempty"`
}

// AccessGrantFrom names callers of one tenant. One who is any of them may use the grant.
type AccessGrantFrom struct {
	// tenant of the callers: another one than the namespace's owner, and not system.
	// +required
	Tenant string `json:"tenant"`
	// users by name.
	// +optional
	Users []string `json:"users,omitempty"`
	// groups by name. "tenant:<id>" is all callers of the tenant.
	// +optional
	Groups []string `json:"groups,omitempty"`
	// serviceAccounts of the tenant.
	// +optional
	ServiceAccounts []ServiceAccountName `json:"serviceAccounts,omitempty"`
}

// ServiceAccountName names a service account.
type ServiceAccountName struct {
	// +required
	Namespace string `json:"namespace"`
	// +required
	Name string `json:"name"`
}

// AccessGrantRule lists what may be done to what.
type AccessGrantRule struct {
	// apiGroups, "" for the core group.
	// +required
	APIGroups []string `json:"apiGroups"`
	// resources in lower-case plural, subresources as "pods/log".
	// +required
	Resources []string `json:"resources"`
	// resourceNames limits the rule to these objects. Left out: all. A list, a watch and a create
	// name no object.
	// +optional
	ResourceNames []string `json:"resourceNames,omitempty"`
	// verbs as in RBAC. Those that begin "impersonate" are refused.
	// +required
	Verbs []string `json:"verbs"`
}

// AccessGrantor is who wrote a grant, and whose the namespace was then.
type AccessGrantor struct {
	// owner of the namespace. The grant counts only while the namespace is its.
	Owner string `json:"owner"`
	// tenant of the grantor.
	Tenant string `json:"tenant"`
	User   string `json:"user"`
	// +optional
	UID string `json:"uid,omitempty"`
	// +optional
	Groups []string `json:"groups,omitempty"`
	// grantee is a seal of the Tenant that from.tenant had. Where the name was a deleted tenant's, the
	// grant counts for nobody but who had it then.
	// +optional
	Grantee string `json:"grantee,omitempty"`
}

// AccessGrantStatus is what became of a grant. Only the system tenant's callers write it.
type AccessGrantStatus struct {
	// conditions holds [ConditionAccepted]. A grant without it counts: its admission was checked.
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// expired is true once expires has passed.
	// +optional
	Expired bool `json:"expired,omitempty"`
	// lastUsed is when the grant allowed a request the last time, to about a minute.
	// +optional
	LastUsed *metav1.Time `json:"lastUsed,omitempty"`
}

// DeepCopy returns a copy that shares nothing.
func (s *AccessGrantStatus) DeepCopy() *AccessGrantStatus {
	out := *s
	out.Conditions = slices.Clone(s.Conditions) // of values
	out.LastUsed = s.LastUsed.DeepCopy()
	return &out
}
