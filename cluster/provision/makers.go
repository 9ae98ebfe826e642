package provision

import (
	"context"
	"fmt"
	"slices"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/kubetenant/kubetenant/authz/rbac"
	"github.com/kubetenant/kubetenant/plugins/managed"
	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

// makersBinding lets a tenant's admins make its namespaces, and say who its members are: its callers alone, whoever else has such a name.
func makersBinding(id tenant.ID, role string, subjects []rbacv1.Subject) *rbacv1.ClusterRoleBinding {
	return &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: makersName(id), Labels: map[string]string{tenant.ManagedLabel: managed.SourceTenant, tenant.OfTenantLabel: id.String()},
			Annotations: map[string]string{tenant.ScopeAnnotation: rbac.CallersOf + id.String()}},
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
		Subjects: subjects,
	}
}

func makersName(id tenant.ID) string { return managed.NamePrefix + "admins:" + id.ObjectName() }

// NamespacesRole returns the ClusterRole [v1alpha1.NamespacesRole] as it is made where there is none. One that is there stays.
func NamespacesRole() *rbacv1.ClusterRole {
	return &rbacv1.ClusterRole{
		TypeMeta:   metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: "ClusterRole"},
		ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.NamespacesRole},
		Rules: []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"namespaces"},
			Verbs: []string{"create", "delete", "get", "list", "patch", "update", "watch"}},
			{APIGroups: []string{tenant.Domain}, Resources: []string{v1alpha1.ResourceTenantMembers}, Verbs: []string{"create", "delete", "get", "list", "patch", "update"}}},
	}
}

// sameMakers reports whether a binding is as it should be; nil is none.
func sameMakers(is, want *rbacv1.ClusterRoleBinding) bool {
	if is == nil || want == nil {
		return is == want
	}
	return hasMetadata(&is.ObjectMeta, &want.ObjectMeta) && is.RoleRef == want.RoleRef && slices.Equal(is.Subjects, want.Subjects)
}

// makersSeen returns what was seen last of a tenant's binding, nil for none; false where nobody has looked.
func (e *Engine) makersSeen(id tenant.ID) (*rbacv1.ClusterRoleBinding, bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	is, known := e.makers[id]
	return is, known
}

func (e *Engine) noteMakers(id tenant.ID, is *rbacv1.ClusterRoleBinding) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.makers[id] = is
}

// forgetMakers has it looked what there is of a tenant's binding before it is next taken for seen.
func (e *Engine) forgetMakers(id tenant.ID) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.makers, id)
}

// limitsEvery is how often it is looked whether limits of bindings hold.
const limitsEvery = 5 * time.Second

// followLimits has all looked at when limits of bindings hold no more, or again.
func (e *Engine) followLimits(ctx context.Context) {
	if e.LimitsHold == nil {
		return
	}
	before := e.LimitsHold()
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		if now := e.LimitsHold(); now != before {
			before = now
			e.lookForDrift(ctx)
		}
	}, limitsEvery)
}

// applyMakers makes a tenant's binding what it should be, nil for none.
func (e *Engine) applyMakers(ctx context.Context, id tenant.ID, want *rbacv1.ClusterRoleBinding) error {
	if e.LimitsHold == nil {
		return nil // there is none, or the next look takes it away
	}
	if seen, known := e.makersSeen(id); known && sameMakers(seen, want) {
		return nil
	}
	all := e.Client.RbacV1().ClusterRoleBindings()
	is, err := all.Get(ctx, makersName(id), metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		is = nil
	case err != nil:
		return err
	case is.Labels[tenant.ManagedLabel] == "" && want == nil:
		is = nil // somebody else's
	case is.Labels[tenant.ManagedLabel] == "":
		return fmt.Errorf("ClusterRoleBinding %s: %w", is.Name, errTaken)
	}
	if !sameMakers(is, want) {
		if is, err = e.putMakers(ctx, is, want); err != nil {
			return err
		}
	}
	e.noteMakers(id, is)
	return nil
}

// putMakers writes a binding in place of what was read; nil is none.
func (e *Engine) putMakers(ctx context.Context, is, want *rbacv1.ClusterRoleBinding) (*rbacv1.ClusterRoleBinding, error) {
	all := e.Client.RbacV1().ClusterRoleBindings()
	if is != nil && (want == nil || is.RoleRef != want.RoleRef) { // which never changes
		if err := e.writes.Wait(ctx); err != nil {
			return nil, err
		}
		if err := all.Delete(ctx, is.Name, metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(is.UID))}); err != nil && !apierrors.IsNotFound(err) {
			return nil, err
		}
		is = nil
	}
	if want == nil {
		return nil, nil
	}
	if err := e.writes.Wait(ctx); err != nil {
		return nil, err
	}
	if is != nil {
		want = want.DeepCopy()
		want.ResourceVersion = is.ResourceVersion
		return all.Update(ctx, want, metav1.UpdateOptions{FieldManager: v1alpha1.FieldManager})
	}
	if err := e.ensureRole(ctx); err != nil {
		return nil, err
	}
	return all.Create(ctx, want, metav1.CreateOptions{FieldManager: v1alpha1.FieldManager})
}

// ensureRole makes the ClusterRole of the bindings where there is none: once, so that one that somebody deletes stays away.
func (e *Engine) ensureRole(ctx context.Context) error {
	if e.hasRole.Load() {
		return nil
	}
	_, err := e.Client.RbacV1().ClusterRoles().Create(ctx, NamespacesRole(), metav1.CreateOptions{FieldManager: v1alpha1.FieldManager})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("ClusterRole %s: %w", v1alpha1.NamespacesRole, err)
	}
	e.hasRole.Store(true)
	return nil
}

// lookForMakers notes which tenants' bindings there are, and has those tenants looked at whose is another than they should have.
func (e *Engine) lookForMakers(ctx context.Context, of func(tenant.ID) *given, given map[tenant.ID]*given) {
	seen := map[tenant.ID]bool{}
	next := metav1.ListOptions{LabelSelector: tenant.ManagedLabel, Limit: driftPage}
	for {
		list, err := e.Client.RbacV1().ClusterRoleBindings().List(ctx, next)
		if err != nil {
			e.notLooked(ctx, err)
			return
		}
		for i := range list.Items {
			is := &list.Items[i]
			id, err := tenant.Parse(is.Labels[tenant.OfTenantLabel])
			if err != nil || is.Name != makersName(id) {
				continue
			}
			if e.LimitsHold == nil { // of a server that had them hold
				if _, err := e.putMakers(ctx, is, nil); err != nil {
					e.notLooked(ctx, err)
				}
				continue
			}
			seen[id] = true
			e.noteMakers(id, is)
			if g := of(id); g != nil && !sameMakers(is, g.makers) {
				e.tellOf(id)
			}
		}
		if next.Continue = list.Continue; next.Continue == "" {
			break
		}
	}
	for id, g := range given {
		if seen[id] {
			continue
		}
		if e.noteMakers(id, nil); g != nil && g.makers != nil {
			e.tellOf(id)
		}
	}
}
