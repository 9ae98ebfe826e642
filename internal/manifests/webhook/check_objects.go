// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"bytes"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/util/cert"

	"github.com/kubetenant/kubetenant/tenant"
)

// hook contains the fields that mutating and validating webhooks have in common.
type hook struct {
	config, name      string
	failure           *admissionregistrationv1.FailurePolicyType
	match             *admissionregistrationv1.MatchPolicyType
	object, namespace *metav1.LabelSelector
	rules             []admissionregistrationv1.RuleWithOperations
	client            *admissionregistrationv1.WebhookClientConfig
}

// isSupplementary reports whether a webhook applies only to a few resources. It covers callers that
// the main webhooks exclude, or has a special purpose.
func (h *hook) isSupplementary() bool {
	return strings.HasPrefix(h.name, "tenants.") || strings.HasPrefix(h.name, "namespaces.") || h.recordsSources() ||
		h.checksConfiguration()
}

// recordsSources reports whether a webhook records the content of published objects that the
// control plane writes. The webhook fails open, because the controller copies only recorded
// content.
func (h *hook) recordsSources() bool { return strings.HasPrefix(h.name, "sources.") }

// checksConfiguration reports whether a webhook checks the configuration of the service. The
// webhook fails open, so that an invalid configuration can be replaced.
func (h *hook) checksConfiguration() bool { return strings.HasPrefix(h.name, "configuration.") }

func (c *checker) checkHook(h *hook) {
	if h.config != "kubetenant" {
		return
	}
	// The webhook of TenantGate has the policy Ignore in Shadow mode, in which it allows every
	// request.
	if h.failure != nil && *h.failure != admissionregistrationv1.Fail && !strings.HasPrefix(h.name, "gate.") &&
		!h.checksConfiguration() && !h.recordsSources() {
		c.report("webhook %s: failurePolicy Ignore allows every request while the service is unreachable", h.name)
	}
	if h.match != nil && *h.match != admissionregistrationv1.Equivalent {
		c.report("webhook %s: matchPolicy Exact does not cover requests for other versions", h.name)
	}
	if h.object != nil && len(h.object.MatchLabels)+len(h.object.MatchExpressions) > 0 {
		c.report("webhook %s: objectSelector lets the author of an object bypass the webhook", h.name)
	}
	if s := h.namespace; s != nil {
		for key := range s.MatchLabels {
			c.report("webhook %s: namespaceSelector on %s excludes every other namespace", h.name, key)
		}
		for _, e := range s.MatchExpressions {
			operator := metav1.LabelSelectorOpNotIn
			if strings.HasPrefix(h.name, "service.") || h.checksConfiguration() {
				operator = metav1.LabelSelectorOpIn
			}
			own := e.Key == corev1.LabelMetadataName && e.Operator == operator && slices.Equal(e.Values, []string{c.namespace})
			if e.Key != tenant.Label && !own {
				c.report("webhook %s: namespaceSelector on %s excludes namespaces", h.name, e.Key)
			}
		}
	}
	for _, r := range h.rules {
		if !h.isSupplementary() &&
			(!slices.Contains(r.APIGroups, "*") || !slices.Contains(r.APIVersions, "*") ||
				!slices.Contains(r.Resources, "*/*")) {
			c.report("webhook %s: a rule does not match every resource in every version", h.name)
		}
	}
	if h.client.URL != nil && !strings.HasPrefix(*h.client.URL, "https://") {
		c.report("webhook %s: the URL does not begin with https://", h.name)
	}
}

// addSubjects records the subjects of a binding. It reports a binding with the service accounts of
// the service as subjects, unless generate writes the binding.
func (c *checker) addSubjects(kind, name string, list []rbacv1.Subject) {
	for _, s := range list {
		prefix := serviceaccount.MakeUsername(c.namespace, "kubetenant-")
		var account bool
		switch s.Kind {
		case rbacv1.ServiceAccountKind:
			account = s.Namespace == c.namespace && strings.HasPrefix(s.Name, "kubetenant-")
		case rbacv1.UserKind:
			account = strings.HasPrefix(s.Name, prefix)
		case rbacv1.GroupKind:
			account = s.Name == serviceaccount.MakeNamespaceGroupName(c.namespace)
		}
		if _, isGenerated := c.want[kind+"/"+name]; !isGenerated && account {
			c.report("%s %s grants additional rights to %s, an account of the service: "+
				"an attacker in one of its pods has them", kind, name, s.Name)
		}
		c.subjects = append(c.subjects, located[rbacv1.Subject]{c.file, s})
	}
}

// checkGenerated compares an object of the service with the output of generate. It compares the
// spec of policies and bindings of policies, the content of RBAC objects, and all fields of
// webhooks except clientConfig.
func (c *checker) checkGenerated(kind, name string, doc []byte) error {
	want, known := c.want[kind+"/"+strings.Replace(name, staticSuffix, policySuffix, 1)]
	if !known {
		return nil
	}
	if kind == definitionKind {
		return c.checkDefinition(name, doc, want)
	}
	var installed map[string]any
	// The decoded objects are compared, so that comments and the order of keys have no effect.
	if err := json.Unmarshal(bytes.ReplaceAll(doc, []byte(staticSuffix), []byte(policySuffix)), &installed); err != nil {
		return err
	}
	if !strings.HasSuffix(kind, "WebhookConfiguration") {
		for _, field := range []string{"spec", "rules", "roleRef", "subjects", "aggregationRule"} {
			if !equality.Semantic.DeepEqual(withoutEmpty(installed[field]), withoutEmpty(want[field])) &&
				!c.addsBackfillGroups(kind, field, installed, want) {
				c.report("%s %s: the field %s differs from what generate writes", kind, name, field)
			}
		}
		return nil
	}
	wanted, got := hooksOf(want), hooksOf(installed)
	for hook := range got {
		if wanted[hook] == nil {
			c.report("%s %s: generate does not write the webhook %s", kind, name, hook)
		}
	}
	for hook, fields := range wanted {
		if got[hook] == nil {
			c.report("%s %s: the webhook %s is missing", kind, name, hook)
			continue
		}
		for field, value := range fields {
			if !equality.Semantic.DeepEqual(got[hook][field], value) {
				c.report("%s %s: the field %s of webhook %s differs from what generate writes", kind, name, field, hook)
			}
		}
		for field := range got[hook] {
			if _, ok := fields[field]; !ok {
				c.report("%s %s: generate does not write the field %s of webhook %s", kind, name, field, hook)
			}
		}
	}
	return nil
}

// withoutEmpty returns a copy of a value without empty maps, empty lists and null fields, which a
// server may add or omit.
func withoutEmpty(v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := map[string]any{}
		for key, value := range v {
			if value = withoutEmpty(value); value != nil {
				out[key] = value
			}
		}
		if len(out) > 0 {
			return out
		}
		return nil
	case []any:
		if len(v) == 0 {
			return nil
		}
		out := make([]any, len(v))
		for i := range v {
			out[i] = withoutEmpty(v[i])
		}
		return out
	}
	return v
}

// addsBackfillGroups reports whether the rules of a ClusterRole are those that generate writes,
// except for additional rules that allow patches of custom resources (--sweep-groups).
func (c *checker) addsBackfillGroups(kind, field string, installed, want map[string]any) bool {
	rules, ok := installed[field].([]any)
	if kind != "ClusterRole" || field != "rules" || !ok {
		return false
	}
	rest := slices.DeleteFunc(slices.Clone(rules), func(rule any) bool {
		r, _ := rule.(map[string]any)
		groups, _ := r["apiGroups"].([]any)
		return len(groups) == 1 && strings.Contains(fmt.Sprint(groups[0]), ".") &&
			!strings.HasSuffix(fmt.Sprint(groups[0]), ".k8s.io") && fmt.Sprint(groups[0]) != tenant.Domain &&
			equality.Semantic.DeepEqual(r["resources"], []any{"*"}) && equality.Semantic.DeepEqual(r["verbs"], []any{"patch"})
	})
	return equality.Semantic.DeepEqual(any(rest), want[field])
}

// expiryWarning is the remaining lifetime below which a certificate is reported.
const expiryWarning = 30 * 24 * time.Hour

// checkCertificates reports certificates that expire soon. From webhook-ca.crt, it only records the
// authorities.
func (c *checker) checkCertificates(data []byte) {
	found, err := cert.ParseCertsPEM(data)
	if err != nil {
		c.report("no certificate found: %v", err)
		return
	}
	if filepath.Base(c.file) == "webhook-ca.crt" {
		c.copiedAuthorities = found
		return
	}
	for _, one := range found {
		if time.Until(one.NotAfter) < expiryWarning {
			c.report("the certificate of %s expires on %s: if kube-apiserver presents it, the service then rejects it, and "+
				"all requests are denied",
				one.Subject, one.NotAfter.Format(time.DateOnly))
		}
	}
}

// checkAuthorityCopy reports the authorities in the ConfigMap of the service that webhook-ca.crt
// lacks.
func (c *checker) checkAuthorityCopy() {
	for _, authority := range c.publishedAuthorities {
		if !slices.ContainsFunc(c.copiedAuthorities, authority.Equal) && time.Now().Before(authority.NotAfter) {
			c.report("webhook-ca.crt lacks the authority %s of the ConfigMap: copy it to kube-apiserver and restart "+
				"kube-apiserver",
				authority.Subject)
		}
	}
}

// hooksOf returns the webhooks of a configuration without their clientConfig, keyed by name.
func hooksOf(config map[string]any) map[string]map[string]any {
	all := map[string]map[string]any{}
	hooks, _, _ := unstructured.NestedSlice(config, "webhooks")
	for _, h := range hooks {
		if fields, ok := h.(map[string]any); ok {
			delete(fields, "clientConfig")
			all[fmt.Sprint(fields["name"])] = fields
		}
	}
	return all
}

// checkSet reports the problems of the whole set, such as missing objects and subjects of bindings
// that have no tenant.
func (c *checker) checkSet() {
	c.file = "."
	c.line = 0
	c.checkAuthorityCopy()
	c.checkCoverage()
	for name, effect := range map[string]string{
		"MutatingWebhookConfiguration/kubetenant":   "no object gets the label of its tenant",
		"ValidatingWebhookConfiguration/kubetenant": "no request is rejected",
	} {
		if !c.seen[name] {
			c.report("%s is missing: %s", name, effect)
		}
	}
	for name := range c.want {
		if !c.seen[name] && !strings.Contains(name, "WebhookConfiguration/") {
			effect := "the rule is not enforced while the service is unreachable"
			switch {
			case strings.HasPrefix(name, definitionKind+"/"):
				effect = "apply the whole folder " + definitionsFolder
			case !strings.Contains(name, "Policy"):
				effect = "a part of the service lacks the rights that it needs"
			}
			c.report("%s is missing: %s", name, effect)
		}
	}
	if c.seen["flags"] && !c.seen["environment"] {
		c.report("environment.txt is missing: kube-apiserver detects a replica that hangs only after 45 seconds, and " +
			"denies tenants until then")
	}
	if !c.seen["AuthorizationConfiguration/"] {
		c.report("the AuthorizationConfiguration is missing")
	}
	c.checkRights()
	c.file = "."
	slices.SortStableFunc(c.findings, func(a, b Finding) int { return strings.Compare(a.String(), b.String()) })
	z := c.settings.Authorization
	for _, s := range c.subjects {
		c.file = s.file
		switch s.value.Kind {
		case rbacv1.ServiceAccountKind:
			labels, known := c.namespaces[s.value.Namespace]
			_, labeled := labels[tenant.Label]
			if known && !labeled && !slices.Contains(z.SystemNamespaces, s.value.Namespace) {
				c.report("service account %s/%s has a binding but would have no tenant: label its namespace, or add the "+
					"namespace to systemNamespaces", s.value.Namespace, s.value.Name)
			}
		case rbacv1.UserKind:
			if strings.HasPrefix(s.value.Name, "system:") && s.value.Name != user.Anonymous && !c.isSystemUser(s.value.Name) &&
				s.value.Name != tenant.ManagerUser {
				c.report("user %s has a binding but would have no tenant: add it to systemSubjects", s.value.Name)
			}
		case rbacv1.GroupKind:
			allCallers := []string{user.AllAuthenticated, user.AllUnauthenticated, "system:serviceaccounts"}
			if strings.HasPrefix(s.value.Name, "system:") &&
				!slices.Contains(z.SystemSubjects.Groups, s.value.Name) &&
				!slices.Contains(allCallers, s.value.Name) &&
				!strings.HasPrefix(s.value.Name, "system:serviceaccounts:") &&
				!strings.HasPrefix(s.value.Name, "system:bootstrappers") {
				c.report("group %s has a binding but would have no tenant: add it to systemSubjects", s.value.Name)
			}
		}
	}
}

func (c *checker) isSystemUser(name string) bool {
	s := c.settings.Authorization.SystemSubjects
	if _, _, err := serviceaccount.SplitUsername(name); err == nil {
		return true // the tenant of a service account depends on its namespace
	}
	return slices.Contains(s.Users, name) ||
		slices.ContainsFunc(s.UserPrefixes, func(p string) bool { return strings.HasPrefix(name, p) })
}
