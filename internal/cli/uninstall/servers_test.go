// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package uninstall_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/kubetenant/kubetenant/internal/cli/installation"
	"github.com/kubetenant/kubetenant/internal/cli/uninstall"
)

// TestReplicas checks that the command fails if a replica runs another configuration than the
// published one, because the replica may accept credentials of tenants.
func TestReplicas(t *testing.T) {
	const pod = "{apiVersion: v1, kind: Pod, metadata: {name: b, namespace: kubetenant-system}}"
	const hosted = "{apiVersion: v1, kind: Pod, metadata: {name: x, namespace: kubetenant-system}, spec: {nodeName: b}}"
	for name, c := range map[string]struct {
		mode    installation.Mode
		hash    string
		objects []string
		refused bool
	}{
		"same configuration":                   {installation.CompiledIn, "new", nil, false},
		"another configuration":                {installation.CompiledIn, "old", nil, true},
		"another configuration, existing Pod":  {installation.Webhook, "old", []string{pod}, true},
		"another configuration, Pod on a node": {installation.Webhook, "old", []string{hosted}, true},
		"another configuration, deleted Pod":   {installation.Webhook, "old", nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := newServer(t, installedWith(append(c.objects, fmt.Sprintf(crb, "any", "{kind: User, name: any}"))...))
			for _, namespace := range []string{"kube-system", "kubetenant-system"} {
				s.publish(namespace, "authentication: {sources: []}")
				data := s.objects["v1/configmaps "+namespace+"/kubetenant-configuration"].Object["data"].(map[string]any)
				data["hash"], data["replica.a"], data["replica.b"] = "new", `{"hash":"new"}`, `{"hash":"`+c.hash+`"}`
			}
			o, out := options(t, s)
			o.CheckServers = func(context.Context) (*uninstall.Servers, error) {
				return &uninstall.Servers{Mode: c.mode, With: []string{"a"}}, nil
			}
			err := uninstall.Run(t.Context(), o)
			if errors.Is(err, uninstall.ErrRefused) != c.refused || c.refused && (!strings.Contains(err.Error(), ": b") ||
				len(s.writes) > 0) {
				t.Errorf("%v, writes %q\n%s", err, s.writes, strings.Join(out.lines, "\n"))
			}
		})
	}
}

// TestShadowWithoutWebhooks checks that the command assumes that kube-apiserver calls a service in
// mode Shadow, even if the admission webhooks do not exist.
func TestShadowWithoutWebhooks(t *testing.T) {
	for kind, workload := range map[string]string{
		"Deployment":  "/deployments kubetenant-system/kubetenant-webhook",
		"StatefulSet": "/statefulsets kubetenant-system/kubetenant-webhook", // used if the service has a volume
	} {
		t.Run(kind, func(t *testing.T) {
			s := newServer(t, strings.Replace(installed(), "kind: Deployment, metadata: {name: kubetenant-webhook,",
				"kind: "+kind+", metadata: {name: kubetenant-webhook,", 1))
			s.compiledIn = false
			delete(s.objects, "admissionregistration.k8s.io/v1/validatingwebhookconfigurations /kubetenant")
			s.publish("kubetenant-system", "authentication: {sources: []}, authorization: {mode: Shadow}")
			o, _ := options(t, s)
			if err := uninstall.Run(t.Context(), o); !errors.Is(err, uninstall.ErrRefused) || len(s.names(workload)) != 1 {
				t.Errorf("%v", err)
			}
			o.Force = true
			if err := uninstall.Run(t.Context(), o); err != nil || len(s.names(workload)) > 0 {
				t.Errorf("with --force: %v", err)
			}
		})
	}
}

// TestUnreachable checks that the command fails before step 6 if a server does not respond,
// because it may run kubetenant.
func TestUnreachable(t *testing.T) {
	s := newServer(t, installed())
	s.compiledIn = false
	o, out := options(t, s)
	looks := 0
	o.CheckServers = func(context.Context) (*uninstall.Servers, error) {
		looks++
		return &uninstall.Servers{Without: []string{"a"}, Unreachable: []string{"b could not be asked: timeout"}}, nil
	}
	err := uninstall.Run(t.Context(), o)
	if !errors.Is(err, uninstall.ErrRefused) || !strings.Contains(err.Error(), "b could not be asked") ||
		out.contains("Step 6") {
		t.Errorf("%v\n%s", err, strings.Join(out.lines, "\n"))
	}
	looks = 0
	checkServers := o.CheckServers
	// After some checks, the EndpointSlices no longer contain the server.
	o.CheckServers = func(ctx context.Context) (*uninstall.Servers, error) {
		servers, err := checkServers(ctx)
		if looks > 10 {
			servers.Unreachable = nil
		}
		return servers, err
	}
	if err := uninstall.Run(t.Context(), o); err != nil {
		t.Error(err)
	}
	s = newServer(t, installed())
	s.compiledIn = false
	o, _ = options(t, s)
	o.CheckServers, o.Force = checkServers, true
	if err := uninstall.Run(t.Context(), o); err != nil {
		t.Error(err)
	}
}

// TestUnreadableEnd checks that a RoleBinding with an invalid expiration is deleted only after a
// confirmation. The binding grants no rights while kubetenant runs.
func TestUnreadableEnd(t *testing.T) {
	for name, c := range map[string]struct {
		keep bool
		ask  func(string) (bool, error)
		stay bool
	}{
		"yes": {false, func(string) (bool, error) { return true, nil }, false},
		"no": {false, func(question string) (bool, error) {
			return !strings.Contains(question, "RoleBindings whose expiry"), nil
		}, true},
		"--keep-bindings": {true, func(string) (bool, error) { return true, nil }, true},
	} {
		t.Run(name, func(t *testing.T) {
			s := newServer(t, installed())
			o, out := options(t, s)
			o.Yes, o.KeepBindings, o.Confirm = false, c.keep, c.ask
			err := uninstall.Run(t.Context(), o)
			if stays := slices.Contains(s.names("/rolebindings "), "kube-system/ended"); stays != c.stay || err != nil ||
				!out.contains("kube-system/ended (view to user ops)") {
				t.Errorf("%v, the RoleBinding remains: %t\n%s", err, stays, strings.Join(out.lines, "\n"))
			}
		})
	}
}

// TestOwnRoles checks that an operator's own roles and bindings remain, even if their names begin
// with kubetenant.
func TestOwnRoles(t *testing.T) {
	const role = "{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: %s}}"
	s := newServer(
		t,
		installedWith(fmt.Sprintf(role, "'kubetenant:auditors'"), fmt.Sprintf(role, "'kubetenant:tenant-member'"),
			fmt.Sprintf(role, "'kubetenant:x', labels: {kubetenant.dev/managed: tenant}"),
			fmt.Sprintf(crb, "'kubetenant:auditors'", "{kind: User, name: ops}")),
	)
	runToEnd(t, s)
	if got := s.names("kubetenant:"); !slices.Equal(got, []string{"kubetenant:auditors", "kubetenant:auditors"}) {
		t.Errorf("%q remain", got)
	}
}
