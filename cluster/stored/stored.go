// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

// Package stored measures the objects that tenants store and the resources that these objects
// request. It writes the results to TenantUsages. It also removes old entries in TenantUsages,
// and TenantUsages of tenants that do not exist.
//
// Each pass reads all namespaced objects that the server stores, page by page. Only one object at
// a time is in memory.
package stored

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/klog/v2"

	"github.com/kubetenant/kubetenant/internal/typed"
	"github.com/kubetenant/kubetenant/plugins/quota"
	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

const (
	// measureEvery is the interval between two passes.
	measureEvery = 6 * time.Hour
	// measureAfter is the minimum delay before the first pass.
	measureAfter = time.Minute
	// endedEvery is the interval at which the metrics of tenants that no longer exist are deleted.
	endedEvery = 10 * time.Second
	// retryAfter is the delay after the first failure. The delay doubles with each further failure, up
	// to measureEvery.
	retryAfter = time.Minute
	// pageSize is the maximum number of objects in a page.
	pageSize = 500
	// maxIncomplete is the maximum number of unreadable resources that a TenantUsage names.
	maxIncomplete = 100
	// maxPage is a size in bytes. If a page is larger, the limit for the next page is halved.
	maxPage = 20 << 20
	// maxExpired is the maximum number of times that a list is continued or restarted because its
	// continue token has expired.
	maxExpired = 10
	// pagesPerSecond and writesPerSecond are the maximum rates of reads and writes.
	pagesPerSecond  = 5
	writesPerSecond = 5
	// maxNames is the maximum number of resource names in a TenantUsage, in addition to those of
	// [isCommon]. The number is limited because Pods can request resources with any name.
	maxNames = 64
)

// List returns a page of the objects of a resource in all namespaces as JSON. next is the continue
// token of the previous page, or "".
type List func(ctx context.Context, of schema.GroupVersionResource, limit int, next string) (io.ReadCloser, error)

// ListsOf returns a [List] that reads from a server.
func ListsOf(client rest.Interface) List {
	return func(ctx context.Context, of schema.GroupVersionResource, limit int, next string) (io.ReadCloser, error) {
		path := []string{"apis", of.Group, of.Version, of.Resource}
		if of.Group == "" {
			path = []string{"api", of.Version, of.Resource}
		}
		r := client.Get().AbsPath(path...).SetHeader("Accept", runtime.ContentTypeJSON).Param("limit", strconv.Itoa(limit))
		if next != "" {
			r = r.Param("continue", next)
		}
		return r.Stream(ctx)
	}
}

// Options configure a [Measurer]. All fields are required.
type Options struct {
	List List
	// Client reads and writes TenantUsages.
	Client dynamic.Interface
	// Resources returns the namespaced resources that the server stores. If it returns an error, the
	// list may be incomplete.
	Resources func() ([]schema.GroupVersionResource, error)
	// Namespaces returns the owner of each namespace, keyed by namespace name. The zero ID means
	// that the namespace is unowned.
	Namespaces func() (map[string]tenant.ID, error)
	// Tenants returns the UIDs of all Tenants, keyed by tenant ID. It returns false if the
	// Tenants are not known.
	Tenants func() (map[tenant.ID]string, bool)
	// Classes returns the DeviceClasses, see [quota.Options].
	Classes func() (quota.Classes, error)
	// ManagerOf returns the field manager with which a server writes its entry in a TenantUsage.
	ManagerOf func(server string) string
	Metrics   *Metrics
}

// Measurer measures the objects that tenants store. Only one Measurer of a cluster may run at a
// time.
type Measurer struct {
	Options
	usages typed.Client[v1alpha1.TenantUsage, *v1alpha1.TenantUsage]
	pages  flowcontrol.RateLimiter
	writes flowcontrol.RateLimiter
}

func usageResource() schema.GroupVersionResource {
	return v1alpha1.SchemeGroupVersion.WithResource(v1alpha1.ResourceTenantUsages)
}

// New returns a measurer that does nothing until [Measurer.Run] is called.
func New(o Options) *Measurer {
	return &Measurer{
		Options: o,
		usages:  typed.NewClient[v1alpha1.TenantUsage](o.Client, usageResource()),
		pages:   flowcontrol.NewTokenBucketRateLimiter(pagesPerSecond, pagesPerSecond),
		writes:  flowcontrol.NewTokenBucketRateLimiter(writesPerSecond, writesPerSecond),
	}
}

// Run measures until ctx ends. If the TenantUsages have a recent measurement, for example from
// another leader, Run waits until this measurement is older than measureEvery.
func (m *Measurer) Run(ctx context.Context) error {
	defer m.Metrics.set(nil)
	m.sleep(ctx, measureAfter)
	if last, err := m.last(ctx); err == nil {
		m.sleep(ctx, measureEvery-min(max(time.Since(last), 0), measureEvery))
	}
	var retry time.Duration
	for ctx.Err() == nil {
		err := m.Pass(ctx)
		if err == nil {
			retry = 0
			m.sleep(ctx, measureEvery)
			continue
		}
		retry = min(max(2*retry, retryAfter), measureEvery)
		if ctx.Err() == nil {
			m.Metrics.errors.Inc()
			klog.FromContext(ctx).Error(err, "Failed to measure all objects of tenants, will retry", "after", retry)
		}
		m.sleep(ctx, retry)
	}
	return nil
}

// sleep returns after d or when ctx ends. Meanwhile, it deletes the metrics of tenants that no
// longer exist.
func (m *Measurer) sleep(ctx context.Context, d time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	wait.UntilWithContext(ctx, func(context.Context) {
		if m.Metrics.empty() {
			return
		}
		if is, err := m.readState(); err == nil {
			m.Metrics.retain(is.exists)
		}
	}, endedEvery)
}

// measured is the measurement of one tenant.
type measured struct {
	objects, bytes int64
	requested      corev1.ResourceList
	extended       int // the number of names in requested for which [isCommon] returns false
}

func (t *measured) add(of *measured) {
	t.objects += of.objects
	t.bytes += of.bytes
	for name, quantity := range of.requested {
		t.request(name, quantity)
	}
}

// isCommon reports whether a resource name is defined by Kubernetes and therefore cannot be
// invented by a tenant.
func isCommon(name corev1.ResourceName) bool {
	switch name {
	case corev1.ResourceRequestsCPU, corev1.ResourceRequestsMemory, corev1.ResourceRequestsEphemeralStorage,
		corev1.ResourceRequestsStorage, corev1.ResourcePersistentVolumeClaims, corev1.ResourceServicesLoadBalancers:
		return true
	}
	return false
}

// request adds a requested resource. If requested already has maxNames extended resources,
// request ignores other extended resources.
func (t *measured) request(name corev1.ResourceName, quantity resource.Quantity) {
	sum, found := t.requested[name]
	if !found {
		if quantity.IsZero() || !isCommon(name) && t.extended >= maxNames {
			return
		}
		if !isCommon(name) {
			t.extended++
		}
	}
	if t.requested == nil {
		t.requested = corev1.ResourceList{}
	}
	sum.Add(quantity)
	t.requested[name] = sum
}

// totals has the measurements, keyed by tenant ID.
type totals map[tenant.ID]*measured

func (t totals) get(id tenant.ID) *measured {
	m := t[id]
	if m == nil {
		m = &measured{}
		t[id] = m
	}
	return m
}

// Pass measures all objects once, and writes the TenantUsages. If a resource cannot be read, its
// objects are not counted, and the TenantUsages and the error name the resource.
func (m *Measurer) Pass(ctx context.Context) error {
	// If the TenantUsages cannot be read, the measurement cannot be written either.
	if _, err := m.read(ctx, func(time.Time) {}); err != nil {
		return err
	}
	start, err := m.readState()
	if err != nil {
		return err
	}
	resources, problems := m.Resources()
	if problems != nil { // the measurement would lack whole resources
		return problems
	}
	all := totals{}
	var incomplete []string
	for _, of := range resources {
		if isCopy(of.GroupResource()) {
			continue
		}
		found, err := m.measure(ctx, of, start.owners)
		if err != nil {
			problems = errors.Join(problems, fmt.Errorf("list %s: %w", of.GroupResource(), err))
			incomplete = append(incomplete, of.GroupResource().String())
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		for id, total := range found {
			all.get(id).add(total)
		}
	}
	for id := range start.namespaces {
		all.get(id)
	}
	for id := range start.uids {
		all.get(id)
	}
	slices.Sort(incomplete)
	start.incomplete = incomplete[:min(len(incomplete), maxIncomplete)]
	if len(incomplete) == 0 {
		m.Metrics.set(all)
	}
	return errors.Join(problems, m.write(ctx, all, start))
}

// state has the tenants and their namespaces at the time of a call of readState.
type state struct {
	owners     map[string]tenant.ID // keyed by namespace
	namespaces map[tenant.ID]int64  // the number of namespaces, without the system tenant
	uids       map[tenant.ID]string // the UIDs of the Tenants
	incomplete []string             // resources that could not be read
}

// readState returns the current state. It fails if the Tenants are not known.
func (m *Measurer) readState() (*state, error) {
	owners, err := m.Namespaces()
	if err != nil {
		return nil, err
	}
	uids, known := m.Tenants()
	if !known {
		return nil, errors.New("the Tenants are not known yet")
	}
	is := &state{
		owners:     owners,
		namespaces: map[tenant.ID]int64{},
		uids:       maps.Clone(uids),
	}
	for _, id := range owners {
		is.namespaces[id]++
	}
	for _, id := range []tenant.ID{{}, tenant.System()} {
		delete(is.namespaces, id)
		delete(is.uids, id)
	}
	return is, nil
}

// exists reports whether a tenant has a Tenant or owns a namespace.
func (s *state) exists(id tenant.ID) bool {
	_, found := s.uids[id]
	return found || s.namespaces[id] > 0
}

// names returns the names of the TenantUsages of all tenants.
func (s *state) names() map[string]bool {
	all := map[string]bool{}
	for id := range s.uids {
		all[id.ObjectName()] = true
	}
	for id := range s.namespaces {
		all[id.ObjectName()] = true
	}
	return all
}

// isCopy reports whether the server also returns the objects of a resource for another resource,
// so that the objects must not be counted twice.
func isCopy(of schema.GroupResource) bool { return of.Group == "events.k8s.io" }

// measure measures the objects of a resource. If a page cannot be read, it returns no
// measurements.
func (m *Measurer) measure(
	ctx context.Context, of schema.GroupVersionResource, owners map[string]tenant.ID,
) (totals, error) {
	found := totals{}
	next := ""
	limit := pageSize
	for expired := 0; ; {
		if err := m.pages.Wait(ctx); err != nil {
			return nil, err
		}
		page, err := m.List(ctx, of, limit, next)
		if apierrors.IsResourceExpired(err) && expired < maxExpired {
			expired++
			if next = continueAfter(err); next == "" {
				clear(found) // the list starts again
			}
			continue
		}
		if err != nil {
			return nil, err
		}
		size := 0
		next, err = eachItem(page, func(item []byte) error {
			size += len(item)
			return m.addItem(found, of.GroupResource(), item, owners)
		})
		if err = errors.Join(err, page.Close()); err != nil {
			return nil, err
		}
		if next == "" {
			return found, nil
		}
		limit = limitAfter(limit, size)
	}
}

// continueAfter returns the token with which a list continues after its continue token has
// expired, or "". The rest of the list is then from a later state of the server.
func continueAfter(expired error) string {
	var status apierrors.APIStatus
	if errors.As(expired, &status) {
		return status.Status().Continue
	}
	return ""
}

// limitAfter returns the limit for the next page. size is the size of the last page in bytes.
func limitAfter(limit, size int) int {
	if size > maxPage {
		return max(limit/2, 1)
	}
	return min(2*limit, pageSize)
}

// isRequested reports whether a TenantUsage contains the resource with the given quota name.
func isRequested(name corev1.ResourceName) bool {
	return name == corev1.ResourcePersistentVolumeClaims || name == corev1.ResourceServicesLoadBalancers ||
		strings.HasPrefix(string(name), corev1.DefaultResourceRequestsPrefix) || quota.IsDevice(name)
}
