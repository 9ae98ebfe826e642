package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kubetenant/kubetenant/internal/cli/lint"
	"github.com/kubetenant/kubetenant/internal/cli/output"
)

func newLintCommand() *cobra.Command {
	kind, format := "", output.NewFormat()
	cmd := &cobra.Command{
		Use:   "lint FILE...",
		Short: "Find all that is wrong with a file, with line and a fix",
		Long: `Reads token files, password files, policy files (ABAC), revocations, certificate
requests and configurations with the server's own readers, and prints everything
that is wrong, where and what to write instead; of a configuration also what is
wrong with the files that it names. Warnings are about what the server takes,
but perhaps not as it was meant. No token and no password is printed. (validate
says only whether a server would start with a file.)

What a file is, is told from its content; of comma-separated values from the
name: one with "pass" in it is a password file. --kind says it otherwise.

Exit status: 0 nothing is wrong, 1 something is, 2 a file cannot be read.`,
		Example: `  kubectl tenant lint tenancy.yaml
  kubectl tenant lint --kind password users.csv`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := format.Check(); err != nil {
				return err
			}
			all := []lint.Problem{}
			var unread error
			for _, path := range args {
				found, err := lint.File(quiet(cmd.Context()), path, lint.Kind(kind))
				all, unread = append(all, found...), errors.Join(unread, err)
			}
			if err := printProblems(cmd, all, format); err != nil {
				return err
			}
			for _, p := range all {
				if !p.Warning && unread == nil {
					return errFailed
				}
			}
			return unread
		},
	}
	cmd.Flags().StringVar(&kind, "kind", "", "what the files are: "+strings.Join(lint.Kinds(), ", "))
	_ = cmd.RegisterFlagCompletionFunc("kind", outputs(lint.Kinds()...))
	format.AddFlags(cmd)
	return cmd
}

func printProblems(cmd *cobra.Command, all []lint.Problem, format *output.Format) error {
	out := cmd.OutOrStdout()
	if done, err := format.Value(out, "Problems", map[string]any{"problems": all}); done {
		return err
	}
	for _, p := range all {
		if _, err := fmt.Fprintln(out, p.String()); err != nil {
			return err
		}
		if p.Fix != "" {
			if _, err := fmt.Fprintln(out, "  fix: "+p.Fix); err != nil {
				return err
			}
		}
	}
	return nil
}
