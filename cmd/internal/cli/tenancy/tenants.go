package tenancy

import (
	"cmp"
	"context"
	"errors"
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
	"k8s.io/client-go/kubernetes"

	"github.com/kubetenant/kubetenant/cmd/internal/cli/privileges"
	"github.com/kubetenant/kubetenant/cmd/internal/simulate/simulator"
	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

const (
	// memberRole is what every caller of a tenant may do: see its own namespaces, Tenant and quota.
	memberRole = "kubetenant:tenant-member"
	// adminRole is the role of a tenant's admins in its namespaces, makerRole lets members make and delete those.
	adminRole = "admin"
	makerRole = "kubetenant:tenant-admin"
)

var quotas = v1alpha1.Resource(v1alpha1.ResourceTenantQuotas)

// Tenant is what there is of a tenant.
type Tenant struct {
	Name       string   `json:"name"`
	Namespaces []string `json:"namespaces"`
	// Admins are those to whom the role admin is bound in a namespace of it, and groups to which it is
	// bound everywhere and that are the tenant's.
	Admins []string `json:"admins"`
	// Access is that of its Tenant; empty where it has none.
	Access v1alpha1.TenantAccess `json:"access,omitempty"`
	// Quota is nil where there is none.
	Quota *v1alpha1.TenantQuotaSpec   `json:"quota,omitempty"`
	Used  *v1alpha1.TenantQuotaStatus `json:"-"`
}

// List returns the tenants of a cluster: whoever owns a namespace, has a Tenant or was made by [Create]. Without the right to
// read Tenants, quotas or bindings those are left out; unread names them.
func List(ctx context.Context, p *simulator.Snapshot, d dynamic.Interface) (all []*Tenant, unread []string, err error) {
	tenants := map[string]*Tenant{}
	of := func(name string) *Tenant {
		if tenants[name] == nil {
			tenants[name] = &Tenant{Name: name, Namespaces: []string{}, Admins: []string{}}
		}
		return tenants[name]
	}
	for ns := range p.Namespaces {
		owner := p.Owner(ns)
		if !owner.IsZero() && !owner.IsSystem() {
			of(owner.String()).Namespaces = append(of(owner.String()).Namespaces, ns)
		}
	}
	unread = p.Unread
	for _, b := range p.Bindings {
		if owner := b.Labels[ofTenant]; b.Namespace == "" && owner != "" {
			of(owner)
		}
		if b.RoleRef.Name != adminRole && b.RoleRef.Name != "cluster-admin" || b.Ended(time.Now()) {
			continue
		}
		for _, s := range b.Subjects {
			group, isTenant := strings.CutPrefix(s.Name, tenant.GroupPrefix)
			switch owner := p.Owner(b.Namespace); {
			case b.Namespace == "" && s.Kind == rbacv1.GroupKind && isTenant:
				of(group).Admins = append(of(group).Admins, "group "+s.Name)
			case !owner.IsZero() && !owner.IsSystem():
				of(owner.String()).Admins = append(of(owner.String()).Admins, subjectName(s, b.Namespace))
			}
		}
	}
	list, err := d.Resource(quotas).List(ctx, metav1.ListOptions{})
	switch {
	case apierrors.IsForbidden(err):
		unread = append(slices.Clone(unread), "TenantQuotas")
	case apierrors.IsNotFound(err): // the server knows none
	case err != nil:
		return nil, nil, err
	default:
		for i := range list.Items {
			q := &v1alpha1.TenantQuota{}
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(list.Items[i].Object, q); err == nil {
				of(q.Spec.Tenant).Quota, of(q.Spec.Tenant).Used = &q.Spec, &q.Status
			}
		}
	}
	objects, err := d.Resource(tenantObjects).List(ctx, metav1.ListOptions{})
	switch {
	case apierrors.IsForbidden(err):
		unread = append(slices.Clone(unread), "Tenants")
	case apierrors.IsNotFound(err): // the server knows none
	case err != nil:
		return nil, nil, err
	default:
		for i := range objects.Items {
			if id := tenantOf(&objects.Items[i]); id != "" {
				of(id).Access = accessOf(&objects.Items[i])
			}
		}
	}
	for _, t := range tenants {
		slices.Sort(t.Namespaces)
		slices.Sort(t.Admins)
		t.Admins = slices.Compact(t.Admins)
	}
	return slices.SortedFunc(maps.Values(tenants), func(a, b *Tenant) int { return cmp.Compare(a.Name, b.Name) }), unread, nil
}

func subjectName(s rbacv1.Subject, namespace string) string {
	if s.Kind == rbacv1.ServiceAccountKind {
		return "service account " + cmp.Or(s.Namespace, namespace) + "/" + s.Name
	}
	return strings.ToLower(s.Kind) + " " + s.Name
}

// New is a tenant to be made.
type New struct {
	ID                 tenant.ID
	Admins, Namespaces []string
	// NetworkPolicy lets only pods of the tenant's own namespaces reach those in each namespace.
	NetworkPolicy bool
	// MembersAdmin makes every caller of the tenant an admin of all its namespaces, who makes more.
	MembersAdmin bool
}

// Writing says how something is written.
type Writing struct {
	// DryRun is that of the requests, see [metav1.CreateOptions].
	DryRun []string
	// Say is told of each thing that was done.
	Say func(format string, args ...any)
}

// Deletion says how a tenant is deleted.
type Deletion struct {
	Writing
	// Everything deletes what is in its namespaces too; Nothing sends no request that would.
	Everything, Nothing bool
	// Confirm is asked before the first thing is deleted, where something will be; its error ends it. Nil is asked nothing.
	Confirm func(namespaces []string) error
	// Wait is how long it is waited for the namespaces to end; with zero it is looked once. Left is told of those there are.
	Wait time.Duration
	Left func(namespaces []string)
}

// Objects returns what a tenant is made of: its Tenant, the role of its members and its binding, its namespaces, and a binding of
// the role admin in each for each admin.
func (t *New) Objects() []runtime.Object {
	all := []runtime.Object{
		Object(t.ID),
		newRole(memberRole,
			rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"namespaces"}, Verbs: []string{"get", "list", "watch"}},
			rbacv1.PolicyRule{APIGroups: []string{tenant.Domain}, Resources: []string{quotas.Resource, tenantObjects.Resource}, Verbs: []string{"get", "list"}}),
		t.membersBinding(memberRole, memberRole),
	}
	if t.MembersAdmin {
		all = append(all,
			newRole(makerRole, rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"namespaces"}, Verbs: []string{"create", "update", "patch", "delete"}}),
			t.membersBinding(makerRole, makerRole), t.membersBinding("kubetenant:admin", adminRole))
	}
	for _, ns := range t.Namespaces {
		all = append(all, newNamespace(ns, t.ID))
		if t.NetworkPolicy {
			all = append(all, t.networkPolicy(ns))
		}
		for _, admin := range t.Admins {
			all = append(all, t.grant(admin, ns, nil).Binding(rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: adminRole}))
		}
	}
	return all
}

// ownPolicy is the name of the NetworkPolicy.
const ownPolicy = "kubetenant-own-tenant"

// networkPolicy goes by the label of namespaces, which says whose they are and which nobody but the server sets.
func (t *New) networkPolicy(namespace string) *networkingv1.NetworkPolicy {
	own := &metav1.LabelSelector{MatchLabels: map[string]string{tenant.Label: t.ID.String()}}
	return &networkingv1.NetworkPolicy{
		TypeMeta:   metav1.TypeMeta{APIVersion: networkingv1.SchemeGroupVersion.String(), Kind: "NetworkPolicy"},
		ObjectMeta: metav1.ObjectMeta{Name: ownPolicy, Namespace: namespace, Labels: map[string]string{privileges.MadeBy: maker}},
		Spec: networkingv1.NetworkPolicySpec{PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress},
			Ingress: []networkingv1.NetworkPolicyIngressRule{{From: []networkingv1.NetworkPolicyPeer{{NamespaceSelector: own}}}}},
	}
}

func newRole(name string, rules ...rbacv1.PolicyRule) *rbacv1.ClusterRole {
	return &rbacv1.ClusterRole{
		TypeMeta:   metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: "ClusterRole"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{privileges.MadeBy: maker}},
		Rules:      rules,
	}
}

// membersBinding binds a role in the whole cluster to the callers of the tenant, whom the boundary confines to its
// namespaces.
func (t *New) membersBinding(name, role string) *rbacv1.ClusterRoleBinding {
	return &rbacv1.ClusterRoleBinding{
		TypeMeta:   metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: "ClusterRoleBinding"},
		ObjectMeta: metav1.ObjectMeta{Name: name + ":" + t.ID.String(), Labels: map[string]string{privileges.MadeBy: maker, ofTenant: t.ID.String()}},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: t.ID.Group()}},
	}
}

func (t *New) grant(admin, namespace string, dryRun []string) *Grant {
	return &Grant{Subject: rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: admin}, Namespace: namespace,
		Role: adminRole, ClusterRole: true, DryRun: dryRun}
}

// Create makes a tenant of [New.Objects]. What is there already stays. w.Say is told of each thing.
func Create(ctx context.Context, k kubernetes.Interface, d dynamic.Interface, t *New, w Writing) (err error) {
	for _, ns := range t.Namespaces { // before anything is made
		if err := checkNamespace(ctx, k, ns, t.ID); err != nil {
			return err
		}
	}
	said := false
	tell := func(format string, args ...any) {
		said = true
		w.Say(format, args...)
	}
	defer func() {
		if !said && err == nil {
			w.Say("tenant %s is as it is asked for", t.ID)
		}
	}()
	absent := map[string]bool{} // namespaces of a dry run, in which nothing can be tried
	for _, obj := range t.Objects() {
		switch o := obj.(type) {
		case *unstructured.Unstructured:
			if made, err := createObject(ctx, d, o, w.DryRun); err != nil {
				return err
			} else if made {
				tell("made Tenant %s", o.GetName())
			}
		case *rbacv1.ClusterRole:
			if _, err := k.RbacV1().ClusterRoles().Create(ctx, o, metav1.CreateOptions{DryRun: w.DryRun}); err == nil {
				tell("made ClusterRole %s", o.Name)
			} else if !apierrors.IsAlreadyExists(err) {
				return refusal(err)
			}
		case *rbacv1.ClusterRoleBinding:
			if _, err := k.RbacV1().ClusterRoleBindings().Create(ctx, o, metav1.CreateOptions{DryRun: w.DryRun}); err == nil {
				tell("callers of the tenant %s (ClusterRoleBinding %s)", map[string]string{memberRole: "see its namespaces",
					makerRole: "make and delete its namespaces", adminRole: "are admins in all its namespaces"}[o.RoleRef.Name], o.Name)
			} else if !apierrors.IsAlreadyExists(err) {
				return refusal(err)
			}
		case *corev1.Namespace:
			made, err := CreateNamespace(ctx, k, o.Name, t.ID, w.DryRun)
			if err != nil {
				return err
			}
			if made {
				tell("made namespace %s", o.Name)
				absent[o.Name] = len(w.DryRun) > 0
			}
		case *networkingv1.NetworkPolicy:
			if absent[o.Namespace] {
				continue
			}
			if _, err := k.NetworkingV1().NetworkPolicies(o.Namespace).Create(ctx, o, metav1.CreateOptions{DryRun: w.DryRun}); err == nil {
				tell("pods in namespace %s are reached from the tenant's own only (NetworkPolicy %s)", o.Namespace, o.Name)
			} else if !apierrors.IsAlreadyExists(err) {
				return refusal(err)
			}
		case *rbacv1.RoleBinding:
			if absent[o.Namespace] {
				continue
			}
			admin := o.Subjects[0].Name
			if _, made, err := t.grant(admin, o.Namespace, w.DryRun).Apply(ctx, k); err != nil {
				return fmt.Errorf("admin %s in namespace %s: %w", admin, o.Namespace, err)
			} else if made {
				tell("user %s is an admin in namespace %s", admin, o.Namespace)
			}
		}
	}
	return nil
}

// checkNamespace refuses a namespace that cannot become or is not the tenant's.
func checkNamespace(ctx context.Context, k kubernetes.Interface, name string, id tenant.ID) error {
	got, err := k.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		if prefix, _, found := strings.Cut(name, "--"); found && prefix != id.String() {
			return fmt.Errorf("%w: namespace %s has the prefix of tenant %s: its own begin with %s--", ErrRefused, name, prefix, id)
		}
		return nil
	case err != nil:
		return refusal(err)
	case got.Labels[tenant.Label] != id.String():
		return fmt.Errorf("%w: the namespace %s is there already and not tenant %s's: kubectl tenant adopt gives one that is nobody's", ErrRefused, name, id)
	}
	return nil
}

// ErrNotEmpty says that a tenant owns something.
var ErrNotEmpty = errors.New("the tenant is not empty (--with-everything deletes that too)")

// Delete deletes a tenant that is empty; with everything, whatever is in it. The error wraps [ErrNotEmpty],
// [ErrRefused] or [ErrNoTenant]. Unless send is set nothing is deleted, and said is what would be.
func Delete(ctx context.Context, k kubernetes.Interface, d dynamic.Interface, id tenant.ID, how Deletion) error {
	spaces, err := k.CoreV1().Namespaces().List(ctx, metav1.ListOptions{LabelSelector: selector(map[string]string{tenant.Label: id.String()})})
	if err != nil {
		return refusal(err)
	}
	bindings, err := k.RbacV1().ClusterRoleBindings().List(ctx, metav1.ListOptions{LabelSelector: selector(map[string]string{ofTenant: id.String()})})
	if err != nil {
		return refusal(err)
	}
	limits, err := quotasOf(ctx, d, id)
	if err != nil {
		return err
	}
	_, err = d.Resource(tenantObjects).Get(ctx, id.ObjectName(), metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return refusal(err)
	}
	if len(spaces.Items)+len(bindings.Items)+len(limits) == 0 && err != nil {
		return fmt.Errorf("tenant %s: %w", id, ErrNoTenant)
	}
	empty := func() error {
		if how.Everything {
			return nil
		}
		found, err := contents(ctx, k, d, spaces.Items)
		if err == nil && len(found) > 0 {
			err = fmt.Errorf("%w: it has %s", ErrNotEmpty, strings.Join(found, ", "))
		}
		return err
	}
	object := err == nil
	if err := empty(); err != nil {
		return err
	}
	stored := len(how.DryRun) == 0 && !how.Nothing
	if how.Confirm != nil && stored {
		if err := how.Confirm(namesOf(spaces.Items)); err != nil {
			return err
		}
		if err := empty(); err != nil { // what came meanwhile
			return err
		}
	}
	remove := func(what, name string, of func() error) error {
		if !how.Nothing {
			if err := of(); err != nil && !apierrors.IsNotFound(err) {
				return refusal(err)
			}
		}
		how.Say("deleted %s %s", what, name)
		return nil
	}
	options := func(uid string) metav1.DeleteOptions {
		return metav1.DeleteOptions{DryRun: how.DryRun, Preconditions: metav1.NewUIDPreconditions(uid)}
	}
	for i := range spaces.Items {
		ns := &spaces.Items[i]
		err := remove("namespace", ns.Name, func() error { return k.CoreV1().Namespaces().Delete(ctx, ns.Name, options(string(ns.UID))) })
		if err != nil {
			return err
		}
	}
	for i := range bindings.Items {
		b := &bindings.Items[i]
		err := remove("ClusterRoleBinding", b.Name, func() error { return k.RbacV1().ClusterRoleBindings().Delete(ctx, b.Name, options(string(b.UID))) })
		if err != nil {
			return err
		}
	}
	for _, name := range limits {
		err := remove("TenantQuota", name, func() error { return d.Resource(quotas).Delete(ctx, name, metav1.DeleteOptions{DryRun: how.DryRun}) })
		if err != nil {
			return err
		}
	}
	if !object {
		return nil
	}
	// A tenant that is closed is so until nothing is left that it could open.
	if stored {
		if err := awaitGone(ctx, k, id, &how); err != nil {
			return err
		}
	}
	return remove("Tenant", id.ObjectName(), func() error {
		return d.Resource(tenantObjects).Delete(ctx, id.ObjectName(), metav1.DeleteOptions{DryRun: how.DryRun})
	})
}

// ErrEnding says that the namespaces of a tenant are still there.
var ErrEnding = errors.New("its namespaces have not ended, and its Tenant stays until they have: run the same again")

// awaitGone waits until no namespace is a tenant's. The error wraps [ErrEnding] or [ErrRefused].
func awaitGone(ctx context.Context, k kubernetes.Interface, id tenant.ID, how *Deletion) error {
	for begun := time.Now(); ; {
		left, err := k.CoreV1().Namespaces().List(ctx, metav1.ListOptions{LabelSelector: selector(map[string]string{tenant.Label: id.String()})})
		switch {
		case err != nil:
			return refusal(err)
		case len(left.Items) == 0:
			return nil
		case time.Since(begun) >= how.Wait:
			return fmt.Errorf("tenant %s: %w", id, ErrEnding)
		}
		if how.Left != nil {
			how.Left(namesOf(left.Items))
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(lookEvery):
		}
	}
}

// lookEvery is how often it is looked whether namespaces have ended.
const lookEvery = 500 * time.Millisecond

func namesOf(spaces []corev1.Namespace) []string {
	var names []string
	for i := range spaces {
		names = append(names, spaces[i].Name)
	}
	return names
}

// ErrNoTenant says that nothing is a tenant's.
var ErrNoTenant = errors.New("nothing is of this tenant: kubectl tenant tenants lists those there are")

func quotasOf(ctx context.Context, d dynamic.Interface, id tenant.ID) ([]string, error) {
	list, err := d.Resource(quotas).List(ctx, metav1.ListOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, refusal(err)
	}
	var names []string
	for i := range list.Items {
		spec, _, _ := unstructured.NestedString(list.Items[i].Object, "spec", "tenant")
		if spec == id.String() {
			names = append(names, list.Items[i].GetName())
		}
	}
	return names, nil
}

// contents returns what is in namespaces, but for what is in every one.
func contents(ctx context.Context, k kubernetes.Interface, d dynamic.Interface, spaces []corev1.Namespace) ([]string, error) {
	resources, err := Resources(k.Discovery(), "list")
	if err != nil {
		return nil, err
	}
	var found []string
	for _, ns := range spaces {
		for _, r := range resources {
			list, err := d.Resource(r).Namespace(ns.Name).List(ctx, metav1.ListOptions{})
			if apierrors.IsNotFound(err) || apierrors.IsMethodNotSupported(err) {
				continue
			}
			if err != nil {
				return nil, fmt.Errorf("look into namespace %s: %w", ns.Name, refusal(err))
			}
			count := 0
			for i := range list.Items {
				if !isEverywhere(r, list.Items[i].GetName(), list.Items[i].GetLabels()) {
					count++
				}
			}
			if count > 0 {
				found = append(found, fmt.Sprintf("%d %s in %s", count, r.GroupResource(), ns.Name))
			}
		}
	}
	return found, nil
}

// isEverywhere reports whether an object is what controllers and these commands put into every namespace.
func isEverywhere(r schema.GroupVersionResource, name string, has map[string]string) bool {
	switch r.GroupResource().String() {
	case "configmaps":
		return name == "kube-root-ca.crt"
	case "serviceaccounts":
		return name == "default"
	case "rolebindings.rbac.authorization.k8s.io":
		return has[privileges.MadeBy] == maker
	case "networkpolicies.networking.k8s.io":
		return name == ownPolicy && has[privileges.MadeBy] == maker
	case "events", "events.events.k8s.io":
		return true
	}
	return false
}

// IsOfTenants keeps the bindings that [List] looks at.
func IsOfTenants(_ *simulator.Snapshot, b *simulator.Binding) bool {
	return b.Labels[ofTenant] != "" || b.RoleRef.Name == adminRole || b.RoleRef.Name == "cluster-admin"
}

// Usage returns what is used of the first of some quantities that the quota limits, and the limit.
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

// AllUsage returns what is used of all that the quota limits.
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
