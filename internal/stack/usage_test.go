// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package stack_test

import (
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/utils/ptr"

	"github.com/kubetenant/kubetenant/authz"
	"github.com/kubetenant/kubetenant/cluster/lookup"
	"github.com/kubetenant/kubetenant/cluster/lookup/lookuptest"
	configv1alpha1 "github.com/kubetenant/kubetenant/config/v1alpha1"
	"github.com/kubetenant/kubetenant/internal/stack"
	"github.com/kubetenant/kubetenant/internal/usage"
	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

// newUsageStack returns a stack that writes usage records to a file. The tenant acme owns the
// namespace acme--web, and no other tenant exists.
func newUsageStack(
	t *testing.T,
	configured v1alpha1.FairUse,
	change func(*stack.Server),
) (s *stack.Stack, file string) {
	t.Helper()
	dir := t.TempDir()
	file = filepath.Join(dir, "usage.jsonl")
	server := stack.Server{Cluster: (&lookup.Parts{
		Owners: authz.NewOwners(func(name string) (*corev1.Namespace, error) {
			if name != "acme--web" {
				return nil, apierrors.NewNotFound(corev1.Resource("namespaces"), name)
			}
			return &corev1.Namespace{
				ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{tenant.Label: "acme"}},
			}, nil
		}, nil),
		Namespaces: &lookuptest.Namespaces{Owned: func(id tenant.ID) ([]string, error) {
			if id.String() == "acme" {
				return []string{"acme--web"}, nil
			}
			return nil, nil
		}},
	}).Cluster()}
	if change != nil {
		change(&server)
	}
	s, err := stack.New(t.Context(), &configv1alpha1.Settings{
		FairUse: configured,
		Usage: configv1alpha1.Usage{
			Server:    "cp-0",
			Cluster:   "eu1",
			Directory: filepath.Join(dir, "spool"),
			File:      &configv1alpha1.UsageFile{Path: file},
		},
	}, server)
	if err != nil {
		t.Fatal(err)
	}
	return s, file
}

// send sends a request for the pods of acme--web.
func send(t *testing.T, s *stack.Stack, u user.Info) {
	t.Helper()
	if _, _, err := s.Authorizer.Authorize(t.Context(), authorizer.AttributesRecord{
		User:            u,
		Verb:            "get",
		Resource:        "pods",
		APIVersion:      "v1",
		Namespace:       "acme--web",
		Name:            "p",
		ResourceRequest: true,
	}); err != nil {
		t.Fatal(err)
	}
}

// recordedTotals returns the totals of each tenant in a file of usage records, keyed by tenant.
func recordedTotals(t *testing.T, file string) map[string]usage.Totals {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	all, invalid := usage.Parse(data)
	if invalid > 0 {
		t.Errorf("%d lines are not records:\n%s", invalid, data)
	}
	byTenant := map[string]usage.Totals{}
	for i := range all {
		if all[i].Server != "cp-0" || all[i].Cluster != "eu1" || all[i].Component != usage.KubeAPIServer {
			t.Errorf("%+v", all[i])
		}
		was := byTenant[all[i].Tenant] // two records if the test runs at the end of an hour
		byTenant[all[i].Tenant] = usage.Totals{
			Requests:         was.Requests + all[i].Requests,
			Denied:           was.Denied + all[i].Denied,
			Limited:          was.Limited + all[i].Limited,
			Watches:          max(was.Watches, all[i].Watches),
			SeatMilliseconds: was.SeatMilliseconds + all[i].SeatMilliseconds,
		}
	}
	return byTenant
}

// TestUsage checks the recorded usage of each tenant, and that the last totals are written when the
// server stops.
func TestUsage(t *testing.T) {
	s, file := newUsageStack(t, v1alpha1.FairUse{InFlight: ptr.To(int32(1)), Watches: ptr.To(int32(2))}, nil)
	running := s.StartUsage(t.Context(), usage.KubeAPIServer, nil)
	acme, root := callerOf("alice", "acme"), callerOf("root", "system")
	for range 3 {
		send(t, s, acme)
	}
	for _, name := range []string{"globex", "invented-1", "invented-2"} {
		send(t, s, callerOf("mallory", name))
	}
	send(t, s, &user.DefaultInfo{Name: "nobody"})
	send(t, s, root)
	duringRequest(s, acme, nil, func(_ http.ResponseWriter, r *http.Request, u user.Info) {
		leave, refused := s.AdmitRequest(r.Context(), u)
		if refused != nil {
			t.Fatal(refused)
		}
		if _, refused := s.AdmitRequest(r.Context(), u); refused == nil {
			t.Error("a second request was admitted")
		}
		leave()
		s.RecordSeats(r.Context(), 2, 3*time.Second)
		for range 2 {
			leave, refused := s.AdmitStream(r.Context(), u)
			if refused != nil {
				t.Fatal(refused)
			}
			defer leave()
		}
		if _, refused := s.AdmitStream(r.Context(), u); refused == nil {
			t.Error("a third stream was admitted")
		}
	})
	executed := func(_ http.ResponseWriter, r *http.Request, u user.Info) {
		leave, refused := s.AdmitRequest(r.Context(), u)
		if refused != nil {
			t.Fatal(refused)
		}
		leave()
		s.RecordSeats(r.Context(), 1, time.Second)
	}
	duringRequest(s, root, acme, executed) // impersonates alice
	duringRequest(s, root, nil, executed)
	running.Stop(t.Context())
	got := recordedTotals(t, file)
	for name, want := range map[string]usage.Totals{
		"acme": {
			Requests:         3,
			Limited:          2,
			Watches:          2,
			SeatMilliseconds: 7000,
		},
		usage.OtherTenants: {Requests: 3, Denied: 3},
		usage.NoTenant:     {Requests: 1, Denied: 1},
		"system":           {Requests: 1, SeatMilliseconds: 1000},
	} {
		t.Run(name, func(t *testing.T) {
			if got[name] != want {
				t.Errorf("%+v; want %+v", got[name], want)
			}
			delete(got, name)
		})
	}
	if len(got) > 0 {
		t.Errorf("unexpected records: %+v", got)
	}
}

// TestUsageRecordedByAnotherStack checks a Stack whose usage another Stack records, as in a
// gateway. It must report all decisions, exceeded limits and streams to the other Stack.
func TestUsageRecordedByAnotherStack(t *testing.T) {
	gateway, file := newUsageStack(t, v1alpha1.FairUse{}, nil)
	running := gateway.StartUsage(t.Context(), usage.KubeAPIServer, nil)
	cluster, none := newUsageStack(t, v1alpha1.FairUse{InFlight: ptr.To(int32(1))}, func(s *stack.Server) {
		s.Observe, s.ObserveLimit, s.ObserveStream = gateway.RecordDecision, gateway.RecordLimit, gateway.RecordStream
	})
	acme := callerOf("alice", "acme")
	send(t, cluster, acme)
	duringRequest(cluster, acme, nil, func(_ http.ResponseWriter, r *http.Request, u user.Info) {
		leave, refused := cluster.AdmitStream(r.Context(), u)
		if refused != nil {
			t.Fatal(refused)
		}
		leave()
		_, _ = cluster.AdmitRequest(r.Context(), u)
		if _, refused := cluster.AdmitRequest(r.Context(), u); refused == nil {
			t.Error("a second request was admitted")
		}
		cluster.RecordSeats(r.Context(), 1, time.Second)
	})
	running.Stop(t.Context())
	want := usage.Totals{Requests: 1, Limited: 1, Watches: 1}
	if got := recordedTotals(t, file); len(got) != 1 || got["acme"] != want {
		t.Errorf("%+v; want %+v of acme", got, want)
	}
	if _, err := os.Stat(none); err == nil {
		t.Error("the cluster's own Stack wrote records")
	}
}

// TestUsageFilePermissions checks that only the user that runs the server may read the file of
// usage records.
func TestUsageFilePermissions(t *testing.T) {
	s, file := newUsageStack(t, v1alpha1.FairUse{}, nil)
	running := s.StartUsage(t.Context(), usage.KubeAPIServer, nil)
	send(t, s, callerOf("alice", "acme"))
	running.Stop(t.Context())
	for _, path := range []string{file, filepath.Join(filepath.Dir(file), "spool")} {
		info, err := os.Stat(path)
		if err != nil || !slices.Contains([]os.FileMode{0o600, os.ModeDir | 0o700}, info.Mode()) {
			t.Errorf("%s: %+v, %v", path, info, err)
		}
	}
}
