// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package v1alpha1_test

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubetenant/kubetenant/config/v1alpha1"
	"github.com/kubetenant/kubetenant/tenant/tenanttest"
)

// synced returns the text of a configuration with a Keystone source that has the given value of
// sync.
func synced(sync string) string {
	return header + "authentication:\n  sources:\n  - { name: openstack, tenants: ['*'], keystone: { authURL: " +
		"'https://k', cloud: c, cloudsFile: f, sync: " + sync + " } }\n"
}

// TestKeystoneSync checks which settings of sync are valid.
func TestKeystoneSync(t *testing.T) {
	const path = "authentication.sources[0].keystone.sync"
	for name, c := range map[string]struct{ sync, want string }{
		"role":                   {`{ roles: { member: edit } }`, ""},
		"roles":                  {`{ roles: { member: edit, "load balancer: admin": "system:aggregate-to-edit" } }`, ""},
		"all fields":             {`{ roles: { a: b }, interval: 30s, createTenants: true, onProjectDeleted: Delete }`, ""},
		"shortest interval":      {`{ roles: { a: b }, interval: 10s }`, ""},
		"longest interval":       {`{ roles: { a: b }, interval: 1h }`, ""},
		"no interval":            {`{ roles: { a: b }, interval: null }`, ""},
		"no sync":                {`null`, ""},
		"empty":                  {`{}`, path + ".roles: Required value: must map at least one Keystone role"},
		"no role":                {`{ roles: {} }`, path + ".roles: Required value"},
		"role without a name":    {`{ roles: { "": edit } }`, path + `.roles[]: Invalid value: "": the key must be`},
		"no ClusterRole":         {`{ roles: { member: "" } }`, path + `.roles[member]: Invalid value: "": must be the name`},
		"ClusterRole with space": {`{ roles: { member: "my role" } }`, `must be the name of a ClusterRole`},
		"ClusterRole with slash": {`{ roles: { member: a/b } }`, `must be the name of a ClusterRole`},
		"ClusterRole with line":  {`{ roles: { member: "edit\n" } }`, `must be the name of a ClusterRole`},
		"ClusterRole of dots":    {`{ roles: { member: ".." } }`, `must be the name of a ClusterRole`},
		"long ClusterRole":       {`{ roles: { member: ` + strings.Repeat("a", 253) + ` } }`, ""},
		"longer ClusterRole":     {`{ roles: { member: ` + strings.Repeat("a", 254) + ` } }`, `must be the name`},
		"short interval":         {`{ roles: { a: b }, interval: 9s }`, `interval: Invalid value: "9s": must be between`},
		"long interval":          {`{ roles: { a: b }, interval: 61m }`, path + ".interval: Invalid value"},
		"zero interval":          {`{ roles: { a: b }, interval: 0s }`, path + ".interval: Invalid value"},
		"negative interval":      {`{ roles: { a: b }, interval: -1m }`, path + ".interval: Invalid value"},
		"unknown deletion":       {`{ roles: { a: b }, onProjectDeleted: delete }`, `onProjectDeleted: Unsupported value`},
		"unknown field":          {`{ roles: { a: b }, dryRun: true }`, `unknown field "` + path + `.dryRun"`},
		"wrong case of a field":  {`{ roles: { a: b }, CreateTenants: true }`, `unknown field "` + path + `.CreateTenants"`},
		"duplicate role":         {`{ roles: { a: b, a: c } }`, "already set in map"},
		"list of roles":          {`{ roles: [ a ] }`, "cannot unmarshal array"},
		"two ClusterRoles":       {`{ roles: { a: [ b, c ] } }`, "cannot unmarshal array"},
		"text for a bool":        {`{ roles: { a: b }, createTenants: "yes" }`, "cannot unmarshal string"},
		"all problems": {
			`{ roles: { b: "", a: "" }, interval: 1s, onProjectDeleted: x }`,
			`[a]: Invalid value: "": must be the name of a ClusterRole: letters, digits and the characters - : . _, ` +
				path + ".roles[b]: ",
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := v1alpha1.Decode([]byte(synced(c.sync)))
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("Decode() = %v, want %q", err, c.want)
			}
		})
	}
}

// TestKeystoneSyncDefaults checks the defaults of sync, and that SyncedKeystone returns the source
// that has sync.
func TestKeystoneSyncDefaults(t *testing.T) {
	settings, err := v1alpha1.Decode([]byte(synced("{ roles: { member: edit } }")))
	if err != nil {
		t.Fatal(err)
	}
	source := settings.SyncedKeystone()
	if source == nil || source.Name != "openstack" {
		t.Fatalf("the source is %v", source)
	}
	want := &v1alpha1.KeystoneSync{
		Roles:            map[string]string{"member": "edit"},
		Interval:         &metav1.Duration{Duration: 5 * time.Minute},
		OnProjectDeleted: v1alpha1.ProjectDeletionKeep,
	}
	if diff := cmp.Diff(want, source.Keystone.Sync); diff != "" {
		t.Error(diff)
	}
	settings, err = v1alpha1.Decode([]byte(synced("null")))
	if err != nil || settings.SyncedKeystone() != nil {
		t.Errorf("SyncedKeystone() returned a source without sync, or Decode() = %v", err)
	}
}

// TestKeystoneSyncOnce checks that only one source may have sync.
func TestKeystoneSyncOnce(t *testing.T) {
	text := synced("{ roles: { a: b } }")
	_, source, _ := strings.Cut(text, "sources:\n")
	second := strings.Replace(source, "openstack", "other", 1)
	_, err := v1alpha1.Decode([]byte(text + second))
	want := "authentication.sources[1].keystone.sync: Forbidden: only one source may have it, and source openstack has it"
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("two sources with sync: %v", err)
	}
	second = strings.Replace(second, "sync: { roles: { a: b } }", "match: { prefix: x }", 1)
	settings, err := v1alpha1.Decode([]byte(header + "authentication:\n  sources:\n" + second + source))
	if err != nil || settings.SyncedKeystone().Name != "openstack" {
		t.Errorf("one of two sources with sync: %v", err)
	}
}

// TestKeystoneTenants checks that Tenants returns the valid tenants of tenantMap.
func TestKeystoneTenants(t *testing.T) {
	k := &v1alpha1.Keystone{TenantMap: map[string]string{
		"Default": "acme",
		"d2":      "globex",
		"d3":      "",
		"d4":      "all",
	}}
	got := k.Tenants()
	if len(got) != 2 || got["Default"] != tenanttest.ID(t, "acme") || got["d2"] != tenanttest.ID(t, "globex") {
		t.Errorf("tenants %v", got)
	}
}

// TestKeystoneSchema checks that the schema has the fields of sync and no others.
func TestKeystoneSchema(t *testing.T) {
	text, err := os.ReadFile("schema.json")
	if err != nil {
		t.Fatal(err)
	}
	var schema any
	if err := json.Unmarshal(text, &schema); err != nil {
		t.Fatal(err)
	}
	sync := find(schema, "sync")
	if sync == nil {
		t.Fatal("the schema has no field sync")
	}
	properties, _ := sync["properties"].(map[string]any)
	var names []string
	for name := range properties {
		names = append(names, name)
	}
	slices.Sort(names)
	if want := []string{"createTenants", "interval", "onProjectDeleted", "roles"}; !slices.Equal(names, want) {
		t.Errorf("fields %q, want %q", names, want)
	}
	if fmt.Sprint(sync["additionalProperties"]) != "false" || fmt.Sprint(sync["required"]) != "[roles]" {
		t.Errorf("additionalProperties: %v, required: %v", sync["additionalProperties"], sync["required"])
	}
}

// find returns the schema of the property with the given name, or nil if there is none.
func find(schema any, name string) map[string]any {
	object, _ := schema.(map[string]any)
	if properties, is := object["properties"].(map[string]any); is {
		if found, is := properties[name].(map[string]any); is {
			return found
		}
	}
	for _, value := range object {
		if found := find(value, name); found != nil {
			return found
		}
	}
	return nil
}
