package accessgrant

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/kubetenant/kubetenant/authz/grant"
	grantplugin "github.com/kubetenant/kubetenant/plugins/grant"
	"github.com/kubetenant/kubetenant/tenant"
)

// grantOf returns what a grant says, or nil for one that does not count: that nobody recorded, or
// that is not accepted or being deleted.
func grantOf(u *unstructured.Unstructured) (*grant.Grant, error) {
	g, err := Parse(u)
	if err != nil || g.Spec.Grantor == nil || !Accepted(g) || g.DeletionTimestamp != nil {
		return nil, err
	}
	out := &grant.Grant{
		Namespace: g.Namespace,
		Name:      g.Name,
		UID:       g.UID,
		Users:     g.Spec.From.Users,
		Groups:    g.Spec.From.Groups,
		Grantee:   g.Spec.Grantor.Grantee,
	}
	if out.Owner, err = tenant.Parse(g.Spec.Grantor.Owner); err != nil {
		return nil, err
	}
	if out.Tenant, err = tenant.Parse(g.Spec.From.Tenant); err != nil {
		return nil, err
	}
	if grantor, err := tenant.Parse(g.Spec.Grantor.Tenant); err != nil || grantor != out.Owner && !grantor.IsSystem() {
		return nil, err // a grantee's grant would be its own reason
	}
	for _, name := range g.Spec.From.ServiceAccounts {
		out.Users = append(out.Users, serviceaccount.MakeUsername(name.Namespace, name.Name))
	}
	if g.Spec.Expires != nil {
		out.Expires = g.Spec.Expires.Time
	}
	for _, r := range g.Spec.To {
		out.Rules = append(out.Rules, grant.Rule{
			APIGroups:     r.APIGroups,
			Resources:     r.Resources,
			Verbs:         r.Verbs,
			ResourceNames: r.ResourceNames,
		})
	}
	return out, nil
}

// RequestOf is what the admission plugin is told of a grant.
func RequestOf(obj runtime.Object) (*grantplugin.Request, error) {
	g, err := Parse(obj)
	if err != nil {
		return nil, err
	}
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
