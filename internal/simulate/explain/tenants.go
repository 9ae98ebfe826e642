// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apiserver/pkg/admission"

	"github.com/kubetenant/kubetenant/authz"
	"github.com/kubetenant/kubetenant/internal/simulate/simulator"
	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

// proposeNamespace returns a change that creates the missing namespace of the request, with the
// labels that admission sets if the caller creates it.
func (q *Query) proposeNamespace(ctx context.Context, a *answer) (*change, error) {
	name := q.namespaceName()
	caller := a.outcome.Caller
	intro := fmt.Sprintf("The cluster's admin, or a caller of tenant %s who may create namespaces, can create it:", caller)
	if caller.IsSystem() {
		intro = "The cluster's admin can create it:"
	}
	if ns := q.created(ctx, a, name); ns != nil {
		c, err := q.tryObjects(ctx, a, fmt.Sprintf("There is no namespace %s.\n%s", name, intro), ns)
		if c != nil || err != nil {
			return c, err
		}
	}
	owner := tenant.PrefixOwner(name)
	switch required := q.Config.Admission.Namespace.NamespacePrefix == v1alpha1.NamespacePrefixRequired; {
	case required && !owner.IsZero() && owner != caller && q.Snapshot.HasTenant(owner):
		return advice("There is no namespace %s. Only tenant %s can have a namespace of that name.", name, owner), nil
	case required && owner != caller:
		return advice("There is no namespace %s. Namespaces that tenant %s creates begin with %s%s.",
			name, caller, caller, tenant.NamespaceSeparator), nil
	}
	return advice("There is no namespace %s.", name), nil
}

// created returns the Namespace that the caller would create, as changed by admission. It returns
// nil if admission rejects the Namespace.
func (q *Query) created(ctx context.Context, a *answer, name string) *corev1.Namespace {
	write := newNamespace(name)
	resource := corev1.SchemeGroupVersion.WithResource("namespaces")
	record := admission.NewAttributesRecord(write.Object, nil, write.Kind, name, name, resource, "",
		admission.Create, nil, true, q.User)
	if err := simulator.Admit(ctx, a.stack.Admission, record); err != nil {
		return nil
	}
	namespace := write.Object.(*corev1.Namespace)
	return &corev1.Namespace{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: namespace.Labels},
	}
}

// proposeTenant returns a change that creates the Tenant object that authorization.requireTenant
// requires.
func (q *Query) proposeTenant(ctx context.Context, a *answer) (*change, error) {
	text := fmt.Sprintf("The Tenant %s does not exist, but authorization.requireTenant requires it.\n"+
		"The cluster's admin can create it:", a.outcome.Caller)
	return q.tryObjects(ctx, a, text, tenantObject(a.outcome.Caller, nil))
}

// proposeSuccessor returns a change that creates a Tenant object with the ID of a deleted tenant.
func (q *Query) proposeSuccessor(ctx context.Context, a *answer) (*change, error) {
	caller := a.outcome.Caller
	all := tenant.SortByDeletionEnd(q.Snapshot.Retired[caller])
	if len(all) == 0 || all[len(all)-1].UID == "" || all[len(all)-1].DeletionEnded.IsZero() {
		return nil, nil // the deletion is not complete
	}
	text := fmt.Sprintf("Tenant %s was deleted. The cluster's admin can give its name to a new tenant.\n"+
		"Credentials of the deleted tenant stay invalid.", caller)
	return q.tryObjects(ctx, a, text, tenantObject(caller, map[string]any{"replaces": all[len(all)-1].UID}))
}

// tenantObject returns a Tenant object with the given additional fields in its spec.
func tenantObject(id tenant.ID, spec map[string]any) *unstructured.Unstructured {
	all := map[string]any{"id": id.String()}
	for key, value := range spec {
		all[key] = value
	}
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": tenant.Domain + "/v1alpha1",
		"kind":       v1alpha1.KindTenant,
		"metadata":   map[string]any{"name": id.ObjectName()},
		"spec":       all,
	}}
}

// proposeAccess returns a command that changes the access of the caller's tenant so that it permits
// the request.
func (q *Query) proposeAccess(ctx context.Context, a *answer) (*change, error) {
	id := a.outcome.Caller
	for _, group := range q.User.GetGroups() {
		// a certificate without a time of issue has only the group
		if groupTenant, ok := strings.CutPrefix(group, tenant.GroupPrefix); ok && id.IsZero() {
			id, _ = tenant.Parse(groupTenant)
		}
	}
	ok, exists := q.Snapshot.Tenants[id]
	if !exists || ok.Object == nil {
		return nil, nil
	}
	access, _, _ := unstructured.NestedString(ok.Object.Object, "spec", "access")
	suspension, _, _ := unstructured.NestedString(ok.Object.Object, "spec", "suspension")
	patch := "kubectl patch tenant " + id.ObjectName() + " --type=merge -p "
	switch {
	case a.outcome.Reason == authz.ReasonUndated:
		text := fmt.Sprintf("The credential may belong to the deleted tenant %s.\nAfter those credentials have expired, "+
			"the cluster's admin can run:", id)
		remedy := Remedy{Text: text, Command: patch + `'{"spec":{"acceptUndated":true}}'`}
		return q.tryTenant(ctx, a, ok.Object, remedy, "acceptUndated", true)
	case restricts(suspension, a.outcome.Reason):
		text := fmt.Sprintf("Tenant %s is suspended (%s). The cluster's admin can end the suspension:", id, suspension)
		remedy := Remedy{Text: text, Command: "kubectl tenant resume " + id.String()}
		return q.tryTenant(ctx, a, ok.Object, remedy, "suspension", nil)
	case restricts(access, a.outcome.Reason):
		text := fmt.Sprintf("Tenant %s has spec.access: %s. The cluster's admin can open it:", id, access)
		remedy := Remedy{Text: text, Command: patch + `'{"spec":{"access":"Open"}}'`}
		return q.tryTenant(ctx, a, ok.Object, remedy, "access", string(v1alpha1.TenantAccessOpen))
	case ok.Ending:
		return advice("Tenant %s is being deleted. Its callers may only read and delete.\n"+
			"Until spec.deletionDelay is over, the annotation %s: \"true\" cancels the deletion.",
			id, tenant.TakeBackAnnotation), nil
	}
	return nil, nil
}

// restricts reports whether a value of spec.access or spec.suspension causes a denial with the
// given reason.
func restricts(value string, reason authz.Reason) bool {
	switch v1alpha1.TenantAccess(value) {
	case "", v1alpha1.TenantAccessOpen:
		return false
	case v1alpha1.TenantAccessReadOnly:
		return reason == authz.ReasonReadOnly
	}
	return reason == authz.ReasonClosed
}

// tryTenant calls try with a command that sets a field in the spec of the Tenant object. If value
// is nil, the command removes the field.
func (q *Query) tryTenant(ctx context.Context, a *answer, original *unstructured.Unstructured, remedy Remedy,
	field string, value any,
) (*change, error) {
	object := original.DeepCopy()
	if value == nil {
		unstructured.RemoveNestedField(object.Object, "spec", field)
	} else if err := unstructured.SetNestedField(object.Object, value, "spec", field); err != nil {
		return nil, err
	}
	after, err := q.with(q.Config, object)
	if err != nil {
		return nil, err
	}
	return q.try(ctx, a, remedy, after)
}
