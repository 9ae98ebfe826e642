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

// MaxCreatorBytes is the maximum size of the record of a creator. A long list of groups must not
// fill the 256 KiB that an object has for annotations (k8s.io/apimachinery pkg/api/validation,
// v0.37.1).
const MaxCreatorBytes = 4 << 10

// Creator is the content of [tenant.CreatorAnnotation].
type Creator struct {
	User   string `json:"user"`
	UID    string `json:"uid,omitempty"`
	Tenant string `json:"tenant,omitempty"`
	// Groups are the caller's groups. If they do not fit, GroupCount is their number.
	Groups     []string `json:"groups,omitempty"`
	GroupCount int      `json:"groupCount,omitempty"`
}

var (
	errCreatorSize = errors.New("the caller's user name is too long to record")
	errCreator     = errors.New("only the server may set the annotation " + tenant.CreatorAnnotation)
	errOnBehalfOf  = errors.New("only the server may set the annotation " + tenant.OnBehalfOfAnnotation)
)

// Record returns the record of a caller. For a caller of the system tenant, it contains only the
// name and the tenant. Tenants do not need to know the groups of such a caller.
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

// copies contains the kinds of an owner and of the objects that its controller creates, if the
// controller copies the owner's annotations onto these objects. The controller repeats the copy
// until the annotations are equal, and does nothing else until then (k8s.io/kubernetes
// pkg/controller/deployment/util, SetNewReplicaSetAnnotations, v1.37.1). Such an object therefore
// has the creator of its owner.
var copies = map[[2]schema.GroupKind]bool{
	{{Group: "apps", Kind: "Deployment"}, {Group: "apps", Kind: "ReplicaSet"}}: true,
}

// creator returns the annotations that a new object must have. It returns the annotations of the
// object if the caller may keep them, and otherwise the annotations that the server records.
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

// mayKeepCreator reports whether the caller may keep a record of a creator in a new object. The
// caller may not keep a record that omits groups of the creator.
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

// recorded returns the annotations that the server records on a new object.
func (p *plugin) recorded(
	ctx context.Context, c *caller, a admission.Attributes, is metav1.Object,
) (creator string, onBehalfOf *string, err error) {
	if creator, err = Record(c, c.id); err != nil || !c.id.IsSystem() {
		return creator, nil, err
	}
	// Only callers of the system tenant are trusted to name an owner.
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

// record sets the creator of a new object. In an update, it restores the old creator.
func (p *plugin) record(ctx context.Context, c *caller, a admission.Attributes, was, is metav1.Object) error {
	if was != nil {
		says := is.GetAnnotations()[tenant.OnBehalfOfAnnotation]
		if says != "" && says == was.GetAnnotations()[tenant.CreatorAnnotation] {
			// kubectl rollout undo copies the annotations of a ReplicaSet onto its Deployment.
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

// checkCreator checks the annotations that record has set.
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
