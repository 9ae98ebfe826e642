// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

// Package accessgrant checks AccessGrants. A grantor cannot grant actions that it may not perform itself.
// Only the server records the grantor.
package accessgrant

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/warning"

	"github.com/kubetenant/kubetenant/plugins"
	"github.com/kubetenant/kubetenant/tenant"
)

// Name is the name of the plugin.
const Name = "TenantGrant"

// accessGrants is the resource of AccessGrants.
var accessGrants = schema.GroupResource{Group: tenant.Domain, Resource: "accessgrants"}

var (
	errUnknownCaller = errors.New("the caller's tenant is unknown")
	errStatus        = errors.New("only the system tenant may write the status of a grant")
	errOwnTenant     = errors.New("spec.from.tenant: may not be the tenant that owns the namespace")
	errForeign       = errors.New("only the tenant that owns the namespace and the system tenant may write its grants, " +
		"even if a grant allows more")
	errNoOwner  = errors.New("the namespace has no owner")
	errNoObject = errors.New("the object is not an AccessGrant")
	errGrantor  = errors.New("spec.grantor may only be set by the server")
)

// Request is the content of an AccessGrant.
type Request struct {
	// From is the tenant that gets access.
	From tenant.ID
	// Actions are all actions that the grant allows in its namespace. Their User is not set.
	Actions []authorizer.AttributesRecord
	// Expires is the time at which the grant expires. If zero, it does not expire.
	Expires time.Time
}

// Options configure the plugin. All fields except Lineage and Now are required.
type Options struct {
	Subject plugins.SubjectFunc
	Owner   plugins.OwnerFunc
	// Lineage returns the current Tenant object and the deleted Tenant objects of a tenant. If nil,
	// no Tenant object is known.
	Lineage func(tenant.ID) tenant.Lineage
	// Read reads and validates an AccessGrant. Its error names the field.
	Read func(runtime.Object) (*Request, error)
	// Authorizer is the server's authorizer. It decides whether the grantor may perform the granted
	// actions.
	Authorizer authorizer.Authorizer
	// Now returns the current time. Defaults to [time.Now].
	Now func() time.Time
}

// New returns the plugin. A caller that writes the spec of a grant becomes the grantor, and must
// be allowed to perform every action that the grant allows. The grant also records the current
// owner of the namespace.
func New(o Options) plugins.Interface {
	if o.Now == nil {
		o.Now = time.Now
	}
	return &plugin{admission.NewHandler(admission.Create, admission.Update), o}
}

type plugin struct {
	*admission.Handler
	Options
}

func governs(a admission.Attributes) bool { return a.GetResource().GroupResource() == accessGrants }

// Admit implements [admission.MutationInterface]. It records the grantor.
func (p *plugin) Admit(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if !governs(a) || a.GetSubresource() != "" {
		return nil
	}
	obj, ok := a.GetObject().(*unstructured.Unstructured)
	if !ok {
		return admission.NewForbidden(a, errNoObject)
	}
	grantor, err := p.grantor(ctx, a, obj)
	if err != nil {
		return admission.NewForbidden(a, err)
	}
	if grantor == nil {
		unstructured.RemoveNestedField(obj.Object, "spec", "grantor")
		return nil
	}
	if _, found, _ := unstructured.NestedMap(obj.Object, "spec", "grantor"); found &&
		a.GetOperation() == admission.Create && !p.isRecorded(obj, grantor) {
		warning.AddWarning(ctx, "", "spec.grantor is managed by the server and now names the caller")
	}
	if err := unstructured.SetNestedMap(obj.Object, grantor, "spec", "grantor"); err != nil {
		return admission.NewForbidden(a, err)
	}
	return nil
}

// grantor returns the grantor that a grant must have. If the spec does not change, it is the old
// grantor. Otherwise, it is the caller.
func (p *plugin) grantor(
	ctx context.Context, a admission.Attributes, obj *unstructured.Unstructured,
) (map[string]any, error) {
	old, ok := a.GetOldObject().(*unstructured.Unstructured)
	if ok && a.GetOperation() == admission.Update && sameSpec(old, obj) {
		oldGrantor, _, err := unstructured.NestedMap(old.Object, "spec", "grantor")
		return oldGrantor, err
	}
	caller, err := p.Subject(ctx, a.GetUserInfo())
	if err != nil {
		return nil, errUnknownCaller
	}
	owner, err := p.Owner(ctx, a.GetNamespace())
	if err != nil {
		return nil, err
	}
	if owner.IsZero() {
		return nil, errNoOwner
	}
	return p.grantorRecord(obj, a.GetUserInfo(), caller, owner), nil
}

// grantorRecord returns the record of the grantor, the owner of the namespace and the Tenant that
// gets access.
func (p *plugin) grantorRecord(obj *unstructured.Unstructured, u user.Info, caller, owner tenant.ID) map[string]any {
	grantor := map[string]any{"owner": owner.String(), "tenant": caller.String(), "user": u.GetName()}
	if uid := u.GetUID(); uid != "" {
		grantor["uid"] = uid
	}
	if len(u.GetGroups()) > 0 {
		groups := make([]any, 0, len(u.GetGroups()))
		for _, group := range u.GetGroups() {
			groups = append(groups, group)
		}
		grantor["groups"] = groups
	}
	grantor["grantee"] = tenant.Seal(p.grantee(obj)) // the seal does not reveal the UID
	return grantor
}

// grantee returns the UID of the Tenant that gets access, or "" if there is none.
func (p *plugin) grantee(obj *unstructured.Unstructured) string {
	name, _, _ := unstructured.NestedString(obj.Object, "spec", "from", "tenant")
	id, err := tenant.Parse(name)
	if err != nil || p.Lineage == nil {
		return ""
	}
	return p.Lineage(id).UID
}

// isRecorded reports whether a grant has the required record. It compares the seal with the UID,
// because two seals of the same UID differ.
func (p *plugin) isRecorded(obj *unstructured.Unstructured, want map[string]any) bool {
	recorded, _, _ := unstructured.NestedMap(obj.Object, "spec", "grantor")
	if equality.Semantic.DeepEqual(recorded, want) {
		return true
	}
	seal, _ := recorded["grantee"].(string)
	if uid := p.grantee(obj); uid != "" && !tenant.IsSealOf(seal, uid) {
		return false
	}
	recorded, want = maps.Clone(recorded), maps.Clone(want)
	delete(recorded, "grantee")
	delete(want, "grantee")
	return equality.Semantic.DeepEqual(recorded, want)
}

// sameSpec reports whether the fields of the spec that clients write are equal.
func sameSpec(old, obj *unstructured.Unstructured) bool {
	spec := func(u *unstructured.Unstructured) map[string]any {
		content, _, _ := unstructured.NestedMap(u.Object, "spec")
		delete(content, "grantor")
		return content
	}
	return equality.Semantic.DeepEqual(spec(old), spec(obj))
}

// Validate implements [admission.ValidationInterface].
func (p *plugin) Validate(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if !governs(a) {
		return nil
	}
	if err := p.check(ctx, a); err != nil {
		return admission.NewForbidden(a, err)
	}
	return nil
}

func (p *plugin) check(ctx context.Context, a admission.Attributes) error {
	if a.GetSubresource() != "" {
		if !p.Subject.IsSystem(ctx, a.GetUserInfo()) {
			return errStatus
		}
		return nil
	}
	obj, ok := a.GetObject().(*unstructured.Unstructured)
	if !ok {
		return errNoObject
	}
	want, err := p.grantor(ctx, a, obj)
	if err != nil {
		return err
	}
	if !p.isRecorded(obj, want) {
		return errGrantor
	}
	old, ok := a.GetOldObject().(*unstructured.Unstructured)
	if ok && a.GetOperation() == admission.Update && sameSpec(old, obj) {
		return nil
	}
	request, err := p.Read(obj)
	if err != nil {
		return err
	}
	caller, err := p.Subject(ctx, a.GetUserInfo())
	if err != nil {
		return errUnknownCaller
	}
	owner, err := p.Owner(ctx, a.GetNamespace())
	switch {
	case err != nil:
		return err
	case caller != owner && !caller.IsSystem():
		return errForeign
	case request.From == owner:
		return errOwnTenant
	}
	if !request.Expires.IsZero() && !request.Expires.After(p.Now()) {
		// A denial would stop a client that applies many objects together.
		warning.AddWarning(ctx, "", "spec.expires is in the past: the grant does not allow access")
	}
	return Check(ctx, p.Authorizer, a.GetUserInfo(), request)
}

// ErrUnchecked reports that the grantor's permissions cannot be checked now.
var ErrUnchecked = errors.New("cannot check the grantor's rights now")

// Check returns an error that names the first action of a grant that u may not perform itself. If
// the action cannot be checked, the error wraps [ErrUnchecked].
func Check(ctx context.Context, authz authorizer.Authorizer, u user.Info, request *Request) error {
	for i := range request.Actions {
		action := request.Actions[i]
		action.User = u
		decision, _, err := authz.Authorize(ctx, &action)
		if err != nil {
			return fmt.Errorf("%w: %v", ErrUnchecked, err) //nolint:errorlint // the authorizer's errors are nobody's API
		}
		if decision != authorizer.DecisionAllow {
			resource := schema.GroupResource{Group: action.APIGroup, Resource: action.Resource}.String()
			if action.Subresource != "" {
				resource += "/" + action.Subresource
			}
			if action.Name != "" {
				resource += " " + action.Name
			}
			return fmt.Errorf("the grantor may not %s %s in this namespace", action.Verb, resource)
		}
	}
	return nil
}
