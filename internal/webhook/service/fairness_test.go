// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package service_test

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"time"

	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/kubetenant/kubetenant/internal/webhook/service"
	"github.com/kubetenant/kubetenant/test/loadtest"
)

// BenchmarkFairness measures the latency of a quiet tenant in three cases. It is alone, it competes
// with a noisy tenant with 500 service accounts, or it competes with that tenant and tenants do not
// take turns.
func BenchmarkFairness(b *testing.B) {
	byNamespace := func(namespace string) string { return namespace[:1] }
	one := func(string) string { return "all" }
	var alone loadtest.Result
	for _, c := range []struct {
		name    string
		clients int
		ownerOf func(string) string
	}{
		{"alone", 0, byNamespace},
		{"noisy", loadtest.Noisy, byNamespace},
		{"noisy, first come first served", loadtest.Noisy, one},
	} {
		b.Run(c.name, func(b *testing.B) {
			w := newFixtureWith(b, "")
			w.OwnerOf = c.ownerOf
			w.Limits.Concurrent, w.Limits.Queued = loadtest.Places, 1024
			w.Limits.Memory = 1 << 40
			w.authorizer = func(context.Context, authorizer.Attributes) (authorizer.Decision, string, error) {
				time.Sleep(loadtest.RequestTime)
				return authorizer.DecisionAllow, "", nil
			}
			h := w.handler(b)
			send := func(user, namespace string) int {
				code, _ := post(h, service.AuthorizePath, fmt.Sprintf(`{"apiVersion":"authorization.k8s.io/v1",`+
					`"kind":"SubjectAccessReview","spec":{"user":"system:serviceaccount:%[1]s:%[2]s",`+
					`"groups":["system:serviceaccounts","system:serviceaccounts:%[1]s"],"resourceAttributes":`+
					`{"namespace":%[1]q,"verb":"get","resource":"pods","version":"v1"}}}`, namespace, user))
				return code
			}
			if code := send("first", "b--web"); code != http.StatusOK {
				b.Fatal(code)
			}
			b.ResetTimer()
			got := loadtest.Run(b.Context(), c.clients,
				func(client int) int { return send(fmt.Sprint("sa-", client), "a--web") },
				func() int { return send("quiet", "b--web") })
			got.Report(b)
			switch c.name {
			case "alone":
				alone = got
			case "noisy":
				if alone.Requests > 0 && (got.P99 > alone.Limit() || got.Refused > 0) {
					b.Errorf("p99 is %v and %d requests are refused, want at most %v and none", got.P99, got.Refused, alone.Limit())
				}
			}
		})
	}
}
