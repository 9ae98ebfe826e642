// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package isolation

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/client-go/rest"

	"github.com/kubetenant/kubetenant/internal/kube"
	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

// runLabel is the label of the objects that a run of kubectl tenant verify-isolation created.
// Its value is the name of the run's first temporary tenant.
const runLabel = tenant.Domain + "/verify-isolation"

// Prefixes of the names of temporary tenants. Both tenants of a run have the same random suffix.
const (
	firstTenant  = "verify-a-"
	secondTenant = "verify-b-"
)

// TemporaryTenants returns the names of two temporary tenants, with a new random suffix.
func TemporaryTenants() [2]string {
	suffix := rand.String(6)
	return [2]string{firstTenant + suffix, secondTenant + suffix}
}

// temporaryTenant matches the name of the first temporary tenant of a run, and captures its
// suffix.
var temporaryTenant = regexp.MustCompile(`^` + firstTenant + `([a-z0-9]{6})$`)

// leftover is a run whose objects were not all deleted.
type leftover struct {
	tenants [2]string
	created time.Time
}

// CleanUp deletes the objects of runs that started at least age ago. It returns the number of
// runs whose objects were all deleted.
func CleanUp(ctx context.Context, admin *rest.Config, age time.Duration) (int, error) {
	client, err := kube.NewForConfig(admin)
	if err != nil {
		return 0, err
	}
	runs, err := leftovers(ctx, client)
	if err != nil {
		return 0, err
	}
	var errs []error
	removed := 0
	for _, l := range runs {
		if time.Since(l.created) < age {
			continue
		}
		w, err := newFixture(&Options{Admin: admin, Tenants: l.tenants})
		if err == nil {
			err = w.deleteAll(ctx)
		}
		if err == nil {
			removed++
		}
		errs = append(errs, err)
	}
	return removed, errors.Join(errs...)
}

// leftovers returns the runs with remaining objects. It ignores labels whose value is not the
// name of a temporary tenant. Tenants may set the label on their own objects, but
// [fixture.deleteAll] deletes only objects whose names are those of a run.
func leftovers(ctx context.Context, client kube.Interface) ([]leftover, error) {
	options := metav1.ListOptions{LabelSelector: runLabel}
	namespaces, err := client.CoreV1().Namespaces().List(ctx, options)
	if err != nil {
		return nil, err
	}
	roles, err := client.RbacV1().ClusterRoles().List(ctx, options)
	if err != nil {
		return nil, err
	}
	bindings, err := client.RbacV1().ClusterRoleBindings().List(ctx, options)
	if err != nil {
		return nil, err
	}
	var all []metav1.ObjectMeta
	for i := range namespaces.Items {
		all = append(all, namespaces.Items[i].ObjectMeta)
	}
	for i := range roles.Items {
		all = append(all, roles.Items[i].ObjectMeta)
	}
	for i := range bindings.Items {
		all = append(all, bindings.Items[i].ObjectMeta)
	}
	var found []leftover
	seen := map[string]bool{}
	for i := range all {
		run := all[i].Labels[runLabel]
		match := temporaryTenant.FindStringSubmatch(run)
		if match == nil || seen[run] {
			continue
		}
		seen[run] = true
		found = append(found, leftover{[2]string{run, secondTenant + match[1]}, all[i].CreationTimestamp.Time})
	}
	return found, nil
}

// deleteAll deletes the objects of a run. Except for default quotas, it deletes only objects
// that have the run's label. It deletes the ClusterRoleBindings first, so that no rights remain
// if a later deletion fails.
func (w *fixture) deleteAll(ctx context.Context) error {
	rbac := w.admin.RbacV1()
	var errs []error
	for _, suffix := range []string{"", "-admin"} {
		name := w.role() + suffix
		binding, err := rbac.ClusterRoleBindings().Get(ctx, name, metav1.GetOptions{})
		if err == nil && w.isOfRun(&binding.ObjectMeta) {
			err = rbac.ClusterRoleBindings().Delete(ctx, name, deletePreconditions(&binding.ObjectMeta))
		}
		errs = append(errs, err)
	}
	role, err := rbac.ClusterRoles().Get(ctx, w.role(), metav1.GetOptions{})
	if err == nil && w.isOfRun(&role.ObjectMeta) {
		err = rbac.ClusterRoles().Delete(ctx, w.role(), deletePreconditions(&role.ObjectMeta))
	}
	errs = append(errs, err)
	names := []string{w.namespace(0), w.namespace(1), w.recreatedNamespace()}
	for _, name := range names {
		errs = append(errs, w.deleteNamespace(ctx, name))
	}
	for _, name := range names {
		errs = append(errs, w.awaitDeleted(ctx, name))
	}
	errs = append(errs, w.removeQuotas(ctx))
	for i, err := range errs {
		if apierrors.IsNotFound(err) {
			errs[i] = nil
		}
	}
	return errors.Join(errs...)
}

func (w *fixture) isOfRun(o *metav1.ObjectMeta) bool {
	return o.Labels[runLabel] == w.tenants[0].String()
}

// deletePreconditions returns options that delete only the object with the UID that was read, not a
// new object of the same name.
func deletePreconditions(o *metav1.ObjectMeta) metav1.DeleteOptions {
	return metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &o.UID}}
}

// deleteNamespace deletes a namespace if it has the label of the run.
func (w *fixture) deleteNamespace(ctx context.Context, name string) error {
	namespaces := w.admin.CoreV1().Namespaces()
	ns, err := namespaces.Get(ctx, name, metav1.GetOptions{})
	if err != nil || !w.isOfRun(&ns.ObjectMeta) {
		return err
	}
	return namespaces.Delete(ctx, name, deletePreconditions(&ns.ObjectMeta))
}

// awaitDeleted waits until a namespace of the run no longer exists.
func (w *fixture) awaitDeleted(ctx context.Context, name string) error {
	return eventually(ctx, func(ctx context.Context) error {
		ns, err := w.admin.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			return nil
		case err != nil:
			return err
		case !w.isOfRun(&ns.ObjectMeta):
			return nil
		}
		return fmt.Errorf("namespace %s still exists%s", name, blockedReason(ns))
	})
}

// blockedReason returns why a terminating namespace still exists, or "" if the server gives no
// reason.
func blockedReason(ns *corev1.Namespace) string {
	for _, c := range ns.Status.Conditions {
		if c.Status == corev1.ConditionTrue && strings.HasPrefix(string(c.Type), "Namespace") {
			return ": " + c.Message
		}
	}
	return ""
}

// removeQuotas deletes the default TenantQuotas that the server created for the temporary
// tenants.
func (w *fixture) removeQuotas(ctx context.Context) error {
	quotas := w.objects.Resource(v1alpha1.SchemeGroupVersion.WithResource(v1alpha1.ResourceTenantQuotas))
	list, err := quotas.List(ctx, metav1.ListOptions{LabelSelector: v1alpha1.DefaultQuotaLabel})
	if err != nil {
		return err // NotFound if the server does not serve TenantQuotas
	}
	var errs []error
	for i := range list.Items {
		owner, _, _ := unstructured.NestedString(list.Items[i].Object, "spec", "tenant")
		if owner != w.tenants[0].String() && owner != w.tenants[1].String() {
			continue
		}
		o := &metav1.ObjectMeta{UID: list.Items[i].GetUID()}
		err := quotas.Delete(ctx, list.Items[i].GetName(), deletePreconditions(o))
		if !apierrors.IsNotFound(err) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
