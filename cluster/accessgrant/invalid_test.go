// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package accessgrant_test

import (
	"bytes"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"

	authzgrant "github.com/kubetenant/kubetenant/authz/accessgrant"
	"github.com/kubetenant/kubetenant/cluster/accessgrant"
)

// invalidGrants returns values of the wrong type and the paths at which to set them.
func invalidGrants() map[string]struct {
	value any
	path  []string
} {
	return map[string]struct {
		value any
		path  []string
	}{
		"invalid time":    {"SECRET", []string{"spec", "expires"}},
		"string for list": {"SECRET", []string{"spec", "to"}},
		"unknown field":   {"SECRET", []string{"spec", "onlyFor"}},
		"invalid status":  {"SECRET", []string{"status", "conditions"}},
	}
}

func invalid(t *testing.T, value any, path []string) *unstructured.Unstructured {
	t.Helper()
	u := unstructuredOf(t, granted())
	if err := unstructured.SetNestedField(u.Object, value, path...); err != nil {
		t.Fatal(err)
	}
	return u
}

// TestInvalidGrant checks that a grant that does not decode allows nothing, is logged without its
// values, and does not affect other grants.
func TestInvalidGrant(t *testing.T) {
	for name, c := range invalidGrants() {
		t.Run(name, func(t *testing.T) {
			client := clientOf(t)
			for object, u := range map[string]*unstructured.Unstructured{
				"g":     invalid(t, c.value, c.path),
				"valid": unstructuredOf(t, granted()),
			} {
				u.SetName(object)
				if _, err := client.Resource(resource).Namespace("b--web").Create(t.Context(),
					u, metav1.CreateOptions{}); err != nil {
					t.Fatal(err)
				}
			}
			var log bytes.Buffer
			logger := textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(&log)))
			grants := controller(t, client, nil)
			if err := grants.Sync(klog.NewContext(t.Context(), logger)); err != nil {
				t.Fatal(err)
			}
			var used []string
			all := grants.Grants()
			all.Used = func(g *authzgrant.Grant) { used = append(used, g.Name) }
			if ok, _ := all.Allows(t.Context(), crossTenantRequests(t)); !ok || len(used) != 1 || used[0] != "valid" {
				t.Errorf("the request is allowed: %t, used grants: %q", ok, used)
			}
			if text := log.String(); !strings.Contains(text, "b--web/g") || strings.Contains(text, "SECRET") {
				t.Errorf("the log is %q", text)
			}
		})
	}
}

// TestGrantBecomesInvalid checks a valid grant that becomes invalid and is then fixed. While it is
// invalid, it allows nothing. The controller reports both changes and writes no status.
func TestGrantBecomesInvalid(t *testing.T) {
	for name, c := range invalidGrants() {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := run(t, clientOf(t, granted()))
				later(time.Second)
				valid := unstructuredOf(t, r.read(t))
				for _, next := range []struct {
					u    *unstructured.Unstructured
					want bool
				}{{invalid(t, c.value, c.path), false}, {valid, true}} {
					before := len(r.reported())
					if _, err := r.client.Resource(resource).Namespace("b--web").Update(t.Context(),
						next.u, metav1.UpdateOptions{}); err != nil {
						t.Fatal(err)
					}
					if r.allows(t) != next.want && !next.want {
						t.Error("the invalid grant allows a request before the controller observes the change")
					}
					later(5 * time.Minute)
					if r.allows(t) != next.want {
						t.Errorf("valid: %t, allows: %t", next.want, !next.want)
					}
					if len(r.reported()) == before {
						t.Error("the change is not reported")
					}
					stored, err := r.client.Resource(resource).Namespace("b--web").Get(t.Context(),
						"g", metav1.GetOptions{})
					if err != nil {
						t.Fatal(err)
					}
					if value, _, _ := unstructured.NestedFieldNoCopy(stored.Object, c.path...); !next.want && value != c.value {
						t.Errorf("the controller wrote %v", value)
					}
				}
			})
		})
	}
}

// TestParseRejectsInvalid checks that Parse, which admission uses, rejects the grants that the
// controller treats as invalid.
func TestParseRejectsInvalid(t *testing.T) {
	for name, c := range invalidGrants() {
		t.Run(name, func(t *testing.T) {
			if _, err := accessgrant.Parse(invalid(t, c.value, c.path)); err == nil {
				t.Error("no error")
			}
		})
	}
	if _, err := accessgrant.Parse(granted()); err != nil {
		t.Errorf("valid grant: %v", err)
	}
}
