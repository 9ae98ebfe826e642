// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"maps"
	"regexp"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kubetenant/kubetenant/tenant"
)

// ProjectDeletion specifies the effect of the deletion of a Keystone project on its namespace.
//
// +kubebuilder:validation:Enum=Keep;Delete
type ProjectDeletion string

// The values of ProjectDeletion.
const (
	// ProjectDeletionKeep deletes the RoleBindings that the server created and retains the namespace.
	ProjectDeletionKeep ProjectDeletion = "Keep"
	// ProjectDeletionDelete deletes the namespace and all objects in it.
	ProjectDeletionDelete ProjectDeletion = "Delete"
)

// KeystoneSync specifies how the cluster follows the domains, projects and role assignments of
// Keystone. The server never writes to Keystone. The user of the clouds.yaml entry that cloud names
// must have a password and the role reader with system scope.
type KeystoneSync struct {
	// roles specifies the ClusterRole that the server binds for each Keystone role. The keys are the
	// names of Keystone roles. Roles that are not listed have no effect. Domain-specific roles have no
	// effect, even if a listed role has the same name. Required.
	// +required
	Roles map[string]string `json:"roles"`
	// interval specifies how often the server reads Keystone. Must be between 10s and 1h. Defaults to
	// 5m.
	// +optional
	Interval *metav1.Duration `json:"interval,omitempty"`
	// createTenants specifies whether the server creates a missing Tenant object for each enabled
	// domain that maps to a tenant. If false, a domain without a Tenant object has no effect. Defaults
	// to false.
	// +optional
	CreateTenants bool `json:"createTenants,omitempty"`
	// onProjectDeleted specifies the effect on the namespace after a project has been missing from
	// Keystone for 24 hours. Keep deletes the RoleBindings of the project and retains the namespace.
	// Delete deletes the namespace and all objects in it. Defaults to Keep.
	// +optional
	OnProjectDeleted ProjectDeletion `json:"onProjectDeleted,omitempty"`
}

const (
	minSyncInterval = 10 * time.Second
	maxSyncInterval = time.Hour
)

// clusterRoleName matches the names of ClusterRoles that are valid values of roles. RBAC allows
// more names, such as names with spaces.
var clusterRoleName = regexp.MustCompile(`^[a-zA-Z0-9]([-a-zA-Z0-9:._]{0,251}[a-zA-Z0-9])?$`)

func (k *KeystoneSync) setDefaults() {
	defaultDuration(&k.Interval, 5*time.Minute)
	defaultText(&k.OnProjectDeleted, ProjectDeletionKeep)
}

func (k *KeystoneSync) validate(s *validatedSource, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if s.claimed.synced != "" {
		errs = append(errs, field.Forbidden(path, "only one source may have it, and source "+s.claimed.synced+" has it"))
	}
	s.claimed.synced = s.Name
	if len(k.Roles) == 0 {
		errs = append(errs, field.Required(path.Child("roles"), "must map at least one Keystone role to a ClusterRole"))
	}
	for _, name := range slices.Sorted(maps.Keys(k.Roles)) {
		at := path.Child("roles").Key(name)
		if name == "" {
			errs = append(errs, field.Invalid(at, name, "the key must be the name of a Keystone role"))
		}
		if !clusterRoleName.MatchString(k.Roles[name]) {
			errs = append(errs, field.Invalid(at, k.Roles[name],
				"must be the name of a ClusterRole: letters, digits and the characters - : . _"))
		}
	}
	if i := k.Interval.Duration; i < minSyncInterval || i > maxSyncInterval {
		errs = append(errs, field.Invalid(path.Child("interval"), i.String(),
			"must be between "+minSyncInterval.String()+" and "+maxSyncInterval.String()))
	}
	if k.OnProjectDeleted != ProjectDeletionKeep && k.OnProjectDeleted != ProjectDeletionDelete {
		errs = append(errs, field.NotSupported(path.Child("onProjectDeleted"), k.OnProjectDeleted,
			[]ProjectDeletion{ProjectDeletionKeep, ProjectDeletionDelete}))
	}
	return errs
}

// Tenants returns the tenants in tenantMap, keyed by domain. It omits invalid tenant names.
func (k *Keystone) Tenants() map[string]tenant.ID {
	all := make(map[string]tenant.ID, len(k.TenantMap))
	for domain, name := range k.TenantMap {
		if id, err := tenant.Parse(name); err == nil {
			all[domain] = id
		}
	}
	return all
}

// SyncedKeystone returns the Keystone source that sets sync, or nil if there is none.
func (s *Settings) SyncedKeystone() *Source {
	for i := range s.Authentication.Sources {
		if k := s.Authentication.Sources[i].Keystone; k != nil && k.Sync != nil {
			return &s.Authentication.Sources[i]
		}
	}
	return nil
}
