// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package authz_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/kubetenant/kubetenant/authz"
	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/tenanttest"
)

// ownObjectOptions returns options with two kinds of objects that describe tenants. Objects of
// kind tenants are named like their tenant, and object b describes no tenant. Objects of kind
// tenantquotas have any name. No field is known for the tenant "unknown".
func ownObjectOptions() authz.Options {
	o := labeledOptions()
	o.Scopes.Custom = func(schema.GroupResource) authz.Scope { return authz.ScopeCluster }
	about := map[string]string{
		"tenants/a":         "a",
		"tenants/b":         "",
		"tenantquotas/of-a": "a",
		"tenantquotas/of-b": "b",
		"tenantquotas/c":    "b",
	}
	o.DescribesTenant = func(r schema.GroupResource, name string, id tenant.ID) bool {
		if r.Resource != "tenants" && r.Resource != "tenantquotas" || r.Group != "kubetenant.dev" {
			return false
		}
		of, exists := about[r.Resource+"/"+name]
		return exists && of == id.String() || !exists && name == id.String()
	}
	o.ObjectField = func(r schema.GroupResource, id tenant.ID) (string, string) {
		switch {
		case r.Group != "kubetenant.dev" || id.String() == "unknown":
			return "", ""
		case r.Resource == "tenantquotas":
			return "spec.tenant", id.String()
		case r.Resource == "tenants" && id.String() != "b":
			return "metadata.name", id.String()
		}
		return "", ""
	}
	o.TenantWritable = []schema.GroupResource{{Group: "kubetenant.dev", Resource: "tenants"}}
	return o
}

// TestObjectsAboutATenant checks that lists and watches of cluster-scoped objects are limited to
// the objects that describe the caller's tenant, on every path and with every query.
func TestObjectsAboutATenant(t *testing.T) {
	const byName, both = "metadata.name=a", "metadata.name=of-a,spec.tenant=a"
	for _, c := range []struct {
		name, id, target string
		want             string // the field selector, empty if denied
	}{
		{"a list without a selector", "a", "tenants?", byName},
		{"a list with a limit", "a", "tenants?limit=500&continue=", byName},
		{"the own name", "a", "tenants?fieldSelector=metadata.name%3Da", byName},
		{"the own name with a limit", "a", "tenants?fieldSelector=metadata.name%3Da&limit=1", byName},
		{"an empty selector", "a", "tenants?fieldSelector=", byName},
		{"another tenant's name", "a", "tenants?fieldSelector=metadata.name%3Db", ""},
		{"the own name and another tenant's ID", "a", "tenants?fieldSelector=metadata.name%3Da,spec.id%3Db", ""},
		{"every name except the own", "a", "tenants?fieldSelector=metadata.name!%3Da", ""},
		{"a field of another resource", "a", "tenants?fieldSelector=spec.tenant%3Da", ""},
		{
			"two selectors with different names",
			"a", "tenants?fieldSelector=metadata.name%3Da&fieldSelector=metadata.name%3Db", "",
		},
		{
			"a second selector in lowercase",
			"a", "tenants?fieldSelector=metadata.name%3Da&fieldselector=metadata.name%3Db", "",
		},
		{"a selector in uppercase", "a", "tenants?FIELDSELECTOR=x", ""},
		{"a selector that does not parse", "a", "tenants?fieldSelector=((", ""},
		{"an invalid escape in the selector", "a", "tenants?fieldSelector=%zz", ""},
		{"an object that describes no tenant", "b", "tenants?", ""},
		{"the name of an object that describes no tenant", "b", "tenants?fieldSelector=metadata.name%3Db", ""},
		{"a tenant without a field", "unknown", "tenants?", ""},
		{"a tenant without an object", "new", "tenants?", "metadata.name=new"},
		{"the quotas of a tenant with one quota", "a", "tenantquotas?", "spec.tenant=a"},
		{"the quotas of a tenant with several quotas", "b", "tenantquotas?", "spec.tenant=b"},
		{"the quotas of a tenant without a quota", "new", "tenantquotas?", "spec.tenant=new"},
		{"the own quotas", "a", "tenantquotas?fieldSelector=spec.tenant%3Da", "spec.tenant=a"},
		{"the own quotas with two equals signs", "a", "tenantquotas?fieldSelector=spec.tenant%3D%3Da", "spec.tenant=a"},
		{"another tenant's quotas", "a", "tenantquotas?fieldSelector=spec.tenant%3Db", ""},
		{"the quotas of every other tenant", "a", "tenantquotas?fieldSelector=spec.tenant!%3Da", ""},
		{"an own quota by name", "a", "tenantquotas?fieldSelector=metadata.name%3Dof-a", both},
		{"an own quota by name and tenant", "a", "tenantquotas?fieldSelector=metadata.name%3Dof-a,spec.tenant%3Da", both},
		{
			"an own quota by name with another tenant",
			"a", "tenantquotas?fieldSelector=metadata.name%3Dof-a,spec.tenant%3Db", "",
		},
		{"another tenant's quota by name", "a", "tenantquotas?fieldSelector=metadata.name%3Dof-b", ""},
		{"another tenant's quota with the caller's name", "c", "tenantquotas?fieldSelector=metadata.name%3Dc", ""},
		{
			"a missing quota with the caller's name",
			"new", "tenantquotas?fieldSelector=metadata.name%3Dnew", "metadata.name=new,spec.tenant=new",
		},
		{"a resource that describes no tenant", "a", "others?", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, form := range []string{
				"", "&watch=true", "&watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan",
			} {
				target := "/apis/kubetenant.dev/v1alpha1/" + c.target + form
				got, status := sendThrough(t, authz.New(ownObjectOptions(), &recorder{decision: authorizer.DecisionAllow}, nil),
					callerOf(c.id), nil, http.MethodGet, target)
				name := ""
				if selector, err := fields.ParseSelector(c.want); err == nil {
					name, _ = selector.RequiresExactMatch("metadata.name")
				}
				switch {
				case c.want == "" && status != http.StatusForbidden:
					t.Errorf("%s: %d, %+v; want it denied", target, status, got)
				case c.want != "" && (status != http.StatusOK || got.fields != c.want || got.info.FieldSelector != c.want ||
					got.info.Name != name || strings.Contains(got.query, "limit") ||
					strings.Contains(form, "sendInitialEvents") != strings.Contains(got.query, "sendInitialEvents")):
					t.Errorf("%s: %d, %+v; want %s", target, status, got, c.want)
				}
			}
		})
	}
}

// TestOlderWatchPaths checks the deprecated paths /apis/.../watch/..., which contain the name of
// the object. The handlers reject a field selector with a different name than the path.
func TestOlderWatchPaths(t *testing.T) {
	for name, c := range map[string]struct{ id, target, want string }{
		"all tenants":                        {"a", "tenants", "metadata.name=a"},
		"the own tenant":                     {"a", "tenants/a", "metadata.name=a"},
		"another tenant":                     {"a", "tenants/b", ""},
		"an object that describes no tenant": {"b", "tenants/b", ""},
		"the own tenant, another selector":   {"a", "tenants/a?fieldSelector=metadata.name%3Db", ""},
		"all quotas":                         {"a", "tenantquotas", "spec.tenant=a"},
		"an own quota":                       {"a", "tenantquotas/of-a", "metadata.name=of-a,spec.tenant=a"},
		"a missing quota of the caller":      {"a", "tenantquotas/a", "metadata.name=a,spec.tenant=a"},
		"another tenant's quota":             {"a", "tenantquotas/of-b", ""},
		"another tenant's quota, own name":   {"c", "tenantquotas/c", ""},
	} {
		t.Run(name, func(t *testing.T) {
			got, status := sendThrough(t, authz.New(ownObjectOptions(), &recorder{decision: authorizer.DecisionAllow}, nil),
				callerOf(c.id), nil, http.MethodGet, "/apis/kubetenant.dev/v1alpha1/watch/"+c.target)
			if c.want == "" && status != http.StatusForbidden || c.want != "" && (got == nil || got.fields != c.want) {
				t.Errorf("%d, %+v; want %q", status, got, c.want)
			}
		})
	}
}

// TestContinueTokensOfOwnObjectsAreRejected checks that no continue token is accepted. A client can
// forge a token, because it is not signed and contains the name of the first object of the page.
func TestContinueTokensOfOwnObjectsAreRejected(t *testing.T) {
	for _, query := range []string{"", "&fieldSelector=metadata.name%3Da", "&watch=true"} {
		if got, status := sendThrough(t, authz.New(ownObjectOptions(), &recorder{decision: authorizer.DecisionAllow}, nil),
			callerOf("a"), nil, http.MethodGet,
			"/apis/kubetenant.dev/v1alpha1/tenants?continue=x"+query); status != http.StatusGone {
			t.Errorf("a page%s: %d, %+v", query, status, got)
		}
	}
}

// TestWatchesOfOwnObjectsEnd checks that a watch of objects that describe a tenant ends when the
// access level becomes stricter. Otherwise, the watch could continue until another tenant gets the
// name.
func TestWatchesOfOwnObjectsEnd(t *testing.T) {
	for _, resource := range []string{"tenants", "tenantquotas"} {
		s := allowingServer(ownObjectOptions())
		s.handle = func(r *http.Request) {
			s.sessions.EndTenants(isTenant(tenanttest.ID(t, "new")))
			if r.Context().Err() != nil {
				t.Errorf("%s: the watch ended because of another tenant", resource)
			}
			s.sessions.EndTenants(isTenant(tenanttest.ID(t, "a")))
			if r.Context().Err() == nil {
				t.Errorf("%s: the watch did not end", resource)
			}
		}
		target := "/apis/kubetenant.dev/v1alpha1/" + resource + "?watch=true"
		if got, code := s.send(t, callerOf("a"), http.MethodGet, target); got == nil {
			t.Errorf("%s: %d", resource, code)
		}
	}
}

// TestReviewsOfOwnObjects checks access reviews, such as those that kube-apiserver sends to the
// webhook service. No filter limits the reviewed request afterwards, so the review must already
// contain the limit.
func TestReviewsOfOwnObjects(t *testing.T) {
	for name, c := range map[string]struct {
		resource, name, fields string
		list, watch            bool
	}{
		"tenants without a name or selector":          {"tenants", "", "", false, false},
		"the own tenant by name":                      {"tenants", "a", "", true, true},
		"the own tenant by name and selector":         {"tenants", "a", "metadata.name=a", true, true},
		"the own tenant by selector":                  {"tenants", "", "metadata.name=a", true, true},
		"every tenant except the own":                 {"tenants", "", "metadata.name!=a", false, false},
		"another tenant by selector":                  {"tenants", "", "metadata.name=b", false, false},
		"a tenant by a field of another resource":     {"tenants", "", "spec.tenant=a", false, false},
		"an object that describes no tenant":          {"tenants", "b", "", false, false},
		"another tenant by name":                      {"tenants", "new", "", false, false},
		"quotas without a name or selector":           {"tenantquotas", "", "", false, false},
		"quotas of the own tenant":                    {"tenantquotas", "", "spec.tenant=a", true, true},
		"quotas of the own tenant with another field": {"tenantquotas", "", "spec.tenant=a,status.x=y", true, true},
		"quotas of another tenant":                    {"tenantquotas", "", "spec.tenant=b", false, false},
		"quotas of every other tenant":                {"tenantquotas", "", "spec.tenant!=a", false, false},
		"an own quota by name and selector": { // an object of another tenant can get the name
			"tenantquotas", "of-a", "metadata.name=of-a", true, false,
		},
		"an own quota by name":                   {"tenantquotas", "of-a", "", true, false},
		"a missing quota with the caller's name": {"tenantquotas", "a", "metadata.name=a", true, false},
		"an own quota by name and tenant":        {"tenantquotas", "of-a", "metadata.name=of-a,spec.tenant=a", true, true},
		"another tenant's quota with the own tenant's selector": {
			"tenantquotas", "of-b", "metadata.name=of-b,spec.tenant=a", false, false,
		},
		"another tenant's quota by name": {"tenantquotas", "c", "", false, false},
	} {
		t.Run(name, func(t *testing.T) {
			for verb, want := range map[string]bool{"list": c.list, "watch": c.watch, "deletecollection": false} {
				selector, err := fields.ParseSelector(c.fields)
				if err != nil {
					t.Fatal(err)
				}
				a := authorizer.AttributesRecord{
					User:                      callerOf("a"),
					Verb:                      verb,
					APIGroup:                  "kubetenant.dev",
					Resource:                  c.resource,
					Name:                      c.name,
					ResourceRequest:           true,
					FieldSelectorRequirements: selector.Requirements(),
				}
				r := &recorder{decision: authorizer.DecisionNoOpinion}
				d, reason, _ := authz.New(ownObjectOptions(), r, nil).Authorize(t.Context(), a)
				if (d != authorizer.DecisionDeny) != want {
					t.Errorf("%s: %v, %s; want %t", verb, d, reason, want)
				}
				if !want && verb != "deletecollection" && c.name == "" && reason != authz.ReasonNotNamed.String() {
					t.Errorf("%s: %q; want a reason that names the field selector", verb, reason)
				}
				a.FieldSelectorParsingErr = errSelector
				if d, _, _ := authz.New(ownObjectOptions(), r, nil).Authorize(t.Context(), a); c.name == "" &&
					d != authorizer.DecisionDeny {
					t.Errorf("%s with a selector that does not parse: %v", verb, d)
				}
				a.FieldSelectorParsingErr = nil
				own := c.name == "" || c.name == "a" || c.name == "of-a"
				d, reason, _ = authz.New(ownObjectOptions(), r, nil).Authorize(selfReviewContext(t.Context()), a)
				if (d != authorizer.DecisionDeny) != (own && verb != "deletecollection") {
					t.Errorf("self review: %s: %v, %s", verb, d, reason)
				}
			}
		})
	}
}

// TestVerbsOnOwnNames checks each verb on an existing object, on a missing object with the name
// that is reserved for the tenant, and on other names. The attributes of a creation by PATCH or PUT
// contain the name.
func TestVerbsOnOwnNames(t *testing.T) {
	writes := []string{"create", "update", "patch", "delete"}
	for _, c := range []struct {
		id, resource, name string
		own, writable      bool
	}{
		{"a", "tenants", "a", true, true},
		{"new", "tenants", "new", true, true},
		{"new", "tenants", "a", false, true},
		{"a", "tenants", "new", false, true},
		{"b", "tenants", "b", false, true},
		{"a", "tenantquotas", "of-a", true, false},
		{"new", "tenantquotas", "new", true, false},
		{"c", "tenantquotas", "c", false, false},
		{"a", "others", "a", false, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, verb := range []string{"get", "create", "update", "patch", "delete", "deletecollection", "use", "*", ""} {
				for _, subresource := range []string{"", "status"} {
					want := c.own && subresource == "" && (verb == "get" || slices.Contains(writes, verb) && c.writable)
					d, reason, _ := authz.New(ownObjectOptions(), &recorder{decision: authorizer.DecisionNoOpinion}, nil).Authorize(
						t.Context(), authorizer.AttributesRecord{
							User:            callerOf(c.id),
							Verb:            verb,
							APIGroup:        "kubetenant.dev",
							Resource:        c.resource,
							Subresource:     subresource,
							Name:            c.name,
							ResourceRequest: true,
						})
					if (d != authorizer.DecisionDeny) != want {
						t.Errorf("%s: %q %s/%s %s: %v, %s; want %t", c.id, verb, c.resource, subresource, c.name, d, reason, want)
					}
				}
			}
		})
	}
}
