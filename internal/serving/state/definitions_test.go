// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package state

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	metadatafake "k8s.io/client-go/metadata/fake"
	"sigs.k8s.io/yaml"

	"github.com/kubetenant/kubetenant/cluster"
	"github.com/kubetenant/kubetenant/cluster/tenants"
	"github.com/kubetenant/kubetenant/deploy"
	"github.com/kubetenant/kubetenant/internal/serving"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
	"github.com/kubetenant/kubetenant/test/waittest"
)

func kindURL(resource string) string {
	return "https://server" + kindsPath + resource + "?watch=true&resourceVersion=1"
}

// TestUnservedKindMakesDataStale checks that the data is stale if the server does not serve a
// watched kind, unless the check ignores the kind. Once the kind is served, the data is current
// again.
func TestUnservedKindMakesDataStale(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newTestClient()
		f.code.Store(http.StatusNotFound)
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		f.answered = time.Now().Add(time.Hour)
		go func() { _, _ = f.get(ctx, t, kindURL("tenants")) }()
		time.Sleep(time.Minute)
		spare := func(names ...string) func(string) bool {
			return func(resource string) bool { return strings.Join(names, " ") == resource }
		}
		if err := f.check(10*time.Second, spare("other")); !errors.Is(err, errNotServed) {
			t.Errorf("a kind that is not ignored: %v", err)
		}
		if err := f.check(10*time.Second, spare("tenants")); err != nil {
			t.Errorf("an ignored kind: %v", err)
		}
		f.code.Store(http.StatusOK)
		time.Sleep(5 * time.Second)
		if err := f.check(10*time.Second, spare()); err != nil {
			t.Errorf("after the kind is served again: %v", err)
		}
	})
}

// testCluster is the state of a cluster whose definitions a test installs and removes.
type testCluster struct {
	*State
	t      *testing.T
	client *dynamicfake.FakeDynamicClient
}

func newTestCluster(t *testing.T) *testCluster {
	t.Helper()
	objects := dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(),
		map[schema.GroupVersionResource]string{tenants.Definitions(): "CustomResourceDefinitionList"})
	typed := fake.NewClientset()
	clients := cluster.Clients{
		Typed:    typed,
		Dynamic:  objects,
		Grants:   objects,
		Quotas:   objects,
		Metadata: metadatafake.NewSimpleMetadataClient(metadatafake.NewTestScheme()),
	}
	known, err := cluster.New(clients, informers.NewSharedInformerFactory(typed, 0))
	if err != nil {
		t.Fatal(err)
	}
	s := &State{
		cluster:    known,
		watches:    newWatches(func() time.Time { return time.Time{} }),
		staleAfter: time.Minute,
		required:   []string{v1alpha1.ResourceTenants, v1alpha1.ResourceRetiredTenants},
	}
	go known.CRDs.Run(t.Context())
	return &testCluster{s, t, objects}
}

// install creates the definition of a resource.
func (s *testCluster) install(resource string) {
	s.t.Helper()
	u := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(deploy.Definitions()[resource+".yaml"]), &u.Object); err != nil {
		s.t.Fatal(err)
	}
	u.Object["status"] = map[string]any{"conditions": []any{map[string]any{"type": "Established", "status": "True"}}}
	if _, err := s.client.Resource(tenants.Definitions()).Create(s.t.Context(), u, metav1.CreateOptions{}); err != nil {
		s.t.Fatal(err)
	}
}

func (s *testCluster) remove(resource string) {
	s.t.Helper()
	name := v1alpha1.Resource(resource)
	if err := s.client.Resource(tenants.Definitions()).Delete(s.t.Context(),
		name.String(), metav1.DeleteOptions{}); err != nil {
		s.t.Fatal(err)
	}
}

// want checks whether the data is current and whether the replica is ready. The readiness check
// of the definitions must fail with the given text, or pass if the text is empty.
func (s *testCluster) want(when string, current, ready bool, says string) {
	s.t.Helper()
	waittest.Until(s.t, func() error {
		if _, known := s.cluster.CRDs.Problems(); !known {
			return errNotSynced
		}
		if s.refresh(); s.current.Load() != current || s.Ready() != ready {
			return fmt.Errorf("%s: current %v, ready %v; want %v, %v: %w",
				when, s.current.Load(), s.Ready(), current, ready, s.check())
		}
		return nil
	})
	for _, check := range s.Checks() {
		err := check.Check(nil)
		if degraded := serving.Degraded(""); err != nil && errors.As(err, &degraded) != ready {
			s.t.Errorf("%s: %s: %v", when, check.Name(), err)
		}
		said := err != nil && says != "" && strings.Contains(err.Error(), says)
		if check.Name() == "definitions" && said != (says != "") {
			s.t.Errorf("%s: %v; want %q", when, err, says)
		}
	}
}

// TestMissingDefinitionsDenyTenants checks that a replica is not ready until all required kinds are
// defined. If a required kind is removed later, tenants are denied, but the replica remains ready
// for the system tenant. Other kinds have no effect.
func TestMissingDefinitionsDenyTenants(t *testing.T) {
	s := newTestCluster(t)
	s.install("tenants")
	s.want("an incomplete installation", false, false, "retiredtenants.kubetenant.dev is missing")
	s.install("retiredtenants")
	s.want("without templates", true, true, "")
	for _, resource := range s.required {
		s.remove(resource)
		s.want(resource+" removed", false, true,
			resource+".kubetenant.dev is missing: tenants are denied until you run kubectl apply")
		s.install(resource)
		s.want(resource+" installed", true, true, "")
	}
	s.required = nil
	s.remove("tenants")
	s.want("a cluster without the kinds", true, true, "")
}
