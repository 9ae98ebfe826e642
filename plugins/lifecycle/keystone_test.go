// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package lifecycle_test

import (
	"context"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/warning"

	"github.com/kubetenant/kubetenant/plugins/lifecycle"
	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/tenanttest"
)

const none = "none"

// warnings are the warnings of a request.
type warnings []string

func (w *warnings) AddWarning(_, text string) { *w = append(*w, text) }

// withKeystoneDomain returns a Tenant with the given annotation, or without the annotation if value
// is none.
func withKeystoneDomain(value string) *unstructured.Unstructured {
	u := object(map[string]any{"deletionPolicy": "Orphan"}, tenant.Finalizer)
	u.SetAnnotations(map[string]string{"x": "y"})
	if value != none {
		u.SetAnnotations(map[string]string{"x": "y", tenant.KeystoneAnnotation: value})
	}
	return u
}

func domainOf(u *unstructured.Unstructured) string {
	if value, ok := u.GetAnnotations()[tenant.KeystoneAnnotation]; ok {
		return value
	}
	return none
}

// TestKeystone checks that only the server writes the Keystone domain of a Tenant. Other callers
// may only set the annotation to "".
func TestKeystone(t *testing.T) {
	const d1, d2 = `{"domain":"d1"}`, `{"domain":"d2"}`
	callers := []string{"root", "mallory", "system:serviceaccount:kube-system:x"}
	manager := []string{tenant.ManagerUser}
	for name, c := range map[string]struct {
		by      []string
		create  bool
		was, is string
		want    string // after Admit
		refused bool   // without Admit
		warned  bool
	}{
		"created with it":           {callers, true, "", d1, none, true, true},
		"created with \"\"":         {callers, true, "", "", none, false, true},
		"created without it":        {callers, true, "", none, none, false, false},
		"added":                     {callers, false, none, d1, none, true, true},
		"added after \"\"":          {callers, false, "", d1, "", true, true},
		"changed":                   {callers, false, d1, d2, d1, true, true},
		"changed to an invalid one": {callers, false, d1, "{", d1, true, true},
		"changed to a space":        {callers, false, d1, " ", d1, true, true},
		"removed":                   {callers, false, d1, none, d1, true, false},
		"the same":                  {callers, false, d1, d1, d1, false, false},
		"without it":                {callers, false, none, none, none, false, false},
		"set to \"\"":               {callers, false, d1, "", "", false, false},
		"added as \"\"":             {callers, false, none, "", "", false, false},
		"removed after \"\"":        {callers, false, "", none, "", true, false},
		"created by the manager":    {manager, true, "", d1, d1, false, false},
		"added by the manager":      {manager, false, none, d1, d1, false, false},
		"changed by the manager":    {manager, false, d1, d2, d2, false, false},
		"removed by the manager":    {manager, false, d1, none, none, false, false},
	} {
		for _, by := range c.by {
			t.Run(name+" by "+by, func(t *testing.T) {
				p, is := lifecycle.New((&fakeCluster{}).options(t)), withKeystoneDomain(c.is)
				op, was := admission.Create, runtime.Object(nil)
				if !c.create {
					op, was = admission.Update, withKeystoneDomain(c.was)
				}
				a := attributes(by, "", op, is, was)
				err := p.Validate(t.Context(), a, nil)
				if (err != nil) != c.refused || err != nil && !strings.Contains(err.Error(), tenant.KeystoneAnnotation) {
					t.Errorf("not mutated: %v", err)
				}
				var got warnings
				if err := p.Admit(warning.WithWarningRecorder(t.Context(), &got), a, nil); err != nil {
					t.Error(err)
				}
				if domainOf(is) != c.want || is.GetAnnotations()["x"] != "y" {
					t.Errorf("annotations %v, want %s", is.GetAnnotations(), c.want)
				}
				if (len(got) > 0) != c.warned {
					t.Errorf("warnings %q", got)
				}
				if err := p.Validate(t.Context(), a, nil); err != nil {
					t.Errorf("mutated: %v", err)
				}
			})
		}
	}
}

// TestKeystoneForgedManager checks that a tenant's caller with the user name of
// [tenant.ManagerUser] may not write the annotation.
func TestKeystoneForgedManager(t *testing.T) {
	o := (&fakeCluster{}).options(t)
	o.Subject = func(context.Context, user.Info) (tenant.ID, error) { return tenanttest.ID(t, "a"), nil }
	obj := withKeystoneDomain(`{"domain":"d1"}`)
	a := attributes(tenant.ManagerUser, "", admission.Update, obj, withKeystoneDomain(none))
	if err := lifecycle.New(o).Validate(t.Context(), a, nil); err == nil {
		t.Error("the annotation is allowed")
	}
	if err := lifecycle.New(o).Admit(t.Context(), a, nil); err != nil || domainOf(obj) != none {
		t.Errorf("annotations %v: %v", obj.GetAnnotations(), err)
	}
}
