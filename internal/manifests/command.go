package manifests

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"
)

// Generates makes cmd write what files returns to the directory --out, or check
// the one that --check names.
func Generates(
	cmd *cobra.Command, files func() (map[string][]byte, error), check func(cmd *cobra.Command, dir string) error,
) {
	out := cmd.Flags().String("out", "", "directory to write to")
	checked := cmd.Flags().String("check", "", "directory to check")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if (*out == "") == (*checked == "") {
			return errors.New("one of --out and --check is required")
		}
		if *checked != "" {
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
