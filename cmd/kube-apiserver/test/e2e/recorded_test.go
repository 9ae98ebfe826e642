// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/impersonate"
	"github.com/kubetenant/kubetenant/test/waittest"
)

const controllerRights = `
apiVersion: v1
kind: ServiceAccount
metadata: { name: widget-controller, namespace: kube-system }
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: { name: widget-controller }
rules:
- { apiGroups: [""], resources: [users, groups], verbs: [impersonate] }
- { apiGroups: [authentication.k8s.io], resources: [userextras/kubetenant.dev/tenant], verbs: [impersonate] }
- { apiGroups: [example.com], resources: [widgets], verbs: [get, list] }
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: { name: widget-controller }
roleRef: { apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: widget-controller }
subjects: [ { kind: ServiceAccount, name: widget-controller, namespace: kube-system } ]
`

// TestRecordedIdentity checks the access of a controller that impersonates the identity
// recorded in an object's annotation. The controller must have only the access of the object's
// tenant, even if a caller of the tenant tried to forge the record.
func TestRecordedIdentity(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	tenancy := "authentication: { sources: [ { name: certs, x509: { clientCAFile: pki/ca.crt } } ] }"
	if err := os.WriteFile(filepath.Join(dir, "tenancy.yaml"), fmt.Appendf(nil, forgeryConfig, tenancy),
		0o600); err != nil {
		t.Fatal(err)
	}
	s := start(t, dir)
	prepare(t, s)
	apply(t, s, definition("widgets", "Widget")+"---"+forgeryRights+"---"+controllerRights)
	admin := client(t, config(t, s, "admin"))
	token, err := admin.CoreV1().ServiceAccounts("kube-system").CreateToken(t.Context(), "widget-controller",
		&authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	controller := withToken(config(t, s, "admin"), token.Status.Token)
	own, err := dynamic.NewForConfig(controller)
	if err != nil {
		t.Fatal(err)
	}
	acme, err := dynamic.NewForConfig(config(t, s, "acme"))
	if err != nil {
		t.Fatal(err)
	}
	forged := widget("acme--web", "app", nil)
	forged.SetAnnotations(map[string]string{
		tenant.IdentityAnnotation: `{"user":"root","tenant":"globex","groups":["system:masters"]}`,
	})
	waittest.Until(t, func() error {
		_, err := acme.Resource(widgets).Namespace("acme--web").Create(t.Context(), forged, metav1.CreateOptions{})
		return err
	})
	object, err := own.Resource(widgets).Namespace("acme--web").Get(t.Context(), "app", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for name, o := range map[string]impersonate.Options{
		"default user":             {DefaultUser: "widget-runner"},
		"recorded user and groups": {DefaultUser: "widget-runner", WithUser: true, GroupPattern: ".*"},
	} {
		t.Run(name, func(t *testing.T) {
			i, err := impersonate.New(o)
			if err != nil {
				t.Fatal(err)
			}
			impersonated, err := i.Client(controller, object)
			if err != nil {
				t.Fatal(err)
			}
			checkImpersonated(t, name, impersonated)
		})
	}
	// A record is rejected if its tenant differs from the object's tenant label.
	object.SetAnnotations(map[string]string{tenant.IdentityAnnotation: `{"user":"root","tenant":"globex"}`})
	i, err := impersonate.New(impersonate.Options{DefaultUser: "widget-runner"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := i.Client(controller, object); err == nil {
		t.Error("a record of another tenant is used")
	}
}

func checkImpersonated(t *testing.T, name string, impersonated *rest.Config) {
	t.Helper()
	c := client(t, impersonated)
	me, err := c.AuthenticationV1().SelfSubjectReviews().Create(t.Context(),
		&authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	u := me.Status.UserInfo
	if fmt.Sprint(u.Extra[tenant.ExtraKey]) != "[acme]" || !slices.Contains(u.Groups, "tenant:acme") ||
		slices.Contains(u.Groups, "system:masters") {
		t.Errorf("%s: is %+v", name, u)
	}
	if _, err := c.CoreV1().ConfigMaps("acme--web").List(t.Context(), metav1.ListOptions{}); err != nil {
		t.Errorf("%s: the tenant's namespace: %v", name, err)
	}
	for _, namespace := range []string{"globex--shop", "kube-system", "default"} {
		if _, err := c.CoreV1().ConfigMaps(namespace).List(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
			t.Errorf("%s: %s: %v", name, namespace, err)
		}
	}
	if _, err := c.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("%s: nodes: %v", name, err)
	}
}
