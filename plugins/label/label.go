// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

// Package label keeps the tenant label true: every object that is stored in tenant space carries
// its owner's, and no other object carries one. Lists over all namespaces that are limited to that
// label hold a tenant's own objects, all of them and nothing else.
//
// The plugin holds it with every write. [Sweep] brings what was stored before in line.
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

// Name of the plugin.
const Name = "TenantLabel"

var (
	errOutside = errors.New("the label " + tenant.Label + " may only be set in a tenant's namespaces")
	errOther   = errors.New("the label " + tenant.Label + " must name the owner of the namespace and is immutable")
	errBinding = errors.New("a Binding may not have a label or annotation of " + tenant.Domain + " or the annotation " +
		tenant.WorkloadUserAnnotation)
	errTokenKind = errors.New("in a tenant's namespace, a token may only be bound to a Pod or a Secret")
	errNoObject  = errors.New("the object has no metadata")
)

// New returns the plugin. It governs every create and update of what is stored, custom resources
// and subresources that store the same object included; Namespaces are TenantNamespace's. A new
// object in a namespace gets the label of the owner, whatever label it has. An update that removes
// the label, or leaves a wrong one unchanged, gets the owner's label. An update to another value is
// rejected for every caller. owner is required.
//
// What is not stored is not labelled. Of that, a Binding may not carry what would be copied onto
// its Pod, and a TokenRequest in tenant space may be bound to a Pod or a Secret only: a token bound
// to a Node takes on the Node's rights.
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

// want returns the label that the object must carry, empty for none.
func (p *plugin) want(ctx context.Context, a admission.Attributes) (string, error) {
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
	is, err := meta.Accessor(a.GetObject())
	if err != nil {
		return admission.NewForbidden(a, errNoObject)
	}
	want, err := p.want(ctx, a)
	if err != nil {
		return admission.NewForbidden(a, err)
	}
	label, has := is.GetLabels()[tenant.Label]
	if has == (want != "") && label == want {
		return nil
	}
	if has && a.GetOperation() == admission.Create {
		owner, err := p.owner(ctx, a.GetNamespace())
		// With another label, the object would not match the selector of its controller, which would
		// create objects without end.
		isControlled := metav1.GetControllerOf(is) != nil
		if a.GetNamespace() == "" || err != nil || owner.IsZero() || isControlled {
			return nil // validation rejects the label
		}
		warning.AddWarning(ctx, "",
			"the label "+tenant.Label+" was rewritten, because it must name the owner of the namespace")
		set(is, want)
		return nil
	}
	if has {
		was, err := oldLabels(a)
		if old, had := was[tenant.Label]; err != nil || !had || old != label {
			return nil // a new value: validation refuses it
		}
	}
	if was, err := oldLabels(a); err == nil && !has && want != "" && was[tenant.Label] == want {
		plugins.WarnRestored(ctx, a, "", "label", tenant.Label)
	}
	set(is, want)
	return nil
}

// set puts the label in a copy of the object's own map, which may be shared.
func set(object metav1.Object, want string) {
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
	was, err := meta.Accessor(a.GetOldObject())
	if err != nil {
		return nil, err
	}
	return was.GetLabels(), nil
}

// Validate implements [admission.ValidationInterface].
func (p *plugin) Validate(ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces) error {
	if isNamespace(a) {
		return nil
	}
	is, err := meta.Accessor(a.GetObject())
	if err != nil {
		return admission.NewForbidden(a, errNoObject)
	}
	want, err := p.want(ctx, a)
	if err != nil {
		return admission.NewForbidden(a, err)
	}
	label, has := is.GetLabels()[tenant.Label]
	switch kind := a.GetKind().GroupKind(); {
	case kind == schema.GroupKind{Kind: "Binding"}:
		err = checkBinding(is)
	case a.GetSubresource() == "token" && plugins.IsVirtual(a):
		err = p.checkTokenRequest(ctx, a, o)
	case plugins.IsVirtual(a):
	case a.GetSubresource() != "" && p.isUnchanged(a, label, has):
		// Many subresources take the metadata from what is stored, after Admit: custom resources'
		// and Deployments' status. What is wrong there the sweep mends.
	case want == "" && has:
		err = errOutside
	case label != want:
		err = errOther
	}
	if err != nil {
		return admission.NewForbidden(a, err)
	}
	return nil
}

// isUnchanged reports whether an update leaves the label as it is stored.
func (p *plugin) isUnchanged(a admission.Attributes, label string, has bool) bool {
	was, err := oldLabels(a)
	old, had := was[tenant.Label]
	return a.GetOperation() == admission.Update && err == nil && had == has && old == label
}

// checkBinding refuses what pods/binding would copy onto the Pod without asking the Pod's admission
// (k8s.io/kubernetes pkg/registry/core/pod/storage, assignPod, v1.37.1).
func checkBinding(binding metav1.Object) error {
	var refused plugins.Refusals
	for _, keys := range []map[string]string{binding.GetLabels(), binding.GetAnnotations()} {
		for _, key := range slices.Sorted(maps.Keys(keys)) {
			domain, _, _ := strings.Cut(key, "/")
			if strings.EqualFold(domain, tenant.Domain) || key == tenant.WorkloadUserAnnotation {
				refused.Add(fmt.Errorf("%q: %w", key, errBinding))
			}
		}
	}
	return refused.Err()
}

// checkTokenRequest holds what a service account's token in tenant space may be bound to.
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
