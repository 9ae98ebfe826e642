// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package publish

import (
	"context"
	"fmt"
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubetenant/kubetenant/internal/cli/output"
	"github.com/kubetenant/kubetenant/internal/cli/tenancy"
	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

// isUnchecked reports whether the server creates no copies for a Publication, because it has not
// checked the rights of the Publication's author.
func isUnchecked(u *unstructured.Unstructured) bool {
	conditions, _, _ := unstructured.NestedSlice(u.Object, "status", "conditions")
	return slices.ContainsFunc(conditions, func(condition any) bool {
		c, _ := condition.(map[string]any)
		return c["type"] == v1alpha1.ConditionReady && c["reason"] == v1alpha1.ReasonAuthorNotChecked
	})
}

// confirm makes the server check whether the caller may publish the content of an object. It
// changes the annotation [tenant.PublishedAnnotation] of the Publication, which starts the check.
// If the object itself has the annotation, confirm changes it there, because the annotation of the
// Publication then has no effect. confirm returns an error if the object's content has changed
// since the caller published it, or if the server does not confirm the content.
func (p *Publisher) confirm(
	ctx context.Context,
	o *Object,
	publication *unstructured.Unstructured,
) (verb string, err error) {
	objects := p.Objects.Resource(o.mapping.Resource).Namespace(o.Content.GetNamespace())
	source, err := objects.Get(ctx, o.Content.GetName(), metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	// In a dry run, the object was not stored, so there is no stored content to compare.
	if len(p.DryRun) == 0 {
		if err := p.checkSame(o, source); err != nil {
			return "", err
		}
	}
	client := p.Objects.Resource(publications).Namespace("")
	if _, ok := source.GetAnnotations()[tenant.PublishedAnnotation]; ok {
		publication = source.DeepCopy()
		client = objects
	}
	before := publication.GetAnnotations()[tenant.PublishedAnnotation]
	requestCheck(publication)
	updated, err := client.Update(ctx, publication, metav1.UpdateOptions{FieldManager: fieldManager, DryRun: p.DryRun})
	if err != nil {
		return "", err
	}
	if updated.GetAnnotations()[tenant.PublishedAnnotation] != before {
		return output.Configured, nil
	}
	if hash, ok := p.hash(o, source); ok && hash != before {
		return "", fmt.Errorf("%w: the server does not let you publish the content of %s: see the rights of an author in "+
			"docs/tasks/publish.md", tenancy.ErrRefused, described(o.Content))
	}
	return output.Unchanged, nil // already confirmed by another caller, or the server returned a warning
}

// checkSame returns an error if the stored object no longer has the content that the caller
// published.
func (p *Publisher) checkSame(o *Object, source *unstructured.Unstructured) error {
	seen := o.Content
	if o.applied != nil {
		seen = o.applied
	}
	rules, err := p.rules(o)
	if err != nil {
		return err
	}
	before, err := rules.Content(seen, nil)
	if err != nil {
		return err
	}
	if now, err := rules.Content(source, nil); err != nil || now.Hash != before.Hash {
		return fmt.Errorf("%w: %s has changed since it was read: check its content and publish it again",
			tenancy.ErrRefused, described(o.Content))
	}
	return nil
}

// hash returns the hash that the server stores when it confirms an object. ok is false if the
// server's rules are unknown, or if the object is a RoleBinding, whose hash also depends on its
// role.
func (p *Publisher) hash(o *Object, source *unstructured.Unstructured) (hash string, ok bool) {
	binding := schema.GroupKind{Group: rbacv1.GroupName, Kind: "RoleBinding"}
	if p.Rules == nil || o.mapping.GroupVersionKind.GroupKind() == binding {
		return "", false
	}
	rules, err := p.rules(o)
	if err != nil {
		return "", false
	}
	content, err := rules.Content(source, nil)
	if err != nil {
		return "", false
	}
	return content.Hash, true
}

// requestCheck adds or removes [tenant.PublishedAnnotation]. After this change, the server checks
// whether the caller may publish the content, and sets the annotation itself.
func requestCheck(u *unstructured.Unstructured) {
	annotations := u.GetAnnotations()
	if _, ok := annotations[tenant.PublishedAnnotation]; ok {
		delete(annotations, tenant.PublishedAnnotation)
	} else {
		if annotations == nil {
			annotations = map[string]string{}
		}
		annotations[tenant.PublishedAnnotation] = "check"
	}
	u.SetAnnotations(annotations)
}
