// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

// Package lifecycle checks writes of Tenants, TenantMembers and RetiredTenants. A protected
// Tenant cannot be deleted. A Tenant that is being deleted exists until the server has completed
// the deletion. The ID of a deleted tenant can be reused only if that tenant has no namespaces
// and no object of the system tenant refers to it.
package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

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
const Name = "TenantLifecycle"

// nameCooldown is how long the ID of a deleted tenant cannot be reused. It is longer than any cache
// of a token or a decision. By default, kube-apiserver caches the decisions of webhooks for at most
// five minutes.
const nameCooldown = 10 * time.Minute

var (
	tenants = schema.GroupResource{Group: tenant.Domain, Resource: "tenants"}
	members = schema.GroupResource{Group: tenant.Domain, Resource: "tenantmembers"}
	retired = schema.GroupResource{Group: tenant.Domain, Resource: "retiredtenants"}

	errProtected = errors.New("spec.deletionPolicy is Protect: set it to Delete or Orphan first, " +
		"or use kubectl tenant delete-tenant")
	errFinalizer = errors.New("the finalizer " + tenant.Finalizer +
		" may only be removed by the server: it does so after the tenant's deletion is complete")
	errReplaces       = errors.New("spec.replaces: may not be set because no Tenant with this ID was deleted")
	errLineageUnknown = errors.New("spec.id: cannot check yet whether a deleted tenant had this ID: try again")
	errUnfinished     = errors.New("spec.id: the deletion of the tenant that had this ID is not complete")
)

// TenantSpec contains the fields of a Tenant that control its creation and deletion.
type TenantSpec struct {
	ID tenant.ID
	// Replaces is the UID of the deleted Tenant that had the ID before.
	Replaces string
	// Protected reports whether the deletion policy is Protect, so that the Tenant cannot be
	// deleted.
	Protected bool
}

// Options configure the plugin. Subject, Read, RequiredRights and Authorizer are required.
type Options struct {
	Subject plugins.SubjectFunc
	// Read reads a Tenant. Its error names the field.
	Read func(runtime.Object) (*TenantSpec, error)
	// ReadMembers reads the tenant and the spec of TenantMembers. If nil, the plugin does not
	// record the Tenant to which TenantMembers belong.
	ReadMembers func(runtime.Object) (id tenant.ID, spec any, err error)
	// ReadRetired reads a RetiredTenant. If nil, RetiredTenants are not checked.
	ReadRetired func(runtime.Object) (Record, error)
	// Lineage returns the current Tenant object and the deleted Tenant objects of a tenant. If it
	// returns false, these objects are not known yet, and the write is denied. If nil, no Tenant
	// objects are known.
	Lineage func(tenant.ID) (tenant.Lineage, bool)
	// OwnedNamespaces returns the namespaces with the label of a tenant. If it is nil or fails, the
	// ID of a deleted tenant cannot be reused.
	OwnedNamespaces func(tenant.ID) ([]string, error)
	// References returns the objects that an earlier tenant with this ID left and that would apply
	// to a new tenant. These are bindings outside the tenants' namespaces that name the tenant or
	// service accounts of its namespaces, TenantMembers, and TenantQuotas that are being deleted.
	// If it is nil or fails, the ID of a deleted tenant cannot be reused.
	References func(ctx context.Context, id tenant.ID, namespaces []string) ([]string, error)
	// RequiredRights returns the rights that the author of a Tenant needs for a write. was is nil
	// if the Tenant is created.
	RequiredRights func(was, is runtime.Object) ([]Right, error)
	// Authorizer is the server's authorizer. It decides whether authors have these rights.
	Authorizer authorizer.Authorizer
	// Now returns the current time. Defaults to time.Now.
	Now func() time.Time
}

// New returns the plugin. It checks Tenants, TenantMembers and RetiredTenants.
func New(o Options) plugins.Interface {
	if o.Now == nil {
		o.Now = time.Now
	}
	return &plugin{admission.NewHandler(admission.Create, admission.Update, admission.Delete), o}
}

type plugin struct {
	*admission.Handler
	Options
}

// Governs reports whether the plugin checks a resource.
func Governs(r schema.GroupResource) bool { return r == tenants || r == members || r == retired }

// governs reports whether a request is for the resource r and not for a subresource.
func governs(a admission.Attributes, r schema.GroupResource) bool {
	return a.GetResource().GroupResource() == r && a.GetSubresource() == ""
}

// Admit implements [admission.MutationInterface]. It adds the finalizer to a Tenant that is not
// being deleted, and restores it if an update omits it. It also restores the Keystone domain and
// the suspension of a Tenant, and records the Tenant of TenantMembers.
func (p *plugin) Admit(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if governs(a, members) {
		return p.admitMembers(ctx, a)
	}
	if !governs(a, tenants) || a.GetOperation() == admission.Delete || p.Subject.IsManager(ctx, a) {
		return nil
	}
	old, obj, err := plugins.StoredMetadata(a)
	if err != nil || obj == nil {
		return admission.NewForbidden(a, plugins.ErrObject)
	}
	if needsFinalizer(old, obj) {
		obj.SetFinalizers(append(slices.Clip(obj.GetFinalizers()), tenant.Finalizer))
	}
	removeCancelAnnotation(ctx, obj)
	restoreKeystone(ctx, a, old, obj)
	if a.GetOperation() == admission.Update {
		restoreSuspension(ctx, a.GetOldObject(), a.GetObject())
	}
	return nil
}

// needsFinalizer reports whether a write must add the finalizer to a Tenant. While a Tenant is
// being deleted, its finalizer is restored but never newly added.
func needsFinalizer(old, obj metav1.Object) bool {
	had := old != nil && slices.Contains(old.GetFinalizers(), tenant.Finalizer)
	return !slices.Contains(obj.GetFinalizers(), tenant.Finalizer) && (had || obj.GetDeletionTimestamp() == nil)
}

// Validate implements [admission.ValidationInterface].
func (p *plugin) Validate(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if governs(a, members) {
		return p.validateMembers(a)
	}
	if governs(a, retired) {
		if err := p.checkRetired(ctx, a); err != nil {
			return admission.NewForbidden(a, err)
		}
		return nil
	}
	if !governs(a, tenants) {
		return nil
	}
	check := p.checkCreate
	switch a.GetOperation() {
	case admission.Update:
		check = p.checkUpdate
	case admission.Delete:
		check = p.checkDelete
	}
	if err := check(ctx, a); err != nil {
		return admission.NewForbidden(a, err)
	}
	return nil
}

func (p *plugin) checkUpdate(ctx context.Context, a admission.Attributes) error {
	old, obj, err := plugins.StoredMetadata(a)
	if err != nil {
		return err
	}
	if slices.Contains(old.GetFinalizers(), tenant.Finalizer) && !slices.Contains(obj.GetFinalizers(), tenant.Finalizer) &&
		!p.Subject.IsManager(ctx, a) {
		return errFinalizer
	}
	if !p.Subject.IsManager(ctx, a) && omitsSuspension(a.GetOldObject(), a.GetObject()) {
		return errSuspension
	}
	if !p.Subject.IsManager(ctx, a) {
		if err := checkKeystone(old, obj); err != nil {
			return err
		}
	}
	if _, err := p.Read(a.GetObject()); err != nil {
		return err
	}
	return p.checkRights(ctx, a)
}

// checkDelete checks every caller, including the administrators of the cluster. Admission does not
// check objects that are deleted together with their CRD.
func (p *plugin) checkDelete(_ context.Context, a admission.Attributes) error {
	obj := a.GetOldObject()
	if obj == nil {
		return plugins.ErrObject
	}
	m, err := meta.Accessor(obj)
	if err != nil {
		return plugins.ErrObject
	}
	spec, err := p.Read(obj)
	if err != nil {
		return err
	}
	switch {
	case m.GetDeletionTimestamp() != nil:
		return nil
	case spec.Protected:
		return errProtected
	case cancelsDeletion(m):
		return errCancelAnnotation
	}
	return nil
}

// checkCreate checks the author's rights, and whether a new Tenant may have the ID of a deleted
// tenant.
func (p *plugin) checkCreate(ctx context.Context, a admission.Attributes) error {
	spec, err := p.Read(a.GetObject())
	if err == nil && !p.Subject.IsManager(ctx, a) {
		_, obj, storedErr := plugins.StoredMetadata(a)
		if err = storedErr; err == nil {
			err = checkKeystone(nil, obj)
		}
	}
	if err == nil {
		err = p.checkRights(ctx, a)
	}
	if err != nil || p.Lineage == nil {
		return err
	}
	lineage, known := p.Lineage(spec.ID)
	last, ok := lineage.LastRetired()
	switch {
	case !known:
		return errLineageUnknown
	case lineage.Terminating:
		return errUnfinished
	case lineage.UID != "": // the Tenant exists, so the storage rejects the write
		return nil
	case !ok && spec.Replaces != "":
		return errReplaces
	case !ok:
		return nil
	case spec.Replaces != last.UID:
		return fmt.Errorf("spec.replaces: must be %s to reuse the ID of a deleted tenant (see kubectl tenant retired)",
			last.UID)
	}
	ended := last.DeletionEnded
	if ended.IsZero() { // the Tenant was deleted early, for example with its CRD
		ended = last.DeletionBegan
	}
	if until := ended.Add(nameCooldown); p.Now().Before(until) {
		return fmt.Errorf("spec.id: the tenant that had this ID was deleted a moment ago: the ID can be reused after %s",
			until.UTC().Format(time.RFC3339))
	}
	return p.checkRemaining(ctx, spec.ID, &lineage)
}

// maxNamedObjects is the maximum number of remaining objects in one error.
const maxNamedObjects = 5

var errCannotCheck = errors.New("spec.id: cannot check what is left of the deleted tenant that had this ID")

// checkRemaining denies the reuse of an ID if objects that would apply to the new tenant are left.
func (p *plugin) checkRemaining(ctx context.Context, id tenant.ID, lineage *tenant.Lineage) error {
	if p.OwnedNamespaces == nil || p.References == nil {
		return errCannotCheck
	}
	owned, err := p.OwnedNamespaces(id)
	if err != nil {
		return fmt.Errorf("%w: %w", errCannotCheck, err)
	}
	if len(owned) > 0 {
		return fmt.Errorf("spec.id: namespaces of the deleted tenant that had this ID still exist: %s",
			strings.Join(owned[:min(maxNamedObjects, len(owned))], ", "))
	}
	var namespaces []string
	for _, r := range lineage.Retired {
		namespaces = append(namespaces, r.Namespaces...)
	}
	remaining, err := p.References(ctx, id, namespaces)
	if err != nil {
		return fmt.Errorf("%w: %w", errCannotCheck, err)
	}
	if len(remaining) > 0 {
		return fmt.Errorf("spec.id: objects that name the deleted tenant with this ID would apply to the new tenant: %s",
			strings.Join(remaining[:min(maxNamedObjects, len(remaining))], ", "))
	}
	return nil
}
