package main

import (
	"fmt"

	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kubetenant/kubetenant/internal/serving/command"
)

func newCommand() *cobra.Command {
	cmd := command.New("kubetenant-webhook", "Tenants for a cluster whose kube-apiserver nobody may rebuild",
		`Answers an unmodified kube-apiserver's webhooks: who a token is and of which
tenant (TokenReview), what may cross between tenants (SubjectAccessReview), and
what may stand in tenant space (AdmissionReview). Any number of replicas.`)
	cmd.AddCommand(newServeCommand(), newControllerCommand(), newCertificatesCommand(), newGenerateCommand())
	return cmd
}

// cluster are the flags by which a cluster is reached.
type cluster struct{ kubeconfig, namespace string }

func (c *cluster) addFlags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&c.kubeconfig, "kubeconfig", "", "kubeconfig of the cluster; empty inside of one")
	cmd.Flags().StringVar(&c.namespace, "namespace", "kubetenant-system", "namespace in which this runs")
}

// config returns how to reach the cluster.
func (c *cluster) config() (*rest.Config, error) {
	config, err := clientcmd.BuildConfigFromFlags("", c.kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("reach the cluster: %w", err)
	}
	return config, nil
}
