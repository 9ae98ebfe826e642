// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package manifests

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/kubetenant/kubetenant/internal/manifests/charts"
	"github.com/kubetenant/kubetenant/internal/version"
)

// AddChart adds the flag --chart to cmd. If it is set, image is set to the image of the packaged
// chart before cmd runs. chart is the name of the chart. cmd must already have the flag --image.
func AddChart(cmd *cobra.Command, chart string, image *string) {
	path := cmd.Flags().String("chart", "",
		"path of the packaged chart of the release ("+chart+"-VERSION.tgz): use its image instead of --image")
	cmd.MarkFlagsMutuallyExclusive("chart", "image")
	cmd.PreRunE = func(*cobra.Command, []string) (err error) {
		if *path != "" {
			*image, err = charts.Image(*path, chart, version.Version())
		}
		return err
	}
}

// AddGenerate makes cmd write the result of files to the directory in the required flag --out.
func AddGenerate(cmd *cobra.Command, files func() (map[string][]byte, error)) {
	out := cmd.Flags().String("out", "", "directory to write to (required)")
	_ = cmd.MarkFlagRequired("out")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		all, err := files()
		if err != nil {
			return err
		}
		if err := Write(*out, "", all); err != nil {
			return err
		}
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "wrote %d files to %s\n", len(all), *out)
		return err
	}
}
