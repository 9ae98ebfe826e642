package service_test

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/kubetenant/kubetenant/cmd/internal/webhook/service"
)

func BenchmarkPod(b *testing.B) {
	w := newWorldWith(b, "")
	w.Limits.Memory = 1 << 30
	h := w.handler(b)
	pod := `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p","namespace":"a--web","labels":{"app":"web"},"annotations":{"note":"` + strings.Repeat("x", 1500) + `"}},` +
		`"spec":{"containers":[{"name":"c","image":"example.com/web:1","env":[` + strings.TrimSuffix(strings.Repeat(`{"name":"A","value":"some value"},`, 12), ",") + `],"resources":{"requests":{"cpu":"100m","memory":"64Mi"}}}],"serviceAccountName":"default"}}`
	body := `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":"705ab4f5-6393-11e8-b7cc-42010a800002","kind":{"group":"","version":"v1","kind":"Pod"},` +
		`"resource":{"group":"","version":"v1","resource":"pods"},"requestKind":{"group":"","version":"v1","kind":"Pod"},"requestResource":{"group":"","version":"v1","resource":"pods"},` +
		`"name":"p","namespace":"a--web","operation":"CREATE","userInfo":{"username":"alice","uid":"u1","groups":["dev","tenant:a","system:authenticated"],"extra":{"kubetenant.dev/tenant":["a"]}},` +
		`"object":` + pod + `,"oldObject":null,"dryRun":false,"options":{"kind":"CreateOptions","apiVersion":"meta.k8s.io/v1"}}}`
	for name, path := range map[string]string{"mutate": service.MutatePath, "validate": service.ValidatePath} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				r := httptest.NewRequestWithContext(b.Context(), http.MethodPost, path, bytes.NewReader([]byte(body)))
				answer := httptest.NewRecorder()
				h.ServeHTTP(answer, r)
				if answer.Code != http.StatusOK {
					b.Fatal(answer.Code)
				}
			}
		})
	}
}
