package service_test

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/kubetenant/kubetenant/cmd/internal/webhook/service"
)

// BenchmarkReviews answers each kind of review without a network.
func BenchmarkReviews(b *testing.B) {
	w := newWorld(b)
	h := w.handler(b)
	for name, c := range map[string]struct{ path, body string }{
		"SubjectAccessReview": {service.AuthorizePath, access("v1", "groups", "a--web")},
		"TokenReview":         {service.AuthenticatePath, tokenReview("v1", token)},
		"mutate":              {service.MutatePath, admissionReview("CREATE", configMap(`,"annotations":{"a":"`+strings.Repeat("x", 2000)+`"}`), "")},
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
