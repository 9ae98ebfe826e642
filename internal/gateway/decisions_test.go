// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/kubetenant/kubetenant/tenant"
)

// TestChanges checks which events change a namespace, which texts name it, and how long the change
// is recorded.
func TestChanges(t *testing.T) {
	t.Parallel()
	namespace := func(uid types.UID, owner string) *corev1.Namespace {
		return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
			Name:   "web",
			UID:    uid,
			Labels: map[string]string{tenant.Label: owner},
		}}
	}
	was := namespace("1", "acme")
	for what, c := range map[string]struct {
		event   func(h cache.ResourceEventHandler)
		changed bool
	}{
		"created":   {func(h cache.ResourceEventHandler) { h.OnAdd(was, false) }, false},
		"the same":  {func(h cache.ResourceEventHandler) { h.OnUpdate(was, namespace("1", "acme")) }, false},
		"another":   {func(h cache.ResourceEventHandler) { h.OnUpdate(was, namespace("2", "acme")) }, true},
		"another's": {func(h cache.ResourceEventHandler) { h.OnUpdate(was, namespace("1", "globex")) }, true},
		"of another type": {func(h cache.ResourceEventHandler) {
			h.OnUpdate(&metav1.PartialObjectMetadata{ObjectMeta: was.ObjectMeta}, was)
		}, true},
		"deleted": {func(h cache.ResourceEventHandler) { h.OnDelete(was) }, true},
		"missed": {func(h cache.ResourceEventHandler) {
			h.OnDelete(cache.DeletedFinalStateUnknown{Key: "web", Obj: was})
		}, true},
	} {
		synctest.Test(t, func(t *testing.T) {
			var all changes
			c.event(noting(all.note))
			if all.none() == c.changed {
				t.Errorf("%s: changed: %v", what, !c.changed)
			}
			for text, names := range map[string]bool{
				"web":                              true,
				"system:serviceaccount:web:robot":  true,
				"system:serviceaccounts:web":       true,
				"":                                 false,
				"webs":                             false,
				"system:serviceaccount:shop:robot": false,
				"acme":                             false,
			} {
				if got := all.concern("shop", text); got != (names && c.changed) {
					t.Errorf("%s: %q: %v", what, text, got)
				}
			}
			time.Sleep(changedFor)
			if all.concern("web") {
				t.Errorf("%s: for ever", what)
			}
			if all.note("shop"); len(all.byName) != 1 {
				t.Errorf("%s: %v are kept", what, all.byName)
			}
		})
	}
}
