// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package tenancy

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/kubetenant/kubetenant/internal/cli/output"
	"github.com/kubetenant/kubetenant/internal/cli/privileges"
	"github.com/kubetenant/kubetenant/internal/kube"
	"github.com/kubetenant/kubetenant/tenant"
)

// ClusterWideGrant binds a ClusterRole to a subject of the system tenant, for the objects of the
// system tenant.
type ClusterWideGrant struct {
	Subject rbacv1.Subject
	// ClusterRole is the name of the role. If empty, Revoke removes the bindings to every role.
	ClusterRole string
	DryRun      []string
}

// CheckClusterWide returns an error for a group that may contain callers of tenants, and for the
// anonymous user.
func CheckClusterWide(s rbacv1.Subject) error {
	groups := []string{user.AllAuthenticated, user.AllUnauthenticated, serviceaccount.AllServiceAccountsGroup}
	isBroad := slices.Contains(groups, s.Name) || strings.HasPrefix(s.Name, tenant.GroupPrefix) ||
		strings.HasPrefix(s.Name, serviceaccount.ServiceAccountGroupPrefix)
	switch {
	case s.Kind == rbacv1.GroupKind && isBroad:
		return fmt.Errorf("--cluster-wide: callers of tenants are members of the group %s", s.Name)
	case s.Kind == rbacv1.UserKind && s.Name == user.Anonymous:
		return errors.New("--cluster-wide cannot be used for anonymous callers")
	}
	return nil
}

// Binding returns the ClusterRoleBinding for the grant. Because of its annotation
// [tenant.ScopeAnnotation], the RBAC evaluator of kubetenant applies the binding only to objects
// of the system tenant.
func (g *ClusterWideGrant) Binding() *rbacv1.ClusterRoleBinding {
	ref := rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: g.ClusterRole}
	return &rbacv1.ClusterRoleBinding{
		TypeMeta: metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: "ClusterRoleBinding"},
		ObjectMeta: metav1.ObjectMeta{
			Name: bindingName(g.Subject, ref),
			Labels: map[string]string{
				privileges.CreatedByLabel: createdByValue,
				subjectLabel:              hash(subjectText(g.Subject)),
			},
			Annotations: map[string]string{tenant.ScopeAnnotation: tenant.System().String()},
		},
		RoleRef:  ref,
		Subjects: []rbacv1.Subject{g.Subject},
	}
}

// Apply creates the ClusterRoleBinding, or corrects the existing one. It returns the binding and
// the verb for [output.Changes]. The error may wrap [ErrRefused] or [ErrNoRole].
func (g *ClusterWideGrant) Apply(ctx context.Context, k kube.Interface) (*rbacv1.ClusterRoleBinding, string, error) {
	if _, err := k.RbacV1().ClusterRoles().Get(ctx, g.ClusterRole, metav1.GetOptions{}); apierrors.IsNotFound(err) {
		return nil, "", fmt.Errorf("ClusterRole %s: %w", g.ClusterRole, ErrNoRole)
	}
	want := g.Binding()
	bindings := k.RbacV1().ClusterRoleBindings()
	got, err := bindings.Create(ctx, want, metav1.CreateOptions{DryRun: g.DryRun})
	verb := output.Created
	if apierrors.IsAlreadyExists(err) {
		if got, err = bindings.Get(ctx, want.Name, metav1.GetOptions{}); err == nil {
			got, verb, err = g.correct(ctx, k, got, want)
		}
	}
	if err != nil {
		return nil, "", refusal(err)
	}
	got.TypeMeta = want.TypeMeta
	return got, verb, nil
}

func (g *ClusterWideGrant) correct(
	ctx context.Context, k kube.Interface, got, want *rbacv1.ClusterRoleBinding,
) (*rbacv1.ClusterRoleBinding, string, error) {
	scope := got.Annotations[tenant.ScopeAnnotation]
	_, ends := got.Annotations[tenant.ExpiresAnnotation]
	isOurs := got.Labels[privileges.CreatedByLabel] == createdByValue &&
		got.Labels[subjectLabel] == want.Labels[subjectLabel]
	switch {
	case got.RoleRef != want.RoleRef || !isOurs:
		return nil, "", fmt.Errorf("%w: ClusterRoleBinding %s already exists, and grant-privileges did not create it: "+
			"delete it first", ErrRefused, want.Name)
	case slices.Equal(got.Subjects, want.Subjects) && scope == want.Annotations[tenant.ScopeAnnotation] && !ends:
		return got, output.Unchanged, nil
	}
	got.Subjects = want.Subjects
	if got.Annotations == nil {
		got.Annotations = map[string]string{}
	}
	delete(got.Annotations, tenant.ExpiresAnnotation)
	maps.Copy(got.Annotations, want.Annotations)
	got, err := k.RbacV1().ClusterRoleBindings().Update(ctx, got, metav1.UpdateOptions{DryRun: g.DryRun})
	return got, output.Configured, err
}

// Revoke deletes the ClusterRoleBindings that Apply created for the subject. It returns the names
// of these bindings, and the names of the subject's other ClusterRoleBindings, which it does not
// change.
func (g *ClusterWideGrant) Revoke(ctx context.Context, k kube.Interface) (deleted, remaining []string, err error) {
	bindings := k.RbacV1().ClusterRoleBindings()
	list, err := bindings.List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, nil, refusal(err)
	}
	for i := range list.Items {
		b := &list.Items[i]
		if g.ClusterRole != "" && b.RoleRef.Name != g.ClusterRole || !slices.Contains(b.Subjects, g.Subject) {
			continue
		}
		isOurs := b.Labels[privileges.CreatedByLabel] == createdByValue &&
			b.Labels[subjectLabel] == hash(subjectText(g.Subject))
		if !isOurs || len(b.Subjects) != 1 {
			remaining = append(remaining, b.Name)
			continue
		}
		err := bindings.Delete(ctx, b.Name,
			metav1.DeleteOptions{DryRun: g.DryRun, Preconditions: metav1.NewUIDPreconditions(string(b.UID))})
		if err != nil && !apierrors.IsNotFound(err) {
			return deleted, remaining, refusal(err)
		}
		deleted = append(deleted, b.Name)
	}
	return deleted, remaining, nil
}
