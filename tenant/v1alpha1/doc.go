// Package v1alpha1 holds the kinds of the group kubetenant.dev/v1alpha1 that a cluster stores:
// Tenant, TenantQuota, TenantMembers, RetiredTenant, NamespaceTemplate and AccessGrant, and their
// CustomResourceDefinitions.
//
// The configuration file of a server has the same group and version. It is in config/v1alpha1.
package v1alpha1
