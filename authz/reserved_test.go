// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package authz_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubetenant/kubetenant/authz"
	"github.com/kubetenant/kubetenant/tenant"
)

// TestReservedNamespaces checks that a reserved namespace and its service accounts belong to the
// system tenant, regardless of the namespace's label.
func TestReservedNamespaces(t *testing.T) {
	for _, label := range []string{"acme", "system", "", "System"} {
		ns := &corev1.Namespace{
			ObjectMeta: metav1.ObjectMeta{Name: "kube-system", Labels: map[string]string{tenant.Label: label}},
		}
		owners := authz.NewOwners(func(string) (*corev1.Namespace, error) { return ns, nil }, nil)
		subjects := &authz.Subjects{SystemNamespaces: []string{"kube-system"}, Owners: owners}
		if owner, err := subjects.ServiceAccountTenant(t.Context(), "kube-system"); err != nil || !owner.IsSystem() {
			t.Errorf("label %q: service accounts of tenant %v, %v", label, owner, err)
		}
		if added := owners.Reserve([]string{"kube-system", "default"}); len(added) != 2 {
			t.Errorf("Reserve() = %v", added)
		}
		if owner, err := owners.Of(t.Context(), "kube-system"); err != nil || !owner.IsSystem() ||
			!owners.OwnerOf(ns).IsSystem() {
			t.Errorf("label %q: Of() = %v, %v", label, owner, err)
		}
		if added := owners.Reserve([]string{"default"}); len(added) != 0 || owners.IsReserved("kube-system") {
			t.Errorf("second Reserve() = %v", added)
		}
		if owner := owners.OwnerOf(ns); owner != authz.OwnerOf(ns) {
			t.Errorf("label %q: OwnerOf() = %v without a reservation", label, owner)
		}
	}
}
