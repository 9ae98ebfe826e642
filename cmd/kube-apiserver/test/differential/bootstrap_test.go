// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package differential

import (
	"bytes"
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/kubernetes/plugin/pkg/auth/authorizer/rbac/bootstrappolicy"
)

// TestBootstrapPolicy checks the file of default roles and bindings that "kubectl tenant test"
// adds to a scenario. It must contain exactly the objects that a kube-apiserver of this release
// creates. "make golden" updates the file.
func TestBootstrapPolicy(t *testing.T) {
	const path = "../../../../internal/simulate/scenario/bootstrap.jsonl"
	var want bytes.Buffer
	encoder := json.NewEncoder(&want)
	roles := bootstrappolicy.ClusterRoles()
	for i := range roles {
		roles[i].TypeMeta = metav1.TypeMeta{APIVersion: "rbac.authorization.k8s.io/v1", Kind: "ClusterRole"}
	}
	for i := range roles {
		aggregate(t, &roles[i], roles)
	}
	for i := range roles {
		if err := encoder.Encode(roles[i]); err != nil {
			t.Fatal(err)
		}
	}
	for _, b := range bootstrappolicy.ClusterRoleBindings() {
		b.TypeMeta = metav1.TypeMeta{APIVersion: "rbac.authorization.k8s.io/v1", Kind: "ClusterRoleBinding"}
		if err := encoder.Encode(b); err != nil {
			t.Fatal(err)
		}
	}
	for namespace, roles := range bootstrappolicy.NamespaceRoles() {
		for _, r := range roles {
			r.TypeMeta, r.Namespace = metav1.TypeMeta{APIVersion: "rbac.authorization.k8s.io/v1", Kind: "Role"}, namespace
			if err := encoder.Encode(r); err != nil {
				t.Fatal(err)
			}
		}
	}
	for namespace, bindings := range bootstrappolicy.NamespaceRoleBindings() {
		for _, b := range bindings {
			b.TypeMeta, b.Namespace = metav1.TypeMeta{APIVersion: "rbac.authorization.k8s.io/v1", Kind: "RoleBinding"}, namespace
			if err := encoder.Encode(b); err != nil {
				t.Fatal(err)
			}
		}
	}
	lines := strings.SplitAfter(want.String(), "\n")
	slices.Sort(lines)
	wanted := strings.Join(lines, "")
	if os.Getenv("UPDATE_GOLDEN") != "" {
		if err := os.WriteFile(path, []byte(wanted), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != wanted {
		t.Errorf("%s does not match this release of Kubernetes: run make golden", path)
	}
}

// aggregate adds the aggregated rules to a role, as the aggregation controller does.
func aggregate(t *testing.T, role *rbacv1.ClusterRole, all []rbacv1.ClusterRole) {
	t.Helper()
	if role.AggregationRule == nil {
		return
	}
	for _, s := range role.AggregationRule.ClusterRoleSelectors {
		selector, err := metav1.LabelSelectorAsSelector(&s)
		if err != nil {
			t.Fatal(err)
		}
		for i := range all {
			if selector.Matches(labels.Set(all[i].Labels)) {
				aggregate(t, &all[i], all)
				role.Rules = append(role.Rules, all[i].Rules...)
			}
		}
	}
	role.AggregationRule = nil
}
