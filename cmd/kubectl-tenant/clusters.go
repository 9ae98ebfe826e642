package main

import (
	"context"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/kubetenant/kubetenant/internal/cli/client"
	"github.com/kubetenant/kubetenant/internal/cli/output"
	"github.com/kubetenant/kubetenant/internal/gateway/views"
)

func newClustersCommand(flags *client.Flags) *cobra.Command {
	format, selector := output.NewListFormat(), ""
	cmd := &cobra.Command{
		Use:   "clusters",
		Short: "List the clusters of a gateway that you may use",
		Long: `Lists the clusters behind a gateway that callers of your tenant may use: whether
the gateway knows each as it is now (else it denies what you ask there), and the
version of its server. The kubeconfig names the gateway, or one of its clusters;
gen-kubeconfig --gateway makes one for others.

Gateways show them where their configuration says gateway.views.clusters.`,
		Example: `  kubectl tenant clusters
  kubectl tenant clusters -l region=eu -o name`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := format.Check(); err != nil {
				return err
			}
			if _, err := labels.Parse(selector); err != nil {
				return fmt.Errorf("-l %s: %w", selector, err)
			}
			c, err := flags.Cluster()
			if err != nil {
				return err
			}
			list, err := clustersOf(cmd.Context(), c, selector)
			if err != nil {
				return c.Explain(err)
			}
			return printList(cmd, format, list)
		},
	}
	cmd.Flags().StringVarP(&selector, "selector", "l", "", "labels of clusters, as in -l region=eu")
	format.AddFlags(cmd)
	return cmd
}

// clustersOf asks the gateway that a cluster is reached through.
func clustersOf(ctx context.Context, c *client.Cluster, selector string) (*output.List, error) {
	config, err := client.Gateway(c.Config)
	if err != nil {
		return nil, err
	}
	d, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	all, err := d.Resource(views.GroupVersion.WithResource(views.Resource)).List(ctx,
		metav1.ListOptions{LabelSelector: selector})
	// a server of Kubernetes, and a gateway for which that is no path of its own
	if apierrors.IsNotFound(err) || apierrors.IsForbidden(err) {
		return nil, fmt.Errorf("%s shows no clusters: "+
			"it is no gateway, or its configuration does not say gateway.views.clusters: %w", config.Host, err)
	}
	if err != nil {
		return nil, err
	}
	list := &output.List{
		Columns: append(output.Columns("Name", "Reachable", "Version"), output.Column{Name: "Labels", Wide: true}),
	}
	for i := range all.Items {
		row, err := clusterRow(&all.Items[i])
		if err != nil {
			return nil, err
		}
		list.Rows = append(list.Rows, row)
	}
	return list, nil
}

func clusterRow(u *unstructured.Unstructured) (output.Row, error) {
	var shown views.Cluster
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &shown); err != nil {
		return output.Row{}, fmt.Errorf("the gateway's answer is not understood: %w", err)
	}
	return output.Row{
		Kind: schema.GroupKind{Group: views.GroupVersion.Group, Kind: views.Kind},
		Name: shown.Name,
		Item: u,
		Cells: []string{
			shown.Name, strconv.FormatBool(shown.Status.Reachable), shown.Status.Version, labels.Set(shown.Labels).String(),
		},
	}, nil
}
