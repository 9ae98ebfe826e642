// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/predicates/rules"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"

	configv1alpha1 "github.com/kubetenant/kubetenant/config/v1alpha1"
	"github.com/kubetenant/kubetenant/internal/serving/certificates"
	"github.com/kubetenant/kubetenant/tenant"
)

// enforcer is a webhook or a policy of the service that receives all matching requests of a
// tenant's service accounts.
type enforcer struct {
	policy    string // the name of the policy, or "" for a webhook
	namespace *metav1.LabelSelector
	rules     []admissionregistrationv1.RuleWithOperations
}

// addWebhooks records the main validating webhooks of the service that fail closed. The webhook of
// TenantGate may fail open in Shadow mode. addWebhooks ignores match conditions, which
// checkGenerated compares with the output of generate.
func (c *checker) addWebhooks(w *admissionregistrationv1.ValidatingWebhookConfiguration) {
	if w.Name != certificates.ConfigurationName {
		return
	}
	for i := range w.Webhooks {
		h := &w.Webhooks[i]
		shadow := strings.HasPrefix(h.Name, "gate.") && c.settings.Admission.Gate.Mode == configv1alpha1.GateShadow
		fails := h.FailurePolicy == nil || *h.FailurePolicy == admissionregistrationv1.Fail
		if (fails || shadow) && isEmptySelector(h.ObjectSelector) && !(&hook{name: h.Name}).isSupplementary() {
			c.enforcers = append(c.enforcers, enforcer{namespace: h.NamespaceSelector, rules: h.Rules})
		}
	}
}

// denyingPolicies returns the names of the policies that deny every matching request of a tenant's
// service accounts. All other policies deny only changes of certain fields.
func denyingPolicies() []string { return []string{"service." + tenant.Domain} }

// addPolicy records a policy in [denyingPolicies] that fails closed and has no exceptions.
// checkGenerated compares its expressions with the output of generate.
func (c *checker) addPolicy(p *admissionregistrationv1.ValidatingAdmissionPolicy) {
	match := p.Spec.MatchConstraints
	fails := p.Spec.FailurePolicy == nil || *p.Spec.FailurePolicy == admissionregistrationv1.Fail
	if !slices.Contains(denyingPolicies(), p.Name) || !fails || match == nil ||
		len(p.Spec.MatchConditions)+len(match.ExcludeResourceRules) > 0 || !isEmptySelector(match.ObjectSelector) {
		return
	}
	j := enforcer{policy: p.Name, namespace: match.NamespaceSelector}
	for _, r := range match.ResourceRules {
		if len(r.ResourceNames) == 0 {
			j.rules = append(j.rules, r.RuleWithOperations)
		}
	}
	c.enforcers = append(c.enforcers, j)
}

// addBinding records the policy of a binding that denies requests and has no exceptions.
func (c *checker) addBinding(b *admissionregistrationv1.ValidatingAdmissionPolicyBinding) {
	if b.Spec.MatchResources == nil && slices.Contains(b.Spec.ValidationActions, admissionregistrationv1.Deny) {
		c.enforced[b.Spec.PolicyName] = true
	}
}

func isEmptySelector(s *metav1.LabelSelector) bool {
	return s == nil || len(s.MatchLabels)+len(s.MatchExpressions) == 0
}

// checkCoverage reports requests of a tenant's service account that no enforcer receives. It tries
// each kind of namespace, operation and subresource. Without TenantGate, only the authorizer
// decides about deletions and connections outside the namespace of the service.
func (c *checker) checkCoverage() {
	named := func(name string, more labels.Set) labels.Set {
		return labels.Merge(labels.Set{corev1.LabelMetadataName: name}, more)
	}
	if !c.seen["ValidatingWebhookConfiguration/"+certificates.ConfigurationName] {
		return // checkSet reports this
	}
	gated := c.settings.Admission.Gate.Mode != configv1alpha1.GateOff
	for _, place := range []struct {
		name      string
		labels    labels.Set // nil for cluster-scoped resources
		namespace string
	}{
		{"the namespace of the service", named(c.namespace, labels.Set{tenant.Label: tenant.System().String()}), c.namespace},
		{"the namespace of the service, if its label is removed,", named(c.namespace, nil), c.namespace},
		{"a namespace of the system tenant", named("y", labels.Set{tenant.Label: tenant.System().String()}), "y"},
		{"a namespace of a tenant", named("x--x", labels.Set{tenant.Label: "x"}), "x--x"},
		{"a namespace without a tenant", named("x", nil), "x"},
		{"the cluster", nil, ""},
	} {
		for _, operation := range []admission.Operation{
			admission.Create, admission.Update, admission.Delete, admission.Connect,
		} {
			always := place.namespace == c.namespace || operation == admission.Create || operation == admission.Update
			for _, subresource := range []string{"", "x", "status"} {
				if (always || gated) && !c.isCovered(place.namespace, place.labels, operation, subresource) {
					c.report("no webhook and no policy judges operation %s of a tenant's account in %s (subresource %q)",
						operation, place.name, subresource)
				}
			}
		}
	}
}

// isCovered reports whether a webhook, or a policy with a binding, receives a request from a
// tenant's service account for a resource that no rule names explicitly.
func (c *checker) isCovered(namespace string, set labels.Set, operation admission.Operation, subresource string) bool {
	account := &user.DefaultInfo{Name: serviceaccount.MakeUsername("x--x", "x")}
	resource := schema.GroupVersionResource{Group: "x.example.com", Version: "v1", Resource: "xs"}
	a := admission.NewAttributesRecord(nil, nil, schema.GroupVersionKind{}, namespace, "x", resource, subresource,
		operation, nil, false, account)
	return slices.ContainsFunc(c.enforcers, func(j enforcer) bool {
		if j.policy != "" && !c.enforced[j.policy] {
			return false
		}
		selector, err := metav1.LabelSelectorAsSelector(j.namespace)
		if err != nil || j.namespace != nil && set != nil && !selector.Matches(set) {
			return false
		}
		return slices.ContainsFunc(j.rules, func(r admissionregistrationv1.RuleWithOperations) bool {
			return (&rules.Matcher{Rule: r, Attr: a}).Matches()
		})
	})
}
