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

// MaxCreatorBytes bounds the record of a creator: one more list of groups must not fill what an
// object has for annotations, 256 KiB (k8s.io/apimachinery pkg/api/validation, v0.37.1).
const MaxCreatorBytes = 4 << 10

// Creator is what [tenant.CreatorAnnotation] holds.
type Creator struct {
	User   string `json:"user"`
	UID    string `json:"uid,omitempty"`
	Tenant string `json:"tenant,omitempty"`
	// Groups, or how many they are where they would not fit.
	Groups     []string `json:"groups,omitempty"`
	GroupCount int      `json:"groupCount,omitempty"`
}

var (
	errCreatorSize = errors.New("the caller's user name is too long to record")
	errCreator     = errors.New("only the server may set the annotation " + tenant.CreatorAnnotation)
	errOnBehalfOf  = errors.New("only the server may set the annotation " + tenant.OnBehalfOfAnnotation)
)

// Record returns what is recorded of a caller. A caller of the system tenant is recorded by name
// and tenant only: its groups are nobody else's business.
func Record(u user.Info, id tenant.ID) (string, error) {
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

// copies are the owners whose annotations a controller copies onto what it makes, again and again
// until they are the same (k8s.io/kubernetes pkg/controller/deployment/util,
// SetNewReplicaSetAnnotations, v1.37.1; meanwhile it does nothing else, like counting revisions).
// So a Deployment's ReplicaSets have its creator.
var copies = map[[2]schema.GroupKind]bool{
	{{Group: "apps", Kind: "Deployment"}, {Group: "apps", Kind: "ReplicaSet"}}: true,
}

// creator returns the annotations that a new object must have: those that it has if the caller may
// keep them, and otherwise those that the server records.
func (p *plugin) creator(
	ctx context.Context, c *caller, a admission.Attributes, is metav1.Object,
) (creator string, onBehalfOf *string, err error) {
	if creator, onBehalfOf, err = p.recorded(ctx, c, a, is); err != nil {
		return "", nil, err
	}
	if has, carries := is.GetAnnotations()[tenant.CreatorAnnotation]; carries && has != creator &&
		p.mayKeepCreator(ctx, c, a, is, has) {
		creator = has
	}
	if has, carries := is.GetAnnotations()[tenant.OnBehalfOfAnnotation]; carries && onBehalfOf == nil &&
		p.mayKeepCreator(ctx, c, a, is, has) {
		onBehalfOf = &has
	}
	return creator, onBehalfOf, nil
}

// mayKeepCreator reports whether the caller may keep a record of a creator in a new object. A record
// that does not name all groups of the creator is not kept.
func (p *plugin) mayKeepCreator(
	ctx context.Context, c *caller, a admission.Attributes, is metav1.Object, record string,
) bool {
	var creator Creator
	strict, err := kjson.UnmarshalStrict([]byte(record), &creator)
	if err != nil || len(strict) > 0 || len(record) > MaxCreatorBytes || creator.GroupCount != 0 || creator.Tenant == "" {
		return false
	}
	owner, err := p.marks.OwnerOf(ctx, a, is)
	return err == nil && p.marks.MayKeep(ctx, c, plugins.Person{
		User:   creator.User,
		UID:    creator.UID,
		Tenant: creator.Tenant,
		Groups: creator.Groups,
	}, owner)
}

// recorded returns what the server records on a new object.
func (p *plugin) recorded(
	ctx context.Context, c *caller, a admission.Attributes, is metav1.Object,
) (creator string, onBehalfOf *string, err error) {
	if creator, err = Record(c, c.id); err != nil || !c.id.IsSystem() {
		return creator, nil, err
	}
	// What anybody else says of an owner may be a lie.
	owner, kind, err := p.maker(ctx, p.Metadata, a, is)
	if err != nil || owner == nil {
		return creator, nil, err
	}
	m, err := meta.Accessor(owner)
	if err != nil {
		return "", nil, err
	}
	value, has := m.GetAnnotations()[tenant.CreatorAnnotation]
	if has && copies[[2]schema.GroupKind{kind.GroupKind(), a.GetKind().GroupKind()}] {
		creator = value
	}
	for _, key := range []string{tenant.OnBehalfOfAnnotation, tenant.CreatorAnnotation} {
		if value, has := m.GetAnnotations()[key]; has {
			return creator, &value, nil
		}
	}
	return creator, nil, nil
}

// record sets the creator of a new object, and keeps that of an old one.
func (p *plugin) record(ctx context.Context, c *caller, a admission.Attributes, was, is metav1.Object) error {
	if was != nil {
		says := is.GetAnnotations()[tenant.OnBehalfOfAnnotation]
		if says != "" && says == was.GetAnnotations()[tenant.CreatorAnnotation] {
			// kubectl rollout undo copies the annotations of what was made of the object onto it.
			plugins.SetAnnotation(is, tenant.OnBehalfOfAnnotation, nil)
		}
		plugins.Keep(ctx, a, was, is, tenant.CreatorAnnotation, tenant.OnBehalfOfAnnotation)
		return nil
	}
	creator, onBehalfOf, err := p.creator(ctx, c, a, is)
	if err != nil {
		return err
	}
	sent := is.GetAnnotations()
	plugins.SetAnnotation(is, tenant.CreatorAnnotation, &creator)
	plugins.SetAnnotation(is, tenant.OnBehalfOfAnnotation, onBehalfOf)
	plugins.WarnRewritten(ctx, sent, is, tenant.CreatorAnnotation, tenant.OnBehalfOfAnnotation)
	return nil
}

// checkCreator holds it again.
func (p *plugin) checkCreator(ctx context.Context, c *caller, a admission.Attributes, was, is metav1.Object) error {
	if was != nil {
		return plugins.Kept(was, is, tenant.CreatorAnnotation, tenant.OnBehalfOfAnnotation)
	}
	creator, onBehalfOf, err := p.creator(ctx, c, a, is)
	if err != nil {
		return err
	}
	if is.GetAnnotations()[tenant.CreatorAnnotation] != creator {
		return errCreator
	}
	value, has := is.GetAnnotations()[tenant.OnBehalfOfAnnotation]
	if has != (onBehalfOf != nil) || has && value != *onBehalfOf {
		return errOnBehalfOf
	}
	return nil
}
