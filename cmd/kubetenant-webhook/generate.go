// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"github.com/spf13/cobra"

	"github.com/kubetenant/kubetenant/internal/manifests"
	webhookmanifests "github.com/kubetenant/kubetenant/internal/manifests/webhook"
)

func newGenerateCommand() *cobra.Command {
	o := webhookmanifests.Options{}
	cmd := &cobra.Command{
		Use:   "generate --config FILE --out DIR (--chart FILE | --image IMAGE) --client-ca-file FILE",
		Short: "Write all manifests and control plane files",
		Long: `Writes the manifests of the cluster (DIR/cluster) and the files of the control plane
machines (DIR/control-plane) from a TenancyConfiguration. See docs/install.md.

"kubectl tenant validate CONFIG DIR" compares DIR with the configuration. It reports
settings that fail open, lock the cluster, or leave a caller without a tenant.`,
		Args: cobra.NoArgs,
	}
	manifests.AddGenerate(cmd, func() (map[string][]byte, error) { return webhookmanifests.Generate(o) })
	f := cmd.Flags()
	f.StringVar(&o.Config, "config", "", "path of the TenancyConfiguration (required)")
	f.StringVar(&o.Image, "image", "", "container image of kubetenant-webhook (required, unless --chart or "+
		"--external is set)")
	f.StringVar(&o.Namespace, "namespace", "kubetenant-system", "namespace to install in")
	f.StringVar(&o.URL, "url", "",
		"https://host:port at which kube-apiserver reaches the service for token reviews and authorization. "+
			"kube-apiserver cannot resolve Service names. Either --url or --cluster-ip is required.")
	f.StringVar(&o.ClusterIP, "cluster-ip", "",
		"cluster IP to assign to the Service, at which kube-apiserver reaches the service; use it instead of --url")
	f.BoolVar(&o.External, "external", false,
		"the service runs outside the cluster: do not deploy it, and use --url for admission too")
	f.BoolVar(&o.AdmissionOnly, "admission-only", false,
		"install only the admission webhooks, for a cluster behind kubetenant-gateway: write no control plane files")
	f.IPNetSliceVar(&o.AdmissionClients, "admission-clients", nil,
		"with --admission-only: networks that kube-apiserver connects from (for example 10.0.0.0/28). The service rejects "+
			"requests from other networks, and a NetworkPolicy blocks them.")
	f.StringVar(&o.ClientCA, "client-ca-file", "",
		"path of the certificate authorities of kube-apiserver's client certificate (required, unless "+
			"--admission-only is set)")
	f.StringVar(&o.ServingCA, "serving-ca-file", "",
		"path of the certificate authorities of the serving certificate, unless --self-managed-certificates is set")
	f.BoolVar(&o.SelfManaged, "self-managed-certificates", false,
		"install the controller that creates and renews the certificates of the service")
	f.BoolVar(&o.Monitoring, "monitoring", false, "add ServiceMonitors and alert rules")
	f.BoolVar(&o.FlowSchemas, "flow-schemas", false,
		"let the controller maintain FlowSchemas, so that API Priority and Fairness is fair to tenants")
	f.StringVar((*string)(&o.Storage), "storage", "",
		"volume of each replica at /var/lib/kubetenant, for audit streams and usage records. Claim creates a StatefulSet "+
			"with a PersistentVolumeClaim for each replica. EmptyDir ends with the Pod, and is for audit streams only.")
	f.StringVar(&o.StorageSize, "storage-size", "12Gi", "size of the volume of each replica; must be larger than "+
		"audit.maxTotalMegabytes")
	f.StringVar(&o.StorageClass, "storage-class", "", "StorageClass of the claims. If empty, the default of the cluster "+
		"applies.")
	f.StringSliceVar(&o.BackfillGroups, "sweep-groups", nil,
		"API groups of custom resources whose older objects the controller may label")
	f.StringVar(&o.Directory, "directory", "/etc/kubernetes/kubetenant",
		"directory of the files on the control plane machines")
	f.StringVar(&o.ClientCertificate, "client-certificate", "/etc/kubernetes/kubetenant/client.crt",
		"path of kube-apiserver's client certificate on the control plane machines")
	f.StringVar(&o.ClientKey, "client-key", "/etc/kubernetes/kubetenant/client.key", "path of the private key of "+
		"kube-apiserver's client certificate on the control plane machines")
	f.StringSliceVar(&o.Authorizers, "authorizers", []string{"Node", "RBAC"}, "authorizers that run after the service")
	f.BoolVar(&o.StaticPolicies, "static-policies", false,
		"also write the policies as static manifests (feature gate ManifestBasedAdmissionControlConfig)")
	_ = cmd.MarkFlagRequired("config")
	manifests.AddChart(cmd, "kubetenant-webhook", &o.Image)
	return cmd
}
