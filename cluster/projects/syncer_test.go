// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package projects

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/testutil"

	"github.com/kubetenant/kubetenant/authn/keystone"
	"github.com/kubetenant/kubetenant/cluster/tenants"
	"github.com/kubetenant/kubetenant/internal/typed"
	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

var resource = v1alpha1.SchemeGroupVersion.WithResource(v1alpha1.ResourceTenants)

// server is a fake cluster and the syncer that writes to it, in virtual time. It is the [Reader]
// of the syncer.
type server struct {
	t        *testing.T
	kube     *fake.Clientset
	dynamic  *dynamicfake.FakeDynamicClient
	registry metrics.KubeRegistry
	began    time.Time
	stop     func() // stops the syncer and waits until it has stopped
	settings Settings

	mu       sync.Mutex
	contents keystone.Contents
	err      error
	takes    time.Duration   // the duration of a read
	reads    []time.Duration // the times of the reads since the start
}

// Read implements [Reader].
func (s *server) Read(ctx context.Context) (*keystone.Contents, error) {
	s.mu.Lock()
	s.reads = append(s.reads, time.Since(s.began))
	contents, err, takes := s.contents, s.err, s.takes
	s.mu.Unlock()
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-time.After(takes):
	}
	return &contents, err
}

// serve returns a server with the Tenant acme and the Keystone of [newCluster]. Its syncer has not
// started.
func serve(t *testing.T) *server {
	t.Helper()
	c := newCluster(t)
	s := &server{
		t:        t,
		kube:     fake.NewClientset(),
		registry: metrics.NewKubeRegistry(),
		settings: c.settings,
		contents: c.contents,
	}
	kinds := map[schema.GroupVersionResource]string{
		resource: "TenantList",
		v1alpha1.SchemeGroupVersion.WithResource(v1alpha1.ResourceNamespaceTemplates):         "NamespaceTemplateList",
		v1alpha1.SchemeGroupVersion.WithResource(v1alpha1.ResourceTenantMembers):              "TenantMembersList",
		v1alpha1.SchemeGroupVersion.WithResource(v1alpha1.ResourcePublications):               "PublicationList",
		v1alpha1.SchemeGroupVersion.WithResource(v1alpha1.ResourceRetiredTenants):             "RetiredTenantList",
		{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}: "CustomResourceDefinitionList",
	}
	s.dynamic = dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), kinds, tenantObject("acme"))
	return s
}

func tenantObject(name string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": v1alpha1.GroupVersion,
		"kind":       v1alpha1.KindTenant,
		"spec":       map[string]any{"id": name},
	}}
	u.SetName(name)
	u.SetUID(types.UID("uid-" + name))
	u.SetGeneration(1)
	return u
}

// run starts the syncer.
func (s *server) run() {
	s.t.Helper()
	ctx, cancel := context.WithCancel(s.t.Context())
	store, err := tenants.New(s.dynamic, func(schema.GroupResource) (bool, bool) { return true, true })
	s.must(err)
	factory := informers.NewSharedInformerFactory(s.kube, 0)
	o := Options{
		Settings:   s.settings,
		Reader:     s,
		Client:     s.kube,
		Dynamic:    s.dynamic,
		Tenants:    store,
		Namespaces: factory.Core().V1().Namespaces().Informer(),
		OwnerOf: func(ns *corev1.Namespace) tenant.ID {
			id, _ := tenant.Parse(ns.Labels[tenant.Label])
			return id
		},
		Metrics: NewMetrics(),
	}
	for _, m := range o.Metrics.Metrics() {
		s.must(s.registry.Register(m))
	}
	syncer := New(o)
	factory.StartWithContext(ctx)
	s.began = time.Now()
	var running sync.WaitGroup
	running.Go(func() { store.Run(ctx) })
	running.Go(func() {
		if err := syncer.Run(ctx); err != nil {
			s.t.Error(err)
		}
	})
	s.stop = sync.OnceFunc(func() {
		cancel()
		running.Wait()
		factory.Shutdown()
	})
	s.t.Cleanup(func() { s.stop() })
	s.settle()
}

// readings returns the number of reads.
func (s *server) readings() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.reads)
}

// settle waits until the plans for the last read have been applied.
func (s *server) settle() {
	time.Sleep(20 * time.Second)
	synctest.Wait()
}

// later waits until the plans for the next read have been applied.
func (s *server) later() {
	time.Sleep(s.settings.Interval * 11 / 10)
	s.settle()
}

func (s *server) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

// keystone calls change, which may change the results of the next reads.
func (s *server) keystone(change func(s *server)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(s)
}

// writes returns the writes since the last call, in the form "verb resource/subresource name".
func (s *server) writes() (all []string) {
	for _, client := range []*clienttesting.Fake{&s.dynamic.Fake, &s.kube.Fake} {
		for _, a := range client.Actions() {
			if slices.Contains([]string{"get", "list", "watch"}, a.GetVerb()) {
				continue
			}
			text := a.GetVerb() + " " + a.GetResource().Resource
			if sub := a.GetSubresource(); sub != "" {
				text += "/" + sub
			}
			if named, is := a.(interface{ GetName() string }); is && named.GetName() != "" {
				text += " " + named.GetName()
			} else if created, is := a.(clienttesting.CreateAction); is {
				if object, err := meta.Accessor(created.GetObject()); err == nil {
					text += " " + object.GetName()
				}
			}
			all = append(all, text)
		}
		client.ClearActions()
	}
	return all
}

func (s *server) expectWrites(what string, want ...string) {
	s.t.Helper()
	if got := s.writes(); !slices.Equal(got, want) {
		s.t.Errorf("%s: writes %q, want %q", what, got, want)
	}
}

// fail makes writes to a resource fail with the errors that react returns.
func (s *server) fail(verb, resource string, react func(name string) error) {
	client := &s.kube.Fake
	if resource == v1alpha1.ResourceTenants {
		client = &s.dynamic.Fake
	}
	client.Lock()
	defer client.Unlock()
	client.PrependReactor(verb, resource, func(a clienttesting.Action) (bool, runtime.Object, error) {
		name := ""
		switch a := a.(type) {
		case clienttesting.CreateAction:
			object, _ := meta.Accessor(a.GetObject())
			name = object.GetName()
		case clienttesting.PatchAction:
			name = a.GetName()
		}
		err := react(name)
		return err != nil, nil, err
	})
}

// once returns a reaction that fails the first time.
func once(err error) func(string) error {
	first := true
	return func(string) error {
		defer func() { first = false }()
		if first {
			return err
		}
		return nil
	}
}

func (s *server) tenant(name string) *v1alpha1.Tenant {
	s.t.Helper()
	u, err := s.dynamic.Resource(resource).Get(s.t.Context(), name, metav1.GetOptions{})
	s.must(err)
	t, err := typed.Decode[v1alpha1.Tenant](u)
	s.must(err)
	return t
}

// condition returns the reason and the message of a Tenant's condition.
func (s *server) condition(name string) (reason, message string) {
	s.t.Helper()
	t := s.tenant(name)
	c := meta.FindStatusCondition(t.Status.Conditions, v1alpha1.ConditionKeystone)
	if c == nil {
		return "", ""
	}
	if c.ObservedGeneration != t.Generation || (c.Status == metav1.ConditionTrue) != (c.Reason == v1alpha1.ReasonSynced) {
		s.t.Errorf("condition %+v", c)
	}
	return c.Reason, c.Message
}

func (s *server) expectReason(what, want string) {
	s.t.Helper()
	if got, message := s.condition("acme"); got != want {
		s.t.Errorf("%s: the reason is %s (%s), want %s", what, got, message, want)
	}
}

// counter returns the values of a metric, keyed by result.
func (s *server) counter(of string) (map[string]float64, error) {
	return testutil.GetCounterValuesFromGatherer(s.registry, "kubetenant_keystone_sync_"+of+"_total", nil, "result")
}

// expectMetrics checks the numbers of reads and writes for each result, and the number of Tenants
// for each reason.
func (s *server) expectMetrics(what string, want map[string]float64) {
	s.t.Helper()
	got, err := s.counter("reads")
	if err != nil {
		got = map[string]float64{}
	}
	writes, err := s.counter("writes")
	if err == nil {
		for result, n := range writes {
			got["writes "+result] = n
		}
	}
	families, err := s.registry.Gather()
	s.must(err)
	for _, f := range families {
		if f.GetName() == "kubetenant_keystone_sync_tenants" {
			for _, m := range f.GetMetric() {
				got["tenants "+m.GetLabel()[0].GetValue()] = m.GetGauge().GetValue()
			}
		}
	}
	if !maps.Equal(got, want) {
		s.t.Errorf("%s: metrics %v, want %v", what, got, want)
	}
}

// TestSyncer checks that the syncer writes the changes in Keystone to the cluster, and that it
// writes nothing if Keystone has not changed.
func TestSyncer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := serve(t)
		s.run()
		s.expectReason("first read", v1alpha1.ReasonSynced)
		s.expectWrites("first read", "patch tenants acme", "patch tenants/status acme", "create namespaces acme--web-p1")
		ns, err := s.kube.CoreV1().Namespaces().Get(t.Context(), "acme--web-p1", metav1.GetOptions{})
		s.must(err)
		if is, err := tenants.KeystoneOf(ns); err != nil || ns.Labels[tenant.Label] != "acme" || len(ns.Labels) != 1 ||
			len(is.Roles) != 1 || is.Roles[0] != role("p1", "m") {
			t.Errorf("namespace %+v: %v", ns.ObjectMeta, err)
		}
		s.expectMetrics("first read", map[string]float64{"success": 1, "writes success": 2, "tenants Synced": 1})
		for range 3 {
			s.later()
		}
		s.expectWrites("no change")
		s.keystone(func(s *server) { s.contents.Assignments = nil })
		s.later()
		s.expectWrites("a lost role", "patch namespaces acme--web-p1")
		s.stop()
		s.keystone(func(s *server) { s.contents.Projects = nil })
		s.later()
		s.expectWrites("after the syncer stopped")
		if len(s.reads) != 5 {
			t.Errorf("%d reads", len(s.reads))
		}
	})
}

// TestSyncerRestart checks that a new leader writes nothing if nothing has changed.
func TestSyncerRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := serve(t)
		s.run()
		s.stop()
		s.writes()
		s.registry = metrics.NewKubeRegistry()
		s.run()
		s.expectWrites("next leader")
	})
}

// TestSyncerConflicts checks that a write that fails because the object has changed is retried
// without another read of Keystone.
func TestSyncerConflicts(t *testing.T) {
	conflict := apierrors.NewConflict(schema.GroupResource{}, "x", errors.New("changed"))
	for name, test := range map[string]struct{ verb, resource string }{
		"Tenant":        {"patch", "tenants"},
		"new namespace": {"create", "namespaces"},
	} {
		for what, err := range map[string]error{
			"conflict":       conflict,
			"already exists": apierrors.NewAlreadyExists(schema.GroupResource{}, "x"),
			"not found":      apierrors.NewNotFound(schema.GroupResource{}, "x"),
		} {
			t.Run(name+", "+what, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := serve(t)
					s.fail(test.verb, test.resource, once(err))
					s.run()
					s.expectReason("second attempt", v1alpha1.ReasonSynced)
					if len(s.reads) != 1 {
						t.Errorf("%d reads", len(s.reads))
					}
				})
			})
		}
	}
	t.Run("status", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := serve(t)
			s.fail("patch", "tenants/status", once(conflict))
			s.run()
			s.expectReason("second attempt", v1alpha1.ReasonSynced)
		})
	})
	t.Run("existing namespace", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := serve(t)
			s.run()
			s.fail("patch", "namespaces", once(conflict))
			s.keystone(func(s *server) { s.contents.Assignments[0].RoleID = "r" })
			s.writes()
			s.later()
			s.expectWrites("twice", "patch namespaces acme--web-p1", "patch namespaces acme--web-p1")
		})
	})
}

// TestSyncerExistingNamespace checks that an existing namespace with the name of a planned
// namespace is not changed, even if the caches do not contain it at first.
func TestSyncerExistingNamespace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := serve(t)
		first := true
		s.fail("create", "namespaces", func(name string) error {
			if !first {
				return nil
			}
			first = false
			ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{tenant.Label: "globex"}}}
			return errors.Join(s.kube.Tracker().Add(ns), apierrors.NewAlreadyExists(corev1.Resource("namespaces"), name))
		})
		s.run()
		if reason, message := s.condition("acme"); reason != v1alpha1.ReasonProjectsSkipped ||
			!strings.Contains(message, "acme--web-p1 exists") {
			t.Errorf("%s: %s", reason, message)
		}
		s.later()
		ns, err := s.kube.CoreV1().Namespaces().Get(t.Context(), "acme--web-p1", metav1.GetOptions{})
		s.must(err)
		if ns.Labels[tenant.Label] != "globex" || ns.Annotations[tenant.KeystoneAnnotation] != "" {
			t.Errorf("namespace %+v", ns.ObjectMeta)
		}
	})
}

// TestSyncerClearedAnnotation checks that a Tenant without a domain loses the condition when an
// administrator clears the annotation.
func TestSyncerClearedAnnotation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := serve(t)
		s.run()
		s.mu.Lock()
		s.contents.Domains[0].Name = "renamed"
		s.mu.Unlock()
		s.later()
		if reason, _ := s.condition("acme"); reason != v1alpha1.ReasonDomainMissing {
			t.Fatalf("reason %q", reason)
		}
		_, err := s.dynamic.Resource(resource).Patch(t.Context(), "acme", types.MergePatchType,
			[]byte(`{"metadata":{"annotations":{"kubetenant.dev/keystone":""}}}`), metav1.PatchOptions{})
		s.must(err)
		s.later()
		if reason, message := s.condition("acme"); reason != "" {
			t.Errorf("%s: %s", reason, message)
		}
	})
}

// TestSyncerQuota checks that, after a namespace of a tenant cannot be created, no further
// namespaces of this tenant are created until the next read. Other changes are still made.
func TestSyncerQuota(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := serve(t)
		_, err := s.dynamic.Resource(resource).Create(t.Context(), tenantObject("globex"), metav1.CreateOptions{})
		s.must(err)
		_, err = s.kube.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
			Name:        "acme--old",
			Labels:      map[string]string{tenant.Label: "acme"},
			Annotations: map[string]string{tenant.KeystoneAnnotation: `{"domain":"d1","project":"p0"}`},
		}}, metav1.CreateOptions{})
		s.must(err)
		s.contents.Domains = append(s.contents.Domains, keystone.Domain{ID: "d2", Name: "globex", Enabled: true})
		s.contents.Projects = []keystone.Project{
			project("p0", ""), project("p1", ""), project("p2", ""), {ID: "g1", DomainID: "d2", Enabled: true},
		}
		s.contents.Assignments = []keystone.Assignment{{RoleID: "m", ProjectID: "p0"}}
		var full atomic.Bool
		full.Store(true)
		s.fail("create", "namespaces", func(name string) error {
			if full.Load() && strings.HasPrefix(name, "acme--") {
				return apierrors.NewForbidden(corev1.Resource("namespaces"), name, errors.New("exceeded quota"))
			}
			return nil
		})
		s.writes()
		s.run()
		got := s.writes()
		for write, want := range map[string]bool{
			"create namespaces acme--p1":   true,
			"create namespaces acme--p2":   false,
			"patch namespaces acme--old":   true,
			"create namespaces globex--g1": true,
		} {
			if slices.Contains(got, write) != want {
				t.Errorf("%s: writes %q", write, got)
			}
		}
		reason, message := s.condition("acme")
		if reason != v1alpha1.ReasonKeystoneFailed || !strings.Contains(message, "create namespace acme--p1: ") ||
			!strings.Contains(message, "exceeded quota") {
			t.Errorf("%s: %s", reason, message)
		}
		if reason, _ := s.condition("globex"); reason != v1alpha1.ReasonSynced {
			t.Errorf("the other tenant: %s", reason)
		}
		s.later()
		s.expectWrites("still full", "create namespaces acme--p1")
		full.Store(false)
		s.later()
		s.expectReason("larger quota", v1alpha1.ReasonSynced)
	})
}

// TestSyncerReadErrors checks that failed reads are retried with a growing delay, that the
// condition reports them, and that namespaces and rights remain.
func TestSyncerReadErrors(t *testing.T) {
	for name, test := range map[string]struct {
		err            error
		metric, remedy string
	}{
		"unavailable": {keystone.ErrUnavailable, "unavailable", "check authURL"},
		"incomplete":  {fmt.Errorf("page 2: %w", keystone.ErrIncomplete), "incomplete", "the role reader with system scope"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := serve(t)
				s.run()
				s.writes()
				s.keystone(func(s *server) { s.err, s.contents.Projects = test.err, nil })
				for s.readings() < 3 {
					time.Sleep(time.Second)
				}
				synctest.Wait()
				s.expectReason("few failures", v1alpha1.ReasonSynced)
				s.expectWrites("few failures")
				time.Sleep(time.Hour)
				synctest.Wait()
				s.expectWrites("an hour of failures", "patch tenants/status acme")
				if reason, message := s.condition("acme"); reason != v1alpha1.ReasonKeystoneNotRead ||
					!strings.Contains(message, test.remedy) {
					t.Errorf("%s: %s", reason, message)
				}
				s.expectBackoff()
				s.expectMetrics("failures", map[string]float64{
					"success":         1,
					test.metric:       float64(len(s.reads) - 1),
					"writes success":  2,
					"tenants NotRead": 1,
				})
				s.keystone(func(s *server) { s.err, s.contents.Projects = nil, []keystone.Project{project("p1", "Web")} })
				s.later()
				s.expectWrites("a success", "patch tenants/status acme")
				s.expectReason("a success", v1alpha1.ReasonSynced)
			})
		})
	}
}

// expectBackoff checks the delays between failed reads after a first successful read.
func (s *server) expectBackoff() {
	s.t.Helper()
	want := []time.Duration{5 * time.Minute, 10 * time.Second, 20 * time.Second, 40 * time.Second, 80 * time.Second}
	for i := 1; i < len(s.reads); i++ {
		between := 5 * time.Minute
		switch {
		case i <= len(want):
			between = want[i-1]
		case i == len(want)+1:
			between = 160 * time.Second
		}
		if got := s.reads[i] - s.reads[i-1] - s.takes; got < between || got > between*11/10+3*reapplyAfter {
			s.t.Errorf("read %d begins after %v, want %v", i, got, between)
		}
	}
	if len(s.reads) < 10 {
		s.t.Errorf("%d reads", len(s.reads))
	}
}

// TestSyncerSlowReads checks that the duration of a failed read does not shorten the wait.
func TestSyncerSlowReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := serve(t)
		s.takes = 90 * time.Second
		s.run()
		s.keystone(func(s *server) { s.err = keystone.ErrUnavailable })
		time.Sleep(2 * time.Hour)
		synctest.Wait()
		s.expectBackoff()
	})
}

// TestSyncerReadErrorConflict checks that the condition that reports a failed read is written
// again after a conflict.
func TestSyncerReadErrorConflict(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := serve(t)
		s.run()
		s.keystone(func(s *server) { s.err = keystone.ErrUnavailable })
		s.fail("patch", "tenants/status", once(apierrors.NewConflict(schema.GroupResource{}, "acme", errors.New("x"))))
		time.Sleep(time.Hour)
		synctest.Wait()
		s.expectReason("an hour of failures", v1alpha1.ReasonKeystoneNotRead)
	})
}

// TestSyncerEnds checks that the syncer stops immediately when the context is canceled during a
// read, a wait or writes.
func TestSyncerEnds(t *testing.T) {
	for name, takes := range map[string]time.Duration{"read": time.Hour, "wait": 0} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := serve(t)
				s.takes = takes
				s.run()
				begin := time.Now()
				s.stop()
				if took := time.Since(begin); took > time.Second {
					t.Errorf("stopping took %v", took)
				}
				if takes > 0 {
					s.expectWrites("canceled read")
				}
			})
		})
	}
	t.Run("writes", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := serve(t)
			c := newCluster(t)
			c.projects(1000)
			s.contents = c.contents
			s.run() // writes 20 times a second
			begin := time.Now()
			s.stop()
			if n := len(s.writes()); time.Since(begin) > time.Second || n < 100 || n > 600 {
				t.Errorf("stopping took %v, after %d writes", time.Since(begin), n)
			}
		})
	})
}

// TestSyncerWrongClock checks that a namespace is not deleted within an hour after its project is
// first missing. This must be true even if the recorded time is wrong and there are many reads.
func TestSyncerWrongClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := serve(t)
		s.settings.DeleteNamespaces, s.settings.Interval = true, 10*time.Second
		s.run()
		_, err := s.kube.CoreV1().Namespaces().Patch(t.Context(), "acme--web-p1", types.MergePatchType,
			[]byte(`{"metadata":{"annotations":{"kubetenant.dev/keystone":"{\"domain\":\"d1\",\"project\":\"p1\",`+
				`\"missingSince\":\"1999-01-01T00:00:00Z\"}"}}}`), metav1.PatchOptions{})
		s.must(err)
		s.keystone(func(s *server) { s.contents.Projects = nil })
		s.writes()
		time.Sleep(missingWatched - time.Minute)
		synctest.Wait()
		if got := countOf(s.writes(), "delete namespaces acme--web-p1"); got > 0 {
			t.Error("the namespace was deleted too early")
		}
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		s.expectWrites("after an hour", "delete namespaces acme--web-p1")
	})
}

// TestSyncerDeletes checks that a namespace is deleted only if it has not changed since it was
// read.
func TestSyncerDeletes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := serve(t)
		s.settings.DeleteNamespaces = true
		s.run()
		s.keystone(func(s *server) { s.contents.Projects = nil })
		time.Sleep(missingFor - time.Minute)
		synctest.Wait()
		ns, err := s.kube.CoreV1().Namespaces().Get(t.Context(), "acme--web-p1", metav1.GetOptions{})
		s.must(err)
		ns.UID = "uid-of-the-namespace"
		ns, err = s.kube.CoreV1().Namespaces().Update(t.Context(), ns, metav1.UpdateOptions{})
		s.must(err)
		s.writes()
		conflict := once(apierrors.NewConflict(schema.GroupResource{}, "x", errors.New("changed")))
		var conditions []metav1.Preconditions
		s.kube.Lock()
		s.kube.PrependReactor("delete", "namespaces", func(a clienttesting.Action) (bool, runtime.Object, error) {
			conditions = append(conditions, *a.(clienttesting.DeleteActionImpl).DeleteOptions.Preconditions)
			err := conflict("")
			return err != nil, nil, err
		})
		s.kube.Unlock()
		s.later()
		s.later()
		s.expectWrites("after 24 hours", "delete namespaces acme--web-p1", "delete namespaces acme--web-p1")
		for _, c := range conditions {
			if c.UID == nil || *c.UID != ns.UID || c.ResourceVersion == nil || *c.ResourceVersion != ns.ResourceVersion {
				t.Errorf("preconditions %+v", c)
			}
		}
		s.expectReason("after 24 hours", v1alpha1.ReasonSynced)
	})
}

// TestSyncerPatches checks that each patch contains the UID and the resource version, so that it
// fails if the object has changed since it was read.
func TestSyncerPatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := serve(t)
		var patches []string
		note := func(a clienttesting.Action) (bool, runtime.Object, error) {
			patches = append(patches, string(a.(clienttesting.PatchAction).GetPatch()))
			return false, nil, nil
		}
		s.dynamic.PrependReactor("patch", "*", note)
		s.kube.PrependReactor("patch", "*", note)
		s.run()
		s.keystone(func(s *server) { s.contents.Assignments = nil })
		s.later()
		if len(patches) != 3 {
			t.Fatalf("patches %q", patches)
		}
		for _, patch := range patches {
			if !strings.Contains(patch, `"uid":`) || !strings.Contains(patch, `"resourceVersion":`) {
				t.Errorf("patch %s", patch)
			}
		}
	})
}

// TestSyncerCreatesTenants checks that a Tenant is created for a domain, followed by the
// namespaces of its projects. If the server rejects the Tenant, the creation is retried after the
// next read.
func TestSyncerCreatesTenants(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := serve(t)
		s.settings.CreateTenants = true
		s.contents.Domains = append(s.contents.Domains, keystone.Domain{ID: "d2", Name: "globex", Enabled: true})
		s.contents.Projects = append(s.contents.Projects, keystone.Project{ID: "g1", DomainID: "d2", Enabled: true})
		var retired atomic.Bool
		retired.Store(true)
		s.fail("create", "tenants", func(name string) error {
			if retired.Load() {
				return apierrors.NewForbidden(resource.GroupResource(), name, errors.New("spec.replaces: must be x"))
			}
			return nil
		})
		s.run()
		s.expectReason("the other tenant", v1alpha1.ReasonSynced)
		if n := countOf(s.writes(), "create tenants globex"); n < 1 || n > 2 { // once for each round of plans
			t.Errorf("%d attempts in a read", n)
		}
		retired.Store(false)
		s.later()
		if reason, message := s.condition("globex"); reason != v1alpha1.ReasonSynced {
			t.Errorf("%s: %s", reason, message)
		}
		u, err := s.dynamic.Resource(resource).Get(t.Context(), "globex", metav1.GetOptions{})
		s.must(err)
		if spec, _ := u.Object["spec"].(map[string]any); len(spec) != 1 || spec["id"] != "globex" {
			t.Errorf("spec %v has more than the policy of the chart allows", u.Object["spec"])
		}
		if _, err := s.kube.CoreV1().Namespaces().Get(t.Context(), "globex--g1", metav1.GetOptions{}); err != nil {
			t.Error(err)
		}
	})
}

func countOf(all []string, text string) (n int) {
	for _, one := range all {
		if one == text {
			n++
		}
	}
	return n
}

// TestSyncerServerError checks that a write that fails with a server error is counted in the
// metric, and retried only after the next read.
func TestSyncerServerError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := serve(t)
		s.fail("patch", "tenants", func(string) error {
			return &apierrors.StatusError{ErrStatus: metav1.Status{Code: http.StatusInternalServerError, Message: "no quorum"}}
		})
		s.run()
		if n := countOf(s.writes(), "patch tenants acme"); n != 1 {
			t.Errorf("%d attempts in a read", n)
		}
		got, err := s.counter("writes")
		if err != nil || got["error"] != 1 || got["success"] != 1 {
			t.Errorf("writes %v, %v", got, err)
		}
	})
}
