// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package accessgrant_test

import (
	"errors"
	"testing"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/kubetenant/kubetenant/authz"
	"github.com/kubetenant/kubetenant/authz/accessgrant"
	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/tenanttest"
)

// TestAnnounced checks that a list or watch over all namespaces is allowed if its field selector
// contains all fields that select the grants announced to the caller's tenant. It is denied if a
// field is missing, if a value, operator, verb or resource differs, or if the selector cannot be
// read.
func TestAnnounced(t *testing.T) {
	all := accessgrant.AnnouncedSelector(tenanttest.ID(t, "a")).String()
	for name, c := range map[string]struct {
		fields string
		change func(*authorizer.AttributesRecord)
		want   bool
	}{
		"all required fields": {all, nil, true},
		"without announcedTo": {accessgrant.FieldTenant + "=a," + accessgrant.FieldAnnounce + "=true", nil, false},
		"announced to another tenant": {
			accessgrant.FieldTenant + "=a," + accessgrant.FieldAnnounce + "=true," + accessgrant.FieldAnnouncedTo + "=b",
			nil,
			false,
		},
		"announcedTo with an inequality": {
			accessgrant.FieldTenant + "=a," + accessgrant.FieldAnnounce + "=true," + accessgrant.FieldAnnouncedTo + "!=b",
			nil,
			false,
		},
		"watch":                     {all, func(a *authorizer.AttributesRecord) { a.Verb = "watch" }, true},
		"additional field":          {all + ",metadata.namespace=b", nil, true},
		"no field selector":         {"", nil, false},
		"without the tenant":        {accessgrant.FieldAnnounce + "=true", nil, false},
		"without announce":          {accessgrant.FieldTenant + "=a", nil, false},
		"another tenant":            {accessgrant.FieldTenant + "=b," + accessgrant.FieldAnnounce + "=true", nil, false},
		"tenant with an inequality": {accessgrant.FieldTenant + "!=a," + accessgrant.FieldAnnounce + "=true", nil, false},
		"announce is false":         {accessgrant.FieldTenant + "=a," + accessgrant.FieldAnnounce + "=false", nil, false},
		"deletecollection":          {all, func(a *authorizer.AttributesRecord) { a.Verb = "deletecollection" }, false},
		"in a namespace":            {all, func(a *authorizer.AttributesRecord) { a.Namespace = "b--web" }, false},
		"with a name":               {all, func(a *authorizer.AttributesRecord) { a.Name = "x" }, false},
		"status subresource":        {all, func(a *authorizer.AttributesRecord) { a.Subresource = "status" }, false},
		"another resource":          {all, func(a *authorizer.AttributesRecord) { a.Resource = "tenantquotas" }, false},
		"another API group":         {all, func(a *authorizer.AttributesRecord) { a.APIGroup = "" }, false},
		"non-resource request":      {all, func(a *authorizer.AttributesRecord) { a.ResourceRequest = false }, false},
		"malformed field selector": {
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
			if got, until := accessgrant.AllowsAnnounced(t.Context(),
				&authz.CrossTenantRequest{Attributes: a, Caller: tenanttest.ID(t, "a")}); got != c.want || !until.IsZero() {
				t.Errorf("%t until %v", got, until)
			}
			if got, _ := accessgrant.AllowsAnnounced(t.Context(), &authz.CrossTenantRequest{Attributes: a}); got {
				t.Error("allowed a caller without a tenant")
			}
		})
	}
}
