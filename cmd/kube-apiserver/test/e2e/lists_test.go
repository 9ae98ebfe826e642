// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/kubernetes/pkg/controller/deployment"
	"k8s.io/kubernetes/pkg/controller/endpoint"
	"k8s.io/kubernetes/pkg/controller/endpointslice"
	"k8s.io/kubernetes/pkg/controller/replicaset"
	"k8s.io/kubernetes/pkg/controller/statefulset"

	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/test/waittest"
)

var widgets = schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"}

// widgetRights contains a role that lets tenants' admins use a custom resource.
const widgetRights = `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: { name: widgets, labels: { rbac.authorization.k8s.io/aggregate-to-admin: "true" } }
rules: [ { apiGroups: [example.com], resources: [widgets], verbs: ["*"] } ]
`

func widget(namespace, name string, labels map[string]any) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "example.com/v1",
		"kind":       "Widget",
		"metadata":   map[string]any{"name": name, "namespace": namespace, "labels": labels},
	}}
}

// TestObjectsStoredWithoutTenancy checks that the server corrects the tenant labels of objects that
// were stored without tenancy, some with another tenant's label. A tenant's lists over all
// namespaces must then contain all objects of the tenant, and no object of another owner.
func TestObjectsStoredWithoutTenancy(t *testing.T) {
	t.Parallel()
	const n = 1200 // more than two pages
	s := startServer(t, nil, "--tenancy=false")
	seedUnlabeled(t, s, n)
	s.restart(t)
	s.restart(t) // the server may stop at any point of the backfill, and continues it afterwards
	s.apply(t, widgetRights)
	s.mustKubectl(t, "admin", "apply", "-f", "../../../../examples/manifests/tenants.yaml")
	acme := s.client(t, "acme")
	var list *corev1.ConfigMapList
	waittest.Until(t, func() (err error) {
		list, err = acme.CoreV1().ConfigMaps("").List(t.Context(), metav1.ListOptions{})
		return err
	})
	seen := map[string]bool{}
	for _, o := range list.Items {
		seen[o.Name] = true
		if o.Namespace != "acme--old" || o.Labels[tenant.Label] != "acme" {
			t.Errorf("%s/%s with %v", o.Namespace, o.Name, o.Labels)
		}
	}
	for i := range n {
		if name := fmt.Sprintf("old-%d", i); !seen[name] {
			t.Fatalf("%s is missing", name)
		}
	}
	custom := s.dynamic(t, "acme")
	waittest.Until(t, func() error {
		got, err := custom.Resource(widgets).List(t.Context(), metav1.ListOptions{})
		if err == nil && (len(got.Items) != 1 || got.Items[0].GetName() != "own") {
			err = fmt.Errorf("widgets %v", got.Items)
		}
		return err
	})
	// The server also labels the objects of a namespace that is assigned to a tenant later.
	admin := s.client(t, "admin")
	patch := []byte(`{"metadata":{"labels":{"kubetenant.dev/tenant":"acme"}}}`)
	if _, err := admin.CoreV1().Namespaces().Patch(t.Context(), "unowned", types.MergePatchType,
		patch, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	waittest.Until(t, func() error {
		list, err := acme.CoreV1().ConfigMaps("").List(t.Context(),
			metav1.ListOptions{FieldSelector: "metadata.namespace=unowned,metadata.name=lies"})
		if err == nil && len(list.Items) != 1 {
			err = errors.New("the list does not contain the ConfigMap yet")
		}
		return err
	})
}

// seedUnlabeled creates objects of acme without the tenant label or with the label of globex. It
// also creates objects of other owners with the label of acme.
func seedUnlabeled(t *testing.T, s *server, n int) {
	t.Helper()
	s.apply(t, definitions)
	admin := s.client(t, "admin")
	custom := s.dynamic(t, "admin")
	for name, owner := range map[string]string{"acme--old": "acme", "globex--old": "globex", "unowned": ""} {
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{}}}
		if owner != "" {
			ns.Labels[tenant.Label] = owner
		}
		if _, err := admin.CoreV1().Namespaces().Create(t.Context(), ns, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	for i := range n {
		o := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("old-%d", i)}}
		if i%7 == 0 {
			o.Labels = map[string]string{tenant.Label: "globex"}
		}
		if _, err := admin.CoreV1().ConfigMaps("acme--old").Create(t.Context(), o, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	for _, namespace := range []string{"globex--old", "unowned", "kube-system"} {
		lie := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "lies", Labels: map[string]string{tenant.Label: "acme"}}}
		if _, err := admin.CoreV1().ConfigMaps(namespace).Create(t.Context(), lie, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	waittest.Until(t, func() error {
		_, err := custom.Resource(widgets).Namespace("acme--old").Create(t.Context(),
			widget("acme--old", "own", nil), metav1.CreateOptions{})
		if apierrors.IsAlreadyExists(err) {
			return nil
		}
		return err
	})
	if _, err := custom.Resource(widgets).Namespace("globex--old").Create(t.Context(),
		widget("globex--old", "lies", map[string]any{tenant.Label: "acme"}), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// TestListsOfClients checks that informers, watches and "kubectl get" over all namespaces work for
// a tenant, and return only the tenant's objects.
func TestListsOfClients(t *testing.T) {
	t.Parallel()
	s := startServer(t, nil)
	s.prepare(t)
	acme, globex := s.client(t, "acme"), s.client(t, "globex")
	waittest.Until(t, func() error {
		_, err := acme.CoreV1().ConfigMaps("").List(t.Context(), metav1.ListOptions{})
		return err
	})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	factory := informers.NewSharedInformerFactory(acme, 0)
	configMaps, namespaces := factory.Core().V1().ConfigMaps().Informer(), factory.Core().V1().Namespaces().Informer()
	factory.Start(ctx.Done())
	if !cache.WaitForCacheSync(ctx.Done(), configMaps.HasSynced, namespaces.HasSynced) {
		t.Fatal("informers have not synced")
	}
	watched := startKubectl(ctx, t, s, "", "get", "configmaps", "-A", "-w", "-o", "name")
	create := func(k *kubernetes.Clientset, namespace, name string) {
		t.Helper()
		if _, err := k.CoreV1().ConfigMaps(namespace).Create(t.Context(),
			&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	create(globex, "globex--shop", "theirs")
	create(acme, "acme--web", "ours")
	for !strings.Contains(watched.Text(), "ours") {
		if !watched.Scan() || strings.Contains(watched.Text(), "theirs") {
			t.Fatalf("kubectl get -A -w delivered %q", watched.Text())
		}
	}
	waittest.Until(t, func() error {
		if _, found, _ := configMaps.GetStore().GetByKey("acme--web/ours"); !found {
			return errors.New("the informer has not observed acme--web/ours")
		}
		return nil
	})
	for _, key := range configMaps.GetStore().ListKeys() {
		if !strings.HasPrefix(key, "acme--web/") {
			t.Errorf("the informer contains %s", key)
		}
	}
	if keys := namespaces.GetStore().ListKeys(); !slices.Equal(keys, []string{"acme--web"}) {
		t.Errorf("the informer contains namespaces %v", keys)
	}
	for _, args := range []string{
		"get all -A", "get configmaps -A", "get configmaps -A -o wide", "get configmaps -A -o yaml",
		"get configmaps -A --chunk-size=1",
		"get configmaps,secrets,serviceaccounts -A", "get events -A", "get configmaps -A --show-labels",
		"get configmaps -A -l a!=b", "get configmaps -A -l kubetenant.dev/tenant=globex",
	} {
		out, err := s.kubectl(t, "acme", strings.Fields(args)...)
		if err != nil || strings.Contains(out, "theirs") || strings.Contains(out, "globex--") ||
			strings.Contains(out, "kube-system ") {
			t.Errorf("%s: %v\n%s", args, err, out)
		}
		if strings.HasPrefix(args, "get configmaps -A") && !strings.Contains(args, "globex") &&
			!strings.Contains(out, "ours") {
			t.Errorf("%s does not list the tenant's object:\n%s", args, out)
		}
	}
	for _, id := range []string{"acme", "globex"} {
		s.apply(t, fmt.Sprintf("{apiVersion: kubetenant.dev/v1alpha1, kind: TenantQuota, metadata: {name: of-%s}, spec: "+
			"{tenant: %s, hard: {pods: 9}}}",
			id, id))
	}
	waittest.Until(t, func() error { // until the tenant can read its own quota
		for _, args := range []string{
			"get tenantquotas -o name", "get tenantquotas -o name --field-selector metadata.name=of-acme",
			"get tenantquota of-acme -o name",
		} {
			if out, err := s.kubectl(t, "acme", strings.Fields(args)...); err != nil ||
				strings.TrimSpace(out) != "tenantquota.kubetenant.dev/of-acme" {
				return fmt.Errorf("%s: %s", args, out)
			}
		}
		return nil
	})
	for _, args := range []string{
		"get tenantquotas --field-selector metadata.name=of-globex", "get tenantquota of-globex",
	} {
		if out, err := s.kubectl(t, "acme", strings.Fields(args)...); err == nil || strings.Contains(out, "globex   ") {
			t.Errorf("%s: %s", args, out)
		}
	}
	cancel()
	for watched.Scan() {
		if strings.Contains(watched.Text(), "theirs") {
			t.Errorf("kubectl get -A -w delivered %s", watched.Text())
		}
	}
}

// TestControllersDoNotFight checks that controllers of kube-controller-manager do not write objects
// endlessly because the server adds the tenant label.
func TestControllersDoNotFight(t *testing.T) {
	t.Parallel()
	s := startServer(t, nil)
	s.prepare(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	admin := s.client(t, "admin")
	written := follow(t, s.config(t, "admin"), "acme--web",
		slices.Concat(resources("", "services", "pods", "endpoints", "persistentvolumeclaims"),
			resources("apps", "deployments", "statefulsets", "replicasets", "controllerrevisions"),
			resources("discovery.k8s.io", "endpointslices"))...)
	runControllers(ctx, t, admin)
	template := `{ metadata: { labels: { app: web } }, spec: { containers: [ { name: c, image: i } ] } }`
	for _, text := range []string{
		`{ apiVersion: v1, kind: Service, metadata: { name: web, namespace: acme--web, labels: { app: web } }, ` +
			`spec: { selector: { app: web }, ports: [ { port: 80 } ] } }`,
		`{ apiVersion: v1, kind: Service, metadata: { name: headless, namespace: acme--web }, ` +
			`spec: { clusterIP: None, selector: { app: web }, ports: [ { port: 80 } ] } }`,
		`{ apiVersion: apps/v1, kind: Deployment, metadata: { name: web, namespace: acme--web }, ` +
			`spec: { replicas: 2, selector: { matchLabels: { app: web } }, template: ` + template + ` } }`,
		`{ apiVersion: apps/v1, kind: StatefulSet, metadata: { name: web, namespace: acme--web }, ` +
			`spec: { replicas: 1, serviceName: headless, selector: { matchLabels: { app: web } }, template: ` + template +
			`, volumeClaimTemplates: [ { metadata: { name: data }, spec: { accessModes: [ReadWriteOnce], ` +
			`resources: { requests: { storage: 1Gi } } } } ] } }`,
	} {
		s.apply(t, text)
	}
	waittest.Until(t, func() error {
		for kind, want := range map[string]int{
			"pods":                   3,
			"replicasets":            1,
			"endpointslices":         2,
			"endpoints":              2,
			"controllerrevisions":    1,
			"persistentvolumeclaims": 1,
		} {
			if got := len(versions(t, s, kind)); got != want {
				return fmt.Errorf("%s: %d, want %d", kind, got, want)
			}
		}
		return nil
	})
	written.awaitQuiet(t, time.Second)
	// This change makes every controller reconcile. A conflict between two writers would not end.
	for _, object := range []string{"service/web", "service/headless", "deployment/web", "statefulset/web"} {
		s.mustKubectl(t, "acme", "annotate", "-n", "acme--web", object, "look=again")
	}
	// These are the four annotated objects, and the ReplicaSet, to which a controller copies the
	// Deployment's annotations.
	if laterWrites := written.awaitQuiet(t, 3*time.Second); len(laterWrites) != 5 {
		t.Errorf("written again: %v, want five objects", laterWrites)
	}
	const kinds = "services,deployments,statefulsets,pods,replicasets,endpointslices,endpoints,controllerrevisions," +
		"persistentvolumeclaims"
	if out, err := s.kubectl(t, "admin", "get", strings.Replace(kinds, ",endpoints,", ",", 1), "-n", "acme--web", "-l",
		"kubetenant.dev/tenant!=acme", "-o", "name"); err != nil || strings.TrimSpace(out) != "" {
		t.Errorf("without the label: %v %s", err, out)
	}
}

// resources returns the given resources of a group, in version v1.
func resources(group string, names ...string) []schema.GroupVersionResource {
	var all []schema.GroupVersionResource
	for _, name := range names {
		all = append(all, schema.GroupVersionResource{Group: group, Version: "v1", Resource: name})
	}
	return all
}

func runControllers(ctx context.Context, t *testing.T, admin *kubernetes.Clientset) {
	t.Helper()
	factory := informers.NewSharedInformerFactory(admin, 0)
	core, apps := factory.Core().V1(), factory.Apps().V1()
	deployments, err := deployment.NewDeploymentController(ctx, apps.Deployments(), apps.ReplicaSets(), core.Pods(), admin)
	if err != nil {
		t.Fatal(err)
	}
	replicas := replicaset.NewReplicaSetController(ctx, apps.ReplicaSets(), core.Pods(), admin, 10)
	sets := statefulset.NewStatefulSetController(ctx, core.Pods(), apps.StatefulSets(), core.PersistentVolumeClaims(),
		apps.ControllerRevisions(), admin)
	endpointSlices := endpointslice.NewController(ctx, core.Pods(), core.Services(), core.Nodes(),
		factory.Discovery().V1().EndpointSlices(), 100, admin, 0)
	endpoints := endpoint.NewEndpointController(ctx, core.Pods(), core.Services(), core.Endpoints(), admin, 0)
	factory.Start(ctx.Done())
	go deployments.Run(ctx, 1)
	go replicas.Run(ctx, 1)
	go sets.Run(ctx, 1)
	go endpointSlices.Run(ctx, 1)
	go endpoints.Run(ctx, 1)
}

// versions returns the resourceVersion of each object of the given kinds in acme--web.
func versions(t *testing.T, s *server, kinds string) map[string]string {
	t.Helper()
	cmd := s.command(t.Context(), t, "kubectl", "admin", "get", kinds, "-n", "acme--web", "-o", "json")
	out, err := cmd.Output() // without the warnings about deprecated versions
	if err != nil {
		t.Fatal(err)
	}
	var list struct {
		Items []metav1.PartialObjectMetadata
	}
	if err := json.Unmarshal(out, &list); err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for _, o := range list.Items {
		all[o.Kind+"/"+o.Name] = o.ResourceVersion
	}
	return all
}
