package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Gateway configures kubetenant-gateway, which stands in front of clusters whose
// kube-apiservers nobody may configure.
type Gateway struct {
	// clusters that are reached through the gateway.
	// +required
	Clusters []GatewayCluster `json:"clusters"`
	// views are what callers are shown of the gateway itself.
	// +optional
	Views GatewayViews `json:"views,omitempty"`
	// limits bound what the callers of one tenant may have open, at each replica.
	// +optional
	Limits GatewayLimits `json:"limits,omitempty"`
	// sessions say when watches and streams end, beside what always ends them.
	// +optional
	Sessions GatewaySessions `json:"sessions,omitempty"`
	// audit records requests as kube-apiserver's audit does. Default: none are recorded.
	// +optional
	Audit *GatewayAudit `json:"audit,omitempty"`
}

// GatewayViews are what callers are shown of the gateway itself, under /gateway.
type GatewayViews struct {
	// clusters shows each caller the clusters that it may use:
	// clusters.gateway.kubetenant.dev, read-only.
	// +optional
	Clusters GatewayView `json:"clusters,omitempty"`
}

// GatewayView is one view.
type GatewayView struct {
	// enabled. Default: false.
	// +optional
	Enabled bool `json:"enabled,omitempty"`
}

// GatewayCluster is one cluster behind the gateway.
type GatewayCluster struct {
	// name stands in paths, /clusters/<name>/...; a lower-case DNS label.
	// +required
	Name string `json:"name"`
	// labels are shown in the view of clusters, and select there.
	// +optional
	Labels map[string]string `json:"labels,omitempty"`
	// root serves the cluster without /clusters/<name> too. At most one. Default: false.
	// +optional
	Root bool `json:"root,omitempty"`
	// tenants that may use the cluster: names, or "*" for any but system, which must be named.
	// +required
	Tenants []string `json:"tenants"`
	// reader is who reads what the boundary has to know of the cluster.
	// +required
	Reader GatewayReader `json:"reader"`
	// impersonator is who sends the requests of callers on, in their names.
	// +required
	Impersonator GatewayImpersonator `json:"impersonator"`
	// serviceAccounts says what becomes of tokens of the cluster's own service accounts.
	// +optional
	ServiceAccounts GatewayServiceAccounts `json:"serviceAccounts,omitempty"`
	// tenantMap gives tenants other names in the cluster. No two may have one name there, and whose
	// own name is another's there is refused, unless it is mapped elsewhere. Not for system.
	// +optional
	TenantMap map[string]string `json:"tenantMap,omitempty"`
	// identity says what of a caller's identity is carried on.
	// +optional
	Identity GatewayIdentity `json:"identity,omitempty"`
	// admission is Required (default): while the cluster does not ask the webhook service about
	// every write, as generated and with failurePolicy Fail, tenants create and change no objects,
	// delete no Namespaces, and see no lists over all namespaces, since labels could be forged.
	// Unchecked looks at nothing.
	// +optional
	Admission GatewayAdmission `json:"admission,omitempty"`
	// namespace in which kubetenant-webhook runs in the cluster: its controller says there of which
	// resources all objects are labelled. Default: kubetenant-system.
	// +optional
	Namespace string `json:"namespace,omitempty"`
}

// GatewayReader is who reads a cluster.
type GatewayReader struct {
	// kubeConfigFile of the cluster. Followed.
	// +required
	KubeConfigFile string `json:"kubeConfigFile"`
}

// GatewayImpersonator is who acts for callers.
type GatewayImpersonator struct {
	// kubeConfigFile of the cluster. Followed.
	// +required
	KubeConfigFile string `json:"kubeConfigFile"`
	// mode is Legacy (default), or Constrained where the impersonator's role has the verbs of
	// constrained impersonation alone (KEP-5284): nobody is impersonated as a service account then.
	// +optional
	Mode ImpersonationMode `json:"mode,omitempty"`
}

// ImpersonationMode says which verbs an impersonator is given.
//
// +kubebuilder:validation:Enum=Legacy;Constrained
type ImpersonationMode string

// The modes.
const (
	ImpersonationLegacy      ImpersonationMode = "Legacy"
	ImpersonationConstrained ImpersonationMode = "Constrained"
)

// GatewayServiceAccounts says what becomes of tokens of a cluster's service accounts.
type GatewayServiceAccounts struct {
	// tokens is Deny (default), or Pass: a token of an issuer below is checked against the cluster's
	// keys, reviewed by it, and passed on.
	// +optional
	Tokens TokenHandling `json:"tokens,omitempty"`
	// issuers of the cluster's tokens. Required with Pass.
	// +optional
	Issuers []string `json:"issuers,omitempty"`
}

// TokenHandling says what becomes of a token.
//
// +kubebuilder:validation:Enum=Deny;Pass
type TokenHandling string

// What becomes of tokens.
const (
	TokensDeny TokenHandling = "Deny"
	TokensPass TokenHandling = "Pass"
)

// GatewayIdentity says what of an identity is carried on to a cluster. The group tenant:<id> and
// the extra kubetenant.dev/tenant always are, groups that begin "system:" never.
type GatewayIdentity struct {
	// withUser carries the user's name. Default: true.
	// +optional
	WithUser *bool `json:"withUser,omitempty"`
	// defaultUser stands for everybody without withUser. It should be bound to nothing in the cluster.
	// +optional
	DefaultUser string `json:"defaultUser,omitempty"`
	// groupPattern matches, as a whole, the groups that are carried (RE2). ""
	// carries none. Default: all.
	// +optional
	GroupPattern *string `json:"groupPattern,omitempty"`
	// usernamePrefix is put before every user name but those of users below. May not begin "system:".
	// +optional
	UsernamePrefix string `json:"usernamePrefix,omitempty"`
	// groupsPrefix is put before every group. May not begin "system:" or "tenant:".
	// +optional
	GroupsPrefix string `json:"groupsPrefix,omitempty"`
	// extras are the further extra keys that are carried: lower-case, with a domain.
	// +optional
	Extras []string `json:"extras,omitempty"`
	// withUID carries the UID. Default: false.
	// +optional
	WithUID bool `json:"withUID,omitempty"`
	// users have other names in the cluster.
	// +optional
	Users []GatewayUser `json:"users,omitempty"`
	// unmapped says what becomes of callers that users does not name: Keep (default) or Deny.
	// +optional
	Unmapped UnmappedUsers `json:"unmapped,omitempty"`
}

// GatewayUser gives a user another name.
type GatewayUser struct {
	// tenant of the user, before tenantMap.
	// +required
	Tenant string `json:"tenant"`
	// user is its name.
	// +required
	User string `json:"user"`
	// as is its name in the cluster. May be no name that an unmapped caller could bear there.
	// +required
	As string `json:"as"`
}

// UnmappedUsers says what becomes of those that no mapping names.
//
// +kubebuilder:validation:Enum=Keep;Deny
type UnmappedUsers string

// What becomes of unmapped users.
const (
	UnmappedKeep UnmappedUsers = "Keep"
	UnmappedDeny UnmappedUsers = "Deny"
)

// GatewayAdmission says whether a cluster has to ask the webhook service.
//
// +kubebuilder:validation:Enum=Required;Unchecked
type GatewayAdmission string

// The values of admission.
const (
	GatewayAdmissionRequired  GatewayAdmission = "Required"
	GatewayAdmissionUnchecked GatewayAdmission = "Unchecked"
)

// GatewayLimits bound what the callers of one tenant have open at one replica. The system
// tenant's have no limits.
type GatewayLimits struct {
	// perTenantRequests that run at the same time; more are answered 429. Default: 64.
	// +optional
	PerTenantRequests *int `json:"perTenantRequests,omitempty"`
	// perTenantStreams: watches, logs that are followed, and whatever is upgraded. Default: 200.
	// +optional
	PerTenantStreams *int `json:"perTenantStreams,omitempty"`
	// bodyBytes bounds a request's body. Default: 16777216.
	// +optional
	BodyBytes *int64 `json:"bodyBytes,omitempty"`
	// timeout of what is no stream. Default: 60s.
	// +optional
	Timeout *metav1.Duration `json:"timeout,omitempty"`
	// goawayPerMillion is of how many in a million requests over HTTP/2 the connection is left, as
	// kube-apiserver's --goaway-chance says, whose default is none: what is open on it goes on, and
	// what comes next connects anew, to another replica maybe. Nobody is sent away from a connection
	// that is younger than a minute. At most 20000; 0 for none. Default: 1000.
	// +optional
	GoawayPerMillion *int `json:"goawayPerMillion,omitempty"`
}

// GatewaySessions are watches, logs that are followed, and whatever is upgraded.
type GatewaySessions struct {
	// endWithCredential ends them when the credential does that they began with: the end of a
	// certificate or of an authority between, a token's exp, a Keystone token's expires_at. What names
	// no end has none. Default: false, as kube-apiserver has it.
	// +optional
	EndWithCredential bool `json:"endWithCredential,omitempty"`
}

// GatewayAudit says what is recorded.
type GatewayAudit struct {
	// policyFile is a Policy of audit.k8s.io/v1, of levels up to Metadata: bodies are
	// the clusters' to record.
	// +required
	PolicyFile string `json:"policyFile"`
	// logPath is the file that events are appended to, "-" for standard output.
	// +required
	LogPath string `json:"logPath"`
}
