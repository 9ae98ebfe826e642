// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package projects

import (
	"context"
	"errors"

	"github.com/kubetenant/kubetenant/authn/keystone"
	configv1alpha1 "github.com/kubetenant/kubetenant/config/v1alpha1"
	"github.com/kubetenant/kubetenant/internal/reload"
	"github.com/kubetenant/kubetenant/tenant"
)

// SettingsOf converts a source in a valid configuration to settings. keystone.sync of the source
// must be set.
func SettingsOf(source *configv1alpha1.Source) (Settings, error) {
	config := source.Keystone
	allowed, err := tenant.ParseSet(source.Tenants)
	if err != nil {
		return Settings{}, err
	}
	domains := &keystone.Options{
		DomainID: config.Domain == configv1alpha1.DomainByID,
		Tenants:  config.Tenants(),
	}
	return Settings{
		TenantOf: func(id, name string) (tenant.ID, error) {
			tenantID, err := domains.TenantOf(id, name)
			if err == nil && !allowed.Has(tenantID) {
				return tenant.ID{}, keystone.ErrDomain // the source may not assert the tenant
			}
			return tenantID, err
		},
		GroupsPrefix:     source.GroupsPrefix,
		Roles:            config.Sync.Roles,
		Interval:         config.Sync.Interval.Duration,
		CreateTenants:    config.Sync.CreateTenants,
		DeleteNamespaces: config.Sync.OnProjectDeleted == configv1alpha1.ProjectDeletionDelete,
	}, nil
}

// Open returns a reader for the Keystone that a source specifies. The reader reloads cloudsFile
// when the file changes, while run runs.
func Open(
	source *configv1alpha1.Source, report reload.Report,
) (reader *keystone.Directory, run func(ctx context.Context), err error) {
	return keystone.OpenDirectory(source.Keystone.CloudsFile, source.Keystone.Cloud, source.Keystone.AuthURL, report)
}

// Remedy returns advice for an administrator about an error of [Reader.Read].
func Remedy(err error) string {
	if errors.Is(err, keystone.ErrIncomplete) {
		return "check that the service user has the role reader with system scope"
	}
	return "check authURL, cloudsFile and the network"
}
