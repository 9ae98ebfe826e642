// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package apiserver_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/server/filters"
	"k8s.io/apiserver/pkg/util/flowcontrol"
	"k8s.io/apiserver/pkg/util/flowcontrol/fairqueuing"
	flowcontrolrequest "k8s.io/apiserver/pkg/util/flowcontrol/request"
	"k8s.io/utils/ptr"

	"github.com/kubetenant/kubetenant/authz"
	"github.com/kubetenant/kubetenant/cluster/lookup/lookuptest"
	configv1alpha1 "github.com/kubetenant/kubetenant/config/v1alpha1"
	"github.com/kubetenant/kubetenant/internal/apiserver"
	"github.com/kubetenant/kubetenant/internal/stack"
	"github.com/kubetenant/kubetenant/internal/usage"
	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

// recordedFlows executes every request, and records the user in the request's digest.
type recordedFlows struct {
	flowcontrol.Interface

	users []user.Info
}

func (f *recordedFlows) Handle(
	_ context.Context,
	digest flowcontrol.RequestDigest,
	note func(*flowcontrolv1.FlowSchema, *flowcontrolv1.PriorityLevelConfiguration, string),
	_ func() flowcontrolrequest.WorkEstimate,
	_ fairqueuing.QueueNoteFn,
	execute func(),
) {
	f.users = append(f.users, digest.User)
	note(&flowcontrolv1.FlowSchema{}, &flowcontrolv1.PriorityLevelConfiguration{}, "")
	execute()
}

// TestFlowByTenant checks that requests above the limit of a tenant do not wait for a seat.
// Upstream's filter must respond to them with status 429 and Retry-After.
func TestFlowByTenant(t *testing.T) {
	owners := authz.NewOwners(func(name string) (*corev1.Namespace, error) {
		return nil, apierrors.NewNotFound(corev1.Resource("namespaces"), name)
	}, nil)
	settings := &configv1alpha1.Settings{FairUse: v1alpha1.FairUse{
		RequestsPerSecond: ptr.To[int32](1),
		Burst:             ptr.To[int32](2),
		Level:             "gold",
	}}
	s, err := stack.New(t.Context(), settings, stack.Server{
		Cluster: lookuptest.OwnedBy(owners),
		Now:     func() time.Time { return time.Unix(1_000_000, 0) },
	})
	if err != nil {
		t.Fatal(err)
	}
	if apiserver.FlowByTenant(nil, s) != nil {
		t.Error("FlowByTenant(nil) is not nil")
	}
	next := &recordedFlows{}
	noWork := func(*http.Request, string, string) flowcontrolrequest.WorkEstimate {
		return flowcontrolrequest.WorkEstimate{}
	}
	served := 0
	handler := filters.WithPriorityAndFairness(s.WithTenant(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		served++
	})), nil, apiserver.FlowByTenant(next, s), noWork, time.Second)
	send := func(name, id string) *http.Response {
		w := httptest.NewRecorder()
		s.WithRequestState(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			u := authz.RecordCaller(r.Context(),
				&user.DefaultInfo{Name: name, Groups: []string{"dev"}, Extra: map[string][]string{tenant.ExtraKey: {id}}})
			ctx := request.WithUser(r.Context(), u)
			ctx = request.WithRequestInfo(ctx, &request.RequestInfo{IsResourceRequest: true, Verb: "list", Resource: "pods"})
			handler.ServeHTTP(w, r.WithContext(ctx))
		})).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/api/v1/pods", nil))
		return w.Result()
	}
	for i, want := range []int{http.StatusOK, http.StatusOK, http.StatusTooManyRequests} {
		resp := send([]string{"alice", "bob", "alice"}[i], "acme")
		if resp.StatusCode != want || want == http.StatusTooManyRequests && resp.Header.Get("Retry-After") == "" {
			t.Errorf("request %d: %d, Retry-After %q; want %d", i, resp.StatusCode, resp.Header.Get("Retry-After"), want)
		}
	}
	if resp := send("root", "system"); resp.StatusCode != http.StatusOK {
		t.Errorf("the system tenant: %d", resp.StatusCode)
	}
	if served != 3 || len(next.users) != 3 {
		t.Fatalf("%d requests were served and %d had a seat, want 3", served, len(next.users))
	}
	for i, want := range []user.DefaultInfo{
		{Name: "tenant:acme", Groups: []string{"dev", "kubetenant:level:gold"}},
		{Name: "tenant:acme", Groups: []string{"dev", "kubetenant:level:gold"}},
		{Name: "root", Groups: []string{"dev"}},
	} {
		if u := next.users[i]; u.GetName() != want.Name || !slices.Equal(u.GetGroups(), want.Groups) {
			t.Errorf("request %d has the user %s %q, want %s %q", i, u.GetName(), u.GetGroups(), want.Name, want.Groups)
		}
	}
}

// estimatedFlows estimates the seats of every request and then executes the request, as upstream
// does.
type estimatedFlows struct{ flowcontrol.Interface }

func (estimatedFlows) Handle(
	_ context.Context,
	_ flowcontrol.RequestDigest,
	_ func(*flowcontrolv1.FlowSchema, *flowcontrolv1.PriorityLevelConfiguration, string),
	estimate func() flowcontrolrequest.WorkEstimate,
	_ fairqueuing.QueueNoteFn,
	execute func(),
) {
	estimate()
	execute()
}

// TestSeats checks that the seats of a request are recorded for its tenant, even if the request
// panics.
func TestSeats(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "usage.jsonl")
	owners := authz.NewOwners(func(name string) (*corev1.Namespace, error) {
		return nil, apierrors.NewNotFound(corev1.Resource("namespaces"), name)
	}, nil)
	s, err := stack.New(t.Context(), &configv1alpha1.Settings{Usage: configv1alpha1.Usage{
		Directory: filepath.Join(dir, "spool"),
		File:      &configv1alpha1.UsageFile{Path: path},
	}}, stack.Server{Cluster: lookuptest.OwnedBy(owners)})
	if err != nil {
		t.Fatal(err)
	}
	running := s.StartUsage(t.Context(), usage.KubeAPIServer, nil)
	flow := apiserver.FlowByTenant(estimatedFlows{}, s)
	work := func() {
		for began := time.Now(); time.Since(began) < 100*time.Microsecond; {
			continue
		}
	}
	for id, execute := range map[string]func(){
		"acme": work,
		"initech": func() {
			work()
			panic(http.ErrAbortHandler)
		},
	} {
		s.WithRequestState(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			defer func() { _ = recover() }()
			u := authz.RecordCaller(r.Context(),
				&user.DefaultInfo{Name: "alice", Extra: map[string][]string{tenant.ExtraKey: {id}}})
			flow.Handle(r.Context(), flowcontrol.RequestDigest{User: u}, nil, func() flowcontrolrequest.WorkEstimate {
				return flowcontrolrequest.WorkEstimate{InitialSeats: 1000} // because the requests take only microseconds
			}, nil, execute)
		})).ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/api/v1/pods", nil))
	}
	running.Stop(t.Context())
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	seats := map[string]int64{}
	for line := range strings.Lines(string(data)) {
		var r struct {
			Tenant           string
			SeatMilliseconds int64
		}
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatal(err)
		}
		seats[r.Tenant] += r.SeatMilliseconds
	}
	if len(seats) != 2 || seats["acme"] <= 0 || seats["initech"] <= 0 {
		t.Errorf("seats %v; want seats of both tenants", seats)
	}
}
