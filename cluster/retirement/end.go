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
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kubetenant/kubetenant/cluster/tenants"
	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

const (
	// lookEvery is how often it is looked how far namespaces are, and lookAtStuck how often where
	// nothing but some that do not end goes on.
	lookEvery, lookAtStuck = 2 * time.Second, time.Minute
	// lookAtDefinition is the interval at which a deletion that waits for a
	// CustomResourceDefinition is checked.
	lookAtDefinition = 10 * time.Second
	// settles is how long no namespace must have been there: a server that has not heard of
	// the end yet may admit one.
	settles = 90 * time.Second
	// inFlight is how many namespaces of a tenant end at a time.
	inFlight = 50
	// stuckAfter is after how long a namespace that ends is named.
	stuckAfter = 10 * time.Minute
	// heldFor is after how long it is looked again whether a deletion may begin.
	heldFor = time.Minute
	// beginLeast and beginShare (a hundredth) are how many deletions begin in an hour, of which the
	// larger counts: a tool that takes everything for gone is noticed before it is.
	beginLeast, beginShare = 10, 100
	beginWithin            = time.Hour
	// named is how many namespaces a condition names, references how many references are kept, and
	// remembered how many namespaces.
	named, references, remembered = 5, 20, 10_000
	// referenceBytes is how much of one is kept.
	referenceBytes = 500
)

// end is one look at a Tenant that is being deleted.
type end struct {
	*Engine
	id tenant.ID
	t  *v1alpha1.Tenant
	u  *unstructured.Unstructured // as it is stored
}

// proceed does the next steps. Each finds by itself whether it is done already.
func (e *end) proceed(ctx context.Context) (time.Duration, error) {
	switch e.t.Spec.DeletionPolicy {
	case v1alpha1.TenantDeletionDelete, v1alpha1.TenantDeletionOrphan:
	default: // it was deleted where nobody refused it
		return 0, e.say(ctx,
			held(v1alpha1.ReasonProtected, "spec.deletionPolicy is Protect: nothing is deleted until it is Delete or Orphan"))
	}
	if !e.hasBegun() {
		if again, over, err := e.delay(ctx); !over || err != nil {
			return again, err
		}
	}
	if !e.hasBegun() && !e.mayBegin() {
		return heldFor, e.say(ctx,
			held(v1alpha1.ReasonTooMany, "more tenants are being deleted than may be in an hour: it goes on by itself"))
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
	// First, so that the name is nobody's whatever becomes of the Tenant.
	kept, err := e.keep(ctx, spaces.Items)
	if err != nil {
		return 0, err
	}
	if e.t.Spec.DeletionPolicy == v1alpha1.TenantDeletionDelete {
		if again, err := e.namespaces(ctx, spaces.Items); again > 0 || err != nil {
			return again, err
		}
	}
	now := doing(v1alpha1.ReasonRetiring,
		"its bindings and quotas go, and when everybody knows that it ends its name is nobody's")
	others := slices.DeleteFunc(slices.Clone(e.u.GetFinalizers()), func(f string) bool { return f == tenant.Finalizer })
	if len(others) > 0 {
		now = doing(v1alpha1.ReasonStuck, "somebody else holds it by finalizers: "+strings.Join(others, ", "))
	}
	if err := e.say(ctx, now); err != nil {
		return 0, err
	}
	if err := errors.Join(e.bindings(ctx), e.quotas(ctx), e.members(ctx)); err != nil {
		return 0, err
	}
	// Every server must know of the RetiredTenant before the Tenant has gone, and nobody else hold it
	// when the rest of its name begins.
	if again := settles - time.Since(kept.GetCreationTimestamp().Time); again > 0 {
		return again, nil
	}
	if len(others) > 0 {
		return settles, nil
	}
	if err := e.retire(ctx, kept); err != nil {
		return 0, err
	}
	return 0, e.release(ctx, e.u)
}

// delay waits until it may begin, and returns after how long it is looked at again; or takes the
// deletion back: the Tenant goes, and with it the bindings that it gave, but nothing is retired.
func (e *end) delay(ctx context.Context) (again time.Duration, over bool, err error) {
	if e.t.Spec.DeletionDelay == nil {
		return 0, true, nil
	}
	until := e.t.DeletionTimestamp.Add(e.t.Spec.DeletionDelay.Duration)
	again = time.Until(until)
	switch {
	case again <= 0:
		return 0, true, nil
	case e.t.Annotations[tenant.TakeBackAnnotation] == "true":
		if err := e.release(ctx, e.u); err != nil {
			return 0, false, err
		}
		e.events.Say(e.t, corev1.EventTypeNormal, &metav1.Condition{
			Reason:  v1alpha1.ReasonTakenBack,
			Message: "the deletion is taken back: the Tenant goes, with the bindings that it gave, and nothing else",
		})
		return 0, false, nil
	}
	return again, false, e.say(ctx, held(v1alpha1.ReasonDelayed, "nothing is deleted before "+
		until.UTC().Format(time.RFC3339)+": the annotation "+tenant.TakeBackAnnotation+`: "true" takes it back`))
}

// hasBegun reports whether the deletion is counted already.
func (e *end) hasBegun() bool {
	_, is := e.begun[string(e.t.UID)]
	return is || meta.IsStatusConditionTrue(e.t.Status.Conditions, v1alpha1.ConditionDeleting)
}

// mayBegin reports whether one deletion more may begin.
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

// namespaces deletes them, and returns after how long it is looked again; zero when there have
// been none for long enough.
func (e *end) namespaces(ctx context.Context, spaces []corev1.Namespace) (time.Duration, error) {
	if len(spaces) == 0 {
		gone := meta.FindStatusCondition(e.t.Status.Conditions, v1alpha1.ConditionNamespacesGone)
		if gone == nil || gone.Status != metav1.ConditionTrue {
			return settles, e.say(ctx,
				doing(v1alpha1.ReasonSettling, "all namespaces have gone; it is looked again for some that came meanwhile"),
				namespacesGone(metav1.ConditionTrue))
		}
		return max(0, settles-time.Since(gone.LastTransitionTime.Time)), nil
	}
	var ending, stuck []string
	for i := range spaces {
		ns := &spaces[i]
		switch {
		case e.IsReserved(ns.Name):
			stuck = append(stuck, ns.Name+": it is a system namespace, run kubectl tenant release "+ns.Name)
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
	c, again := doing(v1alpha1.ReasonNamespaces, fmt.Sprintf("%d namespaces are left", len(spaces))), lookEvery
	if len(stuck) == len(ending) && len(stuck) >= min(inFlight, len(spaces)) { // nothing else goes on
		again = lookAtStuck
	}
	if len(stuck) > 0 {
		c = doing(v1alpha1.ReasonStuck,
			fmt.Sprintf("%d namespaces are left. %s", len(spaces), strings.Join(stuck[:min(named, len(stuck))], "; ")))
	}
	return again, errors.Join(err, e.say(ctx, c, namespacesGone(metav1.ConditionFalse)))
}

// why says what holds a namespace that ends.
func why(ns *corev1.Namespace) string {
	var said []string
	for _, c := range ns.Status.Conditions {
		if c.Status == corev1.ConditionTrue && c.Message != "" {
			said = append(said, c.Message)
		}
	}
	if len(said) == 0 {
		return "it has been ending for more than ten minutes"
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

// gone takes what is not there for deleted.
func gone(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// bindings deletes those that were made for the tenant in the whole cluster.
func (e *end) bindings(ctx context.Context) error {
	all, err := e.Client.RbacV1().ClusterRoleBindings().List(ctx,
		metav1.ListOptions{LabelSelector: tenant.OfTenantLabel + "=" + e.id.String()})
	if err != nil {
		return err
	}
	for i := range all.Items {
		if err := e.writes.Wait(ctx); err != nil {
			return err
		}
		b := &all.Items[i]
		options := metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(b.UID))}
		if err := gone(e.Client.RbacV1().ClusterRoleBindings().Delete(ctx, b.Name, options)); err != nil {
			return err
		}
	}
	return nil
}

// members deletes the TenantMembers: who is one of a tenant is none of whoever gets its name.
func (e *end) members(ctx context.Context) error {
	all := e.Dynamic.Resource(v1alpha1.SchemeGroupVersion.WithResource(v1alpha1.ResourceTenantMembers))
	m, err := all.Get(ctx, e.id.ObjectName(), metav1.GetOptions{})
	if err != nil {
		return gone(err)
	}
	if err := e.writes.Wait(ctx); err != nil {
		return err
	}
	options := metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(m.GetUID()))}
	return gone(all.Delete(ctx, m.GetName(), options))
}

func (e *end) quotas(ctx context.Context) error {
	quotas := e.Dynamic.Resource(v1alpha1.SchemeGroupVersion.WithResource(v1alpha1.ResourceTenantQuotas))
	all, err := quotas.List(ctx, metav1.ListOptions{FieldSelector: tenants.QuotasOf(e.id)})
	if err != nil {
		return gone(err) // where the server knows none
	}
	for i := range all.Items {
		q := &all.Items[i]
		if of, _, _ := unstructured.NestedString(q.Object, "spec", "tenant"); of != e.id.String() {
			continue
		}
		if err := e.writes.Wait(ctx); err != nil {
			return err
		}
		options := metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(q.GetUID()))}
		if err := gone(quotas.Delete(ctx, q.GetName(), options)); err != nil {
			return err
		}
	}
	return nil
}

// keep makes the RetiredTenant, or adds namespaces to it that it does not name yet.
func (e *end) keep(ctx context.Context, spaces []corev1.Namespace) (*unstructured.Unstructured, error) {
	retired := e.Dynamic.Resource(v1alpha1.SchemeGroupVersion.WithResource(v1alpha1.ResourceRetiredTenants))
	name := tenants.RetiredName(e.t.Name, string(e.t.UID))
	is, err := retired.Get(ctx, name, metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return nil, err
	}
	missing := err != nil
	if missing {
		is = &unstructured.Unstructured{
			Object: map[string]any{"spec": map[string]any{"id": e.id.String(), "uid": string(e.t.UID)}},
		}
		is.SetGroupVersionKind(resource().GroupVersion().WithKind(v1alpha1.KindRetiredTenant))
		is.SetName(name)
	}
	_, known := tenants.RetiredOf(is)
	names := slices.Clone(known.Namespaces)
	for i := range spaces {
		names = append(names, spaces[i].Name)
	}
	slices.Sort(names)
	names = slices.Compact(names)
	names = names[:min(len(names), remembered)]
	if !missing && len(names) == len(known.Namespaces) {
		return is, nil
	}
	if err := unstructured.SetNestedStringSlice(is.Object, names, "spec", "namespaces"); err != nil {
		return nil, err
	}
	if err := e.writes.Wait(ctx); err != nil {
		return nil, err
	}
	if missing {
		return retired.Create(ctx, is, metav1.CreateOptions{FieldManager: v1alpha1.FieldManager})
	}
	return retired.Update(ctx, is, metav1.UpdateOptions{FieldManager: v1alpha1.FieldManager})
}

// retire says that the tenant has ended, and what names it still.
func (e *end) retire(ctx context.Context, kept *unstructured.Unstructured) error {
	_, known := tenants.RetiredOf(kept)
	if !known.At.IsZero() {
		return nil
	}
	left, err := e.References(ctx, e.id, known.Namespaces)
	if err != nil {
		return err
	}
	for i, text := range left {
		left[i] = strings.ToValidUTF8(text[:min(len(text), referenceBytes)], "")
	}
	if more := len(left) - references; more > 0 {
		left = append(left[:references], fmt.Sprintf("and %d more", more))
	}
	if len(left) > 0 {
		if err := unstructured.SetNestedStringSlice(kept.Object, left, "spec", "references"); err != nil {
			return err
		}
	}
	now := time.Now().UTC().Format(time.RFC3339)
	if err := unstructured.SetNestedField(kept.Object, now, "spec", "retiredAt"); err != nil {
		return err
	}
	if err := e.writes.Wait(ctx); err != nil {
		return err
	}
	_, err = e.Dynamic.Resource(v1alpha1.SchemeGroupVersion.WithResource(v1alpha1.ResourceRetiredTenants)).
		Update(ctx, kept,
			metav1.UpdateOptions{FieldManager: v1alpha1.FieldManager})
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

// say writes conditions where they are others than before. What is being done is held no more.
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
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&status)
	if err != nil {
		return err
	}
	changed := e.u.DeepCopy()
	changed.Object["status"] = content
	if err := e.writes.Wait(ctx); err != nil {
		return err
	}
	u, err := e.Dynamic.Resource(resource()).UpdateStatus(ctx, changed,
		metav1.UpdateOptions{FieldManager: v1alpha1.FieldManager})
	if err != nil {
		return gone(err)
	}
	e.tell(conditions[0])
	e.u, e.t.Status = u, status
	return nil
}
