// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package uninstall

import (
	"context"
	"fmt"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubetenant/kubetenant/internal/cli/privileges"
	"github.com/kubetenant/kubetenant/plugins/managed"
	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

// adminsPrefix is the name prefix of the ClusterRoleBindings that earlier releases created for the
// admins of tenants.
const adminsPrefix = managed.NamePrefix + "admins:"

// wideBinding is a ClusterRoleBinding that grants more access on a server without kubetenant.
type wideBinding struct {
	*rbacv1.ClusterRoleBinding
	reason    string
	isManaged bool
	// remaining contains the subjects that remain. If there are none, the binding is deleted.
	remaining []rbacv1.Subject
}

// wideOf returns the binding with the reason why it grants more access on a server without
// kubetenant. It returns nil if the binding does not.
func (o *owners) wideOf(b *rbacv1.ClusterRoleBinding) *wideBinding {
	_, scoped := b.Annotations[tenant.ScopeAnnotation]
	_, ends := b.Annotations[tenant.ExpiresAnnotation]
	switch {
	case b.Labels[tenant.ManagedLabel] != "", b.Labels[tenant.OfTenantLabel] != "", scoped && isGranted(b):
		return &wideBinding{ClusterRoleBinding: b, reason: "created by kubetenant", isManaged: true}
	case strings.HasPrefix(b.Name, adminsPrefix):
		return &wideBinding{ClusterRoleBinding: b, reason: "named like the bindings that an earlier release created"}
	case scoped:
		return &wideBinding{ClusterRoleBinding: b, reason: "limited by the annotation " + tenant.ScopeAnnotation}
	case ends:
		return &wideBinding{ClusterRoleBinding: b, reason: "limited by the annotation " + tenant.ExpiresAnnotation}
	}
	stay := slices.DeleteFunc(slices.Clone(b.Subjects), func(s rbacv1.Subject) bool { return o.tenantOf(&s, "") != "" })
	if len(stay) == len(b.Subjects) {
		return nil
	}
	return &wideBinding{ClusterRoleBinding: b, reason: "bound to callers of a tenant", remaining: stay}
}

// isGranted reports whether kubectl tenant grant-privileges created a binding.
func isGranted(b *rbacv1.ClusterRoleBinding) bool { return b.Labels[privileges.CreatedByLabel] != "" }

// isUpstream reports whether kube-apiserver created the binding. The cluster needs these bindings.
func isUpstream(b *rbacv1.ClusterRoleBinding) bool {
	return b.Labels["kubernetes.io/bootstrapping"] != ""
}

// isDoubtful reports whether a remaining subject of a binding matches callers of all tenants, or
// is a user or group whose name may also exist in a tenant.
func isDoubtful(b *rbacv1.ClusterRoleBinding, stay []rbacv1.Subject) bool {
	return !isUpstream(b) && slices.ContainsFunc(stay, func(s rbacv1.Subject) bool {
		return isAmbiguousName(&s) ||
			isBroad(&s)
	})
}

// wideBindingCheck is the result of a check of all ClusterRoleBindings.
type wideBindingCheck struct {
	wide     []*wideBinding // grant more access without kubetenant
	upstream []string       // created by kube-apiserver, so they are never changed
	doubtful []string       // may grant more rights
}

// wideBindings finds the ClusterRoleBindings that grant more access on a server without
// kubetenant, and those that may do so.
func (r *run) wideBindings(ctx context.Context) (*wideBindingCheck, error) {
	found := &wideBindingCheck{}
	err := each(ctx, func(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
		return r.Admin.Kube.RbacV1().ClusterRoleBindings().List(ctx, opts)
	}, func(b *rbacv1.ClusterRoleBinding) {
		stay := b.Subjects
		if w := r.owners.wideOf(b); w != nil && isUpstream(b) {
			found.upstream = append(found.upstream, b.Name+" ("+w.reason+")")
		} else if w != nil {
			found.wide = append(found.wide, w)
			stay = w.remaining
		}
		if isDoubtful(b, stay) {
			found.doubtful = append(found.doubtful, fmt.Sprintf("%s (%s to %s)", b.Name, b.RoleRef.Name, subjects(stay)))
		}
	})
	if err != nil {
		return nil, fmt.Errorf("list ClusterRoleBindings: %w", err)
	}
	return found, nil
}

// checkUpstream returns an error if a binding that kube-apiserver created grants more access on a
// server without kubetenant.
func (r *run) checkUpstream(found []string) error {
	if len(found) == 0 {
		return nil
	}
	return r.unlessForced(fmt.Errorf("%w: these ClusterRoleBindings belong to kube-apiserver, and would give tenants' "+
		"callers more rights on a server without kubetenant: first remove what you added to them: %s", ErrRefused,
		strings.Join(found, ", ")))
}

// clusterRoleBindings deletes the bindings that grant more access on a server without kubetenant.
// It stops when two successive lists contain no such binding, because a controller of an earlier
// release may create its bindings again.
func (r *run) clusterRoleBindings(ctx context.Context) error {
	r.step(2, "delete the ClusterRoleBindings that would give tenants' callers more rights on a server without kubetenant")
	found, err := r.wideBindings(ctx)
	if err != nil {
		return err
	}
	r.list("  warning: these bindings remain. Without kubetenant, a caller of any tenant with one of these names has "+
		"these rights:", found.doubtful)
	if err := r.checkUpstream(found.upstream); err != nil {
		return err
	}
	if err := r.confirmWide(found.wide); err != nil {
		return err
	}
	if r.servers.Running() {
		r.emptyAdminsRole(ctx)
	}
	const looks = 30
	for clean, check := 0, 0; ; check++ {
		for _, w := range found.wide {
			r.narrowBinding(ctx, w)
		}
		if clean++; len(found.wide) > 0 {
			clean = 0
		}
		switch {
		case r.DryRun, clean == 2, len(r.failed) > 0:
			return nil
		case check == looks:
			return fmt.Errorf("%w: ClusterRoleBinding %s is created again after each deletion: "+
				"stop the tool that creates it", ErrRefused, found.wide[0].Name)
		}
		if err := r.pause(ctx); err != nil {
			return err
		}
		if found, err = r.wideBindings(ctx); err != nil {
			return err
		}
	}
}

// confirmWide requests a confirmation if the step would delete bindings that kubetenant did not
// create.
func (r *run) confirmWide(found []*wideBinding) error {
	foreign := 0
	for _, w := range found {
		if !w.isManaged {
			foreign++
			r.Printf("  not created by kubetenant, %s: %s (%s to %s)", w.reason, w.Name, w.RoleRef.Name, subjects(w.Subjects))
		}
	}
	if foreign == 0 {
		return nil
	}
	yes, err := r.confirm(fmt.Sprintf("Delete the %d ClusterRoleBindings that kubetenant did not create?", foreign))
	if err == nil && !yes {
		err = fmt.Errorf("%w: as long as these ClusterRoleBindings exist, the servers must not change", ErrRefused)
	}
	return err
}

// emptyAdminsRole removes the rules of the ClusterRole that an earlier release binds to tenants'
// admins. A server of that release creates the bindings again when it becomes the leader, for
// example while the servers are changed. Without rules, these bindings grant no rights.
func (r *run) emptyAdminsRole(ctx context.Context) {
	roles := r.Admin.Kube.RbacV1().ClusterRoles()
	role, err := roles.Get(ctx, v1alpha1.NamespacesRole, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return
	}
	if err != nil {
		r.fail(err, "read ClusterRole %s", v1alpha1.NamespacesRole)
		return
	}
	if len(role.Rules) == 0 {
		return
	}
	r.do(ctx, func(ctx context.Context) error {
		_, err := roles.Patch(ctx, role.Name, types.MergePatchType, []byte(`{"rules":[]}`), metav1.PatchOptions{})
		return err
	}, "remove the rules of ClusterRole %s", role.Name)
}

// narrowBinding deletes a binding. If the binding has other subjects, narrowBinding only removes
// the tenants' subjects.
func (r *run) narrowBinding(ctx context.Context, w *wideBinding) {
	bindings := r.clientsFor(w.Labels).Kube.RbacV1().ClusterRoleBindings()
	if len(w.remaining) > 0 {
		r.do(ctx, func(ctx context.Context) error {
			changed := w.DeepCopy()
			changed.Subjects = w.remaining
			_, err := bindings.Update(ctx, changed, metav1.UpdateOptions{})
			return err
		}, "remove the tenants' subjects of ClusterRoleBinding %s: %s", w.Name, w.reason)
		return
	}
	r.do(ctx, func(ctx context.Context) error {
		return bindings.Delete(ctx, w.Name, deleteOnly(w.UID))
	}, "delete ClusterRoleBinding %s: %s", w.Name, w.reason)
}

// clientsFor returns the clients that may write an object with the given labels. A server that
// runs kubetenant allows only the manager to write managed objects.
func (r *run) clientsFor(labels map[string]string) Clients {
	if _, ok := labels[tenant.ManagedLabel]; ok {
		return r.Manager
	}
	return r.Admin
}

// deleteOnly returns options that delete only the object with the given UID, not a new object with
// the same name.
func deleteOnly(uid types.UID) metav1.DeleteOptions {
	return metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(uid))}
}

// subjects returns the subjects of a binding as text.
func subjects(all []rbacv1.Subject) string {
	var names []string
	for _, s := range all {
		name := s.Name
		if s.Namespace != "" {
			name = s.Namespace + "/" + name
		}
		names = append(names, strings.ToLower(s.Kind)+" "+name)
	}
	return strings.Join(names, ", ")
}
