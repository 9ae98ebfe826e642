package v1alpha1

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubetenant/kubetenant/tenant"
)

// KindTenancyConfiguration is the kind of the configuration file of a server.
const KindTenancyConfiguration = "TenancyConfiguration"

// TenancyConfiguration is the one configuration file of a server.
type TenancyConfiguration struct {
	metav1.TypeMeta `json:",inline"`
	Settings        `json:",inline"`
}

// Settings is what a TenancyConfiguration says, without its kind: a Scenario embeds it too.
type Settings struct {
	// authentication says which sources turn credentials into identities.
	// +optional
	Authentication Authentication `json:"authentication,omitempty"`
	// authorization says who is the system tenant's, and what is open to whom.
	// +optional
	Authorization Authorization `json:"authorization,omitempty"`
	// admission says what may not stand in tenant space.
	// +optional
	Admission Admission `json:"admission,omitempty"`
	// service configures kubetenant-webhook.
	// +optional
	Service Service `json:"service,omitempty"`
	// gateway configures kubetenant-gateway.
	// +optional
	Gateway *Gateway `json:"gateway,omitempty"`
}

// Authentication lists the sources of identities.
type Authentication struct {
	// qualifyNames makes user alice of tenant a "a:alice", and her groups "a:<group>", so that one
	// RBAC subject never means two tenants' callers. Callers of the system tenant and service
	// accounts are never changed. Default: false.
	// +optional
	QualifyNames bool `json:"qualifyNames,omitempty"`
	// limits bound the identities that sources and the server's own chain may answer with:
	// who is larger is refused.
	// +optional
	Limits IdentityLimits `json:"limits,omitempty"`
	// revocation names the file of what no longer counts, whatever the source.
	// +optional
	Revocation *RevocationFile `json:"revocation,omitempty"`
	// sources are asked in this order, after a frontProxy wherever that stands. A source that
	// claims a credential and refuses it ends the request.
	// +optional
	Sources []Source `json:"sources"`
}

// IdentityLimits bound one identity.
type IdentityLimits struct {
	// bytes of its name, UID, groups, extra keys and values together. Default: 131072 (128 KiB).
	// +optional
	Bytes int `json:"bytes,omitempty"`
	// groups, without those that the server adds. Default: 2000.
	// +optional
	Groups int `json:"groups,omitempty"`
}

// Source is one source of identities. Exactly one kind must be set.
type Source struct {
	// name stands in the identity's extra kubetenant.dev/source, in logs and in metrics; a
	// lower-case DNS label, unique in the file.
	// +required
	Name string `json:"name"`
	// tenants that the source may mint: names, or "*" for any but system. Default for x509,
	// tokenFile, basicAuthFile and serviceAccount, which the cluster's own admin feeds: ["*", system].
	// The others have no default.
	// +optional
	Tenants []string `json:"tenants"`
	// usernamePrefix is put before every user name, before reserved names are refused. May not
	// begin "system:". Not for serviceAccount.
	// +optional
	UsernamePrefix string `json:"usernamePrefix,omitempty"`
	// groupsPrefix is put before every group, before reserved names are refused. May not begin
	// "system:" or "tenant:". Not for serviceAccount.
	// +optional
	GroupsPrefix string `json:"groupsPrefix,omitempty"`

	// x509: client certificates.
	X509 *X509 `json:"x509,omitempty"`
	// tokenFile: static bearer tokens.
	TokenFile *CredentialFile `json:"tokenFile,omitempty"`
	// basicAuthFile: user names and passwords. At most one source may have this kind: it claims
	// every Basic header.
	BasicAuthFile *CredentialFile `json:"basicAuthFile,omitempty"`
	// frontProxy: identities in headers of a proxy that kube-apiserver trusts
	// (--requestheader-client-ca-file). At most one source may have this kind.
	FrontProxy *FrontProxy `json:"frontProxy,omitempty"`
	// serviceAccount: tokens of the cluster's own service accounts.
	ServiceAccount *ServiceAccount `json:"serviceAccount,omitempty"`
	// oidc: ID tokens of one OpenID Connect issuer. No two sources may have one issuer.
	OIDC *OIDC `json:"oidc,omitempty"`
	// keystone: tokens of an OpenStack Keystone.
	Keystone *Keystone `json:"keystone,omitempty"`
	// webhook: tokens that an external TokenReview service knows.
	Webhook *Webhook `json:"webhook,omitempty"`
}

// OldFormat says what becomes of a certificate without a tenant organization.
type OldFormat string

const (
	// OldFormatAllow reads the tenant from the common name, up to its first ":".
	OldFormatAllow OldFormat = "Allow"
	// OldFormatDeny refuses the certificate.
	OldFormatDeny OldFormat = "Deny"
)

// X509 configures client certificates.
type X509 struct {
	// clientCAFile holds the certificate authorities, PEM. Watched.
	// +required
	ClientCAFile string `json:"clientCAFile,omitempty"`
	// systemOrganizations are the organizations that make an old-format certificate without a
	// tenant in its common name the system tenant's. Nobody else's groups may hold them.
	// Default: ["system:masters", "kubeadm:cluster-admins"].
	// +optional
	SystemOrganizations []string `json:"systemOrganizations"`
	// oldFormat is Allow (default) or Deny.
	// +optional
	OldFormat OldFormat `json:"oldFormat,omitempty"`
}

// CredentialFile configures a CSV file of tokens or passwords.
type CredentialFile struct {
	// path of the file. Watched.
	// +required
	Path string `json:"path"`
	// defaultTenant is the tenant of a record that names none; "" refuses such a record. If left out,
	// such a record belongs to the system tenant in a file in which no record names a tenant, and is
	// refused in any other file.
	// +optional
	DefaultTenant *string `json:"defaultTenant,omitempty"`
}

// RevocationFile names a file of kind Revocation.
type RevocationFile struct {
	// path of the file. Watched; what it says counts within a second. It must exist.
	// +required
	Path string `json:"path"`
}

// FrontProxy has no settings of its own: the server's --requestheader flags are used.
type FrontProxy struct{}

// Mode says whether the boundary's denials count.
type Mode string

const (
	// ModeEnforce denies.
	ModeEnforce Mode = "Enforce"
	// ModeShadow records what would be denied, and denies nothing.
	ModeShadow Mode = "Shadow"
)

// Authorization says who is the system tenant's, and what is open to whom.
type Authorization struct {
	// mode is Enforce (default) or Shadow, in which nothing is denied but revoked callers
	// behind a webhook, and lists are not limited: what would be denied stands in the log, in
	// metrics and in audit events. Authentication and admission are not affected. For bringing
	// in a cluster that is in use.
	// +optional
	Mode Mode `json:"mode,omitempty"`
	// systemSubjects are the identities that are the system tenant's although nothing in them names
	// a tenant.
	// +optional
	SystemSubjects SystemSubjects `json:"systemSubjects,omitempty"`
	// systemNamespaces are the namespaces that always belong to the system tenant, with their
	// service accounts. No caller gives one to a tenant. Default: [kube-system, kube-public,
	// kube-node-lease, default].
	// +optional
	SystemNamespaces []string `json:"systemNamespaces"`
	// requireTenant is Never (default), Warn or Always: whether callers of a tenant without an object
	// of kind Tenant are a tenant's at all. Warn logs of which tenants they come. Always is refused
	// while a namespace has a label of a tenant without one.
	// +optional
	RequireTenant RequireTenant `json:"requireTenant,omitempty"`
	// unboundAllow is all that callers without a tenant may ask for, anonymous ones too; the
	// server's own authorizers still decide.
	// +optional
	UnboundAllow UnboundAllow `json:"unboundAllow,omitempty"`
	// subject says what else tells the tenant of an identity.
	// +optional
	Subject Subject `json:"subject,omitempty"`
	// sharedClusterResources are the cluster-scoped resources that every tenant may read; the
	// server's own authorizers still decide. Default: storageclasses, volumeattributesclasses,
	// ingressclasses, gatewayclasses, runtimeclasses, priorityclasses, volumesnapshotclasses,
	// deviceclasses. An empty list shares nothing.
	// +optional
	SharedClusterResources []GroupResource `json:"sharedClusterResources"`
	// selectableResources are namespaced resources of aggregated servers that tenants may list over
	// all namespaces: the server MUST honour label selectors and its objects carry the tenant's
	// label. Default: pods.metrics.k8s.io, which carry their Pod's labels. An empty list opens none.
	// +optional
	SelectableResources []GroupResource `json:"selectableResources"`
	// olderTenantPaths reads the tenant of paths /api/<version>/tenants/<id>/... and
	// /apis/<group>/<version>/tenants/<id>/... too, where the group serves no resource "tenants".
	// Default: false.
	// +optional
	OlderTenantPaths bool `json:"olderTenantPaths,omitempty"`
	// delegatedReviews lets tenants' callers create TokenReviews and SubjectAccessReviews, where RBAC
	// lets them, about tokens and subjects of their own tenant: another's are answered as ones that
	// nobody knows. It has no effect with the webhook service, because kube-apiserver answers the
	// reviews there. Default: false.
	// +optional
	DelegatedReviews bool `json:"delegatedReviews,omitempty"`
	// abac names a file of policies with tenants.
	// +optional
	ABAC *ABAC `json:"abac,omitempty"`
	// rbac says how RBAC is evaluated.
	// +optional
	RBAC RBAC `json:"rbac,omitempty"`
	// grants says whether tenants may open their namespaces to others.
	// +optional
	Grants AccessGrants `json:"grants,omitempty"`
}

// ABAC configures attribute-based access control.
type ABAC struct {
	// path of the file, one policy a line. Watched.
	// +required
	Path string `json:"path"`
}

// Evaluator names an evaluator of RBAC.
type Evaluator string

const (
	// EvaluatorIndexed costs the same however many bindings others have, and knows the annotation
	// kubetenant.dev/scope.
	EvaluatorIndexed Evaluator = "Indexed"
	// EvaluatorUpstream is kube-apiserver's own, which looks at every binding and does not know the
	// annotation.
	EvaluatorUpstream Evaluator = "Upstream"
)

// RBAC configures the evaluation of RBAC.
type RBAC struct {
	// evaluator is Indexed (default) or Upstream. In kubetenant-webhook, Upstream leaves RBAC to
	// kube-apiserver; Indexed answers for it. In kube-apiserver it has no effect where the server's
	// RBAC cannot be told from the rest of its authorizers: with --authorization-config, or without
	// RBAC in --authorization-mode, or with RBAC behind Webhook there.
	// +optional
	Evaluator Evaluator `json:"evaluator,omitempty"`
}

// AccessGrants configures the grants between tenants.
type AccessGrants struct {
	// enabled lets AccessGrant objects count. Default: true.
	// +optional
	Enabled *bool `json:"enabled,omitempty"`
}

// SystemSubjects are names of the system tenant. A list that is given replaces its default.
type SystemSubjects struct {
	// users by name. Default: system:apiserver, system:kube-controller-manager,
	// system:kube-scheduler, system:kube-proxy, system:cloud-controller-manager,
	// system:konnectivity-server.
	// +optional
	Users []string `json:"users"`
	// userPrefixes begin user names. Default: ["system:bootstrap:"].
	// +optional
	UserPrefixes []string `json:"userPrefixes"`
	// groups. Default: system:masters, system:nodes, system:monitoring, kubeadm:cluster-admins.
	// Must hold system:masters, the server's own loopback identity.
	// +optional
	Groups []string `json:"groups"`
}

// Names are those names, and that of the server's own manager, whom no list leaves out.
func (s *SystemSubjects) Names() *tenant.SystemNames {
	return &tenant.SystemNames{
		Users:        append(slices.Clone(s.Users), tenant.ManagerUser),
		UserPrefixes: s.UserPrefixes,
		Groups:       s.Groups,
	}
}

// UnboundAllow lists what is open to callers without a tenant.
type UnboundAllow struct {
	// paths, compared exactly. Default: /healthz, /livez, /readyz, /version,
	// /.well-known/openid-configuration, /openid/v1/jwks.
	// +optional
	Paths []string `json:"paths"`
	// resources, each one object and one verb. Default: get of the ConfigMap
	// kube-public/cluster-info.
	// +optional
	Resources []ObjectVerb `json:"resources"`
}

// ObjectVerb names one verb on one object.
type ObjectVerb struct {
	// +required
	Verb string `json:"verb"`
	// group is the API group, empty for the core group.
	// +optional
	Group string `json:"group,omitempty"`
	// +required
	Resource string `json:"resource"`
	// namespace, empty for a cluster-scoped resource.
	// +optional
	Namespace string `json:"namespace,omitempty"`
	// +required
	Name string `json:"name"`
}

// Subject says what else tells the tenant of an identity.
type Subject struct {
	// fromGroups takes the tenant from exactly one group tenant:<id> of an identity that came from
	// a client certificate, for clusters whose kube-apiserver authenticates certificates itself.
	// Default: false.
	// +optional
	FromGroups bool `json:"fromGroups,omitempty"`
}

// GroupResource names a resource in all its versions.
type GroupResource struct {
	// group is the API group, empty for the core group.
	// +optional
	Group string `json:"group,omitempty"`
	// +required
	Resource string `json:"resource"`
}

// RequireTenant says whether a tenant needs a Tenant.
type RequireTenant string

const (
	// RequireTenantNever lets the label of namespaces and the credential be enough.
	RequireTenantNever RequireTenant = "Never"
	// RequireTenantWarn logs of which tenants callers come that have no Tenant.
	RequireTenantWarn RequireTenant = "Warn"
	// RequireTenantAlways takes callers of a tenant without a Tenant for nobody's.
	RequireTenantAlways RequireTenant = "Always"
)
