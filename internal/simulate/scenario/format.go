package scenario

import (
	"encoding/json"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	configv1alpha1 "github.com/kubetenant/kubetenant/config/v1alpha1"
)

// KindScenario is the kind of a scenario file.
const KindScenario = "Scenario"

// Scenario is a configuration, a cluster and cases. The same file runs in every deployment mode.
type Scenario struct {
	metav1.TypeMeta `json:",inline"`
	// metadata.name names the scenario in reports.
	Metadata Metadata `json:"metadata"`
	// config is a TenancyConfiguration without apiVersion and kind. Its x509 sources need no
	// clientCAFile: the runner makes the authorities.
	Config configv1alpha1.Settings `json:"config,omitempty"`
	// files are what the relative paths of config name.
	Files map[string]string `json:"files,omitempty"`
	// objects are what the cluster holds.
	Objects []runtime.RawExtension `json:"objects,omitempty"`
	// delegate stands behind the boundary: RBAC (default; the roles and bindings among the
	// objects), Allow or NoOpinion.
	Delegate Delegate `json:"delegate,omitempty"`
	// now is the clock. Such a scenario runs in process only.
	Now *metav1.Time `json:"now,omitempty"`
	// invalid, instead of cases: building a stack from config must fail with this in its error.
	Invalid string `json:"invalid,omitempty"`
	// cases are run each for itself, in any order.
	Cases []Case `json:"cases,omitempty"`
}

// Metadata names a scenario.
type Metadata struct {
	Name string `json:"name"`
}

// Delegate is what stands behind the boundary in a scenario.
type Delegate string

// The delegates.
const (
	DelegateRBAC      Delegate = "RBAC"
	DelegateAllow     Delegate = "Allow"
	DelegateNoOpinion Delegate = "NoOpinion"
)

// Case is one credential, what it is used for, and what must come of it.
type Case struct {
	// name says the rule.
	Name string `json:"name"`
	// credential is what the caller presents.
	Credential Credential `json:"credential"`
	// request asks for a decision. At most one of request and admit.
	Request *Request `json:"request,omitempty"`
	// admit sends an object through admission, as if authorized.
	Admit *Admit `json:"admit,omitempty"`
	// expect is what must come of it.
	Expect Expect `json:"expect"`
}

// Credential is what a caller presents. Exactly one kind, or none for an anonymous caller with
// anonymous: true.
type Credential struct {
	X509        *X509Credential  `json:"x509,omitempty"`
	BearerToken string           `json:"bearerToken,omitempty"`
	Basic       *BasicCredential `json:"basic,omitempty"`
	// serviceAccount, oidc, keystone and webhook are bearer tokens that the runner makes.
	ServiceAccount *ServiceAccountCredential `json:"serviceAccount,omitempty"`
	OIDC           *OIDCCredential           `json:"oidc,omitempty"`
	Keystone       *KeystoneCredential       `json:"keystone,omitempty"`
	Webhook        *WebhookCredential        `json:"webhook,omitempty"`
	// user skips authentication and is taken verbatim.
	User *UserCredential `json:"user,omitempty"`
	// anonymous presents nothing.
	Anonymous bool `json:"anonymous,omitempty"`
	// headers are sent besides, for what only a header can carry.
	Headers map[string][]string `json:"headers,omitempty"`
	// impersonate is asked for besides.
	Impersonate *UserCredential `json:"impersonate,omitempty"`
}

// X509Credential is a client certificate that the runner signs on the fly.
type X509Credential struct {
	CommonName         string   `json:"commonName,omitempty"`
	Organization       []string `json:"organization,omitempty"`
	OrganizationalUnit []string `json:"organizationalUnit,omitempty"`
	UID                string   `json:"uid,omitempty"`
	// notAfterIn is the time from now to the end of validity; negative for an expired certificate.
	// Default: 1h.
	NotAfterIn *metav1.Duration `json:"notAfterIn,omitempty"`
	// notBeforeIn is the time from now to the begin of validity. Default: -24h.
	NotBeforeIn *metav1.Duration `json:"notBeforeIn,omitempty"`
	// usages are extended key usages: client (default), server.
	Usages []string `json:"usages,omitempty"`
	// serial is the serial number. Default: a random one.
	Serial int64 `json:"serial,omitempty"`
	// ca is the x509 source whose authority signs; default: the first one. "other" is an authority
	// that no source knows, "front-proxy" the one of the server's front proxies.
	CA string `json:"ca,omitempty"`
}

// BasicCredential is a Basic authorization header.
type BasicCredential struct {
	Username string `json:"username"`
	Password string `json:"password"`
}

// ServiceAccountCredential is a bound token of a service account, signed by the key of the first
// source of that kind.
type ServiceAccountCredential struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// uid in the token. Default: that of the ServiceAccount among the objects.
	UID string `json:"uid,omitempty"`
	// audiences. Default: the issuer.
	Audiences []string `json:"audiences,omitempty"`
	// claims are added; null takes one away.
	Claims map[string]any `json:"claims,omitempty"`
	// expiresIn is the time from now to the end of validity. Default: 1h.
	ExpiresIn *metav1.Duration `json:"expiresIn,omitempty"`
	// notBeforeIn is the time from now to nbf and iat. Default: 0s.
	NotBeforeIn *metav1.Duration `json:"notBeforeIn,omitempty"`
	JWT         Forgery          `json:"jwt,omitempty"`
}

// OIDCCredential is an ID token. Discovery and keys are served for every oidc source; the issuers
// keep the URLs that the configuration gives them.
type OIDCCredential struct {
	// issuer is the oidc source whose issuer signs. Default: the first one.
	Issuer string `json:"issuer,omitempty"`
	// claims are added to iss, aud (the source's first), sub, iat and exp; null takes one away.
	Claims map[string]any `json:"claims,omitempty"`
	// expiresIn is the time from now to the end of validity. Default: 1h.
	ExpiresIn *metav1.Duration `json:"expiresIn,omitempty"`
	JWT       Forgery          `json:"jwt,omitempty"`
}

// Forgery changes how a JSON Web Token is made.
type Forgery struct {
	// header is added to alg, kid and typ; null takes one away.
	Header map[string]any `json:"header,omitempty"`
	// signWith is none (no signature), publicKeyAsHMAC (HS256 with the public key, PEM) or otherKey.
	// Default: the source's key.
	SignWith string `json:"signWith,omitempty"`
	// rawPayload, an object or a string, is the payload as it stands.
	RawPayload json.RawMessage `json:"rawPayload,omitempty"`
}

// How a forged token is signed.
const (
	SignWithNone            = "none"
	SignWithPublicKeyAsHMAC = "publicKeyAsHMAC"
	SignWithOtherKey        = "otherKey"
)

// What a service does instead of answering.
const (
	FaultHang  = "hang"
	FaultClose = "close"
	FaultError = "error"
)

// KeystoneCredential is a token of the first keystone source, and what Keystone answers when it is
// asked about it.
type KeystoneCredential struct {
	// token. Default: a new one of Keystone's form.
	Token string `json:"token,omitempty"`
	// status is the HTTP status. Default: 200.
	Status int `json:"status,omitempty"`
	// body of the answer, an object or a string.
	Body json.RawMessage `json:"body,omitempty"`
	// fault instead of an answer: hang or close.
	Fault string `json:"fault,omitempty"`
}

// WebhookCredential is a token that a webhook source is shown, and what its service answers.
type WebhookCredential struct {
	// source is the webhook source. Default: the first one.
	Source string `json:"source,omitempty"`
	// status is the status of the TokenReview.
	Status authenticationv1.TokenReviewStatus `json:"status,omitempty"`
	// fault instead of an answer: hang, close, or error (an HTTP status of 500).
	Fault string `json:"fault,omitempty"`
}

// UserCredential is an identity.
type UserCredential struct {
	Name   string              `json:"name,omitempty"`
	UID    string              `json:"uid,omitempty"`
	Groups []string            `json:"groups,omitempty"`
	Extra  map[string][]string `json:"extra,omitempty"`
}

// Request is what is asked of the authorizer: a resource, or with path a non-resource request.
type Request struct {
	Verb          string `json:"verb"`
	APIGroup      string `json:"apiGroup,omitempty"`
	Resource      string `json:"resource,omitempty"`
	Subresource   string `json:"subresource,omitempty"`
	Namespace     string `json:"namespace,omitempty"`
	Name          string `json:"name,omitempty"`
	LabelSelector string `json:"labelSelector,omitempty"`
	FieldSelector string `json:"fieldSelector,omitempty"`
	Path          string `json:"path,omitempty"`
}

// Admit is a write that goes through admission.
type Admit struct {
	// operation is CREATE, UPDATE, DELETE or CONNECT.
	Operation string                `json:"operation"`
	Object    *runtime.RawExtension `json:"object,omitempty"`
	OldObject *runtime.RawExtension `json:"oldObject,omitempty"`
	// resource in lower-case plural, or as resource.version.group where that is not the object's own
	// ("serviceaccounts.v1." of a TokenRequest); default: guessed from the object's kind.
	Resource    string `json:"resource,omitempty"`
	Subresource string `json:"subresource,omitempty"`
	Namespace   string `json:"namespace,omitempty"`
	Name        string `json:"name,omitempty"`
	// via is how an UPDATE is sent to a server: update (default), json-patch, merge-patch,
	// strategic, apply or force-apply.
	Via    string `json:"via,omitempty"`
	DryRun bool   `json:"dryRun,omitempty"`
}

// Expect is what must come of a case. What is left out is not compared.
type Expect struct {
	// user is the identity that comes of the credential.
	User *ExpectUser `json:"user,omitempty"`
	// unauthenticated: no source claims the credential (over HTTP: 401 or system:anonymous).
	Unauthenticated bool `json:"unauthenticated,omitempty"`
	// refused: a source claims the credential and refuses it with this in its error (over HTTP: 401).
	Refused *string `json:"refused,omitempty"`
	// decision is allow, deny or no-opinion, with reason a part of the reason.
	Decision string `json:"decision,omitempty"`
	Reason   string `json:"reason,omitempty"`
	// notAllowed: deny or no-opinion.
	NotAllowed bool `json:"notAllowed,omitempty"`
	// admitted, with object a subset of the object after mutation; or denied with this in the error.
	Admitted bool                  `json:"admitted,omitempty"`
	Denied   *string               `json:"denied,omitempty"`
	Object   *runtime.RawExtension `json:"object,omitempty"`
}

// ExpectUser is an expected identity; fields left out are not compared. Groups are those of the
// source in its order, without the ones that every caller is given.
type ExpectUser struct {
	Name   *string             `json:"name,omitempty"`
	UID    *string             `json:"uid,omitempty"`
	Groups *[]string           `json:"groups,omitempty"`
	Tenant *string             `json:"tenant,omitempty"`
	Extra  map[string][]string `json:"extra,omitempty"`
}
