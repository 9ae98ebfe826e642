// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

// Package binding records on application-like objects whose rights a controller may use for them:
// the identity of whoever changed the object last, which package impersonate reads.
package binding

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/kubetenant/kubetenant/plugins"
	"github.com/kubetenant/kubetenant/tenant"
)

// Name of the plugin.
const Name = "TenantBinding"

// The annotations from which KubeVela takes whom it impersonates (pkg/auth, 1.10).
const (
	KubeVelaUser  = "app.oam.dev/username"
	KubeVelaGroup = "app.oam.dev/group"
)

// maxIdentityBytes bounds the record: an identity that does not fit is refused, since one with
// fewer groups would be another.
const maxIdentityBytes = 32 << 10

var (
	errUnknownCaller = errors.New("the caller's tenant is unknown")
	errScale         = errors.New("the object acts with the rights of another user: " +
		"update the object instead to change its replicas, so that it acts with your rights")
	errSize  = errors.New("the caller has too many groups to record")
	errComma = errors.New("a user name or group that contains a comma cannot be recorded in " + KubeVelaGroup)
)

// Options configure the plugin. Subject and Owner are required.
type Options struct {
	Subject plugins.SubjectFunc
	Owner   plugins.OwnerFunc
	// Authorizer is the server's. It decides whether a caller may keep the identity of another user in
	// a new object ([plugins.Marks]). If nil, no caller may.
	Authorizer authorizer.Authorizer
	// Kinds that are governed, in every version; true also records for KubeVela.
	Kinds map[schema.GroupKind]bool
	// Objects returns a governed object. Nil knows none: no tenant's caller may scale one.
	Objects plugins.ObjectFunc
	// KindOf returns the kind of a custom resource, empty where it is not known: it is guessed then.
	KindOf func(schema.GroupResource) string
}

// New returns the plugin. A tenant's caller that creates or changes a governed object, outside its
// status, becomes its identity. A change by the system tenant keeps the tenant's: an admin's touch
// must not lend its rights, unless [tenant.TakeIdentityAnnotation] asks for that.
func New(o Options) plugins.Interface {
	return &plugin{admission.NewHandler(admission.Create, admission.Update), o}
}

type plugin struct {
	*admission.Handler
	Options
}

// withKubeVela are the protected annotations of a kind that KubeVela reads.
var withKubeVela = []string{tenant.IdentityAnnotation, KubeVelaUser, KubeVelaGroup}

// keys returns the protected annotations of a kind, none where it is not governed.
func (p *plugin) keys(kind schema.GroupKind) []string {
	switch kubeVela, governed := p.Kinds[kind]; {
	case !governed:
		return nil
	case kubeVela:
		return withKubeVela
	}
	return []string{tenant.IdentityAnnotation}
}

// Admit implements [admission.MutationInterface].
func (p *plugin) Admit(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	keys := p.keys(a.GetKind().GroupKind())
	if keys == nil {
		return nil
	}
	was, is, err := plugins.Stored(a)
	if err != nil || is == nil {
		return forbidden(a, err)
	}
	if !takes(was, is) || !p.Subject.IsSystem(ctx, a.GetUserInfo()) {
		plugins.SetAnnotation(is, tenant.TakeIdentityAnnotation, nil) // it has been answered, or is not the caller's to ask
	}
	records, err := p.records(ctx, a, was, is, keys)
	switch {
	case err != nil:
		return forbidden(a, err)
	case records == nil:
		plugins.Keep(ctx, a, was, is, keys...)
	default:
		sent := is.GetAnnotations()
		for key, value := range records {
			plugins.SetAnnotation(is, key, value)
		}
		if was == nil {
			plugins.WarnRewritten(ctx, sent, is, keys...)
		}
	}
	return nil
}

func forbidden(a admission.Attributes, err error) error {
	if err == nil {
		return nil
	}
	return admission.NewForbidden(a, err)
}

// records returns the annotations that a write must leave, nil where it leaves them as they were.
func (p *plugin) records(
	ctx context.Context, a admission.Attributes, was, is metav1.Object, keys []string,
) (map[string]*string, error) {
	asksFor := was == nil || changes(ctx, a) || takes(was, is) && p.Subject.IsSystem(ctx, a.GetUserInfo())
	if !asksFor {
		return nil, nil
	}
	caller, err := p.Subject(ctx, a.GetUserInfo())
	if err != nil {
		return nil, errUnknownCaller
	}
	identity := tenant.IdentityOf(a.GetUserInfo(), caller)
	if was == nil && !takes(was, is) {
		if kept, mayKeep := p.kept(ctx, a, is); mayKeep {
			return annotations(kept, keys)
		}
	}
	if !caller.IsSystem() || takes(was, is) {
		return annotations(identity, keys)
	}
	if isRecorded(was) {
		return nil, nil
	}
	if a.GetNamespace() == "" {
		return annotations(identity, keys)
	}
	owner, err := p.Owner(ctx, a.GetNamespace())
	if err != nil {
		return nil, err
	}
	if !owner.IsSystem() {
		identity = tenant.Identity{Tenant: owner.String()}
	}
	return annotations(identity, keys)
}

// kept returns the identity that a new object has, if the caller may keep it: the caller may
// impersonate that identity, which is of the tenant that owns the namespace.
func (p *plugin) kept(ctx context.Context, a admission.Attributes, is metav1.Object) (tenant.Identity, bool) {
	text, carries := is.GetAnnotations()[tenant.IdentityAnnotation]
	if !carries || a.GetNamespace() == "" || len(text) > maxIdentityBytes {
		return tenant.Identity{}, false
	}
	identity, err := tenant.ParseIdentity(text)
	if err != nil || identity.String() != text {
		return tenant.Identity{}, false
	}
	owner, err := p.Owner(ctx, a.GetNamespace())
	if err != nil {
		return tenant.Identity{}, false
	}
	marks := plugins.Marks{
		Authorizer: p.Authorizer,
		Subject:    p.Subject,
		Owner:      p.Owner,
	}
	return identity, marks.MayKeep(ctx, a.GetUserInfo(), plugins.Person(identity), owner)
}

// isRecorded reports whether an identity was. Where none was, the other annotations are not to be
// kept: they were written before anybody looked.
func isRecorded(was metav1.Object) bool {
	if was == nil {
		return false
	}
	_, recorded := was.GetAnnotations()[tenant.IdentityAnnotation]
	return recorded
}

// takes reports whether a write asks for the identity of a system caller. What stood there before
// asks for nothing: anybody may have written it.
func takes(was, is metav1.Object) bool {
	return is.GetAnnotations()[tenant.TakeIdentityAnnotation] == "true" &&
		(was == nil || was.GetAnnotations()[tenant.TakeIdentityAnnotation] != "true")
}

// annotations returns what the protected annotations of a kind say of an identity.
func annotations(identity tenant.Identity, keys []string) (map[string]*string, error) {
	text := identity.String()
	if len(text) > maxIdentityBytes {
		return nil, errSize
	}
	out := map[string]*string{tenant.IdentityAnnotation: &text}
	if !slices.Contains(keys, KubeVelaUser) {
		return out, nil
	}
	hasComma := func(s string) bool { return strings.Contains(s, ",") }
	if slices.ContainsFunc(append([]string{identity.User}, identity.Groups...), hasComma) {
		return nil, errComma
	}
	out[KubeVelaUser], out[KubeVelaGroup] = nil, nil
	if identity.User != "" {
		groups := strings.Join(identity.Groups, ",")
		out[KubeVelaUser], out[KubeVelaGroup] = &identity.User, &groups
	}
	return out, nil
}

// changes reports whether an update changes more than the status and what servers write. If the
// client's own object is known, changes of the cluster's webhooks are not the client's.
func changes(ctx context.Context, a admission.Attributes) bool {
	if a.GetSubresource() == "status" {
		return false
	}
	object := a.GetObject()
	if requested := plugins.Requested(ctx, a); requested != nil {
		object = requested
	}
	was, errWas := substance(a.GetOldObject())
	is, errIs := substance(object)
	return errWas != nil || errIs != nil || !equality.Semantic.DeepEqual(was, is)
}

// recorded are the annotations that servers write.
var recorded = append(withKubeVela, tenant.TakeIdentityAnnotation, tenant.CreatorAnnotation,
	tenant.OnBehalfOfAnnotation)

// substance is what of an object its identity answers for: all but the status and the metadata that
// servers write, much of which is filled in between mutation and validation.
func substance(obj runtime.Object) (map[string]any, error) {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	if err != nil {
		return nil, err
	}
	m, err := meta.Accessor(obj)
	if err != nil {
		return nil, err
	}
	out := map[string]any{
		"labels":      without(m.GetLabels(), tenant.Label),
		"annotations": without(m.GetAnnotations(), recorded...),
		"owners":      m.GetOwnerReferences(),
		"finalizers":  m.GetFinalizers(),
	}
	for key, value := range content {
		switch key {
		case "apiVersion", "kind", "metadata", "status":
		default:
			out["object "+key] = value
		}
	}
	return out, nil
}

func without(from map[string]string, keys ...string) map[string]string {
	out := maps.Clone(from)
	for _, key := range keys {
		delete(out, key)
	}
	return out
}

// Validate implements [admission.ValidationInterface].
func (p *plugin) Validate(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if a.GetSubresource() == "scale" {
		return forbidden(a, p.checkScale(ctx, a))
	}
	keys := p.keys(a.GetKind().GroupKind())
	if keys == nil {
		return nil
	}
	was, is, err := plugins.Stored(a)
	if err != nil || is == nil {
		return forbidden(a, err)
	}
	records, err := p.records(ctx, a, was, is, keys)
	if err == nil && records == nil {
		err = plugins.Kept(was, is, keys...)
	}
	var refused plugins.Refusals
	refused.Add(err)
	for _, key := range slices.Sorted(maps.Keys(records)) {
		want := records[key]
		if value, has := is.GetAnnotations()[key]; has != (want != nil) || has && value != *want {
			refused.Add(fmt.Errorf("only the server may set the annotation %s", key))
		}
	}
	return forbidden(a, refused.Err())
}

// checkScale holds the subresource by which a governed object is changed too. A Scale has no
// annotations of the object, so the caller's identity cannot be recorded with it: who is not the
// object's identity changes the object itself. Scalers of the system tenant change no identity.
func (p *plugin) checkScale(ctx context.Context, a admission.Attributes) error {
	kind, governed := p.governedKind(a.GetResource())
	if !governed {
		return nil
	}
	caller, err := p.Subject(ctx, a.GetUserInfo())
	switch {
	case err != nil:
		return errUnknownCaller
	case caller.IsSystem():
		return nil
	case p.Objects == nil:
		return errScale
	}
	obj, err := p.Objects(ctx, kind, a.GetNamespace(), a.GetName())
	if err != nil {
		return err
	}
	m, err := meta.Accessor(obj)
	if err != nil {
		return errScale
	}
	recorded, err := tenant.ParseIdentity(m.GetAnnotations()[tenant.IdentityAnnotation])
	if err != nil || sorted(recorded) != sorted(tenant.IdentityOf(a.GetUserInfo(), caller)) {
		return errScale
	}
	return nil
}

// sorted writes an identity with its groups in one order.
func sorted(i tenant.Identity) string {
	i.Groups = slices.Compact(slices.Sorted(slices.Values(i.Groups)))
	return i.String()
}

// governedKind returns the governed kind of a resource.
func (p *plugin) governedKind(resource schema.GroupVersionResource) (schema.GroupVersionKind, bool) {
	if p.KindOf != nil {
		if kind := p.KindOf(resource.GroupResource()); kind != "" {
			known := schema.GroupKind{Group: resource.Group, Kind: kind}
			_, governed := p.Kinds[known]
			return known.WithVersion(resource.Version), governed
		}
	}
	for kind := range p.Kinds {
		if plural, _ := meta.UnsafeGuessKindToResource(kind.WithVersion(resource.Version)); plural == resource {
			return kind.WithVersion(resource.Version), true
		}
	}
	return schema.GroupVersionKind{}, false
}
