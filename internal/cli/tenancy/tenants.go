// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package tenancy

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/kubetenant/kubetenant/cluster/provision"
	"github.com/kubetenant/kubetenant/internal/cli/output"
	"github.com/kubetenant/kubetenant/internal/cli/privileges"
	"github.com/kubetenant/kubetenant/internal/kube"
	"github.com/kubetenant/kubetenant/internal/simulate/simulator"
	"github.com/kubetenant/kubetenant/internal/typed"
	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

// adminRole is the ClusterRole of a tenant's admins in its namespaces.
const adminRole = v1alpha1.AdminRole

var quotas = v1alpha1.SchemeGroupVersion.WithResource(v1alpha1.ResourceTenantQuotas)

// Tenant describes a tenant.
type Tenant struct {
	Name       string   `json:"name"`
	Namespaces []string `json:"namespaces"`
	// Admins contains the subjects that are bound to the role admin or cluster-admin in one of the
	// tenant's namespaces. It includes the tenant's group if a ClusterRoleBinding binds the role
	// to the group. It is nil if the caller may not read bindings.
	Admins []string `json:"admins"`
	// Access is the access that the Tenant object specifies, or empty if there is no Tenant
	// object.
	Access v1alpha1.TenantAccess `json:"access,omitempty"`
	// Quota is nil if the tenant has no quota.
	Quota *v1alpha1.TenantQuotaSpec   `json:"quota,omitempty"`
	Used  *v1alpha1.TenantQuotaStatus `json:"-"`
}

// List returns the tenants in a cluster: those that own a namespace, have a Tenant object or a
// quota, or have a ClusterRoleBinding from [Create]. It omits objects that the caller may not
// read, and unread contains their kinds. If own is not the zero ID, only that tenant's Tenant and
// quota are read.
func List(
	ctx context.Context, p *simulator.Snapshot, d dynamic.Interface, own tenant.ID,
) (all []*Tenant, unread []string, err error) {
	tenants := map[string]*Tenant{}
	tenantNamed := func(name string) *Tenant {
		if tenants[name] == nil {
			tenants[name] = &Tenant{Name: name, Namespaces: []string{}, Admins: []string{}}
		}
		return tenants[name]
	}
	for ns := range p.Namespaces {
		owner := p.Owner(ns)
		if !owner.IsZero() && !owner.IsSystem() {
			tenantNamed(owner.String()).Namespaces = append(tenantNamed(owner.String()).Namespaces, ns)
		}
	}
	unread = p.Unread
	addSubjectsAndTenants(p, tenantNamed)
	items, ok, err := listReadable(ctx, d.Resource(quotas), privileges.Limit(own, "TenantQuotas"))
	if err != nil {
		return nil, nil, err
	}
	if !ok {
		unread = append(slices.Clone(unread), "TenantQuotas")
	}
	for i := range items {
		if q, err := typed.Decode[v1alpha1.TenantQuota](&items[i]); err == nil {
			tenantNamed(q.Spec.Tenant).Quota, tenantNamed(q.Spec.Tenant).Used = &q.Spec, &q.Status
		}
	}
	items, ok, err = listReadable(ctx, d.Resource(tenantObjects), privileges.Limit(own, "Tenants"))
	if err != nil {
		return nil, nil, err
	}
	if !ok {
		unread = append(slices.Clone(unread), "Tenants")
	}
	for i := range items {
		if id := tenantOf(&items[i]); id != "" {
			tenantNamed(id).Access = accessOf(&items[i])
		}
	}
	for _, t := range tenants {
		slices.Sort(t.Namespaces)
		slices.Sort(t.Admins)
		t.Admins = slices.Compact(t.Admins)
		if len(t.Admins) == 0 && (slices.Contains(unread, "RoleBindings") || slices.Contains(unread, "ClusterRoleBindings")) {
			t.Admins = nil
		}
	}
	all = slices.SortedFunc(maps.Values(tenants), func(a, b *Tenant) int { return cmp.Compare(a.Name, b.Name) })
	return all, unread, nil
}

// listReadable lists objects, and reports whether the caller may read them. It returns no objects
// if the server does not serve the resource.
func listReadable(
	ctx context.Context, objects dynamic.ResourceInterface, opts metav1.ListOptions,
) ([]unstructured.Unstructured, bool, error) {
	list, err := objects.List(ctx, opts)
	if apierrors.IsForbidden(err) {
		return nil, false, nil
	}
	if apierrors.IsNotFound(err) { // the server does not serve the resource
		return nil, true, nil
	}
	if err != nil {
		return nil, false, err
	}
	return list.Items, true, nil
}

// addSubjectsAndTenants adds the subjects that are bound to the role admin or cluster-admin in a
// tenant's namespace. It also adds tenants that only have bindings.
func addSubjectsAndTenants(p *simulator.Snapshot, tenantNamed func(name string) *Tenant) {
	for _, b := range p.Bindings {
		if owner := b.Labels[tenant.OfTenantLabel]; b.Namespace == "" && owner != "" {
			tenantNamed(owner)
		}
		if b.RoleRef.Name != adminRole && b.RoleRef.Name != "cluster-admin" || b.IsExpired(time.Now()) {
			continue
		}
		for _, s := range b.Subjects {
			group, isTenant := strings.CutPrefix(s.Name, tenant.GroupPrefix)
			switch owner := p.Owner(b.Namespace); {
			case b.Namespace == "" && s.Kind == rbacv1.GroupKind && isTenant:
				tenantNamed(group).Admins = append(tenantNamed(group).Admins, "group "+s.Name)
			case !owner.IsZero() && !owner.IsSystem():
				tenantNamed(owner.String()).Admins = append(tenantNamed(owner.String()).Admins, subjectName(s, b.Namespace))
			}
		}
	}
}

func subjectName(s rbacv1.Subject, namespace string) string {
	if s.Kind == rbacv1.ServiceAccountKind {
		return "service account " + cmp.Or(s.Namespace, namespace) + "/" + s.Name
	}
	return strings.ToLower(s.Kind) + " " + s.Name
}

// New describes a tenant to create.
type New struct {
	ID                 tenant.ID
	Admins, Namespaces []string
	// Replaces is the UID of the former tenant with the same ID, or empty.
	Replaces string
	// NetworkPolicy specifies that each namespace gets a NetworkPolicy. The policy allows
	// connections to the namespace's Pods only from Pods in the tenant's own namespaces.
	NetworkPolicy bool
	// MembersAdmin specifies that all callers of the tenant have the role admin in its namespaces.
	MembersAdmin bool
	// BindMembers specifies that [v1alpha1.MemberRole] is bound to the tenant's callers with a
	// ClusterRoleBinding, so that they can list the tenant's namespaces. This is not necessary if
	// the server derives the role.
	BindMembers bool
	// Shared contains the resources that the configuration shares with all tenants. The member
	// role allows the tenant's callers to read these resources.
	Shared []schema.GroupResource
}

// Writing specifies how objects are written, and how changes are reported.
type Writing struct {
	// DryRun is the dry run option of all write requests, see [metav1.CreateOptions].
	DryRun []string
	// Changes reports each change. If nil, changes are not reported.
	Changes *output.Changes
	// Printf prints explanations.
	Printf func(format string, args ...any)
}

// The kinds for [output.Changes].
var (
	tenantKind             = v1alpha1.SchemeGroupVersion.WithKind(v1alpha1.KindTenant).GroupKind()
	quotaKind              = v1alpha1.SchemeGroupVersion.WithKind(v1alpha1.KindTenantQuota).GroupKind()
	namespaceKind          = schema.GroupKind{Kind: "Namespace"}
	networkPolicyKind      = schema.GroupKind{Group: networkingv1.GroupName, Kind: "NetworkPolicy"}
	clusterRoleKind        = schema.GroupKind{Group: rbacv1.GroupName, Kind: "ClusterRole"}
	clusterRoleBindingKind = schema.GroupKind{Group: rbacv1.GroupName, Kind: "ClusterRoleBinding"}
	roleBindingKind        = schema.GroupKind{Group: rbacv1.GroupName, Kind: "RoleBinding"}
)

// Objects returns the objects to create for a tenant: its Tenant, the binding of its callers, its
// namespaces and their NetworkPolicies.
func (t *New) Objects() []runtime.Object {
	all := []runtime.Object{t.object()}
	if t.BindMembers {
		role := provision.MemberRole(t.Shared)
		role.Labels = map[string]string{privileges.CreatedByLabel: createdByValue}
		all = append(all, role, t.membersBinding(role.Name))
	}
	for _, ns := range t.Namespaces {
		all = append(all, newNamespace(ns, t.ID))
		if t.NetworkPolicy {
			all = append(all, t.networkPolicy(ns))
		}
	}
	return all
}

// ownPolicy is the name of the NetworkPolicy that [New.NetworkPolicy] specifies.
const ownPolicy = "kubetenant-own-tenant"

// networkPolicy returns a NetworkPolicy that selects the tenant's namespaces with the tenant
// label. Tenants cannot change this label.
func (t *New) networkPolicy(namespace string) *networkingv1.NetworkPolicy {
	own := &metav1.LabelSelector{MatchLabels: map[string]string{tenant.Label: t.ID.String()}}
	return &networkingv1.NetworkPolicy{
		TypeMeta: metav1.TypeMeta{APIVersion: networkingv1.SchemeGroupVersion.String(), Kind: "NetworkPolicy"},
		ObjectMeta: metav1.ObjectMeta{
			Name:      ownPolicy,
			Namespace: namespace,
			Labels:    map[string]string{privileges.CreatedByLabel: createdByValue},
		},
		Spec: networkingv1.NetworkPolicySpec{
			PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress},
			Ingress: []networkingv1.NetworkPolicyIngressRule{
				{From: []networkingv1.NetworkPolicyPeer{{NamespaceSelector: own}}},
			},
		},
	}
}

// membersBinding binds a ClusterRole to the callers of the tenant. On a server without kubetenant,
// the binding applies in every namespace. The role MUST therefore allow no more than
// [v1alpha1.MemberRole].
func (t *New) membersBinding(role string) *rbacv1.ClusterRoleBinding {
	return &rbacv1.ClusterRoleBinding{
		TypeMeta: metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: "ClusterRoleBinding"},
		ObjectMeta: metav1.ObjectMeta{
			Name:   role + ":" + t.ID.String(),
			Labels: map[string]string{privileges.CreatedByLabel: createdByValue, tenant.OfTenantLabel: t.ID.String()},
		},
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
		Subjects: []rbacv1.Subject{t.members()},
	}
}

// members returns the group of all callers of the tenant.
func (t *New) members() rbacv1.Subject {
	return rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: t.ID.Group()}
}

// object returns the Tenant object with its admins and bindings.
func (t *New) object() *unstructured.Unstructured {
	u := Object(t.ID)
	var admins []any
	for _, admin := range t.Admins {
		admins = append(admins, map[string]any{"kind": rbacv1.UserKind, "name": admin})
	}
	spec, _ := u.Object["spec"].(map[string]any)
	if len(admins) > 0 {
		spec["admins"] = admins
	}
	if t.MembersAdmin {
		members := map[string]any{"kind": rbacv1.GroupKind, "name": t.ID.Group()}
		spec["bindings"] = []any{map[string]any{"clusterRole": adminRole, "subjects": []any{members}}}
	}
	if t.Replaces != "" {
		spec["replaces"] = t.Replaces
	}
	return u
}

// Create creates the objects from [New.Objects] that are missing, and adds missing admins and
// bindings to an existing Tenant.
func Create(ctx context.Context, k kube.Interface, d dynamic.Interface, t *New, w Writing) (err error) {
	if err := checkNamespaces(ctx, k, t); err != nil { // before any object is created
		return err
	}
	absent := map[string]bool{} // namespaces that a dry run did not create
	for _, obj := range t.Objects() {
		switch o := obj.(type) {
		case *unstructured.Unstructured:
			created, added, err := createObject(ctx, d, o, w.DryRun)
			if err != nil {
				return err
			}
			verb := output.Unchanged
			switch {
			case created:
				verb = output.Created
			case len(added) > 0:
				verb = output.Configured
			}
			w.Changes.Print(tenantKind, o.GetName(), verb)
		case *rbacv1.ClusterRole:
			done, err := provision.WriteRole(ctx, k.RbacV1().ClusterRoles(), o, metav1.CreateOptions{DryRun: w.DryRun})
			if err != nil {
				return refusal(err)
			}
			switch done {
			case "":
			case "created":
				w.Changes.Print(clusterRoleKind, o.Name, output.Created)
			default:
				w.Changes.Print(clusterRoleKind, o.Name, output.Configured)
			}
		case *rbacv1.ClusterRoleBinding:
			if _, err := k.RbacV1().ClusterRoleBindings().Create(ctx, o, metav1.CreateOptions{DryRun: w.DryRun}); err == nil {
				w.Changes.Print(clusterRoleBindingKind, o.Name, output.Created)
			} else if !apierrors.IsAlreadyExists(err) {
				return refusal(err)
			}
		case *corev1.Namespace:
			created, err := CreateNamespace(ctx, k, o.Name, t.ID, w.DryRun)
			if err != nil {
				return err
			}
			if created {
				w.Changes.Print(namespaceKind, o.Name, output.Created)
				absent[o.Name] = len(w.DryRun) > 0
			}
		case *networkingv1.NetworkPolicy:
			if absent[o.Namespace] {
				continue
			}
			options := metav1.CreateOptions{DryRun: w.DryRun}
			if _, err := k.NetworkingV1().NetworkPolicies(o.Namespace).Create(ctx, o, options); err == nil {
				w.Changes.Print(networkPolicyKind, o.Name, output.Created)
			} else if !apierrors.IsAlreadyExists(err) {
				return refusal(err)
			}
		}
	}
	return nil
}

// checkNamespaces returns the error from [checkNamespace] for the first invalid namespace.
func checkNamespaces(ctx context.Context, k kube.Interface, t *New) error {
	for _, ns := range t.Namespaces {
		if err := checkNamespace(ctx, k, ns, t.ID); err != nil {
			return err
		}
	}
	return nil
}

// checkNamespace returns an error if an existing namespace does not belong to the tenant, or a new
// namespace would have the prefix of another tenant.
func checkNamespace(ctx context.Context, k kube.Interface, name string, id tenant.ID) error {
	got, err := k.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		if prefix, _, found := strings.Cut(name, "--"); found && prefix != id.String() {
			return fmt.Errorf("%w: namespace %s has the prefix of tenant %s: use a name that starts with %s--",
				ErrRefused, name, prefix, id)
		}
		return nil
	case err != nil:
		return refusal(err)
	case got.Labels[tenant.Label] != id.String():
		return fmt.Errorf("%w: namespace %s already exists and does not belong to tenant %s: if it has no tenant, use "+
			"kubectl tenant adopt",
			ErrRefused, name, id)
	}
	return nil
}

// IsOfTenants reports whether [List] needs a binding.
func IsOfTenants(_ *simulator.Snapshot, b *simulator.Binding) bool {
	return b.Labels[tenant.OfTenantLabel] != "" || b.RoleRef.Name == adminRole || b.RoleRef.Name == "cluster-admin"
}

// Usage returns the usage and the limit of the first given quantity that the quota limits, or ""
// if the quota limits none of them.
func (t *Tenant) Usage(names ...corev1.ResourceName) string {
	if t.Quota == nil {
		return ""
	}
	for _, name := range names {
		if hard, limited := t.Quota.Hard[name]; limited {
			used := t.Used.Used[name]
			return used.String() + "/" + hard.String()
		}
	}
	return ""
}

// AllUsage returns the usage and the limit of each quantity that the quota limits.
func (t *Tenant) AllUsage() string {
	if t.Quota == nil {
		return ""
	}
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(t.Quota.Hard)) {
		parts = append(parts, fmt.Sprintf("%s: %s", name, t.Usage(name)))
	}
	return strings.Join(parts, ", ")
}
