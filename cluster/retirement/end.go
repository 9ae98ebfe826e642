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
	// lookEvery is the interval at which the deletion of namespaces is checked. lookAtStuck is the
	// interval if only stuck objects remain.
	lookEvery, lookAtStuck = 2 * time.Second, time.Minute
	// lookAtDefinition is the interval at which a deletion that waits for a CustomResourceDefinition
	// is checked.
	lookAtDefinition = 10 * time.Second
	// settles is the time for which the tenant must have no namespaces. A server that has not observed
	// the deletion of the Tenant may still admit a namespace.
	settles = 90 * time.Second
	// inFlight is the maximum number of namespaces of a tenant that are deleted at the same time.
	inFlight = 50
	// stuckAfter is the time after which the condition names a namespace that is still being deleted.
	stuckAfter = 10 * time.Minute
	// heldFor is the interval at which a deletion that exceeds the limit is checked.
	heldFor = time.Minute
	// beginLeast and beginShare (1/100 of all Tenants) limit the number of deletions that start within
	// an hour. The larger limit applies. An administrator can therefore stop a tool that deletes all
	// Tenants by mistake.
	beginLeast, beginShare = 10, 100
	beginWithin            = time.Hour
	// named is the maximum number of namespaces in a condition. references and remembered are the
	// maximum numbers of references and namespaces in a RetiredTenant.
	named, references, remembered = 5, 20, 10_000
	// referenceBytes is the maximum size of a reference.
	referenceBytes = 500
)

// end does one pass of the deletion of a Tenant.
type end struct {
	*Engine
	id tenant.ID
	t  *v1alpha1.Tenant
}

// proceed does the next steps. Each step checks whether it is already done.
func (e *end) proceed(ctx context.Context) (time.Duration, error) {
	switch e.t.Spec.DeletionPolicy {
	case v1alpha1.TenantDeletionDelete, v1alpha1.TenantDeletionOrphan:
	default: // it was deleted without the admission plugin
		return 0, e.say(ctx,
			held(v1alpha1.ReasonProtected, "spec.deletionPolicy is Protect: set it to Delete or Orphan to continue the "+
				"deletion"))
	}
	if !e.hasBegun() {
		if again, over, err := e.delay(ctx); !over || err != nil {
			return again, err
		}
	}
	if !e.hasBegun() && !e.mayBegin() {
		return heldFor, e.say(ctx,
			held(v1alpha1.ReasonTooMany, "the limit of tenant deletions in an hour is reached: this deletion starts "+
				"automatically later"))
	}
	if !e.hasBegun() {
		e.begun[string(e.t.UID)] = time.Now()
	}
	spaces, err := e.Client.CoreV1().Namespaces().List(ctx,
		metav1.ListOptions{LabelSelector: tenant.Label + "=" + e.id.String()})
	if err != nil {
		return 0, err
	}
	if missing := e.Undefined(v1alpha1.ResourceRetiredTenants); missing != "" {
		// Nothing is deleted before the name is reserved.
		return lookAtDefinition,
			e.say(ctx, doing(v1alpha1.ReasonDefinition, "the tenant's name cannot be reserved: "+missing))
	}
	// This step is the first, so that the ID is reserved even if the Tenant is removed.
	kept, err := e.keep(ctx, spaces.Items)
	if err != nil {
		return 0, err
	}
	if e.t.Spec.DeletionPolicy == v1alpha1.TenantDeletionDelete {
		if again, err := e.namespaces(ctx, spaces.Items); again > 0 || err != nil {
			return again, err
		}
	}
	others := slices.DeleteFunc(slices.Clone(e.t.Finalizers), func(f string) bool { return f == tenant.Finalizer })
	if again, err := e.deleteOthers(ctx, others); again > 0 || err != nil {
		return again, err
	}
	// Every server must observe the RetiredTenant before the Tenant is removed. The tenant is retired
	// only after the Tenant has no other finalizers.
	if again := settles - time.Since(kept.GetCreationTimestamp().Time); again > 0 {
		return again, nil
	}
	if len(others) > 0 {
		return settles, nil
	}
	if err := e.retire(ctx, kept); err != nil {
		return 0, err
	}
	return 0, e.release(ctx, e.t)
}

// delay reports whether spec.deletionDelay is over. If not, it returns the time until the next
// check. If the annotation cancels the deletion, delay removes only the finalizer. The bindings
// that the Tenant created are then deleted, but its ID is not retired. See [end.takeBack].
func (e *end) delay(ctx context.Context) (again time.Duration, over bool, err error) {
	if e.t.Spec.DeletionDelay == nil {
		return 0, true, nil
	}
	until := e.t.DeletionTimestamp.Add(e.t.Spec.DeletionDelay.Duration)
	again = time.Until(until)
	if e.t.Annotations[tenant.TakeBackAnnotation] == "true" {
		if later, takenBack, err := e.takeBack(ctx, again > 0); takenBack || err != nil {
			return later, false, err
		}
	}
	if again <= 0 {
		return 0, true, nil
	}
	return again, false, e.say(ctx, held(v1alpha1.ReasonDelayed, "nothing is deleted before "+
		until.UTC().Format(time.RFC3339)+": the annotation "+tenant.TakeBackAnnotation+`: "true" cancels the deletion`))
}

// hasBegun reports whether this deletion has already started. The limit of deletions then includes
// it.
func (e *end) hasBegun() bool {
	_, is := e.begun[string(e.t.UID)]
	return is || meta.IsStatusConditionTrue(e.t.Status.Conditions, v1alpha1.ConditionDeleting)
}

// mayBegin reports whether the limit allows another deletion to start.
func (e *end) mayBegin() bool {
	since := time.Now().Add(-beginWithin)
	for uid, at := range e.begun {
		if at.Before(since) {
			delete(e.begun, uid)
		}
	}
	begun, total := e.Tenants.Ended(since)
	for uid := range e.begun {
		begun[uid] = true
	}
	return len(begun) < max(beginLeast, (total+beginShare-1)/beginShare)
}

// namespaces deletes the namespaces and returns the time until the next check. It returns zero
// after the tenant has had no namespaces for the duration settles.
func (e *end) namespaces(ctx context.Context, spaces []corev1.Namespace) (time.Duration, error) {
	if len(spaces) == 0 {
		gone := meta.FindStatusCondition(e.t.Status.Conditions, v1alpha1.ConditionNamespacesGone)
		if gone == nil || gone.Status != metav1.ConditionTrue {
			return settles, e.say(ctx,
				doing(v1alpha1.ReasonSettling, "all namespaces are deleted: checking for namespaces that were created in the "+
					"meantime"),
				namespacesGone(metav1.ConditionTrue))
		}
		return max(0, settles-time.Since(gone.LastTransitionTime.Time)), nil
	}
	var ending, stuck []string
	for i := range spaces {
		ns := &spaces[i]
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
			stuck = append(stuck, ns.Name+": "+why(ns))
		}
	}
	var err error
	for i, free := 0, inFlight-len(ending); i < len(spaces) && free > 0; i++ {
		if ns := &spaces[i]; ns.DeletionTimestamp == nil && !e.IsReserved(ns.Name) {
			free--
			err = errors.Join(err, e.delete(ctx, ns))
		}
	}
	left := fmt.Sprintf("namespaces that are not deleted yet: %d", len(spaces))
	c, again := doing(v1alpha1.ReasonNamespaces, left), lookEvery
	if len(stuck) == len(ending) && len(stuck) >= min(inFlight, len(spaces)) { // no other deletion makes progress
		again = lookAtStuck
	}
	if len(stuck) > 0 {
		c = doing(v1alpha1.ReasonStuck,
			fmt.Sprintf("%s (%s)", left, strings.Join(stuck[:min(named, len(stuck))], "; ")))
	}
	return again, errors.Join(err, e.say(ctx, c, namespacesGone(metav1.ConditionFalse)))
}

// why returns the reason why a namespace is not deleted yet.
func why(ns *corev1.Namespace) string {
	var said []string
	for _, c := range ns.Status.Conditions {
		if c.Status == corev1.ConditionTrue && c.Message != "" {
			said = append(said, c.Message)
		}
	}
	if len(said) == 0 {
		return "its deletion has taken more than ten minutes"
	}
	return strings.Join(said, ", ")
}

func (e *end) delete(ctx context.Context, ns *corev1.Namespace) error {
	if err := e.writes.Wait(ctx); err != nil {
		return err
	}
	return gone(e.Client.CoreV1().Namespaces().Delete(ctx, ns.Name,
		metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(ns.UID))}))
}

// gone returns err, or nil if err reports that the object does not exist.
func gone(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// keep creates the RetiredTenant, or adds missing namespaces to it.
func (e *end) keep(ctx context.Context, spaces []corev1.Namespace) (*v1alpha1.RetiredTenant, error) {
	name := tenants.RetiredName(e.t.Name, string(e.t.UID))
	kept, err := e.retired.Get(ctx, cache.ObjectName{Name: name})
	missing := apierrors.IsNotFound(err)
	if err != nil && !missing {
		return nil, err
	}
	if missing {
		kept = &v1alpha1.RetiredTenant{
			TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion, Kind: v1alpha1.KindRetiredTenant},
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec:       v1alpha1.RetiredTenantSpec{ID: e.id.String(), UID: string(e.t.UID)},
		}
	}
	names := slices.Clone(kept.Spec.Namespaces)
	for i := range spaces {
		names = append(names, spaces[i].Name)
	}
	slices.Sort(names)
	names = slices.Compact(names)
	names = names[:min(len(names), remembered)]
	if !missing && len(names) == len(kept.Spec.Namespaces) && kept.Spec.TakenBack == "" {
		return kept, nil
	}
	if err := e.writes.Wait(ctx); err != nil {
		return nil, err
	}
	if missing {
		kept.Spec.Namespaces = names
		return e.retired.Create(ctx, kept)
	}
	// A record of a canceled deletion does not reserve the ID. This deletion was continued after all.
	return e.retired.PatchRead(ctx, kept, map[string]any{
		"spec": map[string]any{"namespaces": names, "takenBack": nil},
	})
}

// retire records that the deletion is complete, and which bindings still name the tenant.
func (e *end) retire(ctx context.Context, kept *v1alpha1.RetiredTenant) error {
	if kept.Spec.RetiredAt != nil {
		return nil
	}
	left, err := e.References(ctx, e.id, kept.Spec.Namespaces)
	if err != nil {
		return err
	}
	for i, text := range left {
		left[i] = strings.ToValidUTF8(text[:min(len(text), referenceBytes)], "")
	}
	if more := len(left) - references; more > 0 {
		left = append(left[:references], fmt.Sprintf("and %d more", more))
	}
	spec := map[string]any{"retiredAt": metav1.Now()}
	if len(left) > 0 {
		spec["references"] = left
	}
	if err := e.writes.Wait(ctx); err != nil {
		return err
	}
	_, err = e.retired.PatchRead(ctx, kept, map[string]any{"spec": spec})
	return err
}

func doing(reason, message string) metav1.Condition {
	return metav1.Condition{
		Type:    v1alpha1.ConditionDeleting,
		Status:  metav1.ConditionTrue,
		Reason:  reason,
		Message: message,
	}
}

func held(reason, message string) metav1.Condition {
	return metav1.Condition{
		Type:    v1alpha1.ConditionDeletionHeld,
		Status:  metav1.ConditionTrue,
		Reason:  reason,
		Message: message,
	}
}

func namespacesGone(is metav1.ConditionStatus) metav1.Condition {
	return metav1.Condition{Type: v1alpha1.ConditionNamespacesGone, Status: is, Reason: v1alpha1.ReasonNamespaces}
}

// say writes conditions if they have changed. If the deletion continues, it also resets
// DeletionHeld.
func (e *end) say(ctx context.Context, conditions ...metav1.Condition) error {
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
		return gone(err)
	}
	e.tell(conditions[0])
	e.t = written
	return nil
}
