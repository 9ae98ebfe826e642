// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

// Package projects synchronizes the cluster with the domains, projects and role assignments in an
// OpenStack Keystone. A domain corresponds to a tenant, and a project to a namespace of the
// tenant. A role in a project corresponds to a RoleBinding in the namespace. The package writes
// only to the cluster, and never to Keystone.
//
// If a response from Keystone may be incomplete, nothing is removed. A project that is missing in
// Keystone retains its namespace and its rights for 24 hours. See docs/tasks/keystone.md.
package projects

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/klog/v2"

	"github.com/kubetenant/kubetenant/authn/keystone"
	"github.com/kubetenant/kubetenant/cluster/tenants"
	"github.com/kubetenant/kubetenant/internal/typed"
	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

const (
	// writesPerSecond is the maximum rate of writes to the cluster.
	writesPerSecond = 20
	// retryAtFirst is the delay after the first failed read. The delay doubles up to the interval.
	retryAtFirst = 10 * time.Second
	// reportedFailures is the number of successive failed reads after which the Tenants report the
	// failure.
	reportedFailures = 3
	// reapplyAfter is the delay before the result of a read is planned and applied again.
	reapplyAfter = time.Second
	// maxConflicts is the maximum number of successive plans for a tenant that end with a
	// conflict. After that, the conflict is reported, and the changes are retried only after the
	// next read.
	maxConflicts = 30
)

// Reader reads Keystone. [keystone.Directory] implements it.
type Reader interface {
	// Read returns all domains, projects, roles and assignments in Keystone. It fails if the
	// result may be incomplete.
	Read(ctx context.Context) (*keystone.Contents, error)
}

// Options configure a [Syncer]. All fields are required.
type Options struct {
	Settings
	Reader Reader
	// Client and Dynamic write as [tenant.ManagerUser].
	Client  kubernetes.Interface
	Dynamic dynamic.Interface
	// Tenants reads the Tenants. It must be running.
	Tenants *tenants.Store
	// Namespaces is the informer of all Namespaces.
	Namespaces cache.SharedIndexInformer
	// OwnerOf returns the tenant that owns a namespace.
	OwnerOf func(*corev1.Namespace) tenant.ID
	Metrics *Metrics
}

// Syncer synchronizes the cluster with one Keystone. Only one Syncer of a cluster may run at a
// time.
type Syncer struct {
	Options
	tenants typed.Client[v1alpha1.Tenant, *v1alpha1.Tenant]
	lister  corelisters.NamespaceLister
	writes  flowcontrol.RateLimiter
	now     func() time.Time
	// missing has the number of successive reads in which a project or the roles of a tenant were
	// missing. since has the time of the first of these reads. For the keys, see [Plans].
	missing map[string]int
	since   map[string]time.Time
	failed  int // successive failed reads
	// conflicts has the number of successive plans with a conflict, keyed by tenant ID.
	conflicts map[tenant.ID]int
}

var errSync = errors.New("the caches of namespaces and Tenants did not sync")

// New returns a syncer that does nothing until [Syncer.Run] is called.
func New(o Options) *Syncer {
	return &Syncer{
		Options:   o,
		tenants:   typed.NewClient[v1alpha1.Tenant](o.Dynamic, tenantsResource()),
		lister:    corelisters.NewNamespaceLister(o.Namespaces.GetIndexer()),
		writes:    flowcontrol.NewTokenBucketRateLimiter(writesPerSecond, writesPerSecond),
		now:       time.Now,
		missing:   map[string]int{},
		conflicts: map[tenant.ID]int{},
	}
}

func tenantsResource() schema.GroupVersionResource {
	return v1alpha1.SchemeGroupVersion.WithResource(v1alpha1.ResourceTenants)
}

// Run synchronizes the cluster with Keystone until ctx ends. It must be called only once. It
// fails if the caches do not sync.
func (s *Syncer) Run(ctx context.Context) error {
	if !cache.WaitForCacheSync(ctx.Done(), s.Namespaces.HasSynced, s.Tenants.HasSynced) {
		return errSync
	}
	s.Metrics.Follow(s.Interval, s.now())
	for ctx.Err() == nil {
		after := wait.Jitter(s.sync(ctx), 0.1)
		select {
		case <-ctx.Done():
		case <-time.After(after):
		}
	}
	return nil
}

// sync reads Keystone once and changes the cluster. It returns the delay before the next read.
func (s *Syncer) sync(ctx context.Context) time.Duration {
	contents, err := s.Reader.Read(ctx)
	if ctx.Err() != nil {
		return 0
	}
	if err != nil {
		return s.handleReadError(ctx, err)
	}
	s.failed = 0
	s.Metrics.countRead(readSuccess, s.now())
	until := s.now().Add(s.Interval)
	s.recordMissing(s.plans(contents), s.now())
	for !s.apply(ctx, s.plans(contents)) && ctx.Err() == nil && s.now().Before(until) {
		select { // wait until the caches contain the writes
		case <-ctx.Done():
		case <-time.After(reapplyAfter):
		}
	}
	return until.Sub(s.now())
}

// handleReadError reports that Keystone could not be read. It returns the delay before the next
// attempt.
func (s *Syncer) handleReadError(ctx context.Context, err error) time.Duration {
	result := readUnavailable
	remedy := Remedy(err)
	if errors.Is(err, keystone.ErrIncomplete) {
		result = readIncomplete
	}
	s.failed++
	s.Metrics.countRead(result, s.now())
	klog.FromContext(ctx).Error(err, "Failed to read the projects of Keystone, nothing was changed", "remedy", remedy)
	if s.failed >= reportedFailures {
		s.reportReadError(ctx, remedy)
	}
	after := retryAtFirst
	for i := 1; i < s.failed && after < s.Interval; i++ {
		after *= 2
	}
	return min(after, s.Interval)
}

// reportReadError reports the failure in the condition of each Tenant with
// [tenant.KeystoneAnnotation].
func (s *Syncer) reportReadError(ctx context.Context, remedy string) {
	s.Metrics.tenants.Reset()
	for _, id := range s.Tenants.IDs() {
		t, known := s.Tenants.Tenant(id)
		if !known || t == nil || t.Annotations[tenant.KeystoneAnnotation] == "" {
			continue
		}
		s.Metrics.tenants.WithLabelValues(v1alpha1.ReasonKeystoneNotRead).Inc()
		s.report(ctx, t, metav1.Condition{
			Type:               v1alpha1.ConditionKeystone,
			Status:             metav1.ConditionFalse,
			Reason:             v1alpha1.ReasonKeystoneNotRead,
			Message:            "Keystone cannot be read, so nothing changes. See the log of the leader, and " + remedy,
			ObservedGeneration: t.Generation,
		})
	}
}

// plans returns the plans for the result of a read and the current state of the cluster.
func (s *Syncer) plans(contents *keystone.Contents) []Plan {
	all, err := s.lister.List(labels.Everything())
	if err != nil {
		return nil
	}
	state := &State{
		Tenants:    s.Tenants.IDs(),
		Tenant:     s.Tenants.Tenant,
		Namespaces: all,
		OwnerOf:    s.OwnerOf,
	}
	// Unlike the time in an annotation, this duration is not affected if the machine's clock is
	// changed.
	confirmed := func(key string) bool {
		return s.missing[key] >= missingReads && s.now().Sub(s.since[key]) >= missingWatched
	}
	return Plans(&s.Settings, contents, state, confirmed, s.now())
}

// recordMissing updates missing and since after a read.
func (s *Syncer) recordMissing(plans []Plan, now time.Time) {
	missing, since := map[string]int{}, map[string]time.Time{}
	for i := range plans {
		for _, key := range plans[i].missing {
			missing[key] = s.missing[key] + 1
			if since[key] = now; missing[key] > 1 {
				since[key] = s.since[key]
			}
		}
	}
	s.missing, s.since = missing, since
}

// apply makes the changes of all plans. settled is true if no further plans are needed before the
// next read.
func (s *Syncer) apply(ctx context.Context, plans []Plan) (settled bool) {
	settled = true
	reasons := map[string]float64{}
	for i := range plans {
		plan := &plans[i]
		more, err := s.applyPlan(ctx, plan)
		if ctx.Err() != nil {
			return true
		}
		condition := plan.Condition
		if !apierrors.IsConflict(err) {
			delete(s.conflicts, plan.Tenant)
		}
		switch {
		case apierrors.IsConflict(err) && s.conflicts[plan.Tenant] < maxConflicts: // the caches are not current
			s.conflicts[plan.Tenant]++
			settled = false
			continue
		case err != nil:
			condition.Status, condition.Reason = metav1.ConditionFalse, v1alpha1.ReasonKeystoneFailed
			condition.Message = tenants.ConditionMessage(err.Error())
			settled = settled && !more
		case len(plan.Changes) > 0:
			settled = false // another plan makes the remaining changes and reports the condition
			continue
		}
		if plan.Object == nil {
			continue
		}
		if condition.Reason != "" {
			reasons[condition.Reason]++
		}
		settled = s.report(ctx, plan.Object, condition) && settled
	}
	if settled {
		s.Metrics.tenants.Reset()
		for reason, n := range reasons {
			s.Metrics.tenants.WithLabelValues(reason).Set(n)
		}
	}
	return settled
}

// applyPlan makes the changes of a plan. more is true if it stopped after maxWrites changes. If a
// namespace cannot be created, it creates no further namespaces, because the tenant may have
// reached its quota. After a conflict, the plan may be outdated. applyPlan then updates and
// deletes only existing namespaces, and the next plan makes the remaining changes.
func (s *Syncer) applyPlan(ctx context.Context, plan *Plan) (more bool, failed error) {
	var conflict error
	full := false
	written := 0
	for i := range plan.Changes {
		c := &plan.Changes[i]
		if full && c.Action == CreateNamespace ||
			conflict != nil && c.Action != UpdateNamespace && c.Action != DeleteNamespace {
			continue
		}
		if written == maxWrites {
			return true, cmp.Or(conflict, failed)
		}
		if err := s.writes.Wait(ctx); err != nil {
			return false, err
		}
		err := s.write(ctx, plan, c)
		result := "success"
		if err != nil {
			result = "error"
		}
		s.Metrics.writes.WithLabelValues(result).Inc()
		switch {
		case apierrors.IsConflict(err):
			conflict = err
		case err != nil:
			klog.FromContext(ctx).Error(err, "Failed to follow Keystone, will retry",
				"tenant", plan.Tenant, "action", c.Action, "name", c.Name)
			failed = errors.Join(failed, fmt.Errorf("%s %s: %w", c.Action, c.Name, err))
			full = full || c.Action == CreateNamespace
		default:
			written++
			klog.FromContext(ctx).Info("Followed Keystone",
				"tenant", plan.Tenant, "action", c.Action, "name", c.Name, "why", c.Why)
		}
	}
	return false, cmp.Or(conflict, failed)
}

// report writes the condition of a Tenant if it has changed. If c is empty, it removes the
// condition. current is false if the Tenant has changed since it was read.
func (s *Syncer) report(ctx context.Context, t *v1alpha1.Tenant, c metav1.Condition) (current bool) {
	status := t.Status.DeepCopy()
	was := meta.FindStatusCondition(t.Status.Conditions, v1alpha1.ConditionKeystone)
	changed := false
	if c.Type == "" {
		changed = meta.RemoveStatusCondition(&status.Conditions, v1alpha1.ConditionKeystone)
	} else {
		changed = meta.SetStatusCondition(&status.Conditions, c)
	}
	if !changed {
		return true
	}
	if c.Type != "" && (was == nil || was.Reason != c.Reason) && c.Status != metav1.ConditionTrue {
		klog.FromContext(ctx).Info("A tenant does not follow Keystone", "tenant", t.Spec.ID, "reason", c.Reason,
			"message", c.Message)
	}
	if err := s.writes.Wait(ctx); err != nil {
		return true
	}
	_, err := s.tenants.PatchRead(ctx, t, map[string]any{"status": map[string]any{"conditions": status.Conditions}},
		"status")
	if err != nil && ctx.Err() == nil && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
		klog.FromContext(ctx).Error(err, "Failed to report the state of a tenant's projects", "tenant", t.Spec.ID)
	}
	return !apierrors.IsConflict(err)
}
