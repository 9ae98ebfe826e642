// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package tenantquota_test

import (
	"errors"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"github.com/kubetenant/kubetenant/plugins/quota"
	"github.com/kubetenant/kubetenant/tenant/tenanttest"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

// TestChargesThatFail checks that a failed charge does not change the usage. If another process has
// written the quota, the store returns a conflict and reads the quota again.
func TestChargesThatFail(t *testing.T) {
	of := v1alpha1.Resource(v1alpha1.ResourceTenantQuotas)
	for name, c := range map[string]struct {
		err      error
		conflict bool
		used     int64 // the usage after the charge
	}{
		"written by another process": {apierrors.NewConflict(of, "a", nil), true, 4},
		"forbidden":                  {apierrors.NewForbidden(of, "a", nil), false, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := tenanttest.ID(t, "a")
				quotas, client := store(t, object(t, "a", "a", false, "1"))
				client.PrependReactor("update", "*", func(clienttesting.Action) (bool, runtime.Object, error) {
					return true, nil, c.err
				})
				client.PrependReactor("get", "*", func(clienttesting.Action) (bool, runtime.Object, error) {
					newest := object(t, "a", "a", false, "4")
					newest.SetResourceVersion("9")
					return true, newest, nil
				})
				was := singleState(t, quotas, a)
				next := *was
				next.Used = corev1.ResourceList{corev1.ResourcePods: resource.MustParse("2")}
				err := quotas.Charge(t.Context(), was, &next)
				if err == nil || errors.Is(err, quota.ErrConflict) != c.conflict {
					t.Errorf("%v", err)
				}
				if got := singleState(t, quotas, a).Used.Pods().Value(); got != c.used {
					t.Errorf("%d used", got)
				}
			})
		})
	}
}
