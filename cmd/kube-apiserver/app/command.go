// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

// Package app builds a kube-apiserver that contains kubetenant, from upstream's packages.
package app

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/flagz"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	cliflag "k8s.io/component-base/cli/flag"
	"k8s.io/component-base/cli/globalflag"
	basecompatibility "k8s.io/component-base/compatibility"
	"k8s.io/component-base/featuregate"
	"k8s.io/component-base/logs"
	logsapi "k8s.io/component-base/logs/api/v1"
	"k8s.io/component-base/term"
	"k8s.io/component-base/version/verflag"
	upstream "k8s.io/kubernetes/cmd/kube-apiserver/app"
	"k8s.io/kubernetes/cmd/kube-apiserver/app/options"
)

// NewCommand returns upstream's command (cmd/kube-apiserver/app/server.go, v1.37.1) with the
// additional flag --tenancy-config. If the flag is not set, the server behaves as upstream's
// server.
func NewCommand() *cobra.Command {
	s := options.NewServerRunOptions()
	ctx := genericapiserver.SetupSignalContext()
	gate := s.GenericServerRunOptions.ComponentGlobalsRegistry.FeatureGateFor(basecompatibility.DefaultKubeComponent)
	tenancyConfig := ""

	cmd := &cobra.Command{
		Use: "kube-apiserver",
		Long: `The Kubernetes API server with tenant identity. A caller belongs to at most one
tenant, every namespace has an owner, and a tenant's callers can access another
tenant only if its owner allows it. Without --tenancy-config, it is the upstream kube-apiserver.

To run a small control plane on one machine, see "kubetenant-local --help".`,
		SilenceUsage: true,
		Args:         cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			verflag.PrintAndExitIfRequested()
			if err := logsapi.ValidateAndApply(s.Logs, gate); err != nil {
				return err
			}
			cliflag.PrintFlags(cmd.Flags())
			return Run(ctx, s, tenancyConfig)
		},
	}
	cmd.SetContext(ctx)

	sets := s.Flags()
	sets.FlagSet("tenancy").StringVar(&tenancyConfig, "tenancy-config", "",
		"Path of the TenancyConfiguration (kubetenant.dev/v1alpha1). The server reloads it, and the files that it names, "+
			"when they change.")
	s.Flagz = flagz.NamedFlagSetsReader{FlagSets: sets}
	verflag.AddFlags(sets.FlagSet("global"))
	globalflag.AddGlobalFlags(sets.FlagSet("global"), cmd.Name(), logs.SkipLoggingConfigurationFlags())
	for _, set := range sets.FlagSets {
		cmd.Flags().AddFlagSet(set)
	}
	columns, _, _ := term.TerminalSize(cmd.OutOrStdout())
	cliflag.SetUsageAndHelpFunc(cmd, sets, columns)
	return cmd
}

// Run runs a server with the given options until ctx ends. If tenancyConfig is empty, the server
// behaves as upstream's server. The hooks are called after the server has started.
func Run(ctx context.Context, s *options.ServerRunOptions, tenancyConfig string, hooks ...Hook) error {
	globals := s.GenericServerRunOptions.ComponentGlobalsRegistry
	if err := globals.Set(); err != nil {
		return err
	}
	// As in upstream, the loopback clients must not log the warnings that this server sends to
	// them.
	rest.SetDefaultWarningHandler(rest.NoWarnings{})
	completed, err := s.Complete(ctx)
	if err != nil {
		return err
	}
	if errs := completed.Validate(); len(errs) > 0 {
		return utilerrors.NewAggregate(errs)
	}
	if gate, ok := utilfeature.DefaultFeatureGate.(featuregate.MutableFeatureGate); ok {
		gate.AddMetrics()
	}
	globals.AddMetrics()

	if completed.InformerName == nil {
		if completed.InformerName, err = cache.NewInformerName("kube-apiserver"); err != nil {
			return err
		}
	}
	config, stack, err := NewConfig(ctx, completed, tenancyConfig)
	if err != nil {
		return err
	}
	for _, hook := range hooks {
		if err := config.KubeAPIs.ControlPlane.Generic.AddPostStartHook(hook.Name, hook.Start); err != nil {
			return err
		}
	}
	ready, err := config.Complete()
	if err != nil {
		return err
	}
	server, err := upstream.CreateServerChain(ready)
	if err != nil {
		return fmt.Errorf("create the server: %w", err)
	}
	if stack != nil {
		if err := server.GenericAPIServer.AddPreShutdownHook("kubetenant-leader", stack.PreShutdown); err != nil {
			return err
		}
		defer stack.Close()
	}
	prepared, err := server.PrepareRun()
	if err != nil {
		return err
	}
	return prepared.Run(ctx)
}

// Hook is a hook that is called after the server has started to serve requests.
type Hook struct {
	Name  string
	Start genericapiserver.PostStartHookFunc
}
