// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"github.com/spf13/cobra"

	"github.com/kubetenant/kubetenant/internal/manifests"
	gatewaymanifests "github.com/kubetenant/kubetenant/internal/manifests/gateway"
)

func newGenerateCommand() *cobra.Command {
	o := gatewaymanifests.Options{}
	cmd := &cobra.Command{
		Use:   "generate --config FILE (--chart FILE | --image IMAGE) --out DIR",
		Short: "Write the manifests of the gateway",
		Long: `Writes manifests from a TenancyConfiguration. DIR/gateway.yaml runs the gateway.
DIR/clusters/NAME.yaml holds the two service accounts of a cluster and their roles.
With --contexts, it also writes the kubeconfigs of the accounts (DIR/kubeconfigs),
without their tokens. With --tls-cert-file, it also writes the Secrets that the
gateway reads: the configuration with the files that it names, and the
certificate (DIR/secrets.yaml). For the admission webhooks of the clusters, run
"kubetenant-webhook generate --admission-only".

"kubectl tenant validate CONFIG DIR" compares DIR with the configuration and reports
the rights of each impersonator.`,
		Args: cobra.NoArgs,
	}
	manifests.AddGenerate(cmd, func() (map[string][]byte, error) { return gatewaymanifests.Generate(o) })
	f := cmd.Flags()
	f.StringVar(&o.Config, "config", "", "path of the TenancyConfiguration (required)")
	f.StringVar(&o.Image, "image", "", "container image of kubetenant-gateway (required, unless --chart is set)")
	f.StringVar(&o.Namespace, "namespace", "kubetenant-system", "namespace that the gateway runs in")
	f.BoolVar(&o.Accounts, "impersonate-service-accounts", false,
		"allow the impersonators to impersonate service accounts, for callers that the roles of the cluster allow to do so")
	f.StringToStringVar(&o.Contexts, "contexts", nil,
		"context of your kubeconfig for each cluster, as CLUSTER=CONTEXT,...: also write the kubeconfigs of the two "+
			"accounts (DIR/kubeconfigs), which read the tokens from files")
	f.StringVar(&o.Kubeconfig, "kubeconfig", "", "with --contexts: path of your kubeconfig; defaults to the kubeconfig "+
		"of kubectl")
	f.StringVar(&o.Certificate, "tls-cert-file", "", "path of the gateway's serving certificate: also write the Secrets "+
		"of the gateway (DIR/secrets.yaml)")
	f.StringVar(&o.Key, "tls-private-key-file", "", "path of the private key of --tls-cert-file")
	f.StringVar(&o.ServiceType, "service-type", "ClusterIP", "type of the gateway's Service: ClusterIP, NodePort or "+
		"LoadBalancer")
	f.BoolVar(&o.Monitoring, "monitoring", false, "add a ServiceMonitor and alert rules (DIR/monitoring.yaml)")
	_ = cmd.MarkFlagRequired("config")
	cmd.MarkFlagsRequiredTogether("tls-cert-file", "tls-private-key-file")
	manifests.AddChart(cmd, "kubetenant-gateway", &o.Image)
	return cmd
}
