// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package accessgrant

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/selection"

	"github.com/kubetenant/kubetenant/authz"
	"github.com/kubetenant/kubetenant/tenant"
)

// The fields of an AccessGrant that select the announced grants. Its CustomResourceDefinition lists
// them as selectable fields (KEP-4358), so that the server limits a list or a watch to the selected
// grants.
const (
	FieldTenant   = "spec.from.tenant"
	FieldAnnounce = "spec.announce"
	// FieldAnnouncedTo is written by the server. It is empty if the grant was announced to an
	// earlier tenant of the same name.
	FieldAnnouncedTo = "status.announcedTo"
)

const resource = "accessgrants"

// AnnouncedSelector returns the field selector for the grants that are announced to a tenant.
func AnnouncedSelector(id tenant.ID) fields.Selector {
	return fields.SelectorFromSet(fields.Set{
		FieldTenant:      id.String(),
		FieldAnnounce:    "true",
		FieldAnnouncedTo: id.String(),
	})
}

// AllowsAnnounced reports whether a cross-tenant request is a list or a watch of AccessGrants over
// all namespaces. Its field selector must limit it to the grants announced to the caller's tenant.
// The permission does not expire. If the server does not pass field selectors to authorizers
// (KEP-4601), no request is allowed.
func AllowsAnnounced(_ context.Context, c *authz.CrossTenantRequest) (bool, time.Time) {
	if !c.IsResourceRequest() || c.GetVerb() != "list" && c.GetVerb() != "watch" ||
		c.GetAPIGroup() != tenant.Domain || c.GetResource() != resource || c.GetSubresource() != "" ||
		c.GetNamespace() != "" || c.GetName() != "" {
		return false, time.Time{}
	}
	selected, err := c.GetFieldSelector()
	announced := err == nil && !c.Caller.IsZero() &&
		requiresField(selected, FieldTenant, c.Caller.String()) && requiresField(selected, FieldAnnounce, "true") &&
		requiresField(selected, FieldAnnouncedTo, c.Caller.String())
	return announced, time.Time{}
}

// requiresField reports whether a field selector requires that a field has exactly this value.
func requiresField(selected fields.Requirements, field, value string) bool {
	for _, r := range selected {
		if r.Field == field && r.Value == value && (r.Operator == selection.Equals || r.Operator == selection.DoubleEquals) {
			return true
		}
	}
	return false
}
