// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package usage

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"

	"github.com/kubetenant/kubetenant/internal/typed"
	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

// errUnsupported reports that the server does not serve TenantUsages.
var errUnsupported = errors.New("the server does not record usage: upgrade its kubetenant and apply all " +
	"CustomResourceDefinitions of its release")

// pageSize is the number of TenantUsage objects in one page of a list.
const pageSize = 500

// validUID matches the UIDs that a report may contain. A spreadsheet interprets none of these UIDs
// as a formula.
var validUID = regexp.MustCompile(`^[0-9A-Za-z][0-9A-Za-z-]{0,63}$`)

// OfTenant returns the usage of one tenant from a cluster. The report begins with the hour that
// contains now minus since. The report is empty if the tenant has no usage, or if the usage
// belongs to a deleted Tenant of the same name.
func OfTenant(
	ctx context.Context, d dynamic.Interface, id tenant.ID, now time.Time, since time.Duration,
) (*Report, error) {
	r := newReport(now, since)
	name := cache.ObjectName{Name: id.ObjectName()}
	u, err := usages(d).Get(ctx, name)
	invalid := (*typed.Invalid)(nil)
	switch {
	case errors.As(err, &invalid):
		r.problem(invalid.Error())
		return r.finish(), nil
	case isMissingObject(err):
		return r.finish(), nil
	case err != nil:
		return nil, explain(id, err)
	}
	predecessor, err := isOfPredecessor(ctx, d, u, name.Name)
	if err != nil {
		return nil, err
	}
	if !predecessor {
		r.addObject(u)
	}
	return r.finish(), nil
}

// All returns the usage of all tenants from a cluster. The report begins with the hour that
// contains now minus since.
func All(ctx context.Context, d dynamic.Interface, now time.Time, since time.Duration) (*Report, error) {
	r := newReport(now, since)
	err := usages(d).ForEach(ctx, metav1.ListOptions{Limit: pageSize}, r.addObject,
		func(invalid *typed.Invalid) { r.problem(invalid.Error()) })
	if err != nil {
		return nil, explain(tenant.ID{}, err)
	}
	return r.finish(), nil
}

func usages(d dynamic.Interface) typed.Client[v1alpha1.TenantUsage, *v1alpha1.TenantUsage] {
	return typed.NewClient[v1alpha1.TenantUsage](d,
		v1alpha1.SchemeGroupVersion.WithResource(v1alpha1.ResourceTenantUsages))
}

// isOfPredecessor reports whether a TenantUsage belongs to a deleted Tenant whose name another
// Tenant has now. It returns false if the Tenant does not exist or the caller may not read it.
func isOfPredecessor(ctx context.Context, d dynamic.Interface, u *v1alpha1.TenantUsage, name string) (bool, error) {
	object, err := d.Resource(v1alpha1.SchemeGroupVersion.WithResource(v1alpha1.ResourceTenants)).
		Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsForbidden(err), apierrors.IsNotFound(err):
		return false, nil
	case err != nil:
		return false, err
	}
	return object.GetUID() != types.UID(u.UID), nil
}

// addObject adds a TenantUsage. It records a problem if the object's name does not match its
// tenant, or its UID is invalid.
func (r *Report) addObject(u *v1alpha1.TenantUsage) {
	id, err := tenant.Parse(u.Tenant)
	switch {
	case err != nil, id.ObjectName() != u.Name:
		r.problem(fmt.Sprintf("TenantUsage %s: the field tenant is of another tenant: delete the object. "+
			"Its past hours are lost", u.Name))
		return
	case u.UID != "" && !validUID.MatchString(u.UID):
		r.problem(fmt.Sprintf("TenantUsage %s: the field uid is not a UID: delete the object. Its "+
			"past hours are lost", u.Name))
		return
	}
	hours := map[int64]Numbers{}
	for i := range u.Servers {
		for _, h := range u.Servers[i].Hours {
			n := Numbers{
				Requests:         h.Requests,
				Denied:           h.Denied,
				Limited:          h.Limited,
				Watches:          h.Watches,
				SeatMilliseconds: h.SeatMilliseconds,
			}
			if n.isNegative() {
				r.problem(fmt.Sprintf("TenantUsage %s: a number of server %s is negative: delete the object. "+
					"Its past hours are lost", u.Name, u.Servers[i].Name))
				continue
			}
			if hour := h.Hour.UTC().Truncate(time.Hour); r.covers(hour) {
				total := hours[hour.Unix()]
				total.add(n)
				hours[hour.Unix()] = total
			}
		}
	}
	r.add(identity{id.String(), u.UID}, hours, u.Stored)
}

// isMissingObject reports whether an error means that the object does not exist. It returns false
// if the server does not serve the kind of the object.
func isMissingObject(err error) bool {
	status := apierrors.APIStatus(nil)
	return apierrors.IsNotFound(err) && errors.As(err, &status) && status.Status().Details != nil &&
		status.Status().Details.Name != ""
}

// explain adds advice to an error from a read. A zero ID means that the usage of all tenants was
// read.
func explain(id tenant.ID, err error) error {
	switch {
	case apierrors.IsNotFound(err):
		return errUnsupported
	case apierrors.IsForbidden(err) && id.IsZero():
		return fmt.Errorf("you may not list the usage of all tenants: name a TENANT, or get the right to list %s.%s: %w",
			v1alpha1.ResourceTenantUsages, tenant.Domain, err)
	case apierrors.IsForbidden(err):
		return fmt.Errorf("you may not read the usage of tenant %s: callers of a tenant read the usage of their own tenant "+
			"only, with the right to get %s.%s: %w", id, v1alpha1.ResourceTenantUsages, tenant.Domain, err)
	}
	return err
}
