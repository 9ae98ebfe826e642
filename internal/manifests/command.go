// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package manifests

import (
	"errors"
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

// AddGenerate makes cmd write the result of files to the directory in the flag --out. The hidden
// flag --check is deprecated. It calls check with a directory, as "kubectl tenant validate" does.
func AddGenerate(
	cmd *cobra.Command, files func() (map[string][]byte, error), check func(cmd *cobra.Command, dir string) error,
) {
	out := cmd.Flags().String("out", "", "directory to write to")
	checked := cmd.Flags().String("check", "", "directory to check")
	_ = cmd.Flags().MarkHidden("check")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if (*out == "") == (*checked == "") {
			return errors.New("--out is required")
		}
		if *checked != "" {
			_, _ = fmt.Fprintf(cmd.ErrOrStderr(),
				"warning: --check is deprecated: use kubectl tenant validate CONFIG %s\n", *checked)
			return check(cmd, *checked)
		}
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
