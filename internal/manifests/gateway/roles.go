// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

// Package gateway generates the files that an operator installs for kubetenant-gateway and in each
// of the gateway's clusters.
package gateway

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	configv1alpha1 "github.com/kubetenant/kubetenant/config/v1alpha1"
	"github.com/kubetenant/kubetenant/internal/serving/certificates"
	"github.com/kubetenant/kubetenant/internal/serving/state"
	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

// The service accounts of the gateway in a cluster.
const (
	ReaderAccount       = "kubetenant-gateway-reader"
	ImpersonatorAccount = "kubetenant-gateway-impersonator"
)

// verbs are the verbs of resource requests, and methods are the verbs of non-resource requests.
// RBAC has no wildcard for verbs with the prefix impersonate-on:user-info.
var (
	verbs   = []string{"get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"}
	methods = []string{"get", "head", "post", "put", "patch", "delete", "options"}
)

// Roles returns the objects of one cluster as YAML, which are two service accounts and their roles.
// Their namespace, which is also the namespace of the webhook service, must exist. The reader
// account reads the objects that the boundary needs. The impersonator account impersonates callers.
func (o *Options) Roles(g *configv1alpha1.Gateway, c *configv1alpha1.GatewayCluster) ([]byte, error) {
	objects := []runtime.Object{
		account(c.Namespace, ReaderAccount),
		account(c.Namespace, ImpersonatorAccount),
		role(ReaderAccount, append(readerRules(), viewRules(g)...)),
		binding(c.Namespace, ReaderAccount),
		&rbacv1.Role{
			TypeMeta:   typeMeta(rbacv1.SchemeGroupVersion.String(), "Role"),
			ObjectMeta: metav1.ObjectMeta{Namespace: c.Namespace, Name: ReaderAccount},
			Rules: []rbacv1.PolicyRule{{
				APIGroups:     []string{""},
				Resources:     []string{"configmaps"},
				ResourceNames: []string{state.BackfillName},
				Verbs:         []string{"get", "list", "watch"},
			}},
		},
		&rbacv1.RoleBinding{
			TypeMeta:   typeMeta(rbacv1.SchemeGroupVersion.String(), "RoleBinding"),
			ObjectMeta: metav1.ObjectMeta{Namespace: c.Namespace, Name: ReaderAccount},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: ReaderAccount},
			Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: c.Namespace, Name: ReaderAccount}},
		},
		role(ImpersonatorAccount, o.impersonatorRules(c)),
		binding(c.Namespace, ImpersonatorAccount),
	}
	var out strings.Builder
	for _, o := range objects {
		text, err := yaml.Marshal(o)
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(&out, "---\n%s", text)
	}
	return []byte(out.String()), nil
}

func readerRules() []rbacv1.PolicyRule {
	follow := []string{"get", "list", "watch"}
	return []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"namespaces"}, Verbs: follow},
		{APIGroups: []string{"apiextensions.k8s.io"}, Resources: []string{"customresourcedefinitions"}, Verbs: follow},
		{
			APIGroups: []string{v1alpha1.SchemeGroupVersion.Group},
			Resources: []string{
				v1alpha1.ResourceTenants, v1alpha1.ResourceRetiredTenants, v1alpha1.ResourceNamespaceTemplates,
				v1alpha1.ResourceTenantMembers, v1alpha1.ResourceAccessGrants, v1alpha1.ResourceTenantQuotas,
				v1alpha1.ResourcePublications,
			},
			Verbs: follow,
		},
		{
			APIGroups:     []string{"admissionregistration.k8s.io"},
			Resources:     []string{"mutatingwebhookconfigurations", "validatingwebhookconfigurations"},
			ResourceNames: []string{certificates.ConfigurationName},
			Verbs:         follow,
		},
		{APIGroups: []string{"authentication.k8s.io"}, Resources: []string{"tokenreviews"}, Verbs: []string{"create"}},
		{APIGroups: []string{"authorization.k8s.io"}, Resources: []string{"subjectaccessreviews"}, Verbs: []string{"create"}},
		{NonResourceURLs: []string{"/openid/v1/jwks"}, Verbs: []string{"get"}},
	}
}

// viewRules returns the rules that allow the reader to read the objects in the views of the
// gateway.
func viewRules(g *configv1alpha1.Gateway) (rules []rbacv1.PolicyRule) {
	for i := range g.Views.Objects {
		resource := &g.Views.Objects[i].Of
		rules = append(rules, rbacv1.PolicyRule{
			APIGroups: []string{resource.Group},
			Resources: []string{resource.Resource},
			Verbs:     []string{"get", "list", "watch"},
		})
	}
	return rules
}

// impersonatorRules returns the rules that allow the impersonator to impersonate the callers of a
// cluster. A rule lists names only if the configuration lists all names that the gateway can
// impersonate. Otherwise, the rule allows any name.
func (o *Options) impersonatorRules(c *configv1alpha1.GatewayCluster) []rbacv1.PolicyRule {
	verb := []string{"impersonate"}
	if c.Impersonator.Mode == configv1alpha1.ImpersonationConstrained {
		verb = []string{"impersonate:user-info"}
	}
	groups := rbacv1.PolicyRule{Resources: []string{"groups"}}
	extras := rbacv1.PolicyRule{Resources: []string{"userextras/" + tenant.ExtraKey}}
	if !slices.Contains(c.Tenants, tenant.AnyName) {
		for _, name := range c.Tenants {
			if to, mapped := c.TenantMap[name]; mapped {
				name = to
			}
			extras.ResourceNames = append(extras.ResourceNames, name)
			groups.ResourceNames = append(groups.ResourceNames, tenant.GroupPrefix+name)
		}
		if *c.Identity.GroupPattern != "" { // callers can then have groups that the configuration does not list
			groups.ResourceNames = nil
		}
	}
	rules := []rbacv1.PolicyRule{groups, extras}
	if users, anyUser := impersonatedUsers(c); anyUser || len(users) > 0 {
		rules = append([]rbacv1.PolicyRule{{Resources: []string{"users"}, ResourceNames: users}}, rules...)
	}
	for _, key := range c.Identity.Extras {
		rules = append(rules, rbacv1.PolicyRule{Resources: []string{"userextras/" + key}})
	}
	if c.Identity.WithUID {
		rules = append(rules, rbacv1.PolicyRule{Resources: []string{"uids"}})
	}
	constrained := c.Impersonator.Mode == configv1alpha1.ImpersonationConstrained
	if o.Accounts && !constrained {
		rules = append(rules, rbacv1.PolicyRule{Resources: []string{"serviceaccounts"}})
	}
	for i := range rules {
		rules[i].Verbs = verb
		rules[i].APIGroups = []string{""}
		if first := rules[i].Resources[0]; constrained || strings.HasPrefix(first, "userextras/") || first == "uids" {
			rules[i].APIGroups = []string{"authentication.k8s.io"}
		}
	}
	if constrained {
		rules = append(rules,
			rbacv1.PolicyRule{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: impersonateOn(verbs)},
			rbacv1.PolicyRule{NonResourceURLs: []string{"*"}, Verbs: impersonateOn(methods)})
	}
	return rules
}

// impersonateOn returns the verbs that constrained impersonation requires of the impersonator for
// requests with the given verbs (KEP-5284).
func impersonateOn(verbs []string) []string {
	out := make([]string, len(verbs))
	for i, v := range verbs {
		out[i] = "impersonate-on:user-info:" + v
	}
	return out
}

// impersonatedUsers returns the names of all users that the impersonator must impersonate. anyUser
// is true if the impersonator must be able to impersonate any user.
func impersonatedUsers(c *configv1alpha1.GatewayCluster) (names []string, anyUser bool) {
	switch {
	case !*c.Identity.WithUser:
		return []string{c.Identity.DefaultUser}, false
	case c.Identity.Unmapped == configv1alpha1.UnmappedDeny && !slices.Contains(c.Tenants, tenant.System().String()):
		for _, u := range c.Identity.Users {
			names = append(names, u.As)
		}
		return names, false
	}
	return nil, true // callers can have user names that the configuration does not list
}

func typeMeta(version, kind string) metav1.TypeMeta {
	return metav1.TypeMeta{APIVersion: version, Kind: kind}
}

func account(namespace, name string) *corev1.ServiceAccount {
	return &corev1.ServiceAccount{
		TypeMeta:   typeMeta("v1", "ServiceAccount"),
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
	}
}

func role(name string, rules []rbacv1.PolicyRule) *rbacv1.ClusterRole {
	return &rbacv1.ClusterRole{
		TypeMeta:   typeMeta(rbacv1.SchemeGroupVersion.String(), "ClusterRole"),
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Rules:      rules,
	}
}

func binding(namespace, name string) *rbacv1.ClusterRoleBinding {
	return &rbacv1.ClusterRoleBinding{
		TypeMeta:   typeMeta(rbacv1.SchemeGroupVersion.String(), "ClusterRoleBinding"),
		ObjectMeta: metav1.ObjectMeta{Name: name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: name}},
	}
}
