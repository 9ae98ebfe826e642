// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package state

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	admissioninformers "k8s.io/client-go/informers/admissionregistration/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/kubetenant/kubetenant/internal/serving/certificates"
	"github.com/kubetenant/kubetenant/tenant"
)

// Errors for clusters that do not send every write to the webhook service.
var (
	errNoWebhooks = errors.New("the webhook is not configured")
	errNarrowed   = errors.New("the configuration of the webhook does not cover every write")
)

// Webhooks follows the webhook configurations of the service in a namespace. It is safe for
// concurrent use.
type Webhooks struct {
	namespace            string
	mutating, validating cache.SharedIndexInformer
}

// FollowWebhooks returns Webhooks. Call [Webhooks.Run] to start following.
func FollowWebhooks(client kubernetes.Interface, namespace string) *Webhooks {
	return &Webhooks{
		namespace,
		admissioninformers.NewFilteredMutatingWebhookConfigurationInformer(client, 0, cache.Indexers{},
			onlyNamed(certificates.ConfigurationName)),
		admissioninformers.NewFilteredValidatingWebhookConfigurationInformer(client, 0, cache.Indexers{},
			onlyNamed(certificates.ConfigurationName)),
	}
}

// hook contains the fields that mutating and validating webhooks have in common.
type hook struct {
	name       string
	policy     *admissionv1.FailurePolicyType
	match      *admissionv1.MatchPolicyType
	namespace  *metav1.LabelSelector
	object     *metav1.LabelSelector
	rules      []admissionv1.RuleWithOperations
	conditions []admissionv1.MatchCondition
}

// Run follows the configurations until ctx ends.
func (w *Webhooks) Run(ctx context.Context) {
	go w.mutating.RunWithContext(ctx)
	w.validating.RunWithContext(ctx)
}

// Check returns the result of [CheckWebhooks] for the current configurations, or an error if they
// are unknown or do not exist.
func (w *Webhooks) Check() error {
	mutating, validating, err := w.both()
	if err != nil {
		return err
	}
	return CheckWebhooks(w.namespace, mutating, validating)
}

// both returns both configurations, or an error if they are unknown or one does not exist.
func (w *Webhooks) both() (
	*admissionv1.MutatingWebhookConfiguration, *admissionv1.ValidatingWebhookConfiguration, error,
) {
	if !w.mutating.HasSynced() || !w.validating.HasSynced() {
		return nil, nil, errNotSynced
	}
	mutating, validating := w.mutating.GetStore().List(), w.validating.GetStore().List()
	if len(mutating) != 1 || len(validating) != 1 {
		return nil, nil, errNoWebhooks
	}
	m := mutating[0].(*admissionv1.MutatingWebhookConfiguration)
	v := validating[0].(*admissionv1.ValidatingWebhookConfiguration)
	return m, v, nil
}

// Version returns the version of the configurations. It returns false if they are unknown or one
// does not exist.
func (w *Webhooks) Version() (WebhooksVersion, bool) {
	mutating, validating, err := w.both()
	if err != nil {
		return WebhooksVersion{}, false
	}
	return VersionOf(mutating, validating), true
}

// WebhooksVersion identifies a version of the webhook configurations by a hash of their content
// without CA bundles, and by their generations. The zero value means that a configuration is
// missing.
type WebhooksVersion struct {
	sum                  string
	mutating, validating int64
}

// VersionOf returns the version of two configurations.
func VersionOf(
	mutating *admissionv1.MutatingWebhookConfiguration, validating *admissionv1.ValidatingWebhookConfiguration,
) WebhooksVersion {
	m, v := mutating.DeepCopy(), validating.DeepCopy()
	for i := range m.Webhooks {
		m.Webhooks[i].ClientConfig.CABundle = nil
	}
	for i := range v.Webhooks {
		v.Webhooks[i].ClientConfig.CABundle = nil
	}
	text, err := json.Marshal([]any{m.UID, m.Webhooks, v.UID, v.Webhooks})
	utilruntime.Must(err)
	sum := sha256.Sum256(text)
	return WebhooksVersion{hex.EncodeToString(sum[:]), m.Generation, v.Generation}
}

// ParseVersion parses the output of [WebhooksVersion.String]. It returns the zero value if the text
// is invalid.
func ParseVersion(text string) (v WebhooksVersion) {
	if n, err := fmt.Sscanf(text, "%64s %d %d", &v.sum, &v.mutating, &v.validating); n != 3 || err != nil {
		return WebhooksVersion{}
	}
	return v
}

// String implements [fmt.Stringer].
func (v WebhooksVersion) String() string {
	return fmt.Sprintf("%s %d %d", v.sum, v.mutating, v.validating)
}

// Follows reports whether, since an earlier version, at most the CA bundles have changed. Each
// configuration must have changed at most once. If a configuration was narrowed and restored in
// between, it has changed at least twice.
func (v WebhooksVersion) Follows(before WebhooksVersion) bool {
	changes := func(now, before int64) bool { return now == before || now == before+1 }
	return v.sum != "" && v.sum == before.sum && changes(v.mutating, before.mutating) &&
		changes(v.validating, before.validating)
}

// CheckWebhooks returns an error if the configurations do not send every create and update in a
// namespace to the service. It also returns an error if a write is allowed when the service does not
// respond. Exceptions are writes in the namespace of the service and writes that the known match
// conditions exclude. It checks the names of the match conditions, but not their expressions. It does
// not check where the webhooks send the writes.
func CheckWebhooks(
	namespace string,
	mutating *admissionv1.MutatingWebhookConfiguration,
	validating *admissionv1.ValidatingWebhookConfiguration,
) error {
	var mutatingHooks, validatingHooks []hook
	for _, m := range mutating.Webhooks {
		mutatingHooks = append(mutatingHooks,
			hook{m.Name, m.FailurePolicy, m.MatchPolicy, m.NamespaceSelector, m.ObjectSelector, m.Rules, m.MatchConditions})
	}
	for _, v := range validating.Webhooks {
		validatingHooks = append(validatingHooks,
			hook{v.Name, v.FailurePolicy, v.MatchPolicy, v.NamespaceSelector, v.ObjectSelector, v.Rules, v.MatchConditions})
	}
	return errors.Join(checkCoverage(namespace, mutatingHooks, ".mutating.kubetenant.dev"),
		checkCoverage(namespace, validatingHooks, ".validating.kubetenant.dev"))
}

// expectedWebhook describes a generated webhook that protects the tenant label.
type expectedWebhook struct {
	scope      admissionv1.ScopeType
	selector   metav1.LabelSelectorOperator // operator for the tenant label, or "" without a selector
	conditions []string
}

func expectedWebhooks() map[string]expectedWebhook {
	return map[string]expectedWebhook{
		"tenant": {
			admissionv1.NamespacedScope,
			metav1.LabelSelectorOpExists,
			[]string{"not-a-status-by-the-control-plane", "not-by-the-controller"},
		},
		"elsewhere": {admissionv1.NamespacedScope, metav1.LabelSelectorOpDoesNotExist, []string{"not-by-the-control-plane"}},
		"cluster":   {admissionv1.ClusterScope, "", []string{"not-by-the-control-plane"}},
	}
}

// checkCoverage returns an error if the webhooks with the given suffix are missing or differ from
// [expectedWebhooks] in their failure policy, match policy, selectors, rules or names of
// conditions.
func checkCoverage(namespace string, hooks []hook, suffix string) error {
	for prefix, want := range expectedWebhooks() {
		i := slices.IndexFunc(hooks, func(h hook) bool { return h.name == prefix+suffix })
		if i < 0 {
			return fmt.Errorf("%s%s: %w", prefix, suffix, errNoWebhooks)
		}
		h := hooks[i]
		fails := h.policy != nil && *h.policy == admissionv1.Fail && h.match != nil && *h.match == admissionv1.Equivalent
		extraConditions := slices.ContainsFunc(h.conditions, func(c admissionv1.MatchCondition) bool {
			return !slices.Contains(want.conditions, c.Name)
		})
		if !fails || extraConditions || !isEmpty(h.object) || !selects(h.namespace, want.selector, namespace) ||
			!covers(h.rules, want.scope) {
			return fmt.Errorf("%s: %w", h.name, errNarrowed)
		}
	}
	return nil
}

func isEmpty(s *metav1.LabelSelector) bool {
	return s == nil || len(s.MatchLabels)+len(s.MatchExpressions) == 0
}

// selects reports whether a namespace selector has at most the expected requirement for the tenant
// label, and otherwise excludes only the service's own namespace.
func selects(s *metav1.LabelSelector, want metav1.LabelSelectorOperator, ownNamespace string) bool {
	if want == "" {
		return isEmpty(s)
	}
	if s == nil || len(s.MatchLabels) > 0 {
		return false
	}
	found := false
	for _, e := range s.MatchExpressions {
		if e.Key == "kubernetes.io/metadata.name" && e.Operator == metav1.LabelSelectorOpNotIn &&
			slices.Equal(e.Values, []string{ownNamespace}) {
			continue
		}
		if e.Key != tenant.Label || e.Operator != want || found {
			return false
		}
		found = true
	}
	return found
}

// covers reports whether one of the rules matches all creates and updates in a scope.
func covers(rules []admissionv1.RuleWithOperations, scope admissionv1.ScopeType) bool {
	return slices.ContainsFunc(rules, func(r admissionv1.RuleWithOperations) bool {
		return slices.Contains(r.APIGroups, "*") && slices.Contains(r.APIVersions, "*") &&
			slices.Contains(r.Resources, "*/*") &&
			(r.Scope != nil && (*r.Scope == scope || *r.Scope == admissionv1.AllScopes)) &&
			(slices.Contains(r.Operations, admissionv1.OperationAll) ||
				slices.Contains(r.Operations, admissionv1.Create) && slices.Contains(r.Operations, admissionv1.Update))
	})
}
