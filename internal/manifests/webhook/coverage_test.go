// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package webhook_test

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	admissionwebhook "k8s.io/apiserver/pkg/admission/plugin/webhook"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/matchconditions"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/predicates/rules"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/cel/environment"
	"sigs.k8s.io/yaml"

	"github.com/kubetenant/kubetenant/internal/manifests/webhook"
)

const own = "kubetenant-system"

// admissionSet contains the validating webhooks and the policies of an installed set.
// kube-apiserver's own code evaluates them.
type admissionSet struct {
	hooks    []admissionregistrationv1.ValidatingWebhook
	policies []admissionregistrationv1.ValidatingAdmissionPolicy
	enforced []string

	accessors  map[string]admissionwebhook.WebhookAccessor // these cache compiled expressions
	validators map[string]validating.Validator
}

func admissionSetOf(t *testing.T, gate string) *admissionSet {
	t.Helper()
	return admissionSetWith(t, "{gate: {mode: '"+gate+"'}}")
}

// admissionSetWith returns the set for a configuration with the given admission settings.
func admissionSetWith(t *testing.T, settings string) *admissionSet {
	t.Helper()
	o := options(t)
	write(t, o.Config, "{apiVersion: kubetenant.dev/v1alpha1, kind: TenancyConfiguration, admission: "+settings+"}")
	return generatedSet(t, o)
}

// generatedSet returns the set that is generated with the given options.
func generatedSet(t *testing.T, o webhook.Options) *admissionSet {
	t.Helper()
	files, err := webhook.Generate(o)
	if err != nil {
		t.Fatal(err)
	}
	set := newAdmissionSet()
	for _, path := range []string{"cluster/webhooks.yaml", "cluster/policies.yaml"} {
		for doc := range bytes.SplitSeq(files[path], []byte("\n---\n")) {
			var is metav1.TypeMeta
			var hooks admissionregistrationv1.ValidatingWebhookConfiguration
			var policy admissionregistrationv1.ValidatingAdmissionPolicy
			var binding admissionregistrationv1.ValidatingAdmissionPolicyBinding
			if err := yaml.Unmarshal(doc, &is); err != nil {
				t.Fatal(err)
			}
			switch is.Kind {
			case "ValidatingWebhookConfiguration":
				err = yaml.Unmarshal(doc, &hooks)
				set.hooks = append(set.hooks, hooks.Webhooks...)
			case "ValidatingAdmissionPolicy":
				err = yaml.Unmarshal(doc, &policy)
				set.policies = append(set.policies, policy)
			case "ValidatingAdmissionPolicyBinding":
				err = yaml.Unmarshal(doc, &binding)
				set.enforced = append(set.enforced, binding.Spec.PolicyName)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	set.compile(t)
	return set
}

func newAdmissionSet() *admissionSet {
	return &admissionSet{
		accessors:  map[string]admissionwebhook.WebhookAccessor{},
		validators: map[string]validating.Validator{},
	}
}

// compile compiles the conditions of the webhooks and the policies.
func (s *admissionSet) compile(t *testing.T) {
	t.Helper()
	environments := environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion())
	for i := range s.hooks {
		h := &s.hooks[i]
		s.accessors[h.Name] = admissionwebhook.NewValidatingWebhookAccessor(h.Name, h.Name, h)
		s.accessors[h.Name].GetCompiledMatcher(cel.NewConditionCompiler(environments))
	}
	for i := range s.policies {
		s.validators[s.policies[i].Name] = compiled(t, environments, &s.policies[i])
	}
}

// attempt is a request that a caller sends.
type attempt struct {
	operation       admission.Operation
	resource        schema.GroupVersionResource
	subresource     string
	namespace, name string
	namespaceLabels map[string]string
	labels          map[string]string // labels of the object, before and after the request
	by              user.Info
	granted         func(authorizer.Attributes) bool // reports whether RBAC allows the caller
	// metadata and oldMetadata are added to the metadata of the object.
	metadata, oldMetadata map[string]any
	// spec and oldSpec are the spec of the object, which then has an empty status too.
	spec, oldSpec map[string]any
}

func (a *attempt) attributes() *admission.VersionedAttributes {
	object := func(metadata, spec map[string]any) *unstructured.Unstructured {
		all := map[string]any{"name": a.name}
		maps.Copy(all, metadata)
		u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Thing", "metadata": all}}
		if spec != nil {
			u.Object["spec"], u.Object["status"] = spec, map[string]any{}
		}
		if a.labels != nil {
			u.SetLabels(a.labels)
		}
		return u
	}
	kind := schema.GroupVersionKind{Group: a.resource.Group, Version: a.resource.Version, Kind: "Thing"}
	var is, was runtime.Object = object(a.metadata, a.spec), object(a.oldMetadata, a.oldSpec)
	if a.operation == admission.Create || a.operation == admission.Connect {
		was = nil
	}
	if a.operation == admission.Delete {
		is = nil
	}
	return &admission.VersionedAttributes{
		Attributes: admission.NewAttributesRecord(is, was, kind, a.namespace, a.name, a.resource, a.subresource,
			a.operation, nil, false, a.by),
		VersionedObject:    admission.NewLazyObject(is),
		VersionedOldObject: admission.NewLazyObject(was),
		VersionedKind:      kind,
	}
}

// Authorize implements [authorizer.UnconditionalAuthorizer].
func (a *attempt) Authorize(_ context.Context, of authorizer.Attributes) (authorizer.Decision, string, error) {
	if a.granted != nil && a.granted(of) {
		return authorizer.DecisionAllow, "", nil
	}
	return authorizer.DecisionNoOpinion, "", nil
}

func (a *attempt) matches(selector *metav1.LabelSelector, all []admissionregistrationv1.RuleWithOperations) bool {
	s, err := metav1.LabelSelectorAsSelector(selector)
	if err != nil || selector != nil && a.namespace != "" && !s.Matches(labels.Set(a.namespaceLabels)) {
		return false
	}
	return slices.ContainsFunc(all, func(r admissionregistrationv1.RuleWithOperations) bool {
		return (&rules.Matcher{Rule: r, Attr: a.attributes().Attributes}).Matches()
	})
}

// receivingWebhooks returns the names of the webhooks that receive the request.
func (s *admissionSet) receivingWebhooks(t *testing.T, a *attempt) (names []string) {
	t.Helper()
	for i := range s.hooks {
		h := &s.hooks[i]
		if !a.matches(h.NamespaceSelector, h.Rules) {
			continue
		}
		result := s.accessors[h.Name].GetCompiledMatcher(nil).Match(t.Context(), a.attributes(), nil, a)
		if result.Error != nil {
			t.Fatalf("%s: %v", h.Name, result.Error)
		}
		if result.Matches {
			names = append(names, h.Name)
		}
	}
	return names
}

// denialMessages returns the messages of the policies that deny the request.
func (s *admissionSet) denialMessages(t *testing.T, a *attempt) (messages []string) {
	t.Helper()
	for i := range s.policies {
		p := &s.policies[i]
		match := p.Spec.MatchConstraints
		var all []admissionregistrationv1.RuleWithOperations
		for _, r := range match.ResourceRules {
			all = append(all, r.RuleWithOperations)
		}
		if !slices.Contains(s.enforced, p.Name) || !a.matches(match.NamespaceSelector, all) {
			continue
		}
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: a.namespace, Labels: a.namespaceLabels}}
		result := s.validators[p.Name].Validate(t.Context(), a.resource, a.attributes(), nil, namespace,
			celconfig.RuntimeCELCostBudget, a)
		for _, d := range result.Decisions {
			if d.Evaluation == validating.EvalError {
				t.Fatalf("%s: %s", p.Name, d.Message)
			}
			if d.Action == validating.ActionDeny {
				messages = append(messages, p.Name+": "+d.Message)
			}
		}
	}
	return messages
}

// compiled compiles a policy as kube-apiserver does.
func compiled(
	t *testing.T, environments *environment.EnvSet, p *admissionregistrationv1.ValidatingAdmissionPolicy,
) validating.Validator {
	t.Helper()
	with := cel.OptionalVariableDeclarations{HasAuthorizer: true}
	compiler, err := cel.NewCompositedCompiler(environments)
	if err != nil {
		t.Fatal(err)
	}
	var variables []cel.NamedExpressionAccessor
	for _, v := range p.Spec.Variables {
		variables = append(variables, &validating.Variable{Name: v.Name, Expression: v.Expression})
	}
	compiler.CompileAndStoreVariables(variables, with, environment.StoredExpressions)
	var conditions, validations []cel.ExpressionAccessor
	for i := range p.Spec.MatchConditions {
		conditions = append(conditions, (*matchconditions.MatchCondition)(&p.Spec.MatchConditions[i]))
	}
	for _, v := range p.Spec.Validations {
		validations = append(validations,
			&validating.ValidationCondition{Expression: v.Expression, Message: v.Message, Reason: v.Reason})
	}
	compile := func(list []cel.ExpressionAccessor) cel.ConditionEvaluator {
		return compiler.CompileCondition(list, with, environment.StoredExpressions)
	}
	var matcher matchconditions.Matcher
	if len(conditions) > 0 {
		matcher = matchconditions.NewMatcher(compile(conditions), p.Spec.FailurePolicy, "policy", "validate", p.Name)
	}
	messages := make([]cel.ExpressionAccessor, len(p.Spec.Validations))
	for i, v := range p.Spec.Validations {
		if v.MessageExpression != "" {
			messages[i] = &validating.MessageExpressionCondition{MessageExpression: v.MessageExpression}
		}
	}
	return validating.NewValidator(compile(validations), matcher, compile(nil), compile(messages), p.Spec.FailurePolicy,
		nil)
}

// tenantCallers are callers of a tenant that send requests directly to the cluster.
func tenantCallers() map[string]user.Info {
	certificate := map[string][]string{user.CredentialIDKey: {"X509SHA256=00"}}
	return map[string]user.Info{
		"a service account": &user.DefaultInfo{
			Name:   "system:serviceaccount:acme--web:ed",
			Groups: []string{"system:serviceaccounts", "system:serviceaccounts:acme--web", "system:authenticated"},
		},
		"a user with the extra": &user.DefaultInfo{
			Name:  "alice",
			Extra: map[string][]string{"kubetenant.dev/tenant": {"acme"}},
		},
		"a user with the group": &user.DefaultInfo{Name: "alice", Groups: []string{"tenant:acme", "system:masters"}},
		"a certificate in the name of an account of the service": &user.DefaultInfo{
			Name:  "system:serviceaccount:" + own + ":kubetenant-controller",
			Extra: certificate,
		},
		"an account with the name of a system namespace as prefix": &user.DefaultInfo{
			Name: "system:serviceaccount:kube-system2:x",
		},
		"an account with the service's namespace as prefix": &user.DefaultInfo{
			Name: "system:serviceaccount:" + own + "2:x",
		},
		"a cloud identity": &user.DefaultInfo{Name: "arn:aws:sts::1:assumed-role/dev/alice", Groups: []string{"dev"}},
	}
}

func operations() []admission.Operation {
	return []admission.Operation{admission.Create, admission.Update, admission.Delete, admission.Connect}
}

// resources returns resources of several API groups and scopes, with their subresources.
func resources() map[schema.GroupVersionResource][]string {
	return map[schema.GroupVersionResource][]string{
		resourceOf("", "secrets"):                                      {""},
		resourceOf("", "configmaps"):                                   {""},
		resourceOf("", "pods"):                                         {"", "exec", "status", "eviction", "proxy"},
		resourceOf("", "serviceaccounts"):                              {"", "token"},
		resourceOf("", "services"):                                     {"", "proxy"},
		resourceOf("apps", "deployments"):                              {"", "scale"},
		resourceOf("example.com", "things"):                            {"", "status", "other"},
		resourceOf("coordination.k8s.io", "leases"):                    {""},
		resourceOf("rbac.authorization.k8s.io", "rolebindings"):        {""},
		resourceOf("rbac.authorization.k8s.io", "clusterrolebindings"): {""},
	}
}

func resourceOf(group, resource string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: group, Version: "v1", Resource: resource}
}

// TestEveryTenantRequestIsChecked checks every combination of namespace, operation, resource and
// subresource. A webhook must receive the request of a tenant's caller, or a policy must deny the
// request. In the namespace of the service, policies must deny the request in each mode of
// TenantGate, because policies do not need the service.
func TestEveryTenantRequestIsChecked(t *testing.T) {
	t.Parallel()
	places := []map[string]string{
		nil, // cluster-scoped
		{corev1.LabelMetadataName: own, "kubetenant.dev/tenant": "system"},
		{corev1.LabelMetadataName: own},
		{corev1.LabelMetadataName: own, "kubetenant.dev/tenant": "acme"},
		{corev1.LabelMetadataName: "kube-system"},
		{corev1.LabelMetadataName: "platform", "kubetenant.dev/tenant": "system"},
		{corev1.LabelMetadataName: "globex--web", "kubetenant.dev/tenant": "globex"},
		{corev1.LabelMetadataName: "default"},
	}
	for _, gate := range []string{"Off", "Shadow", "Enforce"} {
		set := admissionSetOf(t, gate)
		for who, by := range tenantCallers() {
			for _, place := range places {
				for _, a := range attempts(by, place) {
					ours := a.namespace == own
					switch deletes := a.operation == admission.Delete || a.operation == admission.Connect; {
					case ours && len(set.denialMessages(t, &a)) == 0:
						t.Errorf("gate %s: %s: no policy denies %s", gate, who, describe(&a))
					case !ours && (!deletes || gate != "Off") && len(set.receivingWebhooks(t, &a)) == 0:
						t.Errorf("gate %s: %s: no webhook receives %s", gate, who, describe(&a))
					}
				}
			}
		}
	}
}

// attempts returns all requests of a caller in a namespace with the given labels.
func attempts(by user.Info, place map[string]string) (all []attempt) {
	for resource, subresources := range resources() {
		if (place == nil) != strings.HasPrefix(resource.Resource, "cluster") {
			continue
		}
		for _, subresource := range subresources {
			for _, operation := range operations() {
				all = append(all, attempt{
					operation:       operation,
					resource:        resource,
					subresource:     subresource,
					namespace:       place[corev1.LabelMetadataName],
					name:            "x",
					namespaceLabels: place,
					by:              by,
				})
			}
		}
	}
	return all
}

func describe(a *attempt) string {
	return fmt.Sprintf("%s %s/%s in %q %v", a.operation, a.resource.GroupResource(), a.subresource, a.namespace,
		a.namespaceLabels)
}

// TestWritesInServiceNamespace checks which callers may write in the namespace of the service. All
// other callers are denied, even if a role in that namespace allows the write.
func TestWritesInServiceNamespace(t *testing.T) {
	t.Parallel()
	set := admissionSetOf(t, "Enforce")
	labels := map[string]string{corev1.LabelMetadataName: own, "kubetenant.dev/tenant": "system"}
	may := func(verb, resource string) func(authorizer.Attributes) bool {
		return func(a authorizer.Attributes) bool {
			return a.GetVerb() == verb && a.GetResource() == resource && a.GetNamespace() == "" &&
				(resource != "tenants" || a.GetAPIGroup() == "kubetenant.dev")
		}
	}
	extra := map[string][]string{"kubetenant.dev/tenant": {"system"}}
	account := func(name string) user.Info { return &user.DefaultInfo{Name: "system:serviceaccount:" + name} }
	for name, c := range map[string]struct {
		by     user.Info
		may    func(authorizer.Attributes) bool
		writes bool // all writes; otherwise, at most evictions
		evicts bool
	}{
		"a node": {
			&user.DefaultInfo{Name: "system:node:n", Groups: []string{"system:nodes"}},
			nil,
			true,
			true,
		},
		"a controller":                {account("kube-system:deployment-controller"), nil, true, true},
		"the controller manager":      {&user.DefaultInfo{Name: "system:kube-controller-manager"}, nil, true, true},
		"an own account":              {account(own + ":kubetenant-gateway-reader"), nil, true, true},
		"the system tenant":           {&user.DefaultInfo{Name: "root", Extra: extra}, nil, true, true},
		"an administrator of a cloud": {&user.DefaultInfo{Name: "ann@example.com"}, may("create", "tenants"), true, true},
		"a GitOps tool":               {account("argocd:controller"), may("create", "tenants"), true, true},
		"an autoscaler":               {account("karpenter:karpenter"), may("patch", "nodes"), false, true},
		"a tenant's caller with all rights": {
			tenantCallers()["a user with the extra"],
			func(authorizer.Attributes) bool { return true },
			false,
			false,
		},
		"a certificate of an account": {
			tenantCallers()["a certificate in the name of an account of the service"],
			func(authorizer.Attributes) bool { return true },
			false,
			false,
		},
		"an account of another tenant": {account("acme--web:ed"), may("update", "tenants"), false, false},
	} {
		t.Run(name, func(t *testing.T) {
			for _, a := range attempts(c.by, labels) {
				a.granted = c.may
				want := c.writes || c.evicts && a.subresource == "eviction"
				if denied := set.denialMessages(t, &a); (len(denied) == 0) != want {
					t.Errorf("%s: denied %q", describe(&a), denied)
				}
			}
			a := attempt{
				resource:        schema.GroupVersionResource{Version: "v1", Resource: "namespaces"},
				namespace:       own,
				name:            own,
				namespaceLabels: labels,
				by:              c.by,
				granted:         c.may,
			}
			for _, a.operation = range []admission.Operation{admission.Update, admission.Delete} {
				denied := slices.ContainsFunc(
					set.denialMessages(t, &a),
					func(s string) bool { return strings.HasPrefix(s, "service.") },
				)
				if denied == c.writes {
					t.Errorf("%s: denied: %v", describe(&a), denied)
				}
			}
		})
	}
	// In Enforce mode, the service itself decides for callers that the policy identifies only by
	// their rights.
	a := attempt{
		operation:       admission.Create,
		resource:        schema.GroupVersionResource{Version: "v1", Resource: "serviceaccounts"},
		subresource:     "token",
		namespace:       own,
		namespaceLabels: labels,
	}
	for name, want := range map[string]bool{"acme--web:admin": true, own + ":x": false, "kube-system:x": false} {
		t.Run(name, func(t *testing.T) {
			a.by = account(name)
			if got := slices.Contains(set.receivingWebhooks(t, &a), "service.validating.kubetenant.dev"); got != want {
				t.Errorf("the service receives the request of %s: %v", name, got)
			}
		})
	}
}

// TestOnlyControllerWritesBackfill checks that only the controller may create or update the
// ConfigMap with the progress of the backfill, which servers trust. Other callers may delete the
// ConfigMap.
func TestOnlyControllerWritesBackfill(t *testing.T) {
	t.Parallel()
	set := admissionSetOf(t, "Off")
	for name, writes := range map[string]bool{
		"system:serviceaccount:" + own + ":kubetenant-controller": true,
		"system:serviceaccount:" + own + ":kubetenant-webhook":    false,
		"system:serviceaccount:kube-system:x":                     false,
		"system:kube-controller-manager":                          false,
	} {
		t.Run(name, func(t *testing.T) {
			for _, operation := range operations()[:3] {
				a := attempt{
					operation:       operation,
					resource:        schema.GroupVersionResource{Version: "v1", Resource: "configmaps"},
					namespace:       own,
					name:            "kubetenant-swept",
					namespaceLabels: map[string]string{corev1.LabelMetadataName: own},
					by:              &user.DefaultInfo{Name: name},
				}
				denied := set.denialMessages(t, &a)
				if want := writes || operation == admission.Delete; (len(denied) == 0) != want {
					t.Errorf("%s: %q", operation, denied)
				}
			}
		})
	}
}

// TestDenyingPolicies checks every combination of policy, namespace, operation, resource and
// subresource. The policies in DenyingPolicies must deny each matching request of a tenant's
// service account. No other policy may deny each of its requests.
func TestDenyingPolicies(t *testing.T) {
	t.Parallel()
	set := admissionSetOf(t, "Off")
	enforced := set.enforced
	places := []map[string]string{
		nil,
		{corev1.LabelMetadataName: own, "kubetenant.dev/tenant": "system"},
		{corev1.LabelMetadataName: own},
		{corev1.LabelMetadataName: "platform", "kubetenant.dev/tenant": "system"},
		{corev1.LabelMetadataName: "globex--web", "kubetenant.dev/tenant": "globex"},
		{corev1.LabelMetadataName: "acme--web", "kubetenant.dev/tenant": "acme"},
		{corev1.LabelMetadataName: "default"},
	}
	by := tenantCallers()["a service account"]
	for i := range set.policies {
		p := &set.policies[i]
		set.enforced = []string{p.Name}
		var all []admissionregistrationv1.RuleWithOperations
		for _, r := range p.Spec.MatchConstraints.ResourceRules {
			all = append(all, r.RuleWithOperations)
		}
		matched, denied := 0, 0
		for _, place := range places {
			for _, a := range attempts(by, place) {
				if !a.matches(p.Spec.MatchConstraints.NamespaceSelector, all) {
					continue
				}
				if matched++; len(set.denialMessages(t, &a)) > 0 {
					denied++
				}
			}
		}
		denies := matched > 0 && denied == matched
		if !slices.Contains(enforced, p.Name) || denies != slices.Contains(webhook.DenyingPolicies(), p.Name) {
			t.Errorf("%s denies %d of %d requests", p.Name, denied, matched)
		}
	}
}

// TestCheckCoverage checks that Check reports a request that no webhook and no policy receives.
func TestCheckCoverage(t *testing.T) {
	t.Parallel()
	const text = "no webhook and no policy judges operation "
	for name, c := range map[string]struct{ file, old, new, want string }{
		"as generated": {"policies.yaml", "", "", ""},
		"no policy of the service's namespace": {
			"policies.yaml", "  policyName: service.kubetenant.dev", "  policyName: other.kubetenant.dev",
			text + "CONNECT of a tenant's account in the namespace of the service (",
		},
		"fewer operations": {
			"policies.yaml", "[CREATE, UPDATE, DELETE, CONNECT], scope: Namespaced",
			"[CREATE, UPDATE, DELETE], scope: Namespaced",
			text + "CONNECT of a tenant's account in the namespace of the service (",
		},
		"no updates": { // another policy matches updates of the status
			"policies.yaml", "[CREATE, UPDATE, DELETE, CONNECT], scope: Namespaced",
			"[CREATE, DELETE, CONNECT], scope: Namespaced",
			text + "UPDATE of a tenant's account in the namespace of the service (subresource \"status\")",
		},
		"a webhook of one tenant": {
			"webhooks.yaml", "{ key: kubetenant.dev/tenant, operator: Exists }",
			"{ key: kubetenant.dev/tenant, operator: In, values: [globex] }",
			text + "UPDATE of a tenant's account in a namespace of the system tenant (",
		},
		"fewer subresources": {
			"webhooks.yaml", `resources: ["*/*"]`, `resources: ["*"]`, `(subresource "x")`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			all := findingsAfter(t, options(t), func(files map[string][]byte) {
				changed := strings.ReplaceAll(string(files["cluster/"+c.file]), c.old, c.new)
				if c.old != "" && changed == string(files["cluster/"+c.file]) {
					t.Fatal("nothing to change")
				}
				files["cluster/"+c.file] = []byte(changed)
			})
			all = slices.DeleteFunc(all, func(s string) bool { return !strings.Contains(s, text) })
			expectFinding(t, name, all, c.want)
		})
	}
}
