// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kubetenant/kubetenant/tenant"
	tenantv1alpha1 "github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

// namelessTenants returns a warning for each tenant of a source that cannot create a namespace
// because no namespace name can begin with the name of the tenant.
func (s *Settings) namelessTenants() []string {
	if s.Admission.Namespace.NamespacePrefix != tenantv1alpha1.NamespacePrefixRequired {
		return nil
	}
	var warnings []string
	for i := range s.Authentication.Sources {
		at := field.NewPath("authentication", "sources").Index(i)
		for _, t := range s.Authentication.Sources[i].namedTenants(at) {
			if t.name != "" && t.name != tenant.AnyName && len(validation.IsDNS1123Label(t.name)) > 0 {
				warnings = append(warnings, fmt.Sprintf(
					"%s: tenant %s cannot create a namespace, because the name of a namespace cannot begin with %s--: "+
						"use lower-case letters, digits and -, and map other names", t.at, t.name, t.name))
			}
		}
	}
	return warnings
}

// namedTenant is a field of a source that names a tenant.
type namedTenant struct {
	at   *field.Path
	name string
}

// namedTenants returns the fields of a source that name tenants. Keys of maps are not included.
func (s *Source) namedTenants(at *field.Path) []namedTenant {
	var all []namedTenant
	for i, name := range s.Tenants {
		all = append(all, namedTenant{at.Child("tenants").Index(i), name})
	}
	for kind, f := range map[string]*CredentialFile{"tokenFile": s.TokenFile, "basicAuthFile": s.BasicAuthFile} {
		if f != nil {
			all = append(all, namedTenant{at.Child(kind, "defaultTenant"), f.DefaultTenant})
		}
	}
	if s.OIDC != nil {
		all = append(all, namedTenant{at.Child("oidc", "tenant", "value"), s.OIDC.Tenant.Value})
	}
	if s.Webhook != nil {
		all = append(all, namedTenant{at.Child("webhook", "tenant", "value"), s.Webhook.Tenant.Value})
	}
	if s.Keystone != nil {
		for _, from := range slices.Sorted(maps.Keys(s.Keystone.TenantMap)) {
			all = append(all, namedTenant{at.Child("keystone", "tenantMap").Key(from), s.Keystone.TenantMap[from]})
		}
	}
	return all
}
