// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package managed_test

import (
	"maps"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/warning"

	"github.com/kubetenant/kubetenant/tenant"
)

// TestKeystone checks that only the server itself writes the Keystone project of a Namespace.
func TestKeystone(t *testing.T) {
	const none, p1, p2 = "none", `{"domain":"d1","project":"p1"}`, `{"domain":"d1","project":"p2"}`
	of := func(value string) *corev1.Namespace {
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "a--web", Annotations: map[string]string{"x": "y"}}}
		if value != none {
			ns.Annotations[tenant.KeystoneAnnotation] = value
		}
		return ns
	}
	callers := []*user.DefaultInfo{
		{Name: "root"},
		{Name: "x", Groups: []string{"b"}},
		{Name: "unknown"},
		{Name: "system:serviceaccount:kube-system:x"},
		{Name: tenant.ManagerUser, Groups: []string{"b"}}, // a tenant's caller with the manager's name
	}
	manager := []*user.DefaultInfo{{Name: tenant.ManagerUser}}
	for name, c := range map[string]struct {
		by              []*user.DefaultInfo
		was, is         string // was is "" if the Namespace is created
		want            string // after Admit
		refused, warned bool   // denied without Admit
	}{
		"created with it":        {callers, "", p1, none, true, true},
		"created without it":     {callers, "", none, none, false, false},
		"added":                  {callers, none, p1, none, true, true},
		"changed":                {callers, p1, p2, p1, true, true},
		"set to \"\"":            {callers, p1, "", p1, true, true},
		"removed":                {callers, p1, none, p1, true, false},
		"the same":               {callers, p1, p1, p1, false, false},
		"created by the manager": {manager, "", p1, p1, false, false},
		"added by the manager":   {manager, none, p1, p1, false, false},
		"changed by the manager": {manager, p1, p2, p2, false, false},
		"removed by the manager": {manager, p1, none, none, false, false},
	} {
		for _, by := range c.by {
			for _, sub := range []string{"", "status", "finalize"} {
				if c.was == "" && sub != "" {
					continue
				}
				t.Run(name+" by "+by.Name+" "+sub, func(t *testing.T) {
					is := of(c.is)
					w := write{
						by:       by,
						resource: namespaces,
						in:       "a--web",
						sub:      sub,
						obj:      is,
					}
					if c.was != "" {
						w.old = of(c.was)
					}
					err := newPlugin().Validate(t.Context(), w.attributes(), nil)
					if (err != nil) != c.refused || err != nil && !strings.Contains(err.Error(), "annotation") {
						t.Errorf("not mutated: %v", err)
					}
					var got warnings
					if err := newPlugin().Admit(warning.WithWarningRecorder(t.Context(), &got), w.attributes(), nil); err != nil {
						t.Error(err)
					}
					if want := of(c.want); !maps.Equal(is.Annotations, want.Annotations) {
						t.Errorf("annotations %v, want %v", is.Annotations, want.Annotations)
					}
					if (len(got) > 0) != c.warned {
						t.Errorf("warnings %q", got)
					}
					if err := newPlugin().Validate(t.Context(), w.attributes(), nil); err != nil {
						t.Errorf("mutated: %v", err)
					}
				})
			}
		}
	}
}
