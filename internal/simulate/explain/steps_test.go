// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package explain_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/klog/v2"

	"github.com/kubetenant/kubetenant/authz"
	configv1alpha1 "github.com/kubetenant/kubetenant/config/v1alpha1"
	"github.com/kubetenant/kubetenant/internal/simulate/explain"
	"github.com/kubetenant/kubetenant/internal/simulate/simulator"
	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

// newUser returns a user of a tenant, or without a tenant if tenantName is empty.
func newUser(name, tenantName string, groups ...string) user.Info {
	u := &user.DefaultInfo{Name: name, Groups: append([]string{user.AllAuthenticated}, groups...)}
	if tenantName != "" {
		u.Extra = map[string][]string{tenant.ExtraKey: {tenantName}}
	}
	return u
}

// newRequest returns a request for a resource, or its subresource, in a namespace.
func newRequest(verb, full, namespace string) authorizer.AttributesRecord {
	resource, subresource, _ := strings.Cut(full, "/")
	resource, group, _ := strings.Cut(resource, ".")
	return authorizer.AttributesRecord{
		ResourceRequest: true,
		APIVersion:      "v1",
		Verb:            verb,
		APIGroup:        group,
		Resource:        resource,
		Subresource:     subresource,
		Namespace:       namespace,
	}
}

func newPathRequest(path string) authorizer.AttributesRecord {
	return authorizer.AttributesRecord{Verb: "get", Path: path}
}

// grant returns an AccessGrant that allows alice of acme to get Secrets in globex--shop.
func grant(t *testing.T) runtime.Object {
	t.Helper()
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&v1alpha1.AccessGrant{
		TypeMeta:   metav1.TypeMeta{APIVersion: tenant.Domain + "/v1alpha1", Kind: v1alpha1.KindAccessGrant},
		ObjectMeta: metav1.ObjectMeta{Name: "g", Namespace: "globex--shop"},
		Spec: v1alpha1.AccessGrantSpec{
			From: v1alpha1.AccessGrantFrom{Tenant: "acme", Users: []string{"alice"}},
			To: []v1alpha1.AccessGrantRule{
				{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"get"}},
			},
			Grantor: &v1alpha1.AccessGrantor{Owner: "globex", Tenant: "globex", User: "bob"},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return &unstructured.Unstructured{Object: content}
}

// explained explains a request in a cluster with the tenants acme and globex. The group dev may
// get and create pods and daemonsets. change modifies the default configuration and the query.
func explained(
	t *testing.T, u user.Info, r authorizer.AttributesRecord, change func(*explain.Query),
) *explain.Explanation {
	t.Helper()
	klog.SetLogger(logr.Discard())
	of := func(name, owner string) runtime.Object {
		return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{tenant.Label: owner}}}
	}
	s, err := simulator.NewSnapshot().With(of("acme--web", "acme"), of("globex--shop", "globex"), of("nobodys", ""),
		&rbacv1.ClusterRole{
			ObjectMeta: metav1.ObjectMeta{Name: "pods"},
			Rules: []rbacv1.PolicyRule{
				{
					Verbs:     []string{"get", "create"},
					APIGroups: []string{"", "apps"},
					Resources: []string{"pods", "daemonsets", "pods/exec"},
				},
			},
		},
		&rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: "acmes"},
			RoleRef:    rbacv1.RoleRef{Kind: "ClusterRole", Name: "pods"},
			Subjects:   []rbacv1.Subject{{Kind: rbacv1.GroupKind, Name: "dev"}},
		})
	if err != nil {
		t.Fatal(err)
	}
	config, err := (&configv1alpha1.Settings{}).Complete()
	if err != nil {
		t.Fatal(err)
	}
	q := &explain.Query{
		User:     u,
		Said:     "a test",
		Request:  r,
		Config:   config,
		Snapshot: s,
	}
	if change != nil {
		change(q)
	}
	e, err := explain.Explain(klog.NewContext(t.Context(), logr.Discard()), q)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// with adds objects to the snapshot of a query.
func with(t *testing.T, more ...runtime.Object) func(*explain.Query) {
	return func(q *explain.Query) {
		var err error
		if q.Snapshot, err = q.Snapshot.With(more...); err != nil {
			t.Fatal(err)
		}
	}
}

// policy configures a policy file with one line.
func policy(t *testing.T, spec string) func(*explain.Query) {
	path := filepath.Join(t.TempDir(), "policy.jsonl")
	if err := os.WriteFile(path,
		[]byte(`{"apiVersion":"abac.authorization.kubernetes.io/v1beta1","kind":"Policy","spec":{`+spec+`}}`+"\n"),
		0o600); err != nil {
		t.Fatal(err)
	}
	return func(q *explain.Query) { q.Config.Authorization.ABAC = &configv1alpha1.ABAC{Path: path} }
}

// TestSteps checks that each step of the explanation states why this part of the stack allowed or
// denied the request.
func TestSteps(t *testing.T) {
	alice, carol := newUser("alice", "acme", "dev"), newUser("carol", "acme")
	own, foreign := newRequest("get", "pods", "acme--web"), newRequest("get", "secrets", "globex--shop")
	shadow := func(q *explain.Query) { q.Config.Authorization.Mode = configv1alpha1.ModeShadow }
	off := func(q *explain.Query) { q.Config.Authorization.Grants.Enabled = new(bool) }
	const line = `"user":"alice","tenant":"acme","space":"globex","apiGroup":"","resource":"secrets",` +
		`"namespace":"globex--shop","readonly":true`
	for name, c := range map[string]struct {
		who      user.Info
		r        authorizer.AttributesRecord
		change   func(*explain.Query)
		decision string
		want     map[string]string // prefixes of the steps
	}{
		"own": {
			alice,
			own,
			nil,
			"allow",
			map[string]string{
				"source":      "a test",
				"user":        "alice; groups system:authenticated, dev",
				"tenant":      "acme, from the extra",
				"request":     "get pods in namespace acme--web",
				"owner":       "tenant acme",
				"boundary":    "delegates, by rule " + string(authz.RuleOwn),
				"grants":      "not needed",
				"policy file": "not configured",
				"rbac":        `allowed by ClusterRoleBinding "acmes"`,
				"admission":   "not applicable: ",
			},
		},
		"no role": {
			carol,
			own,
			nil,
			"deny",
			map[string]string{
				"boundary": "delegates",
				"rbac":     "no role bound to the caller allows it",
				"grants":   "not needed",
			},
		},
		"foreign": {
			alice,
			foreign,
			nil,
			"deny",
			map[string]string{
				"owner":    "tenant globex",
				"boundary": "denies: " + authz.ReasonNotOwned.String(),
				"grants":   "no AccessGrant allows it",
				"rbac":     "not reached; result would be: no role",
			},
		},
		"foreign, with a role": {
			alice,
			newRequest("get", "pods", "globex--shop"),
			nil,
			"deny",
			map[string]string{"rbac": `not reached; result would be: allowed by ClusterRoleBinding "acmes"`},
		},
		"granted": {
			alice,
			foreign,
			with(t, grant(t)),
			"allow",
			map[string]string{
				"boundary": "an exception allows it: " + authz.ReasonGrant.String(),
				"grants":   "an AccessGrant in the namespace allows it",
				"rbac":     "not reached; result would be: ",
			},
		},
		"grants are off": {alice, foreign, off, "deny", map[string]string{"grants": "disabled"}},
		"policy line": {
			alice,
			foreign,
			policy(t, line),
			"allow",
			map[string]string{
				"boundary":    "an exception allows it: " + authz.ReasonABAC.String(),
				"policy file": "line 1 allows it",
				"grants":      "no AccessGrant allows it",
			},
		},
		"other user's line": {carol, foreign, policy(t, line), "deny", map[string]string{"policy file": "no line allows it"}},
		"unneeded line":     {alice, own, policy(t, line), "allow", map[string]string{"policy file": "no line allows it"}},
		"line, system group": {
			newUser("eve", "acme", "system:masters"),
			own,
			policy(t, `"user":"eve","tenant":"acme","space":"acme","apiGroup":"","resource":"pods","namespace":"acme--web"`),
			"deny",
			map[string]string{"policy file": "no line allows it"},
		},
		"mode Shadow": {
			alice,
			newRequest("get", "pods", "globex--shop"),
			shadow,
			"allow",
			map[string]string{
				"boundary": "would deny, but does not (mode: Shadow): " + authz.ReasonNotOwned.String(),
				"rbac":     "allowed by",
			},
		},
		"unowned namespace": {
			alice,
			newRequest("get", "pods", "nobodys"),
			nil,
			"deny",
			map[string]string{"owner": "none, or not looked up"},
		},
		"in no namespace": {
			alice,
			newRequest("get", "nodes", ""),
			nil,
			"deny",
			map[string]string{"owner": "not in a namespace", "boundary": "denies: " + authz.ReasonCluster.String()},
		},
		"a path": {
			alice,
			newPathRequest("/version"),
			nil,
			"deny",
			map[string]string{
				"owner":    "a path has no owner",
				"request":  "get /version",
				"boundary": "delegates, by rule " + string(authz.RulePath),
			},
		},
		"no tenant": {
			newUser("eve", ""),
			own,
			nil,
			"deny",
			map[string]string{"tenant": "none: no source set one", "boundary": "denies: " + authz.ReasonNoTenant.String()},
		},
		"two tenants": {
			&user.DefaultInfo{Name: "eve", Extra: map[string][]string{tenant.ExtraKey: {"acme", "globex"}}},
			own,
			nil,
			"deny",
			map[string]string{"tenant": "none: ", "boundary": "denies: " + authz.ReasonBadTenant.String()},
		},
		"system tenant": {
			newUser("root", "system", "system:masters"),
			foreign,
			nil,
			"allow",
			map[string]string{
				"tenant": "system, from",
				"grants": "not needed",
				"owner":  "not looked up: it does not matter for this caller",
			},
		},
		"of a system group": {
			newUser("eve", "acme", "system:masters"),
			own,
			nil,
			"deny",
			map[string]string{"boundary": "denies: " + authz.ReasonSystemGroup.String()},
		},
	} {
		t.Run(name, func(t *testing.T) {
			e := explained(t, c.who, c.r, c.change)
			if e.Decision != c.decision || e.Allowed() != (c.decision == "allow") || e.Allowed() != (e.Remedy == nil) ||
				!e.Allowed() && e.Reason == "" {
				t.Errorf("%s (%s), remedy %v; want %s", e.Decision, e.Reason, e.Remedy, c.decision)
			}
			for step, want := range c.want {
				if at := slices.IndexFunc(e.Steps, func(s explain.Step) bool { return s.Name == step }); at < 0 ||
					!strings.HasPrefix(e.Steps[at].Result, want) {
					t.Errorf("step %s of %+v; want %q", step, e.Steps, want)
				}
			}
		})
	}
}

// TestRemedies checks that the first change of a remedy applies only to the caller and the object
// of the request. If no change can allow the request, the text explains why.
func TestRemedies(t *testing.T) {
	carol, robot := newUser("carol", "acme"), newUser("system:serviceaccount:acme--web:robot", "acme",
		"system:serviceaccounts", "system:serviceaccounts:acme--web")
	named := newRequest("get", "secrets", "globex--shop")
	named.Name = "one"
	created := newRequest("create", "configmaps", "acme--web")
	created.Name = "new"
	token := newRequest("create", "serviceaccounts/token", "acme--web")
	token.Name = "robot"
	const role, admin, line, none = "To allow this, a caller who has this right in the namespace can create:",
		"To allow this, the cluster's admin can create:", "add a line to that file:", "No setting allows this to a tenant."
	for name, c := range map[string]struct {
		who  user.Info
		r    authorizer.AttributesRecord
		text string
		yaml []string
		not  string
	}{
		"a role": {
			carol,
			newRequest("get", "deployments.apps", "acme--web"),
			role,
			[]string{
				"kind: Role\n", "kind: RoleBinding\n", "namespace: acme--web", "name: carol", "- apps", "name: get-deployments",
			},
			"resourceNames",
		},
		"of an account": {
			robot,
			newRequest("get", "secrets", "acme--web"),
			role,
			[]string{"kind: ServiceAccount\n", "name: robot", "namespace: acme--web"},
			"kind: User",
		},
		"a creation": {carol, created, role, []string{"- create"}, "resourceNames"},
		"of a named subresource": {
			carol,
			token,
			role,
			[]string{"serviceaccounts/token", "resourceNames", "- robot", "name: create-serviceaccounts-token"},
			"",
		},
		"list over all namespaces": {
			carol,
			newRequest("list", "secrets", ""),
			"The annotation limits it to tenant acme",
			[]string{"kind: ClusterRole\n", "kubetenant.dev/scope: acme"},
			"",
		},
		"a shared resource": {
			carol,
			newRequest("list", "storageclasses.storage.k8s.io", ""),
			"Users of that name of every tenant get the right",
			[]string{"kind: ClusterRoleBinding\n"},
			"kubetenant.dev/scope",
		},
		"a path": {carol, newPathRequest("/version"), admin, []string{"nonResourceURLs", "name: get-path"}, "resources:"},
		"a caller of the system tenant": {
			newUser("root", "system"),
			newRequest("get", "nodes", ""),
			admin,
			[]string{"kind: ClusterRole\n"},
			"kubetenant.dev/scope",
		},
		"a grant": {
			carol,
			named,
			"To allow this, an admin of tenant globex can create:\nIt does not apply to server URLs that end in /tenants/acme.",
			[]string{"kind: AccessGrant", "tenant: acme", "- carol", "- one", "namespace: globex--shop"},
			"grantor",
		},
		"a grant to an account": {
			robot,
			named,
			"To allow this, an admin of tenant globex can create:",
			[]string{"serviceAccounts:", "name: robot"},
			"users:",
		},
		"a cluster-scoped read": {
			carol,
			newRequest("get", "nodes", ""),
			"To let callers of every tenant read nodes, the cluster's admin can set this in the configuration.",
			[]string{"sharedClusterResources:", "resource: nodes", "resource: storageclasses"},
			"readonly",
		},
		"a line that reads": {
			carol,
			newRequest("get", "configmaps", "kube-system"),
			line,
			[]string{`"readonly":true`, `"space":"system"`, `"user":"carol"`, `"namespace":"kube-system"`},
			"",
		},
		"a line that writes": {
			carol,
			newRequest("delete", "nodes", ""),
			"No policy file is configured: set authorization.abac.path.",
			[]string{`"resource":"nodes"`, `"namespace":"*"`},
			"readonly",
		},
		"a line for a path": {carol, newPathRequest("/metrics"), line, []string{`"nonResourcePath":"/metrics"`}, ""},
		"a user named *":    {newUser("*", "acme"), newRequest("delete", "nodes", ""), none, nil, ""},
		"a subresource":     {carol, newRequest("get", "nodes/proxy", ""), none, nil, ""},
		"no tenant": {
			newUser("eve", ""),
			newRequest("get", "pods", "acme--web"),
			"The caller has no tenant.",
			nil,
			"",
		},
		"a system group": {
			newUser("eve", "acme", "system:masters"),
			newRequest("get", "pods", "acme--web"),
			"A tenant's caller may not be in a group that begins with system:",
			nil,
			"",
		},
		"impersonation": {
			carol, newRequest("impersonate", "users", ""), "No setting allows a tenant's caller to impersonate", nil, "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			e := explained(t, c.who, c.r, nil)
			if e.Remedy == nil || !strings.Contains(e.Remedy.Text, c.text) || (e.Remedy.YAML == "") != (c.yaml == nil) ||
				c.not != "" && strings.Contains(e.Remedy.YAML, c.not) {
				t.Errorf("%+v; want %q, without %q", e.Remedy, c.text, c.not)
				return
			}
			for _, want := range c.yaml {
				if !strings.Contains(e.Remedy.YAML, want) {
					t.Errorf("no %q in\n%s", want, e.Remedy.YAML)
				}
			}
		})
	}
}

// TestAdmission checks that the result of a write depends on its object. If the object is unknown,
// only a rejection that does not depend on the object is reported. For a write that authorization
// denies, the step states what the result of admission would be.
func TestAdmission(t *testing.T) {
	alice := newUser("alice", "acme", "dev")
	writes := func(obj runtime.Object, kind string) func(*explain.Query) {
		return func(q *explain.Query) {
			q.Write = &explain.Write{Kind: schema.GroupVersionKind{Version: "v1", Kind: kind}, Object: obj}
		}
	}
	pod := func(labels map[string]string) runtime.Object {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "acme--web", Labels: labels}}
	}
	all := func(q *explain.Query) {
		q.Delegate = authorizer.AuthorizerFunc(func(
			context.Context, authorizer.Attributes,
		) (authorizer.Decision, string, error) {
			return authorizer.DecisionAllow, "", nil
		})
	}
	namespace := func(name string) authorizer.AttributesRecord {
		r := newRequest("create", "namespaces", "")
		r.Name = name
		return r
	}
	const hangs, admit = "undecided: depends on the object (use -f): PodSecurity, ", "admitted by PodSecurity, "
	for name, c := range map[string]struct {
		r      authorizer.AttributesRecord
		change func(*explain.Query)
		want   explain.Admission
		said   string
	}{
		"a read":    {newRequest("get", "pods", "acme--web"), nil, "", "not applicable: the request writes nothing"},
		"no object": {newRequest("create", "pods", "acme--web"), nil, explain.Undecided, hangs},
		"an object": {newRequest("create", "pods", "acme--web"), writes(pod(nil), "Pod"), explain.Admitted, admit},
		"a forged label": {
			newRequest("create", "pods", "acme--web"),
			writes(pod(map[string]string{tenant.Label: "globex"}), "Pod"),
			explain.Admitted, // the plugin sets the owner's label
			admit,
		},
		"a restricted resource": {newRequest("create", "daemonsets.apps", "acme--web"), nil, explain.Refused, "refuses: "},
		"denied": {
			newRequest("create", "pods", "globex--shop"),
			nil,
			"",
			"not reached; result would be: " + hangs,
		},
		"a new namespace":            {namespace("acme--new"), all, explain.Admitted, admit},
		"another tenant's namespace": {namespace("globex--new"), all, explain.Refused, "refuses: "},
		"a namespace without a name": {namespace(""), all, explain.Undecided, hangs},
		"in a missing namespace": {
			newRequest("create", "pods", "acme--gone"), all, explain.Refused, `refuses: namespaces "acme--gone" not found`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			e := explained(t, alice, c.r, c.change)
			result := e.Steps[len(e.Steps)-1].Result
			if e.Admission != c.want || !strings.HasPrefix(result, c.said) {
				t.Errorf("%q, %q; want %q, %q", e.Admission, result, c.want, c.said)
			}
			if c.want == explain.Refused && (e.Remedy != nil) != (c.r.Namespace == "acme--gone") {
				t.Errorf("remedy %+v", e.Remedy)
			}
			if c.want == explain.Refused && (e.Allowed() || "refuses: "+e.Reason != result) {
				t.Errorf("%s (%s), though admission refuses", e.Decision, e.Reason)
			}
		})
	}
}

// TestRepeatedQuery checks that a second call with another user returns the result for that user.
func TestRepeatedQuery(t *testing.T) {
	ctx := klog.NewContext(t.Context(), logr.Discard())
	var q *explain.Query
	explained(t, newUser("alice", "acme", "dev"), newRequest("get", "pods", "acme--web"), func(first *explain.Query) {
		q = first
	})
	for of, want := range map[string]bool{"acme": true, "globex": false} {
		t.Run(of, func(t *testing.T) {
			q.User = newUser("bob", of, "dev")
			if e, err := explain.Explain(ctx, q); err != nil || e.Allowed() != want {
				t.Errorf("of %s: %+v, %v", of, e, err)
			}
		})
	}
}

// TestRequestText checks that the text of a request is one line without empty fields.
func TestRequestText(t *testing.T) {
	full := newRequest("get", "deployments.apps", "web")
	full.Subresource, full.Name = "scale", "d"
	for want, r := range map[string]authorizer.AttributesRecord{
		"get deployments/scale of apps d in namespace web": full,
		"list nodes":   newRequest("list", "nodes", ""),
		"get /metrics": newPathRequest("/metrics"),
	} {
		t.Run(want, func(t *testing.T) {
			if got := explain.RequestText(&r); got != want {
				t.Errorf("%q; want %q", got, want)
			}
		})
	}
}

// TestIsWrite checks that IsWrite returns true for changes, and for connections with any verb.
func TestIsWrite(t *testing.T) {
	paths := newPathRequest("/metrics")
	paths.Verb = "create"
	for want, all := range map[bool][]authorizer.AttributesRecord{
		true: {
			newRequest("create", "pods", "n"),
			newRequest("update", "pods", "n"),
			newRequest("patch", "pods", "n"),
			newRequest("delete", "pods", "n"),
			newRequest("deletecollection", "pods", "n"),
			newRequest("get", "pods/exec", "n"),
			newRequest("create", "pods/attach", "n"),
			newRequest("get", "pods/portforward", "n"),
			newRequest("get", "services/proxy", "n"),
		},
		false: {
			newRequest("get", "pods", "n"),
			newRequest("list", "pods", ""),
			newRequest("watch", "pods", ""),
			newRequest("get", "pods/log", "n"),
			paths,
		},
	} {
		for _, r := range all {
			if got := explain.IsWrite(&r); got != want {
				t.Errorf("IsWrite(%s) = %t; want %t", explain.RequestText(&r), got, want)
			}
		}
	}
}

// TestRefusal checks that the description of the request is removed from a plugin's error.
func TestRefusal(t *testing.T) {
	for want, err := range map[string]error{
		"too many":  apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "secret-name", errors.New("too many")),
		"no object": apierrors.NewBadRequest("no object"),
		"plainly":   errors.New("plainly"),
	} {
		t.Run(want, func(t *testing.T) {
			if got := explain.Refusal(err); got != want {
				t.Errorf("%q; want %q", got, want)
			}
		})
	}
}
