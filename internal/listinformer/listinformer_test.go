// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package listinformer_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/features"
	featurestesting "k8s.io/client-go/features/testing"
	"k8s.io/client-go/rest"
	clienttesting "k8s.io/client-go/testing"

	"github.com/kubetenant/kubetenant/internal/listinformer"
)

// TestInformerBeginsWithAList checks that an informer begins with a list, even if client-go's
// informers would use a streaming list.
func TestInformerBeginsWithAList(t *testing.T) {
	featurestesting.SetFeatureDuringTest(t, features.WatchListClient, true)
	asked := make(chan string, 100)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked <- r.URL.Query().Get("watch") + r.URL.Query().Get("resourceVersion")
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"kind":"KindList","apiVersion":"g/v1","metadata":{"resourceVersion":"7"},"items":[]}`)
	}))
	defer server.Close()
	client, err := dynamic.NewForConfig(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	go listinformer.New(client, schema.GroupVersionResource{Group: "g", Version: "v1", Resource: "kinds"}).
		RunWithContext(t.Context())
	for _, want := range []string{"0", "true7"} {
		select {
		case got := <-asked:
			if got != want {
				t.Errorf("request %q, want %q", got, want)
			}
		case <-time.After(time.Minute):
			t.Fatal("no request was sent")
		}
	}
}

// TestListIsRetriedUntilServed checks that an informer reads a resource within seconds after the
// server begins to serve it.
func TestListIsRetriedUntilServed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		resource := schema.GroupVersionResource{Group: "g", Version: "v1", Resource: "kinds"}
		client := dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(),
			map[schema.GroupVersionResource]string{resource: "KindList"})
		var served atomic.Bool
		var asked atomic.Int32
		client.PrependReactor("list", resource.Resource, func(clienttesting.Action) (bool, runtime.Object, error) {
			asked.Add(1)
			return !served.Load(), nil, apierrors.NewNotFound(resource.GroupResource(), "")
		})
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		informer := listinformer.New(client, resource)
		go informer.RunWithContext(ctx)
		time.Sleep(10 * time.Minute)
		if n := asked.Load(); informer.HasSynced() || n > 10*60/3+1 {
			t.Errorf("before the resource is served: synced %v, %d requests", informer.HasSynced(), n)
		}
		served.Store(true)
		time.Sleep(5 * time.Second)
		if !informer.HasSynced() {
			t.Error("the informer has not synced 5 s after the resource is served")
		}
	})
}
