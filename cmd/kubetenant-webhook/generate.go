package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/kubetenant/kubetenant/internal/manifests"
	webhookmanifests "github.com/kubetenant/kubetenant/internal/manifests/webhook"
)

func newGenerateCommand() *cobra.Command {
	o := webhookmanifests.Options{}
	cmd := &cobra.Command{
		Use:   "generate --config FILE --out DIR --image IMAGE --client-ca-file FILE",
		Short: "Write everything that is installed",
		Long: `Writes, from one TenancyConfiguration, the objects of the cluster (DIR/cluster) and
the files of the control plane's machines (DIR/control-plane): see docs/install.md.

"kubectl tenant validate CONFIG DIR" compares DIR with the configuration, and reports
what would fail open, lock the cluster, or leave a caller without a tenant.`,
		Args: cobra.NoArgs,
	}
	manifests.Generates(cmd, func() (map[string][]byte, error) { return webhookmanifests.Generate(o) },
		func(cmd *cobra.Command, dir string) error { return runCheck(cmd, dir, &o) })
	f := cmd.Flags()
	f.StringVar(&o.Config, "config", "", "the TenancyConfiguration (required)")
	f.StringVar(&o.Image, "image", "", "image of kubetenant-webhook (required with --out, unless --external)")
	f.StringVar(&o.Namespace, "namespace", "kubetenant-system", "namespace to install in")
	f.StringVar(&o.URL, "url", "",
		"https://host:port at which kube-apiserver reaches the service for tokens and authorization "+
			"(required with --out, or --cluster-ip): it looks up no cluster names")
	f.StringVar(&o.ClusterIP, "cluster-ip", "",
		"address for the Service, by which kube-apiserver then reaches the service; instead of --url")
	f.BoolVar(&o.External, "external", false,
		"the service runs outside of the cluster: it is not deployed, and admission reaches it by --url too")
	f.BoolVar(&o.AdmissionOnly, "admission-only", false,
		"install what is asked about writes alone, behind kubetenant-gateway: no files of the control plane")
	f.IPNetSliceVar(&o.AdmissionClients, "admission-clients", nil,
		"with --admission-only: networks (10.0.0.0/28) that kube-apiserver's requests come from. "+
			"The service answers no others, and a NetworkPolicy keeps them away.")
	f.StringVar(&o.ClientCA, "client-ca-file", "",
		"authorities of the certificate that kube-apiserver shows (required with --out, unless --admission-only)")
	f.StringVar(&o.ServingCA, "serving-ca-file", "",
		"authorities of the service's certificate, where it does not make them itself")
	f.BoolVar(&o.SelfManaged, "self-managed-certificates", false,
		"install what makes and renews the service's certificates")
	f.BoolVar(&o.Monitoring, "monitoring", false, "add ServiceMonitors and alert rules")
	f.StringSliceVar(&o.SweepGroups, "sweep-groups", nil,
		"groups of custom resources whose older objects the controller may label")
	f.StringVar(&o.Directory, "directory", "/etc/kubernetes/kubetenant",
		"where the files will stand on the control plane's machines")
	f.StringVar(&o.ClientCertificate, "client-certificate", "/etc/kubernetes/kubetenant/client.crt",
		"there, the certificate that kube-apiserver shows")
	f.StringVar(&o.ClientKey, "client-key", "/etc/kubernetes/kubetenant/client.key", "and its key")
	f.StringSliceVar(&o.Authorizers, "authorizers", []string{"Node", "RBAC"}, "authorizers behind the service")
	f.BoolVar(&o.StaticPolicies, "static-policies", false,
		"serve the policies as manifests too (feature gate ManifestBasedAdmissionControlConfig)")
	_ = cmd.MarkFlagRequired("config")
	return cmd
}

func runCheck(cmd *cobra.Command, dir string, o *webhookmanifests.Options) error {
	found, err := webhookmanifests.Check(dir, o.Config, o.Namespace)
	if err != nil {
		return err
	}
	for _, f := range found {
		if _, err := fmt.Fprintln(cmd.OutOrStdout(), f); err != nil {
			return err
		}
	}
	if len(found) > 0 {
		return fmt.Errorf("%d findings: %w", len(found), webhookmanifests.ErrFound)
	}
	_, err = fmt.Fprintln(cmd.OutOrStdout(), "nothing found")
	return err
}
