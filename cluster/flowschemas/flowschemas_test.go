// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package flowschemas

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
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
	"k8s.io/client-go/tools/cache"
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/testutil"

	"github.com/kubetenant/kubetenant/cluster/tenants"
	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/tenanttest"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

func tenantsResource() schema.GroupVersionResource {
	return v1alpha1.SchemeGroupVersion.WithResource(v1alpha1.ResourceTenants)
}

// server is a fake cluster and the syncer that writes to it, in virtual time.
type server struct {
	t        *testing.T
	kube     *fake.Clientset
	dynamic  *dynamicfake.FakeDynamicClient
	registry metrics.KubeRegistry
	stop     func() // stops the syncer and waits until it has stopped
}

// serve returns a server with the given objects. Its syncer has not started.
func serve(t *testing.T, objects ...runtime.Object) *server {
	t.Helper()
	kinds := map[schema.GroupVersionResource]string{
		tenantsResource(): "TenantList",
		v1alpha1.SchemeGroupVersion.WithResource(v1alpha1.ResourceNamespaceTemplates):         "NamespaceTemplateList",
		v1alpha1.SchemeGroupVersion.WithResource(v1alpha1.ResourceTenantMembers):              "TenantMembersList",
		v1alpha1.SchemeGroupVersion.WithResource(v1alpha1.ResourcePublications):               "PublicationList",
		v1alpha1.SchemeGroupVersion.WithResource(v1alpha1.ResourceRetiredTenants):             "RetiredTenantList",
		{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}: "CustomResourceDefinitionList",
	}
	definition := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1",
		"kind":       "CustomResourceDefinition",
	}}
	definition.SetName("tenants.kubetenant.dev")
	custom, builtIn := []runtime.Object{definition}, []runtime.Object{}
	for _, object := range objects {
		if _, is := object.(*unstructured.Unstructured); is {
			custom = append(custom, object)
		} else {
			builtIn = append(builtIn, object)
		}
	}
	s := &server{
		t:        t,
		kube:     fake.NewClientset(builtIn...),
		dynamic:  dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), kinds, custom...),
		registry: metrics.NewKubeRegistry(),
	}
	s.kube.Resources = []*metav1.APIResourceList{{GroupVersion: "flowcontrol.apiserver.k8s.io/v1"}}
	return s
}

// tenantObject returns a Tenant. If level is not empty, it is the Tenant's spec.fairUse.level.
func tenantObject(id tenant.ID, level string) *unstructured.Unstructured {
	spec := map[string]any{"id": id.String()}
	if level != "" {
		spec["fairUse"] = map[string]any{"level": level}
	}
	u := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": v1alpha1.GroupVersion,
		"kind":       v1alpha1.KindTenant,
		"spec":       spec,
	}}
	u.SetName(id.ObjectName())
	u.SetUID(types.UID("uid-" + id.ObjectName()))
	u.SetGeneration(1)
	return u
}

func namespaceObject(name, owner string) *corev1.Namespace {
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if owner != "" {
		ns.Labels = map[string]string{tenant.Label: owner}
	}
	return ns
}

// ownerOf returns the owner of a namespace. The system tenant owns kube-system.
func ownerOf(ns *corev1.Namespace) tenant.ID {
	label, is := ns.Labels[tenant.Label]
	if !is || ns.Name == metav1.NamespaceSystem {
		return tenant.System()
	}
	id, _ := tenant.Parse(label)
	return id
}

// run starts the syncer and waits for a minute, so that it writes the FlowSchemas.
func (s *server) run() {
	s.t.Helper()
	ctx, cancel := context.WithCancel(s.t.Context())
	store, err := tenants.New(s.dynamic, func(schema.GroupResource) (bool, bool) { return true, true })
	s.must(err)
	factory := informers.NewSharedInformerFactory(s.kube, 0)
	namespaces := factory.Core().V1().Namespaces().Informer()
	s.must(namespaces.AddIndexers(cache.Indexers{"tenant": func(obj any) ([]string, error) {
		return []string{obj.(*corev1.Namespace).Labels[tenant.Label]}, nil
	}}))
	o := Options{
		Client:     s.kube,
		Tenants:    store,
		Namespaces: namespaces,
		Owned:      func(label string) ([]string, error) { return namespaces.GetIndexer().IndexKeys("tenant", label) },
		OwnerOf:    ownerOf,
		Metrics:    NewMetrics(),
	}
	for _, m := range o.Metrics.Metrics() {
		s.must(s.registry.Register(m))
	}
	syncer := New(o)
	factory.StartWithContext(ctx)
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
	s.t.Cleanup(s.stop)
	s.settle(time.Minute)
}

// settle waits for d in virtual time, until the syncer is idle.
func (s *server) settle(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func (s *server) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

// writes returns the writes of FlowSchemas and PriorityLevelConfigurations since the last call, in
// alphabetical order.
func (s *server) writes() (all []string) {
	for _, a := range s.kube.Actions() {
		if a.GetResource().Group != flowcontrolv1.GroupName ||
			slices.Contains([]string{"get", "list", "watch"}, a.GetVerb()) {
			continue
		}
		name := ""
		if written, is := a.(interface{ GetObject() runtime.Object }); is {
			object, err := meta.Accessor(written.GetObject())
			s.must(err)
			name = object.GetName()
		} else if named, is := a.(interface{ GetName() string }); is {
			name = named.GetName()
		}
		all = append(all, a.GetVerb()+" "+name)
	}
	s.kube.ClearActions()
	slices.Sort(all)
	return all
}

func (s *server) wantWrites(name string, want ...string) {
	s.t.Helper()
	if got := s.writes(); !slices.Equal(got, want) {
		s.t.Errorf("%s: writes %q, want %q", name, got, want)
	}
}

// schema returns the FlowSchema with the given name, or nil if it does not exist.
func (s *server) schema(name string) *flowcontrolv1.FlowSchema {
	s.t.Helper()
	f, err := s.kube.FlowcontrolV1().FlowSchemas().Get(s.t.Context(), name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	s.must(err)
	return f
}

// changeAcme changes the FlowSchema of the tenant acme, as an administrator could.
func (s *server) changeAcme(change func(*flowcontrolv1.FlowSchema)) {
	s.t.Helper()
	f := s.schema(TenantPrefix + "acme")
	change(f)
	_, err := s.kube.FlowcontrolV1().FlowSchemas().Update(s.t.Context(), f, metav1.UpdateOptions{})
	s.must(err)
	s.kube.ClearActions()
}

func (s *server) putTenant(id tenant.ID, level string) {
	s.t.Helper()
	u := tenantObject(id, level)
	u.SetGeneration(2)
	_, err := s.dynamic.Resource(tenantsResource()).Update(s.t.Context(), u, metav1.UpdateOptions{})
	s.must(err)
}

// move changes the owner of an existing namespace.
func (s *server) move(name, owner string) {
	s.t.Helper()
	_, err := s.kube.CoreV1().Namespaces().Update(s.t.Context(), namespaceObject(name, owner), metav1.UpdateOptions{})
	s.must(err)
}

func level(name string) *flowcontrolv1.PriorityLevelConfiguration {
	return &flowcontrolv1.PriorityLevelConfiguration{ObjectMeta: metav1.ObjectMeta{Name: name}}
}

// subjects returns the groups and service accounts to which a FlowSchema applies.
func subjects(f *flowcontrolv1.FlowSchema) (all []string) {
	if f == nil {
		return []string{"none"}
	}
	for _, rule := range f.Spec.Rules {
		for _, s := range rule.Subjects {
			switch {
			case s.Group != nil:
				all = append(all, "group "+s.Group.Name)
			case s.ServiceAccount != nil:
				all = append(all, s.ServiceAccount.Namespace+"/"+s.ServiceAccount.Name)
			}
		}
	}
	return all
}

func (s *server) wantSubjects(name, schema string, want ...string) {
	s.t.Helper()
	if got := subjects(s.schema(schema)); !slices.Equal(got, want) {
		s.t.Errorf("%s: %s has %q, want %q", name, schema, got, want)
	}
}

// wantProblems checks the metric. The value of a reason that is not in want must be 0.
func (s *server) wantProblems(name string, want map[string]int) {
	s.t.Helper()
	var text strings.Builder
	text.WriteString("# HELP kubetenant_flow_schema_problems [ALPHA] Number of FlowSchemas of tenants that do not " +
		"apply as configured by reason: TenantLimit, NamespaceLimit, LevelMissing, Foreign, WriteFailed or Unavailable.\n" +
		"# TYPE kubetenant_flow_schema_problems gauge\n")
	for _, reason := range []string{
		ReasonForeign, ReasonLevelMissing, ReasonNamespaceLimit, ReasonTenantLimit, ReasonUnavailable, ReasonWriteFailed,
	} {
		fmt.Fprintf(&text, "kubetenant_flow_schema_problems{reason=%q} %d\n", reason, want[reason])
	}
	err := testutil.GatherAndCompare(s.registry, strings.NewReader(text.String()), "kubetenant_flow_schema_problems")
	if err != nil {
		s.t.Errorf("%s: %v", name, err)
	}
}

// TestFlowSchemasFollowTenants checks that the FlowSchemas are updated after Tenants or the owners
// of namespaces change. They remain when the syncer stops.
func TestFlowSchemasFollowTenants(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		acme, initech, umbrella := tenanttest.ID(t, "acme"), tenanttest.ID(t, "initech"), tenanttest.ID(t, "Umbrella_1")
		const ofAcme, ofInitech = TenantPrefix + "acme", TenantPrefix + "initech"
		s := serve(t, tenantObject(acme, "default"), tenantObject(initech, ""), tenantObject(umbrella, "default"),
			namespaceObject("acme--web", "acme"), namespaceObject("acme--db", "acme"),
			namespaceObject("initech--web", "initech"), namespaceObject("kube-system", "acme"),
			namespaceObject("plain", ""), namespaceObject("odd", "a b"))
		s.run()
		ofUmbrella := TenantPrefix + umbrella.ObjectName()
		s.wantWrites("at first", "create "+NamespacesName, "create "+ofAcme, "create "+ofUmbrella, "create "+Level)
		s.wantSubjects("at first", ofAcme, "group tenant:acme", "acme--db/*", "acme--web/*")
		s.wantSubjects("not a DNS label", ofUmbrella, "group tenant:Umbrella_1")
		s.wantSubjects("no level", ofInitech, "none")
		s.settle(time.Hour)
		s.wantWrites("unchanged")
		s.wantProblems("unchanged", nil)

		s.putTenant(initech, "default")
		s.settle(20 * time.Second)
		s.wantWrites("level set", "create "+ofInitech)
		s.move("acme--web", "initech")
		s.settle(20 * time.Second)
		s.wantWrites("moved", "update "+ofAcme, "update "+ofInitech)
		s.wantSubjects("moved away", ofAcme, "group tenant:acme", "acme--db/*")
		s.wantSubjects("moved in", ofInitech, "group tenant:initech", "acme--web/*", "initech--web/*")
		s.move("acme--db", "")
		s.must(s.kube.CoreV1().Namespaces().Delete(t.Context(), "initech--web", metav1.DeleteOptions{}))
		s.settle(20 * time.Second)
		s.wantSubjects("released", ofAcme, "group tenant:acme")
		s.wantSubjects("deleted", ofInitech, "group tenant:initech", "acme--web/*")
		s.writes()

		s.putTenant(acme, "")
		s.must(s.dynamic.Resource(tenantsResource()).Delete(t.Context(), "initech", metav1.DeleteOptions{}))
		s.settle(30 * time.Second)
		s.wantWrites("level removed, Tenant deleted", "delete "+ofAcme, "delete "+ofInitech)
		s.stop()
		s.wantWrites("stopped")
		if s.schema(ofUmbrella) == nil || s.schema(NamespacesName) == nil {
			t.Error("FlowSchemas were deleted when the syncer stopped")
		}
	})
}

// TestSuspended checks that a suspension does not change the FlowSchema of a tenant.
func TestSuspended(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := tenantObject(tenanttest.ID(t, "acme"), "default")
		s := serve(t, u, namespaceObject("acme--web", "acme"))
		s.run()
		s.writes()
		u.SetGeneration(2)
		s.must(unstructured.SetNestedField(u.Object, "Closed", "spec", "suspension"))
		_, err := s.dynamic.Resource(tenantsResource()).Update(t.Context(), u, metav1.UpdateOptions{})
		s.must(err)
		s.settle(time.Minute)
		s.wantWrites("suspended")
	})
}

// TestUnreadableTenant checks that a tenant retains its FlowSchema if its Tenant does not decode.
// The FlowSchema is still updated if the tenant loses a namespace.
func TestUnreadableTenant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := tenantObject(tenanttest.ID(t, "acme"), "gold")
		s := serve(t, u, namespaceObject("acme--web", "acme"), level("kubetenant-gold"))
		s.run()
		s.writes()
		u.SetGeneration(2)
		u.Object["spec"] = map[string]any{"id": "acme", "fairUse": "gold"}
		_, err := s.dynamic.Resource(tenantsResource()).Update(t.Context(), u, metav1.UpdateOptions{})
		s.must(err)
		s.settle(time.Minute)
		s.wantWrites("unreadable")
		s.move("acme--web", "initech")
		s.settle(time.Minute)
		s.wantWrites("moved", "update kubetenant-tenant-acme")
		s.wantSubjects("moved", "kubetenant-tenant-acme", "group tenant:acme")
		if f := s.schema("kubetenant-tenant-acme"); f.Spec.PriorityLevelConfiguration.Name != "kubetenant-gold" {
			t.Errorf("level %s", f.Spec.PriorityLevelConfiguration.Name)
		}
	})
}

// TestDrift checks that changes and deletions of FlowSchemas by other callers are reverted within
// seconds. Changes of the priority level remain, because administrators may tune it.
func TestDrift(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := serve(t, tenantObject(tenanttest.ID(t, "acme"), "default"), namespaceObject("acme--web", "acme"))
		s.run()
		s.writes()
		const name = TenantPrefix + "acme"
		want := s.schema(name)
		for what, change := range map[string]func(*flowcontrolv1.FlowSchema){
			"precedence": func(f *flowcontrolv1.FlowSchema) { f.Spec.MatchingPrecedence = 1 },
			"level":      func(f *flowcontrolv1.FlowSchema) { f.Spec.PriorityLevelConfiguration.Name = "exempt" },
			"subjects":   func(f *flowcontrolv1.FlowSchema) { f.Spec.Rules[0].Subjects = f.Spec.Rules[0].Subjects[:1] },
			"rules":      func(f *flowcontrolv1.FlowSchema) { f.Spec.Rules = nil },
			"a flow for each user": func(f *flowcontrolv1.FlowSchema) {
				f.Spec.DistinguisherMethod = &flowcontrolv1.FlowDistinguisherMethod{
					Type: flowcontrolv1.FlowDistinguisherMethodByUserType,
				}
			},
		} {
			s.changeAcme(change)
			s.settle(10 * time.Second)
			s.wantWrites(what, "update "+name)
			if got := s.schema(name); fmt.Sprint(got.Spec) != fmt.Sprint(want.Spec) {
				t.Errorf("%s: %v, want %v", what, got.Spec, want.Spec)
			}
		}
		for _, deleted := range []string{name, NamespacesName} {
			s.must(s.kube.FlowcontrolV1().FlowSchemas().Delete(t.Context(), deleted, metav1.DeleteOptions{}))
			s.kube.ClearActions()
			s.settle(10 * time.Second)
			s.wantWrites("deleted", "create "+deleted)
		}
		s.changeAcme(func(f *flowcontrolv1.FlowSchema) { f.Annotations = map[string]string{"example.com/owner": "x"} })
		s.settle(time.Minute)
		s.wantWrites("an annotation")

		levels := s.kube.FlowcontrolV1().PriorityLevelConfigurations()
		p, err := levels.Get(t.Context(), Level, metav1.GetOptions{})
		s.must(err)
		if p.Labels[tenant.ManagedLabel] != Source {
			t.Errorf("labels %v", p.Labels)
		}
		p.Spec.Limited.NominalConcurrencyShares = new(int32(7))
		_, err = levels.Update(t.Context(), p, metav1.UpdateOptions{})
		s.must(err)
		s.kube.ClearActions()
		s.settle(time.Hour)
		s.wantWrites("a tuned level")
		s.must(levels.Delete(t.Context(), Level, metav1.DeleteOptions{}))
		s.kube.ClearActions()
		s.settle(10 * time.Second)
		s.wantWrites("deleted level", "create "+Level)
	})
}

// TestConflictingController checks that the rate of writes is limited if another controller changes
// a FlowSchema repeatedly.
func TestConflictingController(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := serve(t, tenantObject(tenanttest.ID(t, "acme"), "default"))
		s.run()
		s.writes()
		for range 100 {
			f := s.schema(TenantPrefix + "acme")
			f.Spec.MatchingPrecedence = 9999
			_, err := s.kube.FlowcontrolV1().FlowSchemas().Update(t.Context(), f, metav1.UpdateOptions{})
			s.must(err)
			s.settle(time.Second)
		}
		if n := len(s.writes()) - 100; n < 5 || n > 25 {
			t.Errorf("%d writes in 100 seconds", n)
		}
	})
}

// TestForeignObjectsAreNotWritten checks that a FlowSchema without the label of this package is
// never written, even if it has the name of a tenant's FlowSchema.
func TestForeignObjectsAreNotWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		foreign := func(name string, labels map[string]string) *flowcontrolv1.FlowSchema {
			return &flowcontrolv1.FlowSchema{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
		}
		const name = TenantPrefix + "acme"
		s := serve(t, tenantObject(tenanttest.ID(t, "acme"), "default"), level(Level),
			foreign(name, nil), foreign(NamespacesName, map[string]string{tenant.ManagedLabel: "tenant"}),
			foreign(TenantPrefix+"ended", nil), foreign(TenantPrefix+"other", map[string]string{tenant.ManagedLabel: "x"}),
			foreign("kubetenant", nil), foreign("copy", ownLabels()), foreign("kubetenant-copy", ownLabels()))
		s.run()
		s.settle(time.Hour)
		s.wantWrites("foreign objects")
		s.wantProblems("foreign objects", map[string]int{ReasonForeign: 2})
		s.must(s.kube.FlowcontrolV1().FlowSchemas().Delete(t.Context(), name, metav1.DeleteOptions{}))
		s.kube.ClearActions()
		s.settle(20 * time.Second)
		s.wantWrites("deleted", "create "+name)
		s.wantProblems("deleted", map[string]int{ReasonForeign: 1})
		s.changeAcme(func(f *flowcontrolv1.FlowSchema) { f.Labels, f.Spec.Rules = nil, nil })
		s.putTenant(tenanttest.ID(t, "acme"), "")
		s.settle(time.Minute)
		s.wantWrites("without its label")
	})
}

// TestTenantLimit checks that only the first 500 tenants have a FlowSchema. If one of the
// FlowSchemas is removed, the next tenant gets a FlowSchema.
func TestTenantLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var objects []runtime.Object
		for i := range MaxTenants + 2 {
			objects = append(objects, tenantObject(tenanttest.ID(t, fmt.Sprintf("t%04d", i)), "default"))
		}
		s := serve(t, objects...)
		began := time.Now()
		s.run()
		if n := len(s.writes()); n > 60*writesPerSecond+writesPerSecond {
			t.Errorf("%d writes in %v", n, time.Since(began))
		}
		s.settle(5 * time.Minute)
		s.writes()
		all, err := s.kube.FlowcontrolV1().FlowSchemas().List(t.Context(), metav1.ListOptions{})
		s.must(err)
		if len(all.Items) != MaxTenants+1 || s.schema(TenantPrefix+"t0499") == nil || s.schema(TenantPrefix+"t0500") != nil {
			t.Errorf("%d FlowSchemas", len(all.Items))
		}
		s.wantProblems("502 tenants", map[string]int{ReasonTenantLimit: 2})
		s.putTenant(tenanttest.ID(t, "t0007"), "")
		s.settle(time.Minute)
		s.wantWrites("one less", "create "+TenantPrefix+"t0500", "delete "+TenantPrefix+"t0007")
		s.wantProblems("one less", map[string]int{ReasonTenantLimit: 1})
	})
}

// TestNamespaceLimit checks that the number of namespaces in a FlowSchema is limited.
func TestNamespaceLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		objects := []runtime.Object{tenantObject(tenanttest.ID(t, "acme"), "default")}
		for i := range MaxNamespaces + 1 {
			objects = append(objects, namespaceObject(fmt.Sprintf("acme--%04d", i), "acme"))
		}
		s := serve(t, objects...)
		s.run()
		got := subjects(s.schema(TenantPrefix + "acme"))
		if len(got) != 1+MaxNamespaces || got[MaxNamespaces] != "acme--0999/*" {
			t.Errorf("%d subjects, the last is %s", len(got), got[len(got)-1])
		}
		s.wantProblems("too many namespaces", map[string]int{ReasonNamespaceLimit: 1})
	})
}

// TestLevels checks that a FlowSchema references only an existing level whose name has the prefix
// "kubetenant-".
func TestLevels(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		acme := tenanttest.ID(t, "acme")
		s := serve(t, tenantObject(acme, "gold"), level("gold"), level("exempt"))
		s.run()
		want := func(what, level string) {
			t.Helper()
			if got := s.schema(TenantPrefix + "acme").Spec.PriorityLevelConfiguration.Name; got != level {
				t.Errorf("%s: level %s, want %s", what, got, level)
			}
		}
		want("missing", Level)
		s.wantProblems("missing", map[string]int{ReasonLevelMissing: 1})
		levels := s.kube.FlowcontrolV1().PriorityLevelConfigurations()
		_, err := levels.Create(t.Context(), level("kubetenant-gold"), metav1.CreateOptions{})
		s.must(err)
		s.settle(20 * time.Second)
		want("created", "kubetenant-gold")
		s.wantProblems("created", nil)
		s.must(levels.Delete(t.Context(), "kubetenant-gold", metav1.DeleteOptions{}))
		s.settle(20 * time.Second)
		want("deleted", Level)
		for _, name := range []string{"exempt", "default", "tenants"} {
			s.putTenant(acme, name)
			s.settle(20 * time.Second)
			want(name, Level)
		}
	})
}

// TestFailures checks that failed writes are reported, are retried with a growing delay, and do not
// delay other writes.
func TestFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var objects []runtime.Object
		for i := range 3 * maxWrites {
			objects = append(objects, tenantObject(tenanttest.ID(t, fmt.Sprintf("a%d", i)), "default"))
		}
		s := serve(t, append(objects, tenantObject(tenanttest.ID(t, "z"), "default"))...)
		var mu sync.Mutex
		fail, tried := errors.New("full"), 0
		s.kube.PrependReactor("create", "flowschemas", func(a clienttesting.Action) (bool, runtime.Object, error) {
			mu.Lock()
			defer mu.Unlock()
			created, _ := meta.Accessor(a.(clienttesting.CreateAction).GetObject())
			if !strings.HasPrefix(created.GetName(), TenantPrefix+"a") || fail == nil {
				return false, nil, nil
			}
			tried++
			return true, nil, fail
		})
		s.run()
		if s.schema(TenantPrefix+"z") == nil || s.schema(NamespacesName) == nil {
			t.Error("failed writes delay other writes")
		}
		s.wantProblems("failing", map[string]int{ReasonWriteFailed: 3 * maxWrites})
		s.settle(time.Hour)
		if n := tried / (3 * maxWrites); n < 10 || n > 20 {
			t.Errorf("%d attempts for each FlowSchema in an hour", n)
		}
		mu.Lock()
		fail = nil
		mu.Unlock()
		s.settle(retryAtLast + time.Minute)
		s.wantProblems("repaired", nil)
	})
}

// TestNoLevel checks that no FlowSchema is created without its priority level, because the server
// would ignore it.
func TestNoLevel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := serve(t, tenantObject(tenanttest.ID(t, "acme"), "default"))
		s.kube.PrependReactor("create", "prioritylevelconfigurations",
			func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, errors.New("forbidden") })
		s.run()
		for _, w := range s.writes() {
			if w != "create "+Level {
				t.Errorf("write %s", w)
			}
		}
		s.wantProblems("no level", map[string]int{ReasonWriteFailed: 1})
	})
}

// TestNotServed checks that the syncer writes nothing to a server that does not serve the API
// group, and rarely checks whether the server serves it.
func TestNotServed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := serve(t, tenantObject(tenanttest.ID(t, "acme"), "default"))
		var served atomic.Bool
		s.kube.PrependReactor("get", "resource", func(clienttesting.Action) (bool, runtime.Object, error) {
			return !served.Load(), nil, apierrors.NewNotFound(schema.GroupResource{Resource: "resource"}, "")
		})
		s.run()
		s.settle(time.Hour)
		if n := len(s.kube.Actions()); n > 20 {
			t.Errorf("%d requests in an hour", n)
		}
		s.wantWrites("not served")
		s.wantProblems("not served", map[string]int{ReasonUnavailable: 1})
		served.Store(true)
		s.settle(servedEvery + time.Minute)
		s.wantProblems("served", nil)
		if s.schema(TenantPrefix+"acme") == nil {
			t.Error("no FlowSchema after an upgrade of the server")
		}
	})
}

// TestConflict checks that a FlowSchema that changed after it was read is not overwritten, and that
// the write is retried.
func TestConflict(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := serve(t, tenantObject(tenanttest.ID(t, "acme"), "default"))
		s.run()
		s.writes()
		const name = TenantPrefix + "acme"
		var mu sync.Mutex
		var versions []string
		s.kube.PrependReactor("update", "flowschemas", func(a clienttesting.Action) (bool, runtime.Object, error) {
			mu.Lock()
			defer mu.Unlock()
			f := a.(clienttesting.UpdateAction).GetObject().(*flowcontrolv1.FlowSchema)
			if f.Spec.MatchingPrecedence != tenantPrecedence {
				return false, nil, nil // a write by the administrator
			}
			versions = append(versions, f.ResourceVersion)
			if len(versions) == 1 {
				return true, nil, apierrors.NewConflict(schema.GroupResource{}, name, errors.New("changed"))
			}
			return false, nil, nil
		})
		s.changeAcme(func(f *flowcontrolv1.FlowSchema) {
			f.Spec.MatchingPrecedence, f.ResourceVersion = 1, "41"
		})
		s.settle(time.Minute)
		if len(versions) != 2 || versions[0] == "" {
			t.Errorf("versions %q", versions)
		}
		s.wantProblems("conflict", nil)
	})
}
