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

// TestNamespaceChanges checks which events are recorded as a change of a namespace, which texts
// contain the name of the namespace, and how long the change has an effect.
func TestNamespaceChanges(t *testing.T) {
	t.Parallel()
	namespace := func(uid types.UID, owner string) *corev1.Namespace {
		return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
			Name:   "web",
			UID:    uid,
			Labels: map[string]string{tenant.Label: owner},
		}}
	}
	before := namespace("1", "acme")
	for what, c := range map[string]struct {
		event   func(h cache.ResourceEventHandler)
		changed bool
	}{
		"created":       {func(h cache.ResourceEventHandler) { h.OnAdd(before, false) }, false},
		"unchanged":     {func(h cache.ResourceEventHandler) { h.OnUpdate(before, namespace("1", "acme")) }, false},
		"recreated":     {func(h cache.ResourceEventHandler) { h.OnUpdate(before, namespace("2", "acme")) }, true},
		"another owner": {func(h cache.ResourceEventHandler) { h.OnUpdate(before, namespace("1", "globex")) }, true},
		"object of another type": {func(h cache.ResourceEventHandler) {
			h.OnUpdate(&metav1.PartialObjectMetadata{ObjectMeta: before.ObjectMeta}, before)
		}, true},
		"deleted": {func(h cache.ResourceEventHandler) { h.OnDelete(before) }, true},
		"missed": {func(h cache.ResourceEventHandler) {
			h.OnDelete(cache.DeletedFinalStateUnknown{Key: "web", Obj: before})
		}, true},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var all changes
				c.event(namespaceChangeHandler(all.record))
				if all.empty() == c.changed {
					t.Errorf("changed: %v", !c.changed)
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
					if got := all.affects("shop", text); got != (names && c.changed) {
						t.Errorf("%q: %v", text, got)
					}
				}
				time.Sleep(changeTTL)
				if all.affects("web") {
					t.Error("the change still has an effect after changeTTL")
				}
				if all.record("shop"); len(all.byName) != 1 {
					t.Errorf("%v are recorded, want only shop", all.byName)
				}
			})
		})
	}
}
