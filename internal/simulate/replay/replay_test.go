// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package replay_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	configv1alpha1 "github.com/kubetenant/kubetenant/config/v1alpha1"
	"github.com/kubetenant/kubetenant/internal/simulate/replay"
	"github.com/kubetenant/kubetenant/internal/simulate/simulator"
	"github.com/kubetenant/kubetenant/tenant"
)

// cluster returns a cluster with n tenants: t0, t1 and so on. Each tenant has a namespace in which
// its user alice has the role edit.
func cluster(n int) *simulator.Snapshot {
	s := simulator.NewSnapshot()
	for i := range n {
		name := fmt.Sprintf("t%d", i)
		s.Namespaces[name+"--web"] = &corev1.Namespace{
			ObjectMeta: metav1.ObjectMeta{Name: name + "--web", Labels: map[string]string{tenant.Label: name}},
		}
		s.Bindings = append(s.Bindings, &simulator.Binding{
			Namespace: name + "--web",
			Name:      "alice",
			Subjects:  []rbacv1.Subject{{Kind: "User", Name: "alice"}},
			RoleRef:   rbacv1.RoleRef{Kind: "ClusterRole", Name: "edit"},
		})
	}
	s.Roles[simulator.Key{Name: "edit"}] = &simulator.Role{
		Rules: []rbacv1.PolicyRule{{Verbs: []string{"*"}, APIGroups: []string{""}, Resources: []string{"pods"}}},
	}
	return s
}

// metadataEvent is an event of kube-apiserver 1.37 at level Metadata, about 1.5 KB.
const metadataEvent = `{"kind":"Event","apiVersion":"audit.k8s.io/v1","level":"Metadata",` +
	`"auditID":"0f0a5f4e-2b9d-4a53-9e0e-2d4b8f1c%04d","stage":"ResponseComplete",` +
	`"requestURI":"/api/v1/namespaces/%[2]s/pods/web-6d4cf56db6-%04[1]d?timeout=10s","verb":"get",` +
	`"user":{"username":"alice","uid":"5a1c3a6e-9a39-4b1e-8f0d-7c2a2f6f3f11","groups":["dev","ops","tenant:%[3]s",` +
	`"system:authenticated"],` +
	`"extra":{"authentication.kubernetes.io/credential-id":["X509SHA256=` +
	`0c7a1b2f3d4e5f60718293a4b5c6d7e8f90a1b2c3d4e5f60718293a4b5c6d7e8"],"kubetenant.dev/source":["certs"],` +
	`"kubetenant.dev/tenant":["%[3]s"]}},"sourceIPs":["10.12.34.56","192.168.1.17"],` +
	`"userAgent":"kubectl/v1.37.1 (linux/amd64) kubernetes/5f4a1b2 with a plugin that says who it is and what it is ` +
	`for","objectRef":{"resource":"pods","namespace":"%[2]s","name":"web-6d4cf56db6-%04[1]d","apiVersion":"v1"},` +
	`"responseStatus":{"metadata":{},"code":%[4]d},"requestReceivedTimestamp":"2026-11-22T03:00:00.123456Z",` +
	`"stageTimestamp":"2026-11-22T03:00:00.125678Z","annotations":{"authorization.k8s.io/decision":"%[5]s",` +
	`"authorization.k8s.io/reason":"RBAC: allowed by RoleBinding \"alice/%[2]s\" of ClusterRole \"edit\" to User ` +
	`\"alice\"","authorization.kubetenant.dev/caller-tenant":"%[3]s","authorization.kubetenant.dev/decision":"delegate",` +
	`"authorization.kubetenant.dev/owner-tenant":"%[3]s"}}`

func eventOf(i int, tenant, namespace, decision string) string {
	code := 200
	if decision == "forbid" {
		code = 403
	}
	return fmt.Sprintf(metadataEvent, i, namespace, tenant, code, decision)
}

func player(tb testing.TB, n int) (context.Context, *replay.Replayer) {
	tb.Helper()
	klog.SetLogger(logr.Discard())
	ctx := klog.NewContext(tb.Context(), logr.Discard())
	config, err := (&configv1alpha1.Settings{}).Complete()
	if err != nil {
		tb.Fatal(err)
	}
	p, err := replay.New(ctx, config, cluster(n))
	if err != nil {
		tb.Fatal(err)
	}
	return ctx, p
}

func play(t *testing.T, lines ...string) *replay.Report {
	t.Helper()
	ctx, p := player(t, 3)
	r := &replay.Report{}
	if err := p.Play(ctx, strings.NewReader(strings.Join(lines, "\n")), r); err != nil {
		t.Fatal(err)
	}
	return r
}

func TestReplay(t *testing.T) {
	other := func(of string, change func(map[string]any)) string {
		var e map[string]any
		if err := json.Unmarshal([]byte(of), &e); err != nil {
			t.Fatal(err)
		}
		change(e)
		text, err := json.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	own, foreign := eventOf(1, "t0", "t0--web", "allow"), eventOf(2, "t0", "t1--web", "allow")
	list := func(query string) string {
		return other(own, func(e map[string]any) {
			e["verb"], e["requestURI"] = "list", "/api/v1/pods"+query
			e["objectRef"] = map[string]any{"resource": "pods", "apiVersion": "v1"}
		})
	}
	for name, c := range map[string]struct {
		line string
		want string // "same", "skipped", "unread", or the change
	}{
		"allowed as before": {own, "same"},
		"denied as before":  {eventOf(3, "t0", "t1--web", "forbid"), "same"},
		"across tenants":    {foreign, "denied: tenant boundary: the namespace is not owned"},
		"allowed now":       {eventOf(4, "t0", "t0--web", "forbid"), "allowed: RBAC: allowed by RoleBinding"},
		"no tenant": {
			other(own, func(e map[string]any) { delete(e["user"].(map[string]any), "extra") }), "denied: tenant subject",
		},
		"a list over all namespaces": {list(""), "denied: no role bound"},
		"a selector twice": {
			list("?labelSelector=a&labelSelector=b"),
			"denied: tenant boundary: the request is not limited",
		},
		"on another tenant's path": {other(own, func(e map[string]any) {
			e["annotations"].(map[string]any)["authorization.kubetenant.dev/path-tenant"] = "t1"
		}), "denied: tenant path: the path names another tenant"},
		"impersonation of another tenant": {other(own, func(e map[string]any) {
			e["impersonatedUser"] = map[string]any{"username": "bob", "groups": []string{"tenant:t1"}}
		}), "denied: tenant boundary: the impersonated identity"},
		"another stage": {other(own, func(e map[string]any) { e["stage"] = "RequestReceived" }), "skipped"},
		"no user":       {other(own, func(e map[string]any) { delete(e, "user") }), "skipped"},
		"not authenticated": {
			other(own, func(e map[string]any) { delete(e, "annotations"); e["responseStatus"] = map[string]any{"code": 401} }),
			"skipped",
		},
		"impersonation that was refused": {other(own, func(e map[string]any) {
			e["annotations"], e["responseStatus"] = map[string]any{},
				map[string]any{"code": 403, "message": `users "bob" is forbidden: User "alice" cannot impersonate resource "users"`}
		}), "skipped"},
		"constrained impersonation that was refused": {other(own, func(e map[string]any) {
			e["annotations"], e["responseStatus"] = map[string]any{"authorization.k8s.io/decision": "forbid"},
				map[string]any{
					"code":    403,
					"message": `pods is forbidden: User "alice" cannot impersonate-on:user-info:list resource "pods"`,
				}
		}), "skipped"},
		"a name with similar words": {other(foreign, func(e map[string]any) {
			e["responseStatus"] = map[string]any{"code": 404, "message": `secrets "x cannot impersonate" not found`}
		}), "denied: tenant boundary: the namespace is not owned"},
		"a similar message with another status": {other(foreign, func(e map[string]any) {
			delete(e, "annotations")
			e["responseStatus"] = map[string]any{"code": 404, "message": `pods is forbidden: User "alice" cannot impersonate `}
		}), "denied: tenant boundary: the namespace is not owned"},
		"a name with the same message": {other(foreign, func(e map[string]any) {
			delete(e, "annotations")
			e["responseStatus"] = map[string]any{
				"code": 403,
				"message": `secrets "x\" is forbidden: User \"a\" cannot impersonate " is forbidden: User "alice" cannot ` +
					`get resource`,
			}
		}), "same"},
		"a node": {other(own, func(e map[string]any) {
			e["user"] = map[string]any{"username": "system:node:n1", "groups": []string{"system:nodes"}}
		}), "skipped"},
		"no annotation and a 403": {
			other(foreign, func(e map[string]any) {
				delete(e, "annotations")
				e["responseStatus"] = map[string]any{"code": 403}
			}),
			"same",
		},
		"not an event": {`{"kind":"EventList"}`, "unread"},
		"not JSON":     {`{"kind":`, "unread"},
		"an invalid request URI": {
			other(own, func(e map[string]any) { e["requestURI"] = "::" }), "denied: parse the event's requestURI",
		},
		"an invalid tenant path": {other(own, func(e map[string]any) {
			e["annotations"].(map[string]any)["authorization.kubetenant.dev/path-tenant"] = ".."
		}), "denied: the tenant path is malformed"},
	} {
		t.Run(name, func(t *testing.T) {
			r := play(t, c.line)
			got := "same"
			switch {
			case r.Unread == 1:
				got = "unread"
			case r.Skipped == 1:
				got = "skipped"
			case len(r.Changes) == 1:
				got = r.Changes[0].Now + ": " + r.Changes[0].Reason
			}
			if r.Events != 1 || !strings.HasPrefix(got, c.want) {
				t.Errorf("replay = %q of %+v, want %q", got, r, c.want)
			}
		})
	}
}

// TestInterrupted checks that a canceled replay returns immediately, even if it is waiting for more
// of the log.
func TestInterrupted(t *testing.T) {
	ctx, p := player(t, 1)
	ctx, cancel := context.WithCancel(ctx)
	log, writer := io.Pipe()
	t.Cleanup(func() { _ = writer.Close() })
	go func() {
		_, _ = io.WriteString(writer, eventOf(1, "t0", "t0--web", "allow")+"\n")
		cancel()
	}()
	if err := p.Play(ctx, log, &replay.Report{}); !errors.Is(err, context.Canceled) {
		t.Errorf("Play() = %v", err)
	}
}

// TestOrder checks that each change is reported once, in the order of the log.
func TestOrder(t *testing.T) {
	var lines []string
	for i := range 5000 {
		lines = append(lines, eventOf(i, "t0", "t1--web", "allow"), eventOf(i, "t0", "t0--web", "allow"),
			eventOf(i, "t0", "t1--web", "allow"))
	}
	r := play(t, lines...)
	if len(r.Changes) != 5000 || r.NowDenied != 10000 || r.Decided != 15000 {
		t.Fatalf("%d changes, %d denied of %d", len(r.Changes), r.NowDenied, r.Decided)
	}
	for i, c := range r.Changes {
		if c.Times != 2 || !strings.Contains(c.Request, fmt.Sprintf("-%04d ", i)) {
			t.Fatalf("change %d = %+v", i, c)
		}
	}
}

// BenchmarkReplay measures the replay on one core if it is run with -cpu 1. It reports how many
// events of about 1.5 KB are replayed per second.
func BenchmarkReplay(b *testing.B) {
	ctx, p := player(b, 1000)
	var log bytes.Buffer
	for i := range 5000 {
		name := fmt.Sprintf("t%d", i%1000)
		log.WriteString(eventOf(i, name, name+"--web", "allow") + "\n")
	}
	b.SetBytes(int64(log.Len()))
	events := 0
	for b.Loop() {
		r := &replay.Report{}
		if err := p.Play(ctx, bytes.NewReader(log.Bytes()), r); err != nil || r.Decided != 5000 || len(r.Changes) > 0 {
			b.Fatal(err, r.Decided, len(r.Changes))
		}
		events += r.Events
	}
	b.ReportMetric(float64(events)/b.Elapsed().Seconds(), "events/s")
}

func FuzzPlay(f *testing.F) {
	f.Add(eventOf(1, "t0", "t0--web", "allow"))
	f.Add(`{"kind":"Event","stage":"ResponseComplete","requestURI":"/tenants/all/api","verb":"list",` +
		`"user":{"username":"u"},"responseStatus":{"code":200}}`)
	ctx, p := player(f, 1)
	f.Fuzz(func(t *testing.T, line string) {
		r := &replay.Report{}
		if err := p.Play(ctx, io.LimitReader(strings.NewReader(line), 1<<16), r); err == nil &&
			r.Decided+r.Skipped+r.Unread != r.Events {
			t.Errorf("%+v does not add up", r)
		}
	})
}
