// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package provision

import (
	"context"
	"errors"
	"hash/maphash"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/cache"

	"github.com/kubetenant/kubetenant/tenant"
)

// errUnknown reports that the content of a tenant's namespaces is not known.
var errUnknown = errors.New("the Tenant is being deleted or is invalid")

// busyFor is the time until the next attempt if another worker prepares the namespace.
const busyFor = 50 * time.Millisecond

// prepare provisions the objects of a namespace, and records this in an annotation.
func (e *Engine) prepare(ctx context.Context, name string) error {
	if !e.begin(name) {
		e.later.AddAfter(name, busyFor)
		return nil
	}
	defer e.end(name)
	ns, err := e.lister.Get(name)
	if apierrors.IsNotFound(err) {
		e.note(name, nil)
		return nil
	}
	if err != nil {
		return err
	}
	id := e.OwnerOf(ns)
	defer e.tellOf(id)
	if ns.DeletionTimestamp != nil || id.IsZero() || id.IsSystem() {
		e.note(name, nil)
		return nil
	}
	gives, known := e.givenBy(ctx, id)
	if !known {
		return errUnknown
	}
	drifted := e.hasDrifted(name)
	if gives.isPrepared(ns) && !drifted {
		e.note(name, nil)
		return nil
	}
	objects := gives.objects(id, ns)
	objects.mayBe, objects.drifted = drifted || hasObjects(ns), drifted
	err = e.applyAll(ctx, ns, gives, &objects)
	e.tellPublished(ns.Name, gives, &objects)
	if err == nil && objects.wrong == nil {
		err = e.release(ctx, id, ns, gives)
	}
	failed := errors.Join(err, objects.wrong)
	if !apierrors.IsConflict(err) { // otherwise, the namespace has changed since it was read
		e.note(name, failed)
	}
	if failed != nil {
		e.looksDrifted(name) // other writes may not match the annotation
	}
	// Another attempt cannot fix an invalid object of a template. The drift pass checks it again.
	return err
}

// take removes the rights that a namespace of a tenant should not have. It runs for all namespaces
// of the tenant before any of them gets more rights. It queues the namespace for [Engine.prepare],
// which does the rest and retries what failed here.
func (e *Engine) take(ctx context.Context, name string) error {
	if !e.begin(name) {
		e.urgent.AddAfter(name, busyFor)
		return nil
	}
	defer e.later.Add(name)
	defer e.end(name)
	ns, err := e.lister.Get(name)
	if err != nil {
		return nil //nolint:nilerr // prepare reports it
	}
	id := e.OwnerOf(ns)
	if ns.DeletionTimestamp != nil || id.IsZero() || id.IsSystem() {
		return nil
	}
	gives, known := e.givenBy(ctx, id)
	if !known || gives.isPrepared(ns) {
		return nil
	}
	bindings, err := e.bindingsThere(ctx, ns.Name)
	if err == nil {
		_, err = e.revoke(ctx, ns, bindings, gives)
	}
	var noRoles error
	if gives.mayHaveRoles(ns) {
		var roles map[string]*rbacv1.Role
		if roles, noRoles = e.rolesThere(ctx, ns); noRoles == nil {
			_, noRoles = e.revokeRoles(ctx, ns, roles, gives)
		}
	}
	if errors.Join(err, noRoles, e.label(ctx, ns, gives)) != nil {
		e.looksDrifted(name)
	}
	return nil
}

// takesFrom reports whether the content of a tenant's namespaces lacks rights that it had when this
// function was called before. It returns true if that is unknown.
func (e *Engine) takesFrom(id tenant.ID) bool {
	e.comparing.Lock()
	defer e.comparing.Unlock()
	now, known := e.givenBy(context.Background(), id)
	if !known {
		return true
	}
	was, compared := e.granted[id]
	is := now.rights(e.seed)
	if e.granted[id] = is; now.uid == "" {
		delete(e.granted, id)
	}
	return !compared || slices.ContainsFunc(was, func(right uint64) bool { return !slices.Contains(is, right) })
}

// rights returns hashes of the rights that the content gives: each role with each subject, the
// Keystone domain, and each label. If the hashes of two rights collide, a removal only has a lower
// priority.
func (g *given) rights(seed maphash.Seed) (all []uint64) {
	type right struct {
		binding, role string
		subject       rbacv1.Subject
	}
	for i := range g.bindings {
		b := &g.bindings[i]
		for _, s := range b.Subjects {
			all = append(all, maphash.Comparable(seed, right{b.Name, b.RoleRef.Name, s}))
		}
	}
	if g.domain != "" { // if it changes, the bindings of its projects are deleted
		all = append(all, maphash.String(seed, g.domain))
	}
	all = append(all, g.roleRights(seed)...)
	for key, value := range g.labels {
		all = append(all, maphash.Comparable(seed, [2]string{key, value}))
	}
	return all
}

// applyAll writes all objects of a namespace. It reads the existing objects at the same time. An
// error about some of them does not delay the others.
func (e *Engine) applyAll(ctx context.Context, ns *corev1.Namespace, gives *given, objects *objects) error {
	var reading sync.WaitGroup
	var made map[object]*unstructured.Unstructured
	var noObjects error
	if objects.mayBe {
		reading.Go(func() { made, noObjects = e.objectsThere(ctx, ns, e.kindsIn(ns, objects)) })
	}
	var roles map[string]*rbacv1.Role
	var noRoles error
	if objects.mayBe || gives.mayHaveRoles(ns) {
		reading.Go(func() { roles, noRoles = e.rolesThere(ctx, ns) })
	}
	bindings, err := e.bindingsThere(ctx, ns.Name)
	reading.Wait()
	var revoked map[string]bool
	readRoles := noRoles == nil
	if readRoles {
		revoked, noRoles = e.revokeRoles(ctx, ns, roles, gives)
	}
	if err == nil {
		var taken error
		taken, err = e.apply(ctx, ns, bindings, gives)
		objects.wrong = errors.Join(objects.wrong, taken) // until the tenant deletes its own RoleBinding
	}
	if readRoles {
		taken, failed := e.addRoles(ctx, ns, roles, gives, revoked)
		objects.wrong = errors.Join(objects.wrong, taken) // until the tenant deletes its own Role
		noRoles = errors.Join(noRoles, failed)
	}
	if noObjects == nil {
		noObjects = e.applyObjects(ctx, ns, made, objects)
		objects.applied = noObjects == nil
	}
	return errors.Join(err, noRoles, noObjects, e.label(ctx, ns, gives))
}

// errBehind reports that a Tenant has changed since it was read.
var errBehind = errors.New("the Tenant has changed since it was read")

// release records on a namespace that it is prepared. If Pods wait for that, it first compares the
// Tenant with the one on the server. Otherwise, an engine with an old Tenant would release Pods
// before the objects of the templates exist.
func (e *Engine) release(ctx context.Context, id tenant.ID, ns *corev1.Namespace, gives *given) error {
	if _, held := ns.Annotations[tenant.HeldAnnotation]; held {
		t, err := e.tenants.Get(ctx, cache.ObjectName{Name: id.ObjectName()})
		switch {
		case apierrors.IsNotFound(err) && gives.uid == "":
		case err != nil:
			return err
		case t.UID != gives.uid || t.Generation != gives.generation:
			return errBehind
		}
		if err := e.published.isCurrent(ctx); err != nil {
			return err
		}
	}
	return e.mark(ctx, ns, gives)
}

// givenBy returns the content that the Tenant of a tenant specifies. The second result is false if
// the content is not known. The caller then MUST NOT change anything.
func (e *Engine) givenBy(ctx context.Context, id tenant.ID) (*given, bool) {
	t, known := e.Tenants.Tenant(id)
	switch {
	case !known:
		return nil, false
	case t == nil:
		out := &given{}
		e.addPublished(id, out)
		return out, true
	}
	templates, known := e.templatesOf(t.Spec.Namespaces.Templates)
	if !known {
		return nil, false
	}
	members, known := e.Tenants.Members(id)
	if !known {
		return nil, false
	}
	out := e.given(ctx, id, t, members)
	out.templates = templates
	e.addPublished(id, out)
	return out, true
}
