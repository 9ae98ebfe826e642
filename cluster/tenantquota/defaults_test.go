// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package tenantquota_test

import (
	"context"
	"encoding/json"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/kubetenant/kubetenant/cluster/tenantquota"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

// ensured runs EnsureDefaults for a few passes.
func ensured(t *testing.T, quotas *tenantquota.Store, all *tenantquota.Namespaces, pods string) {
	t.Helper()
	hard := corev1.ResourceList{}
	if pods != "" {
		hard[corev1.ResourcePods] = resource.MustParse(pods)
	}
	ctx, stop := context.WithCancel(t.Context())
	var over sync.WaitGroup
	over.Go(func() { quotas.EnsureDefaults(ctx, all, func() corev1.ResourceList { return hard }) })
	time.Sleep(2500 * time.Millisecond) // in the fake time of synctest
	synctest.Wait()
	stop()
	over.Wait()
}

// written returns the writes of quotas in the form "verb name", in alphabetical order.
func written(client *fake.FakeDynamicClient) []string {
	var all []string
	for _, action := range client.Actions() {
		switch a := action.(type) {
		case clienttesting.CreateActionImpl:
			all = append(all, "create "+a.Object.(metav1.Object).GetName())
		case clienttesting.PatchActionImpl:
			all = append(all, "patch "+a.Name)
		case clienttesting.DeleteActionImpl:
			all = append(all, "delete "+a.Name)
		case clienttesting.UpdateActionImpl:
			all = append(all, "update "+a.Object.(metav1.Object).GetName())
		}
	}
	slices.Sort(all)
	return all
}

// TestDefaults checks that each tenant without a quota gets a default quota. A change of the
// configuration updates or deletes only default quotas.
func TestDefaults(t *testing.T) {
	for name, tc := range map[string]struct {
		known      []runtime.Object
		namespaces map[string]string
		pods       string
		want       []string
	}{
		"no quotas": {
			namespaces: map[string]string{"ns-0": "a", "ns-1": "b"},
			pods:       "5",
			want:       []string{"create a", "create b"},
		},
		"ID not an object name": {
			namespaces: map[string]string{"ns-0": "A"},
			pods:       "5",
			want:       []string{"create a.559aead0"},
		},
		"namespaces without a tenant": {namespaces: map[string]string{"ns-0": "", "ns-1": "system"}, pods: "5"},
		"own quota": {
			known:      []runtime.Object{object(t, "mine", "a", false, "")},
			namespaces: map[string]string{"ns-0": "a"},
			pods:       "7",
		},
		"current default quota": {
			known:      []runtime.Object{object(t, "a", "a", true, "")},
			namespaces: map[string]string{"ns-0": "a"},
			pods:       "5",
		},
		"outdated default quota": {
			known:      []runtime.Object{object(t, "a", "a", true, "")},
			namespaces: map[string]string{"ns-0": "a"},
			pods:       "7",
			want:       []string{"patch a"},
		},
		"name of another tenant's quota": {
			known:      []runtime.Object{object(t, "a", "b", false, "")},
			namespaces: map[string]string{"ns-0": "a"},
			pods:       "5",
			want:       []string{"create a.ca978112"},
		},
		"no default limits": {
			known:      []runtime.Object{object(t, "a", "a", true, ""), object(t, "mine", "b", false, "")},
			namespaces: map[string]string{"ns-0": "a", "ns-1": "b"},
			want:       []string{"delete a"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				quotas, client := store(t, tc.known...)
				client.PrependReactor("patch", "*", func(clienttesting.Action) (bool, runtime.Object, error) {
					return true, nil, apierrors.NewConflict(v1alpha1.Resource(v1alpha1.ResourceTenantQuotas), "a", nil)
				})
				client.ClearActions()
				ensured(t, quotas, namespaces(t, tc.namespaces), tc.pods)
				if got := slices.Compact(written(client)); !slices.Equal(got, slices.Compact(tc.want)) {
					t.Errorf("wrote %v, want %v", got, tc.want)
				}
			})
		})
	}
}

var ofA = map[string]string{"a--web": "a"}

// TestDefaultNeverReplacesQuota checks that a default quota never replaces a quota that the store
// has not observed yet.
func TestDefaultNeverReplacesQuota(t *testing.T) {
	quotasResource := v1alpha1.SchemeGroupVersion.WithResource(v1alpha1.ResourceTenantQuotas)
	synctest.Test(t, func(t *testing.T) {
		quotas, client := store(t)
		client.PrependReactor("create", "*", func(clienttesting.Action) (bool, runtime.Object, error) {
			return true, nil, apierrors.NewAlreadyExists(quotasResource.GroupResource(), "a")
		})
		client.ClearActions()
		ensured(t, quotas, namespaces(t, ofA), "5")
		for _, one := range written(client) {
			if one != "create a" {
				t.Errorf("wrote %q although the quota exists", one)
			}
		}
	})
	synctest.Test(t, func(t *testing.T) {
		quotas, client := store(t, object(t, "a", "a", true, ""))
		var patches []string
		client.PrependReactor("patch", "*", func(action clienttesting.Action) (bool, runtime.Object, error) {
			patches = append(patches, string(action.(clienttesting.PatchAction).GetPatch()))
			return true, nil, apierrors.NewConflict(quotasResource.GroupResource(), "a", nil)
		})
		ensured(t, quotas, namespaces(t, ofA), "7")
		if len(patches) == 0 {
			t.Fatal("the outdated default quota is not updated")
		}
		for _, patch := range patches {
			var said []struct {
				Op, Path string
				Value    any
			}
			if err := json.Unmarshal([]byte(patch), &said); err != nil {
				t.Fatal(err)
			}
			if len(said) != 2 || said[0].Path != "/metadata/resourceVersion" || said[0].Value != "1" ||
				said[1].Path != "/spec/hard" {
				t.Errorf("the patch does not require the observed version: %s", patch)
			}
		}
	})
}

// TestDefaultsConflict checks that an update of a default quota that fails with a conflict, for
// example because of a charge, is retried a second later.
func TestDefaultsConflict(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		quotas, client := store(t, object(t, "a", "a", true, ""))
		tries := 0
		client.PrependReactor("patch", "*", func(clienttesting.Action) (bool, runtime.Object, error) {
			tries++
			return true, nil, apierrors.NewConflict(v1alpha1.Resource(v1alpha1.ResourceTenantQuotas), "a", nil)
		})
		ensured(t, quotas, namespaces(t, ofA), "7")
		if tries != 3 {
			t.Errorf("tried %d times in 2.5 s", tries)
		}
	})
}
