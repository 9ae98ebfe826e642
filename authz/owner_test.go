// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package authz_test

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/kubetenant/kubetenant/authz"
	"github.com/kubetenant/kubetenant/tenant"
)

func itoa(i int) string { return strconv.Itoa(i) }

// newLister returns a client-go lister of namespaces with the given labels.
func newLister(t testing.TB, labels map[string]string) corelisters.NamespaceLister {
	t.Helper()
	indexer := cache.NewIndexer(cache.MetaNamespaceKeyFunc, nil)
	for name, label := range labels {
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{tenant.Label: label}}}
		if err := indexer.Add(ns); err != nil {
			t.Fatal(err)
		}
	}
	return corelisters.NewNamespaceLister(indexer)
}

func TestOwners(t *testing.T) {
	o := authz.NewOwners(namespaceCache(map[string]string{
		"own":      "a",
		"system":   "system",
		"plain":    "-",
		"empty":    "",
		"bad":      "a b",
		"reserved": "ALL",
	}), nil)
	for namespace, want := range map[string]string{
		"own":      "a",
		"system":   "system",
		"plain":    "system",
		"empty":    "",
		"bad":      "",
		"reserved": "",
		"missing":  "",
		"":         "",
	} {
		t.Run(namespace, func(t *testing.T) {
			if id, err := o.Of(t.Context(), namespace); id.String() != want || err != nil {
				t.Errorf("Of(%q) = %q, %v; want %q", namespace, id, err, want)
			}
		})
	}
	if id, err := o.Of(t.Context(), "away"); !id.IsZero() || !errors.Is(err, errUnavailable) {
		t.Errorf("Of(away) = %q, %v; want the error", id, err)
	}
}

func notFound(name string) error { return apierrors.NewNotFound(corev1.Resource("namespaces"), name) }

// TestLiveReads checks that concurrent lookups of a namespace that is not in the cache share one
// live read.
func TestLiveReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reads := 0
		release := make(chan struct{})
		o := authz.NewOwners(namespaceCache(nil), func(_ context.Context, name string) (*corev1.Namespace, error) {
			reads++
			<-release
			if name != "new" {
				return nil, notFound(name)
			}
			return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{tenant.Label: "a"}}}, nil
		})
		var all sync.WaitGroup
		for range 50 {
			all.Go(func() {
				if id, err := o.Of(t.Context(), "new"); id.String() != "a" || err != nil {
					t.Errorf("Of(new) = %q, %v", id, err)
				}
			})
		}
		synctest.Wait() // all 50 lookups wait for the one read
		close(release)
		all.Wait()
		if reads != 1 {
			t.Errorf("%d live reads for 50 concurrent lookups", reads)
		}
	})
}

// TestLiveReadsAreLimited checks that lookups of missing names cause only a few live reads, and
// that every lookup reports a missing namespace.
func TestLiveReadsAreLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // the clock does not advance
		var reads atomic.Int32
		o := authz.NewOwners(namespaceCache(nil), func(_ context.Context, name string) (*corev1.Namespace, error) {
			reads.Add(1)
			return nil, notFound(name)
		})
		for i := range 1000 {
			if id, err := o.Of(t.Context(), "missing-"+itoa(i)); !id.IsZero() || err != nil {
				t.Fatalf("Of() = %q, %v; want the zero ID", id, err)
			}
		}
		if n := reads.Load(); n > 200 {
			t.Errorf("%d live reads for 1000 missing names", n)
		}
	})
}

// TestTenantsHaveSeparateBudgets checks that a tenant that looks up too many missing names uses up
// only its own budget.
func TestTenantsHaveSeparateBudgets(t *testing.T) {
	o := options(nil)
	owners := authz.NewOwners(namespaceCache(nil), func(_ context.Context, name string) (*corev1.Namespace, error) {
		if name != "new" {
			return nil, notFound(name)
		}
		return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{tenant.Label: "b"}}}, nil
	})
	o.Owners, o.Subjects.Owners = owners, owners
	boundary := authz.New(o, nil, nil)
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	for i := range 200 {
		all.Go(func() { _, _, _ = boundary.Authorize(ctx, podRequest(callerOf("a"), "get", "missing-"+itoa(i))) })
	}
	defer all.Wait()
	defer cancel()
	if d, reason, _ := boundary.Authorize(t.Context(),
		podRequest(callerOf("b"), "get", "new")); d != authorizer.DecisionNoOpinion {
		t.Errorf("new namespace of b: %v, %q", d, reason)
	}
}

// TestOwnersHaveSeparateBudgets checks that lookups without a requesting tenant use up only the
// budget of the namespaces' owner. It looks up missing and terminating namespaces.
func TestOwnersHaveSeparateBudgets(t *testing.T) {
	ending := func(owner string) *corev1.Namespace {
		return &corev1.Namespace{
			ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: &metav1.Time{}, Labels: map[string]string{tenant.Label: owner}},
		}
	}
	live := func(_ context.Context, name string) (*corev1.Namespace, error) {
		if strings.HasPrefix(name, "a--") {
			return nil, notFound(name)
		}
		return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{tenant.Label: "b"}}}, nil
	}
	for name, flood := range map[string]func(i int) string{
		"missing":     func(i int) string { return "a--missing-" + itoa(i) },
		"terminating": func(int) string { return "ending-a" },
	} {
		t.Run(name, func(t *testing.T) {
			o := options(nil)
			o.Subjects.Owners = authz.NewOwners(func(name string) (*corev1.Namespace, error) {
				if owner, ok := strings.CutPrefix(name, "ending-"); ok {
					return ending(owner), nil
				}
				return nil, notFound(name)
			}, live)
			for i := range 200 {
				_, _ = o.Subjects.ServiceAccountTenant(t.Context(), flood(i))
			}
			for _, namespace := range []string{"b--new", "ending-b"} {
				if id, err := o.Subjects.ServiceAccountTenant(t.Context(), namespace); id.String() != "b" {
					t.Errorf("%s namespaces of a: service accounts of %s belong to tenant %q, %v", name, namespace, id, err)
				}
			}
		})
	}
}

func TestFailedLiveReadsReturnErrors(t *testing.T) {
	o := authz.NewOwners(
		namespaceCache(nil),
		func(context.Context, string) (*corev1.Namespace, error) { return nil, errUnavailable },
	)
	if id, err := o.Of(t.Context(), "new"); !id.IsZero() || !errors.Is(err, errUnavailable) {
		t.Errorf("Of() = %q, %v; want the error", id, err)
	}
	silent := authz.NewOwners(namespaceCache(nil), func(context.Context, string) (*corev1.Namespace, error) {
		return nil, nil
	}) //nolint:nilnil // which it must not
	if id, err := silent.Of(t.Context(), "new"); !id.IsZero() || err == nil {
		t.Errorf("Of() with a nil namespace = %q, %v; want an error", id, err)
	}
	blocked := authz.NewOwners(namespaceCache(nil), func(ctx context.Context, _ string) (*corev1.Namespace, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if id, err := blocked.Of(ctx, "new"); !id.IsZero() || err == nil {
		t.Errorf("Of() with a canceled context = %q, %v; want an error", id, err)
	}
}

// TestTerminating checks that only a namespace with a deletion timestamp is reported as
// terminating.
func TestTerminating(t *testing.T) {
	owners := authz.NewOwners(func(name string) (*corev1.Namespace, error) {
		switch name {
		case "going":
			return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, DeletionTimestamp: new(metav1.Now())}}, nil
		case "stays":
			return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, nil
		}
		return nil, apierrors.NewNotFound(corev1.Resource("namespaces"), name)
	}, nil)
	for name, want := range map[string]bool{"going": true, "stays": false, "missing": false} {
		t.Run(name, func(t *testing.T) {
			if got := owners.Terminating(name); got != want {
				t.Errorf("%t", got)
			}
		})
	}
}
