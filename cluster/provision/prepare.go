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

// errUnknown reports that the content that a tenant's namespaces should have is not known.
var errUnknown = errors.New(
	"the Tenant is being deleted or is invalid, or its templates and members have not been read",
)

// busyDelay is the delay before the next attempt if another worker processes the namespace.
const busyDelay = 50 * time.Millisecond

// prepare writes the objects and labels that a namespace should have, and records this in an
// annotation of the Namespace.
func (e *Engine) prepare(ctx context.Context, name string) error {
	if !e.begin(name) {
		e.updates.AddAfter(name, busyDelay)
		return nil
	}
	defer e.end(name)
	ns, err := e.lister.Get(name)
	if apierrors.IsNotFound(err) {
		e.setResult(name, nil)
		return nil
	}
	if err != nil {
		return err
	}
	id := e.OwnerOf(ns)
	defer e.queueStatus(id)
	if ns.DeletionTimestamp != nil || id.IsZero() || id.IsSystem() {
		e.setResult(name, nil)
		return nil
	}
	desired, known := e.desiredFor(ctx, id)
	if !known {
		return errUnknown
	}
	drifted := e.popDrifted(name)
	if desired.isPrepared(ns) && !drifted {
		e.setResult(name, nil)
		return nil
	}
	objects := desired.objects(id, ns)
	objects.mayExist = drifted || hasObjects(ns)
	objects.drifted = drifted
	err = e.applyAll(ctx, ns, desired, &objects)
	e.recordPublished(ns.Name, desired, &objects)
	if err == nil && objects.err == nil {
		err = e.release(ctx, id, ns, desired)
	}
	failed := errors.Join(err, objects.err)
	if !apierrors.IsConflict(err) { // otherwise, the namespace has changed since it was read
		e.setResult(name, failed)
	}
	if failed != nil {
		e.markDrifted(name) // the namespace may have objects that its annotation does not list
	}
	// objects.err is not returned, because retries cannot fix it. The drift check tries again.
	return err
}

// revokeFirst removes the rights that callers should no longer have in a namespace, and sets the
// labels of the Namespace. It adds no rights. It then queues the namespace for [Engine.prepare],
// which makes the remaining changes and retries failed removals.
func (e *Engine) revokeFirst(ctx context.Context, name string) error {
	if !e.begin(name) {
		e.revocations.AddAfter(name, busyDelay)
		return nil
	}
	defer e.updates.Add(name)
	defer e.end(name)
	ns, err := e.lister.Get(name)
	if err != nil {
		return nil //nolint:nilerr // prepare reports it
	}
	id := e.OwnerOf(ns)
	if ns.DeletionTimestamp != nil || id.IsZero() || id.IsSystem() {
		return nil
	}
	desired, known := e.desiredFor(ctx, id)
	if !known || desired.isPrepared(ns) {
		return nil
	}
	bindings, err := e.listBindings(ctx, ns.Name)
	if err == nil {
		_, err = e.revoke(ctx, ns, bindings, desired)
	}
	var rolesErr error
	if desired.mayHaveRoles(ns) {
		var roles map[string]*rbacv1.Role
		if roles, rolesErr = e.listRoles(ctx, ns); rolesErr == nil {
			_, rolesErr = e.revokeRoles(ctx, ns, roles, desired)
		}
	}
	if errors.Join(err, rolesErr, e.label(ctx, ns, desired)) != nil {
		e.markDrifted(name)
	}
	return nil
}

// losesRights reports whether a tenant's Tenant and TenantMembers no longer give a right that
// they gave at the last call for this tenant. It returns true at the first call, and if the
// content is not known.
func (e *Engine) losesRights(id tenant.ID) bool {
	e.comparing.Lock()
	defer e.comparing.Unlock()
	now, known := e.desiredFor(context.Background(), id)
	if !known {
		return true
	}
	before, compared := e.granted[id]
	rights := now.rights(e.seed)
	if e.granted[id] = rights; now.uid == "" {
		delete(e.granted, id)
	}
	return !compared || slices.ContainsFunc(before, func(right uint64) bool { return !slices.Contains(rights, right) })
}

// rights returns hashes of the rights that the content gives. The hashes are of each role with
// each subject, each rule of a Role, the Keystone domain, and each label. If two hashes collide,
// the removal of a right may only have a lower priority.
func (g *desiredState) rights(seed maphash.Seed) (all []uint64) {
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
	if g.domain != "" { // if the domain changes, the bindings for its projects are deleted
		all = append(all, maphash.String(seed, g.domain))
	}
	all = append(all, g.roleRights(seed)...)
	for key, value := range g.labels {
		all = append(all, maphash.Comparable(seed, [2]string{key, value}))
	}
	return all
}

// applyAll reads the managed objects in a namespace concurrently, and then writes all objects and
// labels. An error for some objects does not prevent the writes of other objects.
func (e *Engine) applyAll(ctx context.Context, ns *corev1.Namespace, desired *desiredState, objects *objects) error {
	var reading sync.WaitGroup
	var stored map[object]*unstructured.Unstructured
	var objectsErr error
	if objects.mayExist {
		reading.Go(func() { stored, objectsErr = e.listObjects(ctx, ns, e.kindsIn(ns, objects)) })
	}
	var roles map[string]*rbacv1.Role
	var rolesErr error
	if objects.mayExist || desired.mayHaveRoles(ns) {
		reading.Go(func() { roles, rolesErr = e.listRoles(ctx, ns) })
	}
	bindings, err := e.listBindings(ctx, ns.Name)
	reading.Wait()
	var revoked map[string]bool
	readRoles := rolesErr == nil
	if readRoles {
		revoked, rolesErr = e.revokeRoles(ctx, ns, roles, desired)
	}
	if err == nil {
		var taken error
		taken, err = e.apply(ctx, ns, bindings, desired)
		objects.err = errors.Join(objects.err, taken) // the error remains until the tenant deletes its own RoleBinding
	}
	if readRoles {
		taken, failed := e.addRoles(ctx, ns, roles, desired, revoked)
		objects.err = errors.Join(objects.err, taken) // the error remains until the tenant deletes its own Role
		rolesErr = errors.Join(rolesErr, failed)
	}
	if objectsErr == nil {
		objectsErr = e.applyObjects(ctx, ns, stored, objects)
		objects.applied = objectsErr == nil
	}
	return errors.Join(err, rolesErr, objectsErr, e.label(ctx, ns, desired))
}

// errStale reports that a Tenant has changed since it was read.
var errStale = errors.New("the Tenant has changed since it was read")

// release records on a Namespace that it is prepared. If Pods wait in the namespace, release
// first checks that desired is from the current versions of the Tenant and the Publications on
// the server. Otherwise, an engine with an outdated cache would release Pods before the objects
// of the templates exist.
func (e *Engine) release(ctx context.Context, id tenant.ID, ns *corev1.Namespace, desired *desiredState) error {
	if _, held := ns.Annotations[tenant.HeldAnnotation]; held {
		t, err := e.tenants.Get(ctx, cache.ObjectName{Name: id.ObjectName()})
		deleted := apierrors.IsNotFound(err) && desired.uid == ""
		if err != nil && !deleted {
			return err
		}
		if err == nil && (t.UID != desired.uid || t.Generation != desired.generation) {
			return errStale
		}
		if err := e.published.isCurrent(ctx); err != nil {
			return err
		}
	}
	return e.markPrepared(ctx, ns, desired)
}

// desiredFor returns the content that a tenant's Tenant, TenantMembers, templates and Publications
// specify. The second result is false if the content is not known. The caller then MUST NOT change
// anything.
func (e *Engine) desiredFor(ctx context.Context, id tenant.ID) (*desiredState, bool) {
	t, known := e.Tenants.Tenant(id)
	switch {
	case !known:
		return nil, false
	case t == nil:
		out := &desiredState{}
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
	out := e.desiredOf(ctx, id, t, members)
	out.templates = templates
	e.addPublished(id, out)
	return out, true
}
