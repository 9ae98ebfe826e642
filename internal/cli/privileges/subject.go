// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package privileges

import (
	"cmp"
	"context"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/kubetenant/kubetenant/internal/simulate/simulator"
	"github.com/kubetenant/kubetenant/internal/stack"
	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

// Subject is the subject of a binding or a grant, as the server interprets it. [SubjectOf] and
// [SubjectsOf] create it.
type Subject struct{ rbacv1.Subject }

// SubjectOf returns the subject of a binding in the given namespace. A user with the user name of a
// service account becomes a ServiceAccount subject. A service account without a namespace gets the
// binding's namespace.
func SubjectOf(s rbacv1.Subject, namespace string) Subject {
	if home, name, err := serviceaccount.SplitUsername(s.Name); err == nil && s.Kind == rbacv1.UserKind {
		s = rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: home, Name: name}
	}
	if s.Kind == rbacv1.ServiceAccountKind {
		s.Namespace = cmp.Or(s.Namespace, namespace)
	}
	return Subject{s}
}

// SubjectsOf returns the subjects of a grant.
func SubjectsOf(g *v1alpha1.AccessGrant) []Subject {
	from := &g.Spec.From
	var all []Subject
	for _, name := range from.Users {
		all = append(all, Subject{rbacv1.Subject{Kind: rbacv1.UserKind, Name: name}})
	}
	for _, name := range from.Groups {
		all = append(all, Subject{rbacv1.Subject{Kind: rbacv1.GroupKind, Name: name}})
	}
	for _, account := range from.ServiceAccounts {
		all = append(all,
			Subject{rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Name: account.Name, Namespace: account.Namespace}})
	}
	return all
}

// Title returns the name of the subject. The name of a service account includes its namespace.
func (s Subject) Title() string {
	if s.Kind == rbacv1.ServiceAccountKind {
		return s.Namespace + "/" + s.Name
	}
	return s.Name
}

// accounts returns the namespace of a subject that is a service account, or the group of a
// namespace's service accounts. For any other subject, are is false.
func (s Subject) accounts() (namespace string, are bool) {
	if s.Kind == rbacv1.ServiceAccountKind {
		return s.Namespace, true
	}
	namespace, all := strings.CutPrefix(s.Name, serviceaccount.ServiceAccountGroupPrefix)
	return namespace, all && s.Kind == rbacv1.GroupKind
}

// isOfEveryTenant reports whether callers of every tenant may match the subject.
func (s Subject) isOfEveryTenant() bool {
	_, areAccounts := s.accounts()
	switch {
	case areAccounts || s.Kind == rbacv1.GroupKind && strings.HasPrefix(s.Name, tenant.GroupPrefix):
		return false
	case s.Kind == rbacv1.GroupKind &&
		(s.Name == user.AllAuthenticated || s.Name == serviceaccount.AllServiceAccountsGroup):
		return true
	}
	return !strings.HasPrefix(s.Name, "system:")
}

// Candidates returns the tenants whose callers can match the subject, and whose access to the
// namespace may differ. For a service account, a namespace's service accounts or a tenant's group,
// this is the tenant of the subject. For any other subject, it is the system tenant and, if
// callers of every tenant can match, the owner of the namespace. anybodys reports whether callers
// of every tenant can match.
func (s Subject) Candidates(
	ctx context.Context, stack *stack.Stack, of *simulator.Snapshot, namespace string,
) (all []tenant.ID, anybodys bool) {
	group, isTenants := strings.CutPrefix(s.Name, tenant.GroupPrefix)
	home, areAccounts := s.accounts()
	switch {
	case areAccounts:
		id, err := stack.ServiceAccountTenant(ctx, home)
		if err != nil {
			return nil, false // the service account has no tenant
		}
		return []tenant.ID{id}, false
	case s.Kind == rbacv1.GroupKind && isTenants:
		id, err := tenant.Parse(group)
		if err != nil {
			return nil, false
		}
		return []tenant.ID{id}, false
	}
	all = []tenant.ID{tenant.System()}
	if owner := of.Owner(namespace); s.isOfEveryTenant() && !owner.IsZero() && !owner.IsSystem() {
		all = append([]tenant.ID{owner}, all...)
	}
	return all, s.isOfEveryTenant()
}

// Caller returns a caller of a tenant that matches the subject. For the group of all service
// accounts, the caller is a service account in the namespace or, for the system tenant, in
// kube-system.
func (s Subject) Caller(id tenant.ID, namespace string) *user.DefaultInfo {
	u := &user.DefaultInfo{
		Name:   s.Name,
		Groups: []string{user.AllAuthenticated, tenant.GroupPrefix + id.String()},
		Extra:  map[string][]string{tenant.ExtraKey: {id.String()}},
	}
	account := func(namespace, name string) {
		u.Name = serviceaccount.MakeUsername(namespace, name)
		u.Groups = append(u.Groups, serviceaccount.MakeGroupNames(namespace)...)
	}
	home, areAccounts := s.accounts()
	switch {
	case s.Kind == rbacv1.ServiceAccountKind:
		account(s.Namespace, s.Name)
	case areAccounts:
		account(home, "any")
	case s.Kind == rbacv1.GroupKind && s.Name == serviceaccount.AllServiceAccountsGroup && id.IsSystem():
		account(metav1.NamespaceSystem, "any") // a service account in a tenant's namespace belongs to that tenant
	case s.Kind == rbacv1.GroupKind && s.Name == serviceaccount.AllServiceAccountsGroup && namespace != "":
		account(namespace, "any")
	case s.Kind == rbacv1.GroupKind:
		u.Name = "somebody"
		if !slices.Contains(u.Groups, s.Name) {
			u.Groups = append(u.Groups, s.Name)
		}
	}
	return u
}

// IsDefault reports whether a binding to the subject is one that Kubernetes creates in every
// cluster for its own components and controllers, or for system:masters
// (k8s.io/kubernetes/plugin/pkg/auth/authorizer/rbac/bootstrappolicy, v1.37.1). It returns false
// for groups of all users or service accounts. IsDefault compares the names of the binding, the
// role and the subject. It does not use labels, because any user may set them, and a default
// binding may have additional subjects.
func IsDefault(b *simulator.Binding, s rbacv1.Subject) bool {
	if s.Kind == rbacv1.ServiceAccountKind {
		return s.Namespace == metav1.NamespaceSystem && b.Name == b.RoleRef.Name &&
			(b.Name == "system:controller:"+s.Name || b.Name == "system:"+s.Name)
	}
	if s.Kind == rbacv1.GroupKind && s.Name == user.SystemPrivilegedGroup {
		return b.Namespace == "" && b.Name == "cluster-admin"
	}
	everybodys := s.Name == user.AllAuthenticated || s.Name == user.AllUnauthenticated ||
		strings.HasPrefix(s.Name, serviceaccount.AllServiceAccountsGroup)
	return strings.HasPrefix(b.RoleRef.Name, "system:") && strings.HasPrefix(s.Name, "system:") && !everybodys
}
