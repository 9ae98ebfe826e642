// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package flowschemas

import (
	"context"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

const (
	// writeEvery is the minimum time between two writes of one FlowSchema. It limits the writes if
	// another controller changes the FlowSchema repeatedly. After each failure, the time doubles up
	// to retryAtLast.
	writeEvery  = 5 * time.Second
	retryAtLast = 5 * time.Minute
)

// attempt contains the result of the last write of a FlowSchema.
type attempt struct {
	next  time.Time // the earliest time of the next write
	delay time.Duration
	err   error
}

// ensureLevel creates the PriorityLevelConfiguration [Level] if it does not exist.
func (s *Syncer) ensureLevel(ctx context.Context) error {
	if _, err := s.levels.Get(Level); !apierrors.IsNotFound(err) {
		return err
	}
	if err := s.writes.Wait(ctx); err != nil {
		return err
	}
	_, err := s.Client.FlowcontrolV1().PriorityLevelConfigurations().Create(ctx, newLevel(),
		metav1.CreateOptions{FieldManager: v1alpha1.FieldManager})
	if err == nil {
		klog.FromContext(ctx).Info("Created the priority level of tenants", "priorityLevelConfiguration", Level)
	}
	if apierrors.IsAlreadyExists(err) { // the cache is not current
		return nil
	}
	return err
}

// write makes at most [maxWrites] changes. more reports whether changes remain for another pass.
// write skips FlowSchemas that were written recently.
func (s *Syncer) write(ctx context.Context, changes []change, found *findings) (more bool) {
	now := time.Now()
	for name, a := range s.attempts {
		if now.Sub(a.next) > retryAtLast {
			delete(s.attempts, name)
		}
	}
	written := 0
	changed := make(map[string]bool, len(changes))
	for i := range changes {
		c := &changes[i]
		a := s.attempts[c.name()]
		if a == nil {
			a = &attempt{}
			s.attempts[c.name()] = a
		}
		changed[c.name()] = true
		due := !now.Before(a.next)
		switch {
		case due && written == maxWrites:
			more = true
		case due:
			written++
			if err := s.writes.Wait(ctx); err != nil {
				return false
			}
			a.setResult(s.writeOne(ctx, c))
		}
		if a.err != nil {
			found.add(ReasonWriteFailed, c.name(), a.err.Error())
		}
	}
	for name, a := range s.attempts {
		if !changed[name] {
			a.err = nil
		}
	}
	return more && ctx.Err() == nil
}

// setResult records the result of a write and the earliest time of the next write. It ignores
// conflicts, because the next pass uses the current objects.
func (a *attempt) setResult(err error) {
	if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) || apierrors.IsNotFound(err) {
		err = nil // the cache is not current
	}
	if err == nil {
		a.delay = writeEvery
	} else {
		a.delay = min(max(writeEvery, 2*a.delay), retryAtLast)
	}
	a.err, a.next = err, time.Now().Add(a.delay)
}

// writeOne makes one change. It fails with a conflict if the object has changed since it was read,
// for example if the label was removed.
func (s *Syncer) writeOne(ctx context.Context, c *change) (err error) {
	objects := s.Client.FlowcontrolV1().FlowSchemas()
	message := ""
	switch {
	case c.before == nil:
		message = "Created a FlowSchema"
		_, err = objects.Create(ctx, c.after, metav1.CreateOptions{FieldManager: v1alpha1.FieldManager})
	case c.after != nil:
		message = "Updated a FlowSchema"
		_, err = objects.Update(ctx, c.after, metav1.UpdateOptions{FieldManager: v1alpha1.FieldManager})
	default:
		message = "Deleted a FlowSchema"
		err = objects.Delete(ctx, c.before.Name, metav1.DeleteOptions{
			Preconditions: &metav1.Preconditions{UID: &c.before.UID, ResourceVersion: &c.before.ResourceVersion},
		})
	}
	if err == nil {
		klog.FromContext(ctx).Info(message, "flowSchema", c.name())
	}
	return err
}
