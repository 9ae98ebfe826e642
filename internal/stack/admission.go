package stack

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/component-base/metrics"

	"github.com/kubetenant/kubetenant/authz"
	"github.com/kubetenant/kubetenant/cluster/accessgrant"
	configv1alpha1 "github.com/kubetenant/kubetenant/config/v1alpha1"
	"github.com/kubetenant/kubetenant/plugins"
	"github.com/kubetenant/kubetenant/plugins/attribution"
	"github.com/kubetenant/kubetenant/plugins/binding"
	"github.com/kubetenant/kubetenant/plugins/gate"
	grantplugin "github.com/kubetenant/kubetenant/plugins/grant"
	"github.com/kubetenant/kubetenant/plugins/label"
	"github.com/kubetenant/kubetenant/plugins/lifecycle"
	"github.com/kubetenant/kubetenant/plugins/managed"
	"github.com/kubetenant/kubetenant/plugins/namespace"
	"github.com/kubetenant/kubetenant/plugins/placement"
	"github.com/kubetenant/kubetenant/plugins/policy"
	"github.com/kubetenant/kubetenant/plugins/quota"
	"github.com/kubetenant/kubetenant/plugins/restriction"
	"github.com/kubetenant/kubetenant/plugins/rolebinding"
	"github.com/kubetenant/kubetenant/plugins/status"
	"github.com/kubetenant/kubetenant/plugins/workload"
	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

// Plugin is one admission plugin of a [Stack].
type Plugin struct {
	Name string
	admission.Interface
	// Setting is where a configuration says what the plugin refuses; empty where nothing does. Refusals name it.
	Setting string
	// Last says that the plugin must validate after all others, the server's own included.
	Last bool
}

// Register makes the plugins known to a server's admission.
func Register(all []Plugin, into *admission.Plugins) {
	for _, p := range all {
		into.Register(p.Name, func(io.Reader) (admission.Interface, error) { return p.Interface, nil })
	}
}

// reloadablePlugins returns the plugins of a generation in their order, each as it is in the generation that a
// request meets.
func (s *Stack) reloadablePlugins(of []Plugin) []Plugin {
	out := slices.Clone(of)
	for i := range out {
		out[i].Interface = newReloadablePlugin(s, i, &out[i])
	}
	return out
}

// halves are what a plugin does, nil for what it does not: asked of its type once, not with each write.
type halves struct {
	admits    admission.MutationInterface
	validates admission.ValidationInterface
}

func halvesOf(all []Plugin) []halves {
	out := make([]halves, len(all))
	for i := range all {
		out[i].admits, _ = all[i].Interface.(admission.MutationInterface)
		out[i].validates, _ = all[i].Interface.(admission.ValidationInterface)
	}
	return out
}

// reloadablePlugin is one of a generation's plugins, which are the same in each and differ in their settings.
type reloadablePlugin struct {
	stack *Stack
	at    int
	// by is what refusals end with.
	by string
	// creates, updates, deletes and connects say which operations it handles, whatever its settings.
	creates, updates, deletes, connects bool
}

func newReloadablePlugin(s *Stack, at int, of *Plugin) *reloadablePlugin {
	by := " (" + of.Name
	if of.Setting != "" {
		by += ", " + of.Setting
	}
	return &reloadablePlugin{s, at, by + ")", of.Handles(admission.Create), of.Handles(admission.Update), of.Handles(admission.Delete), of.Handles(admission.Connect)}
}

// in returns the plugin of the generation that the request goes on with.
func (f *reloadablePlugin) in(ctx context.Context) *halves {
	plugins, kept := ctx.Value(pluginsKey{}).([]halves)
	if !kept {
		plugins = f.stack.current.Load().halves
	}
	return &plugins[f.at]
}

// pluginsKey is where a write keeps the plugins of its generation, so that it is validated by those that admitted
// it. Nothing else of a generation is kept: a write may last for hours, as exec does.
type pluginsKey struct{}

// withPlugins keeps the plugins of the current generation for writes.
func (s *Stack) withPlugins(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			r = r.WithContext(context.WithValue(r.Context(), pluginsKey{}, s.current.Load().halves))
		}
		next.ServeHTTP(w, r)
	})
}

func (f *reloadablePlugin) Handles(op admission.Operation) bool {
	switch op {
	case admission.Create:
		return f.creates
	case admission.Update:
		return f.updates
	case admission.Delete:
		return f.deletes
	case admission.Connect:
		return f.connects
	}
	return false
}

func (f *reloadablePlugin) Admit(ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces) error {
	if p := f.in(ctx).admits; p != nil {
		return f.named(p.Admit(ctx, a, o))
	}
	return nil
}

func (f *reloadablePlugin) Validate(ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces) error {
	if p := f.in(ctx).validates; p != nil {
		return f.named(p.Validate(ctx, a, o))
	}
	return nil
}

// named returns a refusal with the plugin and its setting: who meets it must know where to look.
func (f *reloadablePlugin) named(err error) error {
	if err == nil { // before anything is allocated: most writes pass
		return nil
	}
	var status *apierrors.StatusError
	if !errors.As(err, &status) {
		return err
	}
	said := *status
	said.ErrStatus.Message += f.by
	return &said
}

// admissionParts are what plugins are made with.
type admissionParts struct {
	cluster *Cluster
	subject plugins.SubjectFunc
	names   *tenant.SystemNames
	now     func() time.Time
	// denies is the boundary's, see [authz.Boundary.Denies]; gates counts by mode what comes of it.
	denies func(context.Context, authorizer.Attributes) string
	gates  *metrics.CounterVec
	// grantors says what a grantor may do itself.
	grantors authorizer.Authorizer
}

// gated returns what counts a write that TenantGate refuses, or would.
func (p *admissionParts) gated(mode configv1alpha1.GateMode) func() {
	return func() { p.gates.WithLabelValues(string(mode)).Inc() }
}

// newPlugins returns the plugins of a configuration, in their order: this is the table of them.
func newPlugins(p *admissionParts, config *configv1alpha1.Settings) ([]Plugin, error) {
	c := &config.Admission
	kinds := workloadKinds(c.Workloads)
	owners, subject, names := p.cluster.Owners, p.subject, p.names
	owner := plugins.OwnerFunc(owners.Certain)
	user, err := workloadUser(&c.Attribution.WorkloadUser, names)
	if err != nil {
		return nil, err
	}
	user.QualifiedNames = config.Authentication.QualifyNames
	for _, name := range slices.Sorted(maps.Keys(c.Quota.Default)) {
		switch _, known := quota.Resource(name); {
		case !known:
			return nil, fmt.Errorf("admission.quota.default[%s]: no object uses it", name)
		case name == quota.NamespaceCount: // who has none yet has no quota that could be counted
			return nil, fmt.Errorf("admission.quota.default[%s]: say it in the Tenants, spec.namespaces.max", name)
		}
	}
	metadata, objects := p.cluster.controllerObjects()
	return []Plugin{
		{Name: namespace.Name, Setting: "admission.namespace", Interface: namespace.New(namespace.Options{
			Subject: subject, PrefixRequired: c.Namespace.NamespacePrefix == v1alpha1.NamespacePrefixRequired, PodSecurity: c.Namespace.PodSecurity,
			AllowedLabels: c.Namespace.AllowedLabels, AllowedAnnotations: c.Namespace.AllowedAnnotations, Recorded: recordedAnnotations(c), SystemNamespaces: config.Authorization.SystemNamespaces, Selected: p.cluster.SelectedLabels,
			Spaces: p.cluster.spaces, Over: p.cluster.isOver})},
		{Name: lifecycle.Name, Interface: lifecycle.New(lifecycle.Options{Subject: subject, Read: lifeOf, Lineage: p.cluster.knownLineage(),
			Owned: p.cluster.OwnedNamespaces, References: p.cluster.References, Authorizer: p.grantors, Now: p.now})},
		{Name: restriction.Name, Setting: "admission.restriction", Interface: restriction.New(restriction.Options{
			Resources: groupResources(c.Restriction.Resources), ExemptSystem: c.Restriction.ExemptSystem, Subject: subject, Owner: owners.Of})},
		{Name: rolebinding.Name, Interface: rolebinding.New(rolebinding.Options{
			Subject: subject, Owner: owners.Of, Named: owners.AskedBy, Names: names, QualifiedNames: config.Authentication.QualifyNames,
			ForbidExternalIPs: c.Services.ExternalIPs == configv1alpha1.PermissionForbid,
			ForbidVolumeNames: c.PersistentVolumeClaims.VolumeName == configv1alpha1.PermissionForbid, Kinds: kinds,
			Namespaced: p.cluster.isNamespacedKind, Objects: p.cluster.ControllerObjects, Spread: spreadOf, Members: membersOf, MemberRoles: p.cluster.memberRoles, Authorizer: p.grantors})},
		{Name: managed.Name, Interface: managed.New(managed.Options{Subject: subject, Terminating: owners.Terminating,
			Holds: p.cluster.holds(), Held: owners.Held, Gives: p.cluster.gives, Template: templateOf, Authorizer: p.grantors})},
		{Name: status.Name, Setting: "admission.status", Interface: status.New(status.Options{Subject: subject, Allowed: statusExceptions(c.Status.Allowed)})},
		{Name: grantplugin.Name, Setting: "authorization.grants", Interface: grantplugin.New(grantplugin.Options{Subject: subject, Owner: owner, Lineage: p.cluster.lineage(), Read: accessgrant.RequestOf, Authorizer: p.grantors, Now: p.now})},
		{Name: attribution.Name, Setting: "admission.attribution", Interface: attribution.New(attribution.Options{
			Subject: subject, Owner: owner, Kinds: kinds, Metadata: metadata, Objects: objects, Creator: *c.Attribution.Creator.Enabled, WorkloadUser: *user})},
		{Name: binding.Name, Setting: "admission.binding", Interface: binding.New(binding.Options{Subject: subject, Owner: owner, Kinds: governedKinds(c.Binding.Kinds), Objects: objects, KindOf: p.cluster.CustomKind})},
		// Behind those whose work it looks at: what they put into pods, and what they changed.
		{Name: placement.Name, Setting: "admission.placement", Interface: placement.New(placement.Options{
			Subject: subject, Owner: owner, Kinds: kinds, Space: placementSpaces(&c.Placement, user), Named: namedByPrefix(c, owners), DefaultPriority: p.cluster.DefaultPriority})},
		{Name: policy.Name, Setting: "admission.policy", Interface: policy.New(policy.Options{Subject: subject, Owner: owner, Kinds: kinds, Rules: policyRules(&c.Policy)})},
		{Name: label.Name, Interface: label.New(owner)},
		{Name: gate.Name, Setting: "admission.gate", Interface: gate.New(gate.Options{Subject: subject, Owner: owner, Off: c.Gate.Mode == configv1alpha1.GateOff,
			Shadow: c.Gate.Mode == configv1alpha1.GateShadow, Denies: p.denies, Observe: p.gated(c.Gate.Mode)})},
		{Name: quota.Name, Setting: "admission.quota", Last: true, Interface: quota.New(quota.Options{
			Managed: managed.MayBeManaged, Owner: owner, Store: p.cluster.quotaStore(&c.Quota), Reservation: c.Quota.Reservation.Duration, Now: p.now, ClusterScoped: p.cluster.isClusterScoped})},
	}, nil
}

// namedByPrefix returns who owns a namespace that a pod's affinity names, nil where a name may come to be another's while
// the pod runs.
func namedByPrefix(c *configv1alpha1.Admission, owners *authz.Owners) func(context.Context, tenant.ID, string) (tenant.ID, error) {
	if c.Namespace.NamespacePrefix != v1alpha1.NamespacePrefixRequired {
		return nil
	}
	return owners.AskedBy
}

// controllerObjects returns what finds the objects that controllers make others from; where nobody knows any,
// what finds none.
func (c *Cluster) controllerObjects() (metadata, objects plugins.ObjectFunc) {
	if c.ControllerMetadata != nil && c.ControllerObjects != nil {
		return c.ControllerMetadata, c.ControllerObjects
	}
	none := func(context.Context, schema.GroupVersionKind, string, string) (runtime.Object, error) {
		return nil, nil
	}
	return none, none
}

func (c *Cluster) isClusterScoped(r schema.GroupResource) bool {
	return (&authz.Scopes{Custom: c.CustomScope}).Of(r) == authz.ScopeCluster
}

// isNamespacedKind reports whether a kind is known to be of objects in namespaces.
func (c *Cluster) isNamespacedKind(kind schema.GroupKind) bool {
	plural, _ := meta.UnsafeGuessKindToResource(kind.WithVersion("v1"))
	switch (&authz.Scopes{Custom: c.CustomScope}).Of(plural.GroupResource()) {
	case authz.ScopeNamespaced:
		return true
	case authz.ScopeCluster:
		return false
	}
	return c.KindScope != nil && c.KindScope(kind) == authz.ScopeNamespaced
}

// statusExceptions reports whether a tenant may write a status that is a controller's.
func statusExceptions(allowed []configv1alpha1.StatusException) func(tenant.ID, schema.GroupResource) bool {
	return func(id tenant.ID, resource schema.GroupResource) bool {
		return slices.ContainsFunc(allowed, func(e configv1alpha1.StatusException) bool {
			set, err := tenant.ParseSet(e.Tenants)
			return err == nil && set.Has(id) && slices.Contains(groupResources(e.Resources), resource)
		})
	}
}

// recordedAnnotations are those that a tenant may not set on its namespaces since they are recorded.
func recordedAnnotations(c *configv1alpha1.Admission) []string {
	if !*c.Attribution.Creator.Enabled {
		return []string{tenant.HeldAnnotation}
	}
	return []string{tenant.HeldAnnotation, tenant.CreatorAnnotation, tenant.OnBehalfOfAnnotation}
}

// governedKinds says of each kind whose identity is recorded whether it is KubeVela's.
func governedKinds(kinds []configv1alpha1.BindingKind) map[schema.GroupKind]bool {
	governed := map[schema.GroupKind]bool{}
	for _, k := range kinds {
		governed[schema.GroupKind{Group: k.Group, Kind: k.Kind}] = k.KubeVela
	}
	return governed
}

func workloadKinds(configured []configv1alpha1.WorkloadKind) workload.Kinds {
	others := map[schema.GroupKind][]string{}
	for _, k := range configured {
		kind := schema.GroupKind{Group: k.Group, Kind: k.Kind}
		others[kind] = append(others[kind], k.Paths...)
	}
	return workload.New(others)
}

func workloadUser(c *configv1alpha1.WorkloadUser, names *tenant.SystemNames) (*attribution.WorkloadUser, error) {
	out := &attribution.WorkloadUser{Off: !*c.Enabled, BypassAuth: c.BypassAuth, Restamp: c.Foreign == configv1alpha1.ForeignRestamp, TrustControllers: *c.TrustControllers, Names: names}
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

// QuotaStore holds the quotas of a cluster, as [tenantquota.Store] does.
type QuotaStore interface {
	quota.Store
	// TenantOf returns the tenant that a quota is about, the zero ID for one that is not known.
	TenantOf(name string) tenant.ID
	// NameOf returns the name of the one quota about a tenant, empty where there is none; false where there are several
	// or it is not known.
	NameOf(id tenant.ID) (name string, sole bool)
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
		states = []*quota.State{{Name: id.ObjectName(), Hard: m.hard}} // it is being made; nothing is known of what is used
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
func (c *Cluster) quotaStore(config *configv1alpha1.Quota) quota.Store {
	switch {
	case c.Quotas == nil || !*config.Enabled:
		return unlimited{}
	case len(config.Default) > 0:
		return mandatory{c.Quotas, config.Default}
	}
	return c.Quotas
}
