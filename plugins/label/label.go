// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

// Package label maintains the tenant label. Every object that is stored in a tenant's namespace has
// the label of the namespace's owner, and no other object has the label. If all objects are
// correct, a list over all namespaces with this label as selector returns exactly the tenant's own
// objects.
//
// The plugin checks every write. The [Backfill] corrects the objects that were stored without the
// plugin.
package label

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/warning"

	"github.com/kubetenant/kubetenant/plugins"
	"github.com/kubetenant/kubetenant/tenant"
)

// Name is the name of the plugin.
const Name = "TenantLabel"

var (
	errNotInTenant = errors.New("the label " + tenant.Label + " may only be set in a tenant's namespaces")
	errWrongOwner  = errors.New("the label " + tenant.Label + " must name the owner of the namespace and is immutable")
	errBinding     = errors.New(
		"a Binding may not have a label or annotation of " + tenant.Domain + " or the annotation " +
			tenant.WorkloadUserAnnotation,
	)
	errTokenKind = errors.New("in a tenant's namespace, a token may only be bound to a Pod or a Secret")
	errNoObject  = errors.New("the object has no metadata")
)

// New returns the plugin. owner is required. The plugin checks every create and update of a
// stored object, including custom resources and subresources that store the same object. It does
// not check Namespaces, which the plugin TenantNamespace checks.
//
// A new object in a namespace gets the label of the owner, even if it has another label. If the
// object has a controller or the namespace is unowned, another label is denied. An update that
// removes the label, or leaves a wrong label unchanged, gets the owner's label. An update to
// another wrong value is denied for every caller.
//
// An object that is not stored is not labeled. A Binding may not have protected keys that would be
// copied onto its Pod. In a tenant's namespace, a TokenRequest may be bound only to a Pod or a
// Secret. A token that is bound to a Node would have the permissions of the Node.
func New(owner plugins.OwnerFunc) plugins.Interface {
	return &plugin{admission.NewHandler(admission.Create, admission.Update), owner}
}

type plugin struct {
	*admission.Handler
	owner plugins.OwnerFunc
}

func isNamespace(a admission.Attributes) bool {
	return a.GetResource().GroupResource() == corev1.Resource("namespaces")
}

// requiredLabel returns the label that the object must have, or "" if it must have none.
func (p *plugin) requiredLabel(ctx context.Context, a admission.Attributes) (string, error) {
	if a.GetNamespace() == "" {
		return "", nil
	}
	owner, err := p.owner(ctx, a.GetNamespace())
	if err != nil || owner.IsSystem() {
		return "", err
	}
	return owner.String(), nil
}

// Admit implements [admission.MutationInterface].
func (p *plugin) Admit(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if isNamespace(a) || plugins.IsVirtual(a) {
		return nil
	}
	obj, err := meta.Accessor(a.GetObject())
	if err != nil {
		return admission.NewForbidden(a, errNoObject)
	}
	want, err := p.requiredLabel(ctx, a)
	if err != nil {
		return admission.NewForbidden(a, err)
	}
	label, ok := obj.GetLabels()[tenant.Label]
	if ok == (want != "") && label == want {
		return nil
	}
	if ok && a.GetOperation() == admission.Create {
		owner, err := p.owner(ctx, a.GetNamespace())
		// With another label, the object would not match the selector of its controller, and the
		// controller would create objects again and again.
		isControlled := metav1.GetControllerOf(obj) != nil
		if a.GetNamespace() == "" || err != nil || owner.IsZero() || isControlled {
			return nil // Validate denies the label
		}
		warning.AddWarning(ctx, "",
			"the label "+tenant.Label+" was rewritten, because it must name the owner of the namespace")
		setLabel(obj, want)
		return nil
	}
	if ok {
		stored, err := oldLabels(a)
		if old, oldOK := stored[tenant.Label]; err != nil || !oldOK || old != label {
			return nil // a new value, which Validate denies
		}
	}
	if stored, err := oldLabels(a); err == nil && !ok && want != "" && stored[tenant.Label] == want {
		plugins.WarnRestored(ctx, a, "", "label", tenant.Label)
	}
	setLabel(obj, want)
	return nil
}

// setLabel sets the label. It replaces the map of labels with a copy, because the map may be
// shared.
func setLabel(object metav1.Object, want string) {
	labels := make(map[string]string, len(object.GetLabels())+1)
	for key, value := range object.GetLabels() {
		labels[key] = value
	}
	delete(labels, tenant.Label)
	if want != "" {
		labels[tenant.Label] = want
	}
	object.SetLabels(labels)
}

func oldLabels(a admission.Attributes) (map[string]string, error) {
	if a.GetOperation() != admission.Update {
		return nil, nil
	}
	old, err := meta.Accessor(a.GetOldObject())
	if err != nil {
		return nil, err
	}
	return old.GetLabels(), nil
}

// Validate implements [admission.ValidationInterface].
func (p *plugin) Validate(ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces) error {
	if isNamespace(a) {
		return nil
	}
	obj, err := meta.Accessor(a.GetObject())
	if err != nil {
		return admission.NewForbidden(a, errNoObject)
	}
	want, err := p.requiredLabel(ctx, a)
	if err != nil {
		return admission.NewForbidden(a, err)
	}
	label, ok := obj.GetLabels()[tenant.Label]
	switch kind := a.GetKind().GroupKind(); {
	case kind == schema.GroupKind{Kind: "Binding"}:
		err = checkBinding(obj)
	case a.GetSubresource() == "token" && plugins.IsVirtual(a):
		err = p.checkTokenRequest(ctx, a, o)
	case plugins.IsVirtual(a):
		return nil
	case a.GetSubresource() != "" && p.isUnchanged(a, label, ok):
		// Many subresources restore the stored metadata after Admit, such as the status of
		// Deployments and of custom resources. The backfill corrects a wrong label.
		return nil
	case want == "" && ok:
		err = errNotInTenant
	case label != want:
		err = errWrongOwner
	}
	if err != nil {
		return admission.NewForbidden(a, err)
	}
	return nil
}

// isUnchanged reports whether an update leaves the label unchanged.
func (p *plugin) isUnchanged(a admission.Attributes, label string, hasLabel bool) bool {
	stored, err := oldLabels(a)
	old, ok := stored[tenant.Label]
	return a.GetOperation() == admission.Update && err == nil && ok == hasLabel && old == label
}

// checkBinding denies protected keys that pods/binding would copy onto the Pod without the
// admission of Pods (k8s.io/kubernetes pkg/registry/core/pod/storage, assignPod, v1.37.1).
func checkBinding(binding metav1.Object) error {
	var errs plugins.Errors
	for _, keys := range []map[string]string{binding.GetLabels(), binding.GetAnnotations()} {
		for _, key := range slices.Sorted(maps.Keys(keys)) {
			domain, _, _ := strings.Cut(key, "/")
			if strings.EqualFold(domain, tenant.Domain) || key == tenant.WorkloadUserAnnotation {
				errs.Add(fmt.Errorf("%q: %w", key, errBinding))
			}
		}
	}
	return errs.Err()
}

// checkTokenRequest checks to which object a service account token in a tenant's namespace is
// bound.
func (p *plugin) checkTokenRequest(ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces) error {
	owner, err := p.owner(ctx, a.GetNamespace())
	if err != nil || owner.IsSystem() {
		return err
	}
	tokenRequest := authenticationv1.SchemeGroupVersion.WithKind("TokenRequest")
	request, err := plugins.Versioned[authenticationv1.TokenRequest](a.GetObject(), tokenRequest, o)
	if err != nil {
		return err
	}
	bound := request.Spec.BoundObjectRef
	if bound == nil {
		return nil
	}
	kind := schema.FromAPIVersionAndKind(bound.APIVersion, bound.Kind).GroupKind()
	if kind != (schema.GroupKind{Kind: "Pod"}) && kind != (schema.GroupKind{Kind: "Secret"}) {
		return errTokenKind
	}
	return nil
}
