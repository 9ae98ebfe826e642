// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/kubetenant/kubetenant/test/localserver"
)

// gatewayRequests returns requests to two clusters behind one gateway. The servers of these
// clusters are upstream's kube-apiservers, without kubetenant.
func gatewayRequests(address string) []request {
	return []request{
		{"acme's admin", "certificate", "acme", words("get ns -o name"), "", "answered", "namespace/acme--web"},
		{
			"acme's admin",
			"at the second",
			"acme",
			words("get ns -o name --context acme@local-2"),
			"",
			"answered",
			"namespace/acme--db",
		},
		{"globex's admin", "certificate", "globex", words("get configmap hello -n acme--web"), "", "403", ""},
		{"globex's admin", "at the second", "globex", words("get pods -n acme--db --context globex@local-2"), "", "403", ""},
		{"acme's admin", "certificate", "acme", words("get nodes"), "", "403", ""},
		{
			"acme's admin",
			"certificate",
			"acme",
			words("get configmaps -A --field-selector metadata.name=hello -o jsonpath={.items[*].data.of}"),
			"",
			"answered",
			"acme",
		},
		{
			"acme's admin",
			"certificate",
			"acme",
			words("auth whoami -o jsonpath={.status.userInfo.username},{.status.userInfo.extra.kubetenant\\.dev/tenant[0]}"),
			"",
			"answered",
			"admin,acme",
		},
		{"acme's admin", "as system:masters", "acme", words("get nodes --as root --as-group system:masters"), "", "403", ""},
		{
			"acme's admin",
			"certificate",
			"acme",
			append([]string{"-s", address + "/gateway"}, words("get clusters -o jsonpath={.items[*].metadata.name}")...),
			"",
			"answered",
			"local local-2",
		},
	}
}

// walkGateway starts two clusters behind a gateway, sends the requests, and stops the clusters. It
// returns the number of unexpected results.
func (d *demo) walkGateway(ctx context.Context, bin string) (differences int, err error) {
	_, _ = fmt.Fprintln(d.out, "starting two of upstream's kube-apiservers, of one kubetenant-gateway ...")
	server, err := localserver.Start(ctx, filepath.Join(bin, "kubetenant-local"), filepath.Join(d.server.Dir, "gateway"),
		"--gateway", "--clusters", "2", "--workload-controllers=false", "--unsafe-no-fsync")
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, server.Stop()) }()
	_, _ = fmt.Fprintf(d.out, "ready after %s\n\n", server.Ready)
	g := &demo{out: d.out, kubectl: d.kubectl, server: server}
	rights, err := os.ReadFile("examples/manifests/tenants.yaml")
	if err != nil {
		return 0, err
	}
	for _, step := range []struct {
		caller, input string
		args          []string
	}{
		{"admin", string(rights), words("apply -f -")},
		{"admin", string(rights), words("apply -f - --context admin@local-2")},
		{"acme", "", words("create namespace acme--web")},
		{"acme", "", words("create namespace acme--db --context acme@local-2")},
		{"acme", "", words("create configmap hello -n acme--web --from-literal=of=acme")},
		{"acme", "", words("get configmaps -A")},
	} {
		if err := g.retry(ctx, step.caller, step.input, step.args); err != nil {
			return 0, err
		}
	}
	caller, err := clientcmd.BuildConfigFromFlags("", server.Kubeconfig("acme"))
	if err != nil {
		return 0, err
	}
	return g.walk(ctx, gatewayRequests(caller.Host))
}
