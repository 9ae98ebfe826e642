// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package stack

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"

	"github.com/kubetenant/kubetenant/authz"
	"github.com/kubetenant/kubetenant/cluster/lookup"
	configv1alpha1 "github.com/kubetenant/kubetenant/config/v1alpha1"
	"github.com/kubetenant/kubetenant/plugins"
	"github.com/kubetenant/kubetenant/plugins/attribution"
	"github.com/kubetenant/kubetenant/plugins/quota"
	"github.com/kubetenant/kubetenant/plugins/workload"
	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

// Plugin is one admission plugin of a [Stack].
type Plugin struct {
	Name string
	admission.Interface
	// Setting is the configuration field that controls what the plugin rejects, or "" if there is
	// no such field. The messages of rejections contain it.
	Setting string
	// First reports whether the plugin must run before all other plugins, including those of the
	// server.
	First bool
	// Last reports whether the plugin must validate after all other plugins, including the
	// server's own plugins up to ResourceQuota.
	Last bool
}

// Register adds the plugins to the registry of a server.
func Register(all []Plugin, into *admission.Plugins) {
	for _, p := range all {
		into.Register(p.Name, func(io.Reader) (admission.Interface, error) { return p.Interface, nil })
	}
}

// reloadablePlugins returns plugins that use, for each write, the settings of the current snapshot.
// They have the order of the given plugins.
func (s *Stack) reloadablePlugins(all []Plugin) []Plugin {
	out := slices.Clone(all)
	for i := range out {
		out[i].Interface = newReloadablePlugin(s, i, &out[i])
	}
	return out
}

// pluginParts contains the mutating and the validating part of a plugin. A part is nil if the
// plugin does not implement it. The type assertions are done once for each snapshot instead of
// once for each write.
type pluginParts struct {
	mutator   admission.MutationInterface
	validator admission.ValidationInterface
}

func pluginPartsOf(all []Plugin) []pluginParts {
	out := make([]pluginParts, len(all))
	for i := range all {
		out[i].mutator, _ = all[i].Interface.(admission.MutationInterface)
		out[i].validator, _ = all[i].Interface.(admission.ValidationInterface)
	}
	return out
}

// reloadablePlugin calls the plugin at its index in a snapshot. All snapshots have the same
// plugins, with different settings.
type reloadablePlugin struct {
	stack *Stack
	index int
	// suffix is added to the message of a rejection.
	suffix string
	// creates, updates, deletes and connects report which operations the plugin handles. They do
	// not depend on the settings.
	creates, updates, deletes, connects bool
}

func newReloadablePlugin(s *Stack, index int, p *Plugin) *reloadablePlugin {
	suffix := " (" + p.Name
	if p.Setting != "" {
		suffix += ", " + p.Setting
	}
	return &reloadablePlugin{
		s,
		index,
		suffix + ")",
		p.Handles(admission.Create),
		p.Handles(admission.Update),
		p.Handles(admission.Delete),
		p.Handles(admission.Connect),
	}
}

// current returns the parts of the plugin in the snapshot that the context contains, or in the
// current snapshot.
func (f *reloadablePlugin) current(ctx context.Context) *pluginParts {
	plugins, ok := ctx.Value(pluginsKey{}).([]pluginParts)
	if !ok {
		plugins = f.stack.current.Load().pluginParts
	}
	return &plugins[f.index]
}

// pluginsKey is the context key of the plugins of a write. The same plugins mutate and validate the
// write, even if the configuration changes in between. The context refers to no other part of the
// snapshot, because a request such as exec can last for hours.
type pluginsKey struct{}

// withPlugins stores the plugins of the current snapshot in the context of a write. It also
// prepares the context for [plugins.RecordRequested].
func (s *Stack) withPlugins(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			ctx := context.WithValue(r.Context(), pluginsKey{}, s.current.Load().pluginParts)
			r = r.WithContext(plugins.WithRequested(ctx))
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
	if p := f.current(ctx).mutator; p != nil {
		return f.withSuffix(p.Admit(ctx, a, o))
	}
	return nil
}

func (f *reloadablePlugin) Validate(ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces) error {
	if p := f.current(ctx).validator; p != nil {
		return f.withSuffix(p.Validate(ctx, a, o))
	}
	return nil
}

// withSuffix adds the names of the plugin and of its setting to the message of a rejection.
func (f *reloadablePlugin) withSuffix(err error) error {
	if err == nil { // before any allocation, because most writes are admitted
		return nil
	}
	var status *apierrors.StatusError
	if !errors.As(err, &status) {
		return err
	}
	out := *status
	out.ErrStatus.Message += f.suffix
	return &out
}

// ownerByPrefix returns the function that finds the owner of a namespace that a pod's affinity
// names. It returns nil if namespacePrefix is None, because another tenant could later own the
// named namespace.
func ownerByPrefix(
	c *configv1alpha1.Admission, owners *authz.Owners,
) func(context.Context, tenant.ID, string) (tenant.ID, error) {
	if c.Namespace.NamespacePrefix != v1alpha1.NamespacePrefixRequired {
		return nil
	}
	return owners.OfForTenant
}

// controllerObjects returns the functions that find the owner of an object that a controller
// created. metadata returns only the metadata of the owner. If the cluster has no
// [lookup.Controllers], the functions return nil.
func (c *clusterParts) controllerObjects() (metadata, objects plugins.ObjectFunc) {
	if c.controllers != nil {
		return c.controllers.Metadata, c.controllers.Object
	}
	none := func(context.Context, schema.GroupVersionKind, string, string) (runtime.Object, error) {
		return nil, nil
	}
	return none, none
}

func (c *clusterParts) isClusterScoped(r schema.GroupResource) bool {
	return (&authz.Scopes{Custom: c.resources.Scope}).Of(r) == authz.ScopeCluster
}

// isNamespacedKind reports whether a kind is known to be namespaced.
func (c *clusterParts) isNamespacedKind(kind schema.GroupKind) bool {
	plural, _ := meta.UnsafeGuessKindToResource(kind.WithVersion("v1"))
	switch (&authz.Scopes{Custom: c.resources.Scope}).Of(plural.GroupResource()) {
	case authz.ScopeNamespaced:
		return true
	case authz.ScopeCluster:
		return false
	}
	return c.resources.KindScope(kind) == authz.ScopeNamespaced
}

// isNamespaced reports whether a resource is known to be namespaced.
func (c *clusterParts) isNamespaced(resource schema.GroupResource) bool {
	return (&authz.Scopes{Custom: c.resources.Scope}).Of(resource) == authz.ScopeNamespaced
}

// statusExceptions returns a function that reports whether a tenant may write the status of a
// resource, although a controller usually writes it.
func statusExceptions(allowed []configv1alpha1.StatusException) func(tenant.ID, schema.GroupResource) bool {
	return func(id tenant.ID, resource schema.GroupResource) bool {
		return slices.ContainsFunc(allowed, func(e configv1alpha1.StatusException) bool {
			set, err := tenant.ParseSet(e.Tenants)
			return err == nil && set.Has(id) && slices.Contains(groupResources(e.Resources), resource)
		})
	}
}

// recordedAnnotations returns the annotations that the server records in namespaces. Tenants may
// not set them.
func recordedAnnotations(c *configv1alpha1.Admission) []string {
	if !*c.Attribution.Creator.Enabled {
		return []string{tenant.HeldAnnotation}
	}
	return []string{tenant.HeldAnnotation, tenant.CreatorAnnotation, tenant.OnBehalfOfAnnotation}
}

// bindingKinds returns the kinds for whose objects TenantBinding records an identity. The value
// reports whether the plugin also writes the annotations of KubeVela.
func bindingKinds(kinds []configv1alpha1.BindingKind) map[schema.GroupKind]bool {
	out := map[schema.GroupKind]bool{}
	for _, k := range kinds {
		out[schema.GroupKind{Group: k.Group, Kind: k.Kind}] = k.KubeVela
	}
	return out
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
	out := &attribution.WorkloadUser{
		Off:              !*c.Enabled,
		BypassAuth:       c.BypassAuth,
		Restamp:          c.Foreign == configv1alpha1.ForeignRestamp,
		TrustControllers: *c.TrustControllers,
		Names:            names,
	}
	for _, list := range []struct {
		from []string
		to   *[]*regexp.Regexp
	}{{c.SystemUsers, &out.SystemUsers}, {c.ExternalUsers, &out.ExternalUsers}, {c.ExternalGroups, &out.ExternalGroups}} {
		for _, text := range list.from {
			pattern, err := attribution.CompilePattern(text)
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

// defaultQuotas is a quota store for a configuration with a default quota. It also limits tenants
// that have no TenantQuota yet.
type defaultQuotas struct {
	lookup.Quotas
	hard corev1.ResourceList
}

// States implements [quota.Store].
func (m defaultQuotas) States(ctx context.Context, id tenant.ID) ([]*quota.State, error) {
	states, err := m.Quotas.States(ctx, id)
	if err == nil && len(states) == 0 {
		states = []*quota.State{{Name: id.ObjectName(), Hard: m.hard}} // no TenantQuota yet, so the usage is unknown
	}
	return states, err
}

// unlimited is a quota store without quotas.
type unlimited struct{}

// States implements [quota.Store].
func (unlimited) States(context.Context, tenant.ID) ([]*quota.State, error) { return nil, nil }

// Charge implements [quota.Store].
func (unlimited) Charge(context.Context, *quota.State, *quota.State) error { return nil }

// HasQuota implements [quota.Store].
func (unlimited) HasQuota(context.Context, tenant.ID) (bool, error) { return false, nil }

// deviceClasses returns the method [lookup.Quotas.Classes], or nil if no quota is enforced.
func (c *clusterParts) deviceClasses(config *configv1alpha1.Quota) func() (quota.Classes, error) {
	if c.quotas == nil || !*config.Enabled {
		return nil
	}
	return c.quotas.Classes
}

// quotaStore returns the quota store for the configuration.
func (c *clusterParts) quotaStore(config *configv1alpha1.Quota) quota.Store {
	switch {
	case c.quotas == nil || !*config.Enabled:
		return unlimited{}
	case len(config.Default) > 0:
		return defaultQuotas{c.quotas, config.Default}
	}
	return c.quotas
}
