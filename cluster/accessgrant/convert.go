// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package accessgrant

import (
	"slices"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/kubetenant/kubetenant/authz/accessgrant"
	"github.com/kubetenant/kubetenant/internal/typed"
	grantplugin "github.com/kubetenant/kubetenant/plugins/accessgrant"
	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

// grantOf converts an AccessGrant. It returns nil if the grant allows nothing, for example because
// it has no grantor, is not accepted or is being deleted. It returns an error if the grant is
// invalid. The result shares slices with the object.
func grantOf(obj any) (*accessgrant.Grant, error) {
	g, err := typed.FromInformer[v1alpha1.AccessGrant](obj)
	if err != nil {
		return nil, err
	}
	err = Validate(g).ToAggregate()
	if err != nil || g.Spec.Grantor == nil || !Accepted(g) || g.DeletionTimestamp != nil {
		return nil, err
	}
	out := &accessgrant.Grant{
		Namespace:   g.Namespace,
		Name:        g.Name,
		UID:         g.UID,
		Users:       slices.Clone(g.Spec.From.Users),
		Groups:      g.Spec.From.Groups,
		GranteeSeal: g.Spec.Grantor.Grantee,
	}
	if out.Owner, err = tenant.Parse(g.Spec.Grantor.Owner); err != nil {
		return nil, err
	}
	if out.Tenant, err = tenant.Parse(g.Spec.From.Tenant); err != nil {
		return nil, err
	}
	if grantor, err := tenant.Parse(g.Spec.Grantor.Tenant); err != nil || grantor != out.Owner && !grantor.IsSystem() {
		return nil, err // a tenant must not grant itself access
	}
	for _, name := range g.Spec.From.ServiceAccounts {
		out.Users = append(out.Users, serviceaccount.MakeUsername(name.Namespace, name.Name))
	}
	if g.Spec.Expires != nil {
		out.Expires = g.Spec.Expires.Time
	}
	for _, r := range g.Spec.To {
		out.Rules = append(out.Rules, accessgrant.Rule{
			APIGroups:     r.APIGroups,
			Resources:     r.Resources,
			Verbs:         r.Verbs,
			ResourceNames: r.ResourceNames,
		})
	}
	return out, nil
}

// RequestOf decodes and validates a grant for the admission plugin.
func RequestOf(obj runtime.Object) (*grantplugin.Request, error) {
	g, err := Parse(obj)
	if err != nil {
		return nil, err
	}
	return requestOf(g)
}

func requestOf(g *v1alpha1.AccessGrant) (*grantplugin.Request, error) {
	var err error
	request := &grantplugin.Request{}
	if request.From, err = tenant.Parse(g.Spec.From.Tenant); err != nil {
		return nil, err
	}
	if g.Spec.Expires != nil {
		request.Expires = g.Spec.Expires.Time
	}
	for _, a := range Actions(g) {
		request.Actions = append(request.Actions, authorizer.AttributesRecord{
			ResourceRequest: true,
			Namespace:       g.Namespace,
			APIGroup:        a.APIGroup,
			APIVersion:      "*",
			Resource:        a.Resource,
			Subresource:     a.Subresource,
			Name:            a.Name,
			Verb:            a.Verb,
		})
	}
	return request, nil
}
