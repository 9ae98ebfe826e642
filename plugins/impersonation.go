// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package plugins

import (
	"context"
	"slices"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/warning"

	"github.com/kubetenant/kubetenant/tenant"
)

// maxIdentityGroups is the maximum number of groups in an [Identity]. It bounds the number of
// authorization requests for one identity.
const maxIdentityGroups = 64

// Identity is a user identity that an annotation of an object records. Tenant is empty if the
// annotation names no tenant.
type Identity struct {
	User, UID, Tenant string
	Groups            []string
}

// ImpersonationCheck decides whether a caller that creates an object may set an annotation that
// names another user. An example is a backup tool that restores an object with its recorded
// creator. The zero value allows no identity.
type ImpersonationCheck struct {
	// Authorizer is the server's authorizer. It decides whether a caller may impersonate a user.
	Authorizer authorizer.Authorizer
	Subject    SubjectFunc
	Owner      OwnerFunc
}

// MayImpersonate reports whether u may set identity in an annotation of a new object of the
// tenant owner. The identity must belong to that tenant. The caller u must be allowed to
// impersonate the identity's user, UID and groups, except the groups that the server adds itself.
// A caller of another tenant must also be allowed to impersonate the extra that names the tenant
// owner. MayImpersonate returns false on any error.
//
// The authorization requests are those of the impersonation filter of kube-apiserver
// (k8s.io/apiserver pkg/endpoints/filters/impersonation, v0.37.1). They have the verb impersonate,
// and not the verbs of constrained impersonation.
func (m *ImpersonationCheck) MayImpersonate(ctx context.Context, u user.Info, identity Identity, owner tenant.ID) bool {
	if m.Authorizer == nil || owner.IsZero() || identity.User == "" || len(identity.Groups) > maxIdentityGroups ||
		identity.Tenant != "" && identity.Tenant != owner.String() {
		return false
	}
	requests, ok := m.requests(ctx, identity, owner)
	if !ok {
		return false
	}
	caller, err := m.Subject(ctx, u)
	if err != nil || caller.IsZero() {
		return false
	}
	if caller != owner {
		requests = append(requests, authorizer.AttributesRecord{
			APIGroup:    authenticationv1.GroupName,
			Resource:    "userextras",
			Subresource: tenant.ExtraKey,
			Name:        owner.String(),
		})
	}
	for i := range requests {
		r := &requests[i]
		r.User = u
		r.Verb = "impersonate"
		r.ResourceRequest = true
		if r.APIGroup == authenticationv1.GroupName {
			r.APIVersion = authenticationv1.SchemeGroupVersion.Version
		} else {
			r.APIVersion = corev1.SchemeGroupVersion.Version
		}
		if decision, _, err := m.Authorizer.Authorize(ctx, r); err != nil || decision != authorizer.DecisionAllow {
			return false
		}
	}
	return true
}

// requests returns the authorization requests for the impersonation of an identity, without the
// user and the verb. It returns false if the identity cannot belong to the tenant owner, or if the
// owner of a service account's namespace is unknown.
func (m *ImpersonationCheck) requests(
	ctx context.Context, identity Identity, owner tenant.ID,
) ([]authorizer.AttributesRecord, bool) {
	serverGroups := []string{user.AllAuthenticated, owner.Group()} // the server adds these groups itself
	name := authorizer.AttributesRecord{Resource: "users", Name: identity.User}
	if namespace, isAccount := tenant.ServiceAccountNamespace(identity.User); isAccount {
		if namespaceOwner, err := m.Owner(ctx, namespace); err != nil || namespaceOwner != owner {
			return nil, false
		}
		serverGroups = append(serverGroups, serviceaccount.MakeGroupNames(namespace)...)
		name.Resource = "serviceaccounts"
		name.Namespace = namespace
		name.Name = strings.TrimPrefix(identity.User, serviceaccount.MakeUsername(namespace, ""))
	}
	out := []authorizer.AttributesRecord{name}
	for _, group := range identity.Groups {
		if slices.Contains(serverGroups, group) {
			continue
		}
		if strings.HasPrefix(group, tenant.GroupPrefix) {
			return nil, false // the group of another tenant
		}
		out = append(out, authorizer.AttributesRecord{Resource: "groups", Name: group})
	}
	if identity.UID != "" {
		out = append(out, authorizer.AttributesRecord{
			APIGroup: authenticationv1.GroupName,
			Resource: "uids",
			Name:     identity.UID,
		})
	}
	return out, true
}

// OwnerOf returns the tenant that owns a new object. For an object in a namespace, this is the
// owner of the namespace. A Namespace belongs to the tenant in its label. A Namespace without the
// label and all other cluster-scoped objects belong to the system tenant.
func (m *ImpersonationCheck) OwnerOf(
	ctx context.Context,
	a admission.Attributes,
	newObj metav1.Object,
) (tenant.ID, error) {
	if a.GetResource().GroupResource() == (schema.GroupResource{Resource: "namespaces"}) {
		if label, ok := newObj.GetLabels()[tenant.Label]; ok {
			return tenant.Parse(label)
		}
		return tenant.System(), nil
	}
	if a.GetNamespace() == "" {
		return tenant.System(), nil
	}
	return m.Owner(ctx, a.GetNamespace())
}

// WarnRewritten warns the client of each annotation that the client sent on a new object and that
// the server changed or removed. The warnings do not contain the values.
func WarnRewritten(ctx context.Context, sent map[string]string, newObj metav1.Object, keys ...string) {
	for _, key := range keys {
		value, oldOK := sent[key]
		now, ok := newObj.GetAnnotations()[key]
		if !oldOK || ok && now == value {
			continue
		}
		if ok {
			warning.AddWarning(ctx, "", "the annotation "+key+" is managed by the server and was rewritten")
			continue
		}
		warning.AddWarning(ctx, "", "the annotation "+key+" is managed by the server and was removed")
	}
}
