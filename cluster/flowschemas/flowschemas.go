// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

// Package flowschemas maintains FlowSchemas of API Priority and Fairness for a kube-apiserver that
// does not know tenants. If a Tenant has spec.fairUse.level, all requests from this tenant share
// one flow. Requests from all other callers, except system components, share one flow for each
// namespace.
//
// The package writes only objects with the label [tenant.ManagedLabel] and the value [Source]. It
// creates the PriorityLevelConfiguration [Level], but never changes it.
package flowschemas

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	listers "k8s.io/client-go/listers/flowcontrol/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/klog/v2"

	"github.com/kubetenant/kubetenant/cluster/tenants"
	"github.com/kubetenant/kubetenant/tenant"
)

const (
	// settleFor is the delay after an event, so that several events cause one write.
	settleFor = time.Second
	// checkEvery is the interval at which the FlowSchemas are checked without an event.
	checkEvery = 10 * time.Second
	// servedEvery is the interval at which the syncer checks again whether the server serves the
	// API group, if the server does not.
	servedEvery = 5 * time.Minute
	// writesPerSecond is the maximum rate of writes.
	writesPerSecond = 5
	// maxWrites is the maximum number of writes in one pass. It is small because all writes of a
	// pass use the namespaces that existed when the pass began.
	maxWrites = 10
)

// Options configure a [Syncer]. All fields are required.
type Options struct {
	// Client reads and writes FlowSchemas and PriorityLevelConfigurations.
	Client kubernetes.Interface
	// Tenants reads the Tenants. It must be running.
	Tenants *tenants.Store
	// Namespaces is the informer of all Namespaces.
	Namespaces cache.SharedIndexInformer
	// Owned returns the names of the namespaces whose label [tenant.Label] has the given value.
	Owned func(label string) ([]string, error)
	// OwnerOf returns the tenant that owns a Namespace. See package authz.
	OwnerOf func(*corev1.Namespace) tenant.ID
	Metrics *Metrics
}

// Syncer maintains the FlowSchemas. Only one Syncer of a cluster may run at a time.
type Syncer struct {
	Options
	namespaces corelisters.NamespaceLister
	schemas    listers.FlowSchemaLister
	levels     listers.PriorityLevelConfigurationLister
	writes     flowcontrol.RateLimiter
	wake       chan struct{}
	attempts   map[string]*attempt // keyed by the name of the FlowSchema
	reported   map[problem]bool    // the problems that the last pass found
}

var errSync = errors.New("the caches of namespaces and Tenants did not sync")

// New returns a syncer that does nothing until [Syncer.Run] is called.
func New(o Options) *Syncer {
	return &Syncer{
		Options:    o,
		namespaces: corelisters.NewNamespaceLister(o.Namespaces.GetIndexer()),
		writes:     flowcontrol.NewTokenBucketRateLimiter(writesPerSecond, writesPerSecond),
		wake:       make(chan struct{}, 1),
		attempts:   map[string]*attempt{},
		reported:   map[problem]bool{},
	}
}

// Run maintains the FlowSchemas until ctx ends, and then leaves them in place. It must be called
// only once. It fails if it cannot start.
func (s *Syncer) Run(ctx context.Context) error {
	defer s.Metrics.reset()
	s.Metrics.set(map[string]int{ReasonUnavailable: 1})
	if !cache.WaitForCacheSync(ctx.Done(), s.Namespaces.HasSynced, s.Tenants.HasSynced) {
		return errSync
	}
	if !s.awaitServed(ctx) {
		return nil
	}
	stop, err := s.follow(ctx)
	if err != nil {
		return err
	}
	defer stop()
	for ctx.Err() == nil {
		if s.pass(ctx) {
			continue
		}
		select {
		case <-ctx.Done():
		case <-time.After(checkEvery):
		case <-s.wake:
			select {
			case <-ctx.Done():
			case <-time.After(settleFor):
			}
		}
	}
	return nil
}

// awaitServed waits until the server serves the API group. It returns false if ctx ends first.
func (s *Syncer) awaitServed(ctx context.Context) bool {
	for {
		_, err := s.Client.Discovery().ServerResourcesForGroupVersion(flowcontrolv1.SchemeGroupVersion.String())
		after := checkEvery
		switch {
		case err == nil:
			return true
		case apierrors.IsNotFound(err):
			after = servedEvery
			klog.FromContext(ctx).Error(err, "The server does not serve FlowSchemas, so the requests of tenants have no "+
				"flows of their own. Upgrade the server, or remove --flow-schemas", "groupVersion",
				flowcontrolv1.SchemeGroupVersion.String())
		default:
			klog.FromContext(ctx).Error(err, "Failed to find out whether the server serves FlowSchemas, will retry")
		}
		select {
		case <-ctx.Done():
			return false
		case <-time.After(after):
		}
	}
}

// follow watches FlowSchemas and priority levels until ctx ends, and Tenants and namespaces until
// stop is called. It wakes the syncer when FlowSchemas, priority levels, Tenants or owners of
// namespaces change. It returns after the FlowSchemas and priority levels have been read, or after
// ctx ends.
func (s *Syncer) follow(ctx context.Context) (stop func(), err error) {
	factory := informers.NewSharedInformerFactory(s.Client, 0)
	objects := factory.Flowcontrol().V1()
	s.schemas, s.levels = objects.FlowSchemas().Lister(), objects.PriorityLevelConfigurations().Lister()
	changed := cache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { s.wakeUp() },
		UpdateFunc: func(any, any) { s.wakeUp() },
		DeleteFunc: func(any) { s.wakeUp() },
	}
	for _, informer := range []cache.SharedIndexInformer{
		objects.FlowSchemas().Informer(), objects.PriorityLevelConfigurations().Informer(),
	} {
		if _, err := informer.AddEventHandler(changed); err != nil {
			return nil, err
		}
	}
	moved := changed
	moved.UpdateFunc = func(was, is any) {
		before, _ := was.(*corev1.Namespace)
		now, _ := is.(*corev1.Namespace)
		if before == nil || now == nil || s.OwnerOf(before) != s.OwnerOf(now) {
			s.wakeUp()
		}
	}
	registered, err := s.Namespaces.AddEventHandler(moved)
	if err != nil {
		return nil, err
	}
	unfollow, err := s.Tenants.Follow(func(tenant.ID) { s.wakeUp() })
	stop = func() {
		if unfollow != nil {
			unfollow()
		}
		_ = s.Namespaces.RemoveEventHandler(registered)
	}
	if err != nil {
		stop()
		return nil, err
	}
	factory.StartWithContext(ctx)
	factory.WaitForCacheSync(ctx.Done())
	return stop, nil
}

// wakeUp makes the syncer check the FlowSchemas without waiting for checkEvery.
func (s *Syncer) wakeUp() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// pass compares the FlowSchemas with the Tenants once, and writes the differences. more reports
// whether another pass must follow immediately.
func (s *Syncer) pass(ctx context.Context) (more bool) {
	if ctx.Err() != nil {
		return false
	}
	found := newFindings()
	defer func() {
		if ctx.Err() == nil {
			s.report(ctx, found)
		}
	}()
	if err := s.ensureLevel(ctx); err != nil {
		found.add(ReasonWriteFailed, Level, err.Error())
		return false
	}
	existing, err := s.schemas.List(labels.Everything())
	if err != nil {
		found.add(ReasonUnavailable, "", err.Error())
		return false
	}
	byName := make(map[string]*flowcontrolv1.FlowSchema, len(existing))
	for _, f := range existing {
		byName[f.Name] = f
	}
	slices.SortFunc(existing, func(a, b *flowcontrolv1.FlowSchema) int { return cmp.Compare(a.Name, b.Name) })
	changes := s.changes(s.wanted(byName, found), existing, byName, found)
	return s.write(ctx, changes, found)
}
