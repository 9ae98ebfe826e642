// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package grant_test

import (
	"errors"
	"testing"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/kubetenant/kubetenant/authz"
	"github.com/kubetenant/kubetenant/authz/grant"
	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/tenanttest"
)

// TestAnnounced checks that a list or watch over all namespaces is allowed if its field selector
// contains all fields that select the grants announced to the caller's tenant. It is denied if a
// field is missing, if a value, operator, verb or resource differs, or if the selector cannot be
// read.
func TestAnnounced(t *testing.T) {
	all := grant.AnnouncedSelector(tenanttest.ID(t, "a")).String()
	for name, c := range map[string]struct {
		fields string
		change func(*authorizer.AttributesRecord)
		want   bool
	}{
		"all three":      {all, nil, true},
		"an earlier one": {grant.FieldTenant + "=a," + grant.FieldAnnounce + "=true", nil, false},
		"another's status": {
			grant.FieldTenant + "=a," + grant.FieldAnnounce + "=true," + grant.FieldAnnouncedTo + "=b", nil, false,
		},
		"all but a status": {
			grant.FieldTenant + "=a," + grant.FieldAnnounce + "=true," + grant.FieldAnnouncedTo + "!=b", nil, false,
		},
		"watched":          {all, func(a *authorizer.AttributesRecord) { a.Verb = "watch" }, true},
		"and more":         {all + ",metadata.namespace=b", nil, true},
		"none":             {"", nil, false},
		"not the tenant":   {grant.FieldAnnounce + "=true", nil, false},
		"not announced":    {grant.FieldTenant + "=a", nil, false},
		"another tenant":   {grant.FieldTenant + "=b," + grant.FieldAnnounce + "=true", nil, false},
		"all but":          {grant.FieldTenant + "!=a," + grant.FieldAnnounce + "=true", nil, false},
		"announced: false": {grant.FieldTenant + "=a," + grant.FieldAnnounce + "=false", nil, false},
		"deleted":          {all, func(a *authorizer.AttributesRecord) { a.Verb = "deletecollection" }, false},
		"a namespace's":    {all, func(a *authorizer.AttributesRecord) { a.Namespace = "b--web" }, false},
		"one":              {all, func(a *authorizer.AttributesRecord) { a.Name = "x" }, false},
		"their status":     {all, func(a *authorizer.AttributesRecord) { a.Subresource = "status" }, false},
		"another kind":     {all, func(a *authorizer.AttributesRecord) { a.Resource = "tenantquotas" }, false},
		"another group":    {all, func(a *authorizer.AttributesRecord) { a.APIGroup = "" }, false},
		"a path":           {all, func(a *authorizer.AttributesRecord) { a.ResourceRequest = false }, false},
		"not read": {
			all, func(a *authorizer.AttributesRecord) { a.FieldSelectorParsingErr = errors.New("bad") }, false,
		},
	} {
		t.Run(name, func(t *testing.T) {
			a := &authorizer.AttributesRecord{
				Verb:                      "list",
				APIGroup:                  tenant.Domain,
				Resource:                  "accessgrants",
				ResourceRequest:           true,
				FieldSelectorRequirements: fields.ParseSelectorOrDie(c.fields).Requirements(),
			}
			if c.change != nil {
				c.change(a)
			}
			if got, until := grant.AllowsAnnounced(t.Context(),
				&authz.CrossTenantRequest{Attributes: a, Caller: tenanttest.ID(t, "a")}); got != c.want || !until.IsZero() {
				t.Errorf("%t until %v", got, until)
			}
			if got, _ := grant.AllowsAnnounced(t.Context(), &authz.CrossTenantRequest{Attributes: a}); got {
				t.Error("open to nobody's caller")
			}
		})
	}
}
