// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

// Package command is what the commands that run beside clusters have in common: how they log, reach
// a cluster, and tell of themselves.
package command

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strconv"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"k8s.io/klog/v2"

	"github.com/kubetenant/kubetenant/internal/serving/state"
	"github.com/kubetenant/kubetenant/internal/version"
)

// New returns a command whose subcommands log as its flags say, with one that prints the version.
func New(use, short, long string) *cobra.Command {
	cmd := &cobra.Command{
		Use:           use,
		Short:         short,
		Long:          long,
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	verbosity := flag.NewFlagSet("klog", flag.ContinueOnError)
	klog.InitFlags(verbosity)
	cmd.PersistentFlags().AddGoFlag(verbosity.Lookup("v"))
	format := cmd.PersistentFlags().String("log-format", logText, "log format on standard error: text or json")
	cmd.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error {
		// client-go reads its settings once, when anything of it is made.
		return errors.Join(setEnvironment(), setLog(cmd.ErrOrStderr(), *format, verbosity.Lookup("v").Value.String()))
	}
	cmd.AddCommand(newVersionCommand())
	return cmd
}

// The values of --log-format.
const (
	logText = "text"
	logJSON = "json"
)

// setLog makes the log an object a line, with verbosity as klog has it, where its format is JSON.
func setLog(w io.Writer, format, verbosity string) error {
	switch format {
	case logText:
		return nil
	case logJSON:
		level, err := strconv.Atoi(verbosity)
		handler := slog.NewJSONHandler(w, &slog.HandlerOptions{Level: slog.Level(-level)})
		klog.SetLoggerWithOptions(logr.FromSlogHandler(handler), klog.ContextualLogger(true))
		return err
	}
	return fmt.Errorf("--log-format %s: must be text or json", format)
}

// setEnvironment says how this process reaches a cluster, where its environment does not: a
// connection that is dead is noticed in seconds, and a list is there before its watch is, which
// would otherwise look established while what was known before still counts.
func setEnvironment() error {
	environment := state.HTTP2Timeouts()
	environment["KUBE_FEATURE_WatchListClient"] = "false"
	for name, value := range environment {
		if os.Getenv(name) == "" {
			if err := os.Setenv(name, value); err != nil {
				return err
			}
		}
	}
	return nil
}

func newVersionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintln(cmd.OutOrStdout(), version.Version())
			return err
		},
	}
}
