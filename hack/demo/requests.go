// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// Credentials of the demo. Both tenants have a user alice with a token, and a user admin with a
// password. Only the tenant distinguishes the two users of the same name.
const (
	tokens = "acme-token,alice,a1,dev,,acme\n" +
		"globex-token,alice,g1,dev,,globex\n" +
		"ops-token,ops,o1,\"system:masters\",,system\n"
	passwords = "acme-password,admin,a2,dev,,acme\n" +
		"globex-password,admin,g2,dev,,globex\n"
)

// callers contains the credential for each kubeconfig that the demo writes, keyed by the name of
// the kubeconfig. The server writes more kubeconfigs, such as admin.
var callers = map[string]clientcmdapi.AuthInfo{
	"acme-token":      {Token: "acme-token"},
	"globex-token":    {Token: "globex-token"},
	"ops-token":       {Token: "ops-token"},
	"acme-password":   {Username: "admin@acme", Password: "acme-password"},
	"wrong-password":  {Username: "admin@acme", Password: "globex-password"},
	"wrong-token":     {Token: "no-such-token"},
	"acme-impersonal": {Token: "acme-token", Impersonate: "system:admin", ImpersonateGroups: []string{"system:masters"}},
}

// request is one row of the table. If output is set, kubectl must print exactly this output.
type request struct {
	caller, credential, kubeconfig string
	args                           []string
	input                          string
	expected, output               string
}

func (r request) commandText() string {
	text := strings.Join(r.args, " ")
	if _, after, ok := strings.Cut(r.input, "kind: "); ok {
		kind, _, _ := strings.Cut(after, ",")
		text += " <<< " + kind
	}
	return text
}

const daemonSet = `{apiVersion: apps/v1, kind: DaemonSet, metadata: {name: everywhere, namespace: acme--web}, ` +
	`spec: {selector: {matchLabels: {app: x}}, template: {metadata: {labels: {app: x}}, ` +
	`spec: {containers: [{name: c, image: i}]}}}}`

// quota is the quota of tenant acme. It allows one Deployment in all namespaces of the tenant.
const quota = `{apiVersion: kubetenant.dev/v1alpha1, kind: TenantQuota, metadata: {name: acme}, ` +
	`spec: {tenant: acme, hard: {count/deployments.apps: 1}}}`

const deployment = `{apiVersion: apps/v1, kind: Deployment, metadata: {name: %s, namespace: acme--web}, ` +
	`spec: {selector: {matchLabels: {app: %[1]s}}, template: {metadata: {labels: {app: %[1]s}}, ` +
	`spec: {containers: [{name: c, image: i}]}}}}`

const pinnedPod = `{apiVersion: v1, kind: Pod, metadata: {name: pinned, namespace: acme--web}, ` +
	`spec: {nodeSelector: {pool: globex}, containers: [{name: c, image: i}]}}`

const annotation = "-o jsonpath={.items[0].metadata.annotations."

var requests = []request{
	{"acme's admin", "certificate", "acme", words("get ns -o name"), "", "answered", "namespace/acme--web"},
	{"globex's admin", "certificate", "globex", words("get ns -o name"), "", "answered", "namespace/globex--shop"},
	{
		"acme's alice",
		"token",
		"acme-token",
		words("get configmap hello -n acme--web -o jsonpath={.data.of}"),
		"",
		"answered",
		"acme",
	},
	{"globex's alice", "token", "globex-token", words("get configmap hello -n acme--web"), "", "403", ""},
	{"globex's alice", "token", "globex-token", words("get configmap hello -n no-such-namespace"), "", "403", ""},
	{"acme's admin", "password", "acme-password", words("get ns -o name"), "", "answered", "namespace/acme--web"},
	{"acme's admin", "wrong password", "wrong-password", words("get ns"), "", "401", ""},
	{"nobody", "unknown token", "wrong-token", words("get ns"), "", "401", ""},
	{"acme's alice", "token", "acme-token", words("get nodes"), "", "403", ""},
	{
		"acme's alice",
		"token",
		"acme-token",
		words("get configmaps -A --field-selector metadata.name=hello -o jsonpath={.items[*].data.of}"),
		"",
		"answered",
		"acme",
	},
	{"acme's alice", "token", "acme-token", words("get configmaps -n kube-system"), "", "403", ""},
	{"acme's alice", "as system:masters", "acme-impersonal", words("get nodes"), "", "403", ""},
	{
		"acme's alice",
		"token",
		"acme-token",
		words("create ns acme--test --dry-run=server -o jsonpath={.metadata.labels.kubetenant\\.dev/tenant}"),
		"",
		"answered",
		"acme",
	},
	{"acme's alice", "token", "acme-token", words("create ns globex--trap"), "", "403", ""},
	{
		"acme's alice",
		"token",
		"acme-token",
		words("label ns acme--web kubetenant.dev/tenant=globex --overwrite"),
		"",
		"403",
		"",
	},
	{"acme's alice", "token", "acme-token", words("create -f -"), daemonSet, "403", ""},
	{"acme's alice", "token", "acme-token", words("create -f -"), pinnedPod, "403", ""},
	{
		"acme's alice",
		"token",
		"acme-token",
		words("get pods -n acme--web -l app=web " + annotation + "yunikorn\\.apache\\.org/user\\.info}"),
		"",
		"answered",
		`{"user":"alice","groups":["dev","tenant:acme","system:authenticated"]}`,
	},
	{
		"the cluster's ops",
		"token",
		"ops-token",
		words("get pods -n acme--web -l app=web " + annotation + "kubetenant\\.dev/on-behalf-of}"),
		"",
		"answered",
		`{"user":"alice","uid":"a1","tenant":"acme","groups":["dev","tenant:acme","system:authenticated"]}`,
	},
	{
		"acme's alice",
		"token",
		"acme-token",
		words("get tenantquota acme -o jsonpath={.status.used.count/deployments\\.apps}"),
		"",
		"answered",
		"1",
	},
	{"acme's alice", "token", "acme-token", words("create -f -"), fmt.Sprintf(deployment, "more"), "403", ""},
	{
		"acme's robot",
		"service account",
		"acme-robot",
		words("get configmap hello -n acme--web -o jsonpath={.data.of}"),
		"",
		"answered",
		"acme",
	},
	{"acme's robot", "service account", "acme-robot", words("get configmap hello -n globex--shop"), "", "403", ""},
	{
		"acme's robot",
		"service account",
		"acme-robot",
		words("auth whoami -o jsonpath={.status.userInfo.extra.kubetenant\\.dev/tenant[0]}," +
			"{.status.userInfo.extra.kubetenant\\.dev/source[0]}"),
		"",
		"answered",
		"acme,cluster",
	},
	{
		"acme's carol",
		"OpenID Connect",
		"acme-oidc",
		words("get configmap hello -n acme--web -o jsonpath={.data.of}"),
		"",
		"answered",
		"acme",
	},
	{"globex's carol", "OpenID Connect", "globex-oidc", words("get configmap hello -n acme--web"), "", "403", ""},
	{"globex's carol", "and system:masters", "masters-oidc", words("get ns"), "", "401", ""},
	{
		"the cluster's ops",
		"token",
		"ops-token",
		words("get ns acme--web globex--shop -o name"),
		"",
		"answered",
		"namespace/acme--web namespace/globex--shop",
	},
	{
		"the cluster's ops",
		"token",
		"ops-token",
		words("get ns -o name --as alice --as-group tenant:globex"),
		"",
		"answered",
		"namespace/globex--shop",
	},
}

func words(s string) []string { return strings.Fields(s) }

// prepare writes the kubeconfigs of the callers, creates the objects of the tenants, and adds an
// OpenID provider.
func (d *demo) prepare(ctx context.Context) error {
	for name, auth := range callers {
		if err := d.writeKubeconfig(name, auth); err != nil {
			return err
		}
	}
	rights, err := os.ReadFile("examples/manifests/tenants.yaml")
	if err != nil {
		return err
	}
	for _, step := range []struct {
		caller, input string
		args          []string
	}{
		{"admin", string(rights), words("apply -f -")},
		{"acme", "", words("create namespace acme--web")},
		{"globex", "", words("create namespace globex--shop")},
		{"acme", "", words("create configmap hello -n acme--web --from-literal=of=acme")},
		{"globex", "", words("create configmap hello -n globex--shop --from-literal=of=globex")},
		{"acme", "", words("create serviceaccount robot -n acme--web")},
		{"admin", quota, words("apply -f -")},
		{"acme-token", fmt.Sprintf(deployment, "web"), words("create -f -")},
		{"acme", "", words("wait --for=create pod -n acme--web -l app=web")},
		{"acme", "", words("get configmaps -A")}, // allowed after the server has labeled the existing objects
	} {
		if err := d.retry(ctx, step.caller, step.input, step.args); err != nil {
			return err
		}
	}
	token, err := d.run(ctx, "acme", "", words("create token robot -n acme--web")...)
	if err != nil {
		return fmt.Errorf("%w: %s", err, token)
	}
	if err := d.writeKubeconfig("acme-robot", clientcmdapi.AuthInfo{Token: strings.TrimSpace(token)}); err != nil {
		return err
	}
	return d.addIssuer(ctx)
}

// writeKubeconfig writes the kubeconfig of a caller.
func (d *demo) writeKubeconfig(name string, auth clientcmdapi.AuthInfo) error {
	c, err := clientcmd.LoadFromFile(d.server.Kubeconfig("admin"))
	if err != nil {
		return err
	}
	c.AuthInfos = map[string]*clientcmdapi.AuthInfo{name: &auth}
	c.Contexts = map[string]*clientcmdapi.Context{name: {Cluster: "local", AuthInfo: name}}
	c.CurrentContext = name
	return clientcmd.WriteToFile(*c, d.server.Kubeconfig(name))
}

// retry repeats a step until it succeeds, because new roles and bindings apply with a delay.
func (d *demo) retry(ctx context.Context, caller, input string, args []string) error {
	output := ""
	err := wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, 30*time.Second, true,
		func(ctx context.Context) (bool, error) {
			out, err := d.run(ctx, caller, input, args...)
			output = out
			return err == nil, nil
		})
	if err != nil {
		return fmt.Errorf("kubectl %s as %s: %w: %s", strings.Join(args, " "), caller, err, output)
	}
	return nil
}
