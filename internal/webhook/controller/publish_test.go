// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	metadatafake "k8s.io/client-go/metadata/fake"
	"k8s.io/client-go/rest"
	clienttesting "k8s.io/client-go/testing"

	"github.com/kubetenant/kubetenant/cluster"
	configv1alpha1 "github.com/kubetenant/kubetenant/config/v1alpha1"
	"github.com/kubetenant/kubetenant/internal/serving/state"
	"github.com/kubetenant/kubetenant/plugins/label"
	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/tenanttest"
	"github.com/kubetenant/kubetenant/test/waittest"
)

// newCluster returns a cluster that uses a client, with empty caches.
func newCluster(t *testing.T, client *fake.Clientset) *cluster.Cluster {
	t.Helper()
	objects := dynamicfake.NewSimpleDynamicClient(runtime.NewScheme())
	c, err := cluster.New(cluster.Clients{
		Typed:    client,
		Dynamic:  objects,
		Grants:   objects,
		Quotas:   objects,
		Metadata: metadatafake.NewSimpleMetadataClient(metadatafake.NewTestScheme()),
	},
		informers.NewSharedInformerFactory(client, 0))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// onPublish calls f with the new content for each write of the ConfigMap. The write returns the
// error of f.
func onPublish(t *testing.T, client *fake.Clientset, f func(*corev1.ConfigMap) error) {
	t.Helper()
	client.PrependReactor("patch", "configmaps", func(a clienttesting.Action) (bool, runtime.Object, error) {
		said := &corev1.ConfigMap{}
		if err := json.Unmarshal(a.(clienttesting.PatchAction).GetPatch(), said); err != nil {
			t.Error(err)
		}
		return true, said, f(said)
	})
}

// TestBackfillText checks that the text contains each completed resource with the tenants whose
// objects still have wrong labels. The tenants are unique and sorted, and the service can parse
// the text.
func TestBackfillText(t *testing.T) {
	a, b := tenanttest.ID(t, "a"), tenanttest.ID(t, "b")
	pods, jobs := schema.GroupResource{Resource: "pods"}, schema.GroupResource{Group: "batch", Resource: "jobs"}
	for want, swept := range map[string]map[schema.GroupResource][]tenant.ID{
		`{}`:                                    nil,
		`{"pods":[]}`:                           {pods: nil},
		`{"jobs.batch":["a","b"],"pods":["b"]}`: {pods: {b, b}, jobs: {b, a, b}},
	} {
		t.Run(want, func(t *testing.T) {
			s := label.NewBackfill(nil, nil, nil)
			s.Resume(swept)
			got, err := backfillText(s)
			if got != want || err != nil {
				t.Errorf("backfillText() = %s, %v; want %s", got, err, want)
			}
			again := label.NewBackfill(nil, nil, nil)
			again.Resume(state.ParseBackfill(got))
			if text, err := backfillText(again); text != want || err != nil {
				t.Errorf("after ParseBackfill: %s, %v; want %s", text, err, want)
			}
		})
	}
}

// TestFailedPublicationIsRetried checks that a failed write of the ConfigMap is retried until ctx
// ends, with the version of the webhooks.
func TestFailedPublicationIsRetried(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), waittest.Limit)
	defer cancel()
	client := fake.NewClientset()
	var said []string
	onPublish(t, client, func(m *corev1.ConfigMap) error {
		said = append(said, m.Namespace+"/"+m.Name+" "+m.Annotations[state.WebhooksAnnotation]+" "+m.Data[state.BackfillKey])
		if len(said) == 1 {
			return errors.New("not now")
		}
		cancel()
		return nil
	})
	now := state.VersionOf(webhooks("1", "ca", admissionregistrationv1.Fail))
	p := &publisher{
		client:    client,
		namespace: "system",
		backfill:  label.NewBackfill(nil, nil, nil),
		version:   now,
		webhooks:  func() (state.WebhooksVersion, bool) { return now, true },
	}
	if err := p.run(ctx); err != nil {
		t.Fatal(err)
	}
	text := "system/kubetenant-swept " + now.String() + " {}"
	if !slices.Equal(said, []string{text, text}) {
		t.Errorf("published %q; want %q twice", said, text)
	}
}

// TestBackfillResumes checks when a new leader resumes from the previous leader's result. The
// webhooks must not have changed, and the ConfigMap must have been written while the current policy
// and binding protected it.
func TestBackfillResumes(t *testing.T) {
	mutating, validating := webhooks("1", "ca", admissionregistrationv1.Fail)
	same := state.VersionOf(mutating, validating).String()
	twice := mutating.DeepCopy()
	twice.Generation = -2
	const before = `{"pods":["acme"]}`
	policy := &admissionregistrationv1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: state.PolicyName, UID: "p", Generation: 2},
	}
	binding := &admissionregistrationv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: state.PolicyName, UID: "b", Generation: 1},
	}
	const guarded = "p 2 b 1"
	for name, c := range map[string]struct {
		webhooks, guard, namespace, want string
		policies                         []runtime.Object
	}{
		"the same webhooks": {same, guarded, "system", before, []runtime.Object{policy, binding}},
		"other webhooks":    {"other", guarded, "system", "{}", []runtime.Object{policy, binding}},
		"changed twice": {
			state.VersionOf(twice, validating).String(),
			guarded,
			"system",
			"{}",
			[]runtime.Object{policy, binding},
		},
		"no webhooks":                   {"", guarded, "system", "{}", []runtime.Object{policy, binding}},
		"another namespace":             {same, guarded, "elsewhere", "{}", []runtime.Object{policy, binding}},
		"written without a policy":      {same, "", "system", "{}", []runtime.Object{policy, binding}},
		"written under another policy":  {same, "q 1 b 1", "system", "{}", []runtime.Object{policy, binding}},
		"written under another binding": {same, "p 2 c 1", "system", "{}", []runtime.Object{policy, binding}},
		"the policy was changed":        {same, "p 1 b 1", "system", "{}", []runtime.Object{policy, binding}},
		"the policy is missing":         {same, guarded, "system", "{}", []runtime.Object{binding}},
		"the binding is missing":        {same, guarded, "system", "{}", []runtime.Object{policy}},
		"no policy and no annotation":   {same, "", "system", "{}", nil},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), waittest.Limit)
			client := fake.NewClientset(append([]runtime.Object{mutating, validating, &corev1.ConfigMap{
				ObjectMeta: metav1.ObjectMeta{
					Name:        state.BackfillName,
					Namespace:   c.namespace,
					Annotations: map[string]string{state.WebhooksAnnotation: c.webhooks, state.PolicyAnnotation: c.guard},
				},
				Data: map[string]string{state.BackfillKey: before},
			}}, c.policies...)...)
			said := ""
			onPublish(t, client, func(m *corev1.ConfigMap) error {
				said = m.Data[state.BackfillKey] + " of " + m.Annotations[state.WebhooksAnnotation]
				cancel()
				return nil
			})
			_ = backfill(ctx, newCluster(t, client), "system") // the error is that the caches did not sync
			if want := c.want + " of " + same; said != want {
				t.Errorf("%s; want %s", said, want)
			}
			cancel()
		})
	}
}

// TestPublisherRestoresConfigMap checks that the publisher restores the ConfigMap within seconds
// after another client changed or deleted it. Otherwise, the publisher must not write the
// ConfigMap.
func TestPublisherRestoresConfigMap(t *testing.T) {
	now := state.VersionOf(webhooks("1", "ca", admissionregistrationv1.Fail))
	for name, spoil := range map[string]func(*corev1.ConfigMap) bool{
		"no change":      func(*corev1.ConfigMap) bool { return true },
		"less progress":  func(m *corev1.ConfigMap) bool { m.Data[state.BackfillKey] = "{}"; return true },
		"more progress":  func(m *corev1.ConfigMap) bool { m.Data[state.BackfillKey] = `{"secrets":[]}`; return true },
		"other webhooks": func(m *corev1.ConfigMap) bool { m.Annotations[state.WebhooksAnnotation] = "x 1 1"; return true },
		"another policy": func(m *corev1.ConfigMap) bool { m.Annotations[state.PolicyAnnotation] = "x 1 y 1"; return true },
		"deleted":        func(*corev1.ConfigMap) bool { return false },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				client := fake.NewClientset()
				swept := label.NewBackfill(nil, nil, nil)
				swept.Resume(map[schema.GroupResource][]tenant.ID{{Resource: "pods"}: nil})
				p := &publisher{
					client:    client,
					namespace: "system",
					backfill:  swept,
					version:   now,
					webhooks:  func() (state.WebhooksVersion, bool) { return now, true },
				}
				done := make(chan error)
				go func() { done <- p.run(ctx) }()
				synctest.Wait()
				configs := client.CoreV1().ConfigMaps("system")
				first, err := configs.Get(ctx, state.BackfillName, metav1.GetOptions{})
				if err != nil {
					t.Fatal(err)
				}
				spoiled := first.DeepCopy()
				if spoil(spoiled) {
					_, err = configs.Update(ctx, spoiled, metav1.UpdateOptions{})
				} else {
					err = configs.Delete(ctx, state.BackfillName, metav1.DeleteOptions{})
				}
				if err != nil {
					t.Fatal(err)
				}
				client.ClearActions()
				time.Sleep(confirmInterval + 2*publishInterval)
				synctest.Wait()
				written := slices.ContainsFunc(
					client.Actions(),
					func(a clienttesting.Action) bool { return a.GetVerb() == "patch" },
				)
				current, err := configs.Get(ctx, state.BackfillName, metav1.GetOptions{})
				if err != nil || !maps.Equal(current.Data, first.Data) || !maps.Equal(current.Annotations, first.Annotations) ||
					written != (name != "no change") {
					t.Errorf("%+v, %v; want %+v; written: %v", current, err, first, written)
				}
				cancel()
				if err := <-done; err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// TestNoBackfillWithoutWebhooks checks that a backfill without webhooks ends without an error and
// does not read or publish progress.
func TestNoBackfillWithoutWebhooks(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	client := fake.NewClientset()
	client.PrependReactor("list", "mutatingwebhookconfigurations",
		func(clienttesting.Action) (bool, runtime.Object, error) {
			cancel()
			return false, nil, nil
		})
	if err := backfill(ctx, newCluster(t, client), "system"); err != nil {
		t.Error(err)
	}
	for _, a := range client.Actions() {
		if a.GetResource().Resource == "configmaps" {
			t.Errorf("%s configmaps", a.GetVerb())
		}
	}
}

func noSource() *configv1alpha1.Source { return nil }

// TestInactiveTasksSendNoRequests checks that a process that is not the leader sends no requests
// and reports no missing labels.
func TestInactiveTasksSendNoRequests(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		t.Errorf("%s %s", r.Method, r.URL)
	}))
	defer server.Close()
	tasks, err := NewTasks(&rest.Config{Host: server.URL}, "system", nil, &configv1alpha1.PublicationRules{}, noSource)
	if err != nil {
		t.Fatal(err)
	}
	if n := tasks.Unlabeled(); n != 0 || tasks.Backfill == nil || tasks.Quotas == nil {
		t.Errorf("%d resources lack labels, %+v", n, tasks)
	}
	_, err = NewTasks(&rest.Config{Host: "://"}, "system", nil, &configv1alpha1.PublicationRules{}, noSource)
	if err == nil {
		t.Error("an invalid server address is accepted")
	}
}

// TestBackfillRestarts checks that all progress is discarded if objects may have been stored
// without the webhooks, and again after the writes in flight have been stored.
func TestBackfillRestarts(t *testing.T) {
	pods := schema.GroupResource{Resource: "pods"}
	version := func(generation int64, ca string, kind admissionregistrationv1.FailurePolicyType) state.WebhooksVersion {
		mutating, validating := webhooks("1", ca, kind)
		mutating.Generation, validating.Generation = generation, 1
		return state.VersionOf(mutating, validating)
	}
	before := version(1, "ca", admissionregistrationv1.Fail)
	for what, c := range map[string]struct {
		now   state.WebhooksVersion
		there bool
		want  string
	}{
		"the same":             {before, true, `{"pods":[]}`},
		"a renewed authority":  {version(2, "new", admissionregistrationv1.Fail), true, `{"pods":[]}`},
		"failures are ignored": {version(2, "ca", admissionregistrationv1.Ignore), true, "{}"},
		"changed and restored": {version(3, "ca", admissionregistrationv1.Fail), true, "{}"},
		"missing":              {state.WebhooksVersion{}, false, "{}"},
	} {
		t.Run(what, func(t *testing.T) {
			s := label.NewBackfill(nil, nil, nil)
			s.Resume(map[schema.GroupResource][]tenant.ID{pods: nil})
			p := &publisher{
				backfill: s,
				version:  before,
				webhooks: func() (state.WebhooksVersion, bool) { return c.now, c.there },
			}
			text, err := p.content()
			if err != nil || text != c.want || p.version != c.now {
				t.Errorf("%s, %v; want %s", text, err, c.want)
			}
			s.Resume(map[schema.GroupResource][]tenant.ID{pods: nil}) // as if the backfill had completed immediately
			if again, err := p.content(); err != nil || again != c.want {
				t.Errorf("%s, again: %s, %v", what, again, err)
			}
			if c.want != "{}" || !c.there {
				return
			}
			// After this time, all writes that were in flight have been stored.
			p.inFlightUntil = time.Now().Add(-time.Second)
			if text, err := p.content(); err != nil || text != "{}" || !p.inFlightUntil.IsZero() {
				t.Errorf("%s, after all writes were stored: %s, %v", what, text, err)
			}
			s.Resume(map[schema.GroupResource][]tenant.ID{pods: nil})
			if text, err := p.content(); err != nil || text != `{"pods":[]}` {
				t.Errorf("%s, after a new backfill: %s, %v", what, text, err)
			}
		})
	}
}
