// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"github.com/kubetenant/kubetenant/authz"
	"github.com/kubetenant/kubetenant/cluster/tenants"
	"github.com/kubetenant/kubetenant/tenant"
)

// Advice returns the advice for a denial if only the text of its reason is known. It returns nil if
// the text is not a reason of the boundary.
func Advice(text string, caller tenant.ID) *Remedy {
	reason, _ := authz.ReasonOf(text)
	advice := adviceFor(reason, caller)
	switch reason {
	case authz.ReasonCluster:
		advice = "The cluster's admin can let every tenant read a cluster-scoped resource " +
			"(authorization.sharedClusterResources).\n" + policyFile
	case authz.ReasonNamespaceVerb, authz.ReasonPath:
		advice = policyFile
	}
	if advice == "" {
		return nil
	}
	return &Remedy{Text: advice}
}

// policyFile is the advice for a denial that a line of the policy file may override, depending on
// the request.
const policyFile = "The cluster's admin can allow some requests of this kind in the policy file " +
	"(authorization.abac.path)."

// adviceFor returns the advice for a reason, or "" if the reason allows the request. The advice
// contains no name that the caller does not know.
func adviceFor(reason authz.Reason, caller tenant.ID) string {
	switch reason {
	case authz.ReasonNoTenant:
		return "The caller has no tenant. A source of the configuration must set it (with --as: add --tenant)."
	case authz.ReasonBadTenant:
		return "The caller's tenant is not valid, or its lookup failed. The server's log shows why."
	case authz.ReasonSystemGroup:
		return "A tenant's caller may not be in a group that begins with system:. Remove the caller from the group."
	case authz.ReasonMalformed:
		return "Issue a credential without white space at the beginning or end of a name, and without invisible characters."
	case authz.ReasonRevoked:
		return "The caller is revoked. Remove it from the revocation file (authentication.revocation.path)."
	case authz.ReasonImpersonation:
		return "No setting allows a tenant's caller to impersonate an identity outside its tenant."
	case authz.ReasonNotOwned:
		return "The namespace does not exist, or it does not belong to the caller's tenant.\nTo list the tenant's " +
			"namespaces, run kubectl get namespaces."
	case authz.ReasonNotLimited:
		return "Name a namespace with -n. For a list of all namespaces, add -l " + tenant.Label + "=" + caller.String() + "."
	case authz.ReasonNotNamed:
		return "Add --field-selector metadata.name=" + caller.ObjectName() + ". For tenantquotas, add --field-selector " +
			tenants.QuotaTenantField + "=" + caller.String() + "."
	case authz.ReasonNotLabeled:
		return "The server is still labeling older objects of this resource. Try again in a moment."
	case authz.ReasonWildcard:
		return "No tenant may use wildcards. Name one verb and one resource."
	case authz.ReasonReview:
		return "Use a self review instead: kubectl auth can-i, kubectl auth whoami."
	case authz.ReasonRules:
		return "Check one verb and one resource instead: kubectl auth can-i VERB RESOURCE."
	case authz.ReasonTenantPath:
		return "The server URL names another tenant. Correct /tenants/... in the kubeconfig."
	case authz.ReasonTenantPathAll:
		return "Only the system tenant may use /tenants/all. Remove it from the server URL in the kubeconfig."
	case authz.ReasonTenantPathOnly:
		return "The server URL ends in a tenant path. Remove /tenants/... to use grants and the policy file."
	case authz.ReasonOwnerUnknown:
		return "The owner of the namespace is unknown. Try again. The server's log shows what failed."
	case authz.ReasonStale:
		return "The server has no current view of the cluster. Try again. Its /readyz?verbose shows what is missing."
	case authz.ReasonNoTenantObject:
		return "The caller's tenant has no Tenant object. The cluster's admin can create it."
	case authz.ReasonRetired:
		return "The caller's tenant was deleted. Its credentials stay invalid."
	case authz.ReasonUndated:
		return "The credential may belong to a deleted tenant of the same name. Use a credential with an issue time."
	case authz.ReasonClosed, authz.ReasonReadOnly:
		return "The cluster's admin has closed the tenant. To end a suspension, run kubectl tenant resume."
	case authz.ReasonCluster, authz.ReasonNamespaceVerb, authz.ReasonPath:
		return noSetting
	case authz.ReasonGrant, authz.ReasonAnnounced, authz.ReasonABAC, authz.ReasonException:
		return "" // these reasons allow the request
	}
	return ""
}
