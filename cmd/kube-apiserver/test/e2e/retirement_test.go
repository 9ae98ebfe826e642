// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/kubetenant/kubetenant/test/waittest"
)

const retirementConfig = certificatesConfig + `  - { name: tokens, tokenFile: { path: tokens.csv } }
`

// TestRetirement checks that the access of a deleted tenant's callers ends, that its namespaces
// and labeled bindings are deleted, and that a RetiredTenant records other references to the
// tenant. It also checks that a later tenant with the same ID accepts old credentials only if
// its Tenant accepts undated credentials.
func TestRetirement(t *testing.T) {
	// The certificate is issued after the deletion that the test records, so it is not an old
	// credential. The test therefore uses a token from the token file, which has no issue date.
	testRetirement(t, retirementConfig, func(t *testing.T, s *server) *rest.Config {
		return withToken(s.config(t, "acme"), "old-token-of-acme")
	}, "deleted tenant of the same name")
}

func TestWebhookRetirement(t *testing.T) {
	testRetirement(t, groupsConfig,
		func(t *testing.T, s *server) *rest.Config { return s.config(t, "acme") },
		"may belong to a deleted tenant of the same name", "--webhook")
}

func testRetirement(
	t *testing.T, tenancy string, old func(*testing.T, *server) *rest.Config, refusal string, args ...string,
) {
	t.Parallel()
	s := startServer(t, map[string]string{
		"tenancy.yaml": tenancy,
		"tokens.csv":   "old-token-of-acme,alice,u1,,,acme\n",
	}, args...)
	admin := func(args ...string) string {
		t.Helper()
		out := s.mustKubectl(t, "admin", args...)
		return strings.TrimSpace(out)
	}
	s.apply(t, `
apiVersion: kubetenant.dev/v1alpha1
kind: Tenant
metadata: { name: acme }
spec: { id: acme, deletionPolicy: Delete, bindings: [ { clusterRole: admin, subjects: [ { kind: Group, name: `+
		`"tenant:acme" } ] } ] }
---
apiVersion: v1
kind: Namespace
metadata: { name: acme--web, labels: { kubetenant.dev/tenant: acme } }
---
apiVersion: v1
kind: Namespace
metadata: { name: acme--db, labels: { kubetenant.dev/tenant: acme } }
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: { name: made-for-acme, labels: { kubetenant.dev/of-tenant: acme } }
roleRef: { apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: view }
subjects: [ { apiGroup: rbac.authorization.k8s.io, kind: Group, name: "tenant:acme" } ]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: { name: ops }
roleRef: { apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin }
subjects: [ { apiGroup: rbac.authorization.k8s.io, kind: User, name: ops } ]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: { name: somebodys }
roleRef: { apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: view }
subjects: [ { apiGroup: rbac.authorization.k8s.io, kind: Group, name: "tenant:acme" } ]
`)
	uid := admin("get", "tenant", "acme", "-o", "jsonpath={.metadata.uid}")
	caller := client(t, old(t, s))
	waittest.Until(t, func() error {
		_, err := caller.CoreV1().ConfigMaps("acme--web").List(t.Context(), metav1.ListOptions{})
		return err
	})
	watching := openWatch(t, old(t, s), "/api/v1/namespaces/acme--web/configmaps?watch=true")
	if out := admin("get", "tenant", "acme", "-o", "jsonpath={.metadata.finalizers}"); out != `["kubetenant.dev/tenant"]` {
		t.Errorf("finalizers: %s", out)
	}

	admin("delete", "tenant", "acme", "--wait=false")
	begun := time.Now()
	waittest.Until(t, func() error {
		out, err := s.kubectl(t, "admin", "create", "configmap", fmt.Sprint("x", time.Now().UnixNano()), "-n", "acme--web",
			"--as=alice", "--as-group=tenant:acme", "--as-user-extra=kubetenant.dev/tenant=acme", "--dry-run=server")
		if err == nil ||
			!strings.Contains(out, "may only read and delete") && !strings.Contains(out, "because it is being terminated") {
			return fmt.Errorf("a caller of a tenant that is deleted: %s", out)
		}
		return nil
	})
	if len(args) == 0 { // with the webhook service, open streams continue
		watching.awaitEnd(t)
	}
	late := append([]string{"create", "-f", testFile(t, lateNamespace)}, asOps...)
	if out, err := s.kubectl(t, "admin", late...); err == nil ||
		!strings.Contains(out, "names a tenant that was deleted or is being deleted") {
		t.Errorf("a namespace of a tenant that is deleted: %s", out)
	}
	waittest.Within(t, 3*time.Minute, func() error {
		if out, err := s.kubectl(t, "admin", "get", "tenant", "acme", "-o", "jsonpath={.status.conditions}"); err == nil {
			return fmt.Errorf("the Tenant is still there: %s", out)
		}
		return nil
	})
	if took := time.Since(begun); took < 90*time.Second {
		t.Errorf("the deletion took %s, so the controller did not check for late namespaces", took)
	}
	if out := admin("get", "namespaces", "-l", "kubetenant.dev/tenant=acme", "-o", "name"); out != "" {
		t.Errorf("namespaces are left: %s", out)
	}
	if out, err := s.kubectl(t, "admin", "get", "clusterrolebinding", "made-for-acme"); err == nil {
		t.Errorf("a binding is left: %s", out)
	}
	name := "acme-" + uid
	if out := admin("get", "retiredtenant", name, "-o",
		`jsonpath={.spec.id} {.spec.uid} {.spec.namespaces} {.spec.references}`); out != `acme `+uid+
		` ["acme--db","acme--web"] ["ClusterRoleBinding somebodys"]` {
		t.Errorf("the RetiredTenant contains %s", out)
	}
	t.Run("the name is reserved", func(t *testing.T) { nameIsReserved(t, s, caller.CoreV1().RESTClient(), uid) })

	// Replace the RetiredTenant with one whose deletion was more than ten minutes ago.
	admin("delete", "clusterrolebinding", "somebodys")
	admin("delete", "retiredtenant", name)
	s.apply(t, `{ apiVersion: kubetenant.dev/v1alpha1, kind: RetiredTenant, metadata: { name: `+name+
		` }, spec: { id: acme, uid: `+uid+`, retiredAt: "2026-01-01T00:00:00Z" } }`)
	s.awaitKubectl(t, "admin", "apply", "-f", testFile(t, successor(uid, "")))
	s.namespace(t, "acme--web", "acme")
	requestDenied := func() error {
		_, err := caller.CoreV1().ConfigMaps("acme--web").List(t.Context(), metav1.ListOptions{})
		return err
	}
	waittest.Until(t, func() error {
		if err := requestDenied(); err == nil ||
			!strings.Contains(err.Error(), refusal) && !strings.Contains(err.Error(), "Unauthorized") {
			return fmt.Errorf("an old credential: %w", err)
		}
		return nil
	})
	s.apply(t, successor(uid, "acceptUndated: true, "))
	waittest.Until(t, requestDenied)
}

// successor returns the manifest of a Tenant with the ID of a deleted tenant.
func successor(replaces, more string) string {
	return `{ apiVersion: kubetenant.dev/v1alpha1, kind: Tenant, metadata: { name: acme }, spec: { id: acme, replaces: ` +
		replaces + `, ` + more + `
  bindings: [ { clusterRole: admin, subjects: [ { kind: Group, name: "tenant:acme" } ] } ] } }`
}

// nameIsReserved checks that callers of a deleted tenant are denied, and that neither a new Tenant
// nor a new Namespace can use its ID yet.
func nameIsReserved(t *testing.T, s *server, caller rest.Interface, uid string) {
	waittest.Until(t, func() error {
		err := caller.Get().AbsPath("/api/v1/namespaces/acme--web/configmaps").Do(t.Context()).Error()
		if err == nil {
			return errors.New("a caller of a deleted tenant may read")
		}
		if !strings.Contains(err.Error(), "the caller's tenant was deleted") &&
			!strings.Contains(err.Error(), "Unauthorized") {
			return fmt.Errorf("a caller of a deleted tenant: %w", err)
		}
		return nil
	})
	for what, c := range map[string]struct{ manifest, want string }{
		"Tenant with the same ID": {
			`{ apiVersion: kubetenant.dev/v1alpha1, kind: Tenant, metadata: { name: acme }, spec: { id: acme } }`,
			"to reuse the ID of a deleted tenant",
		},
		"Tenant that replaces another UID": {
			successor("0f0f0f0f-0000-0000-0000-000000000000", ""), "to reuse the ID of a deleted tenant",
		},
		"Tenant that is created too early": {successor(uid, ""), "was deleted a moment ago"},
		"namespace":                        {lateNamespace, "names a tenant that was deleted or is being deleted"},
	} {
		if out, err := s.kubectl(t, "admin", append([]string{"create", "-f", testFile(t, c.manifest)},
			asOps...)...); err == nil || !strings.Contains(out, c.want) {
			t.Errorf("%s: %s", what, out)
		}
	}
}

// asOps contains kubectl flags that impersonate a user of the system tenant. The server calls the
// webhooks for requests of this user.
var asOps = []string{"--as=ops", "--as-user-extra=kubetenant.dev/tenant=system"}

const lateNamespace = `{ apiVersion: v1, kind: Namespace, metadata: { name: acme--late, ` +
	`labels: { kubetenant.dev/tenant: acme } } }`

// openedWatch is an active watch request.
type openedWatch struct{ ended chan struct{} }

func openWatch(t *testing.T, c *rest.Config, path string) *openedWatch {
	t.Helper()
	answer := get(t.Context(), t, c, path)
	if answer.StatusCode != http.StatusOK {
		t.Fatal(answer.Status)
	}
	w := &openedWatch{make(chan struct{})}
	go func() {
		defer close(w.ended)
		defer func() { _ = answer.Body.Close() }()
		_, _ = io.Copy(io.Discard, answer.Body)
	}()
	return w
}

// awaitEnd waits until the watch ends.
func (w *openedWatch) awaitEnd(t *testing.T) {
	t.Helper()
	select {
	case <-w.ended:
	case <-time.After(waittest.Limit):
		t.Error("the watch of a deleted tenant's caller continues")
	}
}
