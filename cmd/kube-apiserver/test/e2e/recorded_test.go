// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"slices"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
	s := startServer(t, map[string]string{"tenancy.yaml": certificatesConfig + forgeryConfig})
	s.prepare(t)
	s.apply(t, definition("widgets", "Widget")+"---"+forgeryRights+"---"+controllerRights)
	admin := s.client(t, "admin")
	token, err := admin.CoreV1().ServiceAccounts("kube-system").CreateToken(t.Context(), "widget-controller",
		&authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	controller := withToken(s.config(t, "admin"), token.Status.Token)
	own := dynamicClient(t, controller)
	acme := s.dynamic(t, "acme")
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
	u, err := whoami(t.Context(), impersonated)
	if err != nil {
		t.Fatal(err)
	}
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
