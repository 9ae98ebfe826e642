// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kubetenant/kubetenant/authz/abac"
	configv1alpha1 "github.com/kubetenant/kubetenant/config/v1alpha1"
	"github.com/kubetenant/kubetenant/internal/cli/client"
	"github.com/kubetenant/kubetenant/internal/cli/installation"
	"github.com/kubetenant/kubetenant/internal/cli/privileges"
	"github.com/kubetenant/kubetenant/internal/simulate/simulator"
)

// readPolicy returns the policy file of a configuration, or nil if the configuration has none.
func readPolicy(c *configv1alpha1.Settings) (*abac.Policy, error) {
	if c.Authorization.ABAC == nil {
		return nil, nil
	}
	path := c.Authorization.ABAC.Path
	data, err := os.ReadFile(path) // #nosec G304 -- the operator's own configuration names it
	if err != nil {
		return nil, err
	}
	policy, err := abac.Parse(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return policy, nil
}

func addConfig(cmd *cobra.Command, config *string) {
	cmd.Flags().StringVar(config, "config", "", "TenancyConfiguration file to use instead of the configuration that the "+
		"server publishes")
	_ = cmd.MarkFlagFilename("config", "yaml", "yml", "json")
}

// settings returns the settings in a configuration file, or the default settings if path is empty.
func settings(path string) (*configv1alpha1.Settings, error) {
	if path == "" {
		return (&configv1alpha1.Settings{}).Complete()
	}
	c, err := configv1alpha1.Load(path)
	if err != nil {
		return nil, err
	}
	return &c.Settings, nil
}

// published returns the configuration that the server of a cluster publishes.
func published(ctx context.Context, c *client.Cluster) (*configv1alpha1.Published, error) {
	found, err := c.Installation(ctx)
	if err != nil {
		return nil, err
	}
	return found.Published(ctx)
}

// errNoSettings reports that the caller cannot read the settings of a server.
var errNoSettings = errors.New("you cannot read a published configuration of the server: set --config")

// serverSettings returns the settings in a configuration file. If path is empty, it returns the
// settings that the server publishes. If the caller cannot read them, it prints a warning and
// returns the default settings. done deletes the temporary files of the settings.
func serverSettings(
	cmd *cobra.Command, c *client.Cluster, path string,
) (known *configv1alpha1.Settings, done func(), err error) {
	known, done, err = requiredSettings(cmd, c, path)
	if errors.Is(err, errNoSettings) {
		_, _ = fmt.Fprintln(cmd.ErrOrStderr(), "warning: you cannot read a published configuration of the server, and "+
			"--config is not set: using the default configuration")
		known, err = settings("")
	}
	return known, done, err
}

// systemNamespaces returns the system namespaces in the settings of [serverSettings].
func systemNamespaces(cmd *cobra.Command, c *client.Cluster, path string) ([]string, error) {
	server, done, err := serverSettings(cmd, c, path)
	if err != nil {
		return nil, err
	}
	done()
	return server.Authorization.SystemNamespaces, nil
}

// requiredSettings is like [serverSettings], but returns an error instead of the default settings.
// The error wraps [errNoSettings] if the caller cannot read a published configuration.
func requiredSettings(
	cmd *cobra.Command, c *client.Cluster, path string,
) (known *configv1alpha1.Settings, done func(), err error) {
	done = func() {}
	if path != "" {
		known, err = settings(path)
		return known, done, err
	}
	p, err := published(cmd.Context(), c)
	switch {
	case apierrors.IsNotFound(err), apierrors.IsForbidden(err):
		return nil, done, errNoSettings
	case errors.Is(err, configv1alpha1.ErrNotPublished), errors.Is(err, installation.ErrUntrusted):
		return nil, done, fmt.Errorf("%w: set --config to the server's configuration", err)
	case err != nil:
		return nil, done, c.Explain(err)
	}
	dir, err := os.MkdirTemp("", "kubectl-tenant")
	if err != nil {
		return nil, done, err
	}
	done = func() { _ = os.RemoveAll(dir) } // a remaining file contains no secret
	missing := func(what string) {
		_, _ = fmt.Fprintf(cmd.ErrOrStderr(),
			"warning: the server does not publish its %s because it is too large: set --config to the server's "+
				"configuration\n", what)
	}
	known = &p.Settings
	if a := known.Authorization.ABAC; a != nil {
		if p.Policy == "" {
			missing("policy file")
			known.Authorization.ABAC = nil
		} else {
			a.Path = filepath.Join(dir, "policy.jsonl")
			err = os.WriteFile(a.Path, []byte(p.Policy), 0o600)
		}
	}
	if r := known.Authentication.Revocation; r != nil {
		if p.Revocation == "" {
			missing("revocation file")
			known.Authentication.Revocation = nil
		} else {
			r.Path = filepath.Join(dir, "revocation.yaml")
			err = errors.Join(err, os.WriteFile(r.Path, []byte(p.Revocation), 0o600))
		}
	}
	if err != nil {
		done()
	}
	return known, done, err
}

// readSnapshot reads the objects of a cluster that decisions depend on. It calls read with the
// number of objects that it has read.
func readSnapshot(
	ctx context.Context, c *client.Cluster, s privileges.Selection, read func(objects int64),
) (*simulator.Snapshot, error) {
	found, err := c.Installation(ctx)
	if err != nil {
		return nil, err
	}
	snapshot, err := privileges.Read(ctx, c.Config, s, read)
	if err != nil {
		return nil, err
	}
	snapshot.RightsElsewhere = found.Mode != installation.CompiledIn
	return snapshot, nil
}
