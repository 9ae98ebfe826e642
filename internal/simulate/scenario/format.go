// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

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

// Scenario is a configuration, the objects of a cluster, and test cases. The same file runs in
// every deployment mode. A file may be shorter than a Scenario: docs/scenarios.md describes users,
// templates, values, matrix, columns and rows, which are expanded before decoding.
type Scenario struct {
	metav1.TypeMeta `json:",inline"`
	// metadata.name names the scenario in reports.
	Metadata Metadata `json:"metadata"`
	// config is a TenancyConfiguration without apiVersion and kind. Its x509 sources need no
	// clientCAFile, because the runner creates the certificate authorities.
	Config configv1alpha1.Settings `json:"config,omitempty"`
	// files are the contents of the files that config names with relative paths.
	Files map[string]string `json:"files,omitempty"`
	// objects are the objects in the cluster.
	Objects []runtime.RawExtension `json:"objects,omitempty"`
	// delegate is the authorizer behind the boundary: RBAC, Allow or NoOpinion. Defaults to RBAC,
	// which evaluates the roles and bindings in objects.
	Delegate Delegate `json:"delegate,omitempty"`
	// now sets the clock. A scenario with now runs only in process.
	Now *metav1.Time `json:"now,omitempty"`
	// invalid replaces cases. The scenario passes if config is rejected with an error that contains
	// this text.
	Invalid string `json:"invalid,omitempty"`
	// cases are independent of each other and run in any order.
	Cases []Case `json:"cases,omitempty"`
}

// Metadata names a scenario.
type Metadata struct {
	Name string `json:"name"`
}

// Delegate is the authorizer behind the boundary in a scenario.
type Delegate string

// The values of Delegate.
const (
	DelegateRBAC      Delegate = "RBAC"
	DelegateAllow     Delegate = "Allow"
	DelegateNoOpinion Delegate = "NoOpinion"
)

// Case is one credential, at most one request or write, and the expected result.
type Case struct {
	// name describes the rule.
	Name string `json:"name"`
	// credential is the credential that the caller presents.
	Credential Credential `json:"credential"`
	// request is authorized. Set at most one of request and admit.
	Request *Request `json:"request,omitempty"`
	// admit is a write that goes through the boundary and admission. RBAC is not evaluated.
	Admit *Admit `json:"admit,omitempty"`
	// expect is the expected result.
	Expect Expect `json:"expect"`
}

// Credential is the credential of a caller. Exactly one kind must be set, or none if headers
// contain the credential. Use anonymous: true for a caller without a credential.
type Credential struct {
	X509        *X509Credential  `json:"x509,omitempty"`
	BearerToken string           `json:"bearerToken,omitempty"`
	Basic       *BasicCredential `json:"basic,omitempty"`
	// serviceAccount, oidc, keystone and webhook are bearer tokens that the runner creates.
	ServiceAccount *ServiceAccountCredential `json:"serviceAccount,omitempty"`
	OIDC           *OIDCCredential           `json:"oidc,omitempty"`
	Keystone       *KeystoneCredential       `json:"keystone,omitempty"`
	Webhook        *WebhookCredential        `json:"webhook,omitempty"`
	// user is an identity that is used without authentication.
	User *UserCredential `json:"user,omitempty"`
	// anonymous sends no credential.
	Anonymous bool `json:"anonymous,omitempty"`
	// headers are additional HTTP headers.
	Headers map[string][]string `json:"headers,omitempty"`
	// impersonate is the user to impersonate.
	Impersonate *UserCredential `json:"impersonate,omitempty"`
}

// X509Credential is a client certificate that the runner signs.
type X509Credential struct {
	CommonName         string   `json:"commonName,omitempty"`
	Organization       []string `json:"organization,omitempty"`
	OrganizationalUnit []string `json:"organizationalUnit,omitempty"`
	UID                string   `json:"uid,omitempty"`
	// notAfterIn is the time from now until the certificate expires. It is negative for an expired
	// certificate. Defaults to 1h.
	NotAfterIn *metav1.Duration `json:"notAfterIn,omitempty"`
	// notBeforeIn is the time from now until the certificate is valid. Defaults to -24h.
	NotBeforeIn *metav1.Duration `json:"notBeforeIn,omitempty"`
	// usages are the extended key usages: client or server. Defaults to client.
	Usages []string `json:"usages,omitempty"`
	// serial is the serial number. Defaults to a random number.
	Serial int64 `json:"serial,omitempty"`
	// ca is the x509 source whose certificate authority signs. Defaults to the first x509 source.
	// "other" is an authority that no source trusts. "front-proxy" is the authority of the server's
	// front proxies.
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
	// uid is the UID in the token. Defaults to the UID of the ServiceAccount in objects.
	UID string `json:"uid,omitempty"`
	// audiences defaults to the issuer.
	Audiences []string `json:"audiences,omitempty"`
	// claims are added to the token. null removes a claim.
	Claims map[string]any `json:"claims,omitempty"`
	// expiresIn is the time from now until the token expires. Defaults to 1h.
	ExpiresIn *metav1.Duration `json:"expiresIn,omitempty"`
	// notBeforeIn is the time from now to nbf and iat. Defaults to 0s.
	NotBeforeIn *metav1.Duration `json:"notBeforeIn,omitempty"`
	JWT         Forgery          `json:"jwt,omitempty"`
}

// OIDCCredential is an ID token. The runner serves the discovery document and the keys of every
// oidc source. The issuers keep the URLs from the configuration.
type OIDCCredential struct {
	// issuer is the oidc source whose issuer signs. Defaults to the first oidc source.
	Issuer string `json:"issuer,omitempty"`
	// claims are added to iss, aud (the first audience of the source), sub, iat and exp. null
	// removes a claim.
	Claims map[string]any `json:"claims,omitempty"`
	// expiresIn is the time from now until the token expires. Defaults to 1h.
	ExpiresIn *metav1.Duration `json:"expiresIn,omitempty"`
	JWT       Forgery          `json:"jwt,omitempty"`
}

// Forgery changes a JSON Web Token before it is sent.
type Forgery struct {
	// header is added to alg, kid and typ. null removes a field.
	Header map[string]any `json:"header,omitempty"`
	// signWith is none (no signature), publicKeyAsHMAC (HS256 with the public key, PEM) or
	// otherKey. Defaults to the key of the source.
	SignWith string `json:"signWith,omitempty"`
	// rawPayload is sent as the payload without changes: an object or a string.
	RawPayload json.RawMessage `json:"rawPayload,omitempty"`
}

// The values of [Forgery.SignWith].
const (
	SignWithNone            = "none"
	SignWithPublicKeyAsHMAC = "publicKeyAsHMAC"
	SignWithOtherKey        = "otherKey"
)

// The values of the fault fields.
const (
	FaultHang  = "hang"
	FaultClose = "close"
	FaultError = "error"
)

// KeystoneCredential is a token for the first keystone source, and Keystone's response to its
// validation.
type KeystoneCredential struct {
	// token defaults to a new token in Keystone's format.
	Token string `json:"token,omitempty"`
	// status is the HTTP status. Defaults to 200.
	Status int `json:"status,omitempty"`
	// body is the body of the response: an object or a string.
	Body json.RawMessage `json:"body,omitempty"`
	// fault replaces the response: hang or close.
	Fault string `json:"fault,omitempty"`
}

// WebhookCredential is a token for a webhook source, and the response of its service.
type WebhookCredential struct {
	// source is the webhook source. Defaults to the first webhook source.
	Source string `json:"source,omitempty"`
	// status is the status of the TokenReview.
	Status authenticationv1.TokenReviewStatus `json:"status,omitempty"`
	// fault replaces the response: hang, close, or error (HTTP status 500).
	Fault string `json:"fault,omitempty"`
}

// UserCredential is an identity.
type UserCredential struct {
	Name   string              `json:"name,omitempty"`
	UID    string              `json:"uid,omitempty"`
	Groups []string            `json:"groups,omitempty"`
	Extra  map[string][]string `json:"extra,omitempty"`
}

// Request is a request to authorize. With path, it is a non-resource request.
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

// Admit is a write that goes through the boundary and admission.
type Admit struct {
	// operation is CREATE, UPDATE, DELETE or CONNECT.
	Operation string                `json:"operation"`
	Object    *runtime.RawExtension `json:"object,omitempty"`
	OldObject *runtime.RawExtension `json:"oldObject,omitempty"`
	// resource is the plural name in lower case. If the write goes to another resource than the
	// kind of the object, it is resource.version.group ("serviceaccounts.v1." for a TokenRequest).
	// Defaults to the resource of the object's kind.
	Resource    string `json:"resource,omitempty"`
	Subresource string `json:"subresource,omitempty"`
	Namespace   string `json:"namespace,omitempty"`
	Name        string `json:"name,omitempty"`
	// via specifies how an UPDATE is sent to a server: update, json-patch, merge-patch, strategic,
	// apply or force-apply. Defaults to update.
	Via    string `json:"via,omitempty"`
	DryRun bool   `json:"dryRun,omitempty"`
}

// Expect is the expected result of a case. Omitted fields are not compared.
type Expect struct {
	// user is the authenticated identity.
	User *ExpectUser `json:"user,omitempty"`
	// unauthenticated means that no source recognizes the credential. Over HTTP, the result is 401
	// or system:anonymous.
	Unauthenticated bool `json:"unauthenticated,omitempty"`
	// refused means that a source rejects the credential with an error that contains this text.
	// Over HTTP, the result is 401.
	Refused *string `json:"refused,omitempty"`
	// decision is allow, deny or no-opinion. reason is a part of its reason.
	Decision string `json:"decision,omitempty"`
	Reason   string `json:"reason,omitempty"`
	// notAllowed means deny or no-opinion.
	NotAllowed bool `json:"notAllowed,omitempty"`
	// admitted means that admission accepts the write. The mutated object must then contain all
	// fields of object. denied means that admission rejects the write with an error that contains
	// the value of denied.
	Admitted bool                  `json:"admitted,omitempty"`
	Denied   *string               `json:"denied,omitempty"`
	Object   *runtime.RawExtension `json:"object,omitempty"`
}

// ExpectUser is an expected identity. Omitted fields are not compared. Groups are the groups that
// the source sets, in the source's order, without the groups that every caller gets.
type ExpectUser struct {
	Name   *string             `json:"name,omitempty"`
	UID    *string             `json:"uid,omitempty"`
	Groups *[]string           `json:"groups,omitempty"`
	Tenant *string             `json:"tenant,omitempty"`
	Extra  map[string][]string `json:"extra,omitempty"`
}
