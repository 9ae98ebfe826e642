// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

// Package namespace protects the Namespace objects of tenants. A tenant's caller may create
// namespaces for its own tenant only, and may set only listed labels and annotations. No caller may
// change or remove the tenant label, except the server itself for kubectl tenant release. No caller
// may assign a system namespace to a tenant.
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
	errMoved         = errors.New("the label " + tenant.Label +
		" is immutable: an administrator can release the namespace with kubectl tenant release NAMESPACE")
	errSystem = errors.New("a namespace of authorization.systemNamespaces may not belong to a tenant: " +
		"use another namespace")
	errReleasing = errors.New("the namespace is being released from a tenant (annotation " +
		tenant.ReleasingAnnotation + "): run kubectl tenant release NAMESPACE again first")
	errGive = errors.New("only the system tenant may assign an existing namespace to a tenant")
	errOver = errors.New("the label " + tenant.Label +
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
	// PodSecurity is the value of EnforceLabel on the namespaces that tenants create. A tenant may
	// set a stricter level.
	PodSecurity string
	// AllowedLabels and AllowedAnnotations are the keys, or "domain/*", that tenants may set.
	// Tenants may also set keys without a domain and the keys of [Tools]. A label that a webhook or
	// a policy uses to select namespaces needs an entry with its exact key.
	AllowedLabels, AllowedAnnotations []string
	// ClusterLabels and ClusterAnnotations are keys that the cluster itself sets on namespaces, with
	// their values. "{tenant}" in a value means the name of the tenant. Tenants may set these values,
	// and no others.
	ClusterLabels, ClusterAnnotations map[string]string
	// Selected returns why a label may affect a webhook or a policy, or "" if none uses it to
	// select namespaces. Tenants may set such a label only if AllowedLabels has its exact key. If
	// nil, no label is selected.
	Selected func(key string) string
	// Spaces returns the rules for the namespaces of a tenant. It MUST be fast. If nil, there are
	// no such rules.
	Spaces func(tenant.ID) Spaces
	// Over reports whether a tenant is deleted or being deleted. Such a tenant gets no further
	// namespaces. If nil, no tenant is deleted.
	Over func(tenant.ID) bool
	// SystemNamespaces are the names of the namespaces that no caller may assign to a tenant.
	SystemNamespaces []string
	// Recorded are annotations that another plugin writes and protects.
	Recorded []string
}

// Spaces contains the rules for the namespaces of a tenant. The zero value has no rules.
type Spaces struct {
	// Labels are set on each namespace. The tenant cannot change them.
	Labels map[string]string
	// PodSecurity is the value of EnforceLabel on the tenant's namespaces, whichever caller creates
	// them. The tenant may set a stricter level. Defaults to [Options.PodSecurity] for namespaces
	// that the tenant creates.
	PodSecurity string
	// PrefixRequired is [Options.PrefixRequired] for this tenant.
	PrefixRequired bool
}

// spaces returns the rules for the namespaces of a tenant.
func (p *plugin) spaces(id tenant.ID) Spaces {
	if p.Spaces == nil || id.IsZero() || id.IsSystem() {
		return Spaces{}
	}
	return p.Spaces(id)
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

// objects returns the metadata of the old and the new Namespace of a write. It returns false if the
// write is not about a Namespace.
func objects(a admission.Attributes) (was, is metav1.Object, ok bool) {
	if a.GetResource().GroupResource() != corev1.Resource("namespaces") {
		return nil, nil, false
	}
	is, err := meta.Accessor(a.GetObject())
	if err != nil {
		return nil, nil, false
	}
	was = &metav1.ObjectMeta{}
	if a.GetOperation() == admission.Update {
		if was, err = meta.Accessor(a.GetOldObject()); err != nil {
			return nil, nil, false
		}
	}
	return was, is, true
}

// Admit implements [admission.MutationInterface]. It labels the Namespaces that a tenant creates.
// If an update omits labels or annotations that the caller may not set, it restores them. It does
// not restore the tenant label. Validate denies an update without it, so that no caller believes
// that the namespace was released.
func (p *plugin) Admit(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	was, is, ok := objects(a)
	if !ok {
		return nil
	}
	caller, err := p.Subject(ctx, a.GetUserInfo())
	if err != nil {
		return admission.NewForbidden(a, errUnknownCaller)
	}
	missing := map[string]string{}
	if a.GetOperation() == admission.Create {
		p.recordGiven(caller, is)
	}
	switch {
	case a.GetOperation() == admission.Create && !caller.IsSystem():
		missing = p.labelsOf(caller)
		missing[tenant.Label] = caller.String()
		if level := cmp.Or(missing[EnforceLabel], p.PodSecurity); level != "" {
			missing[EnforceLabel] = level
		}
	case a.GetOperation() == admission.Update && !caller.IsSystem():
		own := heldLabels(p.spaces(caller).Labels, was)
		missing = removed(was.GetLabels(), is.GetLabels(), func(key string) bool {
			return key == tenant.Label || p.labelReason(key, own) == ""
		})
		annotations := removed(was.GetAnnotations(), is.GetAnnotations(), func(key string) bool {
			return p.annotationReason(key) == ""
		})
		if len(annotations) > 0 {
			is.SetAnnotations(with(is.GetAnnotations(), annotations))
		}
		plugins.WarnRestored(ctx, a, "", "label", slices.Collect(maps.Keys(missing))...)
		plugins.WarnRestored(ctx, a, "", "annotation", slices.Collect(maps.Keys(annotations))...)
	case a.GetOperation() == admission.Update && isTenant(was.GetLabels()[tenant.Label]): // it already has a tenant
	default: // a caller creates it for a tenant, or assigns it to a tenant
		if id, err := tenant.Parse(is.GetLabels()[tenant.Label]); err == nil {
			missing = p.labelsOf(id)
		}
	}
	if labels := with(is.GetLabels(), missing); len(labels) > len(is.GetLabels()) {
		is.SetLabels(labels)
	}
	return nil
}

// labelsOf returns the labels that are set on each namespace of a tenant.
func (p *plugin) labelsOf(id tenant.ID) map[string]string {
	spaces := p.spaces(id)
	out := map[string]string{}
	maps.Copy(out, spaces.Labels)
	if spaces.PodSecurity != "" {
		out[EnforceLabel] = spaces.PodSecurity
	}
	return out
}

// removed returns the keys that an update omits and that a tenant may not set. The server restores
// them, because a client that replaces the object may not know these keys.
func removed(was, is map[string]string, allowed func(string) bool) map[string]string {
	out := map[string]string{}
	for key, value := range was {
		if _, has := is[key]; !has && !allowed(key) {
			out[key] = value
		}
	}
	return out
}

// with returns is, with the missing keys added.
func with(is, missing map[string]string) map[string]string {
	out := maps.Clone(missing)
	maps.Copy(out, is)
	return out
}

// Validate implements [admission.ValidationInterface].
func (p *plugin) Validate(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	was, is, ok := objects(a)
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
	err = p.checkOwner(ctx, caller, a, was, is)
	if err == nil {
		err = p.checkOver(was, is)
	}
	if err == nil && !caller.IsSystem() {
		err = p.checkTenant(ctx, caller, a, was, is)
	}
	if err == nil {
		err = p.checkSystem(was, is)
	}
	if err == nil {
		err = p.checkReserved(a.GetOperation(), was, is)
	}
	if err != nil {
		return admission.NewForbidden(a, err)
	}
	return nil
}

// checkReserved reserves the names that begin with a tenant's prefix for namespaces of that tenant.
// It does not check existing namespaces. A system caller may create such a namespace without a
// label, as kubectl create namespace does, and then assign it to the tenant.
func (p *plugin) checkReserved(op admission.Operation, was, is metav1.Object) error {
	label, labelled := is.GetLabels()[tenant.Label]
	if op == admission.Update && was.GetLabels()[tenant.Label] == label || !labelled {
		return nil
	}
	owner := tenant.PrefixOwner(nameOf(is))
	if !owner.IsZero() && owner.String() != label && (p.PrefixRequired || p.spaces(owner).PrefixRequired) {
		return errReserved
	}
	return nil
}

// nameOf returns the name of a Namespace, or the beginning of a name that the server generates.
func nameOf(is metav1.Object) string {
	if name := is.GetName(); name != "" {
		return name
	}
	// The server appends random letters to this part, so the prefix alone is a valid beginning.
	generate := is.GetGenerateName()
	return generate[:min(len(generate), generatedPrefixBytes)] + "x"
}

// checkOwner checks the tenant label. It applies to every caller.
func (p *plugin) checkOwner(
	ctx context.Context, caller tenant.ID, a admission.Attributes, was, is metav1.Object,
) error {
	old, had := was.GetLabels()[tenant.Label]
	label, has := is.GetLabels()[tenant.Label]
	switch {
	case had == has && old == label: // includes an invalid value that was stored without the plugin
		return nil
	case !has && p.Subject.IsManager(ctx, a):
		return nil
	case had && (isTenant(old) || !has):
		return errMoved
	case a.GetOperation() == admission.Create && !caller.IsSystem() && label != caller.String():
		return errForeignLabel
	case !isTenant(label):
		return errBadLabel
	case a.GetOperation() == admission.Update && !caller.IsSystem():
		return errGive
	}
	return p.checkReleasing(ctx, a, was, is)
}

// checkReleasing denies the assignment of a Namespace to a tenant until its release is complete.
// Until then, credentials of the former tenant may still be valid in the namespace. The server
// itself may assign it to the former tenant again.
func (p *plugin) checkReleasing(ctx context.Context, a admission.Attributes, was, is metav1.Object) error {
	former, releasing := was.GetAnnotations()[tenant.ReleasingAnnotation]
	_, still := is.GetAnnotations()[tenant.ReleasingAnnotation]
	if !releasing || !still && former == is.GetLabels()[tenant.Label] && p.Subject.IsManager(ctx, a) {
		return nil
	}
	return errReleasing
}

// checkSystem denies the assignment of a system namespace to a tenant. It applies to every caller.
func (p *plugin) checkSystem(was, is metav1.Object) error {
	label, labelled := is.GetLabels()[tenant.Label]
	if !labelled || label == was.GetLabels()[tenant.Label] || label == tenant.System().String() {
		return nil
	}
	if slices.Contains(p.SystemNamespaces, is.GetName()) {
		return errSystem
	}
	return nil
}

// checkOver denies the assignment of a Namespace to a tenant that is being deleted. It applies to
// every caller.
func (p *plugin) checkOver(was, is metav1.Object) error {
	label := is.GetLabels()[tenant.Label]
	if p.Over == nil || label == was.GetLabels()[tenant.Label] {
		return nil
	}
	if id, err := tenant.Parse(label); err == nil && p.Over(id) {
		return errOver
	}
	return nil
}

// checkTenant checks the name and the keys that a tenant's caller writes. The error names all
// problems.
func (p *plugin) checkTenant(
	ctx context.Context, caller tenant.ID, a admission.Attributes, was, is metav1.Object,
) error {
	spaces := p.spaces(caller)
	exact := valuesFor(caller, p.ClusterLabels)
	exact[corev1.LabelMetadataName], exact[tenant.Label] = is.GetName(), caller.String()
	var refused plugins.Refusals
	annotated := valuesFor(caller, p.ClusterAnnotations)
	held := heldLabels(spaces.Labels, was)
	if a.GetOperation() == admission.Create {
		if is.GetLabels()[tenant.Label] != caller.String() {
			return errForeignLabel
		}
		refused.Add(p.checkName(caller, is))
		refused.Add(p.checkGiven(caller, is))
		annotated[tenant.GivenLabelsAnnotation] = is.GetAnnotations()[tenant.GivenLabelsAnnotation]
		for _, key := range slices.Sorted(maps.Keys(spaces.Labels)) {
			if is.GetLabels()[key] != spaces.Labels[key] {
				refused.Add(fmt.Errorf("the label %s must be %q", key, spaces.Labels[key]))
			}
			exact[key] = is.GetLabels()[key] // another value is denied above
		}
	}
	sent, isKnown := requested(ctx, a)
	p.checkPodSecurity(a.GetOperation(), was.GetLabels(), is.GetLabels(), &spaces, exact, &refused)
	labels := keys{
		kind:     "label",
		allowing: "admission.namespace.allowedLabels",
		clusters: "admission.namespace.clusterLabels",
		was:      was.GetLabels(),
		is:       is.GetLabels(),
		sent:     sent.GetLabels(),
		isKnown:  isKnown,
		reason:   func(key string) string { return p.labelReason(key, held) },
		exact:    exact,
	}
	labels.check(&refused)
	annotations := keys{
		kind:     "annotation",
		allowing: "admission.namespace.allowedAnnotations",
		clusters: "admission.namespace.clusterAnnotations",
		was:      was.GetAnnotations(),
		is:       is.GetAnnotations(),
		sent:     sent.GetAnnotations(),
		isKnown:  isKnown,
		reason:   p.annotationReason,
		exact:    annotated,
	}
	annotations.check(&refused)
	return refused.Err()
}

// requested returns the metadata that the client sent, and reports whether it is known.
func requested(ctx context.Context, a admission.Attributes) (metav1.Object, bool) {
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

func (p *plugin) checkName(caller tenant.ID, is metav1.Object) error {
	if !p.PrefixRequired && !p.spaces(caller).PrefixRequired {
		return nil
	}
	prefix := caller.NamespacePrefix()
	if prefix == "" {
		return errUnnameable
	}
	if tenant.PrefixOwner(nameOf(is)) != caller {
		return fmt.Errorf("the names of this tenant's namespaces must begin with %s", prefix)
	}
	return nil
}

func isTenant(label string) bool {
	_, err := tenant.Parse(label)
	return err == nil
}
