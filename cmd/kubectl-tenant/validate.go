package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"

	"github.com/spf13/cobra"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"

	"github.com/kubetenant/kubetenant"
	"github.com/kubetenant/kubetenant/cmd/internal/cli/output"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

func newValidateCommand() *cobra.Command {
	var files []string
	format := output.NewFormat()
	cmd := &cobra.Command{
		Use:   "validate -f FILE",
		Short: "Check a TenancyConfiguration with its files, or a Revocation",
		Long: `Reads a TenancyConfiguration and every file that it names, or a Revocation, by
the code that the server reads them with, and prints every problem at its field.`,
		Example: `  kubectl tenant validate -f tenancy.yaml
  kubectl tenant validate -f tenancy.yaml -o json`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := format.Check(); err != nil {
				return err
			}
			var found []validation
			warnings := map[string][]string{}
			var failed, unread error
			for _, file := range files {
				err := kubetenant.Check(quiet(cmd.Context()), file)
				if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
					unread = errors.Join(unread, err)
					continue
				}
				if err != nil {
					failed = errFailed
				}
				found = append(found, validation{file, problems(file, err)})
				if config, err := v1alpha1.Load(file); err == nil {
					warnings[file] = config.Warnings()
				}
			}
			if err := printValidations(cmd.OutOrStdout(), found, format); err != nil {
				return err
			}
			for _, file := range files {
				for _, text := range warnings[file] {
					_, _ = fmt.Fprintf(cmd.ErrOrStderr(), "warning: %s: %s\n", file, text)
				}
			}
			if unread != nil {
				return unread
			}
			return failed
		},
	}
	cmd.Flags().StringSliceVarP(&files, "filename", "f", nil, "TenancyConfiguration or Revocation to check (required, may be repeated)")
	format.AddFlags(cmd)
	_ = cmd.MarkFlagRequired("filename")
	_ = cmd.MarkFlagFilename("filename", "yaml", "yml", "json")
	return cmd
}

// validation is what was found in one file.
type validation struct {
	File     string   `json:"file"`
	Problems []string `json:"problems"`
}

// problems returns each of the errors that err is made of, without the name of the file before it.
func problems(file string, err error) []string {
	out := []string{}
	var all utilerrors.Aggregate
	switch {
	case err == nil:
	case errors.As(err, &all):
		for _, e := range all.Errors() {
			out = append(out, e.Error())
		}
	default:
		out = append(out, strings.TrimPrefix(err.Error(), file+": "))
	}
	return out
}

func printValidations(w io.Writer, found []validation, format *output.Format) error {
	if done, err := format.Value(w, "Validation", map[string]any{"files": found}); done {
		return err
	}
	for _, v := range found {
		if len(v.Problems) == 0 {
			if _, err := fmt.Fprintf(w, "%s: valid\n", v.File); err != nil {
				return err
			}
		}
		for _, p := range v.Problems {
			if _, err := fmt.Fprintf(w, "%s: %s\n", v.File, p); err != nil {
				return err
			}
		}
	}
	return nil
}
