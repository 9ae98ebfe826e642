// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

// Package accessmap computes the access of each identity to each namespace. It writes the result
// as an HTML page or a table. The server's own authorization code decides each cell.
package accessmap

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/kubetenant/kubetenant/authz"
	"github.com/kubetenant/kubetenant/cluster/accessgrant"
	configv1alpha1 "github.com/kubetenant/kubetenant/config/v1alpha1"
	"github.com/kubetenant/kubetenant/internal/cli/privileges"
	"github.com/kubetenant/kubetenant/internal/simulate/simulator"
	"github.com/kubetenant/kubetenant/internal/stack"
	"github.com/kubetenant/kubetenant/tenant"
)

// Group is a named group of related resources, such as workloads.
type Group struct {
	Name      string   `json:"name"`
	Resources []string `json:"resources"` // such as deployments.apps or pods/exec
}

// groups returns the resource groups for which a [Map] shows access.
func groups() []Group {
	return []Group{
		{
			"workloads",
			[]string{
				"pods", "deployments.apps", "statefulsets.apps", "daemonsets.apps", "jobs.batch", "cronjobs.batch", "pods/exec",
			},
		},
		{"secrets", []string{"secrets"}},
		{"configuration", []string{"configmaps", "resourcequotas", "limitranges"}},
		{"network", []string{"services", "ingresses.networking.k8s.io", "networkpolicies.networking.k8s.io"}},
		{"storage", []string{"persistentvolumeclaims"}},
		{
			"access",
			[]string{
				"roles.rbac.authorization.k8s.io", "rolebindings.rbac.authorization.k8s.io", "serviceaccounts",
				"serviceaccounts/token", "accessgrants.kubetenant.dev",
			},
		},
	}
}

// Read and Write are the values of Cell.Access. The other constants are the values of Cell.Why.
const (
	Read   = "read"
	Write  = "write"
	Own    = "own"
	Grant  = "grant"
	System = "system"
	Policy = "policy"
)

// AllNamespaces is the name of the column for access to every namespace of the cluster. Only
// identities of the system tenant have cells in this column.
const AllNamespaces = "*"

// AnyTenant is the tenant of an identity that callers of any tenant match through a
// ClusterRoleBinding. Each cell in its row shows the access of callers of the tenant that owns
// the namespace.
const AnyTenant = "*"

// Subject is a row of the map: a subject of bindings or grants, in one tenant.
type Subject struct {
	Kind   string `json:"kind"`
	Name   string `json:"name"`
	Tenant string `json:"tenant"`
	// System reports whether the subject occurs only in default bindings of Kubernetes.
	System bool `json:"system,omitempty"`
}

// Namespace is a column of the map.
type Namespace struct {
	Name  string `json:"name"`
	Owner string `json:"owner"`
}

// Cell is the access of an identity to a group of resources in a namespace. A Map contains a cell
// only if the identity has access.
type Cell struct {
	Identity  int    `json:"identity"`  // index in Map.Identities
	Namespace int    `json:"namespace"` // index in Map.Namespaces
	Group     int    `json:"group"`     // index in Map.Groups
	Access    string `json:"access"`
	Why       string `json:"why"`
	By        int    `json:"by"` // index in Map.Reasons
}

// Map contains the access of all identities in a cluster.
type Map struct {
	Cluster string `json:"cluster"`
	// Made is the time when the cluster was read.
	Made       time.Time   `json:"made"`
	Groups     []Group     `json:"groups"`
	Identities []Subject   `json:"identities"`
	Namespaces []Namespace `json:"namespaces"`
	Cells      []Cell      `json:"cells"`
	// Reasons are the texts to which Cell.By refers. Each text is the reason that the authorizer
	// returned, or the names of the AccessGrants that allow the access.
	Reasons []string `json:"reasons"`
}

// Table returns a row for each identity and namespace with at least one cell. The columns are
// the kind, name and tenant of the identity, the namespace, the groups that the identity can
// read, and the groups that it can write. A group that it can write is in both lists.
func (m *Map) Table() [][]string {
	type place struct{ identity, namespace int }
	var order []place
	groups := map[place]map[string][]string{}
	for _, c := range m.Cells {
		at := place{c.Identity, c.Namespace}
		if groups[at] == nil {
			groups[at] = map[string][]string{}
			order = append(order, at)
		}
		groups[at][c.Access] = append(groups[at][c.Access], m.Groups[c.Group].Name)
	}
	rows := make([][]string, 0, len(order))
	for _, at := range order {
		subject := &m.Identities[at.identity]
		write := groups[at][Write]
		read := slices.Concat(groups[at][Read], write)
		slices.Sort(read)
		rows = append(rows, []string{
			subject.Kind, subject.Name, subject.Tenant, m.Namespaces[at.namespace].Name,
			strings.Join(read, ","), strings.Join(write, ","),
		})
	}
	return rows
}

// New computes the map of the cluster in a snapshot, for a server with the given configuration.
// It calls decided after each identity with the number of finished identities and their total
// number. decided may be nil.
func New(
	ctx context.Context, p *simulator.Snapshot, config *configv1alpha1.Settings, decided func(done, all int),
) (*Map, error) {
	p = p.ForConfig(config)
	stack, err := simulator.New(ctx, config, p, nil, nil)
	if err != nil {
		return nil, err
	}
	m := &Map{
		Groups:     groups(),
		Cells:      []Cell{},
		Reasons:    []string{},
		Identities: []Subject{},
		Namespaces: []Namespace{{AllNamespaces, tenant.System().String()}},
	}
	for name := range p.Namespaces {
		if id := p.Owner(name); !id.IsZero() {
			m.Namespaces = append(m.Namespaces, Namespace{name, id.String()})
		}
	}
	slices.SortFunc(m.Namespaces, func(a, b Namespace) int {
		return cmp.Or(cmp.Compare(a.Owner, b.Owner), cmp.Compare(a.Name, b.Name))
	})
	places := map[string]int{}
	for i, ns := range m.Namespaces {
		places[ns.Name] = i
	}
	reasons := map[string]int{}
	by := func(reason string) int {
		place, ok := reasons[reason]
		if !ok {
			place = len(m.Reasons)
			reasons[reason] = place
			m.Reasons = append(m.Reasons, reason)
		}
		return place
	}
	rows := rowsOf(ctx, stack, p)
	for i, row := range rows {
		m.Identities = append(m.Identities, row.Subject)
		for _, ns := range slices.Sorted(maps.Keys(row.namespaces)) {
			if !row.namespaces[ns] {
				continue
			}
			names := namesIn(p, ns)
			for g := range m.Groups {
				of := row.Tenant
				if of == AnyTenant {
					of = m.Namespaces[places[ns]].Owner
				}
				u := row.caller(of, ns)
				access, reason := decide(ctx, stack, u, ns, names, &m.Groups[g])
				if access == "" {
					continue
				}
				rule := ruleOf(u, reason)
				if rule == Grant {
					reason = strings.Join(row.grants[ns], ", ")
				}
				m.Cells = append(m.Cells, Cell{i, places[ns], g, access, rule, by(reason)})
			}
		}
		if decided != nil {
			decided(i+1, len(rows))
		}
	}
	return m, nil
}

// row is an identity with the namespaces in which access must be computed.
type row struct {
	Subject
	subject    privileges.Subject
	namespaces map[string]bool
	grants     map[string][]string // names of the AccessGrants for the identity, keyed by namespace
}

// addNamespaces adds the namespaces in which a binding applies. namespace is the binding's
// namespace, or "" for a ClusterRoleBinding. tenantName is the tenant of the binding's subject.
// own contains the names of the namespaces that each tenant owns, keyed by tenant.
func (r *row) addNamespaces(namespace, tenantName string, own map[string][]string) {
	switch {
	case namespace != "":
		r.namespaces[namespace] = true
	case tenantName == tenant.System().String():
		r.namespaces[AllNamespaces] = true
	case tenantName == AnyTenant:
		for owner, names := range own {
			for _, ns := range names {
				r.namespaces[ns] = owner != tenant.System().String()
			}
		}
	default:
		for _, ns := range own[tenantName] {
			r.namespaces[ns] = true
		}
	}
}

// rowsOf returns a row for each subject of a binding or a grant, in each tenant that the subject
// may belong to (see [tenantsOf]). It skips expired bindings and invalid grants.
func rowsOf(ctx context.Context, stack *stack.Stack, p *simulator.Snapshot) []*row {
	own := map[string][]string{}
	for name := range p.Namespaces {
		if id := p.Owner(name); !id.IsZero() {
			own[id.String()] = append(own[id.String()], name)
		}
	}
	all := map[Subject]*row{}
	at := func(s privileges.Subject, tenantName string) *row {
		i := Subject{Kind: s.Kind, Name: s.Title(), Tenant: tenantName}
		if all[i] == nil {
			all[i] = &row{
				Subject:    i,
				subject:    s,
				namespaces: map[string]bool{},
				grants:     map[string][]string{},
			}
			all[i].System = true
		}
		return all[i]
	}
	for _, b := range p.Bindings {
		if b.IsExpired(time.Now()) {
			continue
		}
		for _, bound := range b.Subjects {
			s := privileges.SubjectOf(bound, b.Namespace)
			for _, tenantName := range tenantsOf(ctx, stack, p, b.Namespace, s) {
				r := at(s, tenantName)
				r.addNamespaces(b.Namespace, tenantName, own)
				r.System = r.System && privileges.IsDefault(b, bound)
			}
		}
	}
	for _, u := range p.Grants {
		g, err := accessgrant.Parse(u)
		if err != nil {
			continue // an invalid grant does not apply
		}
		for _, s := range privileges.SubjectsOf(g) {
			r := at(s, g.Spec.From.Tenant)
			r.namespaces[g.Namespace], r.System = true, false
			r.grants[g.Namespace] = append(r.grants[g.Namespace], "AccessGrant "+g.Namespace+"/"+g.Name)
		}
	}
	rows := make([]*row, 0, len(all))
	for _, r := range all {
		rows = append(rows, r)
	}
	slices.SortFunc(rows, func(a, b *row) int {
		return cmp.Or(cmp.Compare(a.Tenant, b.Tenant), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name))
	})
	return rows
}

// caller returns a user of the given tenant that matches the row's subject in a namespace. It
// returns nil if tenantName is not a valid tenant ID.
func (r *row) caller(tenantName, namespace string) user.Info {
	id, err := tenant.Parse(tenantName)
	if err != nil {
		return nil
	}
	if namespace == AllNamespaces {
		namespace = ""
	}
	return r.subject.Caller(id, namespace)
}

// tenantsOf returns the tenants in which a subject of a binding gets a row. A subject of a
// ClusterRoleBinding that callers of any tenant may match also gets a row for [AnyTenant].
func tenantsOf(
	ctx context.Context, stack *stack.Stack, p *simulator.Snapshot, namespace string, s privileges.Subject,
) []string {
	candidates, anybodys := s.Candidates(ctx, stack, p, namespace)
	var all []string
	for _, id := range candidates {
		all = append(all, id.String())
	}
	switch {
	case namespace == "" && anybodys:
		all = append(all, AnyTenant)
	case len(all) > 1: // the command who-can lists the system tenant's user of the same name
		all = all[:1]
	}
	return all
}

// namesIn returns the object names to which roles and grants in a namespace limit access
// (resourceNames). It also returns "", for a request without an object name.
func namesIn(p *simulator.Snapshot, namespace string) []string {
	names := map[string]bool{"": true}
	for _, b := range p.Bindings {
		role := p.Roles[b.RoleKey()]
		if b.Namespace != namespace || role == nil { // a ClusterRoleBinding can name cluster-scoped objects
			continue
		}
		for i := range role.Rules {
			for _, name := range role.Rules[i].ResourceNames {
				names[name] = true
			}
		}
	}
	for _, u := range p.Grants {
		if g, err := accessgrant.Parse(u); err == nil && g.Namespace == namespace {
			for _, to := range g.Spec.To {
				for _, name := range to.ResourceNames {
					names[name] = true
				}
			}
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// decide returns the highest access of a caller to any resource of a group, with the reason that
// the authorizer returns for it. Both results are "" if the caller has no access.
func decide(
	ctx context.Context, stack *stack.Stack, u user.Info, namespace string, names []string, g *Group,
) (access, reason string) {
	if namespace == AllNamespaces {
		namespace = ""
	}
	for _, kind := range []struct {
		access string
		verbs  []string
	}{{Write, []string{"create", "update", "patch", "delete"}}, {Read, []string{"get", "list", "watch"}}} {
		for _, a := range attributesOf(u, namespace, names, g, kind.verbs) {
			decision, reason, err := stack.Authorizer.Authorize(simulator.WithSelfReviewRequest(ctx), a)
			if err == nil && decision == authorizer.DecisionAllow {
				return kind.access, reason
			}
		}
	}
	return "", ""
}

// attributesOf returns a request for each combination of verb, resource and object name.
func attributesOf(
	u user.Info, namespace string, names []string, g *Group, verbs []string,
) (all []authorizer.Attributes) {
	for _, text := range g.Resources {
		name, group, _ := strings.Cut(text, ".")
		name, subresource, _ := strings.Cut(name, "/")
		for _, verb := range verbs {
			for _, object := range names {
				all = append(all, &authorizer.AttributesRecord{
					User:            u,
					Verb:            verb,
					ResourceRequest: true,
					APIVersion:      "*",
					APIGroup:        group,
					Resource:        name,
					Subresource:     subresource,
					Namespace:       namespace,
					Name:            object,
				})
			}
		}
	}
	return all
}

func ruleOf(u user.Info, reason string) string {
	switch {
	case reason == authz.ReasonGrant.String():
		return Grant
	case strings.Contains(reason, authz.ReasonABAC.String()):
		return Policy
	case u.GetExtra()[tenant.ExtraKey][0] == tenant.System().String():
		return System
	}
	return Own
}
