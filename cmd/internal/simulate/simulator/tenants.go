package simulator

import (
	"github.com/kubetenant/kubetenant"
	"github.com/kubetenant/kubetenant/authz"
	"github.com/kubetenant/kubetenant/tenant"
)

// TenantObjects returns what the Tenants say.
func (s *Snapshot) TenantObjects() kubetenant.Tenants { return tenantObjects(s.Tenants) }

type tenantObjects map[tenant.ID]authz.Access

// Of implements [kubetenant.Tenants].
func (t tenantObjects) Of(id tenant.ID) authz.Access {
	if access, exists := t[id]; exists {
		return access
	}
	return authz.AccessNone
}

// TenantOf implements [kubetenant.Tenants].
func (t tenantObjects) TenantOf(name string) tenant.ID {
	for id := range t {
		if id.ObjectName() == name {
			return id
		}
	}
	return tenant.ID{}
}
