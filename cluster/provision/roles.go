// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package provision

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/maphash"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/kubetenant/kubetenant/plugins/managed"
	"github.com/kubetenant/kubetenant/plugins/rolebinding"
	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

// rolesSelector selects the Roles that TenantMembers define.
const rolesSelector = tenant.ManagedLabel + "=" + managed.SourceTenant

// withRoles is the last character of the hash in [tenant.PreparedAnnotation] if TenantMembers
// define Roles for the namespace.
const withRoles = "r"

// rolesMark returns withRoles if the TenantMembers define Roles, and otherwise "".
func (g *desiredState) rolesMark() string {
	if len(g.roles) == 0 {
		return ""
	}
	return withRoles
}

// hasRoles reports whether a namespace has Roles of TenantMembers, according to its annotation.
func hasRoles(ns *corev1.Namespace) bool {
	hash, _, _ := strings.Cut(ns.Annotations[tenant.PreparedAnnotation], withObjects)
	return strings.HasSuffix(hash, withRoles)
}

// definedBy returns the Roles that TenantMembers define, in the type of package rolebinding.
func definedBy(spec *v1alpha1.TenantMembersSpec) (all []rolebinding.DefinedRole) {
	for i, role := range spec.Roles {
		all = append(all,
			rolebinding.DefinedRole{Path: fmt.Sprintf("spec.roles[%d]", i), Name: role.Name, Rules: role.Rules})
	}
	return all
}

// addRoles adds the Roles that TenantMembers define. It omits Roles that [rolebinding.CheckRole]
// rejects, and records the error.
func (g *desiredState) addRoles(id tenant.ID, spec *v1alpha1.TenantMembersSpec) {
	for _, role := range definedBy(spec) {
		if err := rolebinding.CheckRole(&role); err != nil {
			g.refused = errors.Join(g.refused, fmt.Errorf("%s%w", membersPath, err))
			continue
		}
		g.roles = append(g.roles, rbacv1.Role{
			ObjectMeta: metav1.ObjectMeta{
				Name:   role.Name,
				Labels: map[string]string{tenant.ManagedLabel: managed.SourceTenant, tenant.Label: id.String()},
			},
			Rules: role.Rules,
		})
	}
	slices.SortFunc(g.roles, func(a, b rbacv1.Role) int { return cmp.Compare(a.Name, b.Name) })
}

// roleRights returns hashes of the rules of the Roles for [desiredState.rights].
func (g *desiredState) roleRights(seed maphash.Seed) (all []uint64) {
	for i := range g.roles {
		for j := range g.roles[i].Rules {
			text, err := json.Marshal(&g.roles[i].Rules[j])
			if err != nil {
				panic(err) // impossible, a rule contains only strings
			}
			all = append(all, maphash.Comparable(seed, [3]string{"Role", g.roles[i].Name, string(text)}))
		}
	}
	return all
}

// mayHaveRoles reports whether a namespace has Roles of TenantMembers according to its annotation,
// or should have them.
func (g *desiredState) mayHaveRoles(ns *corev1.Namespace) bool {
	return hasRoles(ns) || len(g.roles) > 0
}

// listRoles returns the stored Roles of TenantMembers in a namespace, keyed by name.
func (e *Engine) listRoles(ctx context.Context, ns *corev1.Namespace) (map[string]*rbacv1.Role, error) {
	stored := map[string]*rbacv1.Role{}
	list, err := e.Client.RbacV1().Roles(ns.Name).List(ctx, metav1.ListOptions{LabelSelector: rolesSelector})
	if err != nil {
		return nil, err
	}
	for i := range list.Items {
		stored[list.Items[i].Name] = &list.Items[i]
	}
	return stored, nil
}

// revokeRoles deletes the stored Roles of TenantMembers that a namespace should not have, and
// updates Roles with rules that they should not have. It returns the names of the updated Roles.
func (e *Engine) revokeRoles(
	ctx context.Context, ns *corev1.Namespace, stored map[string]*rbacv1.Role, desired *desiredState,
) (done map[string]bool, err error) {
	done = map[string]bool{}
	wanted := map[string]bool{}
	for i := range desired.roles {
		want := roleIn(&desired.roles[i], ns.Name)
		wanted[want.Name] = true
		if r := stored[want.Name]; r != nil && losesRules(r, want) {
			done[want.Name] = true
			err = errors.Join(err, e.applyRole(ctx, r, want))
		}
	}
	for name, r := range stored {
		if !wanted[name] {
			err = errors.Join(err, e.removeRole(ctx, r))
		}
	}
	return done, err
}

// addRoles creates and updates the Roles of TenantMembers in a namespace. It omits the Roles in
// done, which [Engine.revokeRoles] has updated. taken is the error for Roles that cannot be
// created because unmanaged Roles have the same names.
func (e *Engine) addRoles(
	ctx context.Context, ns *corev1.Namespace, stored map[string]*rbacv1.Role, desired *desiredState, done map[string]bool,
) (taken, err error) {
	for i := range desired.roles {
		if r := &desired.roles[i]; !done[r.Name] {
			failed := e.applyRole(ctx, stored[r.Name], roleIn(r, ns.Name))
			if errors.Is(failed, errNameTaken) {
				taken = errors.Join(taken, failed)
			} else {
				err = errors.Join(err, failed)
			}
		}
	}
	return taken, err
}

// roleIn returns a copy of a Role for a namespace.
func roleIn(r *rbacv1.Role, namespace string) *rbacv1.Role {
	out := r.DeepCopy()
	out.Namespace = namespace
	return out
}

// losesRules reports whether a stored Role has a rule that it should not have.
func losesRules(stored, want *rbacv1.Role) bool {
	return slices.ContainsFunc(stored.Rules, func(r rbacv1.PolicyRule) bool {
		return !slices.ContainsFunc(want.Rules, func(w rbacv1.PolicyRule) bool { return equality.Semantic.DeepEqual(r, w) })
	})
}

// isSameRole reports whether a stored Role has the wanted content.
func isSameRole(is, want *rbacv1.Role) bool {
	return hasMetadata(&is.ObjectMeta, &want.ObjectMeta) && equality.Semantic.DeepEqual(is.Rules, want.Rules)
}

// removeRole deletes a Role. Because of the UID precondition, it does not delete a Role with the
// same name that was created later.
func (e *Engine) removeRole(ctx context.Context, r *rbacv1.Role) error {
	if err := e.writes.wait(ctx, tenantOf(r), revokes); err != nil {
		return err
	}
	err := e.Client.RbacV1().Roles(r.Namespace).Delete(ctx, r.Name,
		metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(r.UID))})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// applyRole creates or updates a Role. stored is nil if no managed Role with this name was found.
func (e *Engine) applyRole(ctx context.Context, stored, want *rbacv1.Role) error {
	if stored != nil && isSameRole(stored, want) {
		return nil
	}
	c := adds
	if stored != nil && losesRules(stored, want) {
		c = revokes
	}
	if err := e.writes.wait(ctx, tenantOf(want), c); err != nil {
		return err
	}
	roles := e.Client.RbacV1().Roles(want.Namespace)
	if stored != nil {
		want.ResourceVersion = stored.ResourceVersion
		_, err := roles.Update(ctx, want, metav1.UpdateOptions{FieldManager: v1alpha1.FieldManager})
		return err
	}
	_, err := roles.Create(ctx, want, metav1.CreateOptions{FieldManager: v1alpha1.FieldManager})
	if !apierrors.IsAlreadyExists(err) {
		return err
	}
	existing, getErr := roles.Get(ctx, want.Name, metav1.GetOptions{})
	if getErr != nil || existing.Labels[tenant.ManagedLabel] == managed.SourceTenant {
		return err // the managed Role was created after the list was read, or was deleted
	}
	return fmt.Errorf("%s %s: %w", "Role", want.Name, errNameTaken)
}

// checkRoles queues the namespaces in which a Role of TenantMembers has changed, is missing, or
// should not exist. It deletes Roles of TenantMembers in namespaces without a tenant.
func (e *Engine) checkRoles(ctx context.Context, ofTenant func(tenant.ID) *desiredState) {
	correct := map[string]int{} // the number of correct Roles, keyed by namespace
	drifted := map[string]bool{}
	next := metav1.ListOptions{LabelSelector: rolesSelector, Limit: driftPage}
	for {
		if err := e.pages.Wait(ctx); err != nil {
			return
		}
		list, err := e.Client.RbacV1().Roles(metav1.NamespaceAll).List(ctx, next)
		if err != nil {
			e.logDriftError(ctx, err)
			return
		}
		for i := range list.Items {
			stored := &list.Items[i]
			switch g := e.desiredIn(stored.Namespace, ofTenant); {
			case g != nil && g.hasRole(stored):
				correct[stored.Namespace]++
			case g != nil:
				drifted[stored.Namespace] = true
			case e.hasNoTenant(stored.Namespace):
				if err := e.removeRole(ctx, stored); err != nil {
					e.logDriftError(ctx, err)
				}
			}
		}
		if next.Continue = list.Continue; next.Continue == "" {
			break
		}
	}
	all, err := e.lister.List(labels.Everything())
	if err != nil {
		return
	}
	for _, ns := range all {
		if g := e.desiredIn(ns.Name, ofTenant); g != nil && correct[ns.Name] != len(g.roles) {
			drifted[ns.Name] = true
		}
	}
	for name := range drifted {
		e.markDrifted(name)
		e.updates.Add(name)
	}
}

// desiredIn returns the content that a namespace should have. It returns nil if the content is not
// known, or if the namespace has no tenant or is being deleted.
func (e *Engine) desiredIn(namespace string, ofTenant func(tenant.ID) *desiredState) *desiredState {
	ns, err := e.lister.Get(namespace)
	if err != nil || ns.DeletionTimestamp != nil {
		return nil
	}
	id := e.OwnerOf(ns)
	if id.IsZero() || id.IsSystem() {
		return nil
	}
	return ofTenant(id)
}

// hasRole reports whether a stored Role is a wanted Role and has the wanted content.
func (g *desiredState) hasRole(stored *rbacv1.Role) bool {
	for i := range g.roles {
		if g.roles[i].Name == stored.Name {
			return isSameRole(stored, &g.roles[i])
		}
	}
	return false
}
