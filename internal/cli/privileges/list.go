// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package privileges

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/kubetenant/kubetenant/cluster/accessgrant"
	"github.com/kubetenant/kubetenant/internal/simulate/simulator"
	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

// CreatedByLabel is the label of bindings and roles that kubectl tenant created. Its value is
// "kubectl-tenant".
const CreatedByLabel = tenant.Domain + "/made-by"

// Listing contains the privileges of an identity in a cluster.
type Listing struct {
	Cluster  string         `json:"cluster"`
	Server   string         `json:"server"`
	Identity *Identity      `json:"identity"`
	Roles    []IdentityRole `json:"roles"`
	// Grants contains the AccessGrants that allow the identity to access namespaces of other
	// tenants.
	Grants []IdentityGrant `json:"grants,omitempty"`
	// Lines contains the numbers of the lines in the policy file that match the identity.
	Lines []int `json:"policyLines,omitempty"`
	// Reviews contains the rules that the server reports for the caller. They are used if the
	// caller may not read roles and bindings.
	Reviews []Review `json:"reviews,omitempty"`
	// Unread contains the kinds that the caller may not list. The listing lacks the privileges
	// from these kinds.
	Unread []string `json:"unread,omitempty"`
}

// IdentityRole is a role that is bound to the identity.
type IdentityRole struct {
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
	// Missing reports that the role does not exist. Unread reports that the caller may not read it.
	Missing bool `json:"missing,omitempty"`
	Unread  bool `json:"unread,omitempty"`
	// AggregatedFrom contains the ClusterRoles whose rules the role aggregates.
	AggregatedFrom []string            `json:"aggregatedFrom,omitempty"`
	Rules          []rbacv1.PolicyRule `json:"rules"`
	Bindings       []IdentityBinding   `json:"bindings"`
}

// IdentityBinding is a binding of a role to the identity.
type IdentityBinding struct {
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
	Subject   string `json:"subject"`
	// Scope describes where the rules apply.
	Scope string `json:"scope"`
	// HeldBack is why the binding gives the identity no access, or empty.
	HeldBack string `json:"heldBack,omitempty"`
	// Expires is the expiration time in the binding's annotation.
	Expires string `json:"expires,omitempty"`
	// CreatedByKubectl reports whether kubectl tenant created the binding. In this case,
	// revoke-privileges deletes it.
	CreatedByKubectl bool `json:"madeByKubectlTenant,omitempty"`
}

// IdentityGrant is an AccessGrant to the identity.
type IdentityGrant struct {
	Namespace string                     `json:"namespace"`
	Name      string                     `json:"name"`
	Owner     string                     `json:"owner"`
	Expires   *metav1.Time               `json:"expires,omitempty"`
	To        []v1alpha1.AccessGrantRule `json:"to"`
	// HeldBack is why the grant does not apply, or empty.
	HeldBack string `json:"heldBack,omitempty"`
}

// Review contains the rules in a namespace that the server reports for the caller.
type Review struct {
	Namespace  string              `json:"namespace"`
	Rules      []rbacv1.PolicyRule `json:"rules"`
	Incomplete bool                `json:"incomplete,omitempty"`
}

// ForIdentity returns a selection of the objects that [List] needs for an identity.
func ForIdentity(i *Identity) Selection {
	return Selection{
		Grants:      true,
		KeepBinding: func(_ *simulator.Snapshot, b *simulator.Binding) bool { return i.matchedSubject(b) != "" },
	}
}

// List returns the privileges of an identity in a snapshot, in a stable order.
func List(snapshot *simulator.Snapshot, i *Identity, now time.Time) *Listing {
	p := lister{snapshot}
	l := &Listing{Identity: i, Unread: p.Unread, Roles: []IdentityRole{}}
	roles := map[string]*IdentityRole{}
	for _, b := range p.Bindings {
		subject := i.matchedSubject(b)
		if subject == "" || !b.Derived.IsZero() && !i.ID().IsZero() && i.ID() != b.Derived {
			continue
		}
		key := b.RoleKey()
		id := b.RoleRef.Kind + " " + key.Namespace + "/" + key.Name
		h := roles[id]
		if h == nil {
			h = p.role(b.RoleRef.Kind, key)
			roles[id] = h
		}
		h.Bindings = append(h.Bindings, p.binding(b, subject, i.ID(), now))
	}
	for _, h := range roles {
		slices.SortFunc(h.Bindings, func(a, b IdentityBinding) int {
			return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
		})
		l.Roles = append(l.Roles, *h)
	}
	slices.SortFunc(l.Roles, func(a, b IdentityRole) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	for _, u := range p.Grants {
		if g, ok := p.grant(u, i, now); ok {
			l.Grants = append(l.Grants, g)
		}
	}
	slices.SortFunc(l.Grants, func(a, b IdentityGrant) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return l
}

// lister creates the parts of a [Listing] from a snapshot.
type lister struct{ *simulator.Snapshot }

func (p lister) role(kind string, key simulator.Key) *IdentityRole {
	h := &IdentityRole{
		Kind:      kind,
		Namespace: key.Namespace,
		Name:      key.Name,
		Rules:     []rbacv1.PolicyRule{},
	}
	role := p.Roles[key]
	switch {
	case role != nil:
		h.Rules = role.Rules
		h.AggregatedFrom = p.aggregatedFrom(key.Name, role)
	case slices.Contains(p.Unread, kind+"s"):
		h.Unread = true
	default:
		h.Missing = true
	}
	return h
}

// aggregatedFrom returns the ClusterRoles whose rules the role aggregates.
func (p lister) aggregatedFrom(name string, role *simulator.Role) []string {
	var from []string
	for i := range role.Aggregates {
		selector, err := metav1.LabelSelectorAsSelector(&role.Aggregates[i])
		if err != nil {
			continue
		}
		for key, other := range p.Roles {
			if key.Namespace == "" && key.Name != name && selector.Matches(labels.Set(other.Labels)) {
				from = append(from, key.Name)
			}
		}
	}
	slices.Sort(from)
	return slices.Compact(from)
}

func (p lister) binding(b *simulator.Binding, subject string, id tenant.ID, now time.Time) IdentityBinding {
	h := IdentityBinding{
		Kind:             b.Kind(),
		Namespace:        b.Namespace,
		Name:             b.Name,
		Subject:          subject,
		CreatedByKubectl: b.Labels[CreatedByLabel] != "",
	}
	switch {
	case b.Namespace != "":
		h.Scope = "namespace " + b.Namespace
		owner := p.Owner(b.Namespace)
		if !id.IsZero() && !id.IsSystem() && owner != id && !slices.Contains(p.Unread, "Namespaces") {
			h.HeldBack = "the namespace does not belong to tenant " + id.String()
		}
	case !b.Derived.IsZero():
		h.Scope = "all namespaces of tenant " + b.Derived.String()
	case b.Limited && (id.IsZero() || id.IsSystem()):
		h.Scope = "limited to " + b.Scope
	case b.Limited && !b.IsExpired(now) && !b.AppliesTo(id, id, now):
		h.Scope, h.HeldBack = "limited to "+b.Scope, "it does not apply to tenant "+id.String()
	case !id.IsZero() && !id.IsSystem():
		h.Scope = "all namespaces of tenant " + id.String()
	default:
		h.Scope = wholeCluster
	}
	if b.Ends {
		h.Expires = b.Expires
	}
	if b.IsExpired(now) {
		h.HeldBack = "it has expired"
	}
	return h
}

func (p lister) grant(u *unstructured.Unstructured, i *Identity, now time.Time) (IdentityGrant, bool) {
	g, err := accessgrant.Parse(u)
	if err != nil || i.Tenant == "" || g.Spec.From.Tenant != i.Tenant || !isFrom(&g.Spec.From, i) {
		return IdentityGrant{}, false
	}
	h := IdentityGrant{
		Namespace: g.Namespace,
		Name:      g.Name,
		Owner:     p.Owner(g.Namespace).String(),
		Expires:   g.Spec.Expires,
		To:        g.Spec.To,
	}
	switch {
	case g.Spec.Expires != nil && !g.Spec.Expires.After(now):
		h.HeldBack = "it has expired"
	case g.Spec.Grantor == nil || g.Spec.Grantor.Owner != p.Owner(g.Namespace).String():
		h.HeldBack = "the namespace had another owner when the grant was created"
	case !accessgrant.Accepted(g):
		h.HeldBack = "its grantor no longer has these rights"
	}
	return h, true
}

// isFrom reports whether the subjects of a grant include the identity.
func isFrom(from *v1alpha1.AccessGrantFrom, i *Identity) bool {
	if i.User != "" && slices.Contains(from.Users, i.User) {
		return true
	}
	for _, a := range from.ServiceAccounts {
		if i.User == "system:serviceaccount:"+a.Namespace+":"+a.Name {
			return true
		}
	}
	return slices.ContainsFunc(from.Groups, func(g string) bool { return slices.Contains(i.Groups, g) })
}

// RuleText returns the text of a rule on one line.
func RuleText(r *rbacv1.PolicyRule) string {
	verbs := strings.Join(r.Verbs, ", ")
	if len(r.NonResourceURLs) > 0 {
		return verbs + ": " + strings.Join(r.NonResourceURLs, ", ")
	}
	var resources []string
	for _, resource := range r.Resources {
		for _, group := range r.APIGroups {
			if group != "" {
				resources = append(resources, resource+"."+group)
			} else {
				resources = append(resources, resource)
			}
		}
	}
	text := verbs + ": " + strings.Join(resources, ", ")
	if len(r.ResourceNames) > 0 {
		text += fmt.Sprintf(" (only %s)", strings.Join(r.ResourceNames, ", "))
	}
	return text
}
