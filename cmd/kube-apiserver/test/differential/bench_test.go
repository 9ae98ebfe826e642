// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package differential

import (
	"fmt"
	"reflect"
	"runtime"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/kubetenant/kubetenant/authz/rbac"
)

func rules() []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{
		{
			Verbs:     []string{"get", "list", "watch"},
			APIGroups: []string{"", "apps"},
			Resources: []string{"pods", "deployments", "configmaps"},
		},
		{Verbs: []string{"create"}, APIGroups: []string{""}, Resources: []string{"pods"}},
	}
}

// meta returns metadata as it is stored by an informer that removes managed fields.
func meta(namespace, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Namespace:         namespace,
		Name:              name,
		UID:               types.UID("6f1c2f6e-6f3a-4a0e-9a35-" + fmt.Sprintf("%012d", len(name))),
		ResourceVersion:   "1234567",
		CreationTimestamp: metav1.Now(),
		Labels:            map[string]string{"app.kubernetes.io/managed-by": "team"},
	}
}

func clusterBinding(i int) *rbacv1.ClusterRoleBinding {
	return &rbacv1.ClusterRoleBinding{
		ObjectMeta: meta("", fmt.Sprintf("binding-%06d", i)),
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: fmt.Sprintf("role-%d", i%100)},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: fmt.Sprintf("user-%06d", i)}},
	}
}

func roleBinding(namespace, i int) *rbacv1.RoleBinding {
	return &rbacv1.RoleBinding{
		ObjectMeta: meta(fmt.Sprintf("ns-%05d", namespace), fmt.Sprintf("binding-%d", i)),
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: fmt.Sprintf("role-%d", i)},
		Subjects: []rbacv1.Subject{
			{APIGroup: rbacv1.GroupName, Kind: "Group", Name: fmt.Sprintf("team-%d-of-%05d", i, namespace)},
		},
	}
}

func withRoles() *policy {
	w := newPolicy()
	for i := range 100 {
		w.set(&rbacv1.ClusterRole{ObjectMeta: meta("", fmt.Sprintf("role-%d", i)), Rules: rules()})
	}
	return w
}

func get(name, namespace string, groups ...string) *authorizer.AttributesRecord {
	return &authorizer.AttributesRecord{
		User:            &user.DefaultInfo{Name: name, Groups: append(groups, user.AllAuthenticated)},
		Verb:            "get",
		APIVersion:      "v1",
		Resource:        "pods",
		Namespace:       namespace,
		Name:            "web-0",
		ResourceRequest: true,
	}
}

// measure measures the same request with upstream's evaluator and with ours.
func measure(b *testing.B, w *policy, a *authorizer.AttributesRecord, want authorizer.Decision) {
	b.Helper()
	for _, e := range []struct {
		name string
		authorizer.Authorizer
	}{{"upstream", w.upstream}, {"indexed", w.ours}} {
		b.Run(e.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if d, _, _ := e.Authorize(b.Context(), a); d != want {
					b.Fatalf("decision %v", d)
				}
			}
		})
	}
}

// BenchmarkClusterRoleBindings shows whether the number of bindings of other subjects changes the
// duration of a decision.
func BenchmarkClusterRoleBindings(b *testing.B) {
	for _, n := range []int{100, 10_000, 100_000} {
		w := withRoles()
		for i := range n {
			w.set(clusterBinding(i))
		}
		b.Run(fmt.Sprintf("n=%d/allow", n), func(b *testing.B) {
			measure(b, w, get(fmt.Sprintf("user-%06d", n-1), "ns-00001"), authorizer.DecisionAllow)
		})
		b.Run(fmt.Sprintf("n=%d/deny", n), func(b *testing.B) {
			measure(b, w, get("somebody", "ns-00001", "team"), authorizer.DecisionNoOpinion)
		})
	}
}

// BenchmarkRoleBindings measures both evaluators with 10 bindings in each of 10,000 namespaces.
func BenchmarkRoleBindings(b *testing.B) {
	w := withRoles()
	for ns := range 10_000 {
		for i := range 10 {
			w.set(roleBinding(ns, i))
		}
	}
	b.Run("allow", func(b *testing.B) {
		measure(b, w, get("alice", "ns-05000", "team-9-of-05000"), authorizer.DecisionAllow)
	})
	b.Run("deny", func(b *testing.B) { measure(b, w, get("alice", "ns-05000", "team"), authorizer.DecisionNoOpinion) })
}

// BenchmarkIndexUpdate measures the update of a binding in the index. The binding's subject has
// no other binding, or is a group with 10,000 bindings. It also measures a denied request from
// a member of this group.
func BenchmarkIndexUpdate(b *testing.B) {
	w := withRoles()
	for i := range 100_000 {
		w.index.Set(clusterBinding(i))
	}
	b.Run("binding", func(b *testing.B) {
		changed := clusterBinding(50_000)
		for b.Loop() {
			w.index.Set(changed)
		}
	})
	var all []*rbacv1.ClusterRoleBinding
	for i := range 10_000 {
		one := clusterBinding(200_000 + i)
		one.Subjects = []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "Group", Name: "everybody"}}
		all = append(all, one)
		w.index.Set(one)
	}
	b.Run("binding of a group with 10000", func(b *testing.B) {
		for i := 0; b.Loop(); i++ { // update a different binding each time, at a different position in the list
			w.index.Set(all[i*7919%len(all)])
		}
	})
	b.Run("denial for the group with 10000", func(b *testing.B) {
		a := get("somebody", "ns", "everybody")
		a.Verb = "delete"
		for b.Loop() {
			if d, _, _ := w.ours.Authorize(b.Context(), a); d != authorizer.DecisionNoOpinion {
				b.Fatal(d)
			}
		}
	})
}

// BenchmarkIndexMemory measures the memory of 100,000 ClusterRoleBindings and of their index.
func BenchmarkIndexMemory(b *testing.B) {
	for b.Loop() {
		before := heap()
		objects := make([]*rbacv1.ClusterRoleBinding, 0, 100_000)
		for i := range cap(objects) {
			objects = append(objects, clusterBinding(i))
		}
		held := heap()
		index := rbac.NewIndex()
		for _, o := range objects {
			index.Set(o)
		}
		indexed := heap()
		b.ReportMetric(float64(held-before)/1e5, "B/object")
		b.ReportMetric(float64(indexed-held)/1e5, "B/indexed")
		b.ReportMetric(float64(indexed-held)/float64(held-before), "ratio")
		runtime.KeepAlive(objects)
		runtime.KeepAlive(reflect.ValueOf(index))
	}
}

func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
