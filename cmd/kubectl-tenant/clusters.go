// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

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
	format := output.NewListFormat()
	selector := ""
	cmd := &cobra.Command{
		Use:   "clusters",
		Short: "List the clusters behind a gateway that you may use",
		Long: `Lists the clusters behind a gateway that callers of your tenant may use. For
each cluster it shows the server version, and whether the gateway has current
data. Without current data, the gateway denies your requests to that cluster.

The kubeconfig must name the gateway or one of its clusters. To create such a
kubeconfig, use gen-kubeconfig --gateway.

The list is available only if gateway.views.clusters is set in the gateway's
configuration.`,
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
	cmd.Flags().StringVarP(&selector, "selector", "l", "", "label selector for clusters, such as region=eu")
	format.AddFlags(cmd)
	return cmd
}

// clustersOf returns the clusters that the gateway in front of c lists.
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
	// Either the server is not a gateway, or the gateway does not serve this path.
	if apierrors.IsNotFound(err) || apierrors.IsForbidden(err) {
		return nil, fmt.Errorf("%s does not list clusters: either it is not a gateway, or gateway.views.clusters is not "+
			"set in its configuration: %w", config.Host, err)
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
		return output.Row{}, fmt.Errorf("decode the gateway's response: %w", err)
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
