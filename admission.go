package kubetenant

import (
	"context"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"

	"github.com/kubetenant/kubetenant/authz"
	"github.com/kubetenant/kubetenant/cluster/accessgrant"
	"github.com/kubetenant/kubetenant/cluster/tenantquota"
	"github.com/kubetenant/kubetenant/plugins"
	"github.com/kubetenant/kubetenant/plugins/attribution"
	"github.com/kubetenant/kubetenant/plugins/binding"
	"github.com/kubetenant/kubetenant/plugins/grant"
	"github.com/kubetenant/kubetenant/plugins/label"
	"github.com/kubetenant/kubetenant/plugins/namespace"
	"github.com/kubetenant/kubetenant/plugins/placement"
	"github.com/kubetenant/kubetenant/plugins/quota"
	"github.com/kubetenant/kubetenant/plugins/restriction"
	"github.com/kubetenant/kubetenant/plugins/rolebinding"
	"github.com/kubetenant/kubetenant/plugins/workload"
	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

// Plugin is one admission plugin of a [Stack].
type Plugin struct {
	Name string
	admission.Interface
	// Last says that the plugin must validate after all others, the server's own included.
	Last bool
}

// Register makes the plugins known to a server's admission.
func Register(all []Plugin, into *admission.Plugins) {
	for _, p := range all {
		into.Register(p.Name, func(io.Reader) (admission.Interface, error) { return p.Interface, nil })
	}
}

// plugins returns the plugins in their order, which follow the stack's generations.
func (s *Stack) plugins() []Plugin {
	configured := func(name string, of func(*configuredPlugins) admission.Interface) Plugin {
		return Plugin{Name: name, Interface: reloadablePlugin{s, of}}
	}
	return []Plugin{
		configured(namespace.Name, func(c *configuredPlugins) admission.Interface { return c.namespace }),
		configured(restriction.Name, func(c *configuredPlugins) admission.Interface { return c.restriction }),
		configured(rolebinding.Name, func(c *configuredPlugins) admission.Interface { return c.rolebinding }),
		{Name: grant.Name, Interface: grant.New(grant.Options{Subject: s.subject, Owner: s.NamespaceOwner, Read: accessgrant.RequestOf, Authorizer: s.Grantors})},
		configured(attribution.Name, func(c *configuredPlugins) admission.Interface { return c.attribution }),
		configured(binding.Name, func(c *configuredPlugins) admission.Interface { return c.binding }),
		configured(placement.Name, func(c *configuredPlugins) admission.Interface { return c.placement }), // of what the others put into pods too
		{Name: label.Name, Interface: label.New(s.NamespaceOwner)},                                        // so that it sees what the others changed
		{Name: quota.Name, Interface: reloadablePlugin{s, func(c *configuredPlugins) admission.Interface { return c.quota }}, Last: true},
	}
}

// configuredPlugins are those that a configuration makes.
type configuredPlugins struct {
	namespace, restriction, rolebinding, attribution, binding, placement, quota admission.Interface
}

// reloadablePlugin is one of the current generation's plugins.
type reloadablePlugin struct {
	stack *Stack
	of    func(*configuredPlugins) admission.Interface
}

func (f reloadablePlugin) now() admission.Interface { return f.of(f.stack.current.Load().plugins) }

func (f reloadablePlugin) Handles(op admission.Operation) bool { return f.now().Handles(op) }

func (f reloadablePlugin) Admit(ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces) error {
	if p, mutates := f.now().(admission.MutationInterface); mutates {
		return p.Admit(ctx, a, o)
	}
	return nil
}

func (f reloadablePlugin) Validate(ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces) error {
	if p, validates := f.now().(admission.ValidationInterface); validates {
		return p.Validate(ctx, a, o)
	}
	return nil
}

// admissionParts are what plugins are made with.
type admissionParts struct {
	cluster *Cluster
	subject plugins.SubjectFunc
	names   *tenant.SystemNames
	now     func() time.Time
}

// newPlugins returns the plugins that are configured.
func newPlugins(p *admissionParts, config *v1alpha1.Settings) (*configuredPlugins, error) {
	c := &config.Admission
	kinds := workloadKinds(c.Workloads)
	owners, subject, names := p.cluster.Owners, p.subject, p.names
	owner := plugins.OwnerFunc(owners.Certain)
	user, err := workloadUser(&c.Attribution.WorkloadUser, names)
	if err != nil {
		return nil, err
	}
	for _, name := range slices.Sorted(maps.Keys(c.Quota.Default)) {
		if _, known := quota.Resource(name); !known {
			return nil, fmt.Errorf("admission.quota.default[%s]: no object uses it", name)
		}
	}
	governed := map[schema.GroupKind]bool{}
	for _, k := range c.Binding.Kinds {
		governed[schema.GroupKind{Group: k.Group, Kind: k.Kind}] = k.KubeVela
	}
	metadata, objects := p.cluster.ControllerMetadata, p.cluster.ControllerObjects
	if metadata == nil || objects == nil {
		none := func(context.Context, schema.GroupVersionKind, string, string) (runtime.Object, error) {
			return nil, nil
		}
		metadata, objects = none, none
	}
	recorded := []string(nil)
	if *c.Attribution.Creator.Enabled {
		recorded = []string{tenant.CreatorAnnotation, tenant.OnBehalfOfAnnotation}
	}
	return &configuredPlugins{
		restriction: restriction.New(restriction.Options{
			Resources: groupResources(c.Restriction.Resources), ExemptSystem: c.Restriction.ExemptSystem, Subject: subject, Owner: owners.Of}),
		namespace: namespace.New(namespace.Options{
			Subject: subject, PrefixRequired: c.Namespace.NamespacePrefix == v1alpha1.NamespacePrefixRequired, PodSecurity: c.Namespace.PodSecurity,
			AllowedLabels: c.Namespace.AllowedLabels, AllowedAnnotations: c.Namespace.AllowedAnnotations, Recorded: recorded}),
		rolebinding: rolebinding.New(rolebinding.Options{
			Subject: subject, Owner: owners.Of, Names: names, QualifiedNames: config.Authentication.QualifyNames,
			ForbidExternalIPs: c.Services.ExternalIPs == v1alpha1.PermissionForbid,
			ForbidVolumeNames: c.PersistentVolumeClaims.VolumeName == v1alpha1.PermissionForbid}),
		attribution: attribution.New(attribution.Options{
			Subject: subject, Owner: owner, Kinds: kinds, Metadata: metadata, Objects: objects, Creator: *c.Attribution.Creator.Enabled, WorkloadUser: *user}),
		quota: quota.New(quota.Options{
			Owner: owner, Store: p.cluster.quotaStore(&c.Quota), Reservation: c.Quota.Reservation.Duration, Now: p.now,
			ClusterScoped: func(r schema.GroupResource) bool {
				return (&authz.Scopes{Custom: p.cluster.CustomScope}).Of(r) == authz.ScopeCluster
			}}),
		binding: binding.New(binding.Options{Subject: subject, Owner: owner, Kinds: governed}),
		placement: placement.New(placement.Options{
			Subject: subject, Owner: owner, Kinds: kinds, Space: placementSpaces(&c.Placement, user), DefaultPriority: p.cluster.DefaultPriority}),
	}, nil
}

func workloadKinds(configured []v1alpha1.WorkloadKind) workload.Kinds {
	others := map[schema.GroupKind][]string{}
	for _, k := range configured {
		kind := schema.GroupKind{Group: k.Group, Kind: k.Kind}
		others[kind] = append(others[kind], k.Paths...)
	}
	return workload.New(others)
}

func workloadUser(c *v1alpha1.WorkloadUser, names *tenant.SystemNames) (*attribution.WorkloadUser, error) {
	out := &attribution.WorkloadUser{Off: !*c.Enabled, BypassAuth: c.BypassAuth, TrustControllers: *c.TrustControllers, Names: names}
	for _, list := range []struct {
		from []string
		to   *[]*regexp.Regexp
	}{{c.SystemUsers, &out.SystemUsers}, {c.ExternalUsers, &out.ExternalUsers}, {c.ExternalGroups, &out.ExternalGroups}} {
		for _, text := range list.from {
			pattern, err := attribution.Pattern(text)
			if err != nil {
				return nil, fmt.Errorf("pattern %q: %w", text, err)
			}
			*list.to = append(*list.to, pattern)
		}
	}
	if s := c.Scheduling; s != nil {
		out.Scheduling = &attribution.Scheduling{SchedulerName: s.SchedulerName, Queue: s.Queue}
	}
	return out, nil
}

// placementSpaces returns what holds for each tenant.
func placementSpaces(c *v1alpha1.Placement, user *attribution.WorkloadUser) func(tenant.ID) *placement.Space {
	scheduler := ""
	if !user.Off && user.Scheduling != nil {
		scheduler = user.Scheduling.SchedulerName // it is put into pods, so it is allowed
	}
	others := placementSpace(scheduler, &c.PlacementRules)
	own := map[string]*placement.Space{}
	for i := range c.Tenants {
		for _, name := range c.Tenants[i].Tenants {
			own[name] = placementSpace(scheduler, &c.PlacementRules, &c.Tenants[i].PlacementRules)
		}
	}
	return func(id tenant.ID) *placement.Space {
		if space, has := own[id.String()]; has {
			return space
		}
		return others
	}
}

// placementSpace is what rules say, the later in place of the earlier.
func placementSpace(scheduler string, rules ...*v1alpha1.PlacementRules) *placement.Space {
	policies := map[v1alpha1.PlacementPolicy]placement.Policy{
		v1alpha1.PlacementForbid: placement.Forbid, v1alpha1.PlacementAllowListed: placement.AllowListed, v1alpha1.PlacementIgnore: placement.Ignore}
	space := &placement.Space{Rules: placement.Rules{}, Defaults: placement.Defaults{SchedulerName: scheduler}}
	for _, r := range rules {
		for name, rule := range r.Fields() {
			space.Rules[name] = placement.Rule{Policy: policies[rule.Policy], Allowed: rule.Allowed}
		}
		if d := r.Defaults; d != nil {
			space.Defaults = placement.Defaults{NodeSelector: d.NodeSelector, Tolerations: d.Tolerations, SchedulerName: d.SchedulerName}
			if d.SchedulerName == "" {
				space.Defaults.SchedulerName = scheduler
			}
		}
	}
	return space
}

// QuotaStore holds the quotas of a cluster, as [tenantquota.Store] does.
type QuotaStore interface {
	quota.Store
	// TenantOf returns the tenant that a quota is about, the zero ID for one that is not known.
	TenantOf(name string) tenant.ID
}

// mandatory is the store of a configuration that limits tenants without a quota too.
type mandatory struct {
	QuotaStore
	hard corev1.ResourceList
}

// Of implements [quota.Store].
func (m mandatory) Of(ctx context.Context, id tenant.ID) ([]*quota.State, error) {
	states, err := m.QuotaStore.Of(ctx, id)
	if err == nil && len(states) == 0 {
		states = []*quota.State{{Name: tenantquota.DefaultName(id), Hard: m.hard}} // it is being made; nothing is known of what is used
	}
	return states, err
}

// unlimited is the store where there are no quotas.
type unlimited struct{}

// Of implements [quota.Store].
func (unlimited) Of(context.Context, tenant.ID) ([]*quota.State, error) { return nil, nil }

// Charge implements [quota.Store].
func (unlimited) Charge(context.Context, *quota.State, *quota.State) error { return nil }

// Taken implements [quota.Store].
func (unlimited) Taken(context.Context, tenant.ID) (bool, error) { return false, nil }

// quotaStore returns the store that a configuration asks for.
func (c *Cluster) quotaStore(config *v1alpha1.Quota) quota.Store {
	switch {
	case c.Quotas == nil || !*config.Enabled:
		return unlimited{}
	case len(config.Default) > 0:
		return mandatory{c.Quotas, config.Default}
	}
	return c.Quotas
}

// quotaTenant returns the tenant of a quota; of anything else the zero ID.
func (c *Cluster) quotaTenant(resource schema.GroupResource, name string) tenant.ID {
	if c.Quotas == nil || resource != v1alpha1.Resource(v1alpha1.ResourceTenantQuotas).GroupResource() {
		return tenant.ID{}
	}
	return c.Quotas.TenantOf(name)
}
