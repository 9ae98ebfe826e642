// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

// Package v1alpha1 contains the kinds of the API group kubetenant.dev/v1alpha1 that a cluster
// stores: Tenant, TenantQuota, TenantMembers, TenantUsage, RetiredTenant, NamespaceTemplate,
// Publication and AccessGrant.
//
// The deepcopy methods and the CustomResourceDefinitions in deploy/chart/crds are generated from
// this package. The clients, listers and informers in tenant/client are also generated. Run "make
// generate" after a change.
//
// The configuration file of a server has the same group and version. Its kind is in
// config/v1alpha1.
//
// +kubebuilder:object:generate=true
// +groupName=kubetenant.dev
package v1alpha1
