// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package isolation

import (
	"net/http"
	"strings"
	"testing"

	"k8s.io/client-go/kubernetes"
)

// TestUndiscoveredGroups checks that an API group whose discovery fails is recorded as not
// tested, unless only other groups are tested.
func TestUndiscoveredGroups(t *testing.T) {
	s := &store{objects: map[string]map[string]any{}}
	server := s.admin(t)
	down := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch r.URL.Path {
		case "/apis":
			_, _ = w.Write([]byte(`{"kind":"APIGroupList","apiVersion":"v1","groups":[{"name":"metrics.k8s.io",
				"versions":[{"groupVersion":"metrics.k8s.io/v1beta1","version":"v1beta1"}]}]}`))
		case "/apis/metrics.k8s.io/v1beta1":
			w.WriteHeader(http.StatusServiceUnavailable)
		default:
			s.ServeHTTP(w, r)
		}
	})
	for groups, want := range map[string]int{"": 1, "metrics.k8s.io": 1, "apps": 0} {
		t.Run(groups, func(t *testing.T) {
			m, c := testMatrix(t, down)
			if groups != "" {
				m.Groups = []string{groups}
			}
			server.Host = c.url
			k, err := kubernetes.NewForConfig(server)
			if err != nil {
				t.Fatal(err)
			}
			served, err := m.discover(k)
			if err != nil || len(served) != len(required) || m.report.found(Untested) != want {
				t.Errorf("groups %q: %d resources, %v, findings %v", groups, len(served), err, m.report.Findings)
			}
			if want > 0 && !strings.Contains(m.report.Findings[0].Example, "metrics.k8s.io/v1beta1") {
				t.Errorf("groups %q: %v", groups, m.report.Findings[0])
			}
		})
	}
}
