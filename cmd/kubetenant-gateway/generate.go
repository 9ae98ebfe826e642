package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/kubetenant/kubetenant/internal/manifests"
	gatewaymanifests "github.com/kubetenant/kubetenant/internal/manifests/gateway"
)

func newGenerateCommand() *cobra.Command {
	o := gatewaymanifests.Options{}
	cmd := &cobra.Command{
		Use:   "generate --config FILE --image IMAGE --out DIR",
		Short: "Write what is installed for the gateway",
		Long: `Writes, from one TenancyConfiguration, what runs the gateway (DIR/gateway.yaml) and,
for each cluster, its two service accounts and what they may do
(DIR/clusters/NAME.yaml). With --contexts it also writes their kubeconfigs
(DIR/kubeconfigs), without their tokens. The admission half is kubetenant-webhook's
(generate --admission-only).

"kubectl tenant validate CONFIG DIR" compares DIR with the configuration, and reports
what an impersonator may do.`,
		Args: cobra.NoArgs,
	}
	manifests.Generates(cmd, func() (map[string][]byte, error) { return gatewaymanifests.Generate(o) },
		func(cmd *cobra.Command, dir string) error { return runCheck(cmd, dir, o) })
	f := cmd.Flags()
	f.StringVar(&o.Config, "config", "", "the TenancyConfiguration (required)")
	f.StringVar(&o.Image, "image", "kubetenant-gateway", "image of kubetenant-gateway")
	f.StringVar(&o.Namespace, "namespace", "kubetenant-system", "namespace in which the gateway runs")
	f.BoolVar(&o.Accounts, "impersonate-service-accounts", false,
		"let the impersonators be service accounts, for callers whose clusters' roles let them")
	f.StringToStringVar(&o.Contexts, "contexts", nil,
		"contexts of your kubeconfig that lead to clusters, NAME=CONTEXT,...: "+
			"write kubeconfigs of the two accounts there (DIR/kubeconfigs), whose tokens are in files")
	f.StringVar(&o.Kubeconfig, "kubeconfig", "", "with --contexts: your kubeconfig; empty: where kubectl looks")
	_ = cmd.MarkFlagRequired("config")
	return cmd
}

func runCheck(cmd *cobra.Command, dir string, o gatewaymanifests.Options) error {
	wrong, notes, err := gatewaymanifests.Check(dir, o)
	if err != nil {
		return err
	}
	for _, note := range notes {
		_, _ = fmt.Fprintln(cmd.OutOrStdout(), "note:", note)
	}
	for _, each := range wrong {
		_, _ = fmt.Fprintln(cmd.OutOrStdout(), "wrong:", each)
	}
	if len(wrong) > 0 {
		return fmt.Errorf("%d things are wrong", len(wrong))
	}
	return nil
}
