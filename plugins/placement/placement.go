// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

// Package placement limits where a tenant's Pods run. In tenants' namespaces, it denies values in
// Pods and Pod templates that control nodes, scheduling and priority, unless the tenant's rules
// allow the values.
package placement

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apiserver/pkg/admission"

	"github.com/kubetenant/kubetenant/plugins"
	"github.com/kubetenant/kubetenant/plugins/workload"
	"github.com/kubetenant/kubetenant/tenant"
)

// Name is the name of the plugin.
const Name = "TenantPlacement"

// Defaults are added to the Pods of a tenant, and are always allowed. Every new Pod must have the
// node selector. Runtime classes and priority classes are not included, because the server reads
// the classes of a Pod before this plugin runs.
type Defaults struct {
	NodeSelector  map[string]string
	Tolerations   []corev1.Toleration
	SchedulerName string
}

// TenantRules contains the rules for one tenant.
type TenantRules struct {
	// The entries of Rules are keys, "key=value", "domain/*", or names of nodes and classes.
	Rules    plugins.Rules
	Defaults Defaults
	// Cluster contains the values that the cluster itself adds to Pods. Tenants may set them too.
	Cluster Cluster
}

// tenantNamespace contains the rules, the owner and the namespace of an object.
type tenantNamespace struct {
	*TenantRules
	owner     tenant.ID
	namespace string
}

// Options configure the plugin. All fields except ReferencedOwner and DefaultPriority are required.
type Options struct {
	Subject plugins.SubjectFunc
	Owner   plugins.OwnerFunc
	Kinds   workload.Kinds
	// TenantRules returns the rules for a tenant. The result MUST NOT be changed afterwards.
	TenantRules func(tenant.ID) *TenantRules
	// ReferencedOwner returns the tenant that owns a namespace. by is the tenant whose object names
	// the namespace. The namespace may not exist yet. The function is called only for names with
	// the tenant's own prefix. If nil, only the object's own namespace is allowed.
	ReferencedOwner func(ctx context.Context, by tenant.ID, namespace string) (tenant.ID, error)
	// DefaultPriority reports whether a PriorityClass is the default for Pods that name no class.
	// The server writes the name of this class into such Pods. If nil, no class is the default.
	DefaultPriority func(name string) bool
}

// New returns the plugin. In tenants' namespaces, it checks Pods, Pod templates and groups of Pods
// of every caller, except the Pods that kubelets write. It checks Bindings, claims, storage
// capacities and nominated nodes only if the caller is outside the system tenant. It also checks
// claims that a controller creates from a template. An update may leave a field unchanged.
func New(o Options) plugins.Interface {
	return &plugin{admission.NewHandler(admission.Create, admission.Update), o}
}

type plugin struct {
	*admission.Handler
	Options
}

var bindingKind = corev1.SchemeGroupVersion.WithKind("Binding")

// namespaceOf returns the rules for a write. checked is false if the plugin does not check the
// write.
func (p *plugin) namespaceOf(
	ctx context.Context,
	a admission.Attributes,
) (ns tenantNamespace, checked bool, err error) {
	kind := a.GetKind().GroupKind()
	_, hasTemplates := p.Kinds[kind]
	if a.GetNamespace() == "" || !hasTemplates && !isGroup(kind) && kind != bindingKind.GroupKind() &&
		kind != claimKind.GroupKind() && kind != capacityKind.GroupKind() {
		return tenantNamespace{}, false, nil
	}
	owner, err := p.Owner(ctx, a.GetNamespace())
	if err != nil || owner.IsSystem() {
		return tenantNamespace{}, false, err
	}
	return tenantNamespace{p.TenantRules(owner), owner, a.GetNamespace()}, true, nil
}

// Admit implements [admission.MutationInterface]. It adds the defaults to a new Pod.
func (p *plugin) Admit(ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces) error {
	if !isNewPod(a) {
		return nil
	}
	ns, checked, err := p.namespaceOf(ctx, a)
	if err != nil {
		return admission.NewForbidden(a, err)
	}
	if !checked || ns.Defaults.isEmpty() || p.Subject.IsKubelet(ctx, a) {
		return nil
	}
	pod, err := p.Kinds.Read(a.GetObject(), a.GetKind(), o)
	if err == nil && pod == nil {
		err = plugins.ErrObject
	}
	if err != nil {
		return admission.NewForbidden(a, err)
	}
	ns.Defaults.apply(pod.Templates[0].Spec)
	if err := pod.Write(); err != nil {
		return admission.NewForbidden(a, err)
	}
	return nil
}

func isNewPod(a admission.Attributes) bool {
	return a.GetOperation() == admission.Create && a.GetSubresource() == "" && workload.IsPod(a.GetKind().GroupKind())
}

// Validate implements [admission.ValidationInterface].
func (p *plugin) Validate(ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces) error {
	ns, checked, err := p.namespaceOf(ctx, a)
	switch {
	case err != nil:
		return admission.NewForbidden(a, err)
	case !checked || p.Subject.IsKubelet(ctx, a):
		return nil
	case a.GetKind().GroupKind() == bindingKind.GroupKind():
		err = p.checkBinding(ctx, a, o, ns.TenantRules)
	case a.GetKind().GroupKind() == claimKind.GroupKind():
		err = p.checkClaim(ctx, a, ns.TenantRules)
	case a.GetKind().GroupKind() == capacityKind.GroupKind():
		err = p.checkCapacity(ctx, a, ns.TenantRules)
	case isGroup(a.GetKind().GroupKind()):
		err = p.checkGroup(ctx, a, o, &ns)
	case workload.IsPod(a.GetKind().GroupKind()) && a.GetSubresource() == "status":
		err = p.checkNominated(ctx, a, o, ns.TenantRules) // no other checked field is stored
	default:
		err = p.check(ctx, a, o, &ns)
	}
	if err != nil {
		return admission.NewForbidden(a, err)
	}
	return nil
}

// checkBinding checks a Binding, which names the node of a Pod.
func (p *plugin) checkBinding(
	ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces, rules *TenantRules,
) error {
	if p.Subject.IsSystem(ctx, a.GetUserInfo()) {
		return nil
	}
	binding, err := plugins.Versioned[corev1.Binding](a.GetObject(), bindingKind, o)
	if err != nil {
		return err
	}
	return check(rules.Rules["nodeName"], "nodeName", item{path: "target.name", key: binding.Target.Name})
}

var errOld = errors.New("cannot read the old object")

func (p *plugin) check(
	ctx context.Context,
	a admission.Attributes,
	o admission.ObjectInterfaces,
	ns *tenantNamespace,
) error {
	obj, err := p.Kinds.Read(a.GetObject(), a.GetKind(), o)
	if err != nil && workload.IsFinalizing(a) {
		return nil
	}
	if err != nil {
		return err
	}
	if obj == nil {
		return plugins.ErrObject
	}
	oldSpecs := map[string]*corev1.PodSpec{}
	var old *workload.Object
	if a.GetOperation() == admission.Update {
		old, err = p.Kinds.Read(a.GetOldObject(), a.GetKind(), o)
		if err != nil || old == nil {
			return errOld
		}
		for _, t := range old.Templates {
			oldSpecs[t.Path] = t.Spec
		}
	}
	errs := &plugins.Errors{}
	p.checkFields(ctx, obj, oldSpecs, ns, anyField, errs)
	if errs.Err() != nil {
		if requested := p.requested(ctx, a, o); requested != nil {
			// The cluster may have added the denied values, so only the values that the client sent
			// are checked. The name of a node is always checked.
			errs = &plugins.Errors{}
			p.checkFields(ctx, obj, oldSpecs, ns, isNodeName, errs)
			p.checkFields(ctx, requested, oldSpecs, ns, notNodeName, errs)
		}
	}
	if isNewPod(a) {
		errs.Add(ns.Defaults.check(obj.Templates[0].Spec))
	}
	errs.Add(checkTemplates(old, obj, ns.TenantRules))
	errs.Add(p.checkScheduling(ctx, old, obj, ns, errs))
	return errs.Err()
}

// requested returns the object that the client sent, or nil if it is not known. It returns nil for
// a kind that is not built in, because a webhook may fill in a template from other fields that the
// client sent.
func (p *plugin) requested(ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces) *workload.Object {
	if !workload.IsBuiltIn(a.GetKind().GroupKind()) {
		return nil
	}
	object, err := p.Kinds.Read(plugins.Requested(ctx, a), a.GetKind(), o)
	if err != nil {
		return nil
	}
	return object
}

// checkFields checks all templates. It checks only the fields for which included returns true.
func (p *plugin) checkFields(
	ctx context.Context,
	obj *workload.Object,
	oldSpecs map[string]*corev1.PodSpec,
	ns *tenantNamespace,
	included func(podField) bool,
	errs *plugins.Errors,
) {
	for _, t := range obj.Templates {
		for _, f := range fields {
			if included(f) {
				p.checkField(ctx, f, t, oldSpecs[t.Path], ns, errs)
			}
		}
	}
}

func (p *plugin) checkField(
	ctx context.Context, f podField, t *workload.Template, old *corev1.PodSpec, ns *tenantNamespace, errs *plugins.Errors,
) {
	rule := ns.Rules[f.name]
	if rule.Policy == plugins.Ignore || old != nil && equality.Semantic.DeepEqual(f.value(old), f.value(t.Spec)) {
		return
	}
	var oldItems []item
	if old != nil {
		oldItems = f.items(old)
	}
	for _, i := range f.items(t.Spec) {
		if p.isAlwaysAllowed(ctx, f.name, i, ns) || slices.ContainsFunc(oldItems, i.isUnchanged) {
			continue
		}
		i.path = t.Field("spec." + i.path)
		err := check(rule, f.name, i)
		if err != nil && f.name == podAffinity {
			err = fmt.Errorf("%w: name own namespaces, or require the label %s: %s", err, tenant.Label, ns.owner)
		}
		errs.Add(err)
	}
}

// isAlwaysAllowed reports whether an item is allowed without a list. Examples are a default value
// and Pods in the tenant's own namespaces.
func (p *plugin) isAlwaysAllowed(ctx context.Context, field string, i item, ns *tenantNamespace) bool {
	switch {
	case ns.Defaults.contains(field, i), ns.Cluster.contains(field, i):
		return true
	case field == "priorityClassName":
		return p.DefaultPriority != nil && p.DefaultPriority(i.key)
	case field != podAffinity || i.key == "":
		return false
	case i.key == tenant.Label: // a selector, because no namespace has this name
		return i.value != nil && *i.value == ns.owner.String()
	case i.key == ns.namespace:
		return true
	case p.ReferencedOwner == nil || tenant.PrefixOwner(i.key) != ns.owner:
		return false
	}
	owner, err := p.ReferencedOwner(ctx, ns.owner, i.key)
	return err == nil && owner == ns.owner && !owner.IsZero()
}

// keyFields are the fields with lists that may have an entry "domain/*". The lists of other fields
// contain names.
var keyFields = []string{"nodeSelector", "nodeAffinity", "tolerations", "topologySpread"}

// check denies an item that is not on the list. The error contains the list, which is configured
// for this tenant.
func check(r plugins.Rule, name string, i item) error {
	if r.Allows(func(entry string) bool {
		return i.key != "" && (entry == i.key || i.value != nil && entry == i.key+"="+*i.value ||
			slices.Contains(keyFields, name) && plugins.MatchesDomain(entry, i.key))
	}) {
		return nil
	}
	allows := "admission.placement." + name + " allows none"
	switch {
	case name == "tolerations" && i.key == "":
		allows = "no list allows a toleration without a key"
	case r.Policy == plugins.AllowListed && len(r.Allowed) > 0:
		allows = "admission.placement." + name + " allows " + strings.Join(r.Allowed, ", ")
	}
	if slices.Contains(clusterFields, name) {
		allows += ", and admission.placement.cluster can allow what the cluster adds"
	}
	return fmt.Errorf("%s: tenants may not choose %s: %s", i.path, fieldDescriptions[name], allows)
}
