// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"strconv"
	"strings"

	"k8s.io/apiserver/pkg/apis/apiserver"
	apiserverv1 "k8s.io/apiserver/pkg/apis/apiserver/v1"

	"github.com/kubetenant/kubetenant/tenant"
)

// Authenticator returns upstream's configuration of the issuer, with the tenant as one more
// mapping, of the extra tenant.ExtraKey.
func (o *OIDC) Authenticator() (apiserver.JWTAuthenticator, error) {
	var out apiserver.JWTAuthenticator
	in := o.JWT.DeepCopy()
	in.ClaimMappings.Extra = append(in.ClaimMappings.Extra, apiserverv1.ExtraMapping{
		Key:             tenant.ExtraKey,
		ValueExpression: o.Tenant.mapping(),
	})
	err := apiserverv1.Convert_v1_JWTAuthenticator_To_apiserver_JWTAuthenticator(in, &out, nil)
	return out, err
}

// mapping is the CEL expression that gives the tenant. What is no string gives a map, which
// upstream refuses as the value of an extra: it would take a list, and drop empty strings from it.
func (t *TenantOfClaims) mapping() string {
	switch {
	case t.Claim != "":
		return onlyString("claims[" + quote(t.Claim) + "]")
	case t.Expression != "":
		return onlyString("(" + t.Expression + "\n)") // the line may end in a comment
	}
	return quote(t.Value)
}

func onlyString(expression string) string {
	return "type(" + expression + ") == string ? " + expression + " : dyn({})"
}

// quote is a string literal of CEL that holds nothing but ASCII.
func quote(s string) string {
	return strings.ReplaceAll(strconv.QuoteToASCII(s), `\x`, `\u00`)
}
