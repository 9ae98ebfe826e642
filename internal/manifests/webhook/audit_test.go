// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package webhook_test

import (
	"path/filepath"
	"strings"
	"testing"

	auditinternal "k8s.io/apiserver/pkg/apis/audit"
	"k8s.io/apiserver/pkg/audit/policy"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kubetenant/kubetenant/internal/manifests/webhook"
)

// TestAuditWebhook checks that the generated files make kube-apiserver send its audit events to
// the service only if the configuration has audit streams.
func TestAuditWebhook(t *testing.T) {
	t.Parallel()
	off := options(t)
	on := options(t)
	write(t, on.Config, `{apiVersion: kubetenant.dev/v1alpha1, kind: TenancyConfiguration,
audit: {directory: /var/lib/kubetenant/streams}}`)
	on.Storage, on.StorageSize = webhook.StorageEmptyDir, "1Gi"
	flags := []string{
		"--audit-policy-file=/etc/kubernetes/kubetenant/audit-policy.yaml",
		"--audit-webhook-config-file=/etc/kubernetes/kubetenant/webhook-audit.kubeconfig", "--audit-webhook-mode=batch",
		"--audit-webhook-batch-max-wait=1s", "--audit-webhook-truncate-enabled=true",
	}
	for name, o := range map[string]webhook.Options{"off": off, "on": on} {
		t.Run(name, func(t *testing.T) {
			files, err := webhook.Generate(o)
			if err != nil {
				t.Fatal(err)
			}
			for _, flag := range flags {
				if has := strings.Contains(string(files["control-plane/flags.txt"]), flag); has != (name == "on") {
					t.Errorf("flags: %s", files["control-plane/flags.txt"])
				}
			}
			kubeconfig, has := files["control-plane/webhook-audit.kubeconfig"]
			if has != (name == "on") {
				t.Errorf("%s", kubeconfig)
			}
			if name == "off" {
				return
			}
			client, err := clientcmd.Load(kubeconfig)
			if err != nil {
				t.Fatal(err)
			}
			cluster, user := client.Clusters["kubetenant"], client.AuthInfos["kube-apiserver"]
			if cluster.Server != "https://10.0.0.9:9443/audit" || user.ClientCertificate != o.ClientCertificate ||
				cluster.CertificateAuthority != filepath.Join(o.Directory, "webhook-ca.crt") {
				t.Errorf("the kubeconfig is %s", kubeconfig)
			}
			rules, err := policy.LoadPolicyFromBytes(files["control-plane/audit-policy.yaml"])
			if err != nil || rules.Rules[0].Level != auditinternal.LevelMetadata {
				t.Errorf("the policy is %+v (%v)", rules, err)
			}
		})
	}
}
