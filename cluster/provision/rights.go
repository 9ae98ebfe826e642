// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package provision

import (
	"context"
	"fmt"
	"slices"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	rbacclient "k8s.io/client-go/kubernetes/typed/rbac/v1"
	"k8s.io/klog/v2"

	"github.com/kubetenant/kubetenant/authz"
	"github.com/kubetenant/kubetenant/plugins/managed"
	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

// NamespacesRole returns the ClusterRole [v1alpha1.NamespacesRole] as the engine creates it.
func NamespacesRole() *rbacv1.ClusterRole {
	return clusterRole(v1alpha1.NamespacesRole, append(namespacesRules("watch"), auditRule())...)
}

// auditRule allows requests to [authz.AuditPath], which serves the audit events of the caller's
// tenant.
func auditRule() rbacv1.PolicyRule {
	return rbacv1.PolicyRule{NonResourceURLs: []string{authz.AuditPath}, Verbs: []string{"get"}}
}

func namespacesRules(more ...string) []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{
		{
			APIGroups: []string{""},
			Resources: []string{"namespaces"},
			Verbs:     []string{"create", "delete", "get", "list", "patch", "update", "watch"},
		},
		{
			APIGroups: []string{tenant.Domain},
			Resources: []string{v1alpha1.ResourceTenantMembers},
			Verbs:     append([]string{"create", "delete", "get", "list", "patch", "update"}, more...),
		},
	}
}

// MemberRole returns the ClusterRole [v1alpha1.MemberRole] as the engine creates it. It also allows
// reads of shared, which are the resources that the configuration shares with all tenants.
func MemberRole(shared []schema.GroupResource) *rbacv1.ClusterRole {
	rules := memberRules("watch")
	for _, r := range shared {
		rules = append(rules, rbacv1.PolicyRule{
			APIGroups: []string{r.Group},
			Resources: []string{r.Resource},
			Verbs:     []string{"get", "list", "watch"},
		})
	}
	return clusterRole(v1alpha1.MemberRole, append(rules, usageRule(), fairUseRule())...)
}

// usageRule allows callers to get TenantUsages. The boundary limits callers to the TenantUsage of
// their tenant.
func usageRule() rbacv1.PolicyRule {
	return rbacv1.PolicyRule{
		APIGroups: []string{tenant.Domain},
		Resources: []string{v1alpha1.ResourceTenantUsages},
		Verbs:     []string{"get"},
	}
}

// fairUseRule allows requests to [authz.FairUsePath], which serves the fair-use limits and the
// usage of the caller's tenant.
func fairUseRule() rbacv1.PolicyRule {
	return rbacv1.PolicyRule{NonResourceURLs: []string{authz.FairUsePath}, Verbs: []string{"get"}}
}

func memberRules(more ...string) []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{
		{
			APIGroups: []string{""},
			Resources: []string{"namespaces"},
			Verbs:     []string{"get", "list", "watch"},
		},
		{
			APIGroups: []string{tenant.Domain},
			Resources: []string{v1alpha1.ResourceTenantQuotas, v1alpha1.ResourceTenants},
			Verbs:     append([]string{"get", "list"}, more...),
		},
	}
}

// isEarlier reports whether a stored role has exactly the rules with which an earlier release
// created it. now is the role that this release creates.
func isEarlier(role, now *rbacv1.ClusterRole) bool {
	withoutUsage := slices.DeleteFunc(slices.Clone(now.Rules), func(r rbacv1.PolicyRule) bool {
		return slices.Contains(r.Resources, v1alpha1.ResourceTenantUsages)
	})
	withoutPaths := slices.DeleteFunc(slices.Clone(withoutUsage), func(r rbacv1.PolicyRule) bool {
		return len(r.NonResourceURLs) > 0
	})
	earlier := map[string][][]rbacv1.PolicyRule{
		v1alpha1.NamespacesRole: {namespacesRules(), withoutPaths},
		v1alpha1.MemberRole:     {memberRules(), withoutPaths, withoutUsage},
	}
	return role.AggregationRule == nil && slices.ContainsFunc(earlier[role.Name], func(rules []rbacv1.PolicyRule) bool {
		return equality.Semantic.DeepEqual(role.Rules, rules)
	})
}

// WriteRole creates [NamespacesRole] or [MemberRole]. If the role exists with the rules of an
// earlier release, WriteRole updates its rules. It does not change a role with other rules. It
// returns "created", "updated", or "" if it changed nothing. If err is not nil, done has no
// meaning.
func WriteRole(
	ctx context.Context, roles rbacclient.ClusterRoleInterface, role *rbacv1.ClusterRole, options metav1.CreateOptions,
) (done string, err error) {
	_, err = roles.Create(ctx, role, options)
	if !apierrors.IsAlreadyExists(err) {
		return "created", err
	}
	stored, err := roles.Get(ctx, role.Name, metav1.GetOptions{})
	if err != nil || !isEarlier(stored, role) {
		return "", err
	}
	stored.Rules = role.Rules
	_, err = roles.Update(ctx, stored, metav1.UpdateOptions{DryRun: options.DryRun, FieldManager: options.FieldManager})
	return "updated", err
}

func clusterRole(name string, rules ...rbacv1.PolicyRule) *rbacv1.ClusterRole {
	return &rbacv1.ClusterRole{
		TypeMeta:   metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: "ClusterRole"},
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Rules:      rules,
	}
}

// rightsEvery is the interval at which the engine checks whether the server derives rights.
const rightsEvery = 5 * time.Second

// followRights creates [NamespacesRole] and [MemberRole] as soon as DerivesRights returns true.
// It creates the roles only once, so a role that is deleted later is not created again until the
// engine restarts. It also deletes the bindings that an earlier release created instead.
func (e *Engine) followRights(ctx context.Context) {
	var created bool
	var deleted time.Time
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		if !created && e.DerivesRights != nil && e.DerivesRights() {
			err := e.createRoles(ctx)
			logRights(ctx, err)
			created = err == nil
		}
		if time.Since(deleted) >= driftEvery {
			err := e.deleteEarlierBindings(ctx)
			logRights(ctx, err)
			if err == nil {
				deleted = time.Now()
			}
		}
	}, rightsEvery)
}

func logRights(ctx context.Context, err error) {
	if err != nil && ctx.Err() == nil {
		klog.FromContext(ctx).Error(err, "Failed to prepare the rights that follow from Tenants, will retry",
			"after", rightsEvery)
	}
}

func (e *Engine) createRoles(ctx context.Context) error {
	var shared []schema.GroupResource
	if e.Shared != nil {
		shared = e.Shared()
	}
	for _, role := range []*rbacv1.ClusterRole{NamespacesRole(), MemberRole(shared)} {
		if err := e.writes.wait(ctx, tenant.ID{}, adds); err != nil {
			return err
		}
		if _, err := WriteRole(ctx, e.Client.RbacV1().ClusterRoles(), role,
			metav1.CreateOptions{FieldManager: v1alpha1.FieldManager}); err != nil {
			return fmt.Errorf("write ClusterRole %s: %w", role.Name, err)
		}
	}
	return nil
}

// EarlierAdminsBinding returns the name of the ClusterRoleBinding that an earlier release created
// for the admins of a tenant. Only an annotation limited the binding to the tenant, and servers
// without kubetenant ignore the annotation.
func EarlierAdminsBinding(id tenant.ID) string {
	return managed.NamePrefix + "admins:" + id.ObjectName()
}

// deleteEarlierBindings deletes the ClusterRoleBindings that [EarlierAdminsBinding] names. It
// deletes only bindings that have the labels that the earlier release set.
func (e *Engine) deleteEarlierBindings(ctx context.Context) error {
	all := e.Client.RbacV1().ClusterRoleBindings()
	next := metav1.ListOptions{LabelSelector: tenant.ManagedLabel, Limit: driftPage}
	for {
		list, err := all.List(ctx, next)
		if err != nil {
			return fmt.Errorf("list ClusterRoleBindings: %w", err)
		}
		for i := range list.Items {
			b := &list.Items[i]
			id, err := tenant.Parse(b.Labels[tenant.OfTenantLabel])
			if err != nil || b.Name != EarlierAdminsBinding(id) {
				continue
			}
			if err := e.writes.wait(ctx, tenant.ID{}, revokes); err != nil {
				return err
			}
			err = all.Delete(ctx, b.Name, metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(b.UID))})
			if err != nil && !apierrors.IsNotFound(err) {
				return fmt.Errorf("delete ClusterRoleBinding %s: %w", b.Name, err)
			}
		}
		if next.Continue = list.Continue; next.Continue == "" {
			return nil
		}
	}
}
