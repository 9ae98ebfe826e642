package migrate

// capsuleKinds say what to use instead of the objects of Capsule that a migration does not convert, by their kind.
var capsuleKinds = map[string]string{
	"CapsuleConfiguration": "the server's configuration has other settings; " +
		"see admission.namespace there, and give callers their tenant by their credentials",
	"GlobalTenantResource": "name a NamespaceTemplate in spec.namespaces.templates of the Tenants that need these objects",
	"TenantResource":       "name a NamespaceTemplate in spec.namespaces.templates of the Tenant that needs these objects",
	"ResourcePool":         "limit the tenant by spec.quota of its Tenant, or each namespace by a ResourceQuota in a NamespaceTemplate",
	"ResourcePoolClaim":    "there are no claims; limit the tenant by spec.quota of its Tenant",
	"TenantOwner":          "name the owner in spec.admins or spec.bindings of each Tenant that it owns",
	"CustomQuota":          "limit objects by count/<resource>.<group> in spec.quota of the Tenant",
	"GlobalCustomQuota":    "limit objects by count/<resource>.<group> in spec.quota of each Tenant",
	"GlobalResourceQuota":  "limit each tenant by spec.quota of its Tenant",
	"QuantityLedger":       "it is Capsule's own record and of no use without it",
	"RuleStatus":           "it is Capsule's own record and of no use without it",
}

const (
	metadataOfPods = "labels and annotations are set on namespaces only; " +
		"use a mutating admission policy for other objects"
	metadataRules = "a tenant sets no label or annotation with a domain unless the configuration allows it; " +
		"check admission.namespace.allowedLabels and allowedAnnotations"
)

// capsuleReasons say why fields of a Capsule Tenant are not carried over, and what to do.
func capsuleReasons() reasons {
	return reasons{
		"metadata.labels":                          "labels of the Tenant itself; set on the new Tenant what your tools need",
		"metadata.annotations":                     "annotations of the Tenant itself; set on the new Tenant what your tools need",
		"metadata.ownerReferences":                 "the owner would delete the new Tenant; leave it out",
		"metadata.deletionTimestamp":               "Capsule is deleting the Tenant, and its namespaces with it; do not adopt them",
		"metadata.deletionGracePeriodSeconds":      "Capsule is deleting the Tenant, and its namespaces with it; do not adopt them",
		"status.owners":                            "the owner, or its role, is not in spec.owners; name it in spec.admins or spec.bindings if it is still wanted",
		"status.promotions":                        "service accounts are not promoted; name them in spec.admins or spec.bindings after the adoption",
		"spec.data":                                "a Tenant holds no free data; keep it in an annotation or a ConfigMap",
		"spec.rules":                               "rules by namespace are not supported; use a ValidatingAdmissionPolicy, or admission.policy of the configuration",
		"spec.permissions.allowOwnerPromotion":     "service accounts are not promoted; name them in spec.admins or spec.bindings after the adoption",
		"spec.permissions.matchOwners":             "owners are not selected by labels; name them in spec.admins or spec.bindings",
		"spec.owners":                              unknownField,
		"spec.owners.proxySettings":                "there is no proxy that needs it; allow shared cluster resources by authorization.sharedClusterResources",
		"spec.owners.labels":                       "a Tenant's RoleBindings have no labels of their own; leave it out",
		"spec.owners.annotations":                  "a Tenant's RoleBindings have no annotations of their own; leave it out",
		"spec.additionalRoleBindings":              unknownField,
		"spec.additionalRoleBindings.labels":       "a Tenant's RoleBindings have no labels of their own; leave it out",
		"spec.additionalRoleBindings.annotations":  "a Tenant's RoleBindings have no annotations of their own; leave it out",
		"spec.namespaceOptions.additionalMetadata": unknownField,
		"spec.namespaceOptions.additionalMetadata.annotations": "annotations of namespaces are not set; set them on each namespace, " +
			"or use a mutating admission policy",
		"spec.namespaceOptions.additionalMetadataList": "only an entry without a namespaceSelector, and of it only labels, can be set; " +
			"label the other namespaces one by one",
		"spec.namespaceOptions.requiredMetadata":     "labels are not required of the caller; set them by spec.namespaces.labels",
		"spec.namespaceOptions.forbiddenLabels":      metadataRules,
		"spec.namespaceOptions.forbiddenAnnotations": metadataRules,
		"spec.ingressOptions.hostnameCollisionScope": "collisions of hosts are not checked; list the tenant's own hosts in admission.policy.hosts",
		"spec.podOptions":                            metadataOfPods,
		"spec.deviceClasses":                         "device classes are not limited by tenant; use a ResourceQuota in a NamespaceTemplate",
		"spec.serviceOptions.additionalMetadata":     metadataOfPods,
		"spec.serviceOptions.allowedServices":        unknownField,
		"spec.serviceOptions.externalIPs": "external IPs are allowed or forbidden for all tenants; " +
			"set admission.services.externalIPs to Forbid",
		"spec.serviceOptions.forbiddenLabels":      "labels of Services are not limited; use a ValidatingAdmissionPolicy",
		"spec.serviceOptions.forbiddenAnnotations": "annotations of Services are not limited; use a ValidatingAdmissionPolicy",
	}
}
