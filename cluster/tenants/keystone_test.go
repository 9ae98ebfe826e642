// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package tenants_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubetenant/kubetenant/cluster/tenants"
	"github.com/kubetenant/kubetenant/tenant"
)

// annotated returns a Namespace with the given text as its Keystone annotation.
func annotated(text string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Annotations: map[string]string{tenant.KeystoneAnnotation: text},
	}}
}

// TestKeystoneOf checks that an annotation is valid only if its text is the result of
// [tenants.Keystone.String].
func TestKeystoneOf(t *testing.T) {
	role := func(id, group string) string {
		return `{"id":"` + id + `","group":"` + group + `","clusterRole":"edit"}`
	}
	domain := func(roles ...string) string { return `{"domain":"d1","roles":[` + strings.Join(roles, ",") + `]}` }
	project := func(roles ...string) string {
		return `{"domain":"d1","project":"p1","roles":[` + strings.Join(roles, ",") + `]}`
	}
	for name, c := range map[string]struct {
		text  string
		valid bool
	}{
		"domain":                   {`{"domain":"d1"}`, true},
		"project":                  {`{"domain":"d1","project":"p1"}`, true},
		"longest ID":               {`{"domain":"` + strings.Repeat("d", 64) + `"}`, true},
		"missing project":          {`{"domain":"d1","project":"p1","missingSince":"2026-11-24T12:00:00Z"}`, true},
		"role of a project":        {project(role("m", "role-id:p1:m")), true},
		"roles of a project":       {project(role("m", "role-id:p1:m"), role("r", "role-id:p1:r")), true},
		"role of a domain":         {domain(role("m", "role-id:domain:d1:m")), true},
		"prefix":                   {project(role("m", "keystone:role-id:p1:m")), true},
		"prefix of another source": {domain(role("m", "a/b role-id:domain:d1:m")), true},

		"empty object":  {`{}`, false},
		"null":          {`null`, false},
		"string":        {`"d1"`, false},
		"list":          {`[]`, false},
		"not JSON":      {`domain=d1`, false},
		"unfinished":    {`{"domain":"d1"`, false},
		"space":         {` `, false},
		"unknown field": {`{"domain":"d1","admin":true}`, false},
		"unknown field of role": {
			project(`{"id":"m","group":"role-id:p1:m","clusterRole":"edit","namespace":"x"}`), false,
		},
		"field in another case":   {`{"Domain":"d1"}`, false},
		"field twice":             {`{"domain":"d2","domain":"d1"}`, false},
		"trailing object":         {`{"domain":"d1"}{}`, false},
		"trailing brace":          {`{"domain":"d1"}}`, false},
		"trailing bracket":        {`{"domain":"d1"}] x`, false},
		"trailing line":           {`{"domain":"d1"}` + "\n", false},
		"null roles":              {`{"domain":"d1","roles":null}`, false},
		"wrong type":              {`{"domain":1}`, false},
		"another form of a time":  {`{"domain":"d1","missingSince":"2026-11-24T13:00:00+01:00"}`, false},
		"invalid time":            {`{"domain":"d1","missingSince":"yesterday"}`, false},
		"longer ID":               {`{"domain":"` + strings.Repeat("d", 65) + `"}`, false},
		"ID with a colon":         {`{"domain":"d:1"}`, false},
		"ID with a line break":    {`{"domain":"d1\n"}`, false},
		"ID in another script":    {`{"domain":"д1"}`, false},
		"ID domain":               {`{"domain":"domain"}`, false},
		"ID system":               {`{"domain":"system"}`, false},
		"project ID domain":       {`{"domain":"d1","project":"domain"}`, false},
		"project ID system":       {`{"domain":"d1","project":"system"}`, false},
		"project ID with a slash": {`{"domain":"d1","project":"p/1"}`, false},
		"no role ID":              {project(role("", "role-id:p1:")), false},
		"role ID with a colon":    {project(role("m:1", "role-id:p1:m:1")), false},
		"role ID domain":          {project(role("domain", "role-id:p1:domain")), false},
		"no ClusterRole":          {project(`{"id":"m","group":"role-id:p1:m","clusterRole":""}`), false},
		"unsorted":                {project(role("r", "role-id:p1:r"), role("m", "role-id:p1:m")), false},
		"duplicate role":          {project(role("m", "role-id:p1:m"), role("m", "role-id:p1:m")), false},
		"no group":                {project(role("m", "")), false},
		"another group":           {project(role("m", "role-id:p1:r")), false},
		"another project's group": {project(role("m", "role-id:p2:m")), false},
		"the domain's group":      {project(role("m", "role-id:domain:d1:m")), false},
		"the system's group":      {project(role("m", "role-id:system:m")), false},
		"another domain's group":  {domain(role("m", "role-id:domain:d2:m")), false},
		"group without a domain":  {domain(role("m", "role-id:domain:m")), false},
		"a project's group":       {domain(role("m", "role-id:p1:m")), false},
		"empty domain ID":         {`{"domain":"","roles":[` + role("m", "role-id:domain:d1:m") + `]}`, false},
		"text after the group":    {project(role("m", "role-id:p1:mm")), false},
		"system:masters":          {project(role("m", "system:masters")), false},
		"system: as prefix":       {project(role("m", "system:role-id:p1:m")), false},
		"tenant: as prefix":       {project(role("m", "tenant:role-id:p1:m")), false},
		"tenant:x":                {project(role("m", "tenant:acme")), false},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := tenants.KeystoneOf(annotated(c.text))
			if (err == nil) != c.valid || (got != nil) != c.valid {
				t.Fatalf("%s: %v, %v", c.text, got, err)
			}
			if got != nil && got.String() != c.text {
				t.Errorf("%s became %s", c.text, got)
			}
			if err != nil && strings.Contains(err.Error(), "p1") {
				t.Errorf("the error contains the value: %v", err)
			}
		})
	}
	for name, object := range map[string]metav1.Object{
		"no annotations": &corev1.Namespace{},
		"empty":          annotated(""),
	} {
		t.Run(name, func(t *testing.T) {
			if got, err := tenants.KeystoneOf(object); got != nil || err != nil {
				t.Errorf("%v, %v", got, err)
			}
		})
	}
}

// TestKeystoneSize checks that an annotation with 1000 roles is valid, and that an annotation
// above the maximum size is rejected.
func TestKeystoneSize(t *testing.T) {
	k := &tenants.Keystone{Domain: "d1", Project: "p1"}
	for i := range 26 * 26 * 26 {
		id := string([]byte{'a' + byte(i/676), 'a' + byte(i/26%26), 'a' + byte(i%26)})
		k.Roles = append(k.Roles, tenants.KeystoneRole{ID: id, Group: "role-id:p1:" + id, ClusterRole: "edit"})
	}
	if got, err := tenants.KeystoneOf(annotated(k.String())); err == nil {
		t.Errorf("%d roles are valid", len(got.Roles))
	}
	k.Roles = k.Roles[:1000]
	if got, err := tenants.KeystoneOf(annotated(k.String())); err != nil || !got.Equal(k) {
		t.Errorf("%d bytes: %v", len(k.String()), err)
	}
}

// TestKeystoneEqual checks that a change of any field makes two values unequal.
func TestKeystoneEqual(t *testing.T) {
	at, later := metav1.Unix(1, 0), metav1.Unix(2, 0)
	k := &tenants.Keystone{Domain: "d1", Project: "p1", MissingSince: &at}
	k.Roles = []tenants.KeystoneRole{{ID: "m", Group: "role-id:p1:m", ClusterRole: "edit"}}
	for name, change := range map[string]func(k *tenants.Keystone){
		"domain":       func(k *tenants.Keystone) { k.Domain = "d2" },
		"project":      func(k *tenants.Keystone) { k.Project = "" },
		"no roles":     func(k *tenants.Keystone) { k.Roles = nil },
		"another role": func(k *tenants.Keystone) { k.Roles = []tenants.KeystoneRole{{ID: "m"}} },
		"not missing":  func(k *tenants.Keystone) { k.MissingSince = nil },
		"later":        func(k *tenants.Keystone) { k.MissingSince = &later },
	} {
		t.Run(name, func(t *testing.T) {
			other := *k
			if change(&other); k.Equal(&other) || other.Equal(k) || k.Equal(nil) {
				t.Error("equal")
			}
		})
	}
	if other := *k; !k.Equal(&other) {
		t.Error("a copy is not equal")
	}
}
