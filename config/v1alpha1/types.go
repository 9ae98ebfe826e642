// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubetenant/kubetenant/tenant"
	tenantv1alpha1 "github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

// KindTenancyConfiguration is the kind of the configuration file of a server.
const KindTenancyConfiguration = "TenancyConfiguration"

// TenancyConfiguration is the configuration file of a server.
//
// +kubebuilder:object:root=true
type TenancyConfiguration struct {
	metav1.TypeMeta `json:",inline"`
	Settings        `json:",inline"`
}

// Settings contains the fields of a TenancyConfiguration except apiVersion and kind. A scenario
// file contains them in its field config.
type Settings struct {
	// authentication specifies the sources that authenticate callers, the maximum size of an identity,
	// and the file of revocations.
	// +optional
	Authentication Authentication `json:"authentication,omitempty"`
	// authorization specifies the boundary between tenants, the system tenant, and the resources
	// that every tenant may read.
	// +optional
	Authorization Authorization `json:"authorization,omitempty"`
	// admission specifies the settings of the admission plugins.
	// +optional
	Admission Admission `json:"admission,omitempty"`
	// fairUse specifies the default limits and the default priority level of the requests of each
	// tenant. A field that is set in spec.fairUse of a Tenant overrides this default. It has no effect
	// in kubetenant-webhook.
	// +optional
	FairUse tenantv1alpha1.FairUse `json:"fairUse,omitzero"`
	// usage specifies how the server records the resources that each tenant uses.
	// +optional
	Usage Usage `json:"usage,omitzero"`
	// audit specifies where the server writes audit streams, one for the system and one for each
	// tenant. A change takes effect when the server restarts. If unset, no streams are written.
	// +optional
	Audit *Audit `json:"audit,omitempty"`
	// service specifies the settings of kubetenant-webhook.
	// +optional
	Service Service `json:"service,omitempty"`
	// gateway specifies the settings of kubetenant-gateway. Required by kubetenant-gateway; if unset,
	// no gateway is configured.
	// +optional
	Gateway *Gateway `json:"gateway,omitempty"`
}

// Authentication specifies the sources that authenticate callers, the maximum size of an identity,
// and the file of revocations.
type Authentication struct {
	// qualifyNames specifies whether the server adds the tenant as a prefix to the names of users and
	// groups. User alice of tenant a becomes "a:alice", and the groups of the user become "a:<group>".
	// An RBAC subject then never matches callers of two tenants. The names of callers of the system
	// tenant and of service accounts are not changed. Defaults to false.
	// +optional
	QualifyNames bool `json:"qualifyNames,omitempty"`
	// limits specifies the maximum size of an identity. The limits apply to the sources and to the
	// server's own authenticators. A larger identity is rejected.
	// +optional
	Limits IdentityLimits `json:"limits,omitempty"`
	// revocation specifies the file that lists revoked certificates, tokens, users, service accounts
	// and tenants. It applies to every source. If unset, nothing is revoked.
	// +optional
	Revocation *RevocationFile `json:"revocation,omitempty"`
	// sources specifies the sources of identities. The server calls the sources in this order,
	// except that it calls a frontProxy source first, and all sources of bearer tokens at the
	// position of the first one. If a source claims a credential and rejects it, the server calls
	// no other source. Defaults to no sources.
	// +optional
	Sources []Source `json:"sources"`
}

// IdentityLimits specifies the maximum size of an identity.
type IdentityLimits struct {
	// bytes specifies the maximum total length, in bytes, of the name, the UID, the groups, the extra
	// keys and the extra values. Must be between 1 and 1048576. Defaults to 131072.
	// +optional
	Bytes int `json:"bytes,omitempty"`
	// groups specifies the maximum number of groups, without the groups that the server adds. Must be
	// between 1 and 20000. Defaults to 2000.
	// +optional
	Groups int `json:"groups,omitempty"`
}

// Source is one source of identities. Exactly one kind must be set.
type Source struct {
	// name specifies the name of the source. The name appears in the extra kubetenant.dev/source of
	// identities, in logs and in metrics. Must be a lower-case DNS label and unique in the file.
	// +required
	Name string `json:"name"`
	// tenants specifies the tenants that the source may assert: names, or "*" for every tenant except
	// system. Defaults to ["*", system] for x509, tokenFile, basicAuthFile and serviceAccount.
	// Required for the other kinds.
	// +optional
	Tenants []string `json:"tenants"`
	// usernamePrefix specifies a prefix for every user name. The server adds the prefix before it
	// rejects reserved names. Must not begin with "system:". Must be empty for serviceAccount.
	// Defaults to no prefix.
	// +optional
	UsernamePrefix string `json:"usernamePrefix,omitempty"`
	// groupsPrefix specifies a prefix for every group. The server adds the prefix before it rejects
	// reserved names. Must not begin with "system:" or "tenant:". Must be empty for serviceAccount.
	// Defaults to no prefix.
	// +optional
	GroupsPrefix string `json:"groupsPrefix,omitempty"`

	// x509 specifies that callers authenticate with client certificates.
	X509 *X509 `json:"x509,omitempty"`
	// tokenFile specifies that callers authenticate with static bearer tokens.
	TokenFile *CredentialFile `json:"tokenFile,omitempty"`
	// basicAuthFile specifies that callers authenticate with user names and passwords. The source
	// claims every Authorization header with the Basic scheme, so at most one source may have this
	// kind.
	BasicAuthFile *CredentialFile `json:"basicAuthFile,omitempty"`
	// frontProxy specifies that a trusted proxy sends identities in headers. The flag
	// --requestheader-client-ca-file of the server specifies the trusted proxies. At most one source
	// may have this kind. Not allowed with gateway.
	FrontProxy *FrontProxy `json:"frontProxy,omitempty"`
	// serviceAccount specifies that callers authenticate with tokens of the cluster's own service
	// accounts.
	ServiceAccount *ServiceAccount `json:"serviceAccount,omitempty"`
	// oidc specifies that callers authenticate with ID tokens of one OpenID Connect issuer. No two
	// sources may have the same issuer.
	OIDC *OIDC `json:"oidc,omitempty"`
	// keystone specifies that callers authenticate with tokens of an OpenStack Keystone.
	Keystone *Keystone `json:"keystone,omitempty"`
	// webhook specifies that callers authenticate with tokens that an external TokenReview service
	// validates.
	Webhook *Webhook `json:"webhook,omitempty"`
}

// OldFormat specifies how a certificate without a tenant organization is handled.
//
// +kubebuilder:validation:Enum=Allow;Deny
type OldFormat string

const (
	// OldFormatAllow accepts the certificate if its common name contains a tenant, or if
	// systemOrganizations or systemUsers matches. The tenant is the part of the common name
	// before the first ":". In a common name that begins with "tenant:", the tenant is the part
	// after this prefix, up to the next ":" or the end.
	OldFormatAllow OldFormat = "Allow"
	// OldFormatDeny rejects the certificate.
	OldFormatDeny OldFormat = "Deny"
)

// X509 configures client certificates.
type X509 struct {
	// clientCAFile specifies the path of the PEM file with the certificate authorities. The server
	// reloads the file when it changes. Required.
	// +required
	ClientCAFile string `json:"clientCAFile,omitempty"`
	// systemOrganizations specifies organizations of the system tenant. A certificate with neither an
	// organization tenant:<id> nor a tenant in its common name belongs to the system tenant if it has
	// one of these organizations. No other caller may have one of them as a group. Must not contain an
	// empty name. Defaults to ["system:masters", "kubeadm:cluster-admins"].
	// +optional
	SystemOrganizations []string `json:"systemOrganizations"`
	// systemUsers specifies user names of the system tenant, for cluster components such as
	// k3s-cloud-controller-manager whose certificate has only a common name. A certificate with
	// neither an organization tenant:<id> nor a tenant in its common name belongs to the system tenant
	// if its common name is in this list. No other caller may have one of these user names. Must not
	// contain an empty name or a colon. Defaults to none.
	// +optional
	SystemUsers []string `json:"systemUsers,omitempty"`
	// oldFormat specifies how a certificate without an organization tenant:<id> is handled. Allow
	// accepts the certificate if its common name contains a tenant, or if systemOrganizations or
	// systemUsers matches. Deny rejects the certificate. Defaults to Allow.
	// +optional
	OldFormat OldFormat `json:"oldFormat,omitempty"`
}

// CredentialFile configures a CSV file of tokens or passwords.
type CredentialFile struct {
	// path specifies the path of the CSV file. The server reloads the file when it changes. Required.
	// +required
	Path string `json:"path"`
	// defaultTenant specifies the tenant of each record that does not name a tenant. If it is ""
	// or unset, a record without a tenant makes the file invalid. Must be one of the tenants of
	// the source.
	// +optional
	DefaultTenant string `json:"defaultTenant,omitempty"`
}

// RevocationFile specifies the path of a file of kind Revocation.
type RevocationFile struct {
	// path specifies the path of a file of kind Revocation. The file must exist. The server applies a
	// change to the file within a second. Required.
	// +required
	Path string `json:"path"`
}

// FrontProxy has no settings of its own. The server's --requestheader flags apply.
type FrontProxy struct{}

// Mode specifies whether the boundary denies requests.
//
// +kubebuilder:validation:Enum=Enforce;Shadow
type Mode string

const (
	// ModeEnforce denies requests.
	ModeEnforce Mode = "Enforce"
	// ModeShadow records the requests that Enforce would deny, and does not deny them.
	ModeShadow Mode = "Shadow"
)

// Authorization specifies the boundary between tenants, the system tenant, and the resources that
// every tenant may read.
type Authorization struct {
	// mode specifies whether the boundary denies requests: Enforce or Shadow. In Shadow, the
	// server records each request that it would deny in the log, in metrics and in audit events,
	// and does not restrict lists. Revoked callers, callers of deleted tenants, and requests that
	// the access of a tenant does not allow are still denied. Authentication and admission are
	// not affected. Use Shadow to introduce tenants in a cluster that is in use. Defaults to
	// Enforce.
	// +optional
	Mode Mode `json:"mode,omitempty"`
	// systemSubjects specifies the identities that belong to the system tenant although they do not
	// name a tenant.
	// +optional
	SystemSubjects SystemSubjects `json:"systemSubjects,omitempty"`
	// systemNamespaces specifies the namespaces that always belong to the system tenant. Their service
	// accounts belong to the system tenant too. No caller can assign one of these namespaces to a
	// tenant. Each entry must be the name of a namespace. Must contain kube-system. Defaults to
	// [kube-system, kube-public, kube-node-lease, default].
	// +optional
	SystemNamespaces []string `json:"systemNamespaces"`
	// requireTenant specifies whether each tenant must have an object of kind Tenant: Never, Warn or
	// Always. With Always, the server treats the callers of a tenant without a Tenant object as
	// callers without a tenant. The server rejects Always while a namespace has the label of a tenant
	// without a Tenant object. Defaults to Never.
	// +optional
	RequireTenant RequireTenant `json:"requireTenant,omitempty"`
	// unboundAllow specifies the only requests that callers without a tenant may make, including
	// anonymous callers. The server's own authorizers must allow the requests too.
	// +optional
	UnboundAllow UnboundAllow `json:"unboundAllow,omitempty"`
	// subject specifies additional ways to find the tenant of an identity.
	// +optional
	Subject Subject `json:"subject,omitempty"`
	// sharedClusterResources specifies the cluster-scoped resources that the callers of every tenant
	// may read. The server's own authorizers must allow the reads too. An empty list shares nothing.
	// Must not contain wildcards or subresources. Defaults to storageclasses.storage.k8s.io,
	// volumeattributesclasses.storage.k8s.io, ingressclasses.networking.k8s.io,
	// gatewayclasses.gateway.networking.k8s.io, runtimeclasses.node.k8s.io,
	// priorityclasses.scheduling.k8s.io, volumesnapshotclasses.snapshot.storage.k8s.io and
	// deviceclasses.resource.k8s.io.
	// +optional
	SharedClusterResources []GroupResource `json:"sharedClusterResources"`
	// selectableResources specifies namespaced resources of aggregated servers that a tenant's callers
	// may list over all namespaces. The aggregated server MUST apply label selectors. Its objects MUST
	// have the label of the tenant. An empty list allows no such resources. Must not contain wildcards
	// or subresources. Defaults to pods.metrics.k8s.io, whose objects have the labels of their Pods.
	// +optional
	SelectableResources []GroupResource `json:"selectableResources"`
	// olderTenantPaths specifies whether the server also accepts the paths
	// /api/<version>/tenants/<id>/... and /apis/<group>/<version>/tenants/<id>/..., which limit a
	// request to the named tenant. An API group that has its own resource "tenants" is excluded.
	// Defaults to false.
	// +optional
	OlderTenantPaths bool `json:"olderTenantPaths,omitempty"`
	// delegatedReviews specifies whether a tenant's callers may create TokenReviews and
	// SubjectAccessReviews. RBAC must allow the requests too. The server answers reviews of tokens and
	// subjects of the caller's own tenant. It answers all other reviews as if the token or subject
	// were unknown. The field has no effect in the webhook service, because kube-apiserver answers
	// reviews there. Defaults to false.
	// +optional
	DelegatedReviews bool `json:"delegatedReviews,omitempty"`
	// abac specifies a file of attribute-based policies with tenants. If unset, there are no such
	// policies.
	// +optional
	ABAC *ABAC `json:"abac,omitempty"`
	// rbac specifies how RBAC is evaluated.
	// +optional
	RBAC RBAC `json:"rbac,omitempty"`
	// grants specifies whether the objects of kind AccessGrant apply. With an AccessGrant, a tenant
	// allows callers of another tenant to access its namespace.
	// +optional
	Grants AccessGrants `json:"grants,omitempty"`
}

// ABAC configures attribute-based access control.
type ABAC struct {
	// path specifies the path of the policy file, which has one policy in each line. The server
	// reloads the file when it changes. Required.
	// +required
	Path string `json:"path"`
}

// Evaluator specifies the implementation that evaluates RBAC.
//
// +kubebuilder:validation:Enum=Indexed;Upstream
type Evaluator string

const (
	// EvaluatorIndexed reads only the bindings that name the caller. It supports the annotation
	// kubetenant.dev/scope.
	EvaluatorIndexed Evaluator = "Indexed"
	// EvaluatorUpstream is the evaluator of kube-apiserver, which reads every binding. It ignores the
	// annotation kubetenant.dev/scope.
	EvaluatorUpstream Evaluator = "Upstream"
)

// RBAC configures the evaluation of RBAC.
type RBAC struct {
	// evaluator specifies the implementation that evaluates RBAC: Indexed or Upstream. In
	// kubetenant-webhook, Indexed answers for RBAC and Upstream leaves it to kube-apiserver. In
	// kube-apiserver, Indexed has no effect with --authorization-config. It also has no effect if
	// --authorization-mode has no RBAC or has Webhook before it. Defaults to Indexed.
	// +optional
	Evaluator Evaluator `json:"evaluator,omitempty"`
}

// AccessGrants configures the grants between tenants.
type AccessGrants struct {
	// enabled specifies whether objects of kind AccessGrant apply. Defaults to true.
	// +optional
	Enabled *bool `json:"enabled,omitempty"`
}

// SystemSubjects specifies identities of the system tenant. The default entries of each list are
// always in effect.
type SystemSubjects struct {
	// users specifies the names of users of the system tenant. A configured list extends the default.
	// Must not contain system:anonymous or an empty name. Defaults to system:apiserver,
	// system:kube-controller-manager, system:kube-scheduler, system:kube-proxy,
	// system:cloud-controller-manager and system:konnectivity-server.
	// +optional
	Users []string `json:"users"`
	// userPrefixes specifies prefixes of the names of users of the system tenant. A configured list
	// extends the default. Must not contain a prefix of system:anonymous or of system:serviceaccount:.
	// Defaults to ["system:bootstrap:"].
	// +optional
	UserPrefixes []string `json:"userPrefixes"`
	// groups specifies the groups whose members belong to the system tenant. A configured list extends
	// the default. Must not contain system:authenticated, system:unauthenticated or
	// system:serviceaccounts. Defaults to system:masters, system:nodes, system:monitoring and
	// kubeadm:cluster-admins.
	// +optional
	Groups []string `json:"groups"`
}

// Names returns the configured identities and the user of the server's own manager
// ([tenant.ManagerUser]).
func (s *SystemSubjects) Names() *tenant.SystemNames {
	return &tenant.SystemNames{
		Users:        append(slices.Clone(s.Users), tenant.ManagerUser),
		UserPrefixes: s.UserPrefixes,
		Groups:       s.Groups,
	}
}

// UnboundAllow specifies the requests that are allowed for callers without a tenant.
type UnboundAllow struct {
	// paths specifies the paths that callers without a tenant may request. Each must match exactly,
	// begin with "/" and contain no "*". Defaults to /healthz, /livez, /readyz, /version, /version/,
	// /.well-known/openid-configuration and /openid/v1/jwks.
	// +optional
	Paths []string `json:"paths"`
	// resources specifies the requests for objects that callers without a tenant may make. Each entry
	// specifies one verb on one object. Defaults to get of the ConfigMap kube-public/cluster-info.
	// +optional
	Resources []ObjectVerb `json:"resources"`
}

// ObjectVerb specifies one verb on one object.
type ObjectVerb struct {
	// verb specifies the verb of the request, for example get. Must not contain "*". Required.
	// +required
	Verb string `json:"verb"`
	// group specifies the API group of the object. Must not contain "*". Defaults to the core group.
	// +optional
	Group string `json:"group,omitempty"`
	// resource specifies the resource of the object, for example configmaps. Must not contain "*".
	// Required.
	// +required
	Resource string `json:"resource"`
	// namespace specifies the namespace of the object. Must be empty for a cluster-scoped resource.
	// Must not contain "*".
	// +optional
	Namespace string `json:"namespace,omitempty"`
	// name specifies the name of the object. Must not contain "*". Required.
	// +required
	Name string `json:"name"`
}

// Subject specifies additional ways to find the tenant of an identity.
type Subject struct {
	// fromGroups specifies whether the group tenant:<id> of an identity from a client certificate
	// determines the tenant. The identity must have exactly one such group. Use this field if
	// kube-apiserver authenticates client certificates itself. Defaults to false.
	// +optional
	FromGroups bool `json:"fromGroups,omitempty"`
}

// GroupResource specifies a resource in all of its versions.
type GroupResource struct {
	// group specifies the API group of the resource. Must not contain "*". Defaults to the core group.
	// +optional
	Group string `json:"group,omitempty"`
	// resource specifies the name of the resource in the plural, for example nodes. Must not contain
	// "*" or "/". Required.
	// +required
	Resource string `json:"resource"`
}

// RequireTenant specifies whether each tenant must have an object of kind Tenant.
//
// +kubebuilder:validation:Enum=Never;Warn;Always
type RequireTenant string

const (
	// RequireTenantNever does not require a Tenant object. The label of a namespace or the credential
	// of a caller is enough.
	RequireTenantNever RequireTenant = "Never"
	// RequireTenantWarn does not require a Tenant object either. The server logs the tenants of
	// callers that have no Tenant object.
	RequireTenantWarn RequireTenant = "Warn"
	// RequireTenantAlways treats the callers of a tenant without a Tenant object as callers without a
	// tenant.
	RequireTenantAlways RequireTenant = "Always"
)
