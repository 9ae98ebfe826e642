// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package status_test

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/kubetenant/kubetenant/plugins/status"
	"github.com/kubetenant/kubetenant/tenant"
)

// TestResources checks that only callers of the system tenant may write the status of each
// resource, in any version. Other writes are allowed.
func TestResources(t *testing.T) {
	p := status.New(status.Options{
		Subject: func(_ context.Context, u user.Info) (tenant.ID, error) { return tenant.Parse(u.GetName()) },
	})
	for _, r := range status.Resources() {
		if r.Resource == "pods" || r.Resource == "jobs" { // admission-status.yaml tests these resources
			continue
		}
		for name, c := range map[string]struct {
			caller, subresource string
			ok                  bool
		}{
			"the status by a tenant":                {"a", "status", false},
			"the object by a tenant":                {"a", "", true},
			"the scale by a tenant":                 {"a", "scale", true},
			"the status by the system tenant":       {"system", "status", true},
			"the status by a user without a tenant": {"nobody at all", "status", false},
		} {
			t.Run(r.String()+", "+name, func(t *testing.T) {
				obj := &corev1.ConfigMap{}
				err := p.Validate(t.Context(),
					admission.NewAttributesRecord(obj, obj, corev1.SchemeGroupVersion.WithKind("X"), "a--web", "x",
						r.WithVersion("v9"), c.subresource, admission.Update, nil, false, &user.DefaultInfo{Name: c.caller}), nil)
				if (err == nil) != c.ok {
					t.Errorf("%v, want allowed: %t", err, c.ok)
				}
			})
		}
	}
}
