// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package managed_test

import (
	"context"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/kubetenant/kubetenant/plugins/managed"
	"github.com/kubetenant/kubetenant/tenant"
)

// evaluated returns an authorizer that decides like kube-apiserver's RBAC authorizer
// (pkg/apis/rbac/v1/evaluation_helpers.go, v1.37.1), for a caller with the given rules in the whole
// cluster. It denies every request for a subresource.
func evaluated(rules ...rbacv1.PolicyRule) authorizer.Authorizer {
	has := func(values []string, value string) bool {
		return slices.Contains(values, "*") || slices.Contains(values, value)
	}
	return authorizer.AuthorizerFunc(func(
		_ context.Context, a authorizer.Attributes,
	) (authorizer.Decision, string, error) {
		if slices.ContainsFunc(rules, func(r rbacv1.PolicyRule) bool {
			return has(r.Verbs, a.GetVerb()) && has(r.APIGroups, a.GetAPIGroup()) && has(r.Resources, a.GetResource()) &&
				a.GetSubresource() == "" && (len(r.ResourceNames) == 0 || slices.Contains(r.ResourceNames, a.GetName()))
		}) {
			return authorizer.DecisionAllow, "", nil
		}
		return authorizer.DecisionNoOpinion, "", nil
	})
}

// restricted returns the rules of an author. Each rule has one verb and one resource. The rule at
// the index empty lists only the name "".
func restricted(group string, empty int, rights ...[2]string) (rules []rbacv1.PolicyRule) {
	for i, right := range rights {
		rule := rbacv1.PolicyRule{Verbs: []string{right[0]}, APIGroups: []string{group}, Resources: []string{right[1]}}
		if i == empty {
			rule.ResourceNames = []string{""}
		}
		rules = append(rules, rule)
	}
	return rules
}

// TestEmptyNameRulesDoNotAllowPublications checks that a rule that lists only the name "" does not
// allow an author to write a Publication.
func TestEmptyNameRulesDoNotAllowPublications(t *testing.T) {
	rules := []rbacv1.PolicyRule{{Verbs: []string{"*"}, APIGroups: []string{"*"}, Resources: []string{"*"}}}
	ref := func(kind, name string) *rbacv1.RoleRef { return &rbacv1.RoleRef{Kind: kind, Name: name} }
	of := func(resource string, more ...[2]string) [][2]string {
		all := [][2]string{{"get", resource}, {"create", resource}, {"update", resource}, {"delete", resource}}
		return append(all, more...)
	}
	for name, c := range map[string]struct {
		group, kind string
		content     managed.Content
		rights      [][2]string
	}{
		"a ConfigMap": {"", "ConfigMap", managed.Content{}, of("configmaps")},
		"a Secret":    {"", "Secret", managed.Content{}, of("secrets")},
		"a Role": {
			rbacv1.GroupName, "Role", managed.Content{Rules: rules}, of("roles", [2]string{"escalate", "roles"}),
		},
		"a binding of a Role": {
			rbacv1.GroupName, "RoleBinding",
			managed.Content{Ref: ref("Role", "edit"), Rules: rules},
			of("rolebindings", [2]string{"bind", "roles"}),
		},
		"a binding of a ClusterRole": {
			rbacv1.GroupName, "RoleBinding",
			managed.Content{Ref: ref("ClusterRole", "edit"), Rules: rules},
			of("rolebindings", [2]string{"bind", "clusterroles"}),
		},
		"a binding without a role name": {
			rbacv1.GroupName, "RoleBinding",
			managed.Content{Ref: ref("ClusterRole", ""), UnknownRules: true},
			of("rolebindings", [2]string{"bind", "clusterroles"}),
		},
	} {
		t.Run(name, func(t *testing.T) {
			for empty := -1; empty < len(c.rights); empty++ {
				c.content.Hash = "h"
				p := publishing{
					rbac:    evaluated(restricted(c.group, empty, c.rights...)...),
					sources: map[string]*managed.Content{"platform/x": &c.content, "platform/": &c.content},
				}
				for _, source := range []string{"platform/x", "platform/"} {
					obj := published(c.kind+" "+source, "Replace", nil)
					w := write{by: &user.DefaultInfo{Name: "root"}, resource: publicationsResource, obj: obj}
					err := p.plugin().Validate(t.Context(), w.attributes(), nil)
					if (err == nil) != (empty < 0) {
						t.Errorf("%s from %s, the name \"\" for %v: %v", name, source, c.rights[max(0, empty)], err)
					}
				}
			}
		})
	}
}

// TestEmptyNameRulesDoNotAllowTemplates checks that a rule that lists only the name "" does not
// allow an author to write a NamespaceTemplate.
func TestEmptyNameRulesDoNotAllowTemplates(t *testing.T) {
	rights := [][2]string{{"create", "configmaps"}, {"update", "configmaps"}, {"delete", "configmaps"}}
	templates := schema.GroupVersionResource{Group: tenant.Domain, Version: "v1alpha1", Resource: "namespacetemplates"}
	kinds := []schema.GroupVersionResource{corev1.SchemeGroupVersion.WithResource("configmaps")}
	for empty := -1; empty < len(rights); empty++ {
		p := managed.New(managed.Options{
			Subject:      func(context.Context, user.Info) (tenant.ID, error) { return tenant.System(), nil },
			Authorizer:   evaluated(restricted("", empty, rights...)...),
			ReadTemplate: func(runtime.Object) ([]schema.GroupVersionResource, error) { return kinds, nil },
			Removed:      func(_, _ runtime.Object) []schema.GroupVersionResource { return kinds },
		})
		w := write{
			by:       &user.DefaultInfo{Name: "root"},
			resource: templates,
			old:      template("x", "a"),
			obj:      template("x", "b"),
		}
		if err := p.Validate(t.Context(), w.attributes(), nil); (err == nil) != (empty < 0) {
			t.Errorf("the name \"\" for %v: %v", rights[max(0, empty)], err)
		}
	}
}
