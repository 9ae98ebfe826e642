// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package provision_test

import (
	"testing"
	"testing/synctest"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

// members writes acme's TenantMembers. An empty spec deletes them.
func (w *fixture) members(spec string) {
	w.t.Helper()
	defer w.settle()
	all := w.dynamic.Resource(v1alpha1.SchemeGroupVersion.WithResource(v1alpha1.ResourceTenantMembers))
	_, err := all.Get(w.t.Context(), "acme", metav1.GetOptions{})
	exists := err == nil
	if spec == "" {
		w.must(all.Delete(w.t.Context(), "acme", metav1.DeleteOptions{}))
		return
	}
	u := &unstructured.Unstructured{}
	w.must(yaml.Unmarshal([]byte(`{ apiVersion: kubetenant.dev/v1alpha1, kind: TenantMembers, `+
		`metadata: { name: acme }, spec: `+spec+` }`), &u.Object))
	if exists {
		_, err = all.Update(w.t.Context(), u, metav1.UpdateOptions{})
	} else {
		_, err = all.Create(w.t.Context(), u, metav1.CreateOptions{})
	}
	w.must(err)
}

// TestMembers checks that members have exactly the roles that the TenantMembers specify and that
// the Tenant allows. A removed member loses the role, even if it was removed while no leader ran.
// If the Tenant no longer allows a role, all members lose the role.
func TestMembers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFixture(t)
		w.namespace("acme--web", "acme", nil)
		w.namespace("globex--web", "globex", nil)
		w.members(`{ id: acme, bindings: [ { clusterRole: view, subjects: [ { kind: User, name: mary }, ` +
			`{ kind: User, name: "system:x" } ] }, { clusterRole: cluster-admin, subjects: [ { kind: User, name: mary } ] } ] }`)
		w.expect("without a Tenant", "acme--web")
		w.tenant(func(s *v1alpha1.TenantSpec) {
			s.MemberRoles = []string{"view", "edit"}
			s.Bindings = []v1alpha1.TenantBinding{{ClusterRole: "view", Subjects: []v1alpha1.Subject{peter}}}
		})
		w.expect("at first", "acme--web", "kubetenant:binding:view view: peter", "kubetenant:members:view view: mary")
		w.expect("another tenant", "globex--web")
		w.expectStatus("at first", "SubjectRefused 1/1/0 of generation 1")
		w.members(`{ id: acme, bindings: [ { clusterRole: edit, subjects: [ { kind: User, name: mary }, ` +
			`{ kind: ServiceAccount, namespace: acme--db, name: robot } ] } ] }`)
		w.expect("another role", "acme--web", "kubetenant:binding:view view: peter", "kubetenant:members:edit edit: mary")
		w.namespace("acme--db", "acme", nil)
		w.settle()
		w.expect("with its namespace", "acme--web", "kubetenant:binding:view view: peter",
			"kubetenant:members:edit edit: mary robot")
		w.expectStatus("with its namespace", "Prepared 2/2/0 of generation 1")
		w.members(`{ id: globex, bindings: [ { clusterRole: edit, subjects: [ { kind: User, name: mary } ] } ] }`)
		w.expect("TenantMembers of another tenant", "acme--web", "kubetenant:binding:view view: peter")
		w.members(`{ id: acme, bindings: [ { clusterRole: edit, subjects: [ { kind: User, name: mary } ] } ] }`)
		w.stop()
		w.members("")
		w.expect("without a leader", "acme--web", "kubetenant:binding:view view: peter", "kubetenant:members:edit edit: mary")
		w.start()
		w.expect("with the next leader", "acme--web", "kubetenant:binding:view view: peter")
		w.members(`{ id: acme, bindings: [ { clusterRole: edit, subjects: [ { kind: User, name: mary } ] } ] }`)
		w.tenant(func(s *v1alpha1.TenantSpec) { s.MemberRoles = nil })
		w.expect("no longer in memberRoles", "acme--web", "kubetenant:binding:view view: peter")
	})
}
