// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package tenancy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/util/retry"

	configv1alpha1 "github.com/kubetenant/kubetenant/config/v1alpha1"
	"github.com/kubetenant/kubetenant/internal/cli/output"
	"github.com/kubetenant/kubetenant/internal/kube"
	"github.com/kubetenant/kubetenant/internal/simulate/simulator"
	"github.com/kubetenant/kubetenant/internal/stack"
	"github.com/kubetenant/kubetenant/tenant"
)

// Adoption assigns namespaces without a tenant, and the objects in them, to a tenant.
type Adoption struct {
	Tenant tenant.ID
	Kube   kube.Interface
	// Objects is the client that reads and labels the objects in the namespaces.
	Objects dynamic.Interface
	// Config is the server's configuration. It determines which objects the server would reject.
	Config *configv1alpha1.Settings
	// If DryRun is true, nothing is labeled. If Server is also true, the server validates the label
	// of each namespace without storing it.
	DryRun, Server bool
	// Changes reports each adopted namespace. If nil, changes are not reported.
	Changes *output.Changes
	// Printf prints explanations. Warnf prints warnings, such as the objects that the server would
	// reject.
	Printf, Warnf func(format string, args ...any)
}

// Check returns the namespace if it can be adopted. A system namespace, a namespace of another
// tenant, and a namespace that is being released or deleted cannot be adopted. The error may wrap
// [ErrRefused].
func (a *Adoption) Check(ctx context.Context, name string) (*corev1.Namespace, error) {
	ns, err := a.Kube.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, refusal(err)
	}
	owner, labelled := ns.Labels[tenant.Label]
	formerTenant, releasing := ns.Annotations[tenant.ReleasingAnnotation]
	switch {
	case labelled && owner != a.Tenant.String():
		return nil, fmt.Errorf("%w: namespace %s already belongs to tenant %s: move its objects to a new namespace, or run "+
			"kubectl tenant release %s",
			ErrRefused, name, owner, name)
	case releasing:
		return nil, fmt.Errorf("%w: namespace %s is being released from tenant %s: run kubectl tenant release %s first",
			ErrRefused, name, formerTenant, name)
	case strings.HasPrefix(name, "kube-") || name == metav1.NamespaceDefault ||
		slices.Contains(a.Config.Authorization.SystemNamespaces, name):
		return nil, fmt.Errorf("%w: namespace %s is a system namespace", ErrRefused, name)
	case ns.DeletionTimestamp != nil:
		return nil, fmt.Errorf("%w: namespace %s is being deleted", ErrRefused, name)
	}
	return ns, nil
}

// Adopt labels the namespace and its objects. It warns of each object that the tenant's callers
// could not create. These objects remain, but the server may reject changes to them. Adopt returns
// the number of these objects.
func (a *Adoption) Adopt(ctx context.Context, ns *corev1.Namespace) (refused int, err error) {
	if ns.Labels[podSecurity] == "" {
		a.Warnf("namespace %s does not have the label %s, which new namespaces of tenants get: set it when its Pods comply",
			ns.Name, podSecurity)
	}
	judge, err := a.refusalFunc(ctx, ns)
	if err != nil {
		return 0, err
	}
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"labels": map[string]string{tenant.Label: a.Tenant.String()}},
	})
	if err != nil {
		return 0, err
	}
	// Label the namespace first, so that every new object belongs to the tenant.
	if err := a.labelNamespace(ctx, ns); err != nil {
		return 0, err
	}
	if err := a.warnOfBindings(ctx, ns.Name); err != nil {
		return 0, err
	}
	resources, err := Resources(a.Kube.Discovery(), "list", "patch")
	if err != nil {
		return 0, err
	}
	objects, labeled := 0, 0
	for _, r := range resources {
		list, err := a.Objects.Resource(r).Namespace(ns.Name).List(ctx, metav1.ListOptions{})
		if apierrors.IsNotFound(err) || apierrors.IsMethodNotSupported(err) {
			continue
		}
		if err != nil {
			return refused, fmt.Errorf("list %s: %w", r.GroupResource(), refusal(err))
		}
		for i := range list.Items {
			obj := &list.Items[i]
			if reason := judge(r, obj); reason != "" {
				refused++
				a.Warnf("%s %s/%s: %s", r.GroupResource(), ns.Name, obj.GetName(), reason)
			}
			objects++
			if obj.GetLabels()[tenant.Label] == a.Tenant.String() {
				continue
			}
			labeled++
			if a.DryRun {
				a.Printf("%s/%s in namespace %s would be labeled", r.GroupResource(), obj.GetName(), ns.Name)
				continue
			}
			if err := a.label(ctx, r, obj, patch); err != nil {
				return refused, fmt.Errorf("label %s %s/%s: %w", r.GroupResource(), ns.Name, obj.GetName(), refusal(err))
			}
		}
	}
	if labeled == 0 && ns.Labels[tenant.Label] != "" {
		a.Changes.Print(namespaceKind, ns.Name, output.Unchanged)
		return refused, nil
	}
	a.Changes.Print(namespaceKind, ns.Name, output.Adopted)
	a.Printf("objects in namespace %s: %d, newly labeled: %d", ns.Name, objects, labeled)
	return refused, nil
}

// labelNamespace labels a Namespace, unless it has changed since it was read.
func (a *Adoption) labelNamespace(ctx context.Context, ns *corev1.Namespace) error {
	if ns.Labels[tenant.Label] != "" || a.DryRun && !a.Server {
		return nil
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid":             ns.UID,
		"resourceVersion": ns.ResourceVersion,
		"labels":          map[string]string{tenant.Label: a.Tenant.String()},
	}})
	if err != nil {
		return err
	}
	o := metav1.PatchOptions{}
	if a.DryRun {
		o.DryRun = []string{metav1.DryRunAll}
	}
	_, err = a.Kube.CoreV1().Namespaces().Patch(ctx, ns.Name, types.MergePatchType, patch, o)
	return refusal(err)
}

// CheckTenant returns an error if a tenant has no Tenant object, because the tenant's name is
// probably misspelled. The error wraps [ErrNoTenant] if the tenant also owns no namespaces,
// otherwise [ErrRefused].
func (a *Adoption) CheckTenant(ctx context.Context) error {
	_, err := a.Objects.Resource(tenantObjects).Get(ctx, a.Tenant.ObjectName(), metav1.GetOptions{})
	if !apierrors.IsNotFound(err) {
		return refusal(err)
	}
	if err := CheckExists(ctx, a.Kube, a.Objects, a.Tenant); err != nil {
		return fmt.Errorf("%w (use --force to adopt anyway)", err)
	}
	return fmt.Errorf("%w: tenant %s has no Tenant object: create it with kubectl tenant create-tenant (use --force to "+
		"adopt anyway)",
		ErrRefused, a.Tenant)
}

// label labels an object if it still exists. It retries if the server has not yet observed the new
// owner of the namespace, or has not yet added the object to the usage of the tenant's quota.
func (a *Adoption) label(
	ctx context.Context, r schema.GroupVersionResource, obj *unstructured.Unstructured, patch []byte,
) error {
	err := retryNotObserved(func() error {
		_, err := a.Objects.Resource(r).Namespace(obj.GetNamespace()).Patch(ctx, obj.GetName(), types.MergePatchType,
			patch, metav1.PatchOptions{})
		return err
	})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// retryNotObserved retries a request that a server rejects, because the server may not yet have
// observed the owner of the namespace.
func retryNotObserved(do func() error) error {
	passing := func(err error) bool {
		return apierrors.IsForbidden(err) || apierrors.IsTooManyRequests(err) || errors.Is(err, ErrRefused)
	}
	return retry.OnError(notObservedBackoff(), passing, do)
}

// notObservedBackoff waits at most about six seconds in total until a server observes the new
// label of a namespace.
func notObservedBackoff() wait.Backoff {
	return wait.Backoff{Duration: 50 * time.Millisecond, Factor: 2, Steps: 8}
}

// warnOfBindings warns of ClusterRoleBindings that bind the namespace's service accounts. After
// the adoption, the boundary limits the rights of these service accounts to the tenant's
// namespaces.
func (a *Adoption) warnOfBindings(ctx context.Context, namespace string) error {
	all, err := a.Kube.RbacV1().ClusterRoleBindings().List(ctx, metav1.ListOptions{})
	if err != nil {
		return refusal(err)
	}
	for i := range all.Items {
		for _, s := range all.Items[i].Subjects {
			if s.Kind == rbacv1.ServiceAccountKind && s.Namespace == namespace {
				a.Warnf("ClusterRoleBinding %s binds %s to service account %s: from now on, the binding only applies in the "+
					"tenant's namespaces",
					all.Items[i].Name, all.Items[i].RoleRef.Name, s.Name)
			}
		}
	}
	return nil
}

// refusalFunc returns a function that returns why the tenant's callers could not create an object
// in the adopted namespace, or "" if they could. The function runs the server's own admission
// plugins.
func (a *Adoption) refusalFunc(
	ctx context.Context, ns *corev1.Namespace,
) (func(schema.GroupVersionResource, *unstructured.Unstructured) string, error) {
	all, err := a.Kube.CoreV1().Namespaces().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, refusal(err)
	}
	snapshot := simulator.NewSnapshot()
	owned := ns.DeepCopy()
	owned.Labels = map[string]string{tenant.Label: a.Tenant.String()}
	for _, each := range append(all.Items, *owned) { // for duplicate names, the last namespace applies
		if err := snapshot.Add(&each); err != nil {
			return nil, err
		}
	}
	stack, err := simulator.New(ctx, a.Config, snapshot, nil, nil)
	if err != nil {
		return nil, err
	}
	caller := &user.DefaultInfo{
		Name:   "a caller of the tenant",
		Groups: []string{user.AllAuthenticated, tenant.GroupPrefix + a.Tenant.String()},
		Extra:  map[string][]string{tenant.ExtraKey: {a.Tenant.String()}},
	}
	return func(r schema.GroupVersionResource, obj *unstructured.Unstructured) string {
		if controller := metav1.GetControllerOf(obj); controller != nil || isEverywhere(r, obj.GetName(), obj.GetLabels()) {
			return "" // its controller is checked instead, or every namespace has the object
		}
		if s := foreignSubject(stack, obj, ns.Name, a.Tenant); s != "" {
			return s
		}
		return refusalFor(ctx, stack.Admission, asCreated(obj), r, caller)
	}, nil
}

// asCreated returns the object as a user would create it, without the fields that the server and
// the admission plugins of kubetenant set.
func asCreated(obj *unstructured.Unstructured) *unstructured.Unstructured {
	out := obj.DeepCopy()
	for _, path := range [][]string{
		{"metadata", "uid"},
		{"metadata", "resourceVersion"},
		{"metadata", "creationTimestamp"},
		{"metadata", "managedFields"},
		{"status"},
	} {
		unstructured.RemoveNestedField(out.Object, path...)
	}
	if out.GetKind() == "Pod" { // the scheduler set the node
		unstructured.RemoveNestedField(out.Object, "spec", "nodeName")
	}
	removePluginAnnotations(out.Object)
	return out
}

// removePluginAnnotations removes the annotations that the admission plugins of kubetenant set
// from the object and from the templates in it.
func removePluginAnnotations(object map[string]any) {
	for key, value := range object {
		below, ok := value.(map[string]any)
		if !ok {
			continue
		}
		if key == "annotations" {
			maps.DeleteFunc(below, func(name string, _ any) bool {
				return strings.HasPrefix(name, tenant.Domain+"/") || name == tenant.WorkloadUserAnnotation
			})
		}
		removePluginAnnotations(below)
	}
}

// refusalFor returns why the caller could not create the object, or "" if it could.
func refusalFor(
	ctx context.Context,
	plugins []stack.Plugin,
	obj *unstructured.Unstructured,
	r schema.GroupVersionResource,
	caller user.Info,
) string {
	attributes := admission.NewAttributesRecord(obj, nil, obj.GroupVersionKind(), obj.GetNamespace(), obj.GetName(), r, "",
		admission.Create, nil, true, caller)
	for _, p := range plugins {
		if p.Last || !p.Handles(admission.Create) {
			continue // this is the quota, whose usage already includes existing objects
		}
		if m, ok := p.Interface.(admission.MutationInterface); ok {
			if err := m.Admit(ctx, attributes, nil); err != nil {
				return err.Error()
			}
		}
		if v, ok := p.Interface.(admission.ValidationInterface); ok {
			if err := v.Validate(ctx, attributes, nil); err != nil {
				return err.Error()
			}
		}
	}
	return ""
}

// foreignSubject returns a message about a subject of a RoleBinding whose requests the boundary
// will deny. It returns "" if there is no such subject.
func foreignSubject(stack *stack.Stack, obj *unstructured.Unstructured, namespace string, id tenant.ID) string {
	if obj.GetKind() != "RoleBinding" || obj.GroupVersionKind().Group != rbacv1.GroupName {
		return ""
	}
	subjects, _, _ := unstructured.NestedSlice(obj.Object, "subjects")
	for _, s := range subjects {
		subject, _ := s.(map[string]any)
		kind, _ := subject["kind"].(string)
		name, _ := subject["name"].(string)
		home, _ := subject["namespace"].(string)
		if home == "" {
			home = namespace
		}
		if kind != rbacv1.ServiceAccountKind || home == namespace {
			continue
		}
		owner, err := stack.ServiceAccountTenant(context.Background(), home)
		if err == nil && owner != id && !owner.IsSystem() || err != nil {
			return fmt.Sprintf("service account %s/%s belongs to another tenant and loses its access: to restore it, create "+
				"an AccessGrant",
				home, name)
		}
	}
	return ""
}
