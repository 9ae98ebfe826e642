// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package retirement

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/kubetenant/kubetenant/cluster/tenants"
	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

const (
	// pollEvery is the interval at which the deletion of namespaces is checked. pollStuckEvery is the
	// interval if only stuck objects remain.
	pollEvery, pollStuckEvery = 2 * time.Second, time.Minute
	// pollDefinitionEvery is the interval at which a deletion that waits for a
	// CustomResourceDefinition is checked.
	pollDefinitionEvery = 10 * time.Second
	// settleTime is how long the RetiredTenant must have existed before the tenant is retired. With
	// the policy Delete, the tenant must also have had no namespaces for this time. A server that
	// has not observed the deletion of the Tenant may still admit a namespace.
	settleTime = 90 * time.Second
	// maxInFlight is the maximum number of namespaces of a tenant that are being deleted at the same
	// time.
	maxInFlight = 50
	// stuckAfter is how long the deletion of a namespace may take before the condition names it.
	stuckAfter = 10 * time.Minute
	// heldRetry is the interval at which a deletion that exceeds the limit is checked.
	heldRetry = time.Minute
	// Within startWindow, minStarts deletions can start, or the deletions of 1/startShare of all
	// Tenants if this is more. The limit gives an administrator time to stop a tool that deletes
	// all Tenants by mistake.
	minStarts, startShare = 10, 100
	startWindow           = time.Hour
	// maxNamed is the maximum number of namespaces or other objects in a condition. maxReferences and
	// maxNamespaces are the maximum numbers of references and namespaces in a RetiredTenant.
	maxNamed, maxReferences, maxNamespaces = 5, 20, 10_000
	// maxReferenceBytes is the maximum size of a reference in bytes.
	maxReferenceBytes = 500
)

// deletion continues the deletion of one Tenant.
type deletion struct {
	*Engine
	id tenant.ID
	t  *v1alpha1.Tenant
}

// proceed does the next steps of the deletion, and returns the time until the next check. It
// skips steps that are already done.
func (e *deletion) proceed(ctx context.Context) (time.Duration, error) {
	switch e.t.Spec.DeletionPolicy {
	case v1alpha1.TenantDeletionDelete, v1alpha1.TenantDeletionOrphan:
	default: // the admission plugin, which prevents this, was not active
		return 0, e.writeConditions(
			ctx,
			heldCondition(
				v1alpha1.ReasonProtected,
				"spec.deletionPolicy is Protect: set it to Delete or Orphan to continue the "+
					"deletion",
			),
		)
	}
	if !e.hasBegun() {
		if again, over, err := e.delay(ctx); !over || err != nil {
			return again, err
		}
	}
	if !e.hasBegun() && !e.mayStart() {
		return heldRetry, e.writeConditions(ctx,
			heldCondition(v1alpha1.ReasonTooMany, "the limit of tenant deletions in an hour is reached: this deletion starts "+
				"automatically later"))
	}
	if !e.hasBegun() {
		e.begun[string(e.t.UID)] = time.Now()
	}
	namespaces, err := e.Client.CoreV1().Namespaces().List(ctx,
		metav1.ListOptions{LabelSelector: tenant.Label + "=" + e.id.String()})
	if err != nil {
		return 0, err
	}
	if missing := e.Undefined(v1alpha1.ResourceRetiredTenants); missing != "" {
		// Nothing is deleted before the name is reserved.
		return pollDefinitionEvery,
			e.writeConditions(
				ctx,
				deletingCondition(v1alpha1.ReasonDefinition, "the tenant's name cannot be reserved: "+missing),
			)
	}
	// The RetiredTenant is created first, so that the ID is reserved even if another program removes
	// the finalizer of the Tenant.
	record, err := e.reserve(ctx, namespaces.Items)
	if err != nil {
		return 0, err
	}
	if e.t.Spec.DeletionPolicy == v1alpha1.TenantDeletionDelete {
		if again, err := e.deleteNamespaces(ctx, namespaces.Items); again > 0 || err != nil {
			return again, err
		}
	}
	others := slices.DeleteFunc(slices.Clone(e.t.Finalizers), func(f string) bool { return f == tenant.Finalizer })
	if again, err := e.deleteObjects(ctx, others); again > 0 || err != nil {
		return again, err
	}
	// Every server must observe the RetiredTenant before the Tenant is removed. The tenant is
	// retired only after other programs have removed their finalizers from the Tenant.
	if again := settleTime - time.Since(record.GetCreationTimestamp().Time); again > 0 {
		return again, nil
	}
	if len(others) > 0 {
		return settleTime, nil
	}
	if err := e.retire(ctx, record); err != nil {
		return 0, err
	}
	return 0, e.removeFinalizer(ctx, e.t)
}

// delay reports whether spec.deletionDelay is over. If not, it returns the time until the next
// check. If [tenant.TakeBackAnnotation] cancels the deletion, delay calls [deletion.cancel]. The
// namespaces then remain and the ID is not reserved, but package provision deletes the bindings
// that the Tenant specified after the Tenant is removed.
func (e *deletion) delay(ctx context.Context) (again time.Duration, over bool, err error) {
	if e.t.Spec.DeletionDelay == nil {
		return 0, true, nil
	}
	until := e.t.DeletionTimestamp.Add(e.t.Spec.DeletionDelay.Duration)
	again = time.Until(until)
	if e.t.Annotations[tenant.TakeBackAnnotation] == "true" {
		if later, canceled, err := e.cancel(ctx, again > 0); canceled || err != nil {
			return later, false, err
		}
	}
	if again <= 0 {
		return 0, true, nil
	}
	return again, false, e.writeConditions(ctx, heldCondition(v1alpha1.ReasonDelayed, "nothing is deleted before "+
		until.UTC().Format(time.RFC3339)+": the annotation "+tenant.TakeBackAnnotation+`: "true" cancels the deletion`))
}

// hasBegun reports whether this deletion has already started, so that [deletion.mayStart] already
// includes it in the number of deletions.
func (e *deletion) hasBegun() bool {
	_, ok := e.begun[string(e.t.UID)]
	return ok || meta.IsStatusConditionTrue(e.t.Status.Conditions, v1alpha1.ConditionDeleting)
}

// mayStart reports whether another deletion may start now, see minStarts.
func (e *deletion) mayStart() bool {
	since := time.Now().Add(-startWindow)
	for uid, at := range e.begun {
		if at.Before(since) {
			delete(e.begun, uid)
		}
	}
	begun, total := e.Tenants.DeletionsSince(since)
	for uid := range e.begun {
		begun[uid] = true
	}
	return len(begun) < max(minStarts, (total+startShare-1)/startShare)
}

// deleteNamespaces deletes the namespaces and returns the time until the next check. It returns
// zero after the tenant has had no namespaces for the duration settleTime.
func (e *deletion) deleteNamespaces(ctx context.Context, namespaces []corev1.Namespace) (time.Duration, error) {
	if len(namespaces) == 0 {
		condition := meta.FindStatusCondition(e.t.Status.Conditions, v1alpha1.ConditionNamespacesGone)
		if condition == nil || condition.Status != metav1.ConditionTrue {
			return settleTime, e.writeConditions(
				ctx,
				deletingCondition(
					v1alpha1.ReasonSettling,
					"all namespaces are deleted: checking for namespaces that were created in the "+
						"meantime",
				),
				namespacesGoneCondition(metav1.ConditionTrue),
			)
		}
		return max(0, settleTime-time.Since(condition.LastTransitionTime.Time)), nil
	}
	var ending, stuck []string
	for i := range namespaces {
		ns := &namespaces[i]
		switch {
		case e.IsReserved(ns.Name):
			stuck = append(stuck, ns.Name+": this is a system namespace, run kubectl tenant release "+ns.Name)
			ending = append(ending, ns.Name)
			continue
		case ns.DeletionTimestamp == nil:
			continue
		}
		ending = append(ending, ns.Name)
		if time.Since(ns.DeletionTimestamp.Time) > stuckAfter {
			stuck = append(stuck, ns.Name+": "+stuckReason(ns))
		}
	}
	var err error
	for i, free := 0, maxInFlight-len(ending); i < len(namespaces) && free > 0; i++ {
		if ns := &namespaces[i]; ns.DeletionTimestamp == nil && !e.IsReserved(ns.Name) {
			free--
			err = errors.Join(err, e.deleteNamespace(ctx, ns))
		}
	}
	left := fmt.Sprintf("namespaces that are not deleted yet: %d", len(namespaces))
	c := deletingCondition(v1alpha1.ReasonNamespaces, left)
	again := pollEvery
	// All namespaces that are being deleted are stuck.
	if len(stuck) == len(ending) && len(stuck) >= min(maxInFlight, len(namespaces)) {
		again = pollStuckEvery
	}
	if len(stuck) > 0 {
		c = deletingCondition(v1alpha1.ReasonStuck,
			fmt.Sprintf("%s (%s)", left, strings.Join(stuck[:min(maxNamed, len(stuck))], "; ")))
	}
	return again, errors.Join(err, e.writeConditions(ctx, c, namespacesGoneCondition(metav1.ConditionFalse)))
}

// stuckReason returns the reasons from the conditions of a namespace that is not deleted yet.
func stuckReason(ns *corev1.Namespace) string {
	var messages []string
	for _, c := range ns.Status.Conditions {
		if c.Status == corev1.ConditionTrue && c.Message != "" {
			messages = append(messages, c.Message)
		}
	}
	if len(messages) == 0 {
		return "its deletion has taken more than ten minutes"
	}
	return strings.Join(messages, ", ")
}

func (e *deletion) deleteNamespace(ctx context.Context, ns *corev1.Namespace) error {
	if err := e.writes.Wait(ctx); err != nil {
		return err
	}
	return ignoreNotFound(e.Client.CoreV1().Namespaces().Delete(ctx, ns.Name,
		metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(ns.UID))}))
}

// ignoreNotFound returns err, or nil if err reports that the object does not exist.
func ignoreNotFound(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// reserve creates the RetiredTenant, which reserves the ID, or adds missing namespaces to it. If
// the RetiredTenant records a canceled deletion, reserve changes it so that it reserves the ID.
func (e *deletion) reserve(ctx context.Context, namespaces []corev1.Namespace) (*v1alpha1.RetiredTenant, error) {
	name := tenants.RetiredName(e.t.Name, string(e.t.UID))
	record, err := e.retired.Get(ctx, cache.ObjectName{Name: name})
	missing := apierrors.IsNotFound(err)
	if err != nil && !missing {
		return nil, err
	}
	if missing {
		record = &v1alpha1.RetiredTenant{
			TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion, Kind: v1alpha1.KindRetiredTenant},
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec:       v1alpha1.RetiredTenantSpec{ID: e.id.String(), UID: string(e.t.UID)},
		}
	}
	names := slices.Clone(record.Spec.Namespaces)
	for i := range namespaces {
		names = append(names, namespaces[i].Name)
	}
	slices.Sort(names)
	names = slices.Compact(names)
	names = names[:min(len(names), maxNamespaces)]
	if !missing && len(names) == len(record.Spec.Namespaces) && record.Spec.TakenBack == "" {
		return record, nil
	}
	if err := e.writes.Wait(ctx); err != nil {
		return nil, err
	}
	if missing {
		record.Spec.Namespaces = names
		return e.retired.Create(ctx, record)
	}
	// A RetiredTenant with takenBack does not reserve the ID. The deletion was not canceled after
	// all, so takenBack is removed.
	return e.retired.PatchRead(ctx, record, map[string]any{
		"spec": map[string]any{"namespaces": names, "takenBack": nil},
	})
}

// retire records that the deletion of the tenant is complete, and which bindings still name the
// tenant.
func (e *deletion) retire(ctx context.Context, record *v1alpha1.RetiredTenant) error {
	if record.Spec.RetiredAt != nil {
		return nil
	}
	left, err := e.References(ctx, e.id, record.Spec.Namespaces)
	if err != nil {
		return err
	}
	for i, text := range left {
		left[i] = strings.ToValidUTF8(text[:min(len(text), maxReferenceBytes)], "")
	}
	if more := len(left) - maxReferences; more > 0 {
		left = append(left[:maxReferences], fmt.Sprintf("and %d more", more))
	}
	spec := map[string]any{"retiredAt": metav1.Now()}
	if len(left) > 0 {
		spec["references"] = left
	}
	if err := e.writes.Wait(ctx); err != nil {
		return err
	}
	_, err = e.retired.PatchRead(ctx, record, map[string]any{"spec": spec})
	return err
}

func deletingCondition(reason, message string) metav1.Condition {
	return metav1.Condition{
		Type:    v1alpha1.ConditionDeleting,
		Status:  metav1.ConditionTrue,
		Reason:  reason,
		Message: message,
	}
}

func heldCondition(reason, message string) metav1.Condition {
	return metav1.Condition{
		Type:    v1alpha1.ConditionDeletionHeld,
		Status:  metav1.ConditionTrue,
		Reason:  reason,
		Message: message,
	}
}

func namespacesGoneCondition(is metav1.ConditionStatus) metav1.Condition {
	return metav1.Condition{Type: v1alpha1.ConditionNamespacesGone, Status: is, Reason: v1alpha1.ReasonNamespaces}
}

// writeConditions writes the conditions of the Tenant if they have changed. It also sets the
// condition Ready to False with the reason of the first condition. If the first condition is
// Deleting, it sets the condition DeletionHeld to False.
func (e *deletion) writeConditions(ctx context.Context, conditions ...metav1.Condition) error {
	status := e.t.Status
	status.Conditions = slices.Clone(status.Conditions)
	if conditions[0].Type == v1alpha1.ConditionDeleting &&
		meta.IsStatusConditionTrue(status.Conditions, v1alpha1.ConditionDeletionHeld) {
		conditions = append(conditions, metav1.Condition{
			Type:   v1alpha1.ConditionDeletionHeld,
			Status: metav1.ConditionFalse,
			Reason: v1alpha1.ReasonReleased,
		})
	}
	conditions = append(conditions, metav1.Condition{
		Type:    v1alpha1.ConditionReady,
		Status:  metav1.ConditionFalse,
		Reason:  conditions[0].Reason,
		Message: conditions[0].Message,
	})
	for _, c := range conditions {
		c.ObservedGeneration, c.Message = e.t.Generation, tenants.ConditionMessage(c.Message)
		meta.SetStatusCondition(&status.Conditions, c)
	}
	if equality.Semantic.DeepEqual(status.Conditions, e.t.Status.Conditions) {
		return nil
	}
	if err := e.writes.Wait(ctx); err != nil {
		return err
	}
	changed := *e.t
	changed.Status = status
	written, err := e.tenants.UpdateStatus(ctx, &changed)
	if err != nil {
		return ignoreNotFound(err)
	}
	e.recordEvent(conditions[0])
	e.t = written
	return nil
}
