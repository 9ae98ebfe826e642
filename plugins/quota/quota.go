// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

// Package quota limits the resources of a tenant over all its namespaces. It limits compute
// resources, numbers of objects and extended resources. Writes are admitted in the order in which
// they arrive.
//
// A write is charged to the quota before it is stored. The charge is one conditional update of the
// quota, so concurrent charges cannot exceed the limits together. The quota controller releases the
// usage of deleted objects, see [State.Recount]. Even if a server stops at any point, a charge
// never raises the usage above the limits.
//
// If a charged write is not stored, its usage is released when its reservation expires. A write
// that was in progress when a quota or a limit was created is counted as soon as the controller
// sees its object.
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

// Name is the name of the plugin.
const Name = "TenantQuota"

// ErrUnknown reports that a quota or its usage is not known yet.
var ErrUnknown = errors.New("the usage of the quota is not known yet")

var errQuotaExists = errors.New("the tenant already has a quota")

var (
	errRead  = errors.New("the tenant's quota could not be read")
	errStore = errors.New("the quota could not be charged")
)

// A write waits for the first count of a new quota, and is tried again after each pause.
const (
	maxWait = 2 * time.Second // less than the timeout of a webhook
	pause   = 100 * time.Millisecond
)

// Store reads and charges quotas. It MUST be safe for concurrent use.
type Store interface {
	// States returns the states of a tenant's quotas. A tenant without a limit has none, and
	// normally no tenant has several. The result MUST NOT be changed.
	States(ctx context.Context, id tenant.ID) ([]*State, error)
	// HasQuota reports whether a tenant has a quota other than a default quota.
	HasQuota(ctx context.Context, id tenant.ID) (bool, error)
	// Charge replaces the state was, which States returned, with the state is. If was is not the
	// newest state, Charge returns [ErrConflict]. The next call of States then returns a newer
	// state.
	Charge(ctx context.Context, was, is *State) error
}

// ErrConflict reports that another request changed the quota.
var ErrConflict = errors.New("the quota was changed by another request")

// Options configure the plugin. Owner and Store are required.
type Options struct {
	// Managed reports whether only the server may set [tenant.ManagedLabel] on objects of a
	// resource. The server's objects are never denied, and are first counted by [State.Recount]. If
	// nil, there are no such resources.
	Managed func(schema.GroupResource) bool
	Owner   plugins.OwnerFunc
	Store   Store
	// Reservation is how long an admitted write stays reserved. It must be longer than the timeout
	// of a request plus the delay of the controller's caches.
	Reservation time.Duration
	// ClusterScoped reports whether a resource is cluster-scoped. Except for Namespaces,
	// cluster-scoped objects belong to no tenant, so no quota limits them. If nil, no resource is
	// known to be cluster-scoped.
	ClusterScoped func(schema.GroupResource) bool
	// Subject returns the tenant of a caller. If nil, no caller gets the details of a quota.
	Subject plugins.SubjectFunc
	// Classes returns the known DeviceClasses of the cluster. If nil, there are none. If it returns
	// an error, writes that may use devices are denied.
	Classes func() (Classes, error)
	// Now returns the current time. Defaults to time.Now.
	Now func() time.Time
}

// New returns the plugin. It checks creations in tenants' namespaces, and updates that can increase
// the usage. It MUST be the last validating plugin, because it charges the writes that it admits.
// In the webhook service, another plugin may deny a charged write. The usage of that write then
// stays reserved until the reservation expires.
//
// If a write exceeds a quota, the response is 403 (Forbidden). If the quota cannot be charged or
// read, or is not known yet, the response is 429 (TooManyRequests) without Retry-After. The
// response does not contain the error of the store.
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
	case quotas:
		return p.checkQuota(ctx, a)
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
	deadline := p.Now().Add(maxWait)
	for errors.Is(err, ErrUnknown) && p.Now().Before(deadline) {
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return p.errorResponse(ctx, owner, a, err)
		}
		err = p.charge(ctx, owner, a, o)
	}
	return p.errorResponse(ctx, owner, a, err)
}

// errorResponse returns the response to a write. Callers of the owning tenant and of the system
// tenant get the full error. A caller of another tenant may have access to the namespace through
// an AccessGrant or a binding. The response to such a caller does not contain the limits, the
// usage or the name of the quota.
func (p *plugin) errorResponse(ctx context.Context, owner tenant.ID, a admission.Attributes, err error) error {
	if err == nil {
		return nil
	}
	id, unknown := p.Subject(ctx, a.GetUserInfo())
	if unknown == nil && (id.IsSystem() || id == owner) {
		return errorResponse(a, err)
	}
	if isTemporary(err) {
		return apierrors.NewTooManyRequests(errOtherTenantRetry.Error(), 0)
	}
	return admission.NewForbidden(a, errOtherTenant)
}

// The only errors that callers of other tenants get.
var (
	errOtherTenant      = errors.New("the quota of the tenant that owns the namespace does not allow this request")
	errOtherTenantRetry = errors.New("the quota of the tenant that owns the namespace cannot be charged: try again")
)

// isTemporary reports whether the same write may succeed soon.
func isTemporary(err error) bool {
	return errors.Is(err, errStore) || errors.Is(err, errRead) || errors.Is(err, ErrUnknown)
}

// errorResponse returns the response to a write, or nil if err is nil. If the write may succeed
// soon, the response is a 429. It has no Retry-After, because clients would then retry on their
// own. kube-apiserver charges its ResourceQuotas before this plugin runs, so each retry would
// charge them again until they are recounted.
func errorResponse(a admission.Attributes, err error) error {
	switch {
	case err == nil:
		return nil
	case isTemporary(err):
		return apierrors.NewTooManyRequests(fmt.Sprintf("%s %q: %v: try again",
			a.GetResource().GroupResource(), a.GetName(), err), 0)
	}
	return admission.NewForbidden(a, err)
}

// isManaged reports whether a write creates a namespaced object that the server manages.
func (p *plugin) isManaged(a admission.Attributes) bool {
	if p.Managed == nil || a.GetOperation() != admission.Create || a.GetNamespace() == "" ||
		!p.Managed(a.GetResource().GroupResource()) {
		return false
	}
	_, obj, err := plugins.StoredMetadata(a)
	if err != nil || obj == nil {
		return false
	}
	_, managed := obj.GetLabels()[tenant.ManagedLabel]
	return managed
}

// owner returns the tenant that a write is charged to, or the zero ID if there is none.
func (p *plugin) owner(ctx context.Context, a admission.Attributes) (tenant.ID, error) {
	switch {
	case a.GetResource().GroupResource() == namespaces:
		return newOwner(a)
	case a.GetNamespace() == "" || !handles(a):
		return tenant.ID{}, nil
	}
	return p.Owner(ctx, a.GetNamespace())
}

// newOwner returns the tenant to which a write assigns a Namespace, or the zero ID if the owner
// does not change.
func newOwner(a admission.Attributes) (tenant.ID, error) {
	old, obj, err := plugins.StoredMetadata(a)
	if err != nil || obj == nil {
		return tenant.ID{}, plugins.ErrObject
	}
	label := obj.GetLabels()[tenant.Label]
	if label == "" || old != nil && old.GetLabels()[tenant.Label] == label {
		return tenant.ID{}, nil
	}
	return tenant.Parse(label)
}

func (p *plugin) charge(
	ctx context.Context, owner tenant.ID, a admission.Attributes, o admission.ObjectInterfaces,
) error {
	states, err := p.Store.States(ctx, owner)
	if err != nil {
		return readError(ctx, owner, err)
	}
	of := a.GetResource().GroupResource()
	governed := allLimitNames(states, of)
	if len(governed) == 0 {
		return nil
	}
	var classes Classes
	if slices.ContainsFunc(governed, IsDevice) {
		if classes, err = p.Classes(); err != nil {
			return readError(ctx, owner, err)
		}
	}
	r, err := p.request(a, o, of, classes)
	if err != nil {
		return err
	}
	r.dryRun = a.IsDryRun()
	return p.ledger.charge(ctx, owner, r)
}

// readError logs why a quota could not be read, and returns the error for the response.
func readError(ctx context.Context, id tenant.ID, err error) error {
	if errors.Is(err, ErrUnknown) {
		return ErrUnknown
	}
	klog.FromContext(ctx).Error(err, "Failed to read a quota", "tenant", id)
	return errRead
}

// quotas is the resource of quotas.
var quotas = schema.GroupResource{Group: tenant.Domain, Resource: "tenantquotas"}

// tenants is the resource of Tenants. The field spec.quota of a Tenant becomes a quota.
var tenants = schema.GroupResource{Group: tenant.Domain, Resource: "tenants"}

// ParseLimit returns an error if a limit, as decoded from JSON, is not a quantity. The pattern in
// the schema allows more values.
func ParseLimit(value any) error {
	_, err := resource.ParseQuantity(fmt.Sprint(value))
	return err
}

// checkLimits denies limits that are not quantities and limits that apply to no objects. field is
// the path of the limits in the object.
func (p *plugin) checkLimits(a admission.Attributes, field ...string) error {
	if a.GetSubresource() != "" {
		return nil
	}
	u, ok := a.GetObject().(runtime.Unstructured)
	if !ok {
		return admission.NewForbidden(a, plugins.ErrObject)
	}
	hard, _, err := unstructured.NestedMap(u.UnstructuredContent(), field...)
	if err != nil {
		return admission.NewForbidden(a, err)
	}
	var errs plugins.Errors
	for _, name := range slices.Sorted(maps.Keys(hard)) {
		path := fmt.Sprintf("%s[%s]", strings.Join(field, "."), name)
		resources := Resources(corev1.ResourceName(name))
		if err := ParseLimit(hard[name]); err != nil {
			errs.Add(fmt.Errorf("%s: %w", path, err))
		} else if len(resources) == 0 ||
			resources[0] != namespaces && p.ClusterScoped != nil && slices.ContainsFunc(resources, p.ClusterScoped) {
			errs.Add(fmt.Errorf("%s: no object uses this resource", path))
		}
	}
	return errorResponse(a, errs.Err())
}

// checkQuota checks a quota. Each limit must apply to some objects, and a tenant has at most one
// quota.
func (p *plugin) checkQuota(ctx context.Context, a admission.Attributes) error {
	if a.GetSubresource() != "" {
		return nil
	}
	if err := p.checkLimits(a, "spec", "hard"); err != nil {
		return err
	}
	u, ok := a.GetObject().(runtime.Unstructured)
	if !ok {
		return admission.NewForbidden(a, plugins.ErrObject)
	}
	name, _, _ := unstructured.NestedString(u.UnstructuredContent(), "spec", "tenant")
	id, err := tenant.Parse(name)
	if err != nil || a.GetOperation() != admission.Create {
		return nil // the schema validates the name
	}
	exists, err := p.Store.HasQuota(ctx, id)
	switch {
	case err != nil:
		return errorResponse(a, readError(ctx, id, err))
	case exists:
		return admission.NewForbidden(a, errQuotaExists)
	}
	return nil
}

// allLimitNames returns the names of the limits that apply to objects of a resource.
func allLimitNames(states []*State, of schema.GroupResource) []corev1.ResourceName {
	var out []corev1.ResourceName
	for _, s := range states {
		out = append(out, limitNames(s.Hard, of)...)
	}
	return out
}

func (p *plugin) request(
	a admission.Attributes, o admission.ObjectInterfaces, of schema.GroupResource, classes Classes,
) (*request, error) {
	now := p.Now()
	r := &request{
		expires:       now.Add(p.Reservation),
		limitNames:    func(hard corev1.ResourceList) []corev1.ResourceName { return limitNames(hard, of) },
		checkRequired: func([]corev1.ResourceName) error { return nil },
	}
	var err error
	if r.usage, err = Usage(of, a.GetObject(), o, now); err != nil {
		return nil, err
	}
	r.usage = classes.Extend(r.usage)
	if of == pods {
		pod, err := plugins.Versioned[corev1.Pod](a.GetObject(), corev1.SchemeGroupVersion.WithKind("Pod"), o)
		if err != nil {
			return nil, err
		}
		r.checkRequired = func(hard []corev1.ResourceName) error { return checkRequired(pod, hard) }
	}
	m, err := meta.Accessor(a.GetObject())
	if err != nil {
		return nil, err
	}
	if r.uid = m.GetUID(); r.uid == "" {
		r.uid = uuid.NewUUID() // no stored object has this UID, so the reservation expires
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
			return r, nil // the Namespace belonged to another tenant or to none
		}
		r.oldUsage, err = Usage(of, a.GetOldObject(), o, now)
		r.oldUsage = classes.Extend(r.oldUsage)
		return r, err
	}
	return r, nil
}
