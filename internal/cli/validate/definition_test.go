// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package validate_test

import (
	"testing"

	"github.com/kubetenant/kubetenant/internal/cli/validate"
)

// TestObjects checks the findings that the schema of a kind alone does not detect.
func TestObjects(t *testing.T) {
	const (
		tenant = "apiVersion: kubetenant.dev/v1alpha1\nkind: Tenant\nmetadata: { name: acme }\n"
		quota  = "apiVersion: kubetenant.dev/v1alpha1\nkind: TenantQuota\nmetadata: { name: acme }\n"
		grant  = "apiVersion: kubetenant.dev/v1alpha1\nkind: AccessGrant\nmetadata: { generateName: share- }\n"
		to     = "  to: [ { apiGroups: [ '' ], resources: [ pods ], verbs: [ get ] } ]\n"
	)
	checkFindings(t, validate.Objects, map[string]finding{
		"null fields": {
			tenant + "spec: { id: acme, access: null, admins: null, quota: { pods: null, secrets: 1 }, " +
				"namespaces: { labels: { team: null } } }\n",
			nil,
		},
		"null in a required field": {
			tenant + "spec: { id: null }\n", []string{"4:9: spec.id: is required | add id"},
		},
		"null in a list": {
			tenant + "spec: { id: acme, memberRoles: [ null ] }\n",
			[]string{"4:34: spec.memberRoles[0]: must be a string | write a string"},
		},
		"namespace of a cluster-scoped object": {
			"apiVersion: kubetenant.dev/v1alpha1\nkind: Tenant\nmetadata: { name: acme, namespace: Default }\n" +
				"spec: { id: acme, quota: { request.cpu: 1 } }\n",
			[]string{
				"3:25: warning: metadata.namespace: is ignored: Tenant objects are cluster-scoped | remove it",
				"4:28: spec.quota[request.cpu]: no object uses it | " +
					"use a resource name that ResourceQuota accepts, such as pods or requests.cpu",
			},
		},
		"invalid time": {
			"apiVersion: kubetenant.dev/v1alpha1\nkind: RetiredTenant\n" +
				"metadata: { name: old-5b2d5a3e-4a55-4c28-9a3c-2ad1b0f4f6a1 }\n" +
				"spec:\n  id: old\n  uid: 5b2d5a3e-4a55-4c28-9a3c-2ad1b0f4f6a1\n  retiredAt: 2026-01-01t00:00:00z\n",
			[]string{
				"7:3: spec.retiredAt: must be a time, for example 2026-01-31T12:00:00Z | " +
					"write a time, for example 2026-01-31T12:00:00Z",
			},
		},
		"invalid expiry": {
			grant + "spec:\n  from: { tenant: globex, users: [ bob ] }\n" + to + "  expires: 2026-01-01t00:00:00z\n",
			[]string{
				"7:3: spec.expires: must be a time, for example 2026-01-31T12:00:00Z | " +
					"write a time, for example 2026-01-31T12:00:00Z",
			},
		},
		"generated name": {grant + "spec:\n  from: { tenant: globex, users: [ bob ] }\n" + to, nil},
		"duplicate item in a set": {
			grant + "spec:\n  from: { tenant: globex, users: [ bob, eve, bob ] }\n" + to,
			[]string{"5:46: spec.from.users[2]: is in the list already | write it once"},
		},
		"usage of a tenant": {
			"apiVersion: kubetenant.dev/v1alpha1\nkind: TenantUsage\nmetadata: { name: acme }\ntenant: acme\nservers:\n" +
				"- name: cp-0\n  hours: [ { hour: '2026-11-28T01:00:00Z', requests: 1 } ]\n",
			nil,
		},
		"invalid usage": {
			"apiVersion: kubetenant.dev/v1alpha1\nkind: TenantUsage\nmetadata: { name: acme }\nservers:\n" +
				"- name: cp-0\n  hours: [ { hour: '2026-11-28T01:00:00Z', requests: -1 } ]\n",
			[]string{
				"1:1: tenant: is required | add tenant",
				"6:44: servers[0].hours[0].requests: should be greater than or equal to 0 | write a value that fits the " +
					"description: requests is the number of requests and reviews that the tenant boundary checked.",
			},
		},
		"status": {tenant + "spec: { id: acme }\nstatus: { namespaces: { total: many } }\n", nil},
		"unknown field in the status": {
			tenant + "spec: { id: acme }\nstatus: { conditons: [] }\n",
			[]string{`5:11: status.conditons: unknown field "conditons"; did you mean "conditions"? | write conditions`},
		},
		"status of a kind without a status": {
			"apiVersion: kubetenant.dev/v1alpha1\nkind: TenantMembers\nmetadata: { name: acme }\nspec: { id: acme }\n" +
				"status: {}\n",
			[]string{
				`5:1: status: unknown field "status" | remove it, or write one of the fields apiVersion, kind, metadata, spec`,
			},
		},
		"limit for an unknown resource": {
			quota + "spec: { tenant: acme, hard: { request.cpu: 1 } }\n",
			[]string{
				"4:31: spec.hard[request.cpu]: no object uses it | " +
					"use a resource name that ResourceQuota accepts, such as pods or requests.cpu",
			},
		},
		"limit that is not a quantity": {
			tenant + "spec: { id: acme, quota: { pods: 1e1.5 } }\n",
			[]string{
				"4:28: spec.quota.pods: must be a quantity, for example 10 or 500Mi | write a quantity, for example 10 or 500Mi",
			},
		},
		"value that does not match its tag": {
			tenant + "spec: { id: acme, admins: !!int SECRET }\n",
			[]string{"4:27: the tag does not allow the value | remove the tag, which begins with !"},
		},
		"YAML alias for the kind": {
			"apiVersion: kubetenant.dev/v1alpha1\nmetadata: { name: acme, annotations: { kind: &kind Tenant } }\n" +
				"kind: *kind\nspec: { id: acme }\n",
			nil,
		},
	})
}

// TestReservedSubjects checks that a Tenant and TenantMembers must not contain subjects that the
// server rejects.
func TestReservedSubjects(t *testing.T) {
	const (
		tenant  = "apiVersion: kubetenant.dev/v1alpha1\nkind: Tenant\nmetadata: { name: acme }\nspec:\n  id: acme\n"
		members = "apiVersion: kubetenant.dev/v1alpha1\nkind: TenantMembers\nmetadata: { name: acme }\nspec:\n  id: acme\n"
		fix     = " | write a user, a group or a service account of the tenant"
	)
	checkFindings(t, "", map[string]finding{
		"subjects of the tenant": {
			tenant + "  admins: [ { kind: User, name: alice }, { kind: Group, name: 'tenant:acme' }, " +
				"{ kind: ServiceAccount, name: a, namespace: acme--web } ]\n",
			nil,
		},
		"reserved user": {
			tenant + "  admins: [ { kind: User, name: alice }, { kind: User, name: 'system:masters' } ]\n" +
				"status: { namespaces: { total: many } }\n",
			[]string{"6:56: spec.admins[1].name: is a reserved name" + fix},
		},
		"reserved group in a binding": {
			tenant + "  bindings: [ { clusterRole: view, subjects: [ { kind: Group, name: 'system:masters' } ] } ]\n",
			[]string{"6:63: spec.bindings[0].subjects[0].name: is a reserved name" + fix},
		},
		"group of another tenant in TenantMembers": {
			members + "  bindings: [ { clusterRole: view, subjects: [ { kind: Group, name: 'tenant:globex' } ] } ]\n",
			[]string{"6:63: spec.bindings[0].subjects[0].name: names callers of another tenant" + fix},
		},
		"service account of a system namespace": {
			tenant + "  admins: [ { kind: ServiceAccount, name: a, namespace: kube-system } ]\n",
			[]string{
				"6:46: spec.admins[0].namespace: names a service account in a namespace that the tenant does not own" + fix,
			},
		},
	})
}

// TestReservedByConfiguration checks that the reserved names in a TenancyConfiguration apply to
// the other files of the same validation.
func TestReservedByConfiguration(t *testing.T) {
	object := file(t, "tenant.yaml", "apiVersion: kubetenant.dev/v1alpha1\nkind: Tenant\nmetadata: { name: acme }\n"+
		"spec: { id: acme, admins: [ { kind: User, name: root } ] }\n")
	config := file(t, "tenancy.yaml", header+"authorization: { systemSubjects: { users: [ root ] } }\n")
	for name, c := range map[string]struct {
		files []string
		want  int
	}{
		"without the configuration": {[]string{object}, 0},
		"with the configuration":    {[]string{object, config}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			report, _ := validate.Files(t.Context(), c.files, validate.Options{})
			if len(report.Findings) != c.want || len(report.Unread) > 0 {
				t.Errorf("%+v", report)
			}
		})
	}
}
