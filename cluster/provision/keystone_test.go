// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package provision_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubetenant/kubetenant/cluster/tenants"
	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

// keystone returns the text of a Keystone annotation. Each role is bound to the ClusterRole with
// the same name.
func keystone(domain, project string, roles ...string) string {
	k := &tenants.Keystone{Domain: domain, Project: project}
	scope := project
	if scope == "" {
		scope = "domain:" + domain
	}
	for _, role := range roles {
		k.Roles = append(k.Roles, tenants.KeystoneRole{ID: role, Group: "role-id:" + scope + ":" + role, ClusterRole: role})
	}
	return k.String()
}

// ofProject returns the binding of a project's role in the form of [fixture.bindings].
func ofProject(project, role string) string {
	return fmt.Sprintf("kubetenant:keystone:project:%s %s: role-id:%s:%s", role, role, project, role)
}

func viewOfDomain(domain string) string {
	return fmt.Sprintf("kubetenant:keystone:domain:view view: role-id:domain:%s:view", domain)
}

func annotation(text string) map[string]string {
	return map[string]string{tenant.KeystoneAnnotation: text}
}

// annotate sets the annotation of a namespace, or of the Tenant if its name is acme, and waits.
func (w *fixture) annotate(name, text string) {
	w.t.Helper()
	w.patch(name, text)
	w.settle()
}

func (w *fixture) patch(name, text string) {
	w.t.Helper()
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": annotation(text)}})
	w.must(err)
	if name == "acme" {
		_, err = w.dynamic.Resource(resource).Patch(w.t.Context(), name, types.MergePatchType, patch, metav1.PatchOptions{})
	} else {
		_, err = w.kube.CoreV1().Namespaces().Patch(w.t.Context(), name, types.MergePatchType, patch, metav1.PatchOptions{})
	}
	w.must(err)
}

// newProject starts an engine with the project p1 of the domain d1 in the namespace acme--web. The
// namespace acme--own has no project.
func newProject(t *testing.T) *fixture {
	t.Helper()
	w := newFixture(t)
	w.namespace("acme--web", "acme", annotation(keystone("d1", "p1", "edit", "view")))
	w.namespace("acme--own", "acme", nil)
	w.tenant(func(*v1alpha1.TenantSpec) {})
	w.annotate("acme", keystone("d1", ""))
	return w
}

// TestProjectRoles checks that the bindings in a namespace are updated when its Keystone
// annotation changes.
func TestProjectRoles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newProject(t)
		edit, view := ofProject("p1", "edit"), ofProject("p1", "view")
		w.expect("at first", "acme--web", edit, view)
		w.expect("without a project", "acme--own")
		b, err := w.kube.RbacV1().RoleBindings("acme--web").Get(t.Context(), "kubetenant:keystone:project:edit",
			metav1.GetOptions{})
		w.must(err)
		if b.RoleRef != (rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "edit"}) ||
			len(b.Subjects) != 1 || b.Subjects[0].Kind != rbacv1.GroupKind || b.Subjects[0].APIGroup != rbacv1.GroupName ||
			b.Labels[tenant.ManagedLabel] != "tenant" || b.Labels[tenant.Label] != "acme" {
			t.Errorf("the binding is %+v", b)
		}
		before := w.prepared("acme--web")
		w.annotate("acme--web", keystone("d1", "p1", "view"))
		w.expect("one role less", "acme--web", view)
		if now := w.prepared("acme--web"); now == "" || now == before {
			t.Errorf("the hash was %q and is %q", before, now)
		}
		w.annotate("acme--web", keystone("d1", "p1", "admin", "view"))
		w.expect("another role", "acme--web", ofProject("p1", "admin"), view)
		w.writes()
		missing := strings.TrimSuffix(keystone("d1", "p1", "admin", "view"), "}") + `,"missingSince":"2026-11-24T12:00:00Z"}`
		w.annotate("acme--web", missing)
		w.expect("missing", "acme--web", ofProject("p1", "admin"), view)
		w.annotate("acme--web", keystone("d1", "p1"))
		w.expect("no role", "acme--web")
		w.annotate("acme--web", "")
		w.expect("no annotation", "acme--web")
		w.annotate("acme--web", keystone("d1", "p1", "view"))
		w.must(w.dynamic.Resource(resource).Delete(t.Context(), "acme", metav1.DeleteOptions{}))
		w.settle()
		w.expect("without a Tenant", "acme--web")
	})
}

// TestInvalidProjects checks that Keystone annotations that are invalid or do not match the
// Tenant bind no roles, and do not prevent other content.
func TestInvalidProjects(t *testing.T) {
	valid, p1 := keystone("d1", ""), keystone("d1", "p1", "edit")
	for name, c := range map[string]struct{ tenant, namespace string }{
		"another domain":          {valid, keystone("d2", "p1", "edit")},
		"Tenant without a domain": {"", p1},
		"domain only":             {valid, keystone("d1", "", "edit")},
		"invalid":                 {valid, `{"domain":"d1","project":"p1","roles":[{}]}`},
		"another project's group": {valid, strings.Replace(p1, "role-id:p1", "role-id:p2", 1)},
		"system:masters":          {valid, strings.Replace(p1, "role-id:p1:edit", "system:masters", 1)},
		"invalid Tenant":          {`{"domain":"d1"}}`, p1},
		"forged domain":           {strings.Replace(keystone("d1", "", "edit"), "role-id:domain:d1", "role-id:p1", 1), p1},
		"Tenant with a project":   {p1, keystone("d2", "p1", "edit")},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newFixture(t)
				w.namespace("acme--web", "acme", annotation(c.namespace))
				w.namespace("acme--db", "acme", annotation(keystone("d1", "p2", "view")))
				w.tenant(func(s *v1alpha1.TenantSpec) { s.Admins = []v1alpha1.Subject{peter} })
				w.annotate("acme", c.tenant)
				w.expect(name, "acme--web", "kubetenant:admins admin: peter")
				if w.prepared("acme--web") == "" {
					t.Error("the namespace is not prepared")
				}
				want := []string{"kubetenant:admins admin: peter"}
				if c.tenant == valid {
					want = append(want, ofProject("p2", "view"))
				}
				w.expect(name, "acme--db", want...)
				if refused := strings.HasPrefix(w.status(), "SubjectRefused "); refused != (c.tenant != valid && c.tenant != "") {
					t.Errorf("the status is %s", w.status())
				}
			})
		})
	}
}

// TestDomainRoles checks that the roles of a domain are bound in each namespace, including new
// ones.
func TestDomainRoles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newProject(t)
		w.namespace("globex--web", "globex", annotation(keystone("d1", "p1", "edit")))
		w.annotate("acme", keystone("d1", "", "view"))
		project := []string{ofProject("p1", "edit"), ofProject("p1", "view")}
		w.expect("at first", "acme--web", append([]string{viewOfDomain("d1")}, project...)...)
		w.expect("without a project", "acme--own", viewOfDomain("d1"))
		w.expect("another tenant", "globex--web")
		w.namespace("acme--new", "acme", nil)
		w.settle()
		w.expect("new", "acme--new", viewOfDomain("d1"))
		w.annotate("acme", keystone("d1", ""))
		w.expect("no role", "acme--web", project...)
		w.expect("no role", "acme--new")
	})
}

// TestDomainAccepted checks that no Keystone role is bound after the annotation of the Tenant was
// set to "". The roles of a new domain are then bound.
func TestDomainAccepted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newProject(t)
		w.annotate("acme", keystone("d1", "", "view"))
		w.annotate("acme", "")
		w.expect("no domain", "acme--web")
		w.expect("no domain", "acme--own")
		w.annotate("acme", keystone("d2", "", "view"))
		w.expect("another domain", "acme--web", viewOfDomain("d2"))
	})
}

// TestKeystoneDrift checks that the drift check restores changed and deleted bindings of Keystone
// roles, and deletes bindings that another program added.
func TestKeystoneDrift(t *testing.T) {
	const name = "kubetenant:keystone:project:edit"
	for what, change := range map[string]func(w *fixture) error{
		"deleted": func(w *fixture) error {
			return w.kube.RbacV1().RoleBindings("acme--web").Delete(w.t.Context(), name, metav1.DeleteOptions{})
		},
		"another subject": func(w *fixture) error {
			b, err := w.kube.RbacV1().RoleBindings("acme--web").Get(w.t.Context(), name, metav1.GetOptions{})
			w.must(err)
			b.Subjects[0].Name = "role-id:p2:edit"
			_, err = w.kube.RbacV1().RoleBindings("acme--web").Update(w.t.Context(), b, metav1.UpdateOptions{})
			return err
		},
		"another role": func(w *fixture) error {
			b, err := w.kube.RbacV1().RoleBindings("acme--web").Get(w.t.Context(), name, metav1.GetOptions{})
			w.must(err)
			b.RoleRef.Name = "cluster-admin"
			return w.kube.Tracker().Update(rbacv1.SchemeGroupVersion.WithResource("rolebindings"), b, "acme--web")
		},
		"added to another namespace": func(w *fixture) error {
			b, err := w.kube.RbacV1().RoleBindings("acme--web").Get(w.t.Context(), name, metav1.GetOptions{})
			w.must(err)
			b = &rbacv1.RoleBinding{
				ObjectMeta: metav1.ObjectMeta{Name: name, Labels: b.Labels},
				RoleRef:    b.RoleRef,
				Subjects:   b.Subjects,
			}
			_, err = w.kube.RbacV1().RoleBindings("acme--own").Create(w.t.Context(), b, metav1.CreateOptions{})
			return err
		},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newProject(t)
				w.must(change(w))
				time.Sleep(11 * time.Minute)
				w.settle()
				w.expect(what, "acme--web", ofProject("p1", "edit"), ofProject("p1", "view"))
				w.expect(what, "acme--own")
			})
		})
	}
}

// TestLostRolesFirst checks that a lost role is revoked before the other namespaces of a tenant are
// prepared.
func TestLostRolesFirst(t *testing.T) {
	for what, lose := range map[string]func(w *fixture){
		"role of a project": func(w *fixture) { w.patch("acme--web", keystone("d1", "p1", "view")) },
		"all roles":         func(w *fixture) { w.patch("acme--web", "") },
		"invalid":           func(w *fixture) { w.patch("acme--web", "{") },
		"another domain":    func(w *fixture) { w.patch("acme--web", keystone("d2", "p1", "edit", "view")) },
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newProject(t)
				const namespaces = 200
				w.stop()
				w.client = slow{w.kube}
				w.start()
				for i := range namespaces {
					w.namespace(fmt.Sprint("acme--", i), "acme", nil)
				}
				w.patch("acme", keystone("d1", "", "view"))
				time.Sleep(100 * time.Millisecond)
				lose(w)
				took := until(func() bool { return !slices.Contains(w.bindings("acme--web"), ofProject("p1", "edit")) })
				prepared := 0
				for i := range namespaces {
					prepared += len(w.bindings(fmt.Sprint("acme--", i)))
				}
				if took > time.Second || prepared == namespaces {
					t.Errorf("the role is revoked after %v and %d namespaces", took, prepared)
				}
			})
		})
	}
}

// TestReleasedProject checks that the bindings are deleted from a namespace whose owner changes.
func TestReleasedProject(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newProject(t)
		for _, label := range []string{"globex", ""} {
			ns, err := w.kube.CoreV1().Namespaces().Get(t.Context(), "acme--web", metav1.GetOptions{})
			w.must(err)
			ns.Labels[tenant.Label] = label
			_, err = w.kube.CoreV1().Namespaces().Update(t.Context(), ns, metav1.UpdateOptions{})
			w.must(err)
			time.Sleep(11 * time.Minute)
			w.settle()
			w.expect("label "+label, "acme--web")
		}
	})
}

// TestProjectLeaders checks that a new leader writes only the changes that were made while no
// leader ran.
func TestProjectLeaders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newProject(t)
		w.stop()
		w.writes()
		w.start()
		if n := w.writes(); n != 0 {
			t.Errorf("a new leader writes %d times", n)
		}
		w.stop()
		w.annotate("acme--web", keystone("d1", "p1", "view"))
		w.expect("without a leader", "acme--web", ofProject("p1", "edit"), ofProject("p1", "view"))
		w.start()
		w.expect("with the next leader", "acme--web", ofProject("p1", "view"))
	})
}
