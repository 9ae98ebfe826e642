// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package tenancy_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kubetenant/kubetenant/internal/cli/tenancy"
	"github.com/kubetenant/kubetenant/tenant"
)

// annotated sets an annotation of an object and returns the object.
func annotated(u *unstructured.Unstructured, key, value string) *unstructured.Unstructured {
	u.SetAnnotations(map[string]string{key: value})
	return u
}

// TestReleaseOfASystemNamespaceRefuses checks that a system namespace is not released while it
// contains an object that a tenant's caller created. With Force, the release only warns, and does
// not delete the object.
func TestReleaseOfASystemNamespaceRefuses(t *testing.T) {
	const acme, system = `{"user":"alice","tenant":"acme"}`, `{"user":"system:admin","tenant":"system"}`
	of := func(apiVersion, kind, name, creator string) *unstructured.Unstructured {
		return annotated(inWeb(apiVersion, kind, name, nil), tenant.CreatorAnnotation, creator)
	}
	const rbac = "rbac.authorization.k8s.io/v1"
	for name, c := range map[string]struct {
		object *unstructured.Unstructured
		named  string // empty if the object does not block the release
	}{
		"a ServiceAccount":           {of("v1", "ServiceAccount", "robot", acme), "serviceaccounts/robot"},
		"a Secret":                   {of("v1", "Secret", "token", acme), "secrets/token"},
		"a RoleBinding":              {of(rbac, "RoleBinding", "own", acme), "rolebindings.rbac.authorization.k8s.io/own"},
		"a Pod":                      {of("v1", "Pod", "p", acme), "pods/p"},
		"a CronJob":                  {of("batch/v1", "CronJob", "c", acme), "cronjobs.batch/c"},
		"another tenant's object":    {of("v1", "Secret", "token", `{"user":"bob","tenant":"globex"}`), "secrets/token"},
		"a creator without a tenant": {of("v1", "Secret", "token", `{"user":"bob"}`), "secrets/token"},
		"an invalid annotation":      {of("v1", "Secret", "token", `{`), "secrets/token"},
		"a Pod that a controller created": {
			annotated(inWeb("v1", "Pod", "p", nil), tenant.OnBehalfOfAnnotation, acme), "pods/p",
		},
		"the ServiceAccount default":      {of("v1", "ServiceAccount", "default", acme), ""},
		"an object of the system tenant":  {of("v1", "Secret", "token", system), ""},
		"an object without an annotation": {inWeb("v1", "Secret", "token", nil), ""},
		"a ConfigMap":                     {of("v1", "ConfigMap", "c", acme), ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := newReleaseFixture(c.object)
			r := w.release()
			r.System = []string{"web"}
			err := r.Run(t.Context(), "web")
			_, labeled := w.namespace(t).Labels[tenant.Label]
			if errors.Is(err, tenancy.ErrNamespaceNotEmpty) != (c.named != "") || labeled != (c.named != "") ||
				err != nil && !strings.Contains(err.Error(), c.named) {
				t.Errorf("%v, labeled %t", err, labeled)
			}
			r.Force = true
			err = r.Run(t.Context(), "web")
			_, labeled = w.namespace(t).Labels[tenant.Label]
			if warned := strings.Contains(w.output[0], "warning: ") && strings.Contains(w.output[0], c.named); err != nil ||
				labeled || !warned {
				t.Errorf("%s, forced: %v, labeled %t, printed %q", name, err, labeled, w.output)
			}
			for _, a := range w.objects.Actions() {
				if a.GetVerb() == "delete" {
					t.Errorf("deleted %v", a)
				}
			}
		})
	}
}

// TestReleaseOfASystemNamespaceNamesSome checks that the error contains the number of objects, and
// lists at most 20 of them.
func TestReleaseOfASystemNamespaceNamesSome(t *testing.T) {
	var all []runtime.Object
	for i := range 25 {
		all = append(all, annotated(inWeb("v1", "Secret", fmt.Sprintf("s%d", i), nil), tenant.CreatorAnnotation,
			`{"user":"alice","tenant":"acme"}`))
	}
	r := newReleaseFixture(all...).release()
	r.System = []string{"web"}
	err := r.Run(t.Context(), "web")
	if err == nil || strings.Count(err.Error(), "secrets/") != 20 || !strings.Contains(err.Error(), "25 objects") {
		t.Errorf("%v", err)
	}
}
