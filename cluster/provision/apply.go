package provision

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	applycorev1 "k8s.io/client-go/applyconfigurations/core/v1"

	"github.com/kubetenant/kubetenant/plugins/namespace"
	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

// errTaken reports that an object with the name of a managed object was created before the
// admission plugin could refuse it.
var errTaken = errors.New("an object with this name exists but does not belong to the Tenant: delete it")

// bindingsThere returns the managed bindings of a namespace, by their names.
func (e *Engine) bindingsThere(ctx context.Context, namespace string) (map[string]*rbacv1.RoleBinding, error) {
	list, err := e.Client.RbacV1().RoleBindings(namespace).List(ctx,
		metav1.ListOptions{LabelSelector: tenant.ManagedLabel})
	if err != nil {
		return nil, err
	}
	is := map[string]*rbacv1.RoleBinding{}
	for i := range list.Items {
		is[list.Items[i].Name] = &list.Items[i]
	}
	return is, nil
}

// apply brings the managed bindings of a namespace in line with what is there, first those
// that take something away.
func (e *Engine) apply(
	ctx context.Context, ns *corev1.Namespace, is map[string]*rbacv1.RoleBinding, gives *given,
) (err error) {
	wanted := map[string]bool{}
	for i := range gives.bindings {
		wanted[gives.bindings[i].Name] = true
	}
	for name, b := range is {
		if !wanted[name] {
			err = errors.Join(err, e.remove(ctx, b))
		}
	}
	for i := range gives.bindings {
		err = errors.Join(err, e.put(ctx, is[gives.bindings[i].Name], inNamespace(&gives.bindings[i], ns.Name)))
	}
	return err
}

// remove deletes a binding as it was seen, and none that was made anew by its name.
func (e *Engine) remove(ctx context.Context, b *rbacv1.RoleBinding) error {
	if err := e.writes.Wait(ctx); err != nil {
		return err
	}
	err := e.Client.RbacV1().RoleBindings(b.Namespace).Delete(ctx, b.Name,
		metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(b.UID))})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// put makes a binding what it should be; is is nil where there is none that is ours.
func (e *Engine) put(ctx context.Context, is, want *rbacv1.RoleBinding) error {
	if is != nil && isSame(is, want) {
		return nil
	}
	if is != nil && is.RoleRef != want.RoleRef { // which never changes
		if err := e.remove(ctx, is); err != nil {
			return err
		}
		is = nil
	}
	if err := e.writes.Wait(ctx); err != nil {
		return err
	}
	bindings := e.Client.RbacV1().RoleBindings(want.Namespace)
	if is != nil {
		want.ResourceVersion = is.ResourceVersion
		_, err := bindings.Update(ctx, want, metav1.UpdateOptions{FieldManager: v1alpha1.FieldManager})
		return err
	}
	_, err := bindings.Create(ctx, want, metav1.CreateOptions{FieldManager: v1alpha1.FieldManager})
	if !apierrors.IsAlreadyExists(err) {
		return err
	}
	there, getErr := bindings.Get(ctx, want.Name, metav1.GetOptions{})
	if getErr != nil || there.Labels[tenant.ManagedLabel] != "" {
		return err // ours, which the list did not have yet, or gone again
	}
	return fmt.Errorf("RoleBinding %s: %w", want.Name, errTaken)
}

// labelsManager is the field manager of the labels that a Tenant specifies for Namespaces. A label
// that this manager applied and no longer applies is removed.
const labelsManager = "kubetenant-labels"

// label applies the labels of a namespace. Its UID must be that of ns.
func (e *Engine) label(ctx context.Context, ns *corev1.Namespace, gives *given) error {
	labels, err := e.labelsFor(ctx, ns, gives)
	if err != nil {
		return err
	}
	if len(labels) == 0 {
		if had, err := e.wasLabelled(ctx, ns); !had || err != nil {
			return err
		}
	}
	if err := e.writes.Wait(ctx); err != nil {
		return err
	}
	wanted := applycorev1.Namespace(ns.Name).WithUID(ns.UID).WithLabels(labels)
	_, err = e.Client.CoreV1().Namespaces().Apply(ctx, wanted,
		metav1.ApplyOptions{FieldManager: labelsManager, Force: true})
	return err
}

// labelsFor returns the labels to apply to a namespace. It omits the level of PodSecurity if another
// manager set a stricter one. If labelsManager set the stricter level, the Tenant lowered it.
//
// The decision depends on managed fields, which a tenant can forge. A forged entry only leads to the
// level of the Tenant or to a stricter one.
func (e *Engine) labelsFor(ctx context.Context, ns *corev1.Namespace, gives *given) (map[string]string, error) {
	level := gives.labels[namespace.EnforceLabel]
	if !namespace.IsStricter(ns.Labels[namespace.EnforceLabel], level) {
		return gives.labels, nil
	}
	live, err := e.Client.CoreV1().Namespaces().Get(ctx, ns.Name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	if !namespace.IsStricter(live.Labels[namespace.EnforceLabel], level) || ownsLevel(live.ManagedFields) {
		return gives.labels, nil
	}
	labels := maps.Clone(gives.labels)
	delete(labels, namespace.EnforceLabel)
	return labels, nil
}

// ownsLevel reports whether labelsManager set the level of PodSecurity that a Namespace has.
func ownsLevel(entries []metav1.ManagedFieldsEntry) bool {
	return slices.ContainsFunc(entries, func(m metav1.ManagedFieldsEntry) bool {
		var fields struct {
			Metadata struct {
				Labels map[string]any `json:"f:labels"`
			} `json:"f:metadata"`
		}
		if m.Manager != labelsManager || m.FieldsV1 == nil || json.Unmarshal(m.FieldsV1.Raw, &fields) != nil {
			return false
		}
		_, owns := fields.Metadata.Labels["f:"+namespace.EnforceLabel]
		return owns
	})
}

// wasLabelled reports whether a namespace was given labels. Caches do not know who has set one.
func (e *Engine) wasLabelled(ctx context.Context, ns *corev1.Namespace) (bool, error) {
	if ns.Annotations[tenant.PreparedAnnotation] == "" {
		return false, nil
	}
	live, err := e.Client.CoreV1().Namespaces().Get(ctx, ns.Name, metav1.GetOptions{})
	if err != nil {
		return false, err
	}
	isOurs := func(m metav1.ManagedFieldsEntry) bool { return m.Manager == labelsManager }
	return slices.ContainsFunc(live.ManagedFields, isOurs), nil
}

// mark says on a namespace that it is prepared, if it is the one that was: by its UID. It
// is not held any more then.
func (e *Engine) mark(ctx context.Context, ns *corev1.Namespace, hash string) error {
	_, held := ns.Annotations[tenant.HeldAnnotation]
	if ns.Annotations[tenant.PreparedAnnotation] == hash && !held {
		return nil
	}
	annotations := map[string]any{tenant.PreparedAnnotation: nil}
	if hash != "" {
		annotations[tenant.PreparedAnnotation] = hash
	}
	if held {
		annotations[tenant.HeldAnnotation] = nil
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": ns.UID, "annotations": annotations}})
	if err != nil {
		return err
	}
	if err := e.writes.Wait(ctx); err != nil {
		return err
	}
	_, err = e.Client.CoreV1().Namespaces().Patch(ctx, ns.Name, types.MergePatchType, patch,
		metav1.PatchOptions{FieldManager: v1alpha1.FieldManager})
	return err
}
