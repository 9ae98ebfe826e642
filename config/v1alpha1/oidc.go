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

// Authenticator converts o.JWT to the configuration of upstream's JWT authenticator. It adds a
// mapping that sets the extra [tenant.ExtraKey] to the tenant.
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

// mapping returns the CEL expression whose value is the tenant. If the claim or expression is not a
// string, the value is a map, which upstream rejects as the value of an extra. Without this check,
// upstream would accept a list and drop empty strings from it.
func (t *TenantOfClaims) mapping() string {
	switch {
	case t.Claim != "":
		return onlyString("claims[" + quote(t.Claim) + "]")
	case t.Expression != "":
		return onlyString("(" + t.Expression + "\n)") // the expression may end in a comment
	}
	return quote(t.Value)
}

func onlyString(expression string) string {
	return "type(" + expression + ") == string ? " + expression + " : dyn({})"
}

// quote returns s as a CEL string literal that contains only ASCII characters.
func quote(s string) string {
	return strings.ReplaceAll(strconv.QuoteToASCII(s), `\x`, `\u00`)
}
