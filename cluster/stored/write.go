// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package stored

import (
	"context"
	"errors"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubetenant/kubetenant/internal/typed"
	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

// keepServers is how long the entry of a server is retained after its last request.
const keepServers = 49 * time.Hour

// maxSilence is the maximum age of the newest hour in all servers' entries. If the newest hour is
// older, the clock of this process may be wrong, and no entry is removed.
const maxSilence = 3 * time.Hour

// existing has the fields of a stored TenantUsage that a pass needs.
type existing struct {
	metav1.ObjectMeta
	tenant, uid string
	oldServers  []string // the names of the servers without recent requests
}

// read returns all TenantUsages, keyed by name. It calls latest with the time of each complete
// measurement. If the newest hour in all servers' entries is older than maxSilence, no server is
// treated as old.
func (m *Measurer) read(ctx context.Context, latest func(time.Time)) (map[string]*existing, error) {
	all := map[string]*existing{}
	now := time.Now()
	newest := time.Time{}
	err := m.usages.ForEach(ctx, metav1.ListOptions{Limit: pageSize}, func(u *v1alpha1.TenantUsage) {
		is := &existing{
			ObjectMeta: metav1.ObjectMeta{Name: u.Name, UID: u.ObjectMeta.UID},
			tenant:     u.Tenant,
			uid:        u.UID,
		}
		if u.Stored != nil && len(u.Stored.Incomplete) == 0 {
			latest(u.Stored.MeasuredAt.Time)
		}
		for i := range u.Servers {
			if isOld(&u.Servers[i], now) {
				is.oldServers = append(is.oldServers, u.Servers[i].Name)
			}
			for _, h := range u.Servers[i].Hours {
				if h.Hour.After(newest) {
					newest = h.Hour.Time
				}
			}
		}
		all[u.Name] = is
	}, func(i *typed.Invalid) {
		all[i.Name] = &existing{ObjectMeta: metav1.ObjectMeta{Name: i.Name, UID: i.UID}} // the tenant is not known
	})
	if now.Sub(newest) > maxSilence {
		for _, is := range all {
			is.oldServers = nil
		}
	}
	return all, err
}

func isOld(s *v1alpha1.ServerUsage, now time.Time) bool {
	return !slices.ContainsFunc(s.Hours, func(h v1alpha1.HourUsage) bool {
		return h.Hour.After(now.Add(-keepServers))
	})
}

// last returns the time of the last complete measurement. It fails if no TenantUsage has a
// complete measurement.
func (m *Measurer) last(ctx context.Context) (time.Time, error) {
	var last time.Time
	_, err := m.read(ctx, func(at time.Time) {
		if at.After(last) {
			last = at
		}
	})
	if err == nil && last.IsZero() {
		err = errors.New("no TenantUsage has a measurement")
	}
	return last, err
}

// maxFailures is the number of successive failures after which a pass ends.
const maxFailures = 5

// failures has the first errors from the writes in a pass.
type failures struct {
	all         []error
	consecutive int
}

// add records the result of a write. err may be nil. end is true if the pass must end.
func (f *failures) add(err error) (end bool) {
	if err == nil {
		f.consecutive = 0
		return false
	}
	if len(f.all) < 2*maxFailures {
		f.all = append(f.all, err)
	}
	f.consecutive++
	return f.consecutive == maxFailures || errors.Is(err, context.Canceled)
}

// write writes the TenantUsages of existing tenants, and deletes TenantUsages of tenants that no
// longer exist.
func (m *Measurer) write(ctx context.Context, all totals, start *state) error {
	present, err := m.read(ctx, func(time.Time) {})
	if err != nil {
		return err
	}
	now, err := m.readState()
	if err != nil {
		return err
	}
	var failed failures
	for id, total := range all {
		uid := start.uids[id]
		if !now.exists(id) || now.uids[id] != uid {
			continue // the tenant was deleted, or its Tenant was created or replaced after the measurement
		}
		was := present[id.ObjectName()]
		if was == nil || was.tenant != id.String() || was.uid != uid && was.uid != "" {
			if err := m.replace(ctx, was, id, uid); err != nil {
				if failed.add(err) {
					break
				}
				continue
			}
			was = nil
		}
		if failed.add(m.applyStored(ctx, was, id, uid, &v1alpha1.StoredUsage{
			MeasuredAt: metav1.Now(),
			Namespaces: start.namespaces[id],
			Objects:    total.objects,
			Bytes:      total.bytes,
			Requested:  total.requested,
			Incomplete: start.incomplete,
		})) {
			break
		}
	}
	names := now.names()
	for name, was := range present {
		if failed.consecutive == maxFailures || ctx.Err() != nil {
			break
		}
		if !names[name] {
			failed.add(m.removeDeleted(ctx, was))
		}
	}
	return errors.Join(failed.all...)
}

// applyStored writes a measurement to a TenantUsage, and removes the entries of servers without
// recent requests.
func (m *Measurer) applyStored(
	ctx context.Context, was *existing, id tenant.ID, uid string, is *v1alpha1.StoredUsage,
) error {
	err := m.apply(ctx, was, v1alpha1.UsageManager, &v1alpha1.TenantUsage{
		ObjectMeta: metav1.ObjectMeta{Name: id.ObjectName()},
		Tenant:     id.String(),
		UID:        uid,
		Stored:     is,
	})
	if was == nil {
		return err
	}
	for _, server := range was.oldServers {
		if err != nil {
			return err
		}
		err = m.apply(ctx, was, m.ManagerOf(server), nil)
	}
	return err
}

var errChanged = errors.New("the tenant was deleted or created during the measurement: the next pass measures it")

// replace deletes the TenantUsage of an earlier Tenant, so that a new TenantUsage can be created.
// It fails if the current Tenant is not the Tenant that was measured. was is nil if no
// TenantUsage exists.
func (m *Measurer) replace(ctx context.Context, was *existing, id tenant.ID, uid string) error {
	uids, known := m.Tenants()
	if !known || uids[id] != uid {
		return errChanged
	}
	if was == nil {
		return nil
	}
	return m.remove(ctx, was)
}

// removeDeleted deletes the TenantUsage of a tenant that does not exist.
func (m *Measurer) removeDeleted(ctx context.Context, was *existing) error {
	now, err := m.readState()
	if err != nil {
		return err
	}
	if now.names()[was.Name] {
		return errChanged
	}
	return m.remove(ctx, was)
}

// apply applies the fields of one field manager to a TenantUsage. If is is nil, apply removes the
// fields of this manager. If was is not nil, apply fails with a conflict if the UID of the
// TenantUsage differs from that of was.
func (m *Measurer) apply(ctx context.Context, was *existing, manager string, is *v1alpha1.TenantUsage) error {
	if err := m.writes.Wait(ctx); err != nil {
		return err
	}
	name := ""
	content := map[string]any{}
	if is == nil {
		name = was.Name
		content["metadata"] = map[string]any{"name": name}
	} else {
		name = is.Name
		var err error
		if content, err = runtime.DefaultUnstructuredConverter.ToUnstructured(is); err != nil {
			return err
		}
		unstructured.RemoveNestedField(content, "metadata", "creationTimestamp")
	}
	object := &unstructured.Unstructured{Object: content}
	object.SetAPIVersion(v1alpha1.SchemeGroupVersion.String())
	object.SetKind(v1alpha1.KindTenantUsage)
	object.SetUID(uidOf(was))
	_, err := m.Client.Resource(usageResource()).Apply(ctx, name, object,
		metav1.ApplyOptions{FieldManager: manager, Force: true})
	return err
}

func uidOf(was *existing) types.UID {
	if was == nil {
		return ""
	}
	return was.UID
}

func (m *Measurer) remove(ctx context.Context, was *existing) error {
	if err := m.writes.Wait(ctx); err != nil {
		return err
	}
	if err := m.usages.Delete(ctx, was); err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	return nil
}
