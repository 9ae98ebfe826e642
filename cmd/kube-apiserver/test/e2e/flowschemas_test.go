// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/kubetenant/kubetenant/cluster/flowschemas"
	"github.com/kubetenant/kubetenant/test/waittest"
)

const foreignSchema = `apiVersion: flowcontrol.apiserver.k8s.io/v1
kind: FlowSchema
metadata: { name: kubetenant-tenant-globex }
spec: { priorityLevelConfiguration: { name: global-default }, matchingPrecedence: 9999 }
`

// TestWebhookFlowSchemas checks that an unmodified kube-apiserver assigns requests of a tenant with
// spec.fairUse.level to the FlowSchema that the controller maintains for it. It also checks that
// the controller restores this FlowSchema and its priority level, and does not change a FlowSchema
// without the controller's label.
func TestWebhookFlowSchemas(t *testing.T) {
	t.Parallel()
	s := startServer(t, map[string]string{"tenancy.yaml": groupsConfig}, "--webhook")
	for _, id := range []string{"acme", "globex"} {
		s.namespace(t, id+"--web", id)
	}
	account := "system:serviceaccount:acme--web:default"
	acme := flowschemas.TenantPrefix + "acme"
	awaitSchemaOf(t, s, account, flowschemas.NamespacesName, flowschemas.Level)
	s.apply(t, foreignSchema)
	foreign := specOf(t, s, "kubetenant-tenant-globex")
	setFairUse(t, s, "{ level: default }")
	s.apply(t, `{ apiVersion: kubetenant.dev/v1alpha1, kind: Tenant, metadata: { name: globex },
  spec: { id: globex, fairUse: { level: default } } }`)
	awaitSchemaOf(t, s, account, acme, flowschemas.Level)
	awaitSchemaOf(t, s, "system:serviceaccount:globex--web:default", flowschemas.NamespacesName, flowschemas.Level)

	resp := get(t.Context(), t, s.config(t, "acme"), acmePods)
	_ = resp.Body.Close()
	if got, want := resp.Header.Get("X-Kubernetes-PF-FlowSchema-UID"), uidOf(t, s, "flowschema", acme); got != want {
		t.Errorf("a user of acme was in the FlowSchema %q, not in %q", got, want)
	}

	s.apply(t, `{ apiVersion: flowcontrol.apiserver.k8s.io/v1, kind: PriorityLevelConfiguration,
  metadata: { name: kubetenant-gold },
  spec: { type: Limited, limited: { nominalConcurrencyShares: 50, limitResponse: { type: Reject } } } }`)
	setFairUse(t, s, "{ level: gold }")
	awaitSchemaOf(t, s, account, acme, "kubetenant-gold")

	maintained := specOf(t, s, acme)
	change := func(args ...string) {
		t.Helper()
		s.mustKubectl(t, "admin", args...)
	}
	change("patch", "flowschema", acme, "--type=merge", "-p", `{"spec":{"matchingPrecedence":9998}}`)
	waittest.Until(t, func() error {
		if got := specOf(t, s, acme); got != maintained {
			return fmt.Errorf("the FlowSchema is %s", got)
		}
		return nil
	})
	change("delete", "flowschema", acme)
	change("delete", "prioritylevelconfiguration", flowschemas.Level)
	awaitSchemaOf(t, s, account, acme, "kubetenant-gold")
	s.awaitKubectl(t, "admin", "get", "prioritylevelconfiguration", flowschemas.Level)

	setFairUse(t, s, "{}")
	awaitSchemaOf(t, s, account, flowschemas.NamespacesName, flowschemas.Level)
	if got := specOf(t, s, "kubetenant-tenant-globex"); got != foreign {
		t.Errorf("an object without the label has become %s", got)
	}
}

// awaitSchemaOf waits until the server assigns requests of a service account for its namespace to
// the given FlowSchema and priority level.
func awaitSchemaOf(t *testing.T, s *server, account, schema, level string) {
	t.Helper()
	namespace := strings.Split(account, ":")[2]
	waittest.Until(t, func() error {
		c := s.impersonate(t, rest.ImpersonationConfig{UserName: account})
		resp := get(t.Context(), t, c, "/api/v1/namespaces/"+namespace+"/pods")
		_ = resp.Body.Close()
		got := resp.Header.Get("X-Kubernetes-PF-FlowSchema-UID") + " " + resp.Header.Get("X-Kubernetes-PF-PriorityLevel-UID")
		if want := uidOf(t, s, "flowschema", schema) + " " + uidOf(t, s, "prioritylevelconfiguration", level); got != want {
			return fmt.Errorf("the request of %s was in %q, not in %q (%s)", account, got, want, schema)
		}
		return nil
	})
}

// uidOf returns the UID of an object, or "" if the object does not exist.
func uidOf(t *testing.T, s *server, kind, name string) string {
	t.Helper()
	out := s.mustKubectl(t, "admin", "get", kind, name, "--ignore-not-found", "-o", "jsonpath={.metadata.uid}")
	return strings.TrimSpace(out)
}

// specOf returns the UID, the labels and the spec of a FlowSchema.
func specOf(t *testing.T, s *server, name string) string {
	t.Helper()
	out := s.mustKubectl(t, "admin", "get", "flowschema", name, "-o",
		"jsonpath={.metadata.uid} {.metadata.labels} {.spec}")
	return out
}
