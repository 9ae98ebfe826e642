// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package stack

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/component-base/metrics"

	"github.com/kubetenant/kubetenant/cluster/accessgrant"
	"github.com/kubetenant/kubetenant/cluster/publication"
	configv1alpha1 "github.com/kubetenant/kubetenant/config/v1alpha1"
	"github.com/kubetenant/kubetenant/plugins"
	grantplugin "github.com/kubetenant/kubetenant/plugins/accessgrant"
	"github.com/kubetenant/kubetenant/plugins/attribution"
	"github.com/kubetenant/kubetenant/plugins/binding"
	"github.com/kubetenant/kubetenant/plugins/gate"
	"github.com/kubetenant/kubetenant/plugins/label"
	"github.com/kubetenant/kubetenant/plugins/lifecycle"
	"github.com/kubetenant/kubetenant/plugins/managed"
	"github.com/kubetenant/kubetenant/plugins/namespace"
	"github.com/kubetenant/kubetenant/plugins/placement"
	"github.com/kubetenant/kubetenant/plugins/policy"
	"github.com/kubetenant/kubetenant/plugins/quota"
	"github.com/kubetenant/kubetenant/plugins/request"
	"github.com/kubetenant/kubetenant/plugins/restriction"
	"github.com/kubetenant/kubetenant/plugins/rolebinding"
	"github.com/kubetenant/kubetenant/plugins/status"
	"github.com/kubetenant/kubetenant/plugins/workload"
	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

// admissionParts contains the dependencies of plugins that do not come from the configuration.
type admissionParts struct {
	cluster *clusterParts
	subject plugins.SubjectFunc
	names   *tenant.SystemNames
	now     func() time.Time
	// denies returns the text of [authz.Boundary.DenialReason]. gateDenials counts, for each
	// mode, the writes that TenantGate denies or would deny in Enforce mode.
	denies      func(context.Context, authorizer.Attributes) string
	gateDenials *metrics.CounterVec
	// grantorAuthorizer is [Stack.GrantorAuthorizer].
	grantorAuthorizer authorizer.Authorizer
}

// gateDenied returns the function that records a write that TenantGate rejects, or would reject in
// Enforce mode.
func (p *admissionParts) gateDenied(mode configv1alpha1.GateMode) func() {
	return func() { p.gateDenials.WithLabelValues(string(mode)).Inc() }
}

// pluginOptions converts a configuration to the options of each plugin.
type pluginOptions struct {
	*admissionParts
	config *configv1alpha1.Settings
	owner  plugins.OwnerFunc
	kinds  workload.Kinds
	user   *attribution.WorkloadUser
	// metadata and objects find the owner of an object that a controller created. metadata
	// returns only the metadata of the owner.
	metadata, objects plugins.ObjectFunc
	// rules specify what Publications may copy.
	rules *publication.Rules
}

// newPlugins returns the plugins of a configuration in the order in which they run.
func newPlugins(p *admissionParts, config *configv1alpha1.Settings) ([]Plugin, error) {
	if err := checkDefaultQuota(&config.Admission.Quota); err != nil {
		return nil, err
	}
	user, err := workloadUser(&config.Admission.Attribution.WorkloadUser, p.names)
	if err != nil {
		return nil, err
	}
	user.QualifiedNames = config.Authentication.QualifyNames
	owner := plugins.OwnerFunc(p.cluster.owners.OfUnthrottled)
	o := &pluginOptions{
		admissionParts: p,
		config:         config,
		owner:          owner,
		kinds:          workloadKinds(config.Admission.Workloads),
		user:           user,
		rules:          publication.RulesOf(&config.Admission.Publication, p.cluster.isNamespaced),
	}
	o.metadata, o.objects = p.cluster.controllerObjects()
	return []Plugin{
		// This plugin records the object before any other plugin changes it.
		{Name: request.Name, Interface: request.New(request.Options{Kinds: o.binding().Kinds}), First: true},
		{Name: namespace.Name, Setting: "admission.namespace", Interface: namespace.New(o.namespace())},
		{Name: lifecycle.Name, Interface: lifecycle.New(o.lifecycle())},
		{Name: restriction.Name, Setting: "admission.restriction", Interface: restriction.New(o.restriction())},
		{Name: rolebinding.Name, Interface: rolebinding.New(o.roleBinding())},
		{Name: managed.Name, Interface: managed.New(o.managed())},
		{Name: status.Name, Setting: "admission.status", Interface: status.New(o.status())},
		{Name: grantplugin.Name, Setting: "authorization.grants", Interface: grantplugin.New(o.grant())},
		{Name: attribution.Name, Setting: "admission.attribution", Interface: attribution.New(o.attribution())},
		{Name: binding.Name, Setting: "admission.binding", Interface: binding.New(o.binding())},
		// The next two plugins also check the changes of the preceding plugins to pods.
		{Name: placement.Name, Setting: "admission.placement", Interface: placement.New(o.placement())},
		{Name: policy.Name, Setting: "admission.policy", Interface: policy.New(o.policy())},
		{Name: label.Name, Interface: label.New(owner)},
		{Name: gate.Name, Setting: "admission.gate", Interface: gate.New(o.gate())},
		{
			Name:      quota.Name,
			Setting:   "admission.quota",
			Interface: quota.New(o.quota()),
			Last:      true,
		},
	}, nil
}

// checkDefaultQuota returns an error if the default quota limits a resource that no object uses, or
// the number of namespaces.
func checkDefaultQuota(c *configv1alpha1.Quota) error {
	for _, name := range slices.Sorted(maps.Keys(c.Default)) {
		switch {
		case len(quota.Resources(name)) == 0:
			return fmt.Errorf("admission.quota.default[%s]: no object uses this resource", name)
		case name == quota.NamespaceCount: // a tenant without namespaces has no TenantQuota that could count them
			return fmt.Errorf("admission.quota.default[%s]: set spec.namespaces.max of each Tenant instead", name)
		}
	}
	return nil
}

func (o *pluginOptions) namespace() namespace.Options {
	c := &o.config.Admission
	return namespace.Options{
		Subject:              o.subject,
		PrefixRequired:       c.Namespace.NamespacePrefix == v1alpha1.NamespacePrefixRequired,
		PodSecurity:          c.Namespace.PodSecurity,
		AllowedLabels:        c.Namespace.AllowedLabels,
		AllowedAnnotations:   c.Namespace.AllowedAnnotations,
		ClusterLabels:        c.Namespace.ClusterLabels,
		ClusterAnnotations:   c.Namespace.ClusterAnnotations,
		ProtectedAnnotations: recordedAnnotations(c),
		SystemNamespaces:     o.config.Authorization.SystemNamespaces,
		SelectionReason:      o.cluster.selectedLabel,
		Rules:                o.cluster.namespaceSettings,
		Deleted:              o.cluster.hasEnded,
	}
}

func (o *pluginOptions) lifecycle() lifecycle.Options {
	return lifecycle.Options{
		Subject:         o.subject,
		Read:            lifecycleOf,
		ReadMembers:     membersSpecOf,
		ReadRetired:     retiredOf,
		RequiredRights:  writerRights,
		Lineage:         o.cluster.knownLineage(),
		OwnedNamespaces: o.cluster.ownedNamespaces(),
		References:      o.cluster.references(),
		Authorizer:      o.grantorAuthorizer,
		Now:             o.now,
	}
}

func (o *pluginOptions) restriction() restriction.Options {
	c := &o.config.Admission.Restriction
	return restriction.Options{
		Resources:    groupResources(c.Resources),
		ExemptSystem: c.ExemptSystem,
		Subject:      o.subject,
		Owner:        o.cluster.owners.Of,
	}
}

func (o *pluginOptions) roleBinding() rolebinding.Options {
	c := &o.config.Admission
	return rolebinding.Options{
		Subject:           o.subject,
		Owner:             o.cluster.owners.Of,
		ReferencedOwner:   o.cluster.owners.OfForTenant,
		Names:             o.names,
		QualifiedNames:    o.config.Authentication.QualifyNames,
		ForbidExternalIPs: c.Services.ExternalIPs == configv1alpha1.PermissionForbid,
		ForbidVolumeNames: c.PersistentVolumeClaims.VolumeName == configv1alpha1.PermissionForbid,
		Kinds:             o.kinds,
		Namespaced:        o.cluster.isNamespacedKind,
		Objects:           o.cluster.controllerObject(),
		ReadTenant:        tenantRightsOf,
		ReadMembers:       memberRightsOf,
		MemberRoles:       o.cluster.memberRoles,
		Namespaces:        o.cluster.remainingNamespaces(),
		Authorizer:        o.grantorAuthorizer,
	}
}

func (o *pluginOptions) managed() managed.Options {
	return managed.Options{
		Subject:      o.subject,
		Terminating:  o.cluster.owners.Terminating,
		MustWait:     o.cluster.holdsNamespaces(),
		Waiting:      o.cluster.owners.Held,
		Provides:     o.provisions,
		ReadTemplate: templateOf,
		Removed:      removedResources,
		Authorizer:   o.grantorAuthorizer,
		Publishing:   o.publishing(),
		MayPublish:   o.mayBePublished,
	}
}

func (o *pluginOptions) status() status.Options {
	return status.Options{Subject: o.subject, Allowed: statusExceptions(o.config.Admission.Status.Allowed)}
}

func (o *pluginOptions) grant() grantplugin.Options {
	return grantplugin.Options{
		Subject:    o.subject,
		Owner:      o.owner,
		Lineage:    o.cluster.lineage(),
		Read:       accessgrant.RequestOf,
		Authorizer: o.grantorAuthorizer,
		Now:        o.now,
	}
}

func (o *pluginOptions) attribution() attribution.Options {
	return attribution.Options{
		Subject:      o.subject,
		Owner:        o.owner,
		Authorizer:   o.grantorAuthorizer,
		Kinds:        o.kinds,
		Metadata:     o.metadata,
		Objects:      o.objects,
		Creator:      *o.config.Admission.Attribution.Creator.Enabled,
		WorkloadUser: *o.user,
	}
}

func (o *pluginOptions) binding() binding.Options {
	return binding.Options{
		Subject:    o.subject,
		Owner:      o.owner,
		Authorizer: o.grantorAuthorizer,
		Kinds:      bindingKinds(o.config.Admission.Binding.Kinds),
		Objects:    o.objects,
		KindOf:     o.cluster.resources.Kind,
	}
}

func (o *pluginOptions) placement() placement.Options {
	c := &o.config.Admission
	return placement.Options{
		Subject:         o.subject,
		Owner:           o.owner,
		Kinds:           o.kinds,
		TenantRules:     placementRules(&c.Placement, o.user),
		ReferencedOwner: ownerByPrefix(c, o.cluster.owners),
		DefaultPriority: o.cluster.defaultPriority,
	}
}

func (o *pluginOptions) policy() policy.Options {
	return policy.Options{
		Subject: o.subject,
		Owner:   o.owner,
		Kinds:   o.kinds,
		Rules:   policyRules(&o.config.Admission.Policy),
	}
}

func (o *pluginOptions) gate() gate.Options {
	mode := o.config.Admission.Gate.Mode
	return gate.Options{
		Subject:    o.subject,
		Owner:      o.owner,
		Off:        mode == configv1alpha1.GateOff,
		Shadow:     mode == configv1alpha1.GateShadow,
		DenyReason: o.denies,
		OnDeny:     o.gateDenied(mode),
	}
}

func (o *pluginOptions) quota() quota.Options {
	c := &o.config.Admission.Quota
	return quota.Options{
		Managed:       o.mayBeManaged,
		Owner:         o.owner,
		Store:         o.cluster.quotaStore(c),
		Reservation:   c.Reservation.Duration,
		Now:           o.now,
		ClusterScoped: o.cluster.isClusterScoped,
		Subject:       o.subject,
		Classes:       o.cluster.deviceClasses(c),
	}
}
