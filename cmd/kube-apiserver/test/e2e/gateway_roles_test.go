// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/kubetenant/kubetenant/test/waittest"
)

// moreRoles contains a role that lets callers of globex, but not of acme, read a resource that is
// not in the role admin. It also contains a role that lets callers of acme send HEAD requests.
const moreRoles = `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: { name: podtemplates }
rules: [ { apiGroups: [""], resources: [podtemplates], verbs: [get, list, watch] } ]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: { name: podtemplates }
roleRef: { apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: podtemplates }
subjects: [ { apiGroup: rbac.authorization.k8s.io, kind: Group, name: "tenant:globex" } ]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: { name: heads }
rules: [ { nonResourceURLs: ["/apis/*"], verbs: [head] } ]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: { name: heads }
roleRef: { apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: heads }
subjects: [ { apiGroup: rbac.authorization.k8s.io, kind: Group, name: "tenant:acme" } ]
`

// grantsApply checks that a request to another tenant's namespace requires both an AccessGrant and
// a role of the cluster. It also checks that a watch that requires the grant ends when the grant is
// deleted.
func grantsApply(t *testing.T, s *server) {
	s.apply(t, grantRights)
	s.apply(t, moreRoles)
	globex := s.dynamic(t, "globex")
	w := &grantsFixture{s: s, acme: s.client(t, "acme"), globex: globex}
	closed := func() error {
		if _, err := w.acme.CoreV1().ConfigMaps("globex--shop").List(t.Context(),
			metav1.ListOptions{}); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "tenant boundary") {
			return fmt.Errorf("without a grant: %w", err)
		}
		return nil
	}
	if err := closed(); err != nil {
		t.Error(err)
	}
	waittest.Until(t, func() error { // the role that lets globex create grants takes effect after a delay
		_, err := w.grants().Create(t.Context(), grantOf("read", []any{"get", "list", "watch"}, "configmaps", "podtemplates"),
			metav1.CreateOptions{})
		return err
	})
	w.awaitReads(t, true)
	if _, err := w.acme.CoreV1().PodTemplates("globex--shop").List(t.Context(),
		metav1.ListOptions{}); !apierrors.IsForbidden(err) || strings.Contains(err.Error(), "tenant boundary") {
		t.Errorf("granted, but not allowed by a role: %v", err)
	}
	if _, err := w.acme.CoreV1().Pods("globex--shop").List(t.Context(),
		metav1.ListOptions{}); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "tenant boundary") {
		t.Errorf("allowed by a role, but not granted: %v", err)
	}
	open, err := w.acme.CoreV1().ConfigMaps("globex--shop").Watch(t.Context(), metav1.ListOptions{ResourceVersion: "0"})
	if err != nil {
		t.Fatal(err)
	}
	defer open.Stop()
	if err := w.grants().Delete(t.Context(), "read", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	for ends, more := time.After(applyLimit), true; more; {
		select {
		case _, more = <-open.ResultChan():
		case <-ends:
			t.Error("the watch continues without its grant")
			more = false
		}
	}
	waittest.Until(t, closed)
}

// constrainedImpersonation checks that tenants have the same access if the gateway's impersonator
// has only the roles of constrained impersonation (KEP-5284). The impersonator then does not have
// the verb impersonate, which is not constrained.
func constrainedImpersonation(t *testing.T, s *server) {
	tenancy := strings.Replace(gatewayTenancy, "gateway-impersonator.kubeconfig }",
		"gateway-impersonator.kubeconfig, mode: Constrained }\n    identity: { withUID: true }", 1)
	s.write(t, "constrained.yaml", tenancy)
	out := filepath.Join(t.TempDir(), "out")
	run(t, "kubetenant-gateway", "generate", "--config", filepath.Join(s.Dir, "constrained.yaml"), "--image",
		"example.com/kubetenant-gateway:1", "--out", out)
	roles := readFile(t, filepath.Join(out, "clusters", "local.yaml"))
	alice := withToken(s.config(t, "acme"), "CANARY-token") // a user with a UID
	acme := client(t, alice)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	unnoticed := make(chan error, 1)
	list := func() error {
		_, err := acme.CoreV1().ConfigMaps("acme--web").List(ctx, metav1.ListOptions{})
		return err
	}
	go func() {
		for ctx.Err() == nil {
			if list() == nil {
				continue
			}
			if err := list(); err != nil && ctx.Err() == nil { // the change of the configuration may interrupt one request
				unnoticed <- err
				return
			}
		}
		unnoticed <- nil
	}()
	s.apply(t, roles)
	s.write(t, "tenancy.yaml", tenancy)
	admin, as := s.client(t, "admin"), rest.CopyConfig(alice)
	as.Impersonate = rest.ImpersonationConfig{UserName: "system:serviceaccount:acme--web:robot"}
	waittest.Until(t, func() error { // until the gateway uses the new configuration
		if _, err := client(t, as).CoreV1().Pods("acme--web").List(t.Context(),
			metav1.ListOptions{}); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "cannot impersonate") {
			return fmt.Errorf("as a service account: %w", err)
		}
		return nil
	})
	for verb, want := range map[string]bool{"impersonate": false, "impersonate:user-info": true} {
		for _, group := range []string{"", "authentication.k8s.io"} {
			waittest.Until(t, func() error { // until the role takes effect
				review, err := admin.AuthorizationV1().SubjectAccessReviews().Create(t.Context(),
					&authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
						User: "system:serviceaccount:kubetenant-system:kubetenant-gateway-impersonator",
						ResourceAttributes: &authorizationv1.ResourceAttributes{
							Verb:     verb,
							Group:    group,
							Resource: "users",
							Name:     "alice",
						},
					}}, metav1.CreateOptions{})
				if err == nil && review.Status.Allowed != (want && group != "") {
					err = fmt.Errorf("%s of users.%s: %+v", verb, group, review.Status)
				}
				return err
			})
		}
	}
	stop()
	if err := <-unnoticed; err != nil {
		t.Errorf("while the configuration changed: %v", err)
	}
	for what, do := range verbsOf(acme) {
		if err := do(t); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	for _, method := range []string{http.MethodGet, http.MethodHead} { // non-resource paths
		secured, err := rest.HTTPClientFor(alice)
		if err != nil {
			t.Fatal(err)
		}
		req, err := http.NewRequestWithContext(t.Context(), method, alice.Host+"/apis/apps", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := secured.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		text, _ := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			t.Errorf("%s: %s: %s", method, resp.Status, text)
		}
	}
	if _, err := acme.CoreV1().Pods("globex--shop").List(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) ||
		!strings.Contains(err.Error(), "tenant boundary") {
		t.Errorf("another tenant's namespace: %v", err)
	}
	as.Impersonate = rest.ImpersonationConfig{UserName: "bob"}
	// The caller's role allows this impersonation.
	if _, err := client(t, as).CoreV1().Pods("acme--web").List(t.Context(), metav1.ListOptions{}); err != nil {
		t.Errorf("as bob: %v", err)
	}
}

// verbsOf returns a request for each verb, an exec request and a SelfSubjectAccessReview. No
// request depends on another one.
func verbsOf(k *kubernetes.Clientset) map[string]func(*testing.T) error {
	maps := k.CoreV1().ConfigMaps("acme--web")
	createConfigMap := func(t *testing.T, name string) error {
		_, err := maps.Create(t.Context(),
			&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"of": name}}},
			metav1.CreateOptions{})
		return err
	}
	return map[string]func(*testing.T) error{
		"create": func(t *testing.T) error { return createConfigMap(t, "c-create") },
		"get": func(t *testing.T) error {
			_, err := k.CoreV1().Namespaces().Get(t.Context(), "acme--web", metav1.GetOptions{})
			return err
		},
		"list": func(t *testing.T) error {
			_, err := k.CoreV1().Namespaces().List(t.Context(), metav1.ListOptions{})
			return err
		},
		"watch": func(t *testing.T) error {
			w, err := maps.Watch(t.Context(), metav1.ListOptions{})
			if err == nil {
				w.Stop()
			}
			return err
		},
		"update": func(t *testing.T) error {
			if err := createConfigMap(t, "c-update"); err != nil {
				return err
			}
			_, err := maps.Update(t.Context(),
				&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "c-update"}, Data: map[string]string{"a": "b"}},
				metav1.UpdateOptions{})
			return err
		},
		"patch": func(t *testing.T) error {
			if err := createConfigMap(t, "c-patch"); err != nil {
				return err
			}
			_, err := maps.Patch(t.Context(), "c-patch", types.MergePatchType,
				[]byte(`{"data":{"a":"b"}}`), metav1.PatchOptions{})
			return err
		},
		"delete": func(t *testing.T) error {
			if err := createConfigMap(t, "c-delete"); err != nil {
				return err
			}
			return maps.Delete(t.Context(), "c-delete", metav1.DeleteOptions{})
		},
		"deletecollection": func(t *testing.T) error {
			if err := createConfigMap(t, "c-collection"); err != nil {
				return err
			}
			return maps.DeleteCollection(t.Context(), metav1.DeleteOptions{},
				metav1.ListOptions{LabelSelector: "of=c-collection"})
		},
		"exec of a Pod that does not exist": func(t *testing.T) error {
			err := k.CoreV1().RESTClient().Post().Namespace("acme--web").Resource("pods").Name("none").SubResource("exec").
				Param("command", "id").Param("stdout", "true").Do(t.Context()).Error()
			if apierrors.IsNotFound(err) {
				return nil
			}
			return fmt.Errorf("exec: %w", err)
		},
		"SelfSubjectAccessReview": func(t *testing.T) error {
			review, err := k.AuthorizationV1().SelfSubjectAccessReviews().Create(t.Context(),
				&authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
					ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: "acme--web", Verb: "list", Resource: "pods"},
				}}, metav1.CreateOptions{})
			if err == nil && !review.Status.Allowed {
				err = fmt.Errorf("%+v", review.Status)
			}
			return err
		},
	}
}
