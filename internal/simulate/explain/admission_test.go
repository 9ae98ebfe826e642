// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package explain_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/klog/v2"

	"github.com/kubetenant/kubetenant/internal/simulate/explain"
	"github.com/kubetenant/kubetenant/tenant"
)

// onHost returns the spec of a Pod. If yes is true, the Pod Security level baseline rejects the
// Pod.
func onHost(yes bool) corev1.PodSpec {
	return corev1.PodSpec{HostNetwork: yes, Containers: []corev1.Container{{Name: "c", Image: "i"}}}
}

// writing returns a function that sets the write of a query. The cluster has a namespace
// acme--baseline, and the delegate allows every request.
func writing(
	t *testing.T, kind schema.GroupVersionKind, object runtime.Object, more ...runtime.Object,
) func(*explain.Query) {
	leveled := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name:   "acme--baseline",
		Labels: map[string]string{tenant.Label: "acme", "pod-security.kubernetes.io/enforce": "baseline"},
	}}
	return func(q *explain.Query) {
		with(t, append(more, leveled)...)(q)
		if object != nil {
			q.Write = &explain.Write{Kind: kind, Object: object}
		}
		q.Delegate = authorizer.AuthorizerFunc(func(
			context.Context, authorizer.Attributes,
		) (authorizer.Decision, string, error) {
			return authorizer.DecisionAllow, "", nil
		})
	}
}

func aPod(namespace string, host bool) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: namespace}, Spec: onHost(host)}
}

const violation = `violates PodSecurity "baseline:latest": host namespaces (hostNetwork=true)`

// TestPodSecurity checks that explain denies a Pod that the server rejects, with the server's
// message. It allows a workload, because the server accepts it.
func TestPodSecurity(t *testing.T) {
	alice, pods, deployments := newUser("alice", "acme", "dev"), corev1.SchemeGroupVersion.WithKind("Pod"),
		appsv1.SchemeGroupVersion.WithKind("Deployment")
	deployment := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "d", Namespace: "acme--baseline"},
		Spec:       appsv1.DeploymentSpec{Template: corev1.PodTemplateSpec{Spec: onHost(true)}},
	}
	ending := &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{
			Name:              "acme--ending",
			Labels:            map[string]string{tenant.Label: "acme"},
			DeletionTimestamp: &metav1.Time{Time: time.Now()},
		},
	}
	for name, c := range map[string]struct {
		r      authorizer.AttributesRecord
		change func(*explain.Query)
		reason string // "" if it is allowed
		pods   string
	}{
		"refused": {
			newRequest("create", "pods", "acme--baseline"), writing(t, pods, aPod("acme--baseline", true)), violation, "",
		},
		"admitted": {
			newRequest("create", "pods", "acme--baseline"),
			writing(t, pods, aPod("acme--baseline", false)),
			"",
			"",
		},
		"without a level": {newRequest("create", "pods", "acme--web"), writing(t, pods, aPod("acme--web", true)), "", ""},
		"a workload": {
			newRequest("create", "deployments.apps", "acme--baseline"),
			writing(t, deployments, deployment),
			"",
			"the server accepts the workload, but would refuse its Pods: " + violation,
		},
		"before the plugins of kubetenant": {
			newRequest("create", "pods", "acme--baseline"),
			writing(t, pods, &corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "acme--baseline"},
				Spec:       corev1.PodSpec{HostPID: true, NodeName: "n"},
			}),
			"violates PodSecurity",
			"",
		},
		"in an ending namespace": {
			newRequest("create", "pods", "acme--ending"),
			writing(t, pods, aPod("acme--ending", false), ending),
			"unable to create new content in namespace acme--ending because it is being terminated",
			"",
		},
	} {
		t.Run(name, func(t *testing.T) {
			e := explained(t, alice, c.r, c.change)
			if e.Allowed() != (c.reason == "") || c.reason != "" && !strings.HasPrefix(e.Reason, c.reason) ||
				e.Allowed() != (len(e.NotChecked) > 0) {
				t.Errorf("%+v; want %q", e, c.reason)
			}
			at := slices.IndexFunc(e.Steps, func(s explain.Step) bool { return s.Name == "pods" })
			if (at >= 0) != (c.pods != "") || at >= 0 && e.Steps[at].Result != c.pods {
				t.Errorf("steps %+v; want %q", e.Steps, c.pods)
			}
		})
	}
}

// TestNewNamespace checks that explain reports a missing namespace, how to create it, and whether
// the Pod Security level of the new namespace would reject the object.
func TestNewNamespace(t *testing.T) {
	pods, strict := corev1.SchemeGroupVersion.WithKind("Pod"),
		aTenant(map[string]any{"namespaces": map[string]any{"podSecurity": "restricted"}})
	for name, c := range map[string]struct {
		as, namespace string
		host          bool
		more          []runtime.Object
		level, then   string // if the Pod would still be rejected, then is the beginning of the reason
	}{
		"a Pod":             {"acme", "acme--new", false, nil, "baseline", ""},
		"a Pod on the host": {"acme", "acme--new", true, nil, "baseline", "The server would still refuse it: " + violation},
		"a level of the Tenant": {
			"acme",
			"acme--new",
			false,
			[]runtime.Object{strict},
			"restricted",
			`The server would still refuse it: violates PodSecurity "restricted:latest"`,
		},
		"caller of the system tenant": {"system", "new", true, nil, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			var q *explain.Query
			e := explained(
				t,
				newUser("alice", c.as, "dev"),
				newRequest("create", "pods", c.namespace),
				func(query *explain.Query) {
					writing(t, pods, aPod(c.namespace, c.host), c.more...)(query)
					retry := *query
					q = &retry
				},
			)
			if e.Allowed() || e.Reason != `namespaces "`+c.namespace+`" not found` || e.Remedy == nil ||
				!strings.HasPrefix(e.Remedy.Text, "There is no namespace "+c.namespace) ||
				strings.Contains(e.Remedy.YAML, "enforce: "+c.level) != (c.level != "") ||
				(e.Remedy.Then != nil) != (c.then != "") || e.Remedy.Then != nil && !strings.HasPrefix(e.Remedy.Then.Text, c.then) {
				t.Errorf("%+v, remedy %+v", e, e.Remedy)
				return
			}
			apply(t, q, e.Remedy)
			if e, err := explain.Explain(klog.NewContext(t.Context(), logr.Discard()), q); err != nil ||
				e.Allowed() != (c.then == "") {
				t.Errorf("with the namespace: %+v, %v", e, err)
			}
		})
	}
}

// TestReviewInMissingNamespace checks that explain allows a review in a missing namespace, as the
// server does.
func TestReviewInMissingNamespace(t *testing.T) {
	review := newRequest("create", "localsubjectaccessreviews.authorization.k8s.io", "gone")
	if e := explained(t, newUser("root", "system"), review, writing(t, schema.GroupVersionKind{}, nil)); !e.Allowed() {
		t.Errorf("%+v", e)
	}
	if e := explained(t, newUser("root", "system"), newRequest("create", "configmaps", "gone"),
		writing(t, schema.GroupVersionKind{}, nil)); e.Allowed() {
		t.Errorf("another object: %+v", e)
	}
}

// TestNotChecked checks that the explanation of an allowed write lists every check that may still
// reject it, even if the object is unknown.
func TestNotChecked(t *testing.T) {
	alice := newUser("alice", "acme", "dev")
	for name, c := range map[string]struct {
		r    authorizer.AttributesRecord
		want []string
		not  string
	}{
		"a read": {newRequest("get", "pods", "acme--web"), nil, ""},
		"no object": {
			newRequest("create", "pods", "acme--web"),
			[]string{
				explain.NoObject, "other webhooks and policies of the cluster", "ResourceQuota", "LimitRange", "schema validation",
			},
			"privilege escalation",
		},
		"a role": {
			newRequest("update", "roles.rbac.authorization.k8s.io", "acme--web"),
			[]string{"privilege escalation"},
			"",
		},
		"a deletion": {
			newRequest("delete", "configmaps", "acme--web"),
			[]string{"the stored object", "other webhooks and policies of the cluster"},
			"ResourceQuota",
		},
		"a connection": {
			newRequest("create", "pods/exec", "acme--web"),
			[]string{"other webhooks and policies of the cluster"},
			explain.NoObject,
		},
	} {
		t.Run(name, func(t *testing.T) {
			e := explained(t, alice, c.r, writing(t, schema.GroupVersionKind{}, nil))
			for _, want := range c.want {
				if !slices.Contains(e.NotChecked, want) {
					t.Errorf("%q is not in %q", want, e.NotChecked)
				}
			}
			if !e.Allowed() || slices.Contains(e.NotChecked, c.not) || (c.want == nil) != (len(e.NotChecked) == 0) {
				t.Errorf("%+v", e)
			}
		})
	}
}
