// Package namespace protects the Namespace objects of tenants. A tenant's caller may create
// namespaces of its own tenant only, and may set only listed labels and annotations. No caller may
// change or remove the tenant label, except the server's own identity for kubectl tenant release.
// No caller may give a system namespace to a tenant.
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

// Name of the plugin.
const Name = "TenantNamespace"

const (
	// EnforceLabel is the label by which PodSecurity admission is told its level
	// (k8s.io/pod-security-admission api, v0.37.1).
	EnforceLabel = "pod-security.kubernetes.io/enforce"

	// generatedPrefixBytes is how much of a generateName is kept in the name
	// (k8s.io/apiserver pkg/storage/names, v0.37.1).
	generatedPrefixBytes = 58
)

// BadLabel is the reason why a Namespace with a malformed or reserved tenant is refused. "kubectl
// tenant" recognizes an admission webhook of kubetenant by it.
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
	// PrefixRequired demands that a tenant's namespaces are named "<tenant>--...", and keeps
	// such names for it, whoever asks: what does not exist under the own prefix may be told
	// to a tenant's caller then.
	PrefixRequired bool
	// PodSecurity is the value of EnforceLabel on the namespaces that tenants create.
	PodSecurity string
	// AllowedLabels and AllowedAnnotations are the keys, or "domain/*", that tenants may
	// set. Keys without a domain, and labels that tools write, are allowed always, but for
	// labels that are the system's.
	AllowedLabels, AllowedAnnotations []string
	// Selected reports whether webhooks or policies choose namespaces by a label, which is the
	// system's then. Nil knows of none.
	Selected func(key string) bool
	// Spaces returns what the namespaces of a tenant are like. It MUST be quick.
	// Nil says nothing of any.
	Spaces func(tenant.ID) Spaces
	// Over reports whether a tenant is being deleted, or was: it gets no namespace any
	// more. Nil knows of nobody.
	Over func(tenant.ID) bool
	// SystemNamespaces are the names of the namespaces that no caller may give to a tenant.
	SystemNamespaces []string
	// Recorded are annotations that another plugin writes and protects.
	Recorded []string
}

// Spaces is what the namespaces of a tenant are like. The zero value says nothing.
type Spaces struct {
	// Labels stand on each of them; the tenant cannot change them.
	Labels map[string]string
	// PodSecurity is the value of EnforceLabel on those that anybody makes for it; empty for what the
	// plugin says of the tenant's own.
	PodSecurity string
	// PrefixRequired demands their names and keeps them, as
	// [Options.PrefixRequired] does for all tenants.
	PrefixRequired bool
}

// spaces returns what the namespaces of a tenant are like.
func (p *plugin) spaces(id tenant.ID) Spaces {
	if p.Spaces == nil || id.IsZero() || id.IsSystem() {
		return Spaces{}
	}
	return p.Spaces(id)
}

// New returns the plugin. It governs every write of a Namespace, its subresources included: status
// and finalize store labels too.
func New(o Options) plugins.Interface {
	return &plugin{admission.NewHandler(admission.Create, admission.Update), o}
}

type plugin struct {
	*admission.Handler
	Options
}

// objects returns the metadata of the Namespaces that a is about, or false if it is about none.
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

// Admit implements [admission.MutationInterface]: it labels what a tenant creates, and puts
// back what of labels and annotations is not the caller's to set where an update left it out.
// It does not put back the tenant label: Validate refuses that update, so that no caller
// believes the namespace was released.
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
		missing[EnforceLabel] = cmp.Or(missing[EnforceLabel], p.PodSecurity)
	case a.GetOperation() == admission.Update && !caller.IsSystem():
		own := heldLabels(p.spaces(caller).Labels, was)
		missing = without(was.GetLabels(), func(key string) bool {
			return key == tenant.Label || key != EnforceLabel && p.mayLabel(key, own)
		})
		annotations := with(is.GetAnnotations(), without(was.GetAnnotations(), p.mayAnnotate))
		if len(annotations) > len(is.GetAnnotations()) {
			is.SetAnnotations(annotations)
		}
	case a.GetOperation() == admission.Update && isTenant(was.GetLabels()[tenant.Label]): // it has a tenant already
	default: // somebody makes one for a tenant, or gives it one
		if id, err := tenant.Parse(is.GetLabels()[tenant.Label]); err == nil {
			missing = p.labelsOf(id)
		}
	}
	if labels := with(is.GetLabels(), missing); len(labels) > len(is.GetLabels()) {
		is.SetLabels(labels)
	}
	return nil
}

// labelsOf returns the labels that each namespace of a tenant gets.
func (p *plugin) labelsOf(id tenant.ID) map[string]string {
	spaces := p.spaces(id)
	out := map[string]string{}
	maps.Copy(out, spaces.Labels)
	if spaces.PodSecurity != "" {
		out[EnforceLabel] = spaces.PodSecurity
	}
	return out
}

// without returns the keys that a tenant may not set: what it leaves out of an update, as a client
// that replaces does that knows nothing of them, stays.
func without(all map[string]string, allowed func(string) bool) map[string]string {
	out := map[string]string{}
	for key, value := range all {
		if !allowed(key) {
			out[key] = value
		}
	}
	return out
}

// with returns what is there with what is missing.
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
		err = p.checkTenant(caller, a, was, is)
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

// checkReserved keeps the names that begin with a tenant's prefix for namespaces of that tenant.
// One that stood there before stays as it is, and a system caller may make one without a label, as
// kubectl create namespace does, to give it to that tenant.
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

// nameOf returns the name of a Namespace, or what will begin one that the server makes up.
func nameOf(is metav1.Object) string {
	if name := is.GetName(); name != "" {
		return name
	}
	// The server puts random letters behind this much of it, so a bare prefix will do.
	generate := is.GetGenerateName()
	return generate[:min(len(generate), generatedPrefixBytes)] + "x"
}

// checkOwner checks the tenant label, for every caller.
func (p *plugin) checkOwner(
	ctx context.Context, caller tenant.ID, a admission.Attributes, was, is metav1.Object,
) error {
	old, had := was.GetLabels()[tenant.Label]
	label, has := is.GetLabels()[tenant.Label]
	switch {
	case had == has && old == label: // including an invalid value that was stored without the plugin
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

// checkReleasing refuses to give a Namespace to a tenant while its release is not complete,
// since credentials of the former tenant may still be valid in it. The server's own identity may
// give it back to that tenant.
func (p *plugin) checkReleasing(ctx context.Context, a admission.Attributes, was, is metav1.Object) error {
	former, releasing := was.GetAnnotations()[tenant.ReleasingAnnotation]
	_, still := is.GetAnnotations()[tenant.ReleasingAnnotation]
	if !releasing || !still && former == is.GetLabels()[tenant.Label] && p.Subject.IsManager(ctx, a) {
		return nil
	}
	return errReleasing
}

// checkSystem refuses to give a system namespace to a tenant, for every caller.
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

// checkOver gives nothing to a tenant that ends, whoever asks.
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

// checkTenant holds what a tenant's caller may write: the name, and the keys.
func (p *plugin) checkTenant(caller tenant.ID, a admission.Attributes, was, is metav1.Object) error {
	spaces := p.spaces(caller)
	own := map[string]string{corev1.LabelMetadataName: is.GetName(), tenant.Label: caller.String()}
	record := map[string]string{}
	if a.GetOperation() == admission.Create {
		if is.GetLabels()[tenant.Label] != caller.String() {
			return errForeignLabel
		}
		if err := p.checkName(caller, is); err != nil {
			return err
		}
		if err := p.checkGiven(caller, is); err != nil {
			return err
		}
		record[tenant.GivenLabelsAnnotation] = is.GetAnnotations()[tenant.GivenLabelsAnnotation]
		level := cmp.Or(spaces.PodSecurity, p.PodSecurity)
		own[EnforceLabel] = level
		if is.GetLabels()[EnforceLabel] != level {
			return fmt.Errorf("the label %s must be %q", EnforceLabel, level)
		}
		maps.Copy(own, spaces.Labels)
		for key, value := range spaces.Labels {
			if is.GetLabels()[key] != value {
				return fmt.Errorf("the label %s must be %q", key, value)
			}
		}
	}
	held := heldLabels(spaces.Labels, was)
	mayLabel := func(key string) bool { return p.mayLabel(key, held) }
	if err := checkKeys("label", was.GetLabels(), is.GetLabels(), mayLabel, own); err != nil {
		return err
	}
	return checkKeys("annotation", was.GetAnnotations(), is.GetAnnotations(), p.mayAnnotate, record)
}

// mayAnnotate reports whether tenants may set an annotation, or others' record it.
func (p *plugin) mayAnnotate(key string) bool {
	return isAllowed(key, p.AllowedAnnotations) || slices.Contains(p.Recorded, key)
}

// injectionLabels switch webhooks on and off that are not there yet: Istio's, and those that leave
// out the control plane (Gatekeeper, OPA).
var injectionLabels = []string{"istio-injection", "control-plane"}

// toolLabels are what tools write on whatever they apply, and what nobody selects
// namespaces by as a rule; app.kubernetes.io/name and instance, by which NetworkPolicies
// let others in, are not among them.
var toolLabels = []string{
	"app.kubernetes.io/managed-by", "app.kubernetes.io/part-of",
	"app.kubernetes.io/version", "app.kubernetes.io/created-by",
	"helm.sh/chart", "kustomize.toolkit.fluxcd.io/name", "kustomize.toolkit.fluxcd.io/namespace",
}

// mayLabel reports whether tenants may set a label: none that each of their namespaces gets.
func (p *plugin) mayLabel(key string, given map[string]string) bool {
	if _, is := given[key]; is {
		return false
	}
	if slices.Contains(p.AllowedLabels, key) {
		return true
	}
	return (isAllowed(key, p.AllowedLabels) || slices.Contains(toolLabels, key)) &&
		!slices.Contains(injectionLabels, key) && (p.Selected == nil || !p.Selected(key))
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

// checkKeys refuses to add, change or remove a key that is not allowed. own are keys that may
// stand with just one value.
func checkKeys(kind string, was, is map[string]string, allowed func(string) bool, own map[string]string) error {
	for key, value := range is {
		if old, had := was[key]; had && old == value || allowed(key) {
			continue
		}
		if want, isOwn := own[key]; !isOwn || value != want {
			return fmt.Errorf("tenants may not set or remove the %s %q", kind, key)
		}
	}
	for key := range was {
		if _, still := is[key]; !still && !allowed(key) {
			return fmt.Errorf("tenants may not set or remove the %s %q", kind, key)
		}
	}
	return nil
}

func isAllowed(key string, allowed []string) bool {
	domain, _, hasDomain := strings.Cut(key, "/")
	return !hasDomain || slices.Contains(allowed, key) || slices.Contains(allowed, domain+"/*")
}

func isTenant(label string) bool {
	_, err := tenant.Parse(label)
	return err == nil
}
