package migrate

const (
	ownRecord       = "it is Capsule's own record; leave it out"
	useTemplate     = "name a NamespaceTemplate in spec.namespaces.templates of each Tenant that needs the objects"
	useQuota        = "limit the tenant by spec.quota of its Tenant"
	ofTheTenant     = "it belongs to the Tenant object itself; set on the new Tenant what your tools need"
	ofRoleBindings  = "a Tenant's RoleBindings have no labels or annotations of their own; leave it out"
	isDeleting      = "Capsule is deleting the Tenant, and its namespaces with it; do not adopt them"
	notPromoted     = "service accounts are not promoted; name them in spec.admins or spec.bindings after the adoption"
	notAnOwner      = "the owner or role is not in spec.owners; name it in spec.admins or spec.bindings if it is wanted"
	ofOtherObjects  = "labels and annotations of such objects are not set; use a mutating admission policy"
	notOfNamespaces = "annotations of namespaces are not set; set them by hand, or use a mutating admission policy"
	onlyForAll      = "only labels of an entry without a namespaceSelector can be set; label the other namespaces by hand"
	metadataRules   = "a tenant sets no label or annotation with a domain unless the configuration allows it; " +
		"check admission.namespace.allowedLabels and allowedAnnotations"
	ofServices = "labels and annotations of Services are not limited; use a ValidatingAdmissionPolicy"
)

// capsuleKinds says, by kind, what to use instead of Capsule's objects that the
// migration does not convert.
var capsuleKinds = map[string]string{
	"CapsuleConfiguration": "the server's configuration has other settings; see admission.namespace there",
	"GlobalTenantResource": useTemplate,
	"TenantResource":       useTemplate,
	"ResourcePool":         useQuota + ", or each namespace by a ResourceQuota in a NamespaceTemplate",
	"ResourcePoolClaim":    useQuota,
	"TenantOwner":          "name the owner in spec.admins or spec.bindings of each Tenant that it owns",
	"CustomQuota":          useQuota + ", as count/<resource>.<group>",
	"GlobalCustomQuota":    useQuota + ", as count/<resource>.<group>",
	"GlobalResourceQuota":  useQuota,
	"QuantityLedger":       ownRecord,
	"RuleStatus":           ownRecord,
}

// capsuleReasons says why fields of a Capsule Tenant are not carried over, and what to do. A field
// of which some subfields are converted has the reason for unknown fields.
func capsuleReasons() reasons {
	return reasons{
		"metadata.labels":                     ofTheTenant,
		"metadata.annotations":                ofTheTenant,
		"metadata.ownerReferences":            "the owner would delete the new Tenant; leave it out",
		"metadata.deletionTimestamp":          isDeleting,
		"metadata.deletionGracePeriodSeconds": isDeleting,
		"status.owners":                       notAnOwner,
		"status.promotions":                   notPromoted,

		"spec.data":  "a Tenant holds no free data; keep it in an annotation or a ConfigMap",
		"spec.rules": "rules by namespace are not supported; use a ValidatingAdmissionPolicy, or admission.policy",

		"spec.permissions.allowOwnerPromotion": notPromoted,
		"spec.permissions.matchOwners":         "labels do not select owners; name them in spec.admins or spec.bindings",

		"spec.owners":                             unknownField,
		"spec.owners.proxySettings":               "there is no such proxy; see authorization.sharedClusterResources",
		"spec.owners.labels":                      ofRoleBindings,
		"spec.owners.annotations":                 ofRoleBindings,
		"spec.additionalRoleBindings":             unknownField,
		"spec.additionalRoleBindings.labels":      ofRoleBindings,
		"spec.additionalRoleBindings.annotations": ofRoleBindings,

		"spec.namespaceOptions.additionalMetadata":             unknownField,
		"spec.namespaceOptions.additionalMetadata.annotations": notOfNamespaces,
		"spec.namespaceOptions.additionalMetadataList":         onlyForAll,
		"spec.namespaceOptions.requiredMetadata":               "it is not required; set labels by spec.namespaces.labels",
		"spec.namespaceOptions.forbiddenLabels":                metadataRules,
		"spec.namespaceOptions.forbiddenAnnotations":           metadataRules,

		"spec.ingressOptions.hostnameCollisionScope": "collisions of hosts are not checked; " +
			"list the tenant's own hosts in admission.policy.hosts",
		"spec.deviceClasses": "device classes are not limited by tenant; use a ResourceQuota in a NamespaceTemplate",

		"spec.podOptions":                          ofOtherObjects,
		"spec.serviceOptions.additionalMetadata":   ofOtherObjects,
		"spec.serviceOptions.allowedServices":      unknownField,
		"spec.serviceOptions.forbiddenLabels":      ofServices,
		"spec.serviceOptions.forbiddenAnnotations": ofServices,
		"spec.serviceOptions.externalIPs": "external IPs are allowed or forbidden for all tenants; " +
			"set admission.services.externalIPs to Forbid",
	}
}
