// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

// Package namespace protects the Namespace objects of tenants. A tenant's caller may create
// namespaces for its own tenant only, and may set only certain labels and annotations. No caller
// may change or remove a valid tenant label, except the server itself for kubectl tenant release.
// No caller may assign a system namespace to a tenant.
package namespace

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/admission"

	"github.com/kubetenant/kubetenant/plugins"
	"github.com/kubetenant/kubetenant/tenant"
)

// Name is the name of the plugin.
const Name = "TenantNamespace"

const (
	// EnforceLabel specifies the level of PodSecurity admission (k8s.io/pod-security-admission api,
	// v0.37.1).
	EnforceLabel = "pod-security.kubernetes.io/enforce"

	// generatedPrefixBytes is the number of bytes of generateName that the server uses in the name
	// (k8s.io/apiserver pkg/storage/names, v0.37.1).
	generatedPrefixBytes = 58
)

// BadLabel is the reason for the denial of a Namespace with a malformed or reserved tenant.
// "kubectl tenant" detects kubetenant's admission webhook by this text.
const BadLabel = "the label " + tenant.Label + " must name a valid tenant"

var (
	errUnknownCaller = errors.New("the caller's tenant is unknown")
	errBadLabel      = errors.New(BadLabel)
	errForeignLabel  = errors.New("the label " + tenant.Label + " may only name the caller's tenant")
	errImmutable     = errors.New("the label " + tenant.Label +
		" is immutable: an administrator can release the namespace with kubectl tenant release NAMESPACE")
	errSystem = errors.New("a namespace of authorization.systemNamespaces may not belong to a tenant: " +
		"use another namespace")
	errReleasing = errors.New("the namespace is being released from a tenant (annotation " +
		tenant.ReleasingAnnotation + "): run kubectl tenant release NAMESPACE again first")
	errAssign        = errors.New("only the system tenant may assign an existing namespace to a tenant")
	errTenantDeleted = errors.New("the label " + tenant.Label +
		" names a tenant that was deleted or is being deleted")
	errUnnameable = errors.New("a tenant may not create namespaces if its name is not a lower-case DNS label " +
		"or contains " + tenant.NamespaceSeparator)
	errReserved = errors.New("a namespace name that begins with a tenant and " + tenant.NamespaceSeparator +
		" is reserved for that tenant: set the label " + tenant.Label + " to it, remove the label, or use another name")
)

// Options configure the plugin. Subject is required.
type Options struct {
	Subject plugins.SubjectFunc
	// PrefixRequired requires that the names of a tenant's namespaces begin with "<tenant>--", and
	// reserves such names for that tenant. A tenant's caller may then learn which names with its
	// own prefix do not exist.
	PrefixRequired bool
	// PodSecurity is the value of [EnforceLabel] on the namespaces that tenants create. A tenant
	// may set a stricter level.
	PodSecurity string
	// AllowedLabels and AllowedAnnotations are the keys, or "domain/*", that tenants may set.
	// Tenants may also set keys without a domain and the keys of [Tools]. A label that a webhook or
	// a policy uses to select namespaces needs an entry with its exact key.
	AllowedLabels, AllowedAnnotations []string
	// ClusterLabels and ClusterAnnotations are keys that the cluster itself sets on namespaces,
	// with their values. "{tenant}" in a value is replaced with the name of the tenant. Tenants may
	// set these keys only to these values.
	ClusterLabels, ClusterAnnotations map[string]string
	// SelectionReason returns why a label may affect a webhook or a policy, or "" if no webhook or
	// policy selects namespaces by the label. Tenants may set such a label only if AllowedLabels
	// has its exact key. If nil, no label is known to affect a webhook or a policy.
	SelectionReason func(key string) string
	// Rules returns the rules for the namespaces of a tenant. It MUST return quickly. If nil,
	// there are no such rules.
	Rules func(tenant.ID) Rules
	// Deleted reports whether a tenant is deleted or being deleted. No further namespace can be
	// assigned to such a tenant. If nil, no tenant is deleted.
	Deleted func(tenant.ID) bool
	// SystemNamespaces are the names of the namespaces that no caller may assign to a tenant.
	SystemNamespaces []string
	// ProtectedAnnotations are annotations that another plugin writes and protects.
	ProtectedAnnotations []string
}

// Rules contains the rules for the namespaces of a tenant. The zero value has no rules.
type Rules struct {
	// Labels are set on each namespace. The tenant cannot change them.
	Labels map[string]string
	// PodSecurity is the value of [EnforceLabel] on the tenant's namespaces, regardless of the
	// caller that creates them. The tenant may set a stricter level. Defaults to
	// [Options.PodSecurity] for namespaces that the tenant creates.
	PodSecurity string
	// PrefixRequired is [Options.PrefixRequired] for this tenant.
	PrefixRequired bool
}

// rulesFor returns the rules for the namespaces of a tenant.
func (p *plugin) rulesFor(id tenant.ID) Rules {
	if p.Rules == nil || id.IsZero() || id.IsSystem() {
		return Rules{}
	}
	return p.Rules(id)
}

// New returns the plugin. It checks every write of a Namespace, including the subresources status
// and finalize, which can change labels too.
func New(o Options) plugins.Interface {
	return &plugin{admission.NewHandler(admission.Create, admission.Update), o}
}

type plugin struct {
	*admission.Handler
	Options
}

// namespaceMetadata returns the metadata of the old and the new Namespace of a write. It returns
// false if the write has no Namespace.
func namespaceMetadata(a admission.Attributes) (old, obj metav1.Object, ok bool) {
	if a.GetResource().GroupResource() != corev1.Resource("namespaces") {
		return nil, nil, false
	}
	obj, err := meta.Accessor(a.GetObject())
	if err != nil {
		return nil, nil, false
	}
	old = &metav1.ObjectMeta{}
	if a.GetOperation() == admission.Update {
		if old, err = meta.Accessor(a.GetOldObject()); err != nil {
			return nil, nil, false
		}
	}
	return old, obj, true
}

// Admit implements [admission.MutationInterface]. It sets the labels of the Tenant on a Namespace
// that is created for a tenant or assigned to a tenant. If an update omits labels or annotations
// that the caller may not set, it restores them. It does not restore the tenant label. Validate
// denies an update without this label, so that no caller believes that the namespace was released.
func (p *plugin) Admit(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	old, obj, ok := namespaceMetadata(a)
	if !ok {
		return nil
	}
	caller, err := p.Subject(ctx, a.GetUserInfo())
	if err != nil {
		return admission.NewForbidden(a, errUnknownCaller)
	}
	missing := map[string]string{}
	if a.GetOperation() == admission.Create {
		p.recordAddedLabels(caller, obj)
	}
	switch {
	case a.GetOperation() == admission.Create && !caller.IsSystem():
		missing = p.labelsOf(caller)
		missing[tenant.Label] = caller.String()
		if level := cmp.Or(missing[EnforceLabel], p.PodSecurity); level != "" {
			missing[EnforceLabel] = level
		}
	case a.GetOperation() == admission.Update && !caller.IsSystem():
		protected := protectedLabels(p.rulesFor(caller).Labels, old)
		missing = omittedKeys(old.GetLabels(), obj.GetLabels(), func(key string) bool {
			return key == tenant.Label || p.labelReason(key, protected) == ""
		})
		annotations := omittedKeys(old.GetAnnotations(), obj.GetAnnotations(), func(key string) bool {
			return p.annotationReason(key) == ""
		})
		if len(annotations) > 0 {
			obj.SetAnnotations(withMissing(obj.GetAnnotations(), annotations))
		}
		plugins.WarnRestored(ctx, a, "", "label", slices.Collect(maps.Keys(missing))...)
		plugins.WarnRestored(ctx, a, "", "annotation", slices.Collect(maps.Keys(annotations))...)
	case a.GetOperation() != admission.Update || !isTenant(old.GetLabels()[tenant.Label]):
		// A system caller creates the Namespace for a tenant, or assigns it to a tenant.
		if id, err := tenant.Parse(obj.GetLabels()[tenant.Label]); err == nil {
			missing = p.labelsOf(id)
		}
	}
	if labels := withMissing(obj.GetLabels(), missing); len(labels) > len(obj.GetLabels()) {
		obj.SetLabels(labels)
	}
	return nil
}

// labelsOf returns the labels that are set on each namespace of a tenant.
func (p *plugin) labelsOf(id tenant.ID) map[string]string {
	rules := p.rulesFor(id)
	out := map[string]string{}
	maps.Copy(out, rules.Labels)
	if rules.PodSecurity != "" {
		out[EnforceLabel] = rules.PodSecurity
	}
	return out
}

// omittedKeys returns the keys that an update omits and that a tenant may not set. The server
// restores these keys, because a client that replaces the object may not know them.
func omittedKeys(old, current map[string]string, allowed func(string) bool) map[string]string {
	out := map[string]string{}
	for key, value := range old {
		if _, ok := current[key]; !ok && !allowed(key) {
			out[key] = value
		}
	}
	return out
}

// withMissing returns existing with the missing keys added.
func withMissing(existing, missing map[string]string) map[string]string {
	out := maps.Clone(missing)
	maps.Copy(out, existing)
	return out
}

// Validate implements [admission.ValidationInterface].
func (p *plugin) Validate(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	old, obj, ok := namespaceMetadata(a)
	if !ok {
		if a.GetResource().GroupResource() == corev1.Resource("namespaces") {
			return admission.NewForbidden(a, errors.New("the object is not a Namespace"))
		}
		return nil
	}
	caller, err := p.Subject(ctx, a.GetUserInfo())
	if err != nil {
		return admission.NewForbidden(a, errUnknownCaller)
	}
	err = p.checkOwner(ctx, caller, a, old, obj)
	if err == nil {
		err = p.checkDeleted(old, obj)
	}
	if err == nil && !caller.IsSystem() {
		err = p.checkTenant(ctx, caller, a, old, obj)
	}
	if err == nil {
		err = p.checkSystem(old, obj)
	}
	if err == nil {
		err = p.checkReserved(a.GetOperation(), old, obj)
	}
	if err != nil {
		return admission.NewForbidden(a, err)
	}
	return nil
}

// checkReserved reserves the names that begin with a tenant's prefix for namespaces of that tenant.
// It does not check a namespace without the label or with an unchanged label. A system caller may
// therefore create such a namespace without a label, as kubectl create namespace does, and then
// assign it to the tenant.
func (p *plugin) checkReserved(op admission.Operation, old, obj metav1.Object) error {
	label, labelled := obj.GetLabels()[tenant.Label]
	if op == admission.Update && old.GetLabels()[tenant.Label] == label || !labelled {
		return nil
	}
	owner := tenant.PrefixOwner(nameOf(obj))
	if !owner.IsZero() && owner.String() != label && (p.PrefixRequired || p.rulesFor(owner).PrefixRequired) {
		return errReserved
	}
	return nil
}

// nameOf returns the name of a Namespace, or the beginning of the name that the server will
// generate.
func nameOf(obj metav1.Object) string {
	if name := obj.GetName(); name != "" {
		return name
	}
	// The server appends random letters. One letter is added here, because a prefix alone is not a
	// name.
	generate := obj.GetGenerateName()
	return generate[:min(len(generate), generatedPrefixBytes)] + "x"
}

// checkOwner checks the tenant label. It applies to every caller.
func (p *plugin) checkOwner(
	ctx context.Context, caller tenant.ID, a admission.Attributes, oldObj, newObj metav1.Object,
) error {
	old, oldOK := oldObj.GetLabels()[tenant.Label]
	label, ok := newObj.GetLabels()[tenant.Label]
	switch {
	case oldOK == ok && old == label: // includes an invalid value that was stored without the plugin
		return nil
	case !ok && p.Subject.IsManager(ctx, a):
		return nil
	case oldOK && (isTenant(old) || !ok):
		return errImmutable
	case a.GetOperation() == admission.Create && !caller.IsSystem() && label != caller.String():
		return errForeignLabel
	case !isTenant(label):
		return errBadLabel
	case a.GetOperation() == admission.Update && !caller.IsSystem():
		return errAssign
	}
	return p.checkReleasing(ctx, a, oldObj, newObj)
}

// checkReleasing denies the assignment of a Namespace to a tenant until the Namespace's release is
// complete. Until then, credentials of the former tenant may still be valid in the namespace. The
// server itself may assign the Namespace to the former tenant again.
func (p *plugin) checkReleasing(ctx context.Context, a admission.Attributes, old, obj metav1.Object) error {
	former, releasing := old.GetAnnotations()[tenant.ReleasingAnnotation]
	_, still := obj.GetAnnotations()[tenant.ReleasingAnnotation]
	if !releasing || !still && former == obj.GetLabels()[tenant.Label] && p.Subject.IsManager(ctx, a) {
		return nil
	}
	return errReleasing
}

// checkSystem denies the assignment of a system namespace to a tenant. It applies to every caller.
func (p *plugin) checkSystem(old, obj metav1.Object) error {
	label, labelled := obj.GetLabels()[tenant.Label]
	if !labelled || label == old.GetLabels()[tenant.Label] || label == tenant.System().String() {
		return nil
	}
	if slices.Contains(p.SystemNamespaces, obj.GetName()) {
		return errSystem
	}
	return nil
}

// checkDeleted denies the assignment of a Namespace to a tenant that is deleted or being deleted.
// It applies to every caller.
func (p *plugin) checkDeleted(old, obj metav1.Object) error {
	label := obj.GetLabels()[tenant.Label]
	if p.Deleted == nil || label == old.GetLabels()[tenant.Label] {
		return nil
	}
	if id, err := tenant.Parse(label); err == nil && p.Deleted(id) {
		return errTenantDeleted
	}
	return nil
}

// checkTenant checks the name and the keys that a tenant's caller writes. The error names all
// problems.
func (p *plugin) checkTenant(
	ctx context.Context, caller tenant.ID, a admission.Attributes, old, obj metav1.Object,
) error {
	rules := p.rulesFor(caller)
	exact := valuesFor(caller, p.ClusterLabels)
	exact[corev1.LabelMetadataName], exact[tenant.Label] = obj.GetName(), caller.String()
	var errs plugins.Errors
	exactAnnotations := valuesFor(caller, p.ClusterAnnotations)
	protected := protectedLabels(rules.Labels, old)
	if a.GetOperation() == admission.Create {
		if obj.GetLabels()[tenant.Label] != caller.String() {
			return errForeignLabel
		}
		errs.Add(p.checkName(caller, obj))
		errs.Add(p.checkAddedLabels(caller, obj))
		exactAnnotations[tenant.GivenLabelsAnnotation] = obj.GetAnnotations()[tenant.GivenLabelsAnnotation]
		for _, key := range slices.Sorted(maps.Keys(rules.Labels)) {
			if obj.GetLabels()[key] != rules.Labels[key] {
				errs.Add(fmt.Errorf("the label %s must be %q", key, rules.Labels[key]))
			}
			exact[key] = obj.GetLabels()[key] // another value is denied above
		}
	}
	sent, isKnown := sentMetadata(ctx, a)
	p.checkPodSecurity(a.GetOperation(), old.GetLabels(), obj.GetLabels(), &rules, exact, &errs)
	labels := keys{
		kind:           "label",
		allowSetting:   "admission.namespace.allowedLabels",
		clusterSetting: "admission.namespace.clusterLabels",
		old:            old.GetLabels(),
		current:        obj.GetLabels(),
		sent:           sent.GetLabels(),
		isKnown:        isKnown,
		reason:         func(key string) string { return p.labelReason(key, protected) },
		exactValues:    exact,
	}
	labels.check(&errs)
	annotations := keys{
		kind:           "annotation",
		allowSetting:   "admission.namespace.allowedAnnotations",
		clusterSetting: "admission.namespace.clusterAnnotations",
		old:            old.GetAnnotations(),
		current:        obj.GetAnnotations(),
		sent:           sent.GetAnnotations(),
		isKnown:        isKnown,
		reason:         p.annotationReason,
		exactValues:    exactAnnotations,
	}
	annotations.check(&errs)
	return errs.Err()
}

// sentMetadata returns the metadata that the client sent, and reports whether it is known.
func sentMetadata(ctx context.Context, a admission.Attributes) (metav1.Object, bool) {
	sent, err := meta.Accessor(plugins.Requested(ctx, a))
	if err != nil {
		return &metav1.ObjectMeta{}, false
	}
	return sent, true
}

// valuesFor returns the values that the cluster sets on the namespaces of a tenant.
func valuesFor(id tenant.ID, keys map[string]string) map[string]string {
	out := make(map[string]string, len(keys)+2)
	for key, value := range keys {
		out[key] = strings.ReplaceAll(value, "{tenant}", id.String())
	}
	return out
}

func (p *plugin) checkName(caller tenant.ID, obj metav1.Object) error {
	if !p.PrefixRequired && !p.rulesFor(caller).PrefixRequired {
		return nil
	}
	prefix := caller.NamespacePrefix()
	if prefix == "" {
		return errUnnameable
	}
	if tenant.PrefixOwner(nameOf(obj)) != caller {
		return fmt.Errorf("the names of this tenant's namespaces must begin with %s", prefix)
	}
	return nil
}

func isTenant(label string) bool {
	_, err := tenant.Parse(label)
	return err == nil
}
