// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

// Package command contains the common parts of kubetenant-webhook and kubetenant-gateway. These are
// logging, the settings of Kubernetes clients, and the version command.
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

// New returns a root command with logging flags and a version subcommand.
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
		// client-go reads the environment only once, when it is first used.
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

// setLog makes klog write JSON with the given verbosity, if the format is JSON.
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

// setEnvironment sets environment variables for Kubernetes clients, unless they are already set.
// Clients then notice a dead connection within seconds. They do not stream lists, because a
// streamed list would make a watch look established while old data is still in use.
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
