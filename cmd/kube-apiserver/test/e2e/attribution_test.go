// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/test/waittest"
)

func podTemplate() corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "web"}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}},
	}
}

func deploymentOf(name string, replicas int32) *appsv1.Deployment {
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas,
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}},
			Template: podTemplate(),
		},
	}
}

// TestWorkloadsRecordTheirUser checks that a Pod of a controller records the controller as its
// creator, and the user of the Deployment or Job as its workload user. It also checks that no
// controller updates objects endlessly, even if the configuration sets systemUsers.
func TestWorkloadsRecordTheirUser(t *testing.T) {
	testWorkloadsRecordTheirUser(t, certificatesConfig)
}

func TestWebhookWorkloadsRecordTheirUser(t *testing.T) {
	testWorkloadsRecordTheirUser(t, groupsConfig, "--webhook")
}

const velerosConfig = `admission:
  attribution: { workloadUser: { systemUsers: [ "system:serviceaccount:velero:velero" ], foreign: Restamp } }
`

func testWorkloadsRecordTheirUser(t *testing.T, config string, args ...string) {
	t.Parallel()
	s := startServer(t, map[string]string{"tenancy.yaml": config + velerosConfig},
		append([]string{"--workload-controllers"}, args...)...)
	s.prepare(t)
	acme, admin := s.client(t, "acme"), s.client(t, "admin")
	waittest.Until(t, func() error { // until the namespace has its default service account
		_, err := admin.CoreV1().ServiceAccounts("acme--web").Get(t.Context(), "default", metav1.GetOptions{})
		return err
	})
	made, err := acme.AppsV1().Deployments("acme--web").Create(t.Context(), deploymentOf("web", 2), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	human := made.Annotations[tenant.CreatorAnnotation]
	var creator struct {
		User, Tenant string
		Groups       []string
	}
	if err := json.Unmarshal([]byte(human), &creator); err != nil || creator.User == "" || creator.Tenant != "acme" {
		t.Fatalf("creator %s: %v", human, err)
	}
	user, err := json.Marshal(map[string]any{"groups": creator.Groups, "user": creator.User})
	if err != nil {
		t.Fatal(err)
	}
	if got := made.Spec.Template.Annotations[tenant.WorkloadUserAnnotation]; !sameJSON(t, got, string(user)) {
		t.Errorf("the template's user is %s, want %s", got, user)
	}
	check := func(kind string, m metav1.Object, controller string) error {
		a := m.GetAnnotations()
		if !strings.Contains(a[tenant.CreatorAnnotation], controller) || a[tenant.OnBehalfOfAnnotation] != human {
			return fmt.Errorf("%s %s: creator %s on behalf of %s, want %s on behalf of %s", kind, m.GetName(),
				a[tenant.CreatorAnnotation], a[tenant.OnBehalfOfAnnotation], controller, human)
		}
		return nil
	}
	pods := func(want int, controller, selector string) {
		t.Helper()
		waittest.Until(t, func() error {
			list, err := admin.CoreV1().Pods("acme--web").List(t.Context(), metav1.ListOptions{LabelSelector: selector})
			if err != nil || len(list.Items) != want {
				return fmt.Errorf("%d pods, want %d: %w", len(list.Items), want, err)
			}
			for i := range list.Items {
				pod := &list.Items[i]
				if err := check("pod", pod, controller); err != nil {
					return err
				}
				if got := pod.Annotations[tenant.WorkloadUserAnnotation]; !sameJSON(t, got, string(user)) {
					return fmt.Errorf("the pod's user is %s, want %s", got, user)
				}
			}
			return nil
		})
	}
	pods(2, "replicaset-controller", "app=web")
	sets := func() *appsv1.ReplicaSetList {
		list, err := admin.AppsV1().ReplicaSets("acme--web").List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return list
	}
	first := sets()
	if len(first.Items) != 1 {
		t.Fatalf("%d ReplicaSets", len(first.Items))
	}
	// The controller copies the Deployment's annotations to the ReplicaSet. If the creator
	// annotation named the controller, the controller would update the ReplicaSet endlessly.
	if err := check("ReplicaSet", &first.Items[0], human); err != nil {
		t.Error(err)
	}
	patch := []byte(`{"metadata":{"annotations":{"note":"x"}},"spec":{"template":{"spec":{"containers":[{"name":"c",` +
		`"image":"j"}]}}}}`)
	if _, err := acme.AppsV1().Deployments("acme--web").Patch(t.Context(), "web", types.StrategicMergePatchType,
		patch, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	waittest.Until(t, func() error {
		if n := len(sets().Items); n != 2 {
			return fmt.Errorf("%d ReplicaSets after a rollout", n)
		}
		return nil
	})
	// Roll back. The controller sets the next revision only if it has nothing else to update.
	patch = []byte(`{"spec":{"template":{"spec":{"containers":[{"name":"c","image":"i"}]}}}}`)
	if _, err := acme.AppsV1().Deployments("acme--web").Patch(t.Context(), "web", types.StrategicMergePatchType,
		patch, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	waittest.Until(t, func() error {
		d, err := admin.AppsV1().Deployments("acme--web").Get(t.Context(), "web", metav1.GetOptions{})
		if err == nil && d.Annotations["deployment.kubernetes.io/revision"] != "3" {
			err = fmt.Errorf("revision %s after a rollout and one back", d.Annotations["deployment.kubernetes.io/revision"])
		}
		return err
	})
	follow(t, s.config(t, "admin"), "acme--web", resources("apps", "replicasets")...).awaitQuiet(t, time.Second)
	if n := len(sets().Items); n != 2 {
		t.Errorf("%d ReplicaSets", n)
	}
	job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: "once"}, Spec: batchv1.JobSpec{Template: podTemplate()}}
	job.Spec.Template.Labels = map[string]string{"app": "once"}
	job.Spec.Template.Spec.RestartPolicy = corev1.RestartPolicyNever
	if _, err := acme.BatchV1().Jobs("acme--web").Create(t.Context(), job, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	pods(1, "job-controller", "app=once")
	// Mallory creates a Pod that names another caller's ReplicaSet as its owner. The Pod must
	// not be recorded as created on behalf of that caller.
	liar := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: "liar",
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: "apps/v1",
				Kind:       "ReplicaSet",
				Name:       first.Items[0].Name,
				UID:        first.Items[0].UID,
				Controller: ptr.To(true),
			}},
		},
		Spec: podTemplate().Spec,
	}
	mallory := s.impersonate(t, rest.ImpersonationConfig{
		UserName: "mallory",
		Groups:   []string{"tenant:acme"},
		Extra:    map[string][]string{tenant.ExtraKey: {"acme"}},
	})
	s.apply(t,
		`{ apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: { name: mallory, namespace: acme--web }, `+
			`roleRef: { apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: edit }, `+
			`subjects: [ { apiGroup: rbac.authorization.k8s.io, kind: User, name: mallory } ] }`)
	var lied *corev1.Pod
	waittest.Until(t, func() error {
		lied, err = client(t, mallory).CoreV1().Pods("acme--web").Create(t.Context(), liar, metav1.CreateOptions{})
		return err
	})
	if value, ok := lied.Annotations[tenant.OnBehalfOfAnnotation]; ok ||
		!strings.Contains(lied.Annotations[tenant.WorkloadUserAnnotation], "mallory") {
		t.Errorf("mallory's pod is on behalf of %s for %s", value, lied.Annotations[tenant.WorkloadUserAnnotation])
	}
	// The garbage collector deletes the Pods.
	if err := acme.AppsV1().Deployments("acme--web").Delete(t.Context(), "web", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	waittest.Until(t, func() error {
		list, err := admin.CoreV1().Pods("acme--web").List(t.Context(), metav1.ListOptions{LabelSelector: "app=web"})
		if err == nil && len(list.Items) > 0 {
			err = fmt.Errorf("%d pods of a deleted Deployment", len(list.Items))
		}
		return err
	})
}

func sameJSON(t *testing.T, a, b string) bool {
	t.Helper()
	var one, other struct {
		User   string
		Groups []string
	}
	if json.Unmarshal([]byte(a), &one) != nil || json.Unmarshal([]byte(b), &other) != nil {
		return false
	}
	return fmt.Sprint(one) == fmt.Sprint(other)
}
