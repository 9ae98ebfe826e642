// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package attribution

import (
	"context"
	"encoding/json"
	"errors"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	kjson "sigs.k8s.io/json"

	"github.com/kubetenant/kubetenant/plugins"
	"github.com/kubetenant/kubetenant/tenant"
)

// MaxCreatorBytes is the maximum size of the record of a creator, in bytes. A long list of groups
// must not fill the 256 KiB that an object has for annotations (k8s.io/apimachinery
// pkg/api/validation, v0.37.1).
const MaxCreatorBytes = 4 << 10

// Creator is the content of [tenant.CreatorAnnotation].
type Creator struct {
	User   string `json:"user"`
	UID    string `json:"uid,omitempty"`
	Tenant string `json:"tenant,omitempty"`
	// Groups are the caller's groups. If the record would exceed [MaxCreatorBytes] with them,
	// Groups is empty and GroupCount is their number.
	Groups     []string `json:"groups,omitempty"`
	GroupCount int      `json:"groupCount,omitempty"`
}

var (
	errCreatorSize = errors.New("the caller's user name is too long to record")
	errCreator     = errors.New("only the server may set the annotation " + tenant.CreatorAnnotation)
	errOnBehalfOf  = errors.New("only the server may set the annotation " + tenant.OnBehalfOfAnnotation)
)

// CreatorRecord returns the value of [tenant.CreatorAnnotation] for a caller. For a caller of the
// system tenant, the value contains only the name and the tenant, because tenants do not need to
// know the UID and the groups.
func CreatorRecord(u user.Info, id tenant.ID) (string, error) {
	c := Creator{User: u.GetName(), Tenant: id.String()}
	if !id.IsSystem() {
		c.UID, c.Groups = u.GetUID(), u.GetGroups()
	}
	text, err := json.Marshal(c)
	if err == nil && len(text) > MaxCreatorBytes && len(c.Groups) > 0 {
		c.Groups, c.GroupCount = nil, len(c.Groups)
		text, err = json.Marshal(c)
	}
	if err != nil || len(text) > MaxCreatorBytes {
		return "", errCreatorSize
	}
	return string(text), nil
}

// copiesAnnotations contains pairs of an owner's kind and the kind of the objects that its
// controller creates. In these pairs, the controller copies the owner's annotations onto the
// created object. It repeats the copy until the annotations are equal, and does nothing else until
// then (k8s.io/kubernetes pkg/controller/deployment/util, SetNewReplicaSetAnnotations, v1.37.1).
// The created object therefore has the creator of its owner.
var copiesAnnotations = map[[2]schema.GroupKind]bool{
	{{Group: "apps", Kind: "Deployment"}, {Group: "apps", Kind: "ReplicaSet"}}: true,
}

// creator returns the annotations that a new object must have. These are the annotations from
// [plugin.recordedCreator], or the annotations in the object if the caller may set them. If the
// owner has a creator, the annotation on-behalf-of always names it.
func (p *plugin) creator(
	ctx context.Context, c *caller, a admission.Attributes, obj metav1.Object,
) (creator string, onBehalfOf *string, err error) {
	if creator, onBehalfOf, err = p.recordedCreator(ctx, c, a, obj); err != nil {
		return "", nil, err
	}
	if value, ok := obj.GetAnnotations()[tenant.CreatorAnnotation]; ok && value != creator &&
		p.mayRetainCreator(ctx, c, a, obj, value) {
		creator = value
	}
	if value, ok := obj.GetAnnotations()[tenant.OnBehalfOfAnnotation]; ok && onBehalfOf == nil &&
		p.mayRetainCreator(ctx, c, a, obj, value) {
		onBehalfOf = &value
	}
	return creator, onBehalfOf, nil
}

// mayRetainCreator reports whether the caller may set a record of a creator on a new object. A
// record that has GroupCount instead of the creator's groups is not allowed, because it cannot be
// checked.
func (p *plugin) mayRetainCreator(
	ctx context.Context, c *caller, a admission.Attributes, obj metav1.Object, record string,
) bool {
	var creator Creator
	strict, err := kjson.UnmarshalStrict([]byte(record), &creator)
	if err != nil || len(strict) > 0 || len(record) > MaxCreatorBytes || creator.GroupCount != 0 || creator.Tenant == "" {
		return false
	}
	owner, err := p.impersonation.OwnerOf(ctx, a, obj)
	return err == nil && p.impersonation.MayImpersonate(ctx, c, plugins.Identity{
		User:   creator.User,
		UID:    creator.UID,
		Tenant: creator.Tenant,
		Groups: creator.Groups,
	}, owner)
}

// recordedCreator returns the annotations that the server records on a new object if the caller
// supplies none. onBehalfOf is nil if the object has no owner with a creator.
func (p *plugin) recordedCreator(
	ctx context.Context, c *caller, a admission.Attributes, obj metav1.Object,
) (creator string, onBehalfOf *string, err error) {
	if creator, err = CreatorRecord(c, c.id); err != nil || !c.id.IsSystem() {
		return creator, nil, err
	}
	// Only callers of the system tenant are trusted to name an owner.
	owner, kind, err := p.ownerOf(ctx, p.Metadata, a, obj)
	if err != nil || owner == nil {
		return creator, nil, err
	}
	m, err := meta.Accessor(owner)
	if err != nil {
		return "", nil, err
	}
	value, ok := m.GetAnnotations()[tenant.CreatorAnnotation]
	if ok && copiesAnnotations[[2]schema.GroupKind{kind.GroupKind(), a.GetKind().GroupKind()}] {
		creator = value
	}
	for _, key := range []string{tenant.OnBehalfOfAnnotation, tenant.CreatorAnnotation} {
		if value, ok := m.GetAnnotations()[key]; ok {
			return creator, &value, nil
		}
	}
	return creator, nil, nil
}

// setCreator sets the creator of a new object. In an update, it restores the old creator.
func (p *plugin) setCreator(ctx context.Context, c *caller, a admission.Attributes, old, obj metav1.Object) error {
	if old != nil {
		onBehalfOf := obj.GetAnnotations()[tenant.OnBehalfOfAnnotation]
		if onBehalfOf != "" && onBehalfOf == old.GetAnnotations()[tenant.CreatorAnnotation] {
			// kubectl rollout undo copies the annotations of a ReplicaSet onto its Deployment.
			plugins.SetAnnotation(obj, tenant.OnBehalfOfAnnotation, nil)
		}
		plugins.RestoreAnnotations(ctx, a, old, obj, tenant.CreatorAnnotation, tenant.OnBehalfOfAnnotation)
		return nil
	}
	creator, onBehalfOf, err := p.creator(ctx, c, a, obj)
	if err != nil {
		return err
	}
	sent := obj.GetAnnotations()
	plugins.SetAnnotation(obj, tenant.CreatorAnnotation, &creator)
	plugins.SetAnnotation(obj, tenant.OnBehalfOfAnnotation, onBehalfOf)
	plugins.WarnRewritten(ctx, sent, obj, tenant.CreatorAnnotation, tenant.OnBehalfOfAnnotation)
	return nil
}

// checkCreator checks the annotations that [plugin.setCreator] sets.
func (p *plugin) checkCreator(ctx context.Context, c *caller, a admission.Attributes, old, obj metav1.Object) error {
	if old != nil {
		return plugins.CheckUnchanged(old, obj, tenant.CreatorAnnotation, tenant.OnBehalfOfAnnotation)
	}
	creator, onBehalfOf, err := p.creator(ctx, c, a, obj)
	if err != nil {
		return err
	}
	if obj.GetAnnotations()[tenant.CreatorAnnotation] != creator {
		return errCreator
	}
	value, ok := obj.GetAnnotations()[tenant.OnBehalfOfAnnotation]
	if ok != (onBehalfOf != nil) || ok && value != *onBehalfOf {
		return errOnBehalfOf
	}
	return nil
}
