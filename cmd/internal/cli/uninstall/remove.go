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

	"github.com/kubetenant/kubetenant/plugins/managed"
	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

const (
	// leaseName is the name of the Lease of whichever process leads, in kube-system or in the namespace of the service.
	leaseName = "kubetenant-controller"
	// product is the name of the webhook configurations, the FlowSchema and the PriorityLevelConfiguration, and the
	// prefix of other names.
	product = "kubetenant"
)

// named is a resource and the names of some of its objects.
type named struct {
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

// accounts returns the names of the service accounts that are installed. Their roles and bindings have the same names.
func accounts() []string {
	return []string{"kubetenant-webhook", "kubetenant-controller", "kubetenant-certificates", "kubetenant-gateway-reader",
		"kubetenant-gateway-impersonator"}
}

// programs returns the names of the programs that run in the namespace of the service.
func programs() []string {
	return []string{"kubetenant-webhook", "kubetenant-controller", "kubetenant-certificates"}
}

// service returns the objects of the webhook service in the order of their deletion: the workloads first.
func service() []named {
	apps := schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}
	monitoring := func(resource string) schema.GroupVersionResource {
		return schema.GroupVersionResource{Group: "monitoring.coreos.com", Version: "v1", Resource: resource}
	}
	return []named{
		{apps, programs()},
		{core("services"), programs()},
		{schema.GroupVersionResource{Group: "policy", Version: "v1", Resource: "poddisruptionbudgets"}, programs()},
		{schema.GroupVersionResource{Group: "networking.k8s.io", Version: "v1", Resource: "networkpolicies"}, programs()},
		{monitoring("servicemonitors"), programs()},
		{monitoring("prometheusrules"), programs()},
		{rbac("rolebindings"), accounts()},
		{rbac("roles"), accounts()},
		{core("serviceaccounts"), accounts()},
		{core("secrets"), []string{"kubetenant-webhook-config", "kubetenant-webhook-ca", "kubetenant-webhook-tls"}},
		{core("configmaps"), []string{"kubetenant-webhook-client-ca", "kubetenant-webhook-ca", "kubetenant-swept"}},
		{schema.GroupVersionResource{Group: "coordination.k8s.io", Version: "v1", Resource: "leases"}, []string{leaseName,
			"kubetenant-certificates"}},
	}
}

// remove deletes what kubetenant installed, then its kinds with all their objects, then its labels and annotations.
func (r *run) remove(ctx context.Context) error {
	r.step(6, "delete what kubetenant installed, its kinds with all their objects, and its labels and annotations")
	yes, err := r.confirm("Delete all Tenants, quotas, grants and templates, and the labels that say which tenant owns " +
		"what?")
	if err != nil {
		return err
	}
	if !yes {
		return fmt.Errorf("%w: the servers have changed, and the rest of kubetenant stays", ErrRefused)
	}
	namespaces, err := r.serviceNamespaces(ctx)
	if err != nil {
		return err
	}
	return r.inOrder(ctx,
		r.admissionObjects, // before the service: kube-apiserver refuses writes if it cannot call the service
		func(ctx context.Context) error { return r.service(ctx, namespaces) },
		r.finalizersAgain,
		r.kinds,
		r.clusterObjects,
		r.labels,
		func(ctx context.Context) error { return r.published(ctx, namespaces) }, // last: its namespace shows where the service ran
	)
}

// serviceNamespaces returns the namespaces in which objects of the service may be.
func (r *run) serviceNamespaces(ctx context.Context) ([]string, error) {
	list, err := r.Admin.Objects.Resource(core("configmaps")).List(ctx,
		metav1.ListOptions{FieldSelector: "metadata.name=" + v1alpha1.PublishedName})
	if err != nil {
		return nil, fmt.Errorf("list ConfigMaps %s: %w", v1alpha1.PublishedName, err)
	}
	all := slices.Clone(r.ServiceNamespaces)
	for i := range list.Items {
		if namespace := list.Items[i].GetNamespace(); r.owners.of[namespace] == "" { // a tenant may create such a ConfigMap itself
			all = append(all, namespace)
		}
	}
	slices.Sort(all)
	all = slices.DeleteFunc(slices.Compact(all),
		func(namespace string) bool { return namespace == metav1.NamespaceSystem })
	return append(all, metav1.NamespaceSystem), nil // last: the progress is recorded there
}

// admissionObjects deletes the webhook configurations, and the policies with their bindings.
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

// onlyOurWebhooks reports whether all webhooks of a configuration belong to the project.
func onlyOurWebhooks(u *unstructured.Unstructured) bool {
	webhooks, _, _ := unstructured.NestedSlice(u.Object, "webhooks")
	return !slices.ContainsFunc(webhooks, func(webhook any) bool {
		object, _ := webhook.(map[string]any)
		name, _, _ := unstructured.NestedString(object, "name")
		return !strings.HasSuffix(name, "."+tenant.Domain)
	})
}

// deleteAll deletes the project's objects of a resource.
func (r *run) deleteAll(ctx context.Context, resource schema.GroupVersionResource,
	ours func(*unstructured.Unstructured) bool) error {
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

// deleteInBackground limits a deletion to the object with a UID, and also deletes the objects that it owns.
func deleteInBackground(u *unstructured.Unstructured) metav1.DeleteOptions {
	opts := deleteOnly(u.GetUID())
	opts.PropagationPolicy = new(metav1.DeletePropagationBackground)
	return opts
}

// deleteNamed deletes objects of a namespace by their names. It ignores a resource that the server does not serve.
func (r *run) deleteNamed(ctx context.Context, namespace string, objects named) error {
	for _, name := range objects.names {
		u, err := r.Admin.Objects.Resource(objects.resource).Namespace(namespace).Get(ctx, name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
		case err != nil:
			return fmt.Errorf("read %s %s/%s: %w", objects.resource.GroupResource(), namespace, name, err)
		case u.GetDeletionTimestamp() == nil:
			r.delete(ctx, r.Admin.Objects.Resource(objects.resource).Namespace(namespace), u)
		}
	}
	return nil
}

// service deletes the objects of the webhook service. It waits until the Pods have ended, since the controller would
// write again.
func (r *run) service(ctx context.Context, namespaces []string) error {
	for _, namespace := range namespaces {
		for i, objects := range service() {
			if err := r.deleteNamed(ctx, namespace, objects); err != nil {
				return err
			}
			if i == 0 {
				if err := r.awaitPods(ctx, namespace); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// awaitPods waits until no Pod of the service is left in a namespace.
func (r *run) awaitPods(ctx context.Context, namespace string) error {
	for said := false; !r.DryRun; said = true {
		left := 0
		list, err := r.Admin.Kube.CoreV1().Pods(namespace).List(ctx,
			metav1.ListOptions{LabelSelector: "app.kubernetes.io/name in (" + strings.Join(programs(), ",") + ")"})
		if err != nil {
			return fmt.Errorf("list the Pods of the service: %w", err)
		}
		if left = len(list.Items); left == 0 {
			return nil
		}
		if !said {
			r.Say("  waiting for %d Pods of the service in namespace %s to end", left, namespace)
		}
		if err := r.pause(ctx); err != nil {
			return err
		}
	}
	return nil
}

// finalizersAgain removes the finalizers that the controller of the webhook service added while it ran.
func (r *run) finalizersAgain(ctx context.Context) error {
	if r.DryRun {
		return nil
	}
	return r.finalizers(ctx)
}

// clusterObjects deletes the cluster-scoped objects that give kubetenant its own rights or limit its requests.
func (r *run) clusterObjects(ctx context.Context) error {
	ours := func(u *unstructured.Unstructured) bool {
		return strings.HasPrefix(u.GetName(), managed.NamePrefix) || u.GetName() == "kubetenant-tenants" ||
			slices.Contains(accounts(), u.GetName())
	}
	for _, resource := range []schema.GroupVersionResource{rbac("clusterrolebindings"), rbac("clusterroles")} {
		if err := r.deleteAll(ctx, resource, ours); err != nil {
			return err
		}
	}
	for _, name := range []string{"flowschemas", "prioritylevelconfigurations"} {
		resource := schema.GroupVersionResource{Group: "flowcontrol.apiserver.k8s.io", Version: "v1", Resource: name}
		if err := r.deleteAll(ctx, resource,
			func(u *unstructured.Unstructured) bool { return u.GetName() == product }); err != nil {
			return err
		}
	}
	return nil
}

// kinds deletes the definitions of kubetenant's kinds, and waits until they are gone with all their objects.
func (r *run) kinds(ctx context.Context) error {
	ours := map[string]bool{}
	for _, resource := range kinds() {
		ours[resource.GroupResource().String()] = true
	}
	is := func(u *unstructured.Unstructured) bool { return ours[u.GetName()] }
	if err := r.deleteAll(ctx, definitions, is); err != nil || r.DryRun {
		return err
	}
	const looks = 30
	for look := 0; ; look++ {
		var left []string
		if err := r.eachObject(ctx, definitions, func(u *unstructured.Unstructured) {
			if is(u) {
				left = append(left, u.GetName())
			}
		}); err != nil {
			return err
		}
		switch {
		case len(left) == 0:
			return nil
		case look == looks:
			return fmt.Errorf("%w: these definitions are not gone, since another finalizer holds their objects: %s", ErrRefused,
				strings.Join(left, ", "))
		}
		if err := r.pause(ctx); err != nil {
			return err
		}
	}
}
