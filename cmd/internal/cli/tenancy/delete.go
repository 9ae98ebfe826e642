package tenancy

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"github.com/kubetenant/kubetenant/cmd/internal/cli/privileges"
	"github.com/kubetenant/kubetenant/tenant"
)

// Deletion says how a tenant is deleted.
type Deletion struct {
	Writing
	// Everything deletes what is in its namespaces too; Nothing sends no request that would.
	Everything, Nothing bool
	// Confirm is asked before the first thing is deleted, where something will be; its error ends it. Nil is asked nothing.
	Confirm func(namespaces []string) error
	// Wait is how long it is waited for the namespaces to end; with zero it is looked once. Left is told of those there are.
	Wait time.Duration
	Left func(namespaces []string)
}

// ErrNotEmpty says that a tenant owns something.
var ErrNotEmpty = errors.New("the tenant is not empty (--with-everything deletes that too)")

// Delete deletes a tenant that is empty; with [Deletion.Everything], whatever is in it. The error wraps [ErrNotEmpty],
// [ErrEnding], [ErrRefused] or [ErrNoTenant], or is that of [Deletion.Confirm]. With [Deletion.Nothing] nothing is deleted, and
// said is what would be.
func Delete(ctx context.Context, k kubernetes.Interface, d dynamic.Interface, id tenant.ID, how Deletion) error {
	spaces, err := k.CoreV1().Namespaces().List(ctx, metav1.ListOptions{LabelSelector: selector(map[string]string{tenant.Label: id.String()})})
	if err != nil {
		return refusal(err)
	}
	bindings, err := k.RbacV1().ClusterRoleBindings().List(ctx, metav1.ListOptions{LabelSelector: selector(map[string]string{ofTenant: id.String()})})
	if err != nil {
		return refusal(err)
	}
	limits, err := quotasOf(ctx, d, id)
	if err != nil {
		return err
	}
	_, err = d.Resource(tenantObjects).Get(ctx, id.ObjectName(), metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return refusal(err)
	}
	if len(spaces.Items)+len(bindings.Items)+len(limits) == 0 && err != nil {
		return fmt.Errorf("tenant %s: %w", id, ErrNoTenant)
	}
	empty := func() error {
		if how.Everything {
			return nil
		}
		found, err := contents(ctx, k, d, spaces.Items)
		if err == nil && len(found) > 0 {
			err = fmt.Errorf("%w: it has %s", ErrNotEmpty, strings.Join(found, ", "))
		}
		return err
	}
	object := err == nil
	if err := empty(); err != nil {
		return err
	}
	stored := len(how.DryRun) == 0 && !how.Nothing
	if how.Confirm != nil && stored {
		if err := how.Confirm(namesOf(spaces.Items)); err != nil {
			return err
		}
		if err := empty(); err != nil { // what came meanwhile
			return err
		}
	}
	remove := func(what, name string, of func() error) error {
		if !how.Nothing {
			if err := of(); err != nil && !apierrors.IsNotFound(err) {
				return refusal(err)
			}
		}
		how.Say("deleted %s %s", what, name)
		return nil
	}
	options := func(uid string) metav1.DeleteOptions {
		return metav1.DeleteOptions{DryRun: how.DryRun, Preconditions: metav1.NewUIDPreconditions(uid)}
	}
	for i := range spaces.Items {
		ns := &spaces.Items[i]
		err := remove("namespace", ns.Name, func() error { return k.CoreV1().Namespaces().Delete(ctx, ns.Name, options(string(ns.UID))) })
		if err != nil {
			return err
		}
	}
	for i := range bindings.Items {
		b := &bindings.Items[i]
		err := remove("ClusterRoleBinding", b.Name, func() error { return k.RbacV1().ClusterRoleBindings().Delete(ctx, b.Name, options(string(b.UID))) })
		if err != nil {
			return err
		}
	}
	for _, name := range limits {
		err := remove("TenantQuota", name, func() error { return d.Resource(quotas).Delete(ctx, name, metav1.DeleteOptions{DryRun: how.DryRun}) })
		if err != nil {
			return err
		}
	}
	if !object {
		return nil
	}
	// A tenant that is closed is so until nothing is left that it could open.
	if stored {
		if err := awaitGone(ctx, k, id, &how); err != nil {
			return err
		}
	}
	return remove("Tenant", id.ObjectName(), func() error {
		return d.Resource(tenantObjects).Delete(ctx, id.ObjectName(), metav1.DeleteOptions{DryRun: how.DryRun})
	})
}

// ErrEnding says that the namespaces of a tenant are still there.
var ErrEnding = errors.New("its namespaces have not ended, and its Tenant stays until they have: run the same again")

// awaitGone waits until no namespace is a tenant's. The error wraps [ErrEnding] or [ErrRefused].
func awaitGone(ctx context.Context, k kubernetes.Interface, id tenant.ID, how *Deletion) error {
	for begun := time.Now(); ; {
		left, err := k.CoreV1().Namespaces().List(ctx, metav1.ListOptions{LabelSelector: selector(map[string]string{tenant.Label: id.String()})})
		switch {
		case err != nil:
			return refusal(err)
		case len(left.Items) == 0:
			return nil
		case time.Since(begun) >= how.Wait:
			return fmt.Errorf("tenant %s: %w", id, ErrEnding)
		}
		if how.Left != nil {
			how.Left(namesOf(left.Items))
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(lookEvery):
		}
	}
}

// lookEvery is how often it is looked whether namespaces have ended.
const lookEvery = 500 * time.Millisecond

func namesOf(spaces []corev1.Namespace) []string {
	var names []string
	for i := range spaces {
		names = append(names, spaces[i].Name)
	}
	return names
}

// ErrNoTenant says that nothing is a tenant's.
var ErrNoTenant = errors.New("nothing is of this tenant: kubectl tenant tenants lists those there are")

func quotasOf(ctx context.Context, d dynamic.Interface, id tenant.ID) ([]string, error) {
	list, err := d.Resource(quotas).List(ctx, metav1.ListOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, refusal(err)
	}
	var names []string
	for i := range list.Items {
		spec, _, _ := unstructured.NestedString(list.Items[i].Object, "spec", "tenant")
		if spec == id.String() {
			names = append(names, list.Items[i].GetName())
		}
	}
	return names, nil
}

// contents returns what is in namespaces, but for what is in every one.
func contents(ctx context.Context, k kubernetes.Interface, d dynamic.Interface, spaces []corev1.Namespace) ([]string, error) {
	resources, err := Resources(k.Discovery(), "list")
	if err != nil {
		return nil, err
	}
	var found []string
	for _, ns := range spaces {
		for _, r := range resources {
			list, err := d.Resource(r).Namespace(ns.Name).List(ctx, metav1.ListOptions{})
			if apierrors.IsNotFound(err) || apierrors.IsMethodNotSupported(err) {
				continue
			}
			if err != nil {
				return nil, fmt.Errorf("look into namespace %s: %w", ns.Name, refusal(err))
			}
			count := 0
			for i := range list.Items {
				if !isEverywhere(r, list.Items[i].GetName(), list.Items[i].GetLabels()) {
					count++
				}
			}
			if count > 0 {
				found = append(found, fmt.Sprintf("%d %s in %s", count, r.GroupResource(), ns.Name))
			}
		}
	}
	return found, nil
}

// isEverywhere reports whether an object is what controllers and these commands put into every namespace.
func isEverywhere(r schema.GroupVersionResource, name string, has map[string]string) bool {
	switch r.GroupResource().String() {
	case "configmaps":
		return name == "kube-root-ca.crt"
	case "serviceaccounts":
		return name == "default"
	case "rolebindings.rbac.authorization.k8s.io":
		return has[privileges.MadeBy] == maker || has[tenant.ManagedLabel] != "" // the Tenant gives it
	case "networkpolicies.networking.k8s.io":
		return name == ownPolicy && has[privileges.MadeBy] == maker
	case "events", "events.events.k8s.io":
		return true
	}
	return false
}
