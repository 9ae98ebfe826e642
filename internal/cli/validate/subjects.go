// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package validate

import (
	"context"
	"fmt"
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kubetenant/kubetenant/cluster/provision"
	configv1alpha1 "github.com/kubetenant/kubetenant/config/v1alpha1"
	"github.com/kubetenant/kubetenant/plugins/rolebinding"
	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

// subjects returns the findings for subjects in a Tenant or TenantMembers that the server would
// reject. The files do not show the owner of a namespace. Therefore, each namespace of a service
// account is assumed to belong to the tenant, unless it is a system namespace.
func (r *run) subjects(d *document) ([]Finding, error) {
	value, err := d.value()
	if err != nil {
		return nil, nil // check reports the error
	}
	delete(value, "status") // the API server ignores a status in a creation
	spread := spreadOf(d.kind, value)
	if spread == nil {
		return nil, nil
	}
	settings, err := r.settings()
	if err != nil {
		return nil, err
	}
	check := rolebinding.Subjects{
		ReferencedOwner: func(_ context.Context, by tenant.ID, namespace string) (tenant.ID, error) {
			if slices.Contains(r.systemNamespaces, namespace) {
				return tenant.System(), nil
			}
			return by, nil
		},
		Names:          settings.Authorization.SystemSubjects.Names(),
		QualifiedNames: settings.Authentication.QualifyNames,
	}
	var found []Finding
	for _, role := range spread.Roles {
		for i, s := range role.Subjects {
			if err := check.Check(r.ctx, spread.Tenant, s); err != nil {
				name := "name"
				if s.Kind == rbacv1.ServiceAccountKind {
					name = "namespace"
				}
				found = append(found, d.at(fmt.Sprintf("%s[%d].%s", role.Path, i, name), err.Error(),
					"write a user, a group or a service account of the tenant"))
			}
		}
	}
	return found, nil
}

// settings returns the settings in the first valid TenancyConfiguration among the files, or the
// default settings if there is none.
func (r *run) settings() (*configv1alpha1.Settings, error) {
	if r.config == nil {
		return (&configv1alpha1.Settings{}).Complete()
	}
	config, err := configv1alpha1.Decode(r.config.data)
	if err != nil {
		return nil, err
	}
	return &config.Settings, nil
}

// spreadOf returns the bindings in a Tenant or TenantMembers. It returns nil for any other kind,
// and if the object is invalid.
func spreadOf(kind string, value map[string]any) *rolebinding.Bindings {
	converter := runtime.DefaultUnstructuredConverter
	switch kind {
	case v1alpha1.KindTenant:
		var object v1alpha1.Tenant
		if converter.FromUnstructured(value, &object) == nil {
			if id, err := tenant.Parse(object.Spec.ID); err == nil {
				return provision.SpreadOf(id, &object.Spec)
			}
		}
	case v1alpha1.KindTenantMembers:
		var object v1alpha1.TenantMembers
		if converter.FromUnstructured(value, &object) == nil {
			if id, err := tenant.Parse(object.Spec.ID); err == nil {
				return provision.MembersSpreadOf(id, &object.Spec)
			}
		}
	}
	return nil
}
