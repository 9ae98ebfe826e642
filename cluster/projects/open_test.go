// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package projects

import (
	"maps"
	"testing"
	"time"

	configv1alpha1 "github.com/kubetenant/kubetenant/config/v1alpha1"
)

// source returns a source with the given additional fields in keystone.
func source(t *testing.T, keystone string) *configv1alpha1.Source {
	t.Helper()
	settings, err := configv1alpha1.Decode([]byte(`apiVersion: kubetenant.dev/v1alpha1
kind: TenancyConfiguration
authentication:
  sources:
  - name: openstack
    tenants: [acme, d1, mapped]
    groupsPrefix: "keystone:"
    keystone: { authURL: "https://keystone.example.com", cloud: c, cloudsFile: f, ` + keystone + ` }
`))
	if err != nil {
		t.Fatal(err)
	}
	return settings.SyncedKeystone()
}

// TestSettingsOf checks the settings for a source. A domain never maps to a tenant that the
// source may not assert.
func TestSettingsOf(t *testing.T) {
	byName := source(t, "tenantMap: { Cloud Admins: mapped }, sync: { roles: { member: edit }, interval: 1m, "+
		"createTenants: true, onProjectDeleted: Delete }")
	byID := source(t, "domain: id, sync: { roles: { member: edit } }")
	for _, test := range []struct {
		source         *configv1alpha1.Source
		id, name, want string
	}{
		{byName, "d1", "acme", "acme"},
		{byName, "d1", "Cloud Admins", "mapped"},
		{byName, "d1", "mapped", ""}, // another domain is mapped to it
		{byName, "acme", "globex", ""},
		{byName, "d1", "system", ""},
		{byName, "d1", "", ""},
		{byID, "d1", "globex", "d1"},
		{byID, "globex", "acme", ""},
		{byID, "system", "acme", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			settings, err := SettingsOf(test.source)
			if err != nil {
				t.Fatal(err)
			}
			if id, err := settings.TenantOf(test.id, test.name); id.String() != test.want || (err == nil) != (test.want != "") {
				t.Errorf("the domain %s named %q maps to %q (%v), want %q", test.id, test.name, id, err, test.want)
			}
		})
	}
	s, err := SettingsOf(byName)
	if err != nil || !s.CreateTenants || !s.DeleteNamespaces || s.Interval != time.Minute ||
		s.GroupsPrefix != "keystone:" || !maps.Equal(s.Roles, map[string]string{"member": "edit"}) {
		t.Errorf("settings %+v: %v", s, err)
	}
	if s, err = SettingsOf(byID); err != nil || s.CreateTenants || s.DeleteNamespaces || s.Interval != 5*time.Minute {
		t.Errorf("default settings %+v: %v", s, err)
	}
}
