// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Gateway configures kubetenant-gateway, a proxy in front of clusters whose kube-apiserver cannot
// be configured.
type Gateway struct {
	// clusters specifies the clusters behind the gateway. Must have at least one entry. Required.
	// +required
	Clusters []GatewayCluster `json:"clusters"`
	// views specifies the resources that the gateway itself serves to callers.
	// +optional
	Views GatewayViews `json:"views,omitempty"`
	// limits specifies the limits of requests at each replica.
	// +optional
	Limits GatewayLimits `json:"limits,omitempty"`
	// sessions specifies additional conditions that end watches and streams.
	// +optional
	Sessions GatewaySessions `json:"sessions,omitempty"`
	// audit specifies how the gateway writes audit events, as kube-apiserver does. If unset, no events
	// are written.
	// +optional
	Audit *GatewayAudit `json:"audit,omitempty"`
}

// GatewayViews specifies the resources that the gateway itself serves under /gateway and
// /clusters/<name>/gateway.
type GatewayViews struct {
	// clusters specifies whether the gateway serves the list of the clusters that a caller may use.
	// The resource is clusters.gateway.kubetenant.dev and is read-only.
	// +optional
	Clusters GatewayView `json:"clusters,omitempty"`
	// objects specifies namespaced, read-only views of cluster-scoped objects. The gateway serves them
	// for each cluster under /clusters/<name>/gateway. Defaults to none.
	// +optional
	Objects []GatewayObjectView `json:"objects,omitempty"`
}

// GatewayObjectView specifies a namespaced, read-only view of a cluster-scoped resource. A caller
// needs the verb get, list or watch on the resource <name> of the group gateway.kubetenant.dev in
// the namespace.
type GatewayObjectView struct {
	// name specifies the name of the view's resource in the group gateway.kubetenant.dev. Must be a
	// lower-case DNS label that begins with a letter, unique, and not clusters. Required.
	// +required
	Name string `json:"name"`
	// of specifies the cluster-scoped resource behind the view. Required.
	// +required
	Of GatewayViewSource `json:"of"`
	// namespaceFrom specifies the path of the field that names the namespace in an object, for example
	// spec.resources[*].namespace or metadata.labels['example.com/namespace']. If the path leads
	// through a list, a view shows only the entries that name the requested namespace. Required.
	// +required
	NamespaceFrom string `json:"namespaceFrom"`
	// fields specifies the paths of the fields that are shown, in the form of namespaceFrom. A path
	// must lead to a string, number or boolean. An object or a list is not shown. Must have at least
	// one entry. Required.
	// +required
	Fields []string `json:"fields"`
}

// GatewayViewSource specifies the resource behind a view.
type GatewayViewSource struct {
	// group specifies the API group of the resource. Must not contain "*". Defaults to the core group.
	// +optional
	Group string `json:"group,omitempty"`
	// version specifies the version of the resource in which the paths are valid. Required.
	// +required
	Version string `json:"version"`
	// resource specifies the name of the resource in the plural. Must not contain "*" or "/".
	// Required.
	// +required
	Resource string `json:"resource"`
}

// GatewayView configures one view.
type GatewayView struct {
	// enabled specifies whether the gateway serves the view. Defaults to false.
	// +optional
	Enabled bool `json:"enabled,omitempty"`
}

// GatewayCluster specifies one cluster behind the gateway.
type GatewayCluster struct {
	// name specifies the name of the cluster in paths /clusters/<name>/.... Must be a lower-case DNS
	// label and unique. Required.
	// +required
	Name string `json:"name"`
	// labels specifies labels of the cluster in the list of clusters. Callers can select clusters by
	// these labels. Defaults to none.
	// +optional
	Labels map[string]string `json:"labels,omitempty"`
	// root specifies whether the gateway also serves the cluster at paths without /clusters/<name>. At
	// most one cluster may have the value true. Defaults to false.
	// +optional
	Root bool `json:"root,omitempty"`
	// tenants specifies the tenants that may use the cluster: names, or "*" for every tenant except
	// system. Required.
	// +required
	Tenants []string `json:"tenants"`
	// reader specifies the credentials with which the gateway reads the data that the boundary needs
	// from the cluster. Required.
	// +required
	Reader GatewayReader `json:"reader"`
	// impersonator specifies the credentials with which the gateway forwards requests and impersonates
	// their callers. Required.
	// +required
	Impersonator GatewayImpersonator `json:"impersonator"`
	// serviceAccounts specifies how tokens of the cluster's own service accounts are handled.
	// +optional
	ServiceAccounts GatewayServiceAccounts `json:"serviceAccounts,omitempty"`
	// tenantMap specifies the names that tenants have in the cluster, if they differ. The keys are
	// tenants of the gateway, and the values are their names in the cluster. No two tenants may have
	// the same name in the cluster. Must not contain system. Defaults to none.
	// +optional
	TenantMap map[string]string `json:"tenantMap,omitempty"`
	// identity specifies which parts of a caller's identity are sent to the cluster.
	// +optional
	Identity GatewayIdentity `json:"identity,omitempty"`
	// admission specifies whether the cluster must call the webhook service: Required or Unchecked.
	// With Required, the cluster must call the webhook service for every write, with failurePolicy
	// Fail. Until the cluster does so, tenants cannot create or change objects, delete Namespaces, or
	// list over all namespaces. With Unchecked, the gateway does not check the cluster. Defaults to
	// Required.
	// +optional
	Admission GatewayAdmission `json:"admission,omitempty"`
	// namespace specifies the namespace of kubetenant-webhook in the cluster. The controller of
	// kubetenant-webhook reports in this namespace which resources have the label of the tenant on all
	// objects. Must be the name of a namespace. Defaults to kubetenant-system.
	// +optional
	Namespace string `json:"namespace,omitempty"`
}

// GatewayReader specifies the credentials with which the gateway reads from a cluster.
type GatewayReader struct {
	// kubeConfigFile specifies the path of the kubeconfig of the reader. The gateway reloads the file
	// when it changes. Required.
	// +required
	KubeConfigFile string `json:"kubeConfigFile"`
}

// GatewayImpersonator specifies the credentials with which the gateway impersonates callers.
type GatewayImpersonator struct {
	// kubeConfigFile specifies the path of the kubeconfig of the impersonator. The gateway reloads the
	// file when it changes. Required.
	// +required
	KubeConfigFile string `json:"kubeConfigFile"`
	// mode specifies the permissions of the impersonator: Legacy or Constrained. With Constrained, the
	// role of the impersonator has only the verbs of constrained impersonation (KEP-5284), and the
	// gateway impersonates no service account. Defaults to Legacy.
	// +optional
	Mode ImpersonationMode `json:"mode,omitempty"`
}

// ImpersonationMode specifies the permissions of the impersonator.
//
// +kubebuilder:validation:Enum=Legacy;Constrained
type ImpersonationMode string

// The values of ImpersonationMode.
const (
	// ImpersonationLegacy uses the verb impersonate.
	ImpersonationLegacy ImpersonationMode = "Legacy"
	// ImpersonationConstrained uses only the verbs of constrained impersonation (KEP-5284).
	ImpersonationConstrained ImpersonationMode = "Constrained"
)

// GatewayServiceAccounts specifies how tokens of a cluster's service accounts are handled.
type GatewayServiceAccounts struct {
	// tokens specifies how a token of a service account is handled: Deny or Pass. With Pass, the
	// gateway verifies the tokens of the issuers in issuers with the cluster's keys and with a
	// TokenReview in the cluster. It forwards a valid token with the request. Defaults to Deny.
	// +optional
	Tokens TokenHandling `json:"tokens,omitempty"`
	// issuers specifies the issuers of the cluster's tokens. Must not contain an empty issuer.
	// Required with Pass.
	// +optional
	Issuers []string `json:"issuers,omitempty"`
}

// TokenHandling specifies how a token of a service account is handled.
//
// +kubebuilder:validation:Enum=Deny;Pass
type TokenHandling string

// The values of TokenHandling.
const (
	// TokensDeny rejects the token.
	TokensDeny TokenHandling = "Deny"
	// TokensPass verifies the token and forwards it to the cluster.
	TokensPass TokenHandling = "Pass"
)

// GatewayIdentity specifies which parts of a caller's identity are sent to a cluster. The group
// tenant:<id> and the extra kubetenant.dev/tenant are always sent. Groups that begin with "system:"
// are never sent.
type GatewayIdentity struct {
	// withUser specifies whether the user name is sent. Defaults to true.
	// +optional
	WithUser *bool `json:"withUser,omitempty"`
	// defaultUser specifies the user name that is sent for every caller if withUser is false. Do not
	// bind permissions to this user in the cluster. Must not begin with "system:". Required if
	// withUser is false.
	// +optional
	DefaultUser string `json:"defaultUser,omitempty"`
	// groupPattern specifies an RE2 pattern of the groups that are sent. The pattern must match the
	// whole name of a group. With "", no groups are sent. Defaults to every group.
	// +optional
	GroupPattern *string `json:"groupPattern,omitempty"`
	// usernamePrefix specifies a prefix for every user name, except the names that users specifies.
	// Must not begin with "system:", and must not be a prefix of "system:". Defaults to no prefix.
	// +optional
	UsernamePrefix string `json:"usernamePrefix,omitempty"`
	// groupsPrefix specifies a prefix for every group. Must not begin with "system:" or "tenant:", and
	// must not be a prefix of them. Defaults to no prefix.
	// +optional
	GroupsPrefix string `json:"groupsPrefix,omitempty"`
	// extras specifies the keys of additional extras that are sent. A key must be in lower case, have
	// a domain, and not be reserved. Defaults to none.
	// +optional
	Extras []string `json:"extras,omitempty"`
	// withUID specifies whether the UID of the user is sent. Defaults to false.
	// +optional
	WithUID bool `json:"withUID,omitempty"`
	// users specifies users that have another name in the cluster. Not allowed if withUser is false.
	// Defaults to none.
	// +optional
	Users []GatewayUser `json:"users,omitempty"`
	// unmapped specifies how a caller without an entry in users is handled: Keep or Deny. Keep sends
	// the caller's own name with the prefix. Deny denies the request, except for callers of the system
	// tenant. Defaults to Keep.
	// +optional
	Unmapped UnmappedUsers `json:"unmapped,omitempty"`
}

// GatewayUser specifies another name of a user in the cluster.
type GatewayUser struct {
	// tenant specifies the tenant of the user, as the gateway knows it before tenantMap applies. Must
	// not be system. Required.
	// +required
	Tenant string `json:"tenant"`
	// user specifies the name of the user. Required.
	// +required
	User string `json:"user"`
	// as specifies the name of the user in the cluster. Must not begin with "system:". The name must
	// not be possible for a caller without an entry in users. Required.
	// +required
	As string `json:"as"`
}

// UnmappedUsers specifies how a caller without an entry in users is handled.
//
// +kubebuilder:validation:Enum=Keep;Deny
type UnmappedUsers string

// The values of UnmappedUsers.
const (
	// UnmappedKeep sends the caller's own name with the prefix.
	UnmappedKeep UnmappedUsers = "Keep"
	// UnmappedDeny denies the request, except for callers of the system tenant.
	UnmappedDeny UnmappedUsers = "Deny"
)

// GatewayAdmission specifies whether a cluster must call the webhook service.
//
// +kubebuilder:validation:Enum=Required;Unchecked
type GatewayAdmission string

// The values of GatewayAdmission.
const (
	// GatewayAdmissionRequired restricts tenants until the cluster calls the webhook service for every
	// write.
	GatewayAdmissionRequired GatewayAdmission = "Required"
	// GatewayAdmissionUnchecked does not check whether the cluster calls the webhook service.
	GatewayAdmissionUnchecked GatewayAdmission = "Unchecked"
)

// GatewayLimits specifies limits of requests at one replica. The field fairUse of the configuration
// specifies how many requests and streams each tenant may have.
type GatewayLimits struct {
	// bodyBytes specifies the maximum length, in bytes, of the body of a request. Must be at least 1.
	// Defaults to 16777216.
	// +optional
	BodyBytes *int64 `json:"bodyBytes,omitempty"`
	// timeout specifies the maximum duration of a request that is not a stream. Must be a positive
	// duration. Defaults to 60s.
	// +optional
	Timeout *metav1.Duration `json:"timeout,omitempty"`
	// concurrent specifies the maximum number of requests that a replica sends to one cluster at the
	// same time. Streams are excluded. Must be from 1 to 10000. Defaults to 200.
	// +optional
	Concurrent *int `json:"concurrent,omitempty"`
	// queued specifies the maximum number of requests that wait at a replica for one cluster. The
	// tenants with waiting requests are served in turn, but a tenant that has less than an eighth of
	// the concurrent requests is served first. Callers of the system tenant are not limited to an
	// eighth. Further requests get status 429. Must be from 0 to 100000. Defaults to 1000.
	// +optional
	Queued *int `json:"queued,omitempty"`
	// goawayPerMillion specifies how many of a million HTTP/2 requests make the client open a new
	// connection, possibly to another replica. Active requests continue. Connections younger than a
	// minute are excluded. The field corresponds to --goaway-chance of kube-apiserver. Must be from 0
	// to 20000; 0 disables it. Defaults to 1000.
	// +optional
	GoawayPerMillion *int `json:"goawayPerMillion,omitempty"`
}

// GatewaySessions specifies additional conditions that end watches, followed logs and upgraded
// connections.
type GatewaySessions struct {
	// endWithCredential specifies whether a stream ends when the credential of its caller expires. The
	// expiry is the end of a client certificate or of one of its authorities, the claim exp of a
	// token, or expires_at of a Keystone token. Credentials without an expiry are excluded.
	// kube-apiserver does not end streams for this reason. Defaults to false.
	// +optional
	EndWithCredential bool `json:"endWithCredential,omitempty"`
}

// GatewayAudit specifies how the gateway writes audit events.
type GatewayAudit struct {
	// policyFile specifies the path of a Policy of audit.k8s.io/v1. Its levels must not exceed
	// Metadata, because the audit logs of the clusters record request bodies. Required.
	// +required
	PolicyFile string `json:"policyFile"`
	// logPath specifies the path of the file that events are appended to, or "-" for standard output.
	// Required.
	// +required
	LogPath string `json:"logPath"`
	// onFailure specifies how a request is handled if its first event cannot be written, for example
	// because the disk is full: Deny or Ignore. Defaults to Deny.
	// +optional
	OnFailure AuditFailure `json:"onFailure,omitempty"`
	// maxSizeMegabytes specifies the size, in megabytes, at which the gateway renames the file and
	// begins a new one. The field corresponds to --audit-log-maxsize of kube-apiserver. Must be from 0
	// to 1048576; with 0, the gateway does not rotate the file. Must be unset if logPath is "-".
	// Defaults to 100.
	// +optional
	MaxSizeMegabytes *int `json:"maxSizeMegabytes,omitempty"`
	// maxBackups specifies how many renamed files the gateway retains. The gateway deletes the oldest
	// files first. The field corresponds to --audit-log-maxbackup of kube-apiserver. Must not be
	// negative; 0 retains all files. Must be unset if logPath is "-". Defaults to 10.
	// +optional
	MaxBackups *int `json:"maxBackups,omitempty"`
	// maxAgeDays specifies for how many days the gateway retains renamed files. The field corresponds
	// to --audit-log-maxage of kube-apiserver. Must be from 0 to 36500; 0 sets no limit. Must be unset
	// if logPath is "-". Defaults to 0.
	// +optional
	MaxAgeDays *int `json:"maxAgeDays,omitempty"`
}

// AuditFailure specifies how a request is handled if its audit event cannot be written.
//
// +kubebuilder:validation:Enum=Deny;Ignore
type AuditFailure string

// The values of AuditFailure.
const (
	// AuditFailureDeny denies the request.
	AuditFailureDeny AuditFailure = "Deny"
	// AuditFailureIgnore handles the request without an event.
	AuditFailureIgnore AuditFailure = "Ignore"
)

// LogPathStdout is the value of logPath that selects standard output.
const LogPathStdout = "-"
