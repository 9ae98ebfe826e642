// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package usage

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/klog/v2"

	"github.com/kubetenant/kubetenant/internal/typed"
	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

const (
	// firstPassDelay is the time between the start and the first writes of TenantUsages.
	firstPassDelay = time.Minute
	// passInterval is the interval at which TenantUsages are written.
	passInterval = 10 * time.Minute
	// finalPassTimeout is the maximum duration of the writes when the process ends.
	finalPassTimeout = 5 * time.Second
	// writesPerSecond is the maximum rate of writes of TenantUsages. lastWritesPerSecond is the
	// maximum rate in the last pass.
	writesPerSecond     = 5
	lastWritesPerSecond = 200
	// maxFailures is the number of consecutive failures after which a pass ends.
	maxFailures = 5
)

// FieldManager returns the field manager of the given server for TenantUsages.
func FieldManager(server string) string { return v1alpha1.UsageManager + "-" + server }

// WriterOptions configure [NewWriter]. All fields are required.
type WriterOptions struct {
	Recorder *Recorder
	// Client reads Tenants. It reads, writes and deletes TenantUsages.
	Client dynamic.Interface
	// Server is the name of this server.
	Server  string
	Metrics *Metrics
}

// Writer writes the totals of a [Recorder] to TenantUsages. Each server writes only its own entry
// in the field servers. It adds its totals to those of earlier processes of the server. It stops
// writing an entry after another process with the same server name has written the entry.
type Writer struct {
	WriterOptions
	objects dynamic.ResourceInterface
	tenants typed.Client[v1alpha1.Tenant, *v1alpha1.Tenant]
	usages  typed.Client[v1alpha1.TenantUsage, *v1alpha1.TenantUsage]

	mu       sync.Mutex
	restored []unsavedHour // totals from an earlier process, for tenants that do not exist in the cache yet
}

// NewWriter returns a writer, which is inactive before [Start]. Call NewWriter before [Start].
func NewWriter(o WriterOptions) *Writer {
	kind := v1alpha1.SchemeGroupVersion.WithResource(v1alpha1.ResourceTenantUsages)
	o.Recorder.hasWriter = true
	return &Writer{
		WriterOptions: o,
		objects:       o.Client.Resource(kind),
		usages:        typed.NewClient[v1alpha1.TenantUsage](o.Client, kind),
		tenants: typed.NewClient[v1alpha1.Tenant](o.Client,
			v1alpha1.SchemeGroupVersion.WithResource(v1alpha1.ResourceTenants)),
	}
}

// finalPass writes the remaining changes, for at most 5 seconds.
func (w *Writer) finalPass(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), finalPassTimeout)
	defer cancel()
	w.pass(ctx, flowcontrol.NewTokenBucketRateLimiter(lastWritesPerSecond, lastWritesPerSecond))
}

// run writes TenantUsages until ctx ends.
func (w *Writer) run(ctx context.Context) {
	writes := flowcontrol.NewTokenBucketRateLimiter(writesPerSecond, writesPerSecond)
	sleep(ctx, firstPassDelay)
	for ctx.Err() == nil {
		w.pass(ctx, writes)
		sleep(ctx, passInterval)
	}
}

// pass writes the TenantUsages of all tenants whose totals have changed. It begins with the tenants
// that have the most unsaved requests. The next pass retries failed writes. The pass ends after
// several consecutive failures that are not specific to a tenant.
func (w *Writer) pass(ctx context.Context, writes flowcontrol.RateLimiter) {
	w.restore()
	failures, logged := 0, 0
	for _, e := range w.Recorder.unsavedEntries() {
		err := writes.Wait(ctx)
		if err == nil {
			err = w.save(ctx, e)
		}
		if err == nil {
			failures = 0
			continue
		}
		if ctx.Err() != nil {
			return
		}
		w.Metrics.errors.WithLabelValues(operationObject).Inc()
		if logged++; logged <= maxFailures {
			klog.FromContext(ctx).Error(err, "Failed to write a TenantUsage, will retry", "tenant", e.name)
		}
		if isOfTenant(err) {
			continue
		}
		if failures++; failures == maxFailures {
			return
		}
	}
}

// existing returns the entries of existing tenants, except the system tenant.
func (r *Recorder) existing() []*entry {
	all := r.entries()
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.DeleteFunc(all, func(e *entry) bool {
		id, err := tenant.Parse(e.name)
		return err != nil || id.IsSystem() || r.ended[identity{e.name, e.uid}] == e
	})
}

// unsavedEntries returns the entries whose TenantUsages lack changes. The entries with the most
// requests in the unsaved hours are first.
func (r *Recorder) unsavedEntries() []*entry {
	requests := map[*entry]int64{}
	all := slices.DeleteFunc(r.existing(), func(e *entry) bool {
		n, found := e.unsavedRequests()
		requests[e] = n
		return !found
	})
	slices.SortStableFunc(all, func(a, b *entry) int { return cmp.Compare(requests[b], requests[a]) })
	return all
}

// unsavedRequests returns the number of requests in the hours whose changes are not in the
// TenantUsage. found reports whether there are such hours.
func (e *entry) unsavedRequests() (n int64, found bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, b := range e.buckets {
		if b.state.Load()&unsaved != 0 {
			n += b.requests.Load()
			found = true
		}
	}
	return n, found
}

// setUnsaved records that the TenantUsage lacks changes of the given hours.
func setUnsaved(hours []*bucket) {
	for _, b := range hours {
		b.state.Or(unsaved)
	}
}

var (
	errOtherTenant = errors.New("the TenantUsage is of another Tenant than the one that this server knows")
	errSameName    = errors.New("another process writes the entry of this server: set usage.server to another name for " +
		"each server")
)

// isOfTenant reports whether an error affects only one TenantUsage, so that other TenantUsages can
// be written.
func isOfTenant(err error) bool {
	var invalid *typed.Invalid
	return errors.Is(err, errOtherTenant) || errors.Is(err, errSameName) || errors.As(err, &invalid) ||
		apierrors.IsInvalid(err) || apierrors.IsConflict(err)
}

// save writes the totals of an entry to the TenantUsage of its tenant.
func (w *Writer) save(ctx context.Context, e *entry) (err error) {
	id, err := tenant.Parse(e.name)
	if err != nil {
		return err
	}
	name := id.ObjectName()
	stored, err := w.usages.Get(ctx, cache.ObjectName{Name: name})
	var invalid *typed.Invalid
	switch {
	case apierrors.IsNotFound(err):
		if err := w.checkTenant(ctx, name, e.uid); err != nil {
			return err
		}
		stored = nil
	case errors.As(err, &invalid):
		return fmt.Errorf("%w: delete the TenantUsage", err)
	case err != nil:
		return err
	case stored.Tenant == e.name && stored.UID == "" && e.uid != "": // the tenant now has a Tenant object
		if err := w.checkTenant(ctx, name, e.uid); err != nil {
			return err
		}
	case stored.Tenant != e.name || stored.UID != e.uid:
		if err := w.replace(ctx, e, stored); err != nil {
			return err
		}
		stored = nil
	}
	own := ownEntry(stored, w.Server)
	started := metav1.NewMicroTime(w.Recorder.started.Truncate(time.Microsecond))
	if e.isWrittenByOther(own, started) {
		return errSameName
	}
	oldest := hourOf(w.Recorder.now()) - MaxHours
	if w.Recorder.clockChanged() {
		oldest = 0
	}
	hours, wrote := e.merge(own.Hours, oldest)
	defer func() {
		if err != nil {
			setUnsaved(wrote)
		}
	}()
	object := v1alpha1.TenantUsage{
		TypeMeta: metav1.TypeMeta{
			APIVersion: v1alpha1.SchemeGroupVersion.String(),
			Kind:       v1alpha1.KindTenantUsage,
		},
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Tenant:     e.name,
		UID:        e.uid,
		Servers:    []v1alpha1.ServerUsage{{Name: w.Server, Started: &started, Hours: hours}},
	}
	if stored != nil {
		object.ObjectMeta.UID = stored.ObjectMeta.UID // causes a conflict if the object was replaced
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&object)
	if err != nil {
		return err
	}
	unstructured.RemoveNestedField(content, "metadata", "creationTimestamp")
	_, err = w.objects.Apply(ctx, name, &unstructured.Unstructured{Object: content},
		metav1.ApplyOptions{FieldManager: FieldManager(w.Server), Force: true})
	if err == nil {
		e.setWritten()
	}
	return err
}

// isWrittenByOther reports whether another process has written the server's entry after this
// process wrote it.
func (e *entry) isWrittenByOther(own *v1alpha1.ServerUsage, started metav1.MicroTime) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.hasWritten && own.Started != nil && !own.Started.Time.Equal(started.Time)
}

func (e *entry) setWritten() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.hasWritten = true
}

// checkTenant returns an error if the Tenant object with the given name has another UID than uid. A
// TenantUsage for a deleted Tenant must not be created, because the next tenant with the same name
// could see it.
func (w *Writer) checkTenant(ctx context.Context, name, uid string) error {
	current := ""
	t, err := w.tenants.Get(ctx, cache.ObjectName{Name: name})
	switch {
	case err == nil:
		current = string(t.UID)
	case !apierrors.IsNotFound(err):
		return err
	}
	if current != uid {
		return errOtherTenant
	}
	return nil
}

// replace deletes the TenantUsage of a deleted Tenant, so that a new TenantUsage can be created. It
// returns an error if the server's cache of Tenants is stale.
func (w *Writer) replace(ctx context.Context, e *entry, stored *v1alpha1.TenantUsage) error {
	if err := w.checkTenant(ctx, stored.Name, e.uid); err != nil {
		return err
	}
	if err := w.usages.Delete(ctx, stored); err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	return nil
}

// ownEntry returns the entry of the given server, or an empty entry.
func ownEntry(stored *v1alpha1.TenantUsage, server string) *v1alpha1.ServerUsage {
	if stored != nil {
		for i := range stored.Servers {
			if stored.Servers[i].Name == server {
				return &stored.Servers[i]
			}
		}
	}
	return &v1alpha1.ServerUsage{}
}

// merge returns the hours to write. They contain the totals of this process and of earlier
// processes of the server. Before this process writes an hour for the first time, the stored totals
// are those of earlier processes, and merge stores them in base to add them in each write. merge
// omits hours up to oldest. wrote contains the buckets with unsaved changes.
func (e *entry) merge(stored []v1alpha1.HourUsage, oldest int32) (hours []v1alpha1.HourUsage, wrote []*bucket) {
	e.mu.Lock()
	defer e.mu.Unlock()
	all := map[int32]v1alpha1.HourUsage{}
	for i := range stored {
		all[hourOf(stored[i].Hour.Time)] = stored[i]
	}
	for _, b := range e.buckets {
		if b.state.Load()&written == 0 {
			before := all[b.hour]
			if base := e.restored[b.hour].after(totalsOf(&before)); base != (Totals{}) {
				if e.base == nil {
					e.base = map[int32]Totals{}
				}
				e.base[b.hour] = base
			}
			delete(e.restored, b.hour)
		}
		if b.state.Load()&unsaved != 0 {
			b.state.And(^uint32(unsaved)) // cleared before the totals are read
			wrote = append(wrote, b)
		}
		b.state.Or(written) // set even if the write fails, because the result of a failed write can be unknown
		if sum := b.totals().plus(e.base[b.hour]); sum != (Totals{}) {
			all[b.hour] = v1alpha1.HourUsage{
				Hour:             metav1.NewTime(timeOf(b.hour)),
				Requests:         sum.Requests,
				Denied:           sum.Denied,
				Limited:          sum.Limited,
				Watches:          sum.Watches,
				SeatMilliseconds: sum.SeatMilliseconds,
			}
		}
	}
	for hour, usage := range all {
		if hour > oldest && (hour <= oldest+MaxHours+1 || oldest == 0 || len(all) <= MaxHours) {
			hours = append(hours, usage)
		}
	}
	slices.SortFunc(hours, func(a, b v1alpha1.HourUsage) int { return a.Hour.Compare(b.Hour.Time) })
	return hours[max(0, len(hours)-MaxHours):], wrote
}

func totalsOf(h *v1alpha1.HourUsage) Totals {
	return Totals{
		Requests:         h.Requests,
		Denied:           h.Denied,
		Limited:          h.Limited,
		Watches:          h.Watches,
		SeatMilliseconds: h.SeatMilliseconds,
	}
}

// Unnamed is the name of a server whose host has no name.
const Unnamed = "(unnamed)"

// ServerName returns the name of a server in TenantUsages and records. It is the configured name,
// or else the name of the host in lower case, or else [Unnamed]. It is cut to [MaxServerName]
// bytes.
func ServerName(configured, host string) string {
	name := configured
	if name == "" {
		name = cmp.Or(strings.ToLower(host), Unnamed)
	}
	return name[:min(len(name), MaxServerName)]
}

// MaxServerName is the maximum length of the name of a server, in bytes. The name is part of a
// field manager, which has at most 128 bytes.
const MaxServerName = 100
