package state

import (
	"errors"
	"fmt"
	"slices"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	admissioninformers "k8s.io/client-go/informers/admissionregistration/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/kubetenant/kubetenant/cmd/internal/webhook/certificates"
	"github.com/kubetenant/kubetenant/tenant"
)

// What is missing where a cluster does not ask the webhook service about every write.
var (
	errNoWebhooks = errors.New("the webhook configurations are not there")
	errNarrowed   = errors.New("a webhook is not asked about all that it is generated for")
)

// webhooks follows the webhook configurations of the service, which runs in a namespace.
type webhooks struct {
	namespace            string
	mutating, validating cache.SharedIndexInformer
}

func followWebhooks(client kubernetes.Interface, namespace string) *webhooks {
	return &webhooks{
		namespace,
		admissioninformers.NewFilteredMutatingWebhookConfigurationInformer(client, 0, cache.Indexers{}, onlyNamed(certificates.ConfigurationName)),
		admissioninformers.NewFilteredValidatingWebhookConfigurationInformer(client, 0, cache.Indexers{}, onlyNamed(certificates.ConfigurationName)),
	}
}

// hook is what both kinds of webhook have.
type hook struct {
	name      string
	policy    *admissionv1.FailurePolicyType
	match     *admissionv1.MatchPolicyType
	namespace *metav1.LabelSelector
	object    *metav1.LabelSelector
	rules     []admissionv1.RuleWithOperations
	unless    []admissionv1.MatchCondition
}

// check returns why labels are not to be believed; nil where they are.
func (w *webhooks) check() error {
	mutating, validating := w.mutating.GetStore().List(), w.validating.GetStore().List()
	if len(mutating) != 1 || len(validating) != 1 {
		return errNoWebhooks
	}
	return CheckWebhooks(w.namespace, mutating[0].(*admissionv1.MutatingWebhookConfiguration), validating[0].(*admissionv1.ValidatingWebhookConfiguration))
}

// CheckWebhooks returns why a service that runs in a namespace is not asked about every write of an object in a cluster that has these
// configurations, or may be passed by; nil where neither is so. Of match conditions the names alone are looked at.
func CheckWebhooks(namespace string, mutating *admissionv1.MutatingWebhookConfiguration, validating *admissionv1.ValidatingWebhookConfiguration) error {
	var before, after []hook
	for _, m := range mutating.Webhooks {
		before = append(before, hook{m.Name, m.FailurePolicy, m.MatchPolicy, m.NamespaceSelector, m.ObjectSelector, m.Rules, m.MatchConditions})
	}
	for _, v := range validating.Webhooks {
		after = append(after, hook{v.Name, v.FailurePolicy, v.MatchPolicy, v.NamespaceSelector, v.ObjectSelector, v.Rules, v.MatchConditions})
	}
	return errors.Join(complete(namespace, before, ".mutating.kubetenant.dev"), complete(namespace, after, ".validating.kubetenant.dev"))
}

// expected is what a webhook that keeps the label is asked about, as it is generated.
type expected struct {
	scope      admissionv1.ScopeType
	selector   metav1.LabelSelectorOperator // of the tenant label; empty for none
	conditions []string
}

func expectations() map[string]expected {
	return map[string]expected{
		"tenant":    {admissionv1.NamespacedScope, metav1.LabelSelectorOpExists, []string{"not-a-status-by-the-control-plane", "not-by-the-controller"}},
		"elsewhere": {admissionv1.NamespacedScope, metav1.LabelSelectorOpDoesNotExist, []string{"not-by-the-control-plane"}},
		"cluster":   {admissionv1.ClusterScope, "", []string{"not-by-the-control-plane"}},
	}
}

// complete reports whether webhooks whose names end so are asked about every write, and let none pass when they do not answer.
func complete(namespace string, hooks []hook, ending string) error {
	for where, want := range expectations() {
		i := slices.IndexFunc(hooks, func(h hook) bool { return h.name == where+ending })
		if i < 0 {
			return fmt.Errorf("%s%s: %w", where, ending, errNoWebhooks)
		}
		h := hooks[i]
		fails := h.policy != nil && *h.policy == admissionv1.Fail && h.match != nil && *h.match == admissionv1.Equivalent
		excused := slices.ContainsFunc(h.unless, func(c admissionv1.MatchCondition) bool { return !slices.Contains(want.conditions, c.Name) })
		if !fails || excused || !isEmpty(h.object) || !selects(h.namespace, want.selector, namespace) || !covers(h.rules, want.scope) {
			return fmt.Errorf("%s: %w", h.name, errNarrowed)
		}
	}
	return nil
}

func isEmpty(s *metav1.LabelSelector) bool {
	return s == nil || len(s.MatchLabels)+len(s.MatchExpressions) == 0
}

// selects reports whether a selector chooses by the tenant label as it should, and leaves out no namespace but the service's own.
func selects(s *metav1.LabelSelector, want metav1.LabelSelectorOperator, own string) bool {
	if want == "" {
		return isEmpty(s)
	}
	if s == nil || len(s.MatchLabels) > 0 {
		return false
	}
	found := false
	for _, e := range s.MatchExpressions {
		switch {
		case e.Key == tenant.Label && e.Operator == want && !found:
			found = true
		case e.Key == "kubernetes.io/metadata.name" && e.Operator == metav1.LabelSelectorOpNotIn && slices.Equal(e.Values, []string{own}):
		default:
			return false
		}
	}
	return found
}

// covers reports whether a rule is about creations and updates of everything in a scope.
func covers(rules []admissionv1.RuleWithOperations, scope admissionv1.ScopeType) bool {
	return slices.ContainsFunc(rules, func(r admissionv1.RuleWithOperations) bool {
		return slices.Contains(r.APIGroups, "*") && slices.Contains(r.APIVersions, "*") && slices.Contains(r.Resources, "*/*") &&
			(r.Scope != nil && (*r.Scope == scope || *r.Scope == admissionv1.AllScopes)) &&
			(slices.Contains(r.Operations, admissionv1.OperationAll) || slices.Contains(r.Operations, admissionv1.Create) && slices.Contains(r.Operations, admissionv1.Update))
	})
}
