// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package service_test

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/kubetenant/kubetenant/internal/webhook/service"
)

// BenchmarkReviews measures the handling of each kind of review, without a network.
func BenchmarkReviews(b *testing.B) {
	w := newFixtureWith(b, "")
	h := w.handler(b)
	pod := admissionReview("CREATE",
		`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p","namespace":"a--web","labels":{"app":"web"},`+
			`"annotations":{"note":"`+strings.Repeat("x", 1500)+`"}},`+
			`"spec":{"containers":[{"name":"c","image":"example.com/web:1","env":[`+
			strings.TrimSuffix(strings.Repeat(`{"name":"A","value":"some value"},`, 12), ",")+
			`],"resources":{"requests":{"cpu":"100m","memory":"64Mi"}}}]}}`, "")
	pod = strings.NewReplacer(`"kind":"ConfigMap"},`, `"kind":"Pod"},`, `"resource":"configmaps"`, `"resource":"pods"`).
		Replace(pod)
	for name, c := range map[string]struct{ path, body string }{
		"SubjectAccessReview": {service.AuthorizePath, access("v1", "groups", "a--web")},
		"TokenReview":         {service.AuthenticatePath, tokenReview("v1", token)},
		"mutate a pod":        {service.MutatePath, pod},
		"validate a pod":      {service.ValidatePath, pod},
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				r := httptest.NewRequestWithContext(b.Context(), http.MethodPost, c.path, bytes.NewReader([]byte(c.body)))
				answer := httptest.NewRecorder()
				h.ServeHTTP(answer, r)
				if answer.Code != http.StatusOK {
					b.Fatal(answer.Code)
				}
			}
		})
	}
}
