// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package label_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/kubetenant/kubetenant/plugins/label"
	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/tenanttest"
	"github.com/kubetenant/kubetenant/test/waittest"
)

var (
	services = corev1.SchemeGroupVersion.WithResource("services")
	secrets  = corev1.SchemeGroupVersion.WithResource("secrets")
)

func stored(kind, namespace, name string, labels ...string) runtime.Object {
	o := &metav1.PartialObjectMetadata{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: kind},
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID("uid-" + name)},
	}
	if len(labels) > 0 {
		o.Labels = map[string]string{tenant.Label: labels[0]}
	}
	return o
}

func client(t *testing.T, objects ...runtime.Object) *fake.FakeMetadataClient {
	t.Helper()
	scheme := fake.NewTestScheme()
	if err := metav1.AddMetaToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	return fake.NewSimpleMetadataClient(scheme, objects...)
}

func resources(of ...schema.GroupVersionResource) func() ([]schema.GroupVersionResource, error) {
	return func() ([]schema.GroupVersionResource, error) {
		return append([]schema.GroupVersionResource{}, of...), nil
	}
}

// writes returns the patches that were sent, as resource, namespace and name.
func writes(c *fake.FakeMetadataClient) []string {
	var all []string
	for _, a := range c.Actions() {
		if p, ok := a.(clienttesting.PatchAction); ok {
			all = append(all, fmt.Sprintf("%s %s/%s", p.GetResource().Resource, p.GetNamespace(), p.GetName()))
		}
	}
	return all
}

func labelOf(t *testing.T, c *fake.FakeMetadataClient, r schema.GroupVersionResource, namespace, name string) string {
	t.Helper()
	o, err := c.Resource(r).Namespace(namespace).Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if value, ok := o.Labels[tenant.Label]; ok {
		return value
	}
	return "-"
}

// TestBackfill checks that wrong labels are corrected, Services first, and that correct objects are
// not written.
func TestBackfill(t *testing.T) {
	c := client(t, stored("Service", "a--web", "plain"), stored("Secret", "a--web", "plain"),
		stored("Secret", "a--web", "lie", "b"),
		stored("Secret", "a--web", "right", "a"), stored("Secret", "kube-system", "lie", "a"),
		stored("Secret", "kube-system", "plain"), stored("Secret", "bad", "lie", "a"))
	s := label.NewBackfill(c, resources(secrets, services), owner)
	if s.Done(secrets.GroupResource(), tenanttest.ID(t, "a")) {
		t.Error("done before the backfill")
	}
	if err := s.RunOnce(t.Context()); err != nil {
		t.Fatal(err)
	}
	for key, want := range map[[2]string]string{
		{"a--web", "plain"}:      "a",
		{"a--web", "lie"}:        "a",
		{"a--web", "right"}:      "a",
		{"kube-system", "lie"}:   "-",
		{"kube-system", "plain"}: "-",
		{"bad", "lie"}:           "-",
	} {
		t.Run(key[0]+"/"+key[1], func(t *testing.T) {
			if got := labelOf(t, c, secrets, key[0], key[1]); got != want {
				t.Errorf("label %q, want %q", got, want)
			}
		})
	}
	all := writes(c)
	if len(all) != 5 || all[0] != "services a--web/plain" {
		t.Errorf("writes %v", all)
	}
	if !s.Done(secrets.GroupResource(), tenanttest.ID(t, "a")) ||
		!s.Done(services.GroupResource(), tenanttest.ID(t, "a")) ||
		s.Done(configMaps.GroupResource(), tenanttest.ID(t, "a")) {
		t.Error("Done does not match the backfilled resources")
	}
	// Another backfill, as after a restart of the server, finds nothing to write.
	c.ClearActions()
	if err := label.NewBackfill(c, resources(secrets, services), owner).RunOnce(t.Context()); err != nil ||
		len(writes(c)) != 0 {
		t.Errorf("second backfill: %v, %v", err, writes(c))
	}
}

// TestBackfillFailures checks that a failed write denies lists only to the owner of the object and
// to the tenant in its label. If an owner cannot be looked up, lists are denied to all tenants.
func TestBackfillFailures(t *testing.T) {
	a, b, d := tenanttest.ID(t, "a"), tenanttest.ID(t, "b"), tenanttest.ID(t, "d")
	c := client(t, stored("Secret", "a--web", "stuck", "b"), stored("Secret", "a--web", "later"),
		stored("Secret", "b--web", "fine"))
	refuse := true
	c.PrependReactor("patch", "secrets", func(action clienttesting.Action) (bool, runtime.Object, error) {
		return refuse && action.(clienttesting.PatchAction).GetName() == "stuck", nil, errors.New("refused by a webhook")
	})
	s := label.NewBackfill(c, resources(secrets), owner)
	if err := s.RunOnce(t.Context()); err == nil || !strings.Contains(err.Error(), "a--web/stuck") {
		t.Errorf("error %v", err)
	}
	if s.Done(secrets.GroupResource(), a) || s.Done(secrets.GroupResource(), b) || !s.Done(secrets.GroupResource(), d) {
		t.Error("a failed write must deny lists to tenants a and b only")
	}
	if got := labelOf(t, c, secrets, "a--web", "later"); got != "a" {
		t.Errorf("label of the next object: %q", got)
	}
	refuse = false
	if err := s.RunOnce(t.Context()); err != nil || !s.Done(secrets.GroupResource(), a) {
		t.Errorf("retry: %v", err)
	}

	// A failed lookup of an owner denies lists to all tenants, even if a write failed before it.
	c = client(t, stored("Secret", "a--web", "stuck"), stored("Secret", "away", "x", "b"))
	refuse = true
	c.PrependReactor("patch", "secrets", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, errors.New("refused")
	})
	s = label.NewBackfill(c, resources(secrets), owner)
	if err := s.RunOnce(t.Context()); err == nil || s.Done(secrets.GroupResource(), b) {
		t.Errorf("failed owner lookup after another failure: %v", err)
	}

	c = client(t, stored("Secret", "away", "x"), stored("Secret", "a--web", "x"))
	s = label.NewBackfill(c, resources(secrets), owner)
	if err := s.RunOnce(t.Context()); err == nil || s.Done(secrets.GroupResource(), d) {
		t.Errorf("failed owner lookup: %v", err)
	}
	c.PrependReactor(
		"list",
		"*",
		func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, errUnavailable },
	)
	if err := label.NewBackfill(c, resources(secrets), owner).RunOnce(t.Context()); !errors.Is(err, errUnavailable) {
		t.Errorf("failed list: %v", err)
	}
}

// TestReassignedNamespace checks that the objects of a namespace with a new owner are
// corrected, and that other changes of a namespace cause no requests.
func TestReassignedNamespace(t *testing.T) {
	c := client(t, stored("Secret", "a--web", "x", "a"))
	s := label.NewBackfill(c, resources(secrets), owner)
	if err := s.RunOnce(t.Context()); err != nil {
		t.Fatal(err)
	}
	ns := func(labels map[string]string) *corev1.Namespace {
		return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "a--web", Labels: labels}}
	}
	lists := func() int {
		n := 0
		for _, a := range c.Actions() {
			if a.GetVerb() == "list" {
				n++
			}
		}
		return n
	}
	before := lists()
	s.NamespaceHandler().OnAdd(ns(nil), true)
	s.NamespaceHandler().OnUpdate(ns(nil), ns(nil))
	if err := s.RunOnce(t.Context()); err != nil || lists() != before {
		t.Errorf("%d unnecessary lists: %v", lists()-before, err)
	}
	for _, change := range []func(){
		func() { s.NamespaceHandler().OnUpdate(ns(nil), ns(map[string]string{tenant.Label: "a"})) },
		func() {
			s.NamespaceHandler().OnDelete(ns(nil))
			s.NamespaceHandler().OnAdd(ns(map[string]string{tenant.Label: "b"}), false)
		},
	} {
		before := lists()
		change()
		if err := s.RunOnce(t.Context()); err != nil || lists() != before+1 {
			t.Errorf("%d lists, want 1: %v", lists()-before, err)
		}
	}
}

// TestRun checks that Run ends with its context, and that Done for an unknown resource wakes it.
func TestRun(t *testing.T) {
	known := make(chan struct{})
	of := func() ([]schema.GroupVersionResource, error) {
		select {
		case <-known:
			return []schema.GroupVersionResource{secrets}, nil
		default:
			return nil, nil
		}
	}
	s := label.NewBackfill(client(t, stored("Secret", "a--web", "x")), of, owner)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { s.Run(ctx); close(ended) }()
	close(known)
	waittest.Until(t, func() error {
		if !s.Done(secrets.GroupResource(), tenanttest.ID(t, "a")) {
			return errors.New("the resource is not backfilled yet")
		}
		return nil
	})
	cancel()
	<-ended
}

// TestPartiallyReassignedNamespace checks that a failed write in a namespace with a new owner
// denies lists to the former and the new owner.
func TestPartiallyReassignedNamespace(t *testing.T) {
	c := client(t, stored("Secret", "b--web", "x", "b"))
	s := label.NewBackfill(c, resources(secrets), owner)
	if err := s.RunOnce(t.Context()); err != nil || !s.Done(secrets.GroupResource(), tenanttest.ID(t, "b")) {
		t.Fatal(err)
	}
	late := stored("Secret", "b--web", "late", "a").(*metav1.PartialObjectMetadata)
	if err := c.Tracker().Create(secrets, late, "b--web"); err != nil {
		t.Fatal(err)
	}
	c.PrependReactor("patch", "secrets", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, errors.New("refused")
	})
	ns := func(owner string) *corev1.Namespace {
		return &corev1.Namespace{
			ObjectMeta: metav1.ObjectMeta{Name: "b--web", Labels: map[string]string{tenant.Label: owner}},
		}
	}
	s.NamespaceHandler().OnAdd(ns("a"), true)
	s.NamespaceHandler().OnUpdate(ns("a"), ns("b"))
	if err := s.RunOnce(t.Context()); err == nil {
		t.Error("no error")
	}
	for name, want := range map[string]bool{"a": false, "b": false, "d": true} {
		t.Run(name, func(t *testing.T) {
			if got := s.Done(secrets.GroupResource(), tenanttest.ID(t, name)); got != want {
				t.Errorf("Done for tenant %s = %t", name, got)
			}
		})
	}
}

// TestResume checks that earlier results apply until the next backfill of each resource, which
// corrects wrong labels.
func TestResume(t *testing.T) {
	c := client(t, stored("Secret", "a--web", "plain"))
	s := label.NewBackfill(c, resources(services, secrets), owner)
	a, b := tenanttest.ID(t, "a"), tenanttest.ID(t, "b")
	s.Resume(map[schema.GroupResource][]tenant.ID{secrets.GroupResource(): {b}})
	if !s.Done(secrets.GroupResource(), a) || s.Done(secrets.GroupResource(), b) || s.Done(services.GroupResource(), a) {
		t.Error("Done does not match the resumed results")
	}
	if err := s.RunOnce(t.Context()); err != nil {
		t.Fatal(err)
	}
	if labelOf(t, c, secrets, "a--web", "plain") != "a" || !s.Done(secrets.GroupResource(), b) {
		t.Error("the resource was not backfilled again")
	}
	s.Resume(map[schema.GroupResource][]tenant.ID{secrets.GroupResource(): {a}})
	if !s.Done(secrets.GroupResource(), a) {
		t.Error("Resume replaced a newer result")
	}
	unreadable := client(t)
	unreadable.PrependReactor("list", "secrets", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, errors.New("forbidden")
	})
	s = label.NewBackfill(unreadable, resources(secrets), owner)
	s.Resume(map[schema.GroupResource][]tenant.ID{secrets.GroupResource(): nil})
	if err := s.RunOnce(t.Context()); err == nil || s.Done(secrets.GroupResource(), a) {
		t.Errorf("the resumed result of an unreadable resource still applies: %v", err)
	}
}

// TestReset checks that every resource is backfilled again after Reset, and that the result of a
// backfill that began before Reset is ignored.
func TestReset(t *testing.T) {
	c := client(t, stored("Secret", "a--web", "plain"))
	s := label.NewBackfill(c, resources(secrets), owner)
	a := tenanttest.ID(t, "a")
	if err := s.RunOnce(t.Context()); err != nil || !s.Done(secrets.GroupResource(), a) {
		t.Fatal(err)
	}
	s.Reset()
	if s.Done(secrets.GroupResource(), a) || len(s.Results()) > 0 {
		t.Error("a result from before Reset still applies")
	}
	forgot := false
	c.PrependReactor("list", "secrets", func(clienttesting.Action) (bool, runtime.Object, error) {
		if !forgot {
			forgot = true
			s.Reset()
		}
		return false, nil, nil
	})
	if err := s.RunOnce(t.Context()); err != nil || s.Done(secrets.GroupResource(), a) {
		t.Errorf("the result of a backfill that began before Reset applies: %v", err)
	}
	if err := s.RunOnce(t.Context()); err != nil || !s.Done(secrets.GroupResource(), a) {
		t.Errorf("the resource was not backfilled again: %v", err)
	}
}
