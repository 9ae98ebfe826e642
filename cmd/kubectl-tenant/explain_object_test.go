// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/client-go/rest"

	"github.com/kubetenant/kubetenant/internal/cli/client"
	"github.com/kubetenant/kubetenant/internal/simulate/explain"
)

// TestTried checks that only a rejection by the server is a refusal. A result that depends on other
// objects or on the time is undecided. A request that the server could not handle is an error.
func TestTried(t *testing.T) {
	pods := schema.GroupResource{Resource: "pods"}
	for name, c := range map[string]struct {
		answer *apierrors.StatusError // nil if the server accepts the write
		want   explain.Admission
	}{
		"admitted":     {nil, explain.Admitted},
		"forbidden":    {apierrors.NewForbidden(pods, "p", nil), explain.Refused},
		"invalid":      {apierrors.NewInvalid(schema.GroupKind{Kind: "Pod"}, "p", nil), explain.Refused},
		"bad request":  {apierrors.NewBadRequest("no"), explain.Refused},
		"exists":       {apierrors.NewAlreadyExists(pods, "p"), explain.Undecided},
		"conflict":     {apierrors.NewConflict(pods, "p", nil), explain.Undecided},
		"no quota":     {apierrors.NewTooManyRequests("the quota could not be read", 0), explain.Undecided},
		"no dry run":   {apierrors.NewBadRequest(`admission webhook "w" does not support dry run`), explain.Undecided},
		"no namespace": {apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, "acme--web"), explain.Refused},
		"no object":    {apierrors.NewNotFound(pods, "p"), ""},
		"server error": {apierrors.NewInternalError(http.ErrServerClosed), ""},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Method != http.MethodPost || r.URL.Path != "/api/v1/namespaces/acme--web/pods" ||
					r.URL.Query().Get("dryRun") != metav1.DryRunAll {
					t.Errorf("unexpected request %s %s", r.Method, r.URL)
				}
				w.Header().Set("Content-Type", "application/json")
				w.Header().Set("Warning", `299 - "would violate PodSecurity"`)
				var body any = &corev1.Pod{TypeMeta: metav1.TypeMeta{Kind: "Pod", APIVersion: "v1"}}
				if c.answer != nil {
					c.answer.ErrStatus.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
					body = c.answer.ErrStatus
					w.WriteHeader(int(c.answer.ErrStatus.Code))
				}
				if err := json.NewEncoder(w).Encode(body); err != nil {
					t.Error(err)
				}
			}))
			defer server.Close()
			q := &explain.Query{
				Request: authorizer.AttributesRecord{
					Verb:            "create",
					Resource:        "pods",
					Namespace:       "acme--web",
					ResourceRequest: true,
				},
				Write: &explain.Write{
					Kind:   corev1.SchemeGroupVersion.WithKind("Pod"),
					Object: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "acme--web"}},
				},
			}
			dry, err := tryWrite(t.Context(), &client.Cluster{Config: &rest.Config{Host: server.URL}}, q)
			if c.want == "" {
				if err == nil {
					t.Errorf("tryWrite() = %+v; want an error", dry)
				}
				return
			}
			if err != nil || dry.verdict != c.want || strings.HasPrefix(dry.said, "refuses: ") ||
				!slices.Equal(dry.warnings, []string{"would violate PodSecurity"}) {
				t.Errorf("tryWrite() = %+v, %v; want %q", dry, err, c.want)
			}
		})
	}
}
