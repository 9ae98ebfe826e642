// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

// Package binding records an identity on objects of configured kinds, such as the Applications of
// KubeVela. This is the identity of the tenant's caller that last changed the object. A controller
// may use the permissions of this identity for the object, see package impersonate.
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

// Name is the name of the plugin.
const Name = "TenantBinding"

// The annotations in which KubeVela finds the user to impersonate (pkg/auth, 1.10).
const (
	KubeVelaUser  = "app.oam.dev/username"
	KubeVelaGroup = "app.oam.dev/group"
)

// maxIdentityBytes is the maximum size of the record, in bytes. A write with a larger identity is
// denied, because an identity with fewer groups would have other permissions.
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
	// Authorizer is the server's authorizer. It decides whether a caller may set the identity of
	// another user on a new object, see [plugins.ImpersonationCheck]. If nil, no caller may set
	// it.
	Authorizer authorizer.Authorizer
	// Kinds are the kinds that the plugin checks, in every version. If the value is true, the
	// annotations of KubeVela are recorded too.
	Kinds map[schema.GroupKind]bool
	// Objects returns an object of one of the Kinds. If nil, no tenant's caller may scale objects
	// of the Kinds.
	Objects plugins.ObjectFunc
	// KindOf returns the kind of a custom resource, or "" if it is not known. The plugin then
	// guesses the kind from the name of the resource.
	KindOf func(schema.GroupResource) string
}

// New returns the plugin. If a tenant's caller creates an object or changes more than its status,
// the object gets the caller's identity. A change by a caller of the system tenant does not
// change the identity, so that an object does not get an administrator's permissions by accident.
// To assign them, an administrator sets [tenant.TakeIdentityAnnotation].
func New(o Options) plugins.Interface {
	return &plugin{admission.NewHandler(admission.Create, admission.Update), o}
}

type plugin struct {
	*admission.Handler
	Options
}

// kubeVelaKeys are the protected annotations of a kind that KubeVela reads.
var kubeVelaKeys = []string{tenant.IdentityAnnotation, KubeVelaUser, KubeVelaGroup}

// protectedKeys returns the protected annotations of a kind, or nil if the plugin does not check
// that kind.
func (p *plugin) protectedKeys(kind schema.GroupKind) []string {
	switch kubeVela, governed := p.Kinds[kind]; {
	case !governed:
		return nil
	case kubeVela:
		return kubeVelaKeys
	}
	return []string{tenant.IdentityAnnotation}
}

// Admit implements [admission.MutationInterface].
func (p *plugin) Admit(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	keys := p.protectedKeys(a.GetKind().GroupKind())
	if keys == nil {
		return nil
	}
	old, obj, err := plugins.StoredMetadata(a)
	if err != nil || obj == nil {
		return forbidden(a, err)
	}
	if !takesIdentity(old, obj) || !p.Subject.IsSystem(ctx, a.GetUserInfo()) {
		plugins.SetAnnotation(obj, tenant.TakeIdentityAnnotation, nil) // already applied, or not allowed for this caller
	}
	records, err := p.requiredAnnotations(ctx, a, old, obj, keys)
	switch {
	case err != nil:
		return forbidden(a, err)
	case records == nil:
		plugins.RestoreAnnotations(ctx, a, old, obj, keys...)
	default:
		sent := obj.GetAnnotations()
		for key, value := range records {
			plugins.SetAnnotation(obj, key, value)
		}
		if old == nil {
			plugins.WarnRewritten(ctx, sent, obj, keys...)
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

// requiredAnnotations returns the annotations that an object must have after a write, or nil if the
// write must not change them.
func (p *plugin) requiredAnnotations(
	ctx context.Context, a admission.Attributes, old, obj metav1.Object, keys []string,
) (map[string]*string, error) {
	needsIdentity := old == nil || changesContent(ctx, a) ||
		takesIdentity(old, obj) && p.Subject.IsSystem(ctx, a.GetUserInfo())
	if !needsIdentity {
		return nil, nil
	}
	caller, err := p.Subject(ctx, a.GetUserInfo())
	if err != nil {
		return nil, errUnknownCaller
	}
	identity := tenant.IdentityOf(a.GetUserInfo(), caller)
	if old == nil && !takesIdentity(old, obj) {
		if retained, ok := p.retainedIdentity(ctx, a, obj); ok {
			return annotations(retained, keys)
		}
	}
	if !caller.IsSystem() || takesIdentity(old, obj) {
		return annotations(identity, keys)
	}
	if isRecorded(old) {
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

// retainedIdentity returns the identity in the annotation of a new object, and reports whether
// the caller may set it. The caller must be allowed to impersonate that identity, which must
// belong to the owner of the namespace.
func (p *plugin) retainedIdentity(
	ctx context.Context,
	a admission.Attributes,
	obj metav1.Object,
) (tenant.Identity, bool) {
	text, ok := obj.GetAnnotations()[tenant.IdentityAnnotation]
	if !ok || a.GetNamespace() == "" || len(text) > maxIdentityBytes {
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
	check := plugins.ImpersonationCheck{
		Authorizer: p.Authorizer,
		Subject:    p.Subject,
		Owner:      p.Owner,
	}
	return identity, check.MayImpersonate(ctx, a.GetUserInfo(), plugins.Identity(identity), owner)
}

// isRecorded reports whether the old object has an identity. If it does not, its KubeVela
// annotations were set without a check, so they are not retained.
func isRecorded(old metav1.Object) bool {
	if old == nil {
		return false
	}
	_, ok := old.GetAnnotations()[tenant.IdentityAnnotation]
	return ok
}

// takesIdentity reports whether a write requests with [tenant.TakeIdentityAnnotation] that the
// object gets the caller's identity. An annotation that the old object already had is not a
// request, because any caller may have set it.
func takesIdentity(old, obj metav1.Object) bool {
	return obj.GetAnnotations()[tenant.TakeIdentityAnnotation] == "true" &&
		(old == nil || old.GetAnnotations()[tenant.TakeIdentityAnnotation] != "true")
}

// annotations returns the protected annotations of a kind for an identity.
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

// changesContent reports whether an update changes more than the status and the fields that servers
// set. If the object that the client sent is known, changes by the cluster's webhooks are ignored.
func changesContent(ctx context.Context, a admission.Attributes) bool {
	if a.GetSubresource() == "status" {
		return false
	}
	object := a.GetObject()
	if requested := plugins.Requested(ctx, a); requested != nil {
		object = requested
	}
	old, oldErr := identityContent(a.GetOldObject())
	obj, err := identityContent(object)
	return oldErr != nil || err != nil || !equality.Semantic.DeepEqual(old, obj)
}

// serverAnnotations are the annotations that servers set.
var serverAnnotations = append(kubeVelaKeys, tenant.TakeIdentityAnnotation, tenant.CreatorAnnotation,
	tenant.OnBehalfOfAnnotation)

// identityContent returns the fields of an object whose change gives the object a new identity.
// These are all fields except the status and the metadata that servers set. Servers set much of
// this metadata between mutation and validation.
func identityContent(obj runtime.Object) (map[string]any, error) {
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
		"annotations": without(m.GetAnnotations(), serverAnnotations...),
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
	keys := p.protectedKeys(a.GetKind().GroupKind())
	if keys == nil {
		return nil
	}
	old, obj, err := plugins.StoredMetadata(a)
	if err != nil || obj == nil {
		return forbidden(a, err)
	}
	records, err := p.requiredAnnotations(ctx, a, old, obj, keys)
	if err == nil && records == nil {
		err = plugins.CheckUnchanged(old, obj, keys...)
	}
	var errs plugins.Errors
	errs.Add(err)
	for _, key := range slices.Sorted(maps.Keys(records)) {
		want := records[key]
		if value, ok := obj.GetAnnotations()[key]; ok != (want != nil) || ok && value != *want {
			errs.Add(fmt.Errorf("only the server may set the annotation %s", key))
		}
	}
	return forbidden(a, errs.Err())
}

// checkScale checks the subresource scale, which also changes an object. A Scale does not have the
// annotations of the object, so the caller's identity cannot be recorded. Only a tenant's caller
// with the object's identity may use scale. Other callers of tenants must change the object itself.
// Callers of the system tenant may use scale, which leaves the identity unchanged.
func (p *plugin) checkScale(ctx context.Context, a admission.Attributes) error {
	kind, governed := p.checkedKind(a.GetResource())
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
	if err != nil || canonicalText(recorded) != canonicalText(tenant.IdentityOf(a.GetUserInfo(), caller)) {
		return errScale
	}
	return nil
}

// canonicalText returns the text of an identity with sorted groups and without duplicates.
func canonicalText(i tenant.Identity) string {
	i.Groups = slices.Compact(slices.Sorted(slices.Values(i.Groups)))
	return i.String()
}

// checkedKind returns the kind of a resource, and reports whether the plugin checks that kind.
func (p *plugin) checkedKind(resource schema.GroupVersionResource) (schema.GroupVersionKind, bool) {
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
