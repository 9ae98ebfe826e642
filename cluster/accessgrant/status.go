package accessgrant

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/client-go/tools/cache"

	"github.com/kubetenant/kubetenant/cluster/tenants"
	grantplugin "github.com/kubetenant/kubetenant/plugins/grant"
	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

// writeStatus brings the status of a grant up to date.
func (g *Controller) writeStatus(ctx context.Context, may authorizer.Authorizer, name cache.ObjectName) error {
	obj, found, err := g.informer.GetStore().GetByKey(name.String())
	u, ok := obj.(*unstructured.Unstructured)
	if err != nil || !found || !ok {
		g.takeUse(name)
		g.trusts(name)
		return err
	}
	status := v1alpha1.AccessGrantStatus{}
	content, _, err := unstructured.NestedMap(u.Object, "status")
	if err == nil {
		err = runtime.DefaultUnstructuredConverter.FromUnstructured(content, &status)
	}
	if err != nil {
		return err
	}
	before := status.DeepCopy()
	accepted, err := g.accepted(ctx, may, u)
	if err != nil {
		return err
	}
	if accepted.Status == metav1.ConditionFalse &&
		!meta.IsStatusConditionFalse(status.Conditions, v1alpha1.ConditionAccepted) && g.doubts(name) {
		return errDoubted
	}
	g.trusts(name)
	accepted.Message = tenants.ConditionMessage(accepted.Message)
	meta.SetStatusCondition(&status.Conditions, accepted)
	if expires, set, _ := unstructured.NestedString(u.Object, "spec", "expires"); set {
		at, err := time.Parse(time.RFC3339, expires)
		status.Expired = err == nil && !g.now().Before(at)
	} else {
		status.Expired = false
	}
	if used := g.takeUse(name); !used.IsZero() && (status.LastUsed == nil || used.Sub(status.LastUsed.Time) >= cycle) {
		status.LastUsed = &metav1.Time{Time: used}
	}
	if equality.Semantic.DeepEqual(before, &status) {
		return nil
	}
	changed := u.DeepCopy()
	if changed.Object["status"], err = runtime.DefaultUnstructuredConverter.ToUnstructured(&status); err != nil {
		return err
	}
	_, err = g.client.Resource(accessGrants()).Namespace(u.GetNamespace()).UpdateStatus(ctx, changed,
		metav1.UpdateOptions{FieldManager: v1alpha1.FieldManager})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// errDoubted says that a grant is to be looked at again before its grantor is believed
// to have lost its rights.
var errDoubted = errors.New("to be looked at again")

// doubts reports whether a grantor has not been seen to be denied for long enough.
func (g *Controller) doubts(name cache.ObjectName) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	since, known := g.doubted[name]
	if !known {
		since = g.now()
		g.doubted[name] = since
	}
	return g.now().Sub(since) < doubt
}

func (g *Controller) trusts(name cache.ObjectName) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.doubted, name)
}

// sameRights reports whether a change of a grant leaves what it allows.
func sameRights(was, is *unstructured.Unstructured) bool {
	before, errBefore := grantOf(was)
	now, errNow := grantOf(is)
	return errBefore == nil && errNow == nil && reflect.DeepEqual(before, now)
}

func (g *Controller) takeUse(name cache.ObjectName) time.Time {
	g.mu.Lock()
	defer g.mu.Unlock()
	at := g.used[name]
	delete(g.used, name)
	return at
}

// accepted says whether the grantor may still do itself what it grants. The error says
// that it cannot be told now.
func (*Controller) accepted(
	ctx context.Context, may authorizer.Authorizer, u *unstructured.Unstructured,
) (metav1.Condition, error) {
	c := metav1.Condition{
		Type:               v1alpha1.ConditionAccepted,
		Status:             metav1.ConditionFalse,
		ObservedGeneration: u.GetGeneration(),
	}
	parsed, err := Parse(u)
	if err != nil {
		c.Reason, c.Message = "NotUnderstood", err.Error()
		return c, nil
	}
	who := parsed.Spec.Grantor
	if who == nil {
		c.Reason, c.Message = "NoGrantor", "it was written while nobody recorded the grantor: write its spec again"
		return c, nil
	}
	request, err := RequestOf(u)
	id, idErr := tenant.Parse(who.Tenant)
	switch {
	case err != nil || idErr != nil:
		c.Reason, c.Message = "NotUnderstood", fmt.Sprint(err, idErr)
		return c, nil
	case who.Tenant != who.Owner && !id.IsSystem():
		c.Reason, c.Message = "GrantorMayNot", "only the namespace's own tenant and the system tenant grant"
		return c, nil
	}
	grantor := tenant.Bind(&user.DefaultInfo{Name: who.User, UID: who.UID, Groups: who.Groups}, id)
	if err := grantplugin.Check(ctx, may, grantor, request); errors.Is(err, grantplugin.ErrUnsure) {
		return c, err
	} else if err != nil {
		c.Reason, c.Message = "GrantorMayNot", err.Error()
		return c, nil
	}
	c.Status, c.Reason, c.Message = metav1.ConditionTrue, "GrantorMay", "the grantor may do itself what it grants"
	return c, nil
}
