// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package restored

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

// auditLogs finds the writes that are in the audit logs but not in the cluster.
func (c *check) auditLogs(ctx context.Context) error {
	log := newAuditLog()
	for _, path := range c.AuditLogs {
		if err := log.read(path); err != nil {
			c.recordUnread("audit log: %w", err)
		}
	}
	if log.invalid > 0 {
		c.recordUnread("audit log: %d lines are not audit events, so findings may be missing: the first is %s",
			log.invalid, log.firstInvalid)
	}
	if log.events == 0 {
		c.recordUnread(
			"audit log: %s: no audit events found: a log needs one audit.k8s.io/v1 event in JSON per line, with stage "+
				"ResponseComplete",
			strings.Join(c.AuditLogs, ", "),
		)
		return nil
	}
	sameCluster, err := c.isOfCluster(ctx, log)
	if err != nil {
		return err
	}
	if !sameCluster {
		c.recordUnread("audit log: %s: no service account of kube-system has a UID of the cluster: they %w",
			strings.Join(c.AuditLogs, ", "), errOtherCluster)
		return nil
	}
	rows := resources()
	for i := range rows {
		if err := c.compare(ctx, &rows[i], log); err != nil {
			return err
		}
	}
	return nil
}

// isOfCluster reports whether a log belongs to the cluster. The UIDs of the service accounts in
// kube-system identify a cluster, and a restore preserves them. If the log contains no such UID,
// isOfCluster returns true.
func (c *check) isOfCluster(ctx context.Context, log *auditLog) (bool, error) {
	if len(log.accounts) == 0 {
		return true, nil
	}
	found := false
	accounts := schema.GroupVersionResource{Version: "v1", Resource: "serviceaccounts"}
	err := eachObject(ctx, c.client, accounts, metav1.NamespaceSystem, metav1.ListOptions{},
		func(m *metav1.PartialObjectMetadata) { found = found || log.accounts[string(m.UID)] })
	return found, err
}

// compare compares the objects of a resource with the last write of each object in the audit logs.
func (c *check) compare(ctx context.Context, r *resource, log *auditLog) error {
	var keys []key
	for k, w := range log.last {
		if k.resource == r.GroupResource() && (!r.isOfService || k.namespace == c.Namespace) && (w.deleted || !r.deletions) {
			keys = append(keys, k)
		}
	}
	if len(keys) == 0 {
		return nil
	}
	slices.SortFunc(keys, key.compare)
	objects := map[key]object{}
	namespace := ""
	if r.isOfService {
		namespace = c.Namespace
	}
	err := eachObject(ctx, c.client, r.GroupVersionResource, namespace, metav1.ListOptions{},
		func(m *metav1.PartialObjectMetadata) {
			objects[key{r.GroupResource(), m.Namespace, m.Name}] = newObject(m)
		})
	switch {
	case apierrors.IsForbidden(err): // compare the other resources
		c.recordUnread("%s could not be compared: %s", r.Resource, err.Error())
		return nil
	case err != nil && !apierrors.IsNotFound(err): // the CustomResourceDefinition may be missing
		return fmt.Errorf("%s: %w", r.Resource, err)
	}
	for _, k := range keys {
		obj, exists := objects[k]
		if !exists &&
			(log.deletedWithNamespace(k) || r.Resource == v1alpha1.ResourceRetiredTenants && c.tenantExists(k.name, log)) {
			continue
		}
		var stored *object
		if exists {
			stored = &obj
		}
		c.compareObject(r, k, log.last[k], stored)
	}
	return nil
}

// compareObject adds a finding if the state of an object does not match its last write. obj is nil
// if the object does not exist.
func (c *check) compareObject(r *resource, k key, w write, obj *object) {
	name := k.name
	if k.namespace != "" {
		name = k.namespace + "/" + k.name
	}
	name = r.kind + " " + name
	when := fmt.Sprintf("at %s by %s", w.at.UTC().Format(time.RFC3339), w.by)
	// Managed fields have no fractions of a second.
	since := w.at.Truncate(time.Second)
	retired := r.Resource == v1alpha1.ResourceRetiredTenants
	if w.deleted {
		if obj != nil && !obj.deleting && !obj.managed && !obj.created.After(w.at) {
			c.find(name, "was deleted "+when+", but exists: "+r.recreatedEffect, deletion(r, k))
		}
		return
	}
	if isOfServer(w.by) && !retired || obj != nil && obj.managed {
		return
	}
	switch {
	case obj == nil && retired:
		c.find(name, "was created "+when+", but does not exist: "+r.olderEffect,
			"create it again, with the ID and the UID of its name in spec.id and spec.uid")
	case obj == nil:
		c.find(name, "was written "+when+", but does not exist", "create it again, or ignore this if its owner was deleted")
	case obj.written.Before(since) && !retired:
		c.find(
			name,
			"was written "+when+", but its last change is of "+obj.written.UTC().Format(time.RFC3339)+": "+r.olderEffect,
			"repeat the change: compare the object with its source, such as Git",
		)
	}
}

// deletedWithNamespace reports whether the namespace of an object was deleted after the last write
// of the object. In this case, Kubernetes deletes the object without an audit event for the object
// itself.
func (l *auditLog) deletedWithNamespace(k key) bool {
	w, found := l.last[key{namespaces().GroupResource(), "", k.namespace}]
	return k.namespace != "" && found && w.deleted && w.at.After(l.last[k].at)
}

// tenantExists reports whether the Tenant of a missing RetiredTenant exists. In this case, it adds
// a finding that the Tenant was deleted, unless the log contains the deletion of the Tenant. If
// the user deletes the Tenant again, the server creates the RetiredTenant.
func (c *check) tenantExists(retired string, log *auditLog) bool {
	for _, existing := range c.tenants.existing {
		if existing.name+"-"+existing.uid != retired {
			continue
		}
		r := compared(v1alpha1.Resource(v1alpha1.ResourceTenants))
		k := key{r.GroupResource(), "", existing.name}
		if w := log.last[k]; !w.deleted {
			created := log.last[key{v1alpha1.Resource(v1alpha1.ResourceRetiredTenants), "", retired}]
			created.deleted = true
			c.compareObject(r, k, created, &object{})
		}
		return true
	}
	return false
}

// isOfServer reports whether a user is a server or a controller that repeats its writes after a
// restore.
func isOfServer(user string) bool {
	switch name, ok := strings.CutPrefix(user, systemAccount); {
	case ok:
		return slices.Contains([]string{
			"clusterrole-aggregation-controller", "generic-garbage-collector", "namespace-controller",
			"service-account-controller",
		}, name)
	default:
		return user == "system:apiserver" || user == "system:kube-controller-manager" ||
			user == "system:serviceaccount:kubetenant-system:kubetenant-webhook"
	}
}

// deletion returns the command that deletes an object again.
func deletion(r *resource, k key) string {
	if r.Resource == v1alpha1.ResourceTenants {
		return "kubectl tenant delete-tenant " + argument(k.name)
	}
	resource := strings.ToLower(r.kind)
	command := "kubectl delete " + resource + " " + argument(k.name)
	if k.namespace != "" {
		command += " -n " + argument(k.namespace)
	}
	return command
}

// argument quotes a name for a shell if necessary. Names of RBAC objects may contain almost any
// character.
func argument(name string) string {
	const harmless = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_"
	if strings.Trim(name, harmless) == "" && name != "" && name[0] != '-' {
		return name
	}
	return "'" + strings.ReplaceAll(name, "'", `'\''`) + "'"
}
