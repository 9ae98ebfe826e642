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
		id, target, want string // want: the field selector, empty if denied
	}{
		{"a", "tenants?", byName},
		{"a", "tenants?limit=500&continue=", byName},
		{"a", "tenants?fieldSelector=metadata.name%3Da", byName},
		{"a", "tenants?fieldSelector=metadata.name%3Da&limit=1", byName},
		{"a", "tenants?fieldSelector=", byName},
		{"a", "tenants?fieldSelector=metadata.name%3Db", ""},
		{"a", "tenants?fieldSelector=metadata.name%3Da,spec.id%3Db", ""},
		{"a", "tenants?fieldSelector=metadata.name!%3Da", ""},
		{"a", "tenants?fieldSelector=spec.tenant%3Da", ""},
		{"a", "tenants?fieldSelector=metadata.name%3Da&fieldSelector=metadata.name%3Db", ""},
		{"a", "tenants?fieldSelector=metadata.name%3Da&fieldselector=metadata.name%3Db", ""},
		{"a", "tenants?FIELDSELECTOR=x", ""},
		{"a", "tenants?fieldSelector=((", ""},
		{"a", "tenants?fieldSelector=%zz", ""},
		{"b", "tenants?", ""},
		{"b", "tenants?fieldSelector=metadata.name%3Db", ""},
		{"unknown", "tenants?", ""},
		{"new", "tenants?", "metadata.name=new"}, // the object does not exist yet
		{"a", "tenantquotas?", "spec.tenant=a"},
		{"b", "tenantquotas?", "spec.tenant=b"}, // several objects describe this tenant
		{"new", "tenantquotas?", "spec.tenant=new"},
		{"a", "tenantquotas?fieldSelector=spec.tenant%3Da", "spec.tenant=a"},
		{"a", "tenantquotas?fieldSelector=spec.tenant%3D%3Da", "spec.tenant=a"},
		{"a", "tenantquotas?fieldSelector=spec.tenant%3Db", ""},
		{"a", "tenantquotas?fieldSelector=spec.tenant!%3Da", ""},
		{"a", "tenantquotas?fieldSelector=metadata.name%3Dof-a", both},
		{"a", "tenantquotas?fieldSelector=metadata.name%3Dof-a,spec.tenant%3Da", both},
		{"a", "tenantquotas?fieldSelector=metadata.name%3Dof-a,spec.tenant%3Db", ""},
		{"a", "tenantquotas?fieldSelector=metadata.name%3Dof-b", ""},
		{"c", "tenantquotas?fieldSelector=metadata.name%3Dc", ""},
		{"new", "tenantquotas?fieldSelector=metadata.name%3Dnew", "metadata.name=new,spec.tenant=new"},
		{"a", "others?", ""},
	} {
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
				t.Errorf("%s of %s: %d, %+v; want it denied", target, c.id, status, got)
			case c.want != "" && (status != http.StatusOK || got.fields != c.want || got.info.FieldSelector != c.want ||
				got.info.Name != name || strings.Contains(got.query, "limit") ||
				strings.Contains(form, "sendInitialEvents") != strings.Contains(got.query, "sendInitialEvents")):
				t.Errorf("%s of %s: %d, %+v; want %s", target, c.id, status, got, c.want)
			}
		}
	}
}

// TestOlderWatchPaths checks the deprecated paths /apis/.../watch/..., which contain the name of
// the object. The handlers reject a field selector with a different name than the path.
func TestOlderWatchPaths(t *testing.T) {
	for _, c := range []struct{ id, target, want string }{
		{"a", "tenants", "metadata.name=a"},
		{"a", "tenants/a", "metadata.name=a"},
		{"a", "tenants/b", ""},
		{"b", "tenants/b", ""},
		{"a", "tenants/a?fieldSelector=metadata.name%3Db", ""},
		{"a", "tenantquotas", "spec.tenant=a"},
		{"a", "tenantquotas/of-a", "metadata.name=of-a,spec.tenant=a"},
		{"a", "tenantquotas/a", "metadata.name=a,spec.tenant=a"},
		{"a", "tenantquotas/of-b", ""},
		{"c", "tenantquotas/c", ""},
	} {
		got, status := sendThrough(t, authz.New(ownObjectOptions(), &recorder{decision: authorizer.DecisionAllow}, nil),
			callerOf(c.id), nil, http.MethodGet, "/apis/kubetenant.dev/v1alpha1/watch/"+c.target)
		if c.want == "" && status != http.StatusForbidden || c.want != "" && (got == nil || got.fields != c.want) {
			t.Errorf("%s of %s: %d, %+v; want %q", c.target, c.id, status, got, c.want)
		}
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
	for _, c := range []struct {
		resource, name, fields string
		list, watch            bool
	}{
		{"tenants", "", "", false, false},
		{"tenants", "a", "", true, true},
		{"tenants", "a", "metadata.name=a", true, true},
		{"tenants", "", "metadata.name=a", true, true},
		{"tenants", "", "metadata.name!=a", false, false},
		{"tenants", "", "metadata.name=b", false, false},
		{"tenants", "", "spec.tenant=a", false, false},
		{"tenants", "b", "", false, false},
		{"tenants", "new", "", false, false},
		{"tenantquotas", "", "", false, false},
		{"tenantquotas", "", "spec.tenant=a", true, true},
		{"tenantquotas", "", "spec.tenant=a,status.x=y", true, true},
		{"tenantquotas", "", "spec.tenant=b", false, false},
		{"tenantquotas", "", "spec.tenant!=a", false, false},
		{"tenantquotas", "of-a", "metadata.name=of-a", true, false}, // an object of another tenant can get the name
		{"tenantquotas", "of-a", "", true, false},
		{"tenantquotas", "a", "metadata.name=a", true, false},
		{"tenantquotas", "of-a", "metadata.name=of-a,spec.tenant=a", true, true},
		{"tenantquotas", "of-b", "metadata.name=of-b,spec.tenant=a", false, false},
		{"tenantquotas", "c", "", false, false},
	} {
		t.Run(c.name, func(t *testing.T) {
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
					t.Errorf("%s %s %q with %q: %v, %s; want %t", verb, c.resource, c.name, c.fields, d, reason, want)
				}
				if !want && verb != "deletecollection" && c.name == "" && reason != authz.ReasonNotNamed.String() {
					t.Errorf("%s %s with %q: %q; want a reason that names the field selector", verb, c.resource, c.fields, reason)
				}
				a.FieldSelectorParsingErr = errSelector
				if d, _, _ := authz.New(ownObjectOptions(), r, nil).Authorize(t.Context(), a); c.name == "" &&
					d != authorizer.DecisionDeny {
					t.Errorf("%s %s with a selector that does not parse: %v", verb, c.resource, d)
				}
				a.FieldSelectorParsingErr = nil
				own := c.name == "" || c.name == "a" || c.name == "of-a"
				d, reason, _ = authz.New(ownObjectOptions(), r, nil).Authorize(selfReviewContext(t.Context()), a)
				if (d != authorizer.DecisionDeny) != (own && verb != "deletecollection") {
					t.Errorf("self review: %s %s %q: %v, %s", verb, c.resource, c.name, d, reason)
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
