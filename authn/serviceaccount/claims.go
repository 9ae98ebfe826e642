// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package serviceaccount

import (
	"bytes"
	"encoding/json"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	authenticationtokenjwt "k8s.io/apiserver/pkg/authentication/token/jwt"
	kjson "sigs.k8s.io/json"

	"github.com/kubetenant/kubetenant/tenant"
)

// claims are the claims of a token (k8s.io/kubernetes pkg/serviceaccount/claims.go and legacy.go,
// v1.37.1). Their names are case-sensitive.
type claims struct {
	jwt.RegisteredClaims
	Kubernetes *bound `json:"kubernetes.io,omitempty"`

	LegacyNamespace string `json:"kubernetes.io/serviceaccount/namespace,omitempty"`
	LegacyName      string `json:"kubernetes.io/serviceaccount/service-account.name,omitempty"`
	LegacyUID       string `json:"kubernetes.io/serviceaccount/service-account.uid,omitempty"`
	LegacySecret    string `json:"kubernetes.io/serviceaccount/secret.name,omitempty"`

	Tenant      json.RawMessage `json:"kubetenant.dev/tenant,omitempty"`
	OlderTenant json.RawMessage `json:"kubernetes.io/serviceaccount/tenant,omitempty"`
}

// bound has the claims of tokens from the TokenRequest API.
type bound struct {
	Namespace  string           `json:"namespace,omitempty"`
	Account    ref              `json:"serviceaccount,omitempty"`
	Pod        *ref             `json:"pod,omitempty"`
	Secret     *ref             `json:"secret,omitempty"`
	Node       *ref             `json:"node,omitempty"`
	Validating *ref             `json:"validatingwebhookconfiguration,omitempty"`
	Mutating   *ref             `json:"mutatingwebhookconfiguration,omitempty"`
	WarnAfter  *jwt.NumericDate `json:"warnafter,omitempty"`
}

type ref struct {
	Name string `json:"name,omitempty"`
	UID  string `json:"uid,omitempty"`
}

// UnmarshalJSON matches claim names case-sensitively, because encoding/json would accept "SUB" for
// sub. It also rejects strings in exp, nbf and iat, which must be numbers (RFC 7519, section 2),
// because golang-jwt would accept them.
func (c *claims) UnmarshalJSON(data []byte) error {
	var times struct {
		Expires   json.RawMessage `json:"exp"`
		NotBefore json.RawMessage `json:"nbf"`
		IssuedAt  json.RawMessage `json:"iat"`
	}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(data, &times); err != nil {
		return err
	}
	for _, t := range []json.RawMessage{times.Expires, times.NotBefore, times.IssuedAt} {
		if bytes.HasPrefix(t, []byte(`"`)) {
			return ErrMalformed
		}
	}
	type plain claims
	return kjson.UnmarshalCaseSensitivePreserveInts(data, (*plain)(c))
}

func (c *claims) isLegacy() bool { return c.Issuer == LegacyIssuer }

func (c *claims) namespace() string {
	if c.isLegacy() {
		return c.LegacyNamespace
	}
	return c.Kubernetes.Namespace
}

func (c *claims) warnAfter() time.Time {
	if c.isLegacy() || c.Kubernetes.WarnAfter == nil {
		return time.Time{}
	}
	return c.Kubernetes.WarnAfter.Time
}

// checkTimes checks exp, nbf and iat. They are optional in a legacy token, which may never expire.
// A bound token must expire.
func (c *claims) checkTimes(now time.Time) error {
	switch {
	case c.ExpiresAt == nil && !c.isLegacy(), c.ExpiresAt != nil && !now.Before(c.ExpiresAt.Time):
		return ErrExpired
	case c.NotBefore != nil && c.NotBefore.After(now.Add(leeway)):
		return ErrNotYetValid
	case c.IssuedAt != nil && c.IssuedAt.After(now.Add(leeway)):
		return ErrIssuedInFuture
	}
	return nil
}

// account returns the service account that the claims name.
func (c *claims) account() (*serviceaccount.ServiceAccountInfo, error) {
	info := &serviceaccount.ServiceAccountInfo{}
	switch k := c.Kubernetes; {
	case c.isLegacy():
		info.Namespace, info.Name, info.UID = c.LegacyNamespace, c.LegacyName, c.LegacyUID
		if c.LegacySecret == "" {
			return nil, ErrClaims
		}
	case k == nil:
		return nil, ErrClaims
	case k.Validating != nil || k.Mutating != nil:
		return nil, errUnknownBinding
	default:
		info.Namespace, info.Name, info.UID = k.Namespace, k.Account.Name, k.Account.UID
		info.CredentialID = authenticationtokenjwt.CredentialIDForJTI(c.ID)
		if k.Pod != nil {
			info.PodName, info.PodUID = k.Pod.Name, k.Pod.UID
		}
		if k.Node != nil {
			info.NodeName, info.NodeUID = k.Node.Name, k.Node.UID
		}
	}
	namespace, name, err := serviceaccount.SplitUsername(c.Subject)
	if err != nil || namespace != info.Namespace || name != info.Name || info.UID == "" {
		return nil, ErrClaims
	}
	return info, nil
}

// parseTenant returns the tenant of a claim, which must be a string.
func parseTenant(claim json.RawMessage) (tenant.ID, error) {
	var name string
	if err := json.Unmarshal(claim, &name); err != nil {
		return tenant.ID{}, err
	}
	return tenant.Parse(name)
}
