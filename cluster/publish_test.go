// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package cluster_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/kubetenant/kubetenant/cluster"
	configv1alpha1 "github.com/kubetenant/kubetenant/config/v1alpha1"
)

// TestPublishConfiguration checks that the configuration is written only when it changes, and that
// a failed write is retried.
func TestPublishConfiguration(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		client := fake.NewClientset()
		var writes, down atomic.Int32
		client.PrependReactor("patch", "configmaps", func(clienttesting.Action) (bool, runtime.Object, error) {
			writes.Add(1)
			if down.Load() > 0 {
				return true, nil, apierrors.NewInternalError(errors.New("down"))
			}
			return false, nil, nil
		})
		settings, err := (&configv1alpha1.Settings{}).Complete()
		if err != nil {
			t.Fatal(err)
		}
		var hash atomic.Value
		hash.Store("one")
		done := make(chan struct{})
		go func() {
			defer close(done)
			cluster.PublishConfiguration(ctx, client, metav1.NamespaceSystem, "eu-1", func() (*configv1alpha1.Published, error) {
				if hash.Load() == "unreadable" {
					return nil, errors.New("half a file")
				}
				return &configv1alpha1.Published{Hash: hash.Load().(string), Settings: *settings}, nil
			})
		}()
		is := func(want string, written int32) {
			t.Helper()
			time.Sleep(time.Minute)
			synctest.Wait()
			p, err := cluster.PublishedConfiguration(ctx, client.CoreV1(), "nowhere", metav1.NamespaceSystem)
			if err != nil || p.Hash != want || writes.Swap(0) != written {
				t.Errorf("%+v, %v; want %s", p, err, want)
			}
		}
		is("one", 2)
		hash.Store("two")
		is("two", 2)
		hash.Store("unreadable")
		is("two", 0)
		down.Store(1)
		hash.Store("three")
		is("two", 12)
		down.Store(0)
		is("three", 2)
		cancel()
		<-done
		if _, err := cluster.PublishedConfiguration(t.Context(), client.CoreV1(), "nowhere"); !apierrors.IsNotFound(err) {
			t.Errorf("%v", err)
		}
	})
}
