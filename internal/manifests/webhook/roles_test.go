// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package webhook_test

import (
	"slices"
	"strings"
	"testing"

	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/kubetenant/kubetenant/tenant"
)

// TestPoliciesOfRoles checks that only the manager may write the Roles of TenantMembers, and that
// the manager may not write other Roles.
func TestPoliciesOfRoles(t *testing.T) {
	t.Parallel()
	set := admissionSetOf(t, "Enforce")
	manager, admin := &user.DefaultInfo{Name: tenant.ManagerUser}, &user.DefaultInfo{Name: "admin"}
	managed := map[string]string{tenant.ManagedLabel: "tenant", tenant.Label: "acme"}
	own := map[string]string{tenant.Label: "acme"}
	acme, system := map[string]string{tenant.Label: "acme"}, map[string]string{tenant.Label: "system"}
	const ofManager, ofOthers = "tenants.kubetenant.dev", "managed.kubetenant.dev"
	for name, c := range map[string]struct {
		by            user.Info
		place, labels map[string]string
		want          string // the policy that denies the request
	}{
		"the manager, a Role of TenantMembers":         {manager, acme, managed, ""},
		"the manager, a Role of the tenant":            {manager, acme, own, ofManager},
		"the manager, a Role without labels":           {manager, acme, nil, ofManager},
		"the manager, in a namespace without a tenant": {manager, nil, managed, ofManager},
		"the manager, in a namespace of the system":    {manager, system, managed, ofManager},
		"the administrator, a Role of TenantMembers":   {admin, acme, managed, ofOthers},
		"the administrator, a Role of the tenant":      {admin, acme, own, ""},
		"a forged manager, a Role of TenantMembers": {
			&user.DefaultInfo{Name: tenant.ManagerUser, Groups: []string{"tenant:acme"}}, acme, managed, ofOthers,
		},
	} {
		t.Run(name, func(t *testing.T) {
			for _, operation := range []admission.Operation{admission.Create, admission.Update, admission.Delete} {
				a := attempt{
					operation:       operation,
					resource:        resourceOf("rbac.authorization.k8s.io", "roles"),
					namespace:       "acme--web",
					name:            "x",
					namespaceLabels: c.place,
					labels:          c.labels,
					by:              c.by,
				}
				denied := set.denialMessages(t, &a)
				isDenied := slices.ContainsFunc(denied, func(text string) bool { return strings.HasPrefix(text, c.want+": ") })
				// An update without a change is a migration of stored objects.
				unchanged := c.want == ofOthers && operation == admission.Update
				if isDenied != (c.want != "" && !unchanged) {
					t.Errorf("%s, %s: denied %q, want %q", name, operation, denied, c.want)
				}
				if c.want == "" && c.by == user.Info(manager) && len(denied) > 0 {
					t.Errorf("%s, %s: denied %q", name, operation, denied)
				}
			}
		})
	}
	for _, by := range []user.Info{manager, admin} {
		a := attempt{
			operation:       admission.Create,
			resource:        resourceOf("rbac.authorization.k8s.io", "roles"),
			namespace:       "acme--web",
			name:            "kubetenant:admins",
			namespaceLabels: acme,
			labels:          managed,
			by:              by,
		}
		if len(set.denialMessages(t, &a)) == 0 {
			t.Errorf("%s may create a Role of a reserved name", by.GetName())
		}
	}
}
