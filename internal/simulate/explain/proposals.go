// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"sigs.k8s.io/yaml"

	"github.com/kubetenant/kubetenant/authz"
	"github.com/kubetenant/kubetenant/cluster/accessgrant"
	configv1alpha1 "github.com/kubetenant/kubetenant/config/v1alpha1"
	"github.com/kubetenant/kubetenant/internal/reload"
	"github.com/kubetenant/kubetenant/internal/yamlfile"
	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

// proposeBinding returns a change that adds a role with one rule and a binding, or nil if no role
// can allow the request.
func (q *Query) proposeBinding(ctx context.Context, a *answer) (*change, error) {
	r := &q.Request
	caller := a.outcome.Caller
	rule := rbacv1.PolicyRule{
		Verbs:         []string{r.Verb},
		APIGroups:     []string{r.APIGroup},
		Resources:     []string{q.resource()},
		ResourceNames: q.names(),
	}
	if !r.ResourceRequest {
		rule = rbacv1.PolicyRule{Verbs: []string{r.Verb}, NonResourceURLs: []string{r.Path}}
	}
	subject := rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: q.User.GetName()}
	if namespace, name, err := serviceaccount.SplitUsername(q.User.GetName()); err == nil {
		subject = rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: name}
	}
	meta := metav1.ObjectMeta{Name: q.name(), Namespace: r.Namespace}
	if r.Namespace != "" && r.Resource != "namespaces" {
		const who = "To allow this, a caller who has this right in the namespace can create:"
		role := &rbacv1.Role{TypeMeta: typeMeta("Role"), ObjectMeta: meta, Rules: []rbacv1.PolicyRule{rule}}
		binding := &rbacv1.RoleBinding{
			TypeMeta:   typeMeta("RoleBinding"),
			ObjectMeta: meta,
			Subjects:   []rbacv1.Subject{subject},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: meta.Name},
		}
		return q.tryRole(ctx, a, who, role, binding)
	}
	meta.Namespace = ""
	role := &rbacv1.ClusterRole{TypeMeta: typeMeta("ClusterRole"), ObjectMeta: meta, Rules: []rbacv1.PolicyRule{rule}}
	binding := &rbacv1.ClusterRoleBinding{
		TypeMeta:   typeMeta("ClusterRoleBinding"),
		ObjectMeta: meta,
		Subjects:   []rbacv1.Subject{subject},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: meta.Name},
	}
	const who = "To allow this, the cluster's admin can create:"
	if caller.IsSystem() || subject.Kind == rbacv1.ServiceAccountKind {
		return q.tryRole(ctx, a, who, role, binding)
	}
	limited := binding.DeepCopy()
	limited.Annotations = map[string]string{tenant.ScopeAnnotation: caller.String()}
	const text = who + "\nThe annotation limits it to tenant %s, with authorization.rbac.evaluator: Indexed only." +
		"\nWithout that evaluator, users of that name of every tenant get the right."
	c, err := q.tryRole(ctx, a, fmt.Sprintf(text, caller), role, limited)
	if c != nil || err != nil {
		return c, err
	}
	const plain = who + "\nUsers of that name of every tenant get the right, also those of the system tenant."
	return q.tryRole(ctx, a, plain, role, binding)
}

// tryRole returns the change that adds a role and a binding, or nil if the request is then still
// not allowed.
func (q *Query) tryRole(ctx context.Context, a *answer, text string, role, binding runtime.Object) (*change, error) {
	c, err := q.tryObjects(ctx, a, text, role, binding)
	if err != nil || c.answer.decision != authorizer.DecisionAllow {
		return nil, err
	}
	return c, nil
}

func typeMeta(kind string) metav1.TypeMeta {
	return metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: kind}
}

// proposeGrant returns a change that adds an AccessGrant in the owner's namespace, or nil if no
// grant can allow the request.
func (q *Query) proposeGrant(ctx context.Context, a *answer) (*change, error) {
	r := &q.Request
	caller := a.outcome.Caller
	owner := a.outcome.Owner
	g := &v1alpha1.AccessGrant{
		TypeMeta:   metav1.TypeMeta{APIVersion: tenant.Domain + "/v1alpha1", Kind: v1alpha1.KindAccessGrant},
		ObjectMeta: metav1.ObjectMeta{Name: q.name(), Namespace: r.Namespace},
		Spec: v1alpha1.AccessGrantSpec{
			From: v1alpha1.AccessGrantFrom{Tenant: caller.String()},
			To: []v1alpha1.AccessGrantRule{{
				APIGroups:     []string{r.APIGroup},
				Resources:     []string{q.resource()},
				Verbs:         []string{r.Verb},
				ResourceNames: q.names(),
			}},
		},
	}
	if namespace, name, err := serviceaccount.SplitUsername(q.User.GetName()); err == nil {
		g.Spec.From.ServiceAccounts = []v1alpha1.ServiceAccountName{{Namespace: namespace, Name: name}}
	} else {
		g.Spec.From.Users = []string{q.User.GetName()}
	}
	text, err := yamlfile.Marshal(g)
	if err != nil {
		return nil, err
	}
	// On a server, admission records the grantor.
	g.Spec.Grantor = &v1alpha1.AccessGrantor{Owner: owner.String(), Tenant: owner.String(), User: "an admin"}
	object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(g)
	if err != nil {
		return nil, err
	}
	u := &unstructured.Unstructured{Object: object}
	if _, err := accessgrant.Parse(u); err != nil {
		return nil, nil // the API rejects this grant
	}
	after, err := q.with(q.Config, u)
	if err != nil {
		return nil, err
	}
	intro := fmt.Sprintf("To allow this, an admin of tenant %s can create:\n%s", owner, noTenantPath(caller))
	return q.try(ctx, a, Remedy{Text: intro, YAML: text}, after)
}

// proposeClusterScoped returns a change for a cluster-scoped resource. For a read, it is a change
// of the configuration if that allows the request. Otherwise, it is a line of the policy file.
func (q *Query) proposeClusterScoped(ctx context.Context, a *answer) (*change, error) {
	r := &q.Request
	resource := schema.GroupResource{Group: r.APIGroup, Resource: r.Resource}
	scope := authz.Scopes{Custom: q.Snapshot.CustomScope}.Of(resource)
	listed := configv1alpha1.GroupResource{Group: r.APIGroup, Resource: r.Resource}
	reads := slices.Contains([]string{"get", "list", "watch"}, r.Verb) && r.Subresource == "" && r.Namespace == ""
	switch {
	case reads && scope == authz.ScopeCluster && r.APIGroup != tenant.Domain: // our objects name other tenants
		config := q.configured(func(z *configv1alpha1.Authorization) {
			z.SharedClusterResources = append(slices.Clip(z.SharedClusterResources), listed)
		})
		const text = "To let callers of every tenant read %s, the cluster's admin can set this in the configuration.\n" +
			"The list replaces the former one."
		fields := map[string]any{"sharedClusterResources": config.Authorization.SharedClusterResources}
		c, err := q.tryConfig(ctx, a, fmt.Sprintf(text, r.Resource), config, fields)
		if c != nil || err != nil {
			return c, err
		}
	case reads && r.Verb != "get" && scope == authz.ScopeUnknown:
		config := q.configured(func(z *configv1alpha1.Authorization) {
			z.SelectableResources = append(slices.Clip(z.SelectableResources), listed)
		})
		const text = "If the API server of this resource honors label selectors, the cluster's admin can set this " +
			"in the configuration.\nThe list replaces the former one.\n" +
			"A server that ignores selectors shows a tenant the objects of all tenants."
		fields := map[string]any{"selectableResources": config.Authorization.SelectableResources}
		c, err := q.tryConfig(ctx, a, text, config, fields)
		if c != nil || err != nil {
			return c, err
		}
	}
	return q.proposeLine(ctx, a, policyNamespaceOwner(a))
}

// proposeReviews returns the setting that lets tenants create reviews of their own tokens and
// subjects.
func (q *Query) proposeReviews(ctx context.Context, a *answer) (*change, error) {
	config := q.configured(func(z *configv1alpha1.Authorization) { z.DelegatedReviews = true })
	const text = "To let every tenant review its own tokens and subjects, the cluster's admin can set this in the " +
		"configuration.\nIt has no effect behind the webhook service."
	return q.tryConfig(ctx, a, text, config, map[string]any{"delegatedReviews": true})
}

// tryConfig calls try with another configuration. fields contains the changed fields of the section
// authorization.
func (q *Query) tryConfig(ctx context.Context, a *answer, text string, config *configv1alpha1.Settings,
	fields map[string]any,
) (*change, error) {
	after, err := q.with(config)
	if err != nil {
		return nil, err
	}
	part, err := yaml.Marshal(map[string]any{"authorization": fields})
	if err != nil {
		return nil, err
	}
	return q.try(ctx, a, Remedy{Text: text, YAML: string(part)}, after)
}

// proposeLine returns a change that adds a line to the policy file, or nil if no line can allow the
// request.
func (q *Query) proposeLine(ctx context.Context, a *answer, owner tenant.ID) (*change, error) {
	line, err := q.line(a.outcome.Caller, owner)
	if line == nil || err != nil {
		return nil, err
	}
	config, remove, err := q.withLine(line)
	if err != nil {
		return nil, err
	}
	defer remove()
	after, err := q.with(config)
	if err != nil {
		return nil, err
	}
	text := "To allow this, the cluster's admin can add a line to the policy file:"
	if q.Config.Authorization.ABAC == nil {
		text = "No policy file is configured: set authorization.abac.path.\n" +
			"To allow this, the cluster's admin can then add a line to that file:"
	}
	what := "every verb"
	if q.Request.IsReadOnly() {
		what = "every read"
	}
	if q.Request.ResourceRequest {
		text += fmt.Sprintf("\nThe line allows %s on all %s and their subresources.", what, q.Request.Resource)
	}
	c, err := q.try(ctx, a, Remedy{Text: text + "\n" + noTenantPath(a.outcome.Caller), YAML: string(line) + "\n"}, after)
	if err != nil || c == nil || c.answer.decision != authorizer.DecisionAllow {
		return nil, err
	}
	return c, nil
}

// line returns a line of the policy file that allows the request, or nil if no line can express the
// request.
func (q *Query) line(caller, owner tenant.ID) ([]byte, error) {
	r := &q.Request
	if r.Subresource != "" || q.User.GetName() == "*" {
		return nil, nil // a line includes all subresources of a resource, and "*" is every caller
	}
	spec := map[string]any{"user": q.User.GetName(), "tenant": caller.String(), "space": owner.String()}
	if r.ResourceRequest {
		spec["apiGroup"], spec["resource"], spec["namespace"] = r.APIGroup, r.Resource, r.Namespace
		if r.Namespace == "" {
			spec["namespace"] = "*"
		}
	} else {
		spec["nonResourcePath"] = r.Path
	}
	if r.IsReadOnly() {
		spec["readonly"] = true
	}
	return json.Marshal(map[string]any{
		"apiVersion": "abac.authorization.kubernetes.io/v1beta1",
		"kind":       "Policy",
		"spec":       spec,
	})
}

// withLine returns the configuration with a copy of the policy file to which the line is added, and
// a function that removes the copy.
func (q *Query) withLine(line []byte) (*configv1alpha1.Settings, func(), error) {
	var data []byte
	if file := q.Config.Authorization.ABAC; file != nil {
		var err error
		if data, err = os.ReadFile(file.Path); err != nil { // #nosec G304 -- the configuration names it
			return nil, nil, err
		}
		if len(data) > 0 && data[len(data)-1] != '\n' {
			data = append(data, '\n')
		}
	}
	folder, err := os.MkdirTemp("", "policy-*")
	if err != nil {
		return nil, nil, err
	}
	remove := func() { _ = os.RemoveAll(folder) }
	path := filepath.Join(folder, "policy.jsonl")
	err = os.WriteFile(path, append(append(data, line...), '\n'), 0o600) // #nosec G703 -- a new folder of its own
	if err := errors.Join(err, reload.MarkComplete(path)); err != nil {
		remove()
		return nil, nil, err
	}
	return q.configured(func(z *configv1alpha1.Authorization) { z.ABAC = &configv1alpha1.ABAC{Path: path} }), remove, nil
}
