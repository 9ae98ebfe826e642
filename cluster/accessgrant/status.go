// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package accessgrant

import (
	"context"
	"errors"
	"reflect"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/client-go/tools/cache"

	"github.com/kubetenant/kubetenant/cluster/tenants"
	"github.com/kubetenant/kubetenant/internal/typed"
	grantplugin "github.com/kubetenant/kubetenant/plugins/accessgrant"
	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

// writeStatus updates the status of a grant. It does nothing if the grant does not exist or does
// not decode.
func (c *Controller) writeStatus(ctx context.Context, auth authorizer.Authorizer, name cache.ObjectName) error {
	obj, _, err := c.informer.GetStore().GetByKey(name.String())
	stored, ok := obj.(*v1alpha1.AccessGrant)
	if err != nil || !ok {
		c.popUse(name)
		c.clearLacking(name)
		return err
	}
	condition, err := accepted(ctx, auth, stored)
	if err != nil {
		return err
	}
	if condition.Status == metav1.ConditionFalse && Accepted(stored) && c.awaitsRecheck(name) {
		return errRecheck
	}
	c.clearLacking(name)
	g := stored.DeepCopy()
	meta.SetStatusCondition(&g.Status.Conditions, condition)
	g.Status.AnnouncedTo = c.announcedTo(g)
	g.Status.Expired = g.Spec.Expires != nil && !c.now().Before(g.Spec.Expires.Time)
	last := g.Status.LastUsed
	if used := c.popUse(name); !used.IsZero() && (last == nil || used.Sub(last.Time) >= cycle) {
		g.Status.LastUsed = &metav1.Time{Time: used}
	}
	if equality.Semantic.DeepEqual(&stored.Status, &g.Status) {
		return nil
	}
	_, err = typed.NewClient[v1alpha1.AccessGrant](c.client, accessGrants()).UpdateStatus(ctx, g)
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// announcedTo returns the ID of the tenant whose callers may list a grant, or "". A grant is not
// announced to a later tenant with the same name as the grantee.
func (c *Controller) announcedTo(g *v1alpha1.AccessGrant) string {
	id, err := tenant.Parse(g.Spec.From.Tenant)
	if err != nil || !g.Spec.Announce || g.Spec.Grantor == nil {
		return ""
	}
	if c.lineage != nil {
		if lineage := c.lineage(id); !lineage.AcceptsSeal(g.Spec.Grantor.Grantee) {
			return ""
		}
	}
	return id.String()
}

// errRecheck reports that the grantor lacks rights and must be checked again before the status
// reports this.
var errRecheck = errors.New("the grantor is checked again")

// awaitsRecheck reports whether less than [recheckAfter] has passed since its first call for a
// grant. The caller calls it while the grantor of the grant lacks rights.
func (c *Controller) awaitsRecheck(name cache.ObjectName) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	since, ok := c.lackingSince[name]
	if !ok {
		since = c.now()
		c.lackingSince[name] = since
	}
	return c.now().Sub(since) < recheckAfter
}

func (c *Controller) clearLacking(name cache.ObjectName) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.lackingSince, name)
}

// sameRights reports whether two versions of a grant allow the same requests. It returns false if a
// version is invalid.
func sameRights(before, after any) bool {
	was, errBefore := grantOf(before)
	now, errAfter := grantOf(after)
	return errBefore == nil && errAfter == nil && reflect.DeepEqual(was, now)
}

func (c *Controller) popUse(name cache.ObjectName) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	at := c.used[name]
	delete(c.used, name)
	return at
}

// accepted returns the condition that reports whether the grantor still has the rights that it
// grants. It fails if the rights cannot be checked now.
func accepted(ctx context.Context, auth authorizer.Authorizer, g *v1alpha1.AccessGrant) (metav1.Condition, error) {
	condition := func(status metav1.ConditionStatus, reason, message string) metav1.Condition {
		return metav1.Condition{
			Type:               v1alpha1.ConditionAccepted,
			Status:             status,
			ObservedGeneration: g.Generation,
			Reason:             reason,
			Message:            tenants.ConditionMessage(message),
		}
	}
	if err := Validate(g).ToAggregate(); err != nil {
		return condition(metav1.ConditionFalse, "NotUnderstood", err.Error()), nil
	}
	grantor := g.Spec.Grantor
	if grantor == nil {
		return condition(metav1.ConditionFalse, "NoGrantor",
			"no grantor was recorded when the AccessGrant was created: update its spec to record one"), nil
	}
	id, err := tenant.Parse(grantor.Tenant)
	if err != nil {
		return condition(metav1.ConditionFalse, "NotUnderstood", "spec.grantor.tenant: "+err.Error()), nil
	}
	if grantor.Tenant != grantor.Owner && !id.IsSystem() {
		return condition(metav1.ConditionFalse, "GrantorMayNot",
			"only the tenant of the namespace and the system tenant can grant access"), nil
	}
	request, err := requestOf(g)
	if err != nil {
		return condition(metav1.ConditionFalse, "NotUnderstood", err.Error()), nil
	}
	u := tenant.Bind(&user.DefaultInfo{Name: grantor.User, UID: grantor.UID, Groups: grantor.Groups}, id)
	if err := grantplugin.Check(ctx, auth, u, request); errors.Is(err, grantplugin.ErrUnchecked) {
		return metav1.Condition{}, err
	} else if err != nil {
		return condition(metav1.ConditionFalse, "GrantorMayNot", err.Error()), nil
	}
	return condition(metav1.ConditionTrue, "GrantorMay", "the grantor has the rights that it grants"), nil
}
