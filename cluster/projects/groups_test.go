// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package projects

import (
	"math/rand/v2"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubetenant/kubetenant/authn/keystone"
	"github.com/kubetenant/kubetenant/cluster/tenants"
	"github.com/kubetenant/kubetenant/tenant"
)

// TestKeystoneGroups checks that the groups that package authn/keystone derives from tokens are
// valid in annotations, but only in the annotation for the same project or domain.
func TestKeystoneGroups(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 49))
	const characters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-"
	read := func(k *tenants.Keystone) (*tenants.Keystone, error) {
		ns := &corev1.Namespace{}
		ns.Annotations = map[string]string{tenant.KeystoneAnnotation: k.String()}
		return tenants.KeystoneOf(ns)
	}
	random := func() string {
		text := make([]byte, 1+r.IntN(64))
		for i := range text {
			text[i] = characters[r.IntN(len(characters))]
		}
		return string(text)
	}
	for range 2000 {
		project, role, prefix := random(), random(), []string{"", "keystone:", "role-id:domain:"}[r.IntN(3)]
		if !tenants.IsKeystoneID(project) || !tenants.IsKeystoneID(role) {
			t.Fatalf("%q or %q is not an ID", project, role)
		}
		since := metav1.NewTime(time.Unix(r.Int64N(1<<32), 0))
		of := &tenants.Keystone{Domain: "d1", Project: project, MissingSince: &since}
		of.Roles = []tenants.KeystoneRole{{ID: role, Group: prefix + keystone.RoleGroup(project, role), ClusterRole: "edit"}}
		domain := &tenants.Keystone{Domain: "d1"}
		group := prefix + keystone.DomainRoleGroup("d1", role)
		domain.Roles = []tenants.KeystoneRole{{ID: role, Group: group, ClusterRole: "edit"}}
		for _, k := range []*tenants.Keystone{of, domain} {
			if got, err := read(k); err != nil || !got.Equal(k) || !k.Equal(got) {
				t.Errorf("%s: %v", k, err)
			}
		}
		of.Roles, domain.Roles = domain.Roles, of.Roles
		for _, k := range []*tenants.Keystone{of, domain} {
			if _, err := read(k); err == nil {
				t.Errorf("%s is valid", k)
			}
		}
	}
	for _, id := range []string{"domain", "system"} {
		if keystone.RoleGroup(id, "m") != "" || tenants.IsKeystoneID(id) {
			t.Errorf("%s is the ID of a project", id)
		}
	}
}
