// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package uninstall

import (
	"context"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/kubetenant/kubetenant/cluster/flowschemas"
	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

const (
	// leaseName is the name of the leader election Lease in kube-system or in the namespace of the
	// service.
	leaseName = "kubetenant-controller"
	// product is the name of the webhook configurations, the FlowSchema and the
	// PriorityLevelConfiguration, and the prefix of other names.
	product = "kubetenant"
)

// namedObjects identifies objects of a resource by name.
type namedObjects struct {
	resource schema.GroupVersionResource
	names    []string
}

func admission(resource string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "admissionregistration.k8s.io", Version: "v1", Resource: resource}
}

func rbac(resource string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: resource}
}

func core(resource string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Version: "v1", Resource: resource}
}

// remove deletes the objects that kubetenant installed, then its kinds with all their objects, and
// then its labels and annotations.
func (r *run) remove(ctx context.Context) error {
	r.step(6, "delete what kubetenant installed, its kinds with all their objects, and its labels and annotations")
	yes, err := r.confirm("Delete all Tenants, quotas, grants, templates and Publications, and the labels that assign " +
		"objects to tenants?")
	if err != nil {
		return err
	}
	if !yes {
		return fmt.Errorf("%w: the servers have changed, and the rest of kubetenant remains", ErrRefused)
	}
	namespaces, err := r.serviceNamespaces(ctx)
	if err != nil {
		return err
	}
	return r.inOrder(ctx,
		r.admissionObjects, // before the service: kube-apiserver rejects writes if it cannot call the service
		func(ctx context.Context) error { return r.service(ctx, namespaces) },
		r.allFinalizers, // the controller of the service may have added finalizers
		r.kinds,
		r.clusterObjects,
		r.labels,
		// last, because its namespace shows in which namespace the service ran
		func(ctx context.Context) error { return r.published(ctx, namespaces) },
	)
}

// admissionObjects deletes kubetenant's webhook configurations, and its
// ValidatingAdmissionPolicies with their bindings.
func (r *run) admissionObjects(ctx context.Context) error {
	for _, name := range []string{"mutatingwebhookconfigurations", "validatingwebhookconfigurations"} {
		if err := r.deleteAll(ctx, admission(name),
			func(u *unstructured.Unstructured) bool { return u.GetName() == product && onlyOurWebhooks(u) }); err != nil {
			return err
		}
	}
	for _, name := range []string{"validatingadmissionpolicybindings", "validatingadmissionpolicies"} {
		if err := r.deleteAll(ctx, admission(name),
			func(u *unstructured.Unstructured) bool { return strings.HasSuffix(u.GetName(), "."+tenant.Domain) }); err != nil {
			return err
		}
	}
	return nil
}

// onlyOurWebhooks reports whether all webhooks of a configuration belong to kubetenant.
func onlyOurWebhooks(u *unstructured.Unstructured) bool {
	webhooks, _, _ := unstructured.NestedSlice(u.Object, "webhooks")
	return !slices.ContainsFunc(webhooks, func(webhook any) bool {
		object, _ := webhook.(map[string]any)
		name, _, _ := unstructured.NestedString(object, "name")
		return !strings.HasSuffix(name, "."+tenant.Domain)
	})
}

// deleteAll deletes the objects of a resource for which ours returns true.
func (r *run) deleteAll(ctx context.Context, resource schema.GroupVersionResource,
	ours func(*unstructured.Unstructured) bool,
) error {
	var found []*unstructured.Unstructured
	if err := r.eachObject(ctx, resource, func(u *unstructured.Unstructured) {
		if ours(u) && u.GetDeletionTimestamp() == nil {
			found = append(found, u)
		}
	}); err != nil {
		return err
	}
	for _, u := range found {
		r.delete(ctx, r.Admin.Objects.Resource(resource).Namespace(u.GetNamespace()), u)
	}
	return nil
}

func (r *run) delete(ctx context.Context, objects dynamic.ResourceInterface, u *unstructured.Unstructured) {
	name := u.GetName()
	if u.GetNamespace() != "" {
		name = u.GetNamespace() + "/" + name
	}
	r.do(ctx, func(ctx context.Context) error { return objects.Delete(ctx, u.GetName(), deleteInBackground(u)) },
		"delete %s %s", u.GetKind(), name)
}

// deleteInBackground returns options that delete the object with the UID of u, not a new object
// with the same name. Its dependents are deleted, too.
func deleteInBackground(u *unstructured.Unstructured) metav1.DeleteOptions {
	opts := deleteOnly(u.GetUID())
	opts.PropagationPolicy = new(metav1.DeletePropagationBackground)
	return opts
}

// deleteNamed deletes objects in a namespace by their names. It ignores missing objects and
// resources.
func (r *run) deleteNamed(ctx context.Context, namespace string, objects namedObjects) error {
	for _, name := range objects.names {
		u, err := r.Admin.Objects.Resource(objects.resource).Namespace(namespace).Get(ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return fmt.Errorf("read %s %s/%s: %w", objects.resource.GroupResource(), namespace, name, err)
		}
		if u.GetDeletionTimestamp() == nil {
			r.delete(ctx, r.Admin.Objects.Resource(objects.resource).Namespace(namespace), u)
		}
	}
	return nil
}

// clusterNames returns the names of the ClusterRoles and ClusterRoleBindings that an installation
// contains, or that servers create.
func clusterNames() []string {
	return append(accounts(), "kubetenant-tenants", v1alpha1.NamespacesRole, v1alpha1.MemberRole)
}

// clusterObjects deletes the cluster-scoped objects that grant rights to kubetenant, or that limit
// its requests and those of tenants.
func (r *run) clusterObjects(ctx context.Context) error {
	isOwn := func(u *unstructured.Unstructured) bool {
		labels := u.GetLabels()
		return labels[tenant.ManagedLabel] != "" || labels[tenant.OfTenantLabel] != "" ||
			slices.Contains(clusterNames(), u.GetName())
	}
	for _, resource := range []schema.GroupVersionResource{rbac("clusterrolebindings"), rbac("clusterroles")} {
		if err := r.deleteAll(ctx, resource, isOwn); err != nil {
			return err
		}
	}
	isOwn = func(u *unstructured.Unstructured) bool {
		return u.GetName() == product || u.GetLabels()[tenant.ManagedLabel] == flowschemas.Source
	}
	for _, name := range []string{"flowschemas", "prioritylevelconfigurations"} {
		resource := schema.GroupVersionResource{Group: "flowcontrol.apiserver.k8s.io", Version: "v1", Resource: name}
		if err := r.deleteAll(ctx, resource, isOwn); err != nil {
			return err
		}
	}
	return nil
}
