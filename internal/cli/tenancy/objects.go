// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package tenancy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/util/retry"

	"github.com/kubetenant/kubetenant/authz"
	"github.com/kubetenant/kubetenant/cluster/tenants"
	"github.com/kubetenant/kubetenant/internal/kube"
	"github.com/kubetenant/kubetenant/internal/typed"
	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

var tenantObjects = v1alpha1.SchemeGroupVersion.WithResource(v1alpha1.ResourceTenants)

// suspensionManager is the field manager of suspensions. Flux takes ownership of fields whose
// manager begins with kubectl (fluxcd/pkg ssa, PatchReplaceFieldsManagers), and would revert a
// suspension.
const suspensionManager = "kubetenant-suspend"

// ErrNoObject reports that a tenant has no Tenant object.
var ErrNoObject = errors.New("it has no Tenant object: create it with kubectl tenant create-tenant, or with " +
	"adopt-tenants if the tenant has namespaces")

// Object returns a Tenant object with the given ID.
func Object(id tenant.ID) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"id": id.String()}}}
	u.SetGroupVersionKind(tenantObjects.GroupVersion().WithKind(v1alpha1.KindTenant))
	u.SetName(id.ObjectName())
	return u
}

// createObject creates a Tenant object. If the object exists, createObject adds the missing admins
// and bindings. It returns the subjects that became admins or got a binding.
func createObject(
	ctx context.Context, d dynamic.Interface, u *unstructured.Unstructured, dryRun []string,
) (created bool, added []v1alpha1.Subject, err error) {
	wanted, err := typed.Decode[v1alpha1.Tenant](u)
	if err != nil {
		return false, nil, err
	}
	_, err = d.Resource(tenantObjects).Create(ctx, u, metav1.CreateOptions{DryRun: dryRun})
	switch {
	case apierrors.IsAlreadyExists(err):
		added, err = addSubjects(ctx, d, u.GetName(), &wanted.Spec, dryRun)
		return false, added, err
	case apierrors.IsNotFound(err):
		return false, nil, fmt.Errorf("%w: the CustomResourceDefinition %s.%s is not installed: see docs/install.md",
			ErrRefused, tenantObjects.Resource, tenantObjects.Group)
	case err != nil:
		return false, nil, refusal(err)
	}
	added = wanted.Spec.Admins
	for _, b := range wanted.Spec.Bindings {
		added = append(added, b.Subjects...)
	}
	return true, added, nil
}

// addSubjects adds the missing admins and the missing subjects of bindings to a Tenant object. It
// returns the added subjects.
func addSubjects(
	ctx context.Context, d dynamic.Interface, name string, wanted *v1alpha1.TenantSpec, dryRun []string,
) (added []v1alpha1.Subject, err error) {
	err = retry.RetryOnConflict(retry.DefaultRetry, func() error {
		u, err := d.Resource(tenantObjects).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		t, err := typed.Decode[v1alpha1.Tenant](u)
		if err != nil {
			return err
		}
		spec := map[string]any{}
		if added = missing(t.Spec.Admins, wanted.Admins); len(added) > 0 {
			spec["admins"] = append(t.Spec.Admins, added...)
		}
		bindings, bound := addBindings(t.Spec.Bindings, wanted.Bindings)
		if added = append(added, bound...); len(bound) > 0 {
			spec["bindings"] = bindings
		}
		if len(spec) == 0 {
			return nil
		}
		patch, err := json.Marshal(map[string]any{
			"metadata": map[string]any{"resourceVersion": u.GetResourceVersion()},
			"spec":     spec,
		})
		if err != nil {
			return err
		}
		_, err = d.Resource(tenantObjects).Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{DryRun: dryRun})
		return err
	})
	if err != nil {
		return nil, refusal(err)
	}
	return added, nil
}

// addBindings returns all with the missing subjects of wanted, and the added subjects. A Tenant
// has at most one binding for each ClusterRole.
func addBindings(all, wanted []v1alpha1.TenantBinding) (with []v1alpha1.TenantBinding, added []v1alpha1.Subject) {
	with = slices.Clone(all)
	for _, w := range wanted {
		at := slices.IndexFunc(with, func(b v1alpha1.TenantBinding) bool { return b.ClusterRole == w.ClusterRole })
		if at < 0 {
			at = len(with)
			with = append(with, v1alpha1.TenantBinding{ClusterRole: w.ClusterRole})
		}
		lacking := missing(with[at].Subjects, w.Subjects)
		with[at].Subjects = append(slices.Clone(with[at].Subjects), lacking...)
		added = append(added, lacking...)
	}
	return with, added
}

// missing returns the subjects in wanted that are not in among. It ignores their API groups.
func missing(among, wanted []v1alpha1.Subject) (lacking []v1alpha1.Subject) {
	for _, s := range wanted {
		if !slices.ContainsFunc(among, func(subject v1alpha1.Subject) bool {
			return subject.Kind == s.Kind && subject.Name == s.Name && subject.Namespace == s.Namespace
		}) {
			lacking = append(lacking, s)
		}
	}
	return lacking
}

// preparedTimeout is the maximum time that [AwaitPrepared] waits.
const preparedTimeout = 10 * time.Second

// ErrNotPrepared reports that the server has not yet created the objects that a Tenant object
// specifies.
var ErrNotPrepared = errors.New("the admins do not have their role yet: to see why, run kubectl get tenant -o yaml")

// AwaitPrepared waits until the server has created the objects that a Tenant specifies for the
// given namespaces. It waits at most [preparedTimeout]. The error may wrap [ErrNotPrepared] or
// [ErrRefused].
func AwaitPrepared(
	ctx context.Context, k kube.Interface, d dynamic.Interface, id tenant.ID, namespaces []string,
) error {
	err := wait.PollUntilContextTimeout(ctx, preparedTimeout/100, preparedTimeout, true,
		func(ctx context.Context) (bool, error) {
			for _, name := range namespaces {
				ns, err := k.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
				if err != nil || ns.Annotations[tenant.PreparedAnnotation] == "" {
					return false, err
				}
			}
			u, err := d.Resource(tenantObjects).Get(ctx, id.ObjectName(), metav1.GetOptions{})
			if err != nil {
				return false, err
			}
			t, err := typed.Decode[v1alpha1.Tenant](u)
			if err != nil {
				return false, err
			}
			return t.Status.ObservedGeneration >= t.Generation &&
				meta.IsStatusConditionTrue(t.Status.Conditions, v1alpha1.ConditionPrepared), nil
		})
	switch {
	case wait.Interrupted(err) && ctx.Err() == nil:
		return fmt.Errorf("tenant %s: %w", id, ErrNotPrepared)
	case err != nil:
		return refusal(err)
	}
	return nil
}

// Suspend sets the suspension of a tenant. An empty suspension resumes the tenant. Suspend writes
// the empty string explicitly, because the server restores a suspension that an update omits.
// Suspend returns the resulting access, and reports whether the Tenant changed. The error may wrap
// [ErrNoObject] or [ErrRefused].
func Suspend(
	ctx context.Context, d dynamic.Interface, id tenant.ID, suspension v1alpha1.TenantAccess, dryRun []string,
) (access v1alpha1.TenantAccess, changed bool, err error) {
	stored, err := d.Resource(tenantObjects).Get(ctx, id.ObjectName(), metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return "", false, fmt.Errorf("tenant %s: %w", id, ErrNoObject)
	case err != nil:
		return "", false, refusal(err)
	}
	if current, _, err := unstructured.NestedString(stored.Object, "spec", "suspension"); err == nil &&
		current == string(suspension) {
		return accessOf(stored), false, nil
	}
	patch, err := json.Marshal(map[string]any{"spec": map[string]any{"suspension": suspension}})
	if err != nil {
		return "", false, err
	}
	u, err := d.Resource(tenantObjects).Patch(ctx, id.ObjectName(), types.MergePatchType, patch,
		metav1.PatchOptions{DryRun: dryRun, FieldManager: suspensionManager})
	switch {
	case apierrors.IsNotFound(err):
		return "", false, fmt.Errorf("tenant %s: %w", id, ErrNoObject)
	case err != nil:
		return "", false, refusal(err)
	}
	return accessOf(u), true, nil
}

// tenantOf returns the ID of a Tenant object's tenant, or "" if the server ignores the object. If
// the object is invalid, the ID is derived from its name.
func tenantOf(u *unstructured.Unstructured) string {
	t, err := typed.Decode[v1alpha1.Tenant](u)
	if err != nil {
		return tenants.IDOfName(u.GetName()).String()
	}
	id, _ := tenants.AccessOf(t)
	return id.String()
}

// accessOf returns the access that a Tenant object specifies, or Closed if the object is invalid.
func accessOf(u *unstructured.Unstructured) v1alpha1.TenantAccess {
	t, err := typed.Decode[v1alpha1.Tenant](u)
	if err != nil {
		return v1alpha1.TenantAccessClosed
	}
	switch _, access := tenants.AccessOf(t); access {
	case authz.AccessOpen:
		return v1alpha1.TenantAccessOpen
	case authz.AccessReadOnly:
		return v1alpha1.TenantAccessReadOnly
	}
	return v1alpha1.TenantAccessClosed
}
