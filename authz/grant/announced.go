package grant

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/selection"

	"github.com/kubetenant/kubetenant/authz"
	"github.com/kubetenant/kubetenant/tenant"
)

// The fields of an AccessGrant by which one is announced. Its definition names them as selectable
// (KEP-4358), so that the server itself keeps a list or a watch to what they select.
const (
	FieldTenant   = "spec.from.tenant"
	FieldAnnounce = "spec.announce"
)

const resource = "accessgrants"

// AnnouncedTo returns the fields that select the grants which are announced to a tenant.
func AnnouncedTo(id tenant.ID) fields.Selector {
	return fields.SelectorFromSet(fields.Set{FieldTenant: id.String(), FieldAnnounce: "true"})
}

// Announced reports whether a crossing is a list or a watch of AccessGrants over all
// namespaces that is limited to those which their owners announce to the caller's tenant. It
// has no end. It needs a server that tells authorizers of field selectors (KEP-4601): of one
// that does not, nothing is allowed.
func Announced(_ context.Context, c *authz.Crossing) (bool, time.Time) {
	if !c.IsResourceRequest() || c.GetVerb() != "list" && c.GetVerb() != "watch" ||
		c.GetAPIGroup() != tenant.Domain || c.GetResource() != resource || c.GetSubresource() != "" ||
		c.GetNamespace() != "" || c.GetName() != "" {
		return false, time.Time{}
	}
	selected, err := c.GetFieldSelector()
	announced := err == nil && !c.Caller.IsZero() &&
		has(selected, FieldTenant, c.Caller.String()) && has(selected, FieldAnnounce, "true")
	return announced, time.Time{}
}

// has reports whether a selector lets through only what has a field of just one value.
func has(selected fields.Requirements, field, value string) bool {
	for _, r := range selected {
		if r.Field == field && r.Value == value && (r.Operator == selection.Equals || r.Operator == selection.DoubleEquals) {
			return true
		}
	}
	return false
}
