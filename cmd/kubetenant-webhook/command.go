// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"

	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kubetenant/kubetenant/internal/serving/command"
)

func newCommand() *cobra.Command {
	cmd := command.New("kubetenant-webhook", "Tenant identity for a cluster whose kube-apiserver you cannot replace",
		`Serves the webhooks of an unmodified kube-apiserver. TokenReview returns the user
and the tenant of a token. SubjectAccessReview denies requests across tenants.
AdmissionReview checks the objects in the namespaces of tenants. You can run any
number of replicas.`)
	cmd.AddCommand(newServeCommand(), newControllerCommand(), newCertificatesCommand(), newGenerateCommand())
	return cmd
}

// cluster contains the flags for the connection to a cluster.
type cluster struct{ kubeconfig, namespace string }

func (c *cluster) addFlags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&c.kubeconfig, "kubeconfig", "", "path of the kubeconfig of the cluster; empty inside the "+
		"cluster")
	cmd.Flags().StringVar(&c.namespace, "namespace", "kubetenant-system", "namespace that this program runs in")
}

// config returns the client configuration of the cluster.
func (c *cluster) config() (*rest.Config, error) {
	config, err := clientcmd.BuildConfigFromFlags("", c.kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("load the configuration of the cluster: %w", err)
	}
	return config, nil
}
