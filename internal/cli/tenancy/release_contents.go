// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package tenancy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

// podGrace is the grace period for a deleted Pod, in seconds. It replaces the period that the Pod
// specifies.
const podGrace = 30

// defaultAccount is the ServiceAccount that kube-controller-manager creates in every namespace.
const defaultAccount = "default"

// blocking returns the resources through which a former tenant could retain access to a namespace,
// in the order of their deletion. The resources that create Pods are first. Otherwise, their
// controllers would create the Pods again, for the system tenant.
func blocking() []schema.GroupVersionResource {
	apps := schema.GroupVersion{Group: "apps", Version: "v1"}
	batch := schema.GroupVersion{Group: "batch", Version: "v1"}
	return []schema.GroupVersionResource{
		batch.WithResource("cronjobs"), batch.WithResource("jobs"),
		apps.WithResource("deployments"), apps.WithResource("statefulsets"),
		apps.WithResource("daemonsets"), apps.WithResource("replicasets"),
		corev1.SchemeGroupVersion.WithResource("replicationcontrollers"),
		corev1.SchemeGroupVersion.WithResource("pods"), corev1.SchemeGroupVersion.WithResource("persistentvolumeclaims"),
		v1alpha1.SchemeGroupVersion.WithResource(v1alpha1.ResourceAccessGrants),
		corev1.SchemeGroupVersion.WithResource("secrets"),
		rbacv1.SchemeGroupVersion.WithResource("rolebindings"), corev1.SchemeGroupVersion.WithResource("serviceaccounts"),
	}
}

// customResources returns the namespaced resources that the server serves and that are not part of
// Kubernetes. Their controllers may create Pods, so these resources also block a release.
func customResources(d discovery.DiscoveryInterface) ([]schema.GroupVersionResource, error) {
	all, err := Resources(d, "list", "delete")
	if err != nil {
		return nil, fmt.Errorf("find custom resources: %w", refusal(err))
	}
	known := blocking()
	return slices.DeleteFunc(all, func(r schema.GroupVersionResource) bool {
		return scheme.Scheme.IsGroupRegistered(r.Group) || slices.Contains(known, r)
	}), nil
}

// blocker is an object that blocks a release.
type blocker struct {
	resource  schema.GroupVersionResource
	namespace string
	name      string
	uid       types.UID
	// finalizers contains the object's finalizers. They block the deletion of the object.
	finalizers []string
	// kind is the kind of the object.
	kind string
	// managed reports whether only the server may delete the object.
	managed bool
}

// deleted reports that an object was deleted.
func (r *Release) deleted(h *blocker) {
	r.Changes.PrintDeleted(schema.GroupKind{Group: h.resource.Group, Kind: h.kind}, h.namespace, h.name)
}

func newBlocker(resource schema.GroupVersionResource, o *unstructured.Unstructured) blocker {
	_, managed := o.GetLabels()[tenant.ManagedLabel]
	return blocker{
		resource:   resource,
		namespace:  o.GetNamespace(),
		name:       o.GetName(),
		uid:        o.GetUID(),
		finalizers: o.GetFinalizers(),
		kind:       o.GetKind(),
		managed:    managed,
	}
}

// writer returns the client with which an object may be deleted.
func (r *Release) writer(h *blocker) dynamic.Interface {
	if h.managed {
		return r.Manager.Dynamic
	}
	return r.Objects
}

// String implements [fmt.Stringer].
func (h blocker) String() string {
	return fmt.Sprintf("%s/%s in namespace %s", h.resource.GroupResource(), h.name, h.namespace)
}

// contents returns the objects that block the release of a namespace. It omits the ServiceAccount
// default, because the release recreates it. It also omits the RoleBindings that the server
// manages, and the copies of Publications.
func (r *Release) contents(ctx context.Context, name string) ([]blocker, error) {
	var found []blocker
	// Custom resources are first, because their controllers may create objects of the other resources.
	for _, resource := range slices.Concat(r.custom, blocking()) {
		objects, err := list(ctx, r.Objects, resource, name, metav1.ListOptions{})
		if err != nil {
			return nil, err
		}
		for i := range objects {
			o := &objects[i]
			_, managed := o.GetLabels()[tenant.ManagedLabel]
			if managed && resource.Resource == "rolebindings" || isDefaultAccount(resource, o.GetName()) || r.isCopy(o) {
				continue
			}
			found = append(found, newBlocker(resource, o))
		}
	}
	return found, nil
}

// warnOfRemaining warns of the objects that will remain in a namespace after its release.
func (r *Release) warnOfRemaining(ctx context.Context, name string) error {
	resources, err := Resources(r.Kube.Discovery(), "list")
	if err != nil {
		return fmt.Errorf("discover the resources of the server: %w", refusal(err))
	}
	deleted := slices.Concat(r.custom, blocking())
	var found []blocker
	for _, resource := range resources {
		if slices.Contains(deleted, resource) {
			continue
		}
		objects, err := list(ctx, r.Objects, resource, name, metav1.ListOptions{})
		if err != nil {
			return err
		}
		for i := range objects {
			if o := &objects[i]; !isEverywhere(resource, o.GetName(), o.GetLabels()) {
				found = append(found, newBlocker(resource, o))
			}
		}
	}
	if len(found) > 0 {
		r.Warn("these objects of the tenant remain in namespace %s; check them: %s", name, summary(found))
	}
	return nil
}

// isDefaultAccount reports whether an object is the ServiceAccount default.
func isDefaultAccount(resource schema.GroupVersionResource, name string) bool {
	return resource.Group == "" && resource.Resource == "serviceaccounts" && name == defaultAccount
}

// list returns the objects of a resource in a namespace. It returns no objects if the server does
// not serve the resource.
func list(
	ctx context.Context, d dynamic.Interface, resource schema.GroupVersionResource, namespace string, o metav1.ListOptions,
) ([]unstructured.Unstructured, error) {
	all, err := d.Resource(resource).Namespace(namespace).List(ctx, o)
	switch {
	case apierrors.IsNotFound(err), apierrors.IsMethodNotSupported(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("list %s in namespace %s: %w", resource.GroupResource(), namespace, refusal(err))
	}
	return all.Items, nil
}

// clear starts the deletion of the objects that block the release of a namespace. It does not wait.
func (r *Release) clear(ctx context.Context, name string) error {
	found, err := r.contents(ctx, name)
	if err != nil {
		return err
	}
	for i := range found {
		if err := remove(ctx, r.writer(&found[i]), &found[i]); err != nil {
			return err
		}
		r.deleted(&found[i])
	}
	return nil
}

// clearAll deletes the objects that block the release of a namespace, and waits until they no
// longer exist. It removes their finalizers, because the tenant may have set them. It waits at
// most [releaseTimeout].
func (r *Release) clearAll(ctx context.Context, name string) error {
	reported := map[types.UID]bool{}
	for begun := time.Now(); ; {
		found, err := r.contents(ctx, name)
		switch {
		case err != nil || len(found) == 0:
			return err
		case time.Since(begun) > releaseTimeout:
			return fmt.Errorf("%w: namespace %s still contains %s: the tenant no longer has access to it, run the command again",
				ErrNamespaceNotEmpty, name, summary(found))
		}
		for i := range found {
			h := &found[i]
			if err := errors.Join(remove(ctx, r.writer(h), h), r.removeFinalizers(ctx, h)); err != nil {
				return err
			}
			if !reported[h.uid] {
				reported[h.uid] = true
				r.deleted(h)
			}
		}
		if err := pause(ctx, releaseCheckInterval); err != nil {
			return err
		}
	}
}

// remove deletes an object. The UID prevents the deletion of a new object with the same name.
func remove(ctx context.Context, d dynamic.Interface, h *blocker) error {
	background := metav1.DeletePropagationBackground
	o := metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(h.uid)), PropagationPolicy: &background}
	if h.resource.Resource == "pods" {
		o.GracePeriodSeconds = new(int64(podGrace))
	}
	err := d.Resource(h.resource).Namespace(h.namespace).Delete(ctx, h.name, o)
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		// The object no longer exists. If a new object has the same name, the next pass deletes it.
		return nil
	}
	return refusal(err)
}

// removeFinalizers removes the finalizers of an object.
func (r *Release) removeFinalizers(ctx context.Context, h *blocker) error {
	if len(h.finalizers) == 0 {
		return nil
	}
	patch := []byte(fmt.Sprintf(`{"metadata":{"uid":%q,"finalizers":null}}`, h.uid))
	_, err := r.writer(h).Resource(h.resource).Namespace(h.namespace).Patch(ctx, h.name, types.MergePatchType,
		patch, metav1.PatchOptions{})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return refusal(err)
}

// recreateAccount recreates the ServiceAccount default, so that the tokens of the old
// ServiceAccount are no longer valid.
func (r *Release) recreateAccount(ctx context.Context, name string) error {
	accounts := r.Kube.CoreV1().ServiceAccounts(name)
	old, err := accounts.Get(ctx, defaultAccount, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err): // an earlier run deleted the ServiceAccount
		old = &corev1.ServiceAccount{}
	case err != nil:
		return refusal(err)
	default:
		h := &blocker{
			resource:   corev1.SchemeGroupVersion.WithResource("serviceaccounts"),
			namespace:  name,
			name:       defaultAccount,
			uid:        old.UID,
			finalizers: old.Finalizers,
			kind:       rbacv1.ServiceAccountKind,
		}
		if err := errors.Join(remove(ctx, r.Objects, h), r.removeFinalizers(ctx, h)); err != nil {
			return err
		}
	}
	for begun := time.Now(); ; {
		_, err := accounts.Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: defaultAccount}},
			metav1.CreateOptions{})
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return refusal(err)
		}
		now, err := accounts.Get(ctx, defaultAccount, metav1.GetOptions{})
		switch {
		case err == nil && now.UID != old.UID:
			r.Printf("serviceaccounts/default in namespace %s recreated", name)
			return nil
		case err != nil && !apierrors.IsNotFound(err):
			return refusal(err)
		case time.Since(begun) > releaseTimeout:
			return fmt.Errorf("%w: serviceaccounts/default in namespace %s is still being deleted: run the command again",
				ErrNamespaceNotEmpty, name)
		}
		if err := pause(ctx, releaseCheckInterval); err != nil {
			return err
		}
	}
}

// managedResources returns the resources whose objects the server creates in tenants' namespaces.
func managedResources() []schema.GroupVersionResource {
	core := corev1.SchemeGroupVersion
	return []schema.GroupVersionResource{
		rbacv1.SchemeGroupVersion.WithResource("rolebindings"),
		rbacv1.SchemeGroupVersion.WithResource("roles"),
		core.WithResource("secrets"),
		core.WithResource("configmaps"),
		core.WithResource("limitranges"),
		core.WithResource("resourcequotas"),
		{Group: "networking.k8s.io", Version: "v1", Resource: "networkpolicies"},
	}
}

// deleteManaged deletes the objects that the server manages for the tenant. It impersonates
// [tenant.ManagerUser], because admission does not allow other users to delete them.
func (r *Release) deleteManaged(ctx context.Context, name string) error {
	for _, resource := range slices.Concat(managedResources(), r.custom) {
		objects, err := list(ctx, r.Objects, resource, name, metav1.ListOptions{LabelSelector: tenant.ManagedLabel})
		if err != nil {
			return err
		}
		for i := range objects {
			h := newBlocker(resource, &objects[i])
			if err := retryNotObserved(func() error { return remove(ctx, r.Manager.Dynamic, &h) }); err != nil {
				return err
			}
			r.deleted(&h)
		}
	}
	return nil
}

// publishing returns the annotations with which the server publishes an object of the system
// tenant.
func publishing() []string { return []string{tenant.PublishAnnotation, tenant.PublishedAnnotation} }

// unlabel removes the tenant label and the given annotations from the remaining objects. If the
// namespace now belongs to the system tenant, the caller passes the annotations from [publishing].
// Otherwise, the server would publish objects that the former tenant wrote.
func (r *Release) unlabel(ctx context.Context, name string, annotations ...string) error {
	resources, err := Resources(r.Kube.Discovery(), "list", "patch")
	if err != nil {
		return err
	}
	var all metav1.ListOptions
	if len(annotations) == 0 {
		all.LabelSelector = tenant.Label
	}
	for _, resource := range resources {
		objects, err := list(ctx, r.Objects, resource, name, all)
		if err != nil {
			return err
		}
		for i := range objects {
			patch := r.unlabelPatch(&objects[i], annotations)
			if patch == nil {
				continue
			}
			err := retryNotObserved(func() error {
				_, err := r.Objects.Resource(resource).Namespace(name).Patch(ctx, objects[i].GetName(), types.MergePatchType,
					patch, metav1.PatchOptions{})
				return err
			})
			if err != nil && !apierrors.IsNotFound(err) {
				return fmt.Errorf("remove the labels and annotations of kubetenant from %s/%s in namespace %s: %w",
					resource.GroupResource(), objects[i].GetName(), name, refusal(err))
			}
		}
	}
	return nil
}

// unlabelPatch returns the patch for [Release.unlabel], or nil if the object needs no patch. If a
// Publication refers to the object, the patch does not remove [tenant.PublishedAnnotation]. The
// removal would confirm content that the former tenant wrote.
func (r *Release) unlabelPatch(o *unstructured.Unstructured, annotations []string) []byte {
	metadata := map[string]map[string]any{}
	if _, ok := o.GetLabels()[tenant.Label]; ok {
		metadata["labels"] = map[string]any{tenant.Label: nil}
	}
	removed := map[string]any{}
	for _, key := range annotations {
		_, ok := o.GetAnnotations()[key]
		if ok && (key == tenant.PublishAnnotation || !r.isPublished(o)) {
			removed[key] = nil
		}
	}
	if len(removed) > 0 {
		metadata["annotations"] = removed
	}
	if len(metadata) == 0 {
		return nil
	}
	patch, err := json.Marshal(map[string]any{"metadata": metadata})
	if err != nil {
		panic(err) // a map with string keys is always encoded
	}
	return patch
}
