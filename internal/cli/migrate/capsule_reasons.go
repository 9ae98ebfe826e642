// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package migrate

const (
	ownRecord       = "it is an internal record of Capsule; remove it from the file"
	writtenByTenant = "a tenant wrote it, and a Publication uses the rights of the platform. Check the objects, " +
		"move them to a namespace of the system tenant, and publish them with kubectl tenant publish --to TENANT"
	useQuota          = "limit the tenant with spec.quota of its Tenant"
	onlyCapsuleTenant = "it applies only to Capsule's Tenant object; set the metadata that your tools " +
		"need on the new Tenant"
	noBindingMetadata = "a Tenant's RoleBindings cannot have labels or annotations; remove them from the file"
	isDeleting        = "Capsule is deleting the Tenant, and its namespaces with it; do not adopt them"
	notPromoted       = "service accounts are not promoted; add them to spec.admins or spec.bindings " +
		"after the adoption"
	notAnOwner = "the owner or role is not in spec.owners; if it is needed, add it to spec.admins " +
		"or spec.bindings"
	noObjectMetadata       = "labels and annotations of such objects are not set; use a mutating admission policy"
	noNamespaceAnnotations = "annotations of namespaces are not set; set them by hand, or use a mutating admission policy"
	onlyUnselectedLabels   = "only labels of an entry without a namespaceSelector can be set; label the other " +
		"namespaces by hand"
	metadataRules = "a tenant cannot set a label or annotation with a domain unless the configuration " +
		"allows it; check admission.namespace.allowedLabels and allowedAnnotations"
	noServiceMetadata = "labels and annotations of Services are not limited; use a ValidatingAdmissionPolicy"
)

// capsuleKinds contains advice for each kind of Capsule that the migration does not convert.
var capsuleKinds = map[string]string{
	"CapsuleConfiguration": "the server's configuration has different settings; see admission.namespace",
	"TenantResource":       writtenByTenant,
	"ResourcePool":         useQuota + ", or limit each namespace with a ResourceQuota in a NamespaceTemplate",
	"ResourcePoolClaim":    useQuota,
	"TenantOwner":          "add the owner to spec.admins or spec.bindings of each Tenant that it owns",
	"CustomQuota":          useQuota + ", as count/<resource>.<group>",
	"GlobalCustomQuota":    useQuota + ", as count/<resource>.<group>",
	"GlobalResourceQuota":  useQuota,
	"QuantityLedger":       ownRecord,
	"RuleStatus":           ownRecord,
}

// capsuleReasons returns why fields of a Capsule Tenant are not converted, with advice. Fields
// with the reason unknownField are partly converted.
func capsuleReasons() reasons {
	return reasons{
		"metadata.labels":      onlyCapsuleTenant,
		"metadata.annotations": onlyCapsuleTenant,
		"metadata.ownerReferences": "the owner reference would cause the new Tenant to be deleted; remove it " +
			"from the file",
		"metadata.deletionTimestamp":          isDeleting,
		"metadata.deletionGracePeriodSeconds": isDeleting,
		"status.owners":                       notAnOwner,
		"status.promotions":                   notPromoted,

		"spec.data":  "a Tenant has no field for arbitrary data; use an annotation or a ConfigMap",
		"spec.rules": "rules by namespace are not supported; use a ValidatingAdmissionPolicy, or admission.policy",

		"spec.permissions.allowOwnerPromotion": notPromoted,
		"spec.permissions.matchOwners": "selecting owners by label is not supported; add them to spec.admins or " +
			"spec.bindings",

		"spec.owners":                             unknownField,
		"spec.owners.proxySettings":               "kubetenant has no proxy; see authorization.sharedClusterResources",
		"spec.owners.labels":                      noBindingMetadata,
		"spec.owners.annotations":                 noBindingMetadata,
		"spec.additionalRoleBindings":             unknownField,
		"spec.additionalRoleBindings.labels":      noBindingMetadata,
		"spec.additionalRoleBindings.annotations": noBindingMetadata,

		"spec.namespaceOptions.additionalMetadata":             unknownField,
		"spec.namespaceOptions.additionalMetadata.annotations": noNamespaceAnnotations,
		"spec.namespaceOptions.additionalMetadataList":         onlyUnselectedLabels,
		"spec.namespaceOptions.requiredMetadata": "required metadata is not supported; set labels with " +
			"spec.namespaces.labels",
		"spec.namespaceOptions.forbiddenLabels":      metadataRules,
		"spec.namespaceOptions.forbiddenAnnotations": metadataRules,

		"spec.ingressOptions.hostnameCollisionScope": "host name collisions are not checked; list the tenant's own hosts " +
			"in admission.policy.hosts",
		"spec.deviceClasses": "device classes are not limited by tenant; use a ResourceQuota in a NamespaceTemplate",

		"spec.podOptions":                          noObjectMetadata,
		"spec.serviceOptions.additionalMetadata":   noObjectMetadata,
		"spec.serviceOptions.allowedServices":      unknownField,
		"spec.serviceOptions.forbiddenLabels":      noServiceMetadata,
		"spec.serviceOptions.forbiddenAnnotations": noServiceMetadata,
		"spec.serviceOptions.externalIPs": "external IPs are allowed or forbidden for all tenants; " +
			"set admission.services.externalIPs to Forbid",
	}
}
