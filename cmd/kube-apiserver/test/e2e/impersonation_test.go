// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/test/waittest"
)

// impersonations contains identities that a caller of acme tries to impersonate. ok reports
// whether the caller may impersonate the identity.
var impersonations = []struct {
	name   string
	header http.Header
	ok     bool
	groups []string // in addition to the groups of every caller
}{
	{"a user", http.Header{"Impersonate-User": {"bob"}}, true, nil},
	{"a user with a uid", http.Header{"Impersonate-User": {"bob"}, "Impersonate-Uid": {"u-1"}}, true, nil},
	{
		"a user with a group",
		http.Header{"Impersonate-User": {"bob"}, "Impersonate-Group": {"devs"}},
		true,
		[]string{"devs"},
	},
	{
		"a user with five groups",
		http.Header{"Impersonate-User": {"bob"}, "Impersonate-Group": {"g1", "g2", "g3", "g4", "devs"}},
		true,
		[]string{"g1", "g2", "g3", "g4", "devs"},
	},
	{"an extra", http.Header{"Impersonate-User": {"bob"}, "Impersonate-Extra-Example.com%2FTeam": {"x", "y"}}, true, nil},
	{
		"the caller's tenant",
		http.Header{"Impersonate-User": {"bob"}, "Impersonate-Extra-Kubetenant.dev%2ftenant": {"acme"}},
		true,
		nil,
	},
	{
		"a service account of the caller's tenant",
		http.Header{"Impersonate-User": {"system:serviceaccount:acme--web:default"}},
		true,
		[]string{"system:serviceaccounts", "system:serviceaccounts:acme--web"},
	},

	{"any user", http.Header{"Impersonate-User": {"*"}}, false, nil},
	{"a system user", http.Header{"Impersonate-User": {"system:kube-controller-manager"}}, false, nil},
	{"the anonymous user", http.Header{"Impersonate-User": {"system:anonymous"}}, false, nil},
	{"a bootstrap user", http.Header{"Impersonate-User": {"system:bootstrap:abcdef"}}, false, nil},
	{"a node", http.Header{"Impersonate-User": {"system:node:n1"}}, false, nil},
	{
		"a node with its group",
		http.Header{"Impersonate-User": {"system:node:n1"}, "Impersonate-Group": {"system:nodes"}},
		false,
		nil,
	},
	{"any group", http.Header{"Impersonate-User": {"bob"}, "Impersonate-Group": {"*"}}, false, nil},
	{"the masters group", http.Header{"Impersonate-User": {"bob"}, "Impersonate-Group": {"system:masters"}}, false, nil},
	{
		"system:masters among other groups",
		http.Header{"Impersonate-User": {"bob"}, "Impersonate-Group": {"g1", "g2", "g3", "system:masters", "g4"}},
		false,
		nil,
	},
	{
		"the group kubeadm:cluster-admins",
		http.Header{"Impersonate-User": {"bob"}, "Impersonate-Group": {"kubeadm:cluster-admins"}},
		false,
		nil,
	},
	{
		"another tenant's group",
		http.Header{"Impersonate-User": {"bob"}, "Impersonate-Group": {"tenant:globex"}},
		false,
		nil,
	},
	{
		"the group of the caller's tenant",
		http.Header{"Impersonate-User": {"bob"}, "Impersonate-Group": {"tenant:acme"}},
		true,
		[]string{"tenant:acme"},
	},
	{
		"another tenant",
		http.Header{"Impersonate-User": {"bob"}, "Impersonate-Extra-Kubetenant.dev%2ftenant": {"globex"}},
		false,
		nil,
	},
	{
		"the system tenant",
		http.Header{"Impersonate-User": {"bob"}, "Impersonate-Extra-Kubetenant.dev%2ftenant": {"system"}},
		false,
		nil,
	},
	{
		"two tenants",
		http.Header{"Impersonate-User": {"bob"}, "Impersonate-Extra-Kubetenant.dev%2ftenant": {"acme", "globex"}},
		false,
		nil,
	},
	{
		"another tenant with a key in capitals",
		http.Header{"Impersonate-User": {"bob"}, "Impersonate-Extra-KUBETENANT.DEV%2FTENANT": {"globex"}},
		false,
		nil,
	},
	{
		"another tenant with an escaped key",
		http.Header{"Impersonate-User": {"bob"}, "Impersonate-Extra-%6bubetenant%2edev%2ftenant": {"globex"}},
		false,
		nil,
	},
	{
		"two spellings of the key",
		http.Header{
			"Impersonate-User":                          {"bob"},
			"Impersonate-Extra-Kubetenant.dev%2ftenant": {"acme"},
			"Impersonate-Extra-kubetenant.dev%2Ftenant": {"globex"},
		},
		false,
		nil,
	},
	{
		"the key of a source",
		http.Header{"Impersonate-User": {"bob"}, "Impersonate-Extra-Kubetenant.dev%2fsource": {"certs"}},
		false,
		nil,
	},
	{
		"a key that the server sets",
		http.Header{
			"Impersonate-User": {"bob"},
			"Impersonate-Extra-Authentication.kubernetes.io%2Fcredential-Id": {"X509SHA256=1"},
		},
		false,
		nil,
	},
	{
		"another tenant's service account",
		http.Header{"Impersonate-User": {"system:serviceaccount:globex--shop:default"}},
		false,
		nil,
	},
	{
		"a system service account",
		http.Header{"Impersonate-User": {"system:serviceaccount:kube-system:default"}},
		false,
		nil,
	},
	{
		"a service account of a namespace that does not exist",
		http.Header{"Impersonate-User": {"system:serviceaccount:missing:default"}},
		false,
		nil,
	},
	{"a malformed service account", http.Header{"Impersonate-User": {"system:serviceaccount:acme--web"}}, false, nil},
}

// impersonationRights contains the RBAC rules that allow impersonation, keyed by impersonation
// mode.
var impersonationRights = map[string][]rbacv1.PolicyRule{
	"legacy": {{Verbs: []string{"impersonate"}, APIGroups: []string{"*"}, Resources: []string{"*"}}},
	"constrained": {
		{
			APIGroups: []string{"*"},
			Resources: []string{"*"},
			Verbs: append(impersonateOnVerbs("user-info", "serviceaccount", "arbitrary-node", "associated-node"),
				"impersonate:user-info", "impersonate:serviceaccount", "impersonate:arbitrary-node", "impersonate:associated-node"),
		},
	},
}

func impersonateOnVerbs(modes ...string) []string {
	var verbs []string
	for _, mode := range modes {
		for _, verb := range []string{"get", "list", "watch", "create"} {
			verbs = append(verbs, "impersonate-on:"+mode+":"+verb)
		}
	}
	return verbs
}

// TestImpersonation checks in each impersonation mode of the server that a tenant's caller
// cannot impersonate an identity outside its tenant. It also checks that an impersonated
// identity does not inherit groups or extras from the caller, and that audit events contain
// both users.
func TestImpersonation(t *testing.T) {
	t.Parallel()
	for mode, rights := range impersonationRights {
		for _, gate := range []string{"true", "false"} {
			if mode == "constrained" && gate == "false" {
				continue // without the feature gate, the server has no constrained mode
			}
			t.Run(mode+", ConstrainedImpersonation="+gate, func(t *testing.T) {
				t.Parallel()
				dir := t.TempDir()
				s := newServer(t, dir, append([]string{"--", "--feature-gates=ConstrainedImpersonation=" + gate},
					auditFlags(t, dir, auditPolicy)...)...)
				s.prepare(t)
				grantImpersonation(t, s, rights)
				for _, i := range impersonations {
					t.Run(i.name, func(t *testing.T) { tryImpersonation(t, s, i.header, i.ok, i.groups) })
				}
				bothActorsAreAudited(t, filepath.Join(dir, "audit.log"))
			})
		}
	}
}

func grantImpersonation(t *testing.T, s *server, rights []rbacv1.PolicyRule) {
	t.Helper()
	admin := s.client(t, "admin")
	meta := metav1.ObjectMeta{Name: "impersonator"}
	if _, err := admin.RbacV1().ClusterRoles().Create(t.Context(), &rbacv1.ClusterRole{ObjectMeta: meta, Rules: rights},
		metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	group := rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: "Group", Name: "tenant:acme"}
	bind(t, admin, "impersonator", "impersonator", group)
	bind(t, admin, "bob", "cluster-admin", rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: "User", Name: "bob"})
	bind(t, admin, "robot", "cluster-admin",
		rbacv1.Subject{Kind: "ServiceAccount", Name: "default", Namespace: "acme--web"})
}

// sendAsAcme sends a request of acme's admin with additional headers.
func sendAsAcme(
	ctx context.Context, t *testing.T, s *server, header http.Header, method, path, body string,
) (int, []byte) {
	t.Helper()
	hc, err := rest.HTTPClientFor(s.config(t, "acme"))
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(ctx, method, s.URL+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for key, values := range header {
		req.Header[key] = values
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := hc.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	var out json.RawMessage
	_ = json.NewDecoder(resp.Body).Decode(&out)
	return resp.StatusCode, out
}

func tryImpersonation(t *testing.T, s *server, header http.Header, ok bool, groups []string) {
	const review = `{"apiVersion":"authentication.k8s.io/v1","kind":"SelfSubjectReview"}`
	own := func() int {
		code, _ := sendAsAcme(t.Context(), t, s, header, http.MethodGet, "/api/v1/namespaces/acme--web/configmaps", "")
		return code
	}
	if !ok {
		for _, path := range []string{
			"/api/v1/namespaces/acme--web/configmaps", "/api/v1/namespaces/globex--shop/configmaps", "/api/v1/nodes",
			"/api/v1/configmaps", "/healthz",
		} {
			if code, body := sendAsAcme(t.Context(), t, s, header, http.MethodGet, path, ""); code != http.StatusForbidden &&
				code != http.StatusBadRequest {
				t.Errorf("GET %s = %d %s", path, code, body)
			}
		}
		return
	}
	waittest.Until(t, func() error { // until the RBAC rules take effect
		if own() != http.StatusOK {
			return errors.New("not allowed in the tenant's own namespace")
		}
		return nil
	})
	for _, path := range []string{
		"/api/v1/namespaces/globex--shop/configmaps", "/api/v1/namespaces/kube-system/configmaps", "/api/v1/nodes",
		"/api/v1/namespaces/globex--shop",
	} {
		if code, body := sendAsAcme(t.Context(), t, s, header, http.MethodGet, path, ""); code != http.StatusForbidden {
			t.Errorf("GET %s = %d %s", path, code, body)
		}
	}
	code, body := sendAsAcme(t.Context(), t, s, header, http.MethodPost,
		"/apis/authentication.k8s.io/v1/selfsubjectreviews", review)
	var got authenticationv1.SelfSubjectReview
	if err := json.Unmarshal(body, &got); code != http.StatusCreated || err != nil {
		t.Fatalf("self review = %d %s", code, body)
	}
	u := got.Status.UserInfo
	want := append(slices.Clone(groups), "system:authenticated")
	if !slices.Contains(want, "tenant:acme") {
		want = append(want, "tenant:acme")
	}
	if !slices.Equal(slices.Sorted(slices.Values(u.Groups)), slices.Sorted(slices.Values(want))) {
		t.Errorf("groups %v, want %v", u.Groups, want)
	}
	if !slices.Equal(u.Extra[tenant.ExtraKey], []string{"acme"}) {
		t.Errorf("extra %v", u.Extra)
	}
	for key := range u.Extra {
		if key != tenant.ExtraKey && key != "example.com/team" {
			t.Errorf("the identity has the caller's extra %s", key)
		}
	}
	// A list over all namespaces is limited to the impersonator's tenant.
	_, body = sendAsAcme(t.Context(), t, s, header, http.MethodGet, "/api/v1/configmaps", "")
	if strings.Contains(string(body), "globex") || strings.Contains(string(body), `"kube-system"`) {
		t.Errorf("a list over all namespaces contains objects of other tenants")
	}
}

// bothActorsAreAudited checks that the audit event of an impersonated request contains the caller
// and the impersonated user.
func bothActorsAreAudited(t *testing.T, path string) {
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	seen := 0
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var event struct {
			User             authenticationv1.UserInfo
			ImpersonatedUser *authenticationv1.UserInfo
		}
		if err := json.Unmarshal(lines.Bytes(), &event); err != nil {
			t.Fatal(err)
		}
		if event.ImpersonatedUser != nil && event.ImpersonatedUser.Username == "bob" {
			seen++
			if event.User.Username != "admin" || !slices.Equal(event.User.Extra[tenant.ExtraKey], []string{"acme"}) {
				t.Errorf("the actor is %+v", event.User)
			}
		}
	}
	if seen == 0 {
		t.Error("no event names the impersonated user")
	}
}
