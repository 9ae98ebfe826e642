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

// maxMarkGroups is the maximum number of groups that a mark may name. It bounds the number of
// authorization requests for one object.
const maxMarkGroups = 64

// Person is the caller that a mark names. Tenant is empty if the mark names no tenant.
type Person struct {
	User, UID, Tenant string
	Groups            []string
}

// Marks decides whether the creator of an object may keep a mark that the object has. An example is
// the recorded creator of an object that a backup tool restores. The zero value keeps no mark.
type Marks struct {
	// Authorizer is the server's authorizer. It decides whether a caller may impersonate a person.
	Authorizer authorizer.Authorizer
	Subject    SubjectFunc
	Owner      OwnerFunc
}

// MayKeep reports whether u may keep a mark that names person on an object of the tenant owner. The
// person must belong to that tenant, and u must be allowed to impersonate the person with all its
// groups. MayKeep returns false on any error.
//
// The requests are those of the impersonation filter of kube-apiserver (k8s.io/apiserver
// pkg/endpoints/filters/impersonation, v0.37.1). Only the verb impersonate is used.
func (m *Marks) MayKeep(ctx context.Context, u user.Info, person Person, owner tenant.ID) bool {
	if m.Authorizer == nil || owner.IsZero() || person.User == "" || len(person.Groups) > maxMarkGroups ||
		person.Tenant != "" && person.Tenant != owner.String() {
		return false
	}
	requests, ok := m.requests(ctx, person, owner)
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
		r.User, r.Verb, r.ResourceRequest = u, "impersonate", true
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

// requests returns the authorization requests for the impersonation of a person, without the
// caller. It returns false if the person cannot belong to the tenant owner.
func (m *Marks) requests(
	ctx context.Context, person Person, owner tenant.ID,
) ([]authorizer.AttributesRecord, bool) {
	added := []string{user.AllAuthenticated, owner.Group()} // the server adds these groups itself
	name := authorizer.AttributesRecord{Resource: "users", Name: person.User}
	if namespace, isAccount := tenant.ServiceAccountNamespace(person.User); isAccount {
		if of, err := m.Owner(ctx, namespace); err != nil || of != owner {
			return nil, false
		}
		added = append(added, serviceaccount.MakeGroupNames(namespace)...)
		name.Resource, name.Namespace = "serviceaccounts", namespace
		name.Name = strings.TrimPrefix(person.User, serviceaccount.MakeUsername(namespace, ""))
	}
	out := []authorizer.AttributesRecord{name}
	for _, group := range person.Groups {
		switch {
		case slices.Contains(added, group):
		case strings.HasPrefix(group, tenant.GroupPrefix):
			return nil, false // the group of another tenant
		default:
			out = append(out, authorizer.AttributesRecord{Resource: "groups", Name: group})
		}
	}
	if person.UID != "" {
		out = append(out, authorizer.AttributesRecord{
			APIGroup: authenticationv1.GroupName,
			Resource: "uids",
			Name:     person.UID,
		})
	}
	return out, true
}

// OwnerOf returns the tenant that owns a new object: the owner of its namespace, the tenant in the
// label of a Namespace, or the system tenant.
func (m *Marks) OwnerOf(ctx context.Context, a admission.Attributes, is metav1.Object) (tenant.ID, error) {
	if a.GetResource().GroupResource() == (schema.GroupResource{Resource: "namespaces"}) {
		if label, has := is.GetLabels()[tenant.Label]; has {
			return tenant.Parse(label)
		}
		return tenant.System(), nil
	}
	if a.GetNamespace() == "" {
		return tenant.System(), nil
	}
	return m.Owner(ctx, a.GetNamespace())
}

// WarnRewritten warns the client of each annotation of a new object that differs from the sent
// annotation. It never repeats a value.
func WarnRewritten(ctx context.Context, sent map[string]string, is metav1.Object, keys ...string) {
	for _, key := range keys {
		value, had := sent[key]
		now, has := is.GetAnnotations()[key]
		switch {
		case !had, has && now == value:
		case has:
			warning.AddWarning(ctx, "", "the annotation "+key+" is managed by the server and was rewritten")
		default:
			warning.AddWarning(ctx, "", "the annotation "+key+" is managed by the server and was removed")
		}
	}
}
