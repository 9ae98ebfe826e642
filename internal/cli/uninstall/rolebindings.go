// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

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

// roleBindingCheck contains the RoleBindings that step 3 reports or changes.
type roleBindingCheck struct {
	ended      []*rbacv1.RoleBinding // have expired, but servers without kubetenant ignore the annotation
	ending     []string              // will expire later
	unreadable []*rbacv1.RoleBinding // have an invalid expiration, so they currently grant no rights
	bound      []*rbacv1.RoleBinding // have subjects whose names callers of several tenants share
	plain      []string              // outside tenants' namespaces, with names that a tenant's caller may have
}

// findShared finds the RoleBindings that step 3 reports or changes.
func (r *run) findShared(ctx context.Context) (*roleBindingCheck, error) {
	found := &roleBindingCheck{}
	err := each(ctx, func(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
		return r.Admin.Kube.RbacV1().RoleBindings(metav1.NamespaceAll).List(ctx, opts)
	}, func(b *rbacv1.RoleBinding) {
		if until, ends := b.Annotations[tenant.ExpiresAnnotation]; ends {
			at, err := time.Parse(time.RFC3339, until)
			switch {
			case err != nil:
				found.unreadable = append(found.unreadable, b)
			case !at.After(time.Now()):
				found.ended = append(found.ended, b)
				return
			default:
				found.ending = append(found.ending, fmt.Sprintf("%s/%s has an expiry at %s", b.Namespace, b.Name, until))
			}
		}
		switch {
		case slices.ContainsFunc(b.Subjects, func(s rbacv1.Subject) bool { return r.owners.isShared(&s, b.Namespace) }):
			found.bound = append(found.bound, b)
		case r.owners.byNamespace[b.Namespace] == "" && slices.ContainsFunc(b.Subjects,
			func(s rbacv1.Subject) bool { return isAmbiguousName(&s) }):
			found.plain = append(found.plain, fmt.Sprintf("%s/%s (%s to %s)", b.Namespace, b.Name, b.RoleRef.Name,
				subjects(b.Subjects)))
		}
	})
	if err != nil {
		return nil, fmt.Errorf("list RoleBindings: %w", err)
	}
	return found, nil
}

// roleBindings deletes expired RoleBindings. If the admin confirms, it also removes subjects whose
// names callers of several tenants share from other RoleBindings.
func (r *run) roleBindings(ctx context.Context) error {
	r.step(3, "check the RoleBindings whose names callers of several tenants share")
	found, err := r.findShared(ctx)
	if err != nil {
		return err
	}
	for _, b := range found.ended {
		r.do(ctx, func(ctx context.Context) error {
			return r.clientsFor(b.Labels).Kube.RbacV1().RoleBindings(b.Namespace).Delete(ctx, b.Name, deleteOnly(b.UID))
		}, "delete RoleBinding %s/%s, which has expired: a server without kubetenant ignores its expiry", b.Namespace, b.Name)
	}
	r.list("  warning: on a server without kubetenant, these RoleBindings do not expire:", found.ending)
	r.list("  warning: these RoleBindings remain. Without kubetenant, a caller of any tenant with one of these names "+
		"has these rights:", found.plain)
	if err := r.unreadableEnds(ctx, found); err != nil {
		return err
	}
	return r.sharedNames(ctx, found.bound)
}

// unreadableEnds deletes the RoleBindings with an invalid expiration, if the admin confirms.
func (r *run) unreadableEnds(ctx context.Context, found *roleBindingCheck) error {
	var lines []string
	for _, b := range found.unreadable {
		lines = append(lines, fmt.Sprintf("%s/%s (%s to %s)", b.Namespace, b.Name, b.RoleRef.Name, subjects(b.Subjects)))
	}
	r.list("  these RoleBindings currently grant nothing, because their annotation "+tenant.ExpiresAnnotation+
		" cannot be read. A server without kubetenant ignores the annotation and grants the rights:", lines)
	yes, err := r.confirmRoleBindings(len(lines),
		"Delete these %d RoleBindings whose expiry cannot be read? If not, they are kept.")
	if err != nil || !yes {
		return err
	}
	for _, b := range found.unreadable {
		r.do(ctx, func(ctx context.Context) error {
			return r.clientsFor(b.Labels).Kube.RbacV1().RoleBindings(b.Namespace).Delete(ctx, b.Name, deleteOnly(b.UID))
		}, "delete RoleBinding %s/%s", b.Namespace, b.Name)
	}
	found.bound = slices.DeleteFunc(found.bound, func(b *rbacv1.RoleBinding) bool {
		return slices.Contains(found.unreadable, b)
	})
	return nil
}

// sharedNames removes subjects whose names callers of several tenants share from RoleBindings, if
// the admin confirms.
func (r *run) sharedNames(ctx context.Context, bound []*rbacv1.RoleBinding) error {
	var lines []string
	for _, b := range bound {
		lines = append(lines, fmt.Sprintf("%s/%s (%s to %s)", b.Namespace, b.Name, b.RoleRef.Name, subjects(r.sharedOf(b))))
	}
	r.list("  without kubetenant, callers of other tenants with one of these names have the rights of these "+
		"RoleBindings:", lines)
	yes, err := r.confirmRoleBindings(len(lines), "Remove the names from these %d RoleBindings? If not, they are kept.")
	if err != nil || !yes {
		return err
	}
	for _, b := range bound {
		r.unshare(ctx, b)
	}
	return nil
}

// confirmRoleBindings requests a confirmation from the admin. If count is zero, or KeepBindings is
// set, it returns false without a request.
func (r *run) confirmRoleBindings(count int, question string) (bool, error) {
	switch {
	case count == 0:
		return false, nil
	case r.KeepBindings:
		r.Printf("  they are kept (--keep-bindings)")
		return false, nil
	case !r.Yes && r.Confirm == nil && !r.DryRun:
		return false, fmt.Errorf("delete these %d RoleBindings? There is no terminal to answer: use --yes or "+
			"--keep-bindings", count)
	}
	return r.confirm(fmt.Sprintf(question, count))
}

// list prints a title and the lines below it, unless there are no lines.
func (r *run) list(title string, lines []string) {
	if len(lines) == 0 {
		return
	}
	r.Printf("%s", title)
	for _, line := range lines {
		r.Printf("    %s", line)
	}
}

// sharedOf returns the subjects of a binding whose names callers of several tenants share.
func (r *run) sharedOf(b *rbacv1.RoleBinding) []rbacv1.Subject {
	return slices.DeleteFunc(slices.Clone(b.Subjects), func(s rbacv1.Subject) bool {
		return !r.owners.isShared(&s,
			b.Namespace)
	})
}

// unshare removes the shared subjects from a binding. If no other subject remains, it deletes the
// binding.
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
