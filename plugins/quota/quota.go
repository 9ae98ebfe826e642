// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

// Package quota holds a tenant to its limits over all its namespaces: compute, counts of objects
// and extended resources, first come, first served.
//
// What a write uses is added to the quota before it is stored, in one update that another one
// cannot pass by; what is deleted is given back by whoever counts the objects, see [State.Recount].
// What is charged therefore never passes the limits, whatever is interrupted, and what was reserved
// by a write that was not stored is free again when the reservation expires. Writes that were under
// way when a quota, or a name in it, was new are counted as soon as they are seen.
package quota

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/klog/v2"

	"github.com/kubetenant/kubetenant/plugins"
	"github.com/kubetenant/kubetenant/tenant"
)

// Name of the plugin.
const Name = "TenantQuota"

// ErrUnknown says that a quota, or what is used of it, is not known yet.
var ErrUnknown = errors.New("the usage of the quota is not known yet")

var errTaken = errors.New("the tenant already has a quota")

var (
	errRead  = errors.New("the tenant's quota could not be read")
	errStore = errors.New("the quota could not be charged")
)

// A quota that was just made is counted in a moment: a write waits for that.
const (
	patience = 2 * time.Second // and less than a webhook's time
	pause    = 100 * time.Millisecond
)

// Store holds the quotas. It MUST be safe for concurrent use.
type Store interface {
	// Of returns the quotas of a tenant, as far as they are known here: one, or none where the tenant
	// is not limited. The result MUST NOT be changed.
	Of(ctx context.Context, id tenant.ID) ([]*State, error)
	// Taken reports whether a tenant has a quota that is not just a default.
	Taken(ctx context.Context, id tenant.ID) (bool, error)
	// Charge writes a state in place of the one that Of returned, or returns [ErrConflict] where that
	// is not the newest: the next Of then returns a newer one.
	Charge(ctx context.Context, was, is *State) error
}

// ErrConflict says that a quota was changed by another.
var ErrConflict = errors.New("the quota was changed by another request")

// Options configure the plugin. Owner and Store are required.
type Options struct {
	// Managed reports whether of a resource [tenant.ManagedLabel] is kept from everybody but the
	// server: what it gives itself is counted and never refused. Nil: of none.
	Managed func(schema.GroupResource) bool
	Owner   plugins.OwnerFunc
	Store   Store
	// Reservation is how long a write that was let through may take to be stored and seen: more than a
	// request may take and the counter's caches may be behind.
	Reservation time.Duration
	// ClusterScoped reports whether a resource is: its objects are nobody's in particular, so no quota
	// limits them, but for Namespaces, which are their tenant's. Nil knows of none.
	ClusterScoped func(schema.GroupResource) bool
	// Subject returns the tenant of a caller. If nil, no caller is known, and none gets the details of
	// a quota.
	Subject plugins.SubjectFunc
	// Classes returns the DeviceClasses of the cluster, as far as they are known here. If nil, there
	// are none. An error means that they are not known: a write that may use devices is refused.
	Classes func() (Classes, error)
	// Now is the clock; nil means time.Now.
	Now func() time.Time
}

// New returns the plugin. It governs what is created in tenant space, and the updates that can use
// more. It MUST be the last to validate: what it lets through is charged. Behind a webhook, where
// others may refuse what was charged, that is reserved until it expires.
//
// What exceeds a quota is a 403 (Forbidden); what cannot be charged, or of which the quota
// cannot be read or is not known yet, a 429 (TooManyRequests) without Retry-After, which says
// nothing of the store's errors.
func New(o Options) admission.ValidationInterface {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Subject == nil {
		o.Subject = func(context.Context, user.Info) (tenant.ID, error) { return tenant.ID{}, errors.New("no subject") }
	}
	if o.Classes == nil {
		o.Classes = func() (Classes, error) { return nil, nil }
	}
	return &plugin{admission.NewHandler(admission.Create, admission.Update), o, newLedger(o.Store)}
}

type plugin struct {
	*admission.Handler
	Options
	ledger *ledger
}

// Validate implements [admission.ValidationInterface].
func (p *plugin) Validate(ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces) error {
	switch a.GetResource().GroupResource() {
	case own:
		return p.checkOwn(ctx, a)
	case tenants:
		return p.checkLimits(a, "spec", "quota")
	case deviceClaims, claimTemplates:
		if err := p.checkClaim(ctx, a, o); err != nil {
			return admission.NewForbidden(a, err)
		}
	}
	if p.isManaged(a) {
		return nil
	}
	owner, err := p.owner(ctx, a)
	if err != nil {
		return admission.NewForbidden(a, err)
	}
	if owner.IsSystem() || owner.IsZero() {
		return nil
	}
	err = p.charge(ctx, owner, a, o)
	deadline := p.Now().Add(patience)
	for errors.Is(err, ErrUnknown) && p.Now().Before(deadline) {
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return p.refuse(ctx, owner, a, err)
		}
		err = p.charge(ctx, owner, a, o)
	}
	return p.refuse(ctx, owner, a, err)
}

// refuse returns the refusal of a write, see [refuse]. A caller of another tenant, which an
// AccessGrant or a binding admits to the namespace, gets no limits, usage or names of the quota.
func (p *plugin) refuse(ctx context.Context, owner tenant.ID, a admission.Attributes, err error) error {
	if err == nil {
		return nil
	}
	id, unknown := p.Subject(ctx, a.GetUserInfo())
	if unknown == nil && (id.IsSystem() || id == owner) {
		return refuse(a, err)
	}
	if isTemporary(err) {
		return apierrors.NewTooManyRequests(errGuestLater.Error(), 0)
	}
	return admission.NewForbidden(a, errGuest)
}

// A caller of another tenant gets no other errors.
var (
	errGuest      = errors.New("the quota of the tenant that owns the namespace does not allow this request")
	errGuestLater = errors.New("the quota of the tenant that owns the namespace cannot be charged: try again")
)

// isTemporary reports whether the same write may succeed in a moment.
func isTemporary(err error) bool {
	return errors.Is(err, errStore) || errors.Is(err, errRead) || errors.Is(err, ErrUnknown)
}

// refuse returns the refusal of a write for what is wrong, nil for nothing. What does not hang on
// the write may be mended in a moment: that is a 429. It does not say when, or clients would send
// the write again by themselves: a ResourceQuota of the server was charged for it before, and each
// time anew until that is counted.
func refuse(a admission.Attributes, err error) error {
	switch {
	case err == nil:
		return nil
	case isTemporary(err):
		return apierrors.NewTooManyRequests(fmt.Sprintf("%s %q: %v: try again",
			a.GetResource().GroupResource(), a.GetName(), err), 0)
	}
	return admission.NewForbidden(a, err)
}

// isManaged reports whether the server makes what it gives.
func (p *plugin) isManaged(a admission.Attributes) bool {
	if p.Managed == nil || a.GetOperation() != admission.Create || a.GetNamespace() == "" ||
		!p.Managed(a.GetResource().GroupResource()) {
		return false
	}
	_, is, err := plugins.Stored(a)
	if err != nil || is == nil {
		return false
	}
	_, managed := is.GetLabels()[tenant.ManagedLabel]
	return managed
}

// owner returns whose quota a write can use more of; the zero ID for nobody's.
func (p *plugin) owner(ctx context.Context, a admission.Attributes) (tenant.ID, error) {
	switch {
	case a.GetResource().GroupResource() == namespaces:
		return newOwner(a)
	case a.GetNamespace() == "" || !handles(a):
		return tenant.ID{}, nil
	}
	return p.Owner(ctx, a.GetNamespace())
}

// newOwner returns to whom a write of a Namespace gives one that he has not had.
func newOwner(a admission.Attributes) (tenant.ID, error) {
	was, is, err := plugins.Stored(a)
	if err != nil || is == nil {
		return tenant.ID{}, plugins.ErrObject
	}
	label := is.GetLabels()[tenant.Label]
	if label == "" || was != nil && was.GetLabels()[tenant.Label] == label {
		return tenant.ID{}, nil
	}
	return tenant.Parse(label)
}

func (p *plugin) charge(
	ctx context.Context, owner tenant.ID, a admission.Attributes, o admission.ObjectInterfaces,
) error {
	states, err := p.Store.Of(ctx, owner)
	if err != nil {
		return unread(ctx, owner, err)
	}
	of := a.GetResource().GroupResource()
	governed := governedNames(states, of)
	if len(governed) == 0 {
		return nil
	}
	var classes Classes
	if slices.ContainsFunc(governed, IsDevice) {
		if classes, err = p.Classes(); err != nil {
			return unread(ctx, owner, err)
		}
	}
	r, err := p.request(a, o, of, classes)
	if err != nil {
		return err
	}
	r.dryRun = a.IsDryRun()
	return p.ledger.charge(ctx, owner, r)
}

// unread logs why a quota could not be read, and returns what is told of it.
func unread(ctx context.Context, id tenant.ID, err error) error {
	if errors.Is(err, ErrUnknown) {
		return ErrUnknown
	}
	klog.FromContext(ctx).Error(err, "Failed to read a quota", "tenant", id)
	return errRead
}

// own is the resource of the quotas themselves.
var own = schema.GroupResource{Group: tenant.Domain, Resource: "tenantquotas"}

// tenants become quotas by a field of theirs.
var tenants = schema.GroupResource{Group: tenant.Domain, Resource: "tenants"}

// ParseLimit returns an error if a limit of a quota, as JSON decodes it, is not a quantity. The
// pattern of the schema allows more.
func ParseLimit(value any) error {
	_, err := resource.ParseQuantity(fmt.Sprint(value))
	return err
}

// checkLimits refuses limits that no object uses and limits that are not quantities, in a field of
// an object.
func (p *plugin) checkLimits(a admission.Attributes, field ...string) error {
	if a.GetSubresource() != "" {
		return nil
	}
	u, is := a.GetObject().(runtime.Unstructured)
	if !is {
		return admission.NewForbidden(a, plugins.ErrObject)
	}
	hard, _, err := unstructured.NestedMap(u.UnstructuredContent(), field...)
	if err != nil {
		return admission.NewForbidden(a, err)
	}
	var refused plugins.Refusals
	for _, name := range slices.Sorted(maps.Keys(hard)) {
		at := fmt.Sprintf("%s[%s]", strings.Join(field, "."), name)
		of := Resources(corev1.ResourceName(name))
		if err := ParseLimit(hard[name]); err != nil {
			refused.Add(fmt.Errorf("%s: %w", at, err))
		} else if len(of) == 0 || of[0] != namespaces && p.ClusterScoped != nil && slices.ContainsFunc(of, p.ClusterScoped) {
			refused.Add(fmt.Errorf("%s: no object uses this resource", at))
		}
	}
	return refuse(a, refused.Err())
}

// checkOwn holds the quotas: what nothing uses limits nothing, and one tenant has one.
func (p *plugin) checkOwn(ctx context.Context, a admission.Attributes) error {
	if a.GetSubresource() != "" {
		return nil
	}
	if err := p.checkLimits(a, "spec", "hard"); err != nil {
		return err
	}
	u, is := a.GetObject().(runtime.Unstructured)
	if !is {
		return admission.NewForbidden(a, plugins.ErrObject)
	}
	name, _, _ := unstructured.NestedString(u.UnstructuredContent(), "spec", "tenant")
	id, err := tenant.Parse(name)
	if err != nil || a.GetOperation() != admission.Create {
		return nil // the definition's schema holds the name
	}
	taken, err := p.Store.Taken(ctx, id)
	switch {
	case err != nil:
		return refuse(a, unread(ctx, id, err))
	case taken:
		return admission.NewForbidden(a, errTaken)
	}
	return nil
}

// governedNames returns the names of quotas that objects of a resource use.
func governedNames(states []*State, of schema.GroupResource) []corev1.ResourceName {
	var out []corev1.ResourceName
	for _, s := range states {
		out = append(out, names(s.Hard, of)...)
	}
	return out
}

func (p *plugin) request(
	a admission.Attributes, o admission.ObjectInterfaces, of schema.GroupResource, classes Classes,
) (*request, error) {
	now := p.Now()
	r := &request{
		expires:  now.Add(p.Reservation),
		names:    func(hard corev1.ResourceList) []corev1.ResourceName { return names(hard, of) },
		required: func([]corev1.ResourceName) error { return nil },
	}
	var err error
	if r.is, err = Usage(of, a.GetObject(), o, now); err != nil {
		return nil, err
	}
	r.is = classes.Extend(r.is)
	if of == pods {
		pod, err := plugins.Versioned[corev1.Pod](a.GetObject(), corev1.SchemeGroupVersion.WithKind("Pod"), o)
		if err != nil {
			return nil, err
		}
		r.required = func(hard []corev1.ResourceName) error { return checkRequired(pod, hard) }
	}
	m, err := meta.Accessor(a.GetObject())
	if err != nil {
		return nil, err
	}
	if r.uid = m.GetUID(); r.uid == "" {
		r.uid = uuid.NewUUID() // never seen: it expires
	}
	if name := m.GetName(); name != "" && a.GetOperation() == admission.Create {
		r.key = of.String() + "/" + a.GetNamespace() + "/" + name
	}
	if a.GetOperation() == admission.Update {
		old, err := meta.Accessor(a.GetOldObject())
		if err != nil {
			return nil, err
		}
		r.after = old.GetResourceVersion()
		if of == namespaces {
			return r, nil // it was somebody else's
		}
		r.was, err = Usage(of, a.GetOldObject(), o, now)
		r.was = classes.Extend(r.was)
		return r, err
	}
	return r, nil
}
