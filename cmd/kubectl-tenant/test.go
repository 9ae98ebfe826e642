// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"k8s.io/klog/v2"

	"github.com/kubetenant/kubetenant/internal/simulate/scenario"
)

func newTestCommand() *cobra.Command {
	output := ""
	cmd := &cobra.Command{
		Use:   "test FILE|DIR...",
		Short: "Run scenario files offline",
		Long: `Runs scenario files (kind Scenario) without a cluster, with the same code that
the server uses, including its evaluation of roles and bindings. A scenario with
"delegate: Allow" shows only the denials of the tenant boundary.`,
		Example: `  kubectl tenant test policy-tests/
  kubectl tenant test identity.yaml -o junit > report.xml`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			write, ok := map[string]func(*scenario.Report, io.Writer) error{
				"":      (*scenario.Report).WriteText,
				"json":  (*scenario.Report).WriteJSON,
				"junit": (*scenario.Report).WriteJUnit,
			}[output]
			if !ok {
				return fmt.Errorf("-o %s: must be json or junit", output)
			}
			report, err := runAll(cmd, args)
			if err != nil {
				return err
			}
			if err := write(report, cmd.OutOrStdout()); err != nil {
				return err
			}
			if report.Count(scenario.Failed) > 0 {
				return errFailed
			}
			return nil
		},
	}
	cmd.Flags().StringVarP(&output, "output", "o", "", "output format: json or junit")
	_ = cmd.RegisterFlagCompletionFunc("output", outputs("json", "junit"))
	return cmd
}

// withoutLog returns a context that discards log messages. It also discards the messages of the
// global logger, because some code of the server does not use the logger of the context.
func withoutLog(ctx context.Context) context.Context {
	klog.SetLogger(logr.Discard())
	return klog.NewContext(ctx, logr.Discard())
}

func runAll(cmd *cobra.Command, paths []string) (*scenario.Report, error) {
	files, err := scenario.Files(paths)
	if err != nil {
		return nil, err
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("no scenario files (*.yaml, *.yml) in %v", paths)
	}
	ctx := withoutLog(cmd.Context())
	report := &scenario.Report{}
	for _, file := range files {
		all, err := scenario.LoadScenarios(file)
		if err != nil {
			return nil, err
		}
		for _, s := range all {
			if err := scenario.Run(ctx, scenario.Library{}, file, s, report.Add); err != nil {
				return nil, err
			}
		}
	}
	return report, nil
}
