// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
)

// writes receives the watch events of a namespace.
type writes struct {
	events chan string
	failed chan error
}

// follow starts to watch the given resources of a namespace. It does not report objects that
// already exist.
func follow(t *testing.T, admin *rest.Config, namespace string, resources ...schema.GroupVersionResource) *writes {
	t.Helper()
	client, err := metadata.NewForConfig(admin)
	if err != nil {
		t.Fatal(err)
	}
	w := &writes{make(chan string, 1000), make(chan error, len(resources))}
	for _, r := range resources {
		list, err := client.Resource(r).Namespace(namespace).List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		events, err := client.Resource(r).Namespace(namespace).Watch(t.Context(),
			metav1.ListOptions{ResourceVersion: list.ResourceVersion})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(events.Stop)
		go w.read(t.Context(), r.Resource, events)
	}
	return w
}

func (w *writes) read(ctx context.Context, resource string, events watch.Interface) {
	for e := range events.ResultChan() {
		m, err := meta.Accessor(e.Object)
		if e.Type == watch.Error || err != nil {
			w.failed <- fmt.Errorf("watch %s: %v", resource, e.Object)
			return
		}
		w.events <- resource + "/" + m.GetName()
	}
	if ctx.Err() == nil {
		w.failed <- fmt.Errorf("the watch of %s ended", resource)
	}
}

// awaitQuiet waits until no object has been written for the given duration. It returns the
// number of writes until then, keyed by object. If the writes do not end within waitLimit, the
// test fails.
func (w *writes) awaitQuiet(t *testing.T, silence time.Duration) map[string]int {
	t.Helper()
	counts := map[string]int{}
	end := time.After(waitLimit)
	for {
		select {
		case event := <-w.events:
			counts[event]++
		case err := <-w.failed:
			t.Fatal(err)
		case <-time.After(silence):
			return counts
		case <-end:
			t.Fatalf("the writes do not end: %v", fmt.Sprint(counts))
		}
	}
}
