// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package projects

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubetenant/kubetenant/authn/keystone"
	"github.com/kubetenant/kubetenant/cluster/tenants"
	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/tenanttest"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

var start = time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC)

// cluster is a Keystone and a Kubernetes cluster in memory. Plans change it directly, without a
// server.
type cluster struct {
	tb         testing.TB
	settings   Settings
	contents   keystone.Contents
	namespaces map[string]*corev1.Namespace   // keyed by name
	tenants    map[tenant.ID]*v1alpha1.Tenant // keyed by tenant ID
	unknown    map[tenant.ID]bool             // tenants for which it is not known whether they have a Tenant
	absent     map[string]int                 // the value of [Syncer].missing
	now        time.Time
}

// newCluster returns a cluster with the Tenant acme. The domain of acme is d1, and has the
// project p1, in which the role member is assigned.
func newCluster(tb testing.TB) *cluster {
	tb.Helper()
	options := &keystone.Options{}
	c := &cluster{
		tb: tb,
		settings: Settings{
			TenantOf: options.TenantOf,
			Roles:    map[string]string{"member": "edit", "reader": "view"},
			Interval: 5 * time.Minute,
		},
		contents: keystone.Contents{
			Domains:  []keystone.Domain{{ID: "d1", Name: "acme", Enabled: true}},
			Projects: []keystone.Project{project("p1", "Web")},
			Roles: []keystone.Role{
				{ID: "m", Name: "member"}, {ID: "r", Name: "reader"}, {ID: "a", Name: "admin"},
			},
			Assignments: []keystone.Assignment{{RoleID: "m", ProjectID: "p1"}},
		},
		namespaces: map[string]*corev1.Namespace{},
		tenants:    map[tenant.ID]*v1alpha1.Tenant{},
		unknown:    map[tenant.ID]bool{},
		absent:     map[string]int{},
		now:        start,
	}
	c.tenant("acme", "")
	return c
}

// project returns an enabled project in the domain d1.
func project(id, name string) keystone.Project {
	return keystone.Project{
		ID:       id,
		Name:     name,
		DomainID: "d1",
		ParentID: "d1",
		Enabled:  true,
	}
}

// role returns the role with the given ID (m for member or r for reader) in a project.
func role(project, id string) tenants.KeystoneRole {
	return tenants.KeystoneRole{
		ID:          id,
		Group:       "role-id:" + project + ":" + id,
		ClusterRole: map[string]string{"m": "edit", "r": "view"}[id],
	}
}

func (c *cluster) tenant(name, annotation string) {
	c.tb.Helper()
	id := tenanttest.ID(c.tb, name)
	t := &v1alpha1.Tenant{Spec: v1alpha1.TenantSpec{ID: name}}
	t.Name, t.Generation = id.ObjectName(), 1
	t.Annotations = map[string]string{tenant.KeystoneAnnotation: annotation}
	c.tenants[id] = t
}

func (c *cluster) namespace(name, of, annotation string) *corev1.Namespace {
	ns := &corev1.Namespace{}
	ns.Name, ns.CreationTimestamp = name, metav1.NewTime(c.now)
	ns.Labels = map[string]string{tenant.Label: of}
	ns.Annotations = map[string]string{tenant.KeystoneAnnotation: annotation}
	c.namespaces[name] = ns
	return ns
}

// projects replaces the projects of the domain d1 with n projects in which the role member is
// assigned.
func (c *cluster) projects(n int) {
	c.contents.Projects, c.contents.Assignments = nil, nil
	for i := range n {
		id := fmt.Sprintf("p%03d", i)
		c.contents.Projects = append(c.contents.Projects, project(id, ""))
		c.contents.Assignments = append(c.contents.Assignments, keystone.Assignment{RoleID: "m", ProjectID: id})
	}
}

func (c *cluster) state() *State {
	return &State{
		Tenants: slices.Collect(maps.Keys(c.tenants)),
		Tenant: func(id tenant.ID) (*v1alpha1.Tenant, bool) {
			return c.tenants[id], !c.unknown[id]
		},
		Namespaces: slices.Collect(maps.Values(c.namespaces)),
		OwnerOf: func(ns *corev1.Namespace) tenant.ID {
			id, _ := tenant.Parse(ns.Labels[tenant.Label])
			return id
		},
	}
}

func (c *cluster) plans() []Plan {
	return Plans(&c.settings, &c.contents, c.state(),
		func(key string) bool { return c.absent[key] >= missingReads }, c.now)
}

// apply makes a change as [Syncer] does.
func (c *cluster) apply(plan *Plan, change *Change) {
	c.tb.Helper()
	switch change.Action {
	case CreateTenant:
		c.tenant(plan.Tenant.String(), "")
	case UpdateTenant:
		t := c.tenants[plan.Tenant].DeepCopy()
		t.Annotations = map[string]string{tenant.KeystoneAnnotation: change.To.String()}
		c.tenants[plan.Tenant] = t
	case CreateNamespace:
		if c.namespaces[change.Name] != nil {
			c.tb.Fatalf("namespace %s exists", change.Name)
		}
		if tenant.PrefixOwner(change.Name) != plan.Tenant {
			c.tb.Fatalf("namespace %s does not belong to %s", change.Name, plan.Tenant)
		}
		c.namespace(change.Name, plan.Tenant.String(), change.To.String())
	case UpdateNamespace:
		ns := c.namespaces[change.Name].DeepCopy()
		ns.Annotations[tenant.KeystoneAnnotation] = change.To.String()
		c.namespaces[change.Name] = ns
	case DeleteNamespace:
		delete(c.namespaces, change.Name)
	}
}

// read reads Keystone once and makes the planned changes until the plans are empty. It returns
// the changes, and the conditions of the last plans as text.
func (c *cluster) read() (changes, conditions []string) {
	c.tb.Helper()
	plans := c.plans()
	s := Syncer{missing: c.absent}
	s.recordMissing(plans, c.now)
	c.absent = s.missing
	for range 20 {
		plans = c.plans()
		settled := true
		for i := range plans {
			for j := range plans[i].Changes {
				settled = false
				changes = append(changes, string(plans[i].Changes[j].Action)+" "+plans[i].Changes[j].Name)
				c.apply(&plans[i], &plans[i].Changes[j])
			}
		}
		if settled {
			for i := range plans {
				condition := plans[i].Condition
				conditions = append(conditions, plans[i].Tenant.String()+" "+condition.Reason)
				if (condition.Status == metav1.ConditionTrue) != (condition.Reason == v1alpha1.ReasonSynced) {
					c.tb.Errorf("condition %+v", condition)
				}
			}
			return changes, conditions
		}
	}
	c.tb.Fatalf("the plans do not converge: %q", changes)
	return nil, nil
}

// expect checks the changes and the conditions of one read.
func (c *cluster) expect(what string, conditions []string, changes ...string) {
	c.tb.Helper()
	got, is := c.read()
	if !slices.Equal(got, changes) {
		c.tb.Errorf("%s: changes %q, want %q", what, got, changes)
	}
	if !slices.Equal(is, conditions) {
		c.tb.Errorf("%s: conditions %q, want %q", what, is, conditions)
	}
}

// message returns the message of the first plan's condition.
func (c *cluster) message() string {
	c.tb.Helper()
	return c.plans()[0].Condition.Message
}

// synced reads Keystone and makes the planned changes. The Tenant acme must then be in sync.
func (c *cluster) synced() *cluster {
	c.tb.Helper()
	if _, is := c.read(); !slices.Equal(is, []string{"acme Synced"}) {
		c.tb.Fatalf("conditions %q", is)
	}
	return c
}

// annotation returns the content of a namespace's annotation, which must be valid. If the name is
// acme, it reads the annotation of the Tenant acme.
func (c *cluster) annotation(name string) *tenants.Keystone {
	c.tb.Helper()
	object := metav1.Object(c.tenants[tenanttest.ID(c.tb, "acme")])
	if name != "acme" {
		object = c.namespaces[name]
	}
	is, err := tenants.KeystoneOf(object)
	if err != nil {
		c.tb.Fatal(err)
	}
	return is
}

// roles returns the roles in the annotation of a namespace or the Tenant acme, in the form
// group=ClusterRole.
func (c *cluster) roles(name string) string {
	c.tb.Helper()
	var all []string
	if is := c.annotation(name); is != nil {
		for _, r := range is.Roles {
			all = append(all, r.Group+"="+r.ClusterRole)
		}
	}
	return strings.Join(all, " ")
}

func (c *cluster) expectRoles(what, name, want string) {
	c.tb.Helper()
	if got := c.roles(name); got != want {
		c.tb.Errorf("%s: the roles of %s are %q, want %q", what, name, got, want)
	}
}

var synced = []string{"acme Synced"}

// TestFirstRead checks that the first read records the domain and creates the namespace, and that
// a second read changes nothing.
func TestFirstRead(t *testing.T) {
	c := newCluster(t)
	c.expect("first read", synced, "update Tenant acme", "create namespace acme--web-p1")
	c.expectRoles("first read", "acme--web-p1", "role-id:p1:m=edit")
	if got := *c.annotation("acme"); got.Domain != "d1" || got.Project != "" || len(got.Roles) != 0 {
		t.Errorf("the Tenant has %s", got.String())
	}
	c.expect("second read", synced)
}

// TestTenants checks that the plan for a tenant without a usable domain or Tenant changes nothing
// and sets a condition that describes the problem.
func TestTenants(t *testing.T) {
	recorded := (&tenants.Keystone{Domain: "d1"}).String()
	other := (&tenants.Keystone{Domain: "d2"}).String()
	acme := tenanttest.ID(t, "acme")
	for name, test := range map[string]struct {
		change     func(c *cluster)
		conditions []string
		message    string
	}{
		"no domain": {change: func(c *cluster) { c.contents.Domains = nil }},
		"renamed domain": {
			func(c *cluster) { c.tenant("acme", recorded); c.contents.Domains[0].Name = "acme2" },
			[]string{"acme DomainMissing"},
			"add its new name to tenantMap",
		},
		"deleted domain": {
			func(c *cluster) { c.tenant("acme", recorded); c.contents.Domains = nil },
			[]string{"acme DomainMissing"},
			"the domain d1 mapped to it",
		},
		"another domain": {
			func(c *cluster) { c.tenant("acme", other) },
			[]string{"acme DomainChanged"},
			"kubectl annotate tenants.kubetenant.dev acme kubetenant.dev/keystone= ",
		},
		"another disabled domain": {
			func(c *cluster) { c.tenant("acme", other); c.contents.Domains[0].Enabled = false },
			[]string{"acme DomainChanged"},
			"",
		},
		"two domains": {
			func(c *cluster) {
				c.contents.Domains = append(c.contents.Domains, keystone.Domain{ID: "d2", Name: "acme", Enabled: true})
			},
			[]string{"acme DomainAmbiguous"},
			"2 Keystone domains",
		},
		"two domains, one is disabled": {
			func(c *cluster) {
				c.contents.Domains = append(c.contents.Domains, keystone.Domain{ID: "d2", Name: "acme"})
			},
			[]string{"acme DomainAmbiguous"},
			"",
		},
		"disabled domain": {
			func(c *cluster) { c.contents.Domains[0].Enabled = false },
			[]string{"acme DomainDisabled"},
			"nothing was changed",
		},
		"invalid ID": {
			func(c *cluster) { c.contents.Domains[0].ID = "d:1" },
			[]string{"acme WriteFailed"},
			"unexpected characters",
		},
		"reserved ID": {
			func(c *cluster) { c.contents.Domains[0].ID = "domain" },
			[]string{"acme WriteFailed"},
			"unexpected characters",
		},
		"forged annotation": {
			func(c *cluster) { c.tenant("acme", `{"domain":"d1","roles":[{"id":"m","group":"system:masters"}]}`) },
			[]string{"acme WriteFailed"},
			`Set it to ""`,
		},
		"no Tenant":            {change: func(c *cluster) { delete(c.tenants, acme) }},
		"unknown Tenant":       {change: func(c *cluster) { c.unknown[acme] = true }},
		"Tenant being deleted": {change: func(c *cluster) { c.tenants[acme].DeletionTimestamp = &metav1.Time{Time: start} }},
		"source may not assert the tenant": {change: func(c *cluster) {
			c.settings.TenantOf = func(string, string) (tenant.ID, error) { return tenant.ID{}, keystone.ErrDomain }
		}},
		"system tenant": {change: func(c *cluster) {
			c.settings.CreateTenants = true
			c.settings.TenantOf = func(string, string) (tenant.ID, error) { return tenant.System(), nil }
		}},
		"zero tenant": {change: func(c *cluster) {
			c.settings.CreateTenants = true
			c.settings.TenantOf = func(string, string) (tenant.ID, error) { return tenant.ID{}, nil }
		}},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t)
			test.change(c)
			c.expect(name, test.conditions)
			if test.message != "" && !strings.Contains(c.message(), test.message) {
				t.Errorf("message %q, want %q", c.message(), test.message)
			}
			if len(c.namespaces) > 0 {
				t.Errorf("namespaces %v", slices.Collect(maps.Keys(c.namespaces)))
			}
		})
	}
}

// TestDomainAccepted checks that another domain is accepted for a tenant after an administrator
// has set the annotation to "". The namespaces of the former domain do not change.
func TestDomainAccepted(t *testing.T) {
	c := newCluster(t).synced()
	was := c.namespaces["acme--web-p1"]
	c.contents.Domains[0].ID = "d2"
	c.contents.Projects[0].ID, c.contents.Projects[0].DomainID = "q1", "d2"
	c.contents.Assignments = []keystone.Assignment{{RoleID: "r", DomainID: "d2"}}
	c.expect("another domain", []string{"acme DomainChanged"})
	c.tenant("acme", "")
	c.expect("accepted", synced, "update Tenant acme", "create namespace acme--web-q1")
	c.expectRoles("accepted", "acme", "role-id:domain:d2:r=view")
	if c.namespaces["acme--web-p1"] != was {
		t.Error("the namespace of the former domain has changed")
	}
	c.contents.Domains[0].ID, c.contents.Projects[0].DomainID = "d1", "d1"
	c.expect("former domain again", []string{"acme DomainChanged"})
}

// TestCreateTenants checks the domains for which a Tenant is created.
func TestCreateTenants(t *testing.T) {
	globex := tenanttest.ID(t, "globex")
	for name, test := range map[string]struct {
		change func(c *cluster)
		want   []string
	}{
		"an enabled domain": {func(*cluster) {}, []string{"create Tenant globex", "update Tenant globex"}},
		"disabled setting":  {func(c *cluster) { c.settings.CreateTenants = false }, nil},
		"a disabled domain": {func(c *cluster) { c.contents.Domains[0].Enabled = false }, nil},
		"an invalid ID":     {func(c *cluster) { c.contents.Domains[0].ID = "system" }, nil},
		"an unknown Tenant": {func(c *cluster) { c.unknown[globex] = true }, nil},
		"two domains": {func(c *cluster) {
			c.contents.Domains = append(c.contents.Domains, keystone.Domain{ID: "d3", Name: "globex", Enabled: true})
		}, nil},
		"a name that is not a tenant ID": {func(c *cluster) { c.contents.Domains[0].Name = "Default domain" }, nil},
		"the system tenant's name":       {func(c *cluster) { c.contents.Domains[0].Name = "system" }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t)
			c.settings.CreateTenants = true
			c.contents = keystone.Contents{Domains: []keystone.Domain{{ID: "d2", Name: "globex", Enabled: true}}}
			test.change(c)
			if got, _ := c.read(); !slices.Equal(got, test.want) {
				t.Errorf("changes %q, want %q", got, test.want)
			}
		})
	}
}

// TestNewProjects checks the namespaces of new projects.
func TestNewProjects(t *testing.T) {
	const id = "0123456789abcdef"
	long := strings.Repeat("x", 255)
	all := func(pairs ...string) (all []keystone.Project) { // pairs of ID and name
		for i := 0; i < len(pairs); i += 2 {
			all = append(all, project(pairs[i], pairs[i+1]))
		}
		return all
	}
	for name, test := range map[string]struct {
		tenant   string // defaults to acme
		projects []keystone.Project
		want     string // the names of the namespaces
		problem  string
	}{
		"two projects": {
			"", all("p1", "Web", "p2", "Db"),
			"acme--db-p2 acme--web-p1", "",
		},
		"non-ASCII name": {
			"", all(id, "Проект"),
			"acme--01234567", "",
		},
		"partly ASCII name": {
			"", all(id, "Büro 7"),
			"acme--b-ro-7-01234567", "",
		},
		"punctuation": {
			"", all(id, "--!? .."),
			"acme--01234567", "",
		},
		"no name": {
			"", all(id, ""),
			"acme--01234567", "",
		},
		"separator in name": {
			"", all(id, "a--b"),
			"acme--a-b-01234567", "",
		},
		"255 characters": {
			"", all(id, long),
			"acme--" + long[:48] + "-01234567", "",
		},
		"same slug": {
			"", all("p1", "a b", "p2", "a-b"),
			"acme--a-b-p1 acme--a-b-p2", "",
		},
		"same start of IDs": {
			"", all(id+"1", "a", id+"2", "b"),
			"acme--a-01234567 acme--b-01234567", "",
		},
		"same name": {
			"", all(id+"1", "a b", id+"2", "a-b"),
			"acme--a-b-01234567", "exists, but it does not belong to project " + id + "2",
		},
		"upper-case IDs": {
			"", all("P1", "a", "p1", "a"),
			"acme--a-p1", "project p1",
		},
		"invalid ID": {
			"", all("p:1", "a", "p2", ""),
			"acme--p2", "unexpected characters",
		},
		"reserved ID": {
			"", all("domain", "a", "system", ""),
			"", "unexpected characters",
		},
		"ID of hyphens": {
			"", all("--", "a"),
			"", "no namespace can be named",
		},
		"tenant with dots": {
			"acme.example", all(id, "a"),
			"", "no namespace can be named",
		},
		"tenant with --": {
			"acme--example", all(id, "a"),
			"", "no namespace can be named",
		},
		"tenant upper-case": {
			"Acme", all(id, "a"),
			"", "no namespace can be named",
		},
		"tenant ID of 53 characters": {
			long[:53], all(id, "a"),
			long[:53] + "--01234567", "",
		},
		"tenant ID of 54 characters": {
			long[:54], all(id, "a"),
			"", "at most 53",
		},
		"tenant ID of 63 characters": {
			long[:63], all(id, "a"),
			"", "at most 53",
		},
		"tenant ID of 51 characters": {
			long[:51], all(id, "abc"),
			long[:51] + "--a-01234567", "",
		},
		"no room for a name": {
			long[:52], all(id, "abc"),
			long[:52] + "--01234567", "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t)
			c.contents.Projects = test.projects
			if test.tenant != "" {
				clear(c.tenants)
				c.tenant(test.tenant, "")
				c.contents.Domains[0].Name = test.tenant
			}
			c.read()
			if got := strings.Join(slices.Sorted(maps.Keys(c.namespaces)), " "); got != test.want {
				t.Errorf("namespaces %s, want %s", got, test.want)
			}
			condition := c.plans()[0].Condition
			want := v1alpha1.ReasonSynced
			if test.problem != "" {
				want = v1alpha1.ReasonProjectsSkipped
			}
			if condition.Reason != want || !strings.Contains(condition.Message, test.problem) {
				t.Errorf("condition %s: %s, want %s: %s", condition.Reason, condition.Message, want, test.problem)
			}
		})
	}
}

// TestManyNewProjects checks that one plan creates at most maxCreations namespaces.
func TestManyNewProjects(t *testing.T) {
	c := newCluster(t)
	c.projects(maxCreations + 1)
	plan := c.plans()[0]
	if len(plan.Changes) != 1+maxCreations || !plan.More {
		t.Fatalf("%d changes, more: %v", len(plan.Changes), plan.More)
	}
	c.synced()
	if plan = c.plans()[0]; len(c.namespaces) != maxCreations+1 || plan.More || len(plan.Changes) > 0 {
		t.Errorf("%d namespaces, %d changes, more: %v", len(c.namespaces), len(plan.Changes), plan.More)
	}
}

// TestExistingNamespaces checks that an existing namespace is changed only if the tenant owns it
// and its annotation names the project.
func TestExistingNamespaces(t *testing.T) {
	const name = "acme--web-p1"
	p1 := &tenants.Keystone{Domain: "d1", Project: "p1", Roles: []tenants.KeystoneRole{role("p1", "m")}}
	other := &tenants.Keystone{Domain: "d2", Project: "p1"}
	for what, test := range map[string]struct {
		existing func(c *cluster)
		reason   string
		problem  string
		changes  []string
	}{
		"no annotation, for example after a restore": {
			func(c *cluster) { c.namespace(name, "acme", "") },
			v1alpha1.ReasonProjectsSkipped, "namespace " + name + " exists, but it does not belong to project p1", nil,
		},
		"namespace of another tenant": {
			func(c *cluster) { c.namespace(name, "globex", p1.String()) },
			v1alpha1.ReasonProjectsSkipped, "namespace " + name + " exists", nil,
		},
		"namespace of the system tenant": {
			func(c *cluster) { c.namespace(name, "", p1.String()) },
			v1alpha1.ReasonProjectsSkipped, "namespace " + name + " exists", nil,
		},
		"invalid annotation": {
			func(c *cluster) { c.namespace(name, "acme", "{") },
			v1alpha1.ReasonProjectsSkipped, "namespace " + name + ": the annotation", nil,
		},
		"forged annotation": {
			func(c *cluster) {
				c.namespace(name, "acme", strings.Replace(p1.String(), "role-id:p1", "role-id:p2", 1))
			},
			v1alpha1.ReasonProjectsSkipped, "its roles are invalid", nil,
		},
		"annotation of another domain": {
			func(c *cluster) { c.namespace(name, "acme", other.String()) },
			v1alpha1.ReasonProjectsSkipped, "exists, but it does not belong to project p1", nil,
		},
		"annotation of a domain only": {
			func(c *cluster) { c.namespace(name, "acme", (&tenants.Keystone{Domain: "d1"}).String()) },
			v1alpha1.ReasonProjectsSkipped, "exists, but it does not belong to project p1", nil,
		},
		"another name": {func(c *cluster) { c.namespace("acme--old", "acme", p1.String()) }, v1alpha1.ReasonSynced, "", nil},
		"stale roles": {
			func(c *cluster) {
				c.namespace("acme--old", "acme", (&tenants.Keystone{Domain: "d1", Project: "p1"}).String())
			},
			v1alpha1.ReasonSynced, "",
			[]string{"update namespace acme--old"},
		},
		"two namespaces": {
			func(c *cluster) {
				c.namespace("acme--b", "acme", p1.String())
				c.now = c.now.Add(time.Minute)
				c.namespace("acme--a", "acme", (&tenants.Keystone{Domain: "d1", Project: "p1"}).String())
			},
			v1alpha1.ReasonProjectsSkipped, "namespaces acme--a and acme--b both belong to project p1", nil,
		},
		"terminating": {
			func(c *cluster) { c.namespace(name, "acme", p1.String()).DeletionTimestamp = &metav1.Time{Time: start} },
			v1alpha1.ReasonSynced, "", nil,
		},
		"terminating with stale roles": {
			func(c *cluster) {
				ns := c.namespace(name, "acme", (&tenants.Keystone{Domain: "d1", Project: "p1"}).String())
				ns.DeletionTimestamp = &metav1.Time{Time: start}
			},
			v1alpha1.ReasonSynced, "", nil,
		},
		"namespace without a project": {
			func(c *cluster) { c.namespace("acme--own", "acme", "") },
			v1alpha1.ReasonSynced, "",
			[]string{"create namespace " + name},
		},
	} {
		t.Run(what, func(t *testing.T) {
			c := newCluster(t)
			test.existing(c)
			c.tenant("acme", (&tenants.Keystone{Domain: "d1"}).String())
			c.expect(what, []string{"acme " + test.reason}, test.changes...)
			if !strings.Contains(c.message(), test.problem) {
				t.Errorf("message %q, want %q", c.message(), test.problem)
			}
		})
	}
}

// TestDisabledProject checks that a disabled project gets no namespace, and retains an existing
// one.
func TestDisabledProject(t *testing.T) {
	c := newCluster(t)
	c.contents.Projects[0].Enabled = false
	c.expect("new", synced, "update Tenant acme")
	c.contents.Projects[0].Enabled = true
	c.expect("enabled", synced, "create namespace acme--web-p1")
	c.contents.Projects[0].Enabled = false
	c.now = c.now.Add(48 * time.Hour)
	for range missingReads + 1 {
		c.expect("disabled again", synced)
	}
	c.expectRoles("disabled again", "acme--web-p1", "role-id:p1:m=edit")
}

// TestRenamedProject checks that a project retains its namespace when its name changes.
func TestRenamedProject(t *testing.T) {
	c := newCluster(t).synced()
	c.contents.Projects[0].Name = "Shop"
	c.expect("renamed", synced)
}

// TestRecreatedProject checks that a project with the name of a deleted project gets a new
// namespace. Its roles are not bound in the namespace of the deleted project.
func TestRecreatedProject(t *testing.T) {
	c := newCluster(t).synced()
	c.contents.Projects[0].ID, c.contents.Assignments[0].ProjectID = "p2", "p2"
	c.expect("created again", synced, "update namespace acme--web-p1", "create namespace acme--web-p2")
	c.expectRoles("created again", "acme--web-p1", "role-id:p1:m=edit")
	c.expectRoles("created again", "acme--web-p2", "role-id:p2:m=edit")
}
