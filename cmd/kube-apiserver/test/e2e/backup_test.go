// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/test/waittest"
)

// TestRestore restores a tenant's namespace in the default order of Velero, with the metadata that
// Velero restores (github.com/vmware-tanzu/velero pkg/cmd/server/config, defaultRestorePriorities,
// and pkg/restore, resetMetadata). It checks that the restored objects retain the recorded users
// only if the tool may impersonate the tenant's users. It also checks that no controller creates
// restored objects a second time.
func TestRestore(t *testing.T) { testRestore(t) }

func TestWebhookRestore(t *testing.T) { testRestore(t, "--webhook") }

// restoreOrder returns the resources of a namespace in the order in which they are restored.
// Velero's priorities come first, followed by the other resources by name.
func restoreOrder() []schema.GroupVersionResource {
	return slices.Concat(
		resources("", "serviceaccounts", "secrets", "configmaps", "limitranges", "pods"),
		resources("apps", "replicasets"),
		resources("", "services"),
		resources(
			"batch",
			"cronjobs",
		),
		resources("apps", "deployments"),
		resources("batch", "jobs"),
		resources("apps", "statefulsets"),
	)
}

func testRestore(t *testing.T, args ...string) {
	t.Parallel()
	s := startServer(t, nil, append([]string{"--workload-controllers"}, args...)...)
	s.prepare(t)
	acme, admin := s.client(t, "acme"), s.client(t, "admin")
	createWorkloads(t, acme, admin)
	velero := backupClient(t, s, "velero", true)
	poor := backupClient(t, s, "poor", false)
	human := func(reader dynamic.Interface) (creator, user string) {
		deployments := reader.Resource(resources("apps", "deployments")[0]).Namespace("acme--web")
		d, err := deployments.Get(t.Context(), "web", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		user, _, _ = unstructured.NestedString(d.Object, "spec", "template", "metadata", "annotations",
			tenant.WorkloadUserAnnotation)
		return d.GetAnnotations()[tenant.CreatorAnnotation], user
	}
	creator, user := human(velero)
	if creator == "" || user == "" {
		t.Fatalf("creator %q, user %q", creator, user)
	}
	backup := export(t, velero, restoreOrder())
	namespace, err := admin.CoreV1().Namespaces().Get(t.Context(), "acme--web", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for name, reader := range map[string]dynamic.Interface{"velero": velero, "poor": poor} {
		restore(t, reader, admin, namespace, backup)
		nowCreator, nowUser := human(velero)
		if unchanged := nowCreator == creator && nowUser == user; unchanged != (name == "velero") {
			t.Errorf("%s restored a Deployment of creator %s and user %s, which were %s and %s", name, nowCreator, nowUser,
				creator, user)
		}
		waittest.Until(t, func() error {
			list, err := admin.CoreV1().Pods("acme--web").List(t.Context(), metav1.ListOptions{LabelSelector: "app=web"})
			if err != nil || len(list.Items) != 2 {
				return fmt.Errorf("%d Pods: %w", len(list.Items), err)
			}
			for i := range list.Items {
				if metav1.GetControllerOf(&list.Items[i]) == nil {
					return fmt.Errorf("no controller adopted the Pod %s", list.Items[i].Name)
				}
			}
			return nil
		})
		follow(t, s.config(t, "admin"), "acme--web", resources("apps", "replicasets")...).awaitQuiet(t, time.Second)
		sets, err := admin.AppsV1().ReplicaSets("acme--web").List(t.Context(), metav1.ListOptions{})
		if err != nil || len(sets.Items) != 1 {
			t.Errorf("%s: %d ReplicaSets, want 1: %v", name, len(sets.Items), err)
		}
	}
}

// createWorkloads creates objects as a caller of the tenant, and waits for the Pods of the
// Deployment.
func createWorkloads(t *testing.T, acme, admin kubernetes.Interface) {
	t.Helper()
	waittest.Until(t, func() error {
		_, err := admin.CoreV1().ServiceAccounts("acme--web").Get(t.Context(), "default", metav1.GetOptions{})
		return err
	})
	never := podTemplate()
	never.Labels = map[string]string{"app": "once"}
	never.Spec.RestartPolicy = corev1.RestartPolicyNever
	suspended := true
	_, err := acme.AppsV1().Deployments("acme--web").Create(t.Context(), deploymentOf("web", 2), metav1.CreateOptions{})
	if err == nil {
		_, err = acme.CoreV1().ConfigMaps("acme--web").Create(t.Context(),
			&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "settings"}}, metav1.CreateOptions{})
	}
	if err == nil {
		_, err = acme.BatchV1().CronJobs("acme--web").Create(t.Context(), &batchv1.CronJob{
			ObjectMeta: metav1.ObjectMeta{Name: "nightly"},
			Spec: batchv1.CronJobSpec{
				Suspend:     &suspended,
				Schedule:    "0 0 1 1 *",
				JobTemplate: batchv1.JobTemplateSpec{Spec: batchv1.JobSpec{Template: never}},
			},
		}, metav1.CreateOptions{})
	}
	if err != nil {
		t.Fatal(err)
	}
	waittest.Until(t, func() error {
		list, err := admin.CoreV1().Pods("acme--web").List(t.Context(), metav1.ListOptions{LabelSelector: "app=web"})
		if err == nil && len(list.Items) != 2 {
			err = fmt.Errorf("%d Pods", len(list.Items))
		}
		return err
	})
}

// backupClient returns a client of a service account of the system tenant. The service account may
// write all objects. If restoresIdentity is true, it may also impersonate all users.
func backupClient(t *testing.T, s *server, name string, restoresIdentity bool) dynamic.Interface {
	t.Helper()
	ctx, admin := t.Context(), s.client(t, "admin")
	verbs := []string{"get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"}
	if restoresIdentity {
		verbs = append(verbs, "impersonate")
	}
	_, err := admin.CoreV1().ServiceAccounts("kube-system").Create(ctx,
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	if err == nil {
		_, err = admin.RbacV1().ClusterRoles().Create(ctx, &rbacv1.ClusterRole{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Rules:      []rbacv1.PolicyRule{{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: verbs}},
		}, metav1.CreateOptions{})
	}
	if err != nil {
		t.Fatal(err)
	}
	bind(t, admin, name, name, rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Name: name, Namespace: "kube-system"})
	quiet := s.impersonate(t, rest.ImpersonationConfig{UserName: "system:serviceaccount:kube-system:" + name})
	quiet.WarningHandler = rest.NoWarnings{}
	out := dynamicClient(t, quiet)
	waittest.Until(t, func() error {
		_, err := out.Resource(resources("", "configmaps")[0]).Namespace("acme--web").List(ctx, metav1.ListOptions{})
		return err
	})
	return out
}

// export returns the objects of the namespace as Velero restores them. They have no status, and
// their metadata consists of name, namespace, labels and annotations.
func export(
	t *testing.T, who dynamic.Interface, resources []schema.GroupVersionResource,
) [][]unstructured.Unstructured {
	t.Helper()
	out := make([][]unstructured.Unstructured, 0, len(resources))
	for _, r := range resources {
		list, err := who.Resource(r).Namespace("acme--web").List(t.Context(),
			metav1.ListOptions{LabelSelector: "!" + tenant.ManagedLabel})
		if err != nil {
			t.Fatal(err)
		}
		for i := range list.Items {
			o := &list.Items[i]
			labels := o.GetLabels()
			if labels == nil {
				labels = map[string]string{}
			}
			labels["velero.io/backup-name"], labels["velero.io/restore-name"] = "nightly", "again"
			metadata := map[string]any{"name": o.GetName(), "namespace": o.GetNamespace()}
			annotations := o.GetAnnotations()
			o.Object["metadata"] = metadata
			delete(o.Object, "status")
			o.SetLabels(labels)
			o.SetAnnotations(annotations)
			unstructured.RemoveNestedField(o.Object, "spec", "nodeName")
		}
		out = append(out, list.Items)
	}
	return out
}

// restore deletes the namespace, creates it again, and restores its objects with the client who.
func restore(
	t *testing.T, who dynamic.Interface, admin kubernetes.Interface, namespace *corev1.Namespace,
	backup [][]unstructured.Unstructured,
) {
	t.Helper()
	ctx := t.Context()
	if err := admin.CoreV1().Namespaces().Delete(ctx, namespace.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	waittest.Until(t, func() error {
		_, err := admin.CoreV1().Namespaces().Get(ctx, namespace.Name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("the namespace is not deleted: %w", err)
	})
	namespaces := resources("", "namespaces")[0]
	recreated := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Namespace"}}
	recreated.SetName(namespace.Name)
	recreated.SetLabels(namespace.Labels)
	recreated.SetAnnotations(namespace.Annotations)
	if _, err := who.Resource(namespaces).Create(ctx, recreated, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for i, r := range restoreOrder() {
		for j := range backup[i] {
			o := &backup[i][j]
			_, err := who.Resource(r).Namespace(namespace.Name).Create(ctx, o.DeepCopy(), metav1.CreateOptions{})
			if err != nil && !apierrors.IsAlreadyExists(err) { // the cluster's controllers create some objects
				t.Errorf("restore %s %s: %v", r.Resource, o.GetName(), err)
			}
			if apierrors.IsAlreadyExists(err) && !strings.Contains("default kube-root-ca.crt", o.GetName()) {
				t.Errorf("%s %s exists before its restore", r.Resource, o.GetName())
			}
		}
	}
}
