package uninstall

import (
	"context"
	"fmt"
	"slices"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kubetenant/kubetenant/tenant"
)

// shared holds the RoleBindings that step 3 deals with.
type shared struct {
	ended  []*rbacv1.RoleBinding // expired by their annotation, which servers without kubetenant ignore
	ending []string              // those that would expire later
	bound  []*rbacv1.RoleBinding // to names that callers of several tenants share
	plain  []string              // outside of tenants' namespaces, to names that a tenant's caller may also have
}

// findShared reads all RoleBindings.
func (r *run) findShared(ctx context.Context) (*shared, error) {
	found := &shared{}
	err := each(ctx, func(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
		return r.Admin.Kube.RbacV1().RoleBindings(metav1.NamespaceAll).List(ctx, opts)
	}, func(b *rbacv1.RoleBinding) {
		if until, ends := b.Annotations[tenant.ExpiresAnnotation]; ends {
			// a limit that cannot be parsed allows nothing
			if at, err := time.Parse(time.RFC3339, until); err != nil || !at.After(time.Now()) {
				found.ended = append(found.ended, b)
				return
			}
			found.ending = append(found.ending, fmt.Sprintf("%s/%s would have ended at %s", b.Namespace, b.Name, until))
		}
		switch {
		case slices.ContainsFunc(b.Subjects, func(s rbacv1.Subject) bool { return r.owners.isShared(&s, b.Namespace) }):
			found.bound = append(found.bound, b)
		case r.owners.of[b.Namespace] == "" && slices.ContainsFunc(b.Subjects,
			func(s rbacv1.Subject) bool { return isPlain(&s) }):
			found.plain = append(found.plain, fmt.Sprintf("%s/%s (%s to %s)", b.Namespace, b.Name, b.RoleRef.Name,
				subjects(b.Subjects)))
		}
	})
	if err != nil {
		return nil, fmt.Errorf("list RoleBindings: %w", err)
	}
	return found, nil
}

// roleBindings deletes RoleBindings that have ended, and deletes or keeps those to names that callers of several
// tenants share.
func (r *run) roleBindings(ctx context.Context) error {
	r.step(3, "look at the RoleBindings whose names callers of several tenants share")
	found, err := r.findShared(ctx)
	if err != nil {
		return err
	}
	for _, b := range found.ended {
		r.do(ctx, func(ctx context.Context) error {
			return r.clientsFor(b.Labels).Kube.RbacV1().RoleBindings(b.Namespace).Delete(ctx, b.Name, deleteOnly(b.UID))
		}, "delete RoleBinding %s/%s, which has ended: a server without kubetenant ignores its end", b.Namespace, b.Name)
	}
	r.list("  warning: a server without kubetenant does not end these RoleBindings:", found.ending)
	r.list("  warning: these RoleBindings stay. Without kubetenant, a caller of any tenant who has one of these names "+
		"has these rights:", found.plain)
	if len(found.bound) == 0 {
		return nil
	}
	r.Say("  without kubetenant, callers of other tenants have the rights of these RoleBindings, if they have one of " +
		"these names:")
	for _, b := range found.bound {
		r.Say("    %s/%s (%s to %s)", b.Namespace, b.Name, b.RoleRef.Name, subjects(r.sharedOf(b)))
	}
	if r.KeepBindings {
		r.Say("  they are kept (--keep-bindings)")
		return nil
	}
	if !r.Yes && r.Ask == nil && !r.DryRun {
		return fmt.Errorf("delete these %d RoleBindings? There is no terminal to answer: decide with --yes or "+
			"--keep-bindings", len(found.bound))
	}
	yes, err := r.confirm(fmt.Sprintf("Delete the names from these %d RoleBindings? If not, they are kept.",
		len(found.bound)))
	if err != nil || !yes {
		return err
	}
	for _, b := range found.bound {
		r.unshare(ctx, b)
	}
	return nil
}

// list prints lines below a title, if there are any.
func (r *run) list(title string, lines []string) {
	if len(lines) == 0 {
		return
	}
	r.Say("%s", title)
	for _, line := range lines {
		r.Say("    %s", line)
	}
}

// sharedOf returns the subjects of a binding whose names callers of several tenants share.
func (r *run) sharedOf(b *rbacv1.RoleBinding) []rbacv1.Subject {
	return slices.DeleteFunc(slices.Clone(b.Subjects), func(s rbacv1.Subject) bool {
		return !r.owners.isShared(&s,
			b.Namespace)
	})
}

// unshare removes the shared subjects from a binding. It deletes the binding if it has no others.
func (r *run) unshare(ctx context.Context, b *rbacv1.RoleBinding) {
	bindings := r.clientsFor(b.Labels).Kube.RbacV1().RoleBindings(b.Namespace)
	stay := slices.DeleteFunc(slices.Clone(b.Subjects), func(s rbacv1.Subject) bool {
		return r.owners.isShared(&s,
			b.Namespace)
	})
	if len(stay) == 0 {
		r.do(ctx, func(ctx context.Context) error { return bindings.Delete(ctx, b.Name, deleteOnly(b.UID)) },
			"delete RoleBinding %s/%s", b.Namespace, b.Name)
		return
	}
	r.do(ctx, func(ctx context.Context) error {
		changed := b.DeepCopy()
		changed.Subjects = stay
		_, err := bindings.Update(ctx, changed, metav1.UpdateOptions{})
		return err
	}, "remove %s from RoleBinding %s/%s", subjects(r.sharedOf(b)), b.Namespace, b.Name)
}
