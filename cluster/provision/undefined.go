// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package provision

import (
	"context"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

// missingDefinitionsFor returns the problems with the CustomResourceDefinitions of the kinds that
// a Tenant uses. It returns "" if all definitions can be used.
func (e *Engine) missingDefinitionsFor(t *v1alpha1.Tenant) string {
	var needed []string
	if len(t.Spec.Namespaces.Templates) > 0 {
		needed = append(needed, v1alpha1.ResourceNamespaceTemplates)
	}
	if len(t.Spec.MemberRoles) > 0 {
		needed = append(needed, v1alpha1.ResourceTenantMembers)
	}
	if len(hardOf(&t.Spec)) > 0 {
		needed = append(needed, v1alpha1.ResourceTenantQuotas)
	}
	return e.missingDefinitions(needed...)
}

// missingOwnDefinitions returns the problems with the CustomResourceDefinitions on which the
// requests of every tenant depend. It returns "" if all definitions can be used.
func (e *Engine) missingOwnDefinitions() string {
	return e.missingDefinitions(v1alpha1.ResourceTenants, v1alpha1.ResourceRetiredTenants, v1alpha1.ResourceAccessGrants,
		v1alpha1.ResourceTenantQuotas)
}

func (e *Engine) missingDefinitions(resources ...string) string {
	var messages []string
	for _, resource := range resources {
		if problem := e.Definitions.Undefined(resource); problem != "" {
			messages = append(messages, problem)
		}
	}
	return strings.Join(messages, "; ")
}

// writeUndefined writes the conditions of a Tenant whose content is unknown because a
// CustomResourceDefinition cannot be used. If no definition is the cause, it returns errUnknown, so
// that the caller retries.
func (e *Engine) writeUndefined(ctx context.Context, t *v1alpha1.Tenant) error {
	missing := e.missingDefinitionsFor(t)
	if missing == "" {
		missing = e.missingDefinitions(v1alpha1.ResourceTenantMembers) // every tenant may define Roles
	}
	if missing == "" {
		return errUnknown
	}
	status := t.Status
	status.Conditions = slices.Clone(status.Conditions)
	for _, kind := range []string{v1alpha1.ConditionPrepared, v1alpha1.ConditionReady} {
		meta.SetStatusCondition(&status.Conditions, metav1.Condition{
			Type:               kind,
			Status:             metav1.ConditionFalse,
			Reason:             v1alpha1.ReasonDefinition,
			Message:            missing,
			ObservedGeneration: t.Generation,
		})
	}
	return e.patchStatus(ctx, t, &status)
}
