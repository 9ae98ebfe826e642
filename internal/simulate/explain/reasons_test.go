// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package explain_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/klog/v2"
	"sigs.k8s.io/yaml"

	"github.com/kubetenant/kubetenant/authz"
	configv1alpha1 "github.com/kubetenant/kubetenant/config/v1alpha1"
	"github.com/kubetenant/kubetenant/internal/simulate/explain"
	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/tenanttest"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

// apply makes the changes of a remedy, as a user would do.
func apply(t *testing.T, q *explain.Query, r *explain.Remedy) {
	t.Helper()
	for ; r != nil; r = r.Then {
		resume, isResume := strings.CutPrefix(r.Command, "kubectl tenant resume ")
		patch, isPatch := strings.CutPrefix(r.Command, "kubectl patch tenant ")
		switch {
		case isResume:
			object := tenantNamed(t, q, tenanttest.ID(t, resume).ObjectName())
			unstructured.RemoveNestedField(object.Object, "spec", "suspension")
			with(t, object)(q)
		case isPatch:
			name, text, found := strings.Cut(patch, " --type=merge -p ")
			var fields map[string]map[string]any
			if err := json.Unmarshal([]byte(strings.Trim(text, "'")), &fields); err != nil || !found {
				t.Fatal(r.Command, err)
			}
			object := tenantNamed(t, q, name)
			for key, value := range fields["spec"] {
				if err := unstructured.SetNestedField(object.Object, value, "spec", key); err != nil {
					t.Fatal(err)
				}
			}
			with(t, object)(q)
		case r.Command != "":
			t.Fatalf("an unknown command: %s", r.Command)
		case strings.HasPrefix(r.YAML, "{"):
			path := filepath.Join(t.TempDir(), "policy.jsonl")
			if err := os.WriteFile(path, []byte(r.YAML), 0o600); err != nil {
				t.Fatal(err)
			}
			q.Config.Authorization.ABAC = &configv1alpha1.ABAC{Path: path}
		case strings.HasPrefix(r.YAML, "authorization:"):
			if err := yaml.UnmarshalStrict([]byte(r.YAML), q.Config); err != nil {
				t.Fatal(err)
			}
		case r.YAML != "":
			with(t, objects(t, r.YAML)...)(q)
		}
	}
}

func tenantNamed(t *testing.T, q *explain.Query, name string) *unstructured.Unstructured {
	t.Helper()
	for id, is := range q.Snapshot.Tenants {
		if id.ObjectName() == name {
			return is.Object.DeepCopy()
		}
	}
	t.Fatalf("there is no Tenant %s", name)
	return nil
}

// objects returns the objects in a YAML file. It sets the grantor of an AccessGrant, as the server
// does.
func objects(t *testing.T, text string) (all []runtime.Object) {
	t.Helper()
	decoder := utilyaml.NewYAMLOrJSONDecoder(bytes.NewReader([]byte(text)), 4096)
	for {
		u := &unstructured.Unstructured{}
		if err := decoder.Decode(&u.Object); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		if u.GetKind() == v1alpha1.KindAccessGrant {
			if err := unstructured.SetNestedStringMap(u.Object,
				map[string]string{"owner": "globex", "tenant": "globex", "user": "bob"}, "spec", "grantor"); err != nil {
				t.Fatal(err)
			}
		}
		all = append(all, u)
	}
}

// aTenant returns the Tenant acme with a spec.
func aTenant(spec map[string]any) *unstructured.Unstructured {
	spec["id"] = "acme"
	u := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	u.SetGroupVersionKind(v1alpha1.SchemeGroupVersion.WithKind(v1alpha1.KindTenant))
	u.SetName("acme")
	return u
}

// deleted returns a Tenant acme that is being deleted.
func deleted(spec map[string]any) *unstructured.Unstructured {
	u := aTenant(spec)
	_ = unstructured.SetNestedField(u.Object, time.Now().UTC().Format(time.RFC3339), "metadata", "deletionTimestamp")
	return u
}

// retired returns the RetiredTenant of a deleted Tenant acme. If over is true, the deletion is
// complete.
func retired(over bool) *unstructured.Unstructured {
	spec := map[string]any{"id": "acme", "uid": "one"}
	if over {
		spec["retiredAt"] = "2026-01-01T00:00:00Z"
	}
	u := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	u.SetGroupVersionKind(v1alpha1.SchemeGroupVersion.WithKind(v1alpha1.KindRetiredTenant))
	u.SetName("acme-one")
	return u
}

// reasonCase is a denied request. If text is empty, the changes of the remedy MUST allow the
// request. Otherwise, the remedy consists only of this text.
type reasonCase struct {
	name   string
	who    user.Info
	r      authorizer.AttributesRecord
	change func(*explain.Query)
	first  string // the beginning of the remedy
	text   string
}

// reasonCases returns denied requests for each reason that can occur in process.
func reasonCases(t *testing.T) map[authz.Reason][]reasonCase {
	t.Helper()
	alice, carol := newUser("alice", "acme", "dev"), newUser("carol", "acme")
	own, write := newRequest("get", "pods", "acme--web"), newRequest("create", "pods", "acme--web")
	of := func(spec map[string]any) func(*explain.Query) { return with(t, aTenant(spec)) }
	always := func(q *explain.Query) { q.Config.Authorization.RequireTenant = configv1alpha1.RequireTenantAlways }
	named, account := newRequest("get", "pods", ""), newRequest("impersonate", "serviceaccounts", "globex--shop")
	named.Name, account.Name = "p", "robot"
	certificate := &user.DefaultInfo{
		Name:   "alice",
		Groups: []string{user.AllAuthenticated, "dev", "tenant:acme"},
		Extra:  map[string][]string{user.CredentialIDKey: {"X509SHA256=1"}},
	}
	revoked := filepath.Join(t.TempDir(), "revoked.yaml")
	if err := os.WriteFile(revoked,
		[]byte("{ apiVersion: kubetenant.dev/v1alpha1, kind: Revocation, users: [ { tenant: acme, name: alice } ] }\n"),
		0o600); err != nil {
		t.Fatal(err)
	}
	const none = "No setting allows this to a tenant."
	return map[authz.Reason][]reasonCase{
		authz.ReasonNoTenant: {{"no tenant", newUser("eve", ""), own, nil, "", "The caller has no tenant."}},
		authz.ReasonBadTenant: {
			{
				"two tenants",
				&user.DefaultInfo{Name: "eve", Extra: map[string][]string{tenant.ExtraKey: {"acme", "globex"}}},
				own,
				nil,
				"",
				"The caller's tenant is not valid",
			},
			{
				"an account of a missing namespace",
				&user.DefaultInfo{
					Name:  "system:serviceaccount:acme--wbe:robot",
					Extra: map[string][]string{tenant.ExtraKey: {"acme"}},
				},
				own,
				nil,
				"",
				"There is no namespace acme--wbe, so its service account has no tenant.",
			},
		},
		authz.ReasonSystemGroup: {
			{
				"a system group",
				newUser("alice", "acme", "system:masters"),
				own,
				nil,
				"",
				"A tenant's caller may not be in a group",
			},
		},
		authz.ReasonMalformed: {
			{
				"a group that becomes a system group when it is trimmed",
				newUser("alice", "acme", " system:masters"),
				own,
				nil,
				"",
				"Issue a credential without white space",
			},
		},
		authz.ReasonRevoked: {{"revoked", alice, own, func(q *explain.Query) {
			q.Config.Authentication.Revocation = &configv1alpha1.RevocationFile{Path: revoked}
		}, "", "The caller is revoked. Remove it from"}},
		authz.ReasonImpersonation: {
			{
				"a group of the system",
				carol,
				newRequest("impersonate", "groups", ""),
				nil,
				"",
				"No setting allows a tenant's caller to impersonate",
			},
		},
		authz.ReasonNotOwned: {
			{
				"another tenant's namespace",
				carol,
				newRequest("get", "secrets", "globex--shop"),
				nil,
				"To allow this, an admin of tenant globex can create:",
				"",
			},
			{
				"system namespace",
				carol,
				newRequest("get", "secrets", "kube-system"),
				nil,
				"No policy file is configured: set authorization.abac.path.",
				"",
			},
			{"unowned namespace", carol, newRequest("get", "secrets", "nobodys"), nil, "", none},
			{"another tenant's, to impersonate", carol, account, nil, "", "No setting allows a tenant's caller to impersonate"},
			{
				"missing, to watch",
				alice,
				newRequest("watch", "pods", "acme--gone"),
				nil,
				"There is no namespace acme--gone.\nThe cluster's admin, or a caller of tenant acme who may create namespaces, " +
					"can create it:",
				"",
			},
			{
				"missing, of another prefix",
				alice,
				newRequest("get", "pods", "globex--gone"),
				nil,
				"",
				"There is no namespace globex--gone. Only tenant globex can have a namespace of that name.",
			},
			{
				"missing, of a tenant's prefix that does not exist",
				alice,
				newRequest("get", "pods", "globx--shop"),
				nil,
				"",
				"There is no namespace globx--shop. Namespaces that tenant acme creates begin with acme--.",
			},
			{
				"missing, of no prefix",
				alice,
				newRequest("get", "pods", "gone"),
				nil,
				"",
				"There is no namespace gone. Namespaces that tenant acme creates begin with acme--.",
			},
			{
				"missing, for a limited reader",
				alice,
				newRequest("get", "pods", "gone"),
				func(q *explain.Query) { q.Limited = true },
				"",
				"The namespace does not exist, or it does not belong to the caller's tenant.",
			},
			{
				"another tenant's, without grants",
				carol,
				newRequest("get", "secrets", "globex--shop"),
				func(q *explain.Query) { q.Config.Authorization.Grants.Enabled = new(bool) },
				"No policy file is configured",
				"",
			},
		},
		authz.ReasonNotLimited: {
			{
				"one object in no namespace",
				alice,
				named,
				nil,
				"",
				"Name a namespace with -n. For a list of all namespaces, add -l kubetenant.dev/tenant=acme.",
			},
		},
		authz.ReasonNotNamed:       nil,
		authz.ReasonNotLabeled:     nil,
		authz.ReasonRules:          nil,
		authz.ReasonOwnerUnknown:   nil,
		authz.ReasonStale:          nil, // occurs only on a live server
		authz.ReasonTenantPath:     nil,
		authz.ReasonTenantPathAll:  nil,
		authz.ReasonTenantPathOnly: nil, // occurs only with a tenant path in the server URL
		authz.ReasonCluster: {
			{"nodes", carol, newRequest("get", "nodes", ""), nil, "To let callers of every tenant read nodes", ""},
			{
				"a service account that reads",
				newUser("system:serviceaccount:acme--web:robot", "acme", "system:serviceaccounts"),
				newRequest("list", "persistentvolumes", ""),
				nil,
				"To let callers of every tenant read persistentvolumes",
				"",
			},
			{"a write", carol, newRequest("delete", "nodes", ""), nil, "No policy file is configured", ""},
			{"a subresource", carol, newRequest("get", "nodes/proxy", ""), nil, "", none},
			{"names of other tenants", carol, newRequest("list", "retiredtenants.kubetenant.dev", ""), func(q *explain.Query) {
				q.Snapshot.Scopes[v1alpha1.Resource(v1alpha1.ResourceRetiredTenants)] = authz.ScopeCluster
			}, "No policy file is configured", ""},
			{
				"a list of unknown scope",
				carol,
				newRequest("list", "widgets.example.com", ""),
				nil,
				"If the API server of this resource honors label selectors",
				"",
			},
			{"one of unknown scope", carol, newRequest("get", "widgets.example.com", ""), nil, "", none},
		},
		authz.ReasonNamespaceVerb: {
			{"a status", carol, newRequest("update", "namespaces/status", "acme--web"), nil, "", none},
		},
		authz.ReasonWildcard: {
			{"any verb", carol, newRequest("*", "pods", "acme--web"), nil, "", "No tenant may use wildcards."},
		},
		authz.ReasonReview: {
			{
				"a review",
				carol,
				newRequest("create", "tokenreviews.authentication.k8s.io", ""),
				nil,
				"To let every tenant review its own tokens and subjects",
				"",
			},
		},
		authz.ReasonPath: {{"metrics", carol, newPathRequest("/metrics"), nil, "No policy file is configured", ""}},
		authz.ReasonNoTenantObject: {
			{
				"a required Tenant",
				alice,
				own,
				always,
				"The Tenant acme does not exist, but authorization.requireTenant requires it.",
				"",
			},
			{
				"a required Tenant, and a role",
				carol,
				own,
				always,
				"The Tenant acme does not exist, but authorization.requireTenant requires it.",
				"",
			},
		},
		authz.ReasonRetired: {
			{
				"a deleted tenant",
				alice,
				own,
				with(t, retired(true)),
				"Tenant acme was deleted. The cluster's admin can give its name to a new tenant.",
				"",
			},
			{"a tenant that is being deleted", alice, own, with(t, retired(false)), "", "The caller's tenant was deleted."},
		},
		authz.ReasonUndated: {{"a certificate of no known time", certificate, own, func(q *explain.Query) {
			q.Config.Authorization.Subject.FromGroups = true
			with(t, retired(true), aTenant(map[string]any{"replaces": "one"}))(q)
		}, "The credential may belong to the deleted tenant acme.", ""}},
		authz.ReasonClosed: {
			{"suspended", alice, own, of(map[string]any{"suspension": "Closed"}), "Tenant acme is suspended (Closed).", ""},
			{
				"suspended, and no role",
				carol,
				own,
				of(map[string]any{"suspension": "Closed"}),
				"Tenant acme is suspended (Closed).",
				"",
			},
			{"closed", alice, own, of(map[string]any{"access": "Closed"}), "Tenant acme has spec.access: Closed.", ""},
			{
				"closed twice",
				alice,
				write,
				of(map[string]any{"access": "ReadOnly", "suspension": "Closed"}),
				"Tenant acme is suspended (Closed).",
				"",
			},
			{
				"a value of a later release",
				alice,
				own,
				of(map[string]any{"access": "Later"}),
				"Tenant acme has spec.access: Later.",
				"",
			},
			{
				"closed, and nothing allows it then",
				carol,
				newRequest("get", "nodes/proxy", ""),
				of(map[string]any{"suspension": "Closed"}),
				"",
				none,
			},
		},
		authz.ReasonReadOnly: {
			{
				"suspended", alice, write, of(map[string]any{"suspension": "ReadOnly"}), "Tenant acme is suspended (ReadOnly).", "",
			},
			{
				"read-only",
				alice,
				write,
				of(map[string]any{"access": "ReadOnly", "suspension": "Open"}),
				"Tenant acme has spec.access: ReadOnly.",
				"",
			},
			{
				"in deletion",
				alice,
				write,
				with(t, deleted(map[string]any{})),
				"",
				"Tenant acme is being deleted. Its callers may only read and delete.",
			},
		},
		authz.ReasonGrant:     nil,
		authz.ReasonAnnounced: nil,
		authz.ReasonABAC:      nil,
		authz.ReasonException: nil, // these allow the request
	}
}

// TestReasons checks that each reason of the boundary has a remedy that works, or a text that
// explains why there is none.
func TestReasons(t *testing.T) {
	all := reasonCases(t)
	for _, reason := range authz.Reasons() {
		cases, known := all[reason]
		if !known {
			t.Errorf("no case for %q", reason)
		}
		allows := reason == authz.ReasonGrant || reason == authz.ReasonAnnounced || reason == authz.ReasonABAC ||
			reason == authz.ReasonException
		if advice := explain.Advice(reason.String(), tenanttest.ID(t, "acme")); (advice == nil) != allows ||
			!allows && advice.Text == "" {
			t.Errorf("the advice for %q is %+v", reason, advice)
		}
		for _, c := range cases {
			var q *explain.Query
			e := explained(t, c.who, c.r, func(query *explain.Query) {
				if c.change != nil {
					c.change(query)
				}
				q = &explain.Query{
					User:     query.User,
					Request:  query.Request,
					Config:   query.Config,
					Snapshot: query.Snapshot,
				}
			})
			at := slices.IndexFunc(e.Steps, func(s explain.Step) bool { return s.Name == "boundary" })
			if e.Allowed() || e.Remedy == nil || !strings.HasSuffix(e.Steps[at].Result, reason.String()) {
				t.Errorf("%s: %+v; want %q", c.name, e, reason)
				continue
			}
			if works := e.Remedy.Command != "" || e.Remedy.YAML != ""; works != (c.text == "") ||
				!strings.HasPrefix(e.Remedy.Text, c.first+c.text) {
				t.Errorf("%s: %+v; want %q", c.name, e.Remedy, c.first+c.text)
				continue
			}
			if c.text != "" {
				continue
			}
			apply(t, q, e.Remedy)
			if e, err := explain.Explain(klog.NewContext(t.Context(), logr.Discard()), q); err != nil || !e.Allowed() {
				t.Errorf("%s: with the remedy: %+v, %v", c.name, e, err)
			}
		}
	}
	if advice := explain.Advice("RBAC: no", tenant.ID{}); advice != nil {
		t.Errorf("the advice for a text that is not a reason is %+v", advice)
	}
}

// TestAdviceNamesTheSetting checks that the advice for a reason names the setting that can allow
// the request.
func TestAdviceNamesTheSetting(t *testing.T) {
	t.Parallel()
	for reason, setting := range map[authz.Reason]string{
		authz.ReasonCluster:       "authorization.sharedClusterResources",
		authz.ReasonNamespaceVerb: "authorization.abac.path",
		authz.ReasonPath:          "authorization.abac.path",
	} {
		t.Run(reason.String(), func(t *testing.T) {
			if advice := explain.Advice(reason.String(), tenanttest.ID(t, "acme")); !strings.Contains(advice.Text, setting) {
				t.Errorf("the advice is %q, without %s", advice.Text, setting)
			}
		})
	}
}
