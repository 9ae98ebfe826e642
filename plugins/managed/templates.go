// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package managed

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/kubetenant/kubetenant/plugins"
	"github.com/kubetenant/kubetenant/tenant"
)

// retrySeconds is the delay after which a client retries, in seconds. client-go retries up to ten
// times.
const retrySeconds = 1

// tryAgain returns the response to a write that is likely to succeed soon. For users with a
// "system:" name, such as controllers, it contains no delay. The workers of a controller serve all
// tenants and must not wait, and controllers retry in any case.
func tryAgain(a admission.Attributes, message string) error {
	after := retrySeconds
	if strings.HasPrefix(a.GetUserInfo().GetName(), "system:") {
		after = 0
	}
	return apierrors.NewTooManyRequests(message, after)
}

// mustWait reports whether Pods must wait in a new namespace.
func (p *plugin) mustWait(ctx context.Context, ns metav1.Object) bool {
	id, err := tenant.Parse(ns.GetLabels()[tenant.Label])
	return p.MustWait != nil && err == nil && !id.IsSystem() && p.MustWait(ctx, id)
}

// checkPod denies every new Pod in a namespace that does not have all objects that its Tenant
// specifies.
func (p *plugin) checkPod(ctx context.Context, a admission.Attributes) error {
	if p.MustWait == nil || a.GetSubresource() != "" || a.GetOperation() != admission.Create {
		return nil
	}
	waiting, err := p.Waiting(ctx, a.GetNamespace())
	if err != nil {
		return admission.NewForbidden(a,
			errors.New("cannot check whether the namespace has everything that its Tenant specifies"))
	}
	if !waiting {
		return nil
	}
	return tryAgain(a, "the namespace "+a.GetNamespace()+
		" does not have everything that its Tenant specifies yet: see the condition Prepared of the Tenant")
}

// checkName reserves the names of the objects that a template or a Publication provides in a
// namespace. A name is reserved even before the object exists.
func (p *plugin) checkName(ctx context.Context, a admission.Attributes, name string) error {
	if p.Provides == nil || a.GetNamespace() == "" || name == "" {
		return nil
	}
	provided, err := p.Provides(ctx, a.GetNamespace(), a.GetResource().GroupResource(), name)
	switch {
	case err != nil:
		return err
	case provided:
		return errNameProvided
	}
	return nil
}

// checkTemplate denies a NamespaceTemplate if its objects are invalid or its author lacks a
// required permission. The author must be allowed to create and update the template's objects in
// all namespaces, and to delete the objects that an update removes. It applies to every caller.
func (p *plugin) checkTemplate(ctx context.Context, a admission.Attributes) error {
	isUpdate := a.GetOperation() == admission.Update
	if p.ReadTemplate == nil || a.GetSubresource() != "" || isUpdate && sameSpec(a.GetOldObject(), a.GetObject()) {
		return nil
	}
	resources, err := p.ReadTemplate(a.GetObject())
	if err != nil {
		return err
	}
	for _, r := range resources {
		for _, verb := range []string{"create", "update"} {
			if err := p.checkRight(ctx, a.GetUserInfo(), verb, r); err != nil {
				return err
			}
		}
	}
	if !isUpdate {
		return nil
	}
	for _, r := range p.Removed(a.GetOldObject(), a.GetObject()) {
		if err := p.checkRight(ctx, a.GetUserInfo(), "delete", r); err != nil {
			return err
		}
	}
	return nil
}

// checkRight returns an error if a caller may not use a verb on a resource in all namespaces.
func (p *plugin) checkRight(ctx context.Context, u user.Info, verb string, r schema.GroupVersionResource) error {
	may, _, err := p.Authorizer.Authorize(ctx, authorizer.AttributesRecord{
		User:            u,
		Verb:            verb,
		ResourceRequest: true,
		APIGroup:        r.Group,
		APIVersion:      r.Version,
		Resource:        r.Resource,
		Name:            plugins.UnguessableName(),
	})
	if err != nil {
		return fmt.Errorf("spec.objects: cannot check now whether the caller may %s %s: %w", verb, r.GroupResource(), err)
	}
	if may != authorizer.DecisionAllow {
		return fmt.Errorf("spec.objects: the caller may not %s %s in all namespaces", verb, r.GroupResource())
	}
	return nil
}

// sameSpec reports whether an update leaves the spec unchanged.
func sameSpec(old, obj runtime.Object) bool {
	before, hadContent := old.(runtime.Unstructured)
	now, hasContent := obj.(runtime.Unstructured)
	return hadContent && hasContent &&
		equality.Semantic.DeepEqual(before.UnstructuredContent()["spec"], now.UnstructuredContent()["spec"])
}
