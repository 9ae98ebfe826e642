// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package tenancy

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/util/retry"

	"github.com/kubetenant/kubetenant/internal/cli/output"
	"github.com/kubetenant/kubetenant/internal/cli/privileges"
	"github.com/kubetenant/kubetenant/internal/kube"
	"github.com/kubetenant/kubetenant/internal/typed"
	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

var memberObjects = v1alpha1.SchemeGroupVersion.WithResource(v1alpha1.ResourceTenantMembers)

// maxBindings is the maximum number of bindings in a TenantMembers object.
const maxBindings = 32

// MemberGrant binds a ClusterRole to a subject in all namespaces of a tenant.
type MemberGrant struct {
	Tenant  tenant.ID
	Subject rbacv1.Subject
	// ClusterRole is the name of the role. If empty, Revoke removes the subject from every role.
	ClusterRole string
	DryRun      []string
}

func (g *MemberGrant) subject() v1alpha1.Subject { return v1alpha1.Subject(g.Subject) }

// Object returns a TenantMembers object with only this grant.
func (g *MemberGrant) Object() *unstructured.Unstructured {
	subject := map[string]any{"kind": g.Subject.Kind, "name": g.Subject.Name}
	if g.Subject.Namespace != "" {
		subject["namespace"] = g.Subject.Namespace
	}
	u := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{
		"id":       g.Tenant.String(),
		"bindings": []any{map[string]any{"clusterRole": g.ClusterRole, "subjects": []any{subject}}},
	}}}
	u.SetGroupVersionKind(memberObjects.GroupVersion().WithKind(v1alpha1.KindTenantMembers))
	u.SetName(g.Tenant.ObjectName())
	u.SetLabels(map[string]string{privileges.CreatedByLabel: createdByValue})
	return u
}

// Apply adds the grant to the tenant's TenantMembers object, and creates the object if necessary.
// It returns the object and the verb for [output.Changes]. The error may wrap [ErrRefused].
func (g *MemberGrant) Apply(
	ctx context.Context, d dynamic.Interface,
) (u *unstructured.Unstructured, verb string, err error) {
	objects := d.Resource(memberObjects)
	err = retry.OnError(retry.DefaultRetry, isRace, func() error {
		got, stored, err := g.read(ctx, d)
		switch {
		case apierrors.IsNotFound(err):
			verb = output.Created
			u, err = objects.Create(ctx, g.Object(), metav1.CreateOptions{DryRun: g.DryRun})
			return err
		case err != nil:
			return err
		}
		wanted := []v1alpha1.TenantBinding{{ClusterRole: g.ClusterRole, Subjects: []v1alpha1.Subject{g.subject()}}}
		bindings, added := addBindings(stored.Spec.Bindings, wanted)
		if u, verb = got, output.Unchanged; len(added) == 0 {
			return nil
		}
		if len(bindings) > maxBindings {
			return fmt.Errorf("%w: TenantMembers %s already has %d bindings, the maximum",
				ErrRefused, got.GetName(), maxBindings)
		}
		verb = output.Configured
		u, err = g.patch(ctx, d, got, bindings)
		return err
	})
	return u, verb, g.refusal(err)
}

// isRace reports whether a write failed because another caller created or changed the object.
func isRace(err error) bool { return apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) }

// Revoke removes the grant from the tenant's TenantMembers object. If no bindings remain, and
// kubectl tenant created the object, Revoke deletes the object. deleted and changed report what
// Revoke did.
func (g *MemberGrant) Revoke(ctx context.Context, d dynamic.Interface) (deleted, changed bool, err error) {
	err = retry.OnError(retry.DefaultRetry, isRace, func() error {
		deleted, changed = false, false
		got, stored, err := g.read(ctx, d)
		if apierrors.IsNotFound(err) {
			return nil
		}
		if err != nil {
			return err
		}
		bindings, removed := g.without(stored.Spec.Bindings)
		if !removed {
			return nil
		}
		if len(bindings) == 0 && stored.Labels[privileges.CreatedByLabel] == createdByValue {
			uid := got.GetUID()
			version := got.GetResourceVersion()
			err := d.Resource(memberObjects).Delete(ctx, got.GetName(), metav1.DeleteOptions{
				DryRun:        g.DryRun,
				Preconditions: &metav1.Preconditions{UID: &uid, ResourceVersion: &version},
			})
			deleted = err == nil
			return err
		}
		_, err = g.patch(ctx, d, got, bindings)
		changed = err == nil
		return err
	})
	return deleted, changed, g.refusal(err)
}

// without returns the bindings without the grant's subject, and reports whether it removed the
// subject from a binding.
func (g *MemberGrant) without(all []v1alpha1.TenantBinding) (rest []v1alpha1.TenantBinding, removed bool) {
	rest = []v1alpha1.TenantBinding{}
	for _, b := range all {
		if g.ClusterRole != "" && b.ClusterRole != g.ClusterRole {
			rest = append(rest, b)
			continue
		}
		subjects := slices.DeleteFunc(slices.Clone(b.Subjects), func(s v1alpha1.Subject) bool {
			return s.Kind == g.Subject.Kind && s.Name == g.Subject.Name && s.Namespace == g.Subject.Namespace
		})
		if len(subjects) == len(b.Subjects) {
			rest = append(rest, b)
			continue
		}
		if removed = true; len(subjects) > 0 {
			rest = append(rest, v1alpha1.TenantBinding{ClusterRole: b.ClusterRole, Subjects: subjects})
		}
	}
	return rest, removed
}

func (g *MemberGrant) read(
	ctx context.Context, d dynamic.Interface,
) (*unstructured.Unstructured, *v1alpha1.TenantMembers, error) {
	u, err := d.Resource(memberObjects).Get(ctx, g.Tenant.ObjectName(), metav1.GetOptions{})
	if err != nil {
		return nil, nil, err
	}
	stored, err := typed.Decode[v1alpha1.TenantMembers](u)
	return u, stored, err
}

// patch replaces the bindings of an object. It returns a Conflict error if another caller has
// changed the object.
func (g *MemberGrant) patch(
	ctx context.Context, d dynamic.Interface, of *unstructured.Unstructured, bindings []v1alpha1.TenantBinding,
) (*unstructured.Unstructured, error) {
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"resourceVersion": of.GetResourceVersion(), "uid": of.GetUID()},
		"spec":     map[string]any{"bindings": bindings},
	})
	if err != nil {
		return nil, err
	}
	return d.Resource(memberObjects).Patch(ctx, of.GetName(), types.MergePatchType, patch,
		metav1.PatchOptions{DryRun: g.DryRun})
}

// refusal adds advice to an error from a request for TenantMembers.
func (g *MemberGrant) refusal(err error) error {
	switch text := fmt.Sprint(err); {
	case err == nil:
		return nil
	case apierrors.IsNotFound(err):
		return fmt.Errorf("%w: the CustomResourceDefinition %s.%s is not installed: see docs/install.md",
			ErrRefused, memberObjects.Resource, memberObjects.Group)
	case apierrors.IsForbidden(err) && strings.Contains(text, "is not listed in spec.memberRoles"):
		return fmt.Errorf("%w: the Tenant does not let members have ClusterRole %s: a cluster admin can add it to "+
			"spec.memberRoles", ErrRefused, g.ClusterRole)
	case apierrors.IsForbidden(err) && strings.Contains(text, `resource "tenantmembers"`):
		return fmt.Errorf("%w: you may not read and write tenantmembers: see docs/tenants.md#members", ErrRefused)
	}
	return refusal(err)
}

// Others returns the subject's other RoleBindings in the tenant's namespaces, as NAMESPACE/NAME.
// It omits the RoleBindings that the server manages.
func (g *MemberGrant) Others(ctx context.Context, k kube.Interface) (names []string, err error) {
	list, err := k.CoreV1().Namespaces().List(ctx,
		metav1.ListOptions{LabelSelector: selector(map[string]string{tenant.Label: g.Tenant.String()})})
	if err != nil {
		return nil, refusal(err)
	}
	for i := range list.Items {
		bindings, err := k.RbacV1().RoleBindings(list.Items[i].Name).List(ctx, metav1.ListOptions{})
		if err != nil {
			return nil, refusal(err)
		}
		for j := range bindings.Items {
			b := &bindings.Items[j]
			if b.Labels[tenant.ManagedLabel] == "" && (g.ClusterRole == "" || b.RoleRef.Name == g.ClusterRole) &&
				slices.Contains(b.Subjects, g.Subject) {
				names = append(names, b.Namespace+"/"+b.Name)
			}
		}
	}
	return names, nil
}
