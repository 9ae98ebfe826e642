// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubetenant/kubetenant/tenant"
)

const (
	// GroupVersion is the group and version of the project's kinds and files, as in an apiVersion.
	GroupVersion = tenant.Domain + "/" + version

	version = "v1alpha1"
)

// SchemeGroupVersion is the group and version of the project's kinds. Callers MUST NOT change it.
// It is a variable because the generated clients, listers and informers read it by this name.
var SchemeGroupVersion = schema.GroupVersion{Group: tenant.Domain, Version: version}

// Resource returns the given resource in the API group of the project. For a resource with its
// group and version, use [SchemeGroupVersion].
func Resource(name string) schema.GroupResource {
	return SchemeGroupVersion.WithResource(name).GroupResource()
}

// AddToScheme adds the project's kinds and their lists to a scheme.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(
		SchemeGroupVersion,
		&AccessGrant{}, &AccessGrantList{},
		&NamespaceTemplate{}, &NamespaceTemplateList{},
		&Publication{}, &PublicationList{},
		&RetiredTenant{}, &RetiredTenantList{},
		&Tenant{}, &TenantList{},
		&TenantMembers{}, &TenantMembersList{},
		&TenantQuota{}, &TenantQuotaList{},
		&TenantUsage{}, &TenantUsageList{},
	)
	metav1.AddToGroupVersion(s, SchemeGroupVersion)
	return nil
}
