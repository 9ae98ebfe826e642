// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package tenancy_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/kubetenant/kubetenant/internal/cli/output"
	"github.com/kubetenant/kubetenant/internal/cli/tenancy"
	"github.com/kubetenant/kubetenant/tenant"
)

// withSettings is a cluster whose discovery returns only ConfigMaps and a custom resource.
type withSettings struct{ kubernetes.Interface }

func (w withSettings) Discovery() discovery.DiscoveryInterfaces {
	return settingsOnly{w.Interface.Discovery()}
}

type settingsOnly struct{ discovery.DiscoveryInterfaces }

func (settingsOnly) ServerPreferredNamespacedResources() ([]*metav1.APIResourceList, error) {
	return []*metav1.APIResourceList{
		{
			GroupVersion: "v1",
			APIResources: []metav1.APIResource{
				{
					Name:       "configmaps",
					Kind:       "ConfigMap",
					Namespaced: true,
					Verbs:      metav1.Verbs{"list", "patch", "delete"},
				},
			},
		},
		{
			GroupVersion: "example.com/v1",
			APIResources: []metav1.APIResource{
				{
					Name:       "rollouts",
					Kind:       "Rollout",
					Namespaced: true,
					Verbs:      metav1.Verbs{"list", "patch", "delete"},
				},
			},
		},
	}, nil
}

// errInterrupted interrupts a release at a write.
var errInterrupted = errors.New("interrupted")

// releaseFixture is a cluster with the namespace web of the tenant acme.
type releaseFixture struct {
	kube    *fake.Clientset
	objects *dynamicfake.FakeDynamicClient
	output  []string
	// writes is the number of writes before the write that fails. If negative, no write fails.
	writes int
}

func inWeb(apiVersion, kind, name string, labels map[string]any) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": apiVersion,
		"kind":       kind,
		"metadata": map[string]any{
			"namespace": "web",
			"name":      name,
			"uid":       kind + name,
			"labels":    labels,
		},
	}}
}

func newReleaseFixture(objects ...runtime.Object) *releaseFixture {
	w := &releaseFixture{writes: -1}
	w.kube = fake.NewClientset(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name:        "web",
		UID:         "web-uid",
		Labels:      map[string]string{tenant.Label: "acme", "env": "x"},
		Annotations: map[string]string{tenant.PreparedAnnotation: "hash"},
	}},
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default", Namespace: "web", UID: "old"}})
	kinds := map[schema.GroupVersionResource]string{}
	for resource, kind := range map[string]string{
		"batch/v1/cronjobs":                         "CronJob",
		"batch/v1/jobs":                             "Job",
		"apps/v1/deployments":                       "Deployment",
		"apps/v1/statefulsets":                      "StatefulSet",
		"apps/v1/daemonsets":                        "DaemonSet",
		"apps/v1/replicasets":                       "ReplicaSet",
		"/v1/replicationcontrollers":                "ReplicationController",
		"/v1/pods":                                  "Pod",
		"/v1/secrets":                               "Secret",
		"rbac.authorization.k8s.io/v1/rolebindings": "RoleBinding",
		"rbac.authorization.k8s.io/v1/roles":        "Role",
		"/v1/serviceaccounts":                       "ServiceAccount",
		"kubetenant.dev/v1alpha1/accessgrants":      "AccessGrant",
		"/v1/configmaps":                            "ConfigMap",
		"/v1/limitranges":                           "LimitRange",
		"/v1/resourcequotas":                        "ResourceQuota",
		"networking.k8s.io/v1/networkpolicies":      "NetworkPolicy",
		"kubetenant.dev/v1alpha1/tenants":           "Tenant",
		"kubetenant.dev/v1alpha1/publications":      "Publication",
		"/v1/persistentvolumeclaims":                "PersistentVolumeClaim",
		"example.com/v1/rollouts":                   "Rollout",
	} {
		part := strings.Split(resource, "/")
		kinds[schema.GroupVersionResource{Group: part[0], Version: part[1], Resource: part[2]}] = kind + "List"
	}
	w.objects = dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), kinds, objects...)
	w.objects.PrependReactor("delete", "serviceaccounts", func(a clienttesting.Action) (bool, runtime.Object, error) {
		name := a.(clienttesting.DeleteAction).GetName()
		if name != "default" { // both clients represent the same cluster
			return false, nil, nil
		}
		return true, nil, w.kube.Tracker().Delete(a.GetResource(), "web", name)
	})
	uids := 0
	// Sets a UID, like the server.
	w.kube.PrependReactor("create", "serviceaccounts", func(a clienttesting.Action) (bool, runtime.Object, error) {
		uids++
		a.(clienttesting.CreateAction).GetObject().(*corev1.ServiceAccount).UID = types.UID(fmt.Sprint("new-", uids))
		return false, nil, nil
	})
	interrupt := func(a clienttesting.Action) (bool, runtime.Object, error) {
		if slices.Contains([]string{"get", "list"}, a.GetVerb()) {
			return false, nil, nil
		}
		w.writes--
		return w.writes == -1, nil, errInterrupted
	}
	w.kube.PrependReactor("*", "*", interrupt)
	w.objects.PrependReactor("*", "*", interrupt)
	return w
}

func (w *releaseFixture) release() *tenancy.Release {
	return &tenancy.Release{
		Kube:    withSettings{w.kube},
		Objects: w.objects,
		Manager: tenancy.Manager{Kube: w.kube, Dynamic: w.objects},
		System:  []string{"kube-system"},
		Writing: tenancy.Writing{
			Changes: output.NewChanges(lines{&w.output}, "", ""),
			Printf:  func(format string, args ...any) { w.output = append(w.output, fmt.Sprintf(format, args...)) },
		},
		Warn: func(format string, args ...any) {
			w.output = append(w.output, "warning: "+fmt.Sprintf(format, args...))
		},
	}
}

func (w *releaseFixture) namespace(t *testing.T) *corev1.Namespace {
	t.Helper()
	ns, err := w.kube.CoreV1().Namespaces().Get(t.Context(), "web", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return ns
}

// TestReleaseAfterAnyInterruption checks that a second run completes a release that was
// interrupted at any write. Until then, the namespace has the annotation
// [tenant.ReleasingAnnotation].
func TestReleaseAfterAnyInterruption(t *testing.T) {
	synctest.Test(t, interruptions)
}

func interruptions(t *testing.T) {
	own := map[string]any{tenant.Label: "acme"}
	for at := 0; ; at++ {
		managed := map[string]any{tenant.Label: "acme", tenant.ManagedLabel: "tenant"}
		w := newReleaseFixture(inWeb("v1", "Pod", "p", own), inWeb("v1", "Secret", "s", own),
			inWeb("v1", "ConfigMap", "kept", own), inWeb("example.com/v1", "Rollout", "r", own),
			inWeb("v1", "PersistentVolumeClaim", "c", own),
			inWeb("rbac.authorization.k8s.io/v1", "RoleBinding", "kubetenant:admin", managed),
			inWeb("v1", "LimitRange", "given", managed))
		w.writes = at
		r := w.release()
		r.Force = true
		err := r.Run(t.Context(), "web")
		ns := w.namespace(t)
		_, labeled := ns.Labels[tenant.Label]
		if err != nil && !labeled && ns.Annotations[tenant.ReleasingAnnotation] != "acme" {
			t.Errorf("interrupted at write %d: labels %v, annotations %v", at, ns.Labels, ns.Annotations)
		}
		done := err == nil
		if !done && r.Run(t.Context(), "web") != nil {
			t.Fatalf("the run after an interruption at write %d fails", at)
		}
		w.check(t, at)
		if done {
			if at < 5 {
				t.Errorf("unexpected number of writes %d", at)
			}
			return
		}
	}
}

// check checks the objects and the namespace after a complete release.
func (w *releaseFixture) check(t *testing.T, at int) {
	t.Helper()
	if ns := w.namespace(t); len(ns.Annotations) != 0 || len(ns.Labels) != 1 || ns.Labels["env"] != "x" {
		t.Errorf("write %d: labels %v, annotations %v", at, ns.Labels, ns.Annotations)
	}
	account, err := w.kube.CoreV1().ServiceAccounts("web").Get(t.Context(), "default", metav1.GetOptions{})
	if err != nil || account.UID == "old" {
		t.Errorf("write %d: the ServiceAccount default: %v, %v", at, account, err)
	}
	rollouts, err := w.objects.Resource(schema.GroupVersionResource{
		Group:    "example.com",
		Version:  "v1",
		Resource: "rollouts",
	}).Namespace("web").List(t.Context(), metav1.ListOptions{})
	if err != nil || len(rollouts.Items) > 0 {
		t.Errorf("write %d: rollouts: %v, %v", at, rollouts, err)
	}
	for _, resource := range []string{"pods", "secrets", "limitranges", "persistentvolumeclaims", "configmaps"} {
		all, err := w.objects.Resource(corev1.SchemeGroupVersion.WithResource(resource)).Namespace("web").List(t.Context(),
			metav1.ListOptions{})
		if err != nil || len(all.Items) > 0 && (resource != "configmaps" || all.Items[0].GetLabels()[tenant.Label] != "") {
			t.Errorf("write %d: %s: %v, %v", at, resource, all, err)
		}
	}
}

// TestReleaseRefuses checks that an object of each kind through which a tenant could retain access
// blocks a release, and that nothing is written.
func TestReleaseRefuses(t *testing.T) {
	synctest.Test(t, refusals)
}

func refusals(t *testing.T) {
	forged := map[string]any{tenant.ManagedLabel: "tenant"}
	for name, c := range map[string]struct {
		object *unstructured.Unstructured
		blocks bool
	}{
		"a Pod":                                {inWeb("v1", "Pod", "x", nil), true},
		"a Secret":                             {inWeb("v1", "Secret", "x", nil), true},
		"a Secret with a forged managed label": {inWeb("v1", "Secret", "x", forged), true},
		"a ServiceAccount":                     {inWeb("v1", "ServiceAccount", "x", nil), true},
		"the ServiceAccount default":           {inWeb("v1", "ServiceAccount", "default", nil), false},
		"a RoleBinding":                        {inWeb("rbac.authorization.k8s.io/v1", "RoleBinding", "x", nil), true},
		"a managed RoleBinding":                {inWeb("rbac.authorization.k8s.io/v1", "RoleBinding", "x", forged), false},
		"an AccessGrant":                       {inWeb("kubetenant.dev/v1alpha1", "AccessGrant", "x", nil), true},
		"a Deployment without Pods":            {inWeb("apps/v1", "Deployment", "x", nil), true},
		"a CronJob":                            {inWeb("batch/v1", "CronJob", "x", nil), true},
		"a PersistentVolumeClaim":              {inWeb("v1", "PersistentVolumeClaim", "x", nil), true},
		"a custom resource":                    {inWeb("example.com/v1", "Rollout", "x", nil), true},
		"a ConfigMap":                          {inWeb("v1", "ConfigMap", "x", nil), false},
		"a managed NetworkPolicy":              {inWeb("networking.k8s.io/v1", "NetworkPolicy", "x", forged), false},
	} {
		w := newReleaseFixture(c.object)
		err := w.release().Run(t.Context(), "web")
		_, labeled := w.namespace(t).Labels[tenant.Label]
		if errors.Is(err, tenancy.ErrNamespaceNotEmpty) != c.blocks || !c.blocks && err != nil || labeled != c.blocks {
			t.Errorf("%s: %v, labeled %v", name, err, labeled)
		}
	}
}

// TestReleaseAndARace checks that a release is reverted if an object is created between the check
// and the removal of the label. The namespace is then held as before.
func TestReleaseAndARace(t *testing.T) {
	w := newReleaseFixture()
	held := w.namespace(t)
	held.Annotations[tenant.HeldAnnotation] = "true"
	if err := w.kube.Tracker().Update(corev1.SchemeGroupVersion.WithResource("namespaces"), held, ""); err != nil {
		t.Fatal(err)
	}
	w.kube.PrependReactor("patch", "namespaces", func(clienttesting.Action) (bool, runtime.Object, error) {
		_ = w.objects.Tracker().Add(inWeb("v1", "Secret", "late", nil))
		return false, nil, nil
	})
	err := w.release().Run(t.Context(), "web")
	ns := w.namespace(t)
	if !errors.Is(err, tenancy.ErrNamespaceNotEmpty) || ns.Labels[tenant.Label] != "acme" ||
		ns.Annotations[tenant.ReleasingAnnotation] != "" || ns.Annotations[tenant.HeldAnnotation] != "true" {
		t.Errorf("Run() = %v; labels %v, annotations %v", err, ns.Labels, ns.Annotations)
	}
}

// TestReleaseWithoutWrites checks that nothing is written in a dry run, if Confirm returns an
// error, or for a namespace without a tenant.
func TestReleaseWithoutWrites(t *testing.T) {
	no := errors.New("no")
	for name, change := range map[string]func(*releaseFixture, *tenancy.Release) string{
		"dry run": func(_ *releaseFixture, r *tenancy.Release) string { r.ClientDryRun = true; return "web" },
		"not confirmed": func(_ *releaseFixture, r *tenancy.Release) string {
			r.Confirm = func(_, former string) error { return errors.Join(no, errors.New(former)) }
			return "web"
		},
		"no tenant": func(w *releaseFixture, _ *tenancy.Release) string {
			_ = w.kube.Tracker().Add(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "plain"}})
			return "plain"
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newReleaseFixture()
			r := w.release()
			w.writes = 0
			err := r.Run(t.Context(), change(w, r))
			if errors.Is(err, errInterrupted) || (err != nil) != (name == "not confirmed") ||
				err != nil && !strings.Contains(err.Error(), "acme") {
				t.Errorf("%v", err)
			}
			if w.writes != 0 ||
				name == "no tenant" && !slices.Equal(w.output, []string{"namespace/plain unchanged"}) {
				t.Errorf("%d writes, printed %q", -w.writes, w.output)
			}
		})
	}
}

// TestReleaseOfASystemNamespace checks that the label of a system namespace is removed, and that
// its objects remain.
func TestReleaseOfASystemNamespace(t *testing.T) {
	w := newReleaseFixture(inWeb("v1", "Pod", "scheduler", map[string]any{tenant.Label: "acme"}))
	r := w.release()
	r.System, r.Force = []string{"web"}, true
	if err := r.Run(t.Context(), "web"); err != nil {
		t.Fatal(err)
	}
	pods, err := w.objects.Resource(corev1.SchemeGroupVersion.WithResource("pods")).Namespace("web").List(t.Context(),
		metav1.ListOptions{})
	account, accountErr := w.kube.CoreV1().ServiceAccounts("web").Get(t.Context(), "default", metav1.GetOptions{})
	if _, labeled := w.namespace(t).Labels[tenant.Label]; labeled || err != nil || len(pods.Items) != 1 ||
		accountErr != nil || account.UID != "old" {
		t.Errorf("labeled %v, pods %v, account %v", labeled, pods, account)
	}
	if !strings.HasPrefix(w.output[0], "warning: namespace web is a system namespace") {
		t.Errorf("printed %q", w.output)
	}
}

// TestReleaseListsWhatRemains checks that the objects that remain in the namespace are reported.
func TestReleaseListsWhatRemains(t *testing.T) {
	w := newReleaseFixture(inWeb("v1", "ConfigMap", "kept", nil), inWeb("v1", "ConfigMap", "kube-root-ca.crt", nil),
		inWeb("v1", "ConfigMap", "given", map[string]any{tenant.ManagedLabel: "tenant"}))
	r := w.release()
	r.Confirm = func(string, string) error { return errInterrupted }
	if err := r.Run(t.Context(), "web"); !errors.Is(err, errInterrupted) || len(w.output) != 1 ||
		!strings.HasSuffix(w.output[0], ": configmaps: 1 (kept)") {
		t.Errorf("%v, printed %q", err, w.output)
	}
}

// TestReleaseAndOpenWatches checks that a release is rejected if the server does not end watches.
// With Force, the release only warns.
func TestReleaseAndOpenWatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newReleaseFixture()
		r := w.release()
		r.WatchesContinue = true
		w.writes = 0
		if err := r.Run(t.Context(), "web"); !errors.Is(err, tenancy.ErrRefused) ||
			!strings.Contains(err.Error(), "open watches") || w.writes != 0 {
			t.Errorf("Run() = %v, %d writes", err, -w.writes)
		}
		w.writes, r.Force = -1, true
		err := r.Run(t.Context(), "web")
		if _, labeled := w.namespace(t).Labels[tenant.Label]; err != nil || labeled ||
			!strings.HasPrefix(w.output[0], "warning: ") || !strings.Contains(w.output[0], "open watches") {
			t.Errorf("forced: %v, labeled %t, printed %q", err, labeled, w.output)
		}
	})
}

// TestReleaseRestoresLabels checks that a release restores the former values of labels that the
// Tenant specified. The Pod Security level remains if the namespace had no level before.
func TestReleaseRestoresLabels(t *testing.T) {
	for record, level := range map[string]string{
		`{"a":null,"team":"own","pod-security.kubernetes.io/enforce":"baseline"}`: "baseline",
		`{"a":null,"team":"own","pod-security.kubernetes.io/enforce":null}`:       "restricted",
	} {
		t.Run(record, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newReleaseFixture()
				ns := w.namespace(t)
				maps.Copy(ns.Labels, map[string]string{
					"a": "1", "team": "given", "pod-security.kubernetes.io/enforce": "restricted",
				})
				ns.Annotations[tenant.GivenLabelsAnnotation] = record
				if err := w.kube.Tracker().Update(corev1.SchemeGroupVersion.WithResource("namespaces"), ns, ""); err != nil {
					t.Fatal(err)
				}
				if err := w.release().Run(t.Context(), "web"); err != nil {
					t.Fatal(err)
				}
				ns = w.namespace(t)
				want := map[string]string{"env": "x", "team": "own", "pod-security.kubernetes.io/enforce": level}
				if !maps.Equal(ns.Labels, want) || ns.Annotations[tenant.GivenLabelsAnnotation] != "" {
					t.Errorf("the labels are %v, want %v; the annotations are %v", ns.Labels, want, ns.Annotations)
				}
			})
		})
	}
}
