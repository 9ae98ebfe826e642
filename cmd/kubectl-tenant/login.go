// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kubetenant/kubetenant/internal/cli/login"
	"github.com/kubetenant/kubetenant/internal/cli/output"
)

// loginTimeout is the maximum duration of a login.
const loginTimeout = 5 * time.Minute

func newLoginCommand() *cobra.Command {
	o := &login.OpenID{Now: time.Now}
	cache := &login.Cache{}
	secret := ""
	authority := ""
	noBrowser := false
	cmd := &cobra.Command{
		Use:   "login --issuer-url URL --client-id ID",
		Short: "Log in at an OpenID provider (kubectl credential plugin)",
		Long: `Prints an ExecCredential with an ID token. The token comes from the cache, from
a refresh token, or from a login in the browser. With --device, you can log in
on any other device. The browser login uses an authorization code with PKCE and
a loopback listener. kubectl runs this command itself if the kubeconfig was
created with gen-kubeconfig --oidc.

Tokens are cached in files that only you can read. With --token-cache-storage
keyring, they are in the system's keyring. There is one cache entry for each
issuer and client. Concurrent kubectl processes share one login. The client
secret is read from a file, or from $KUBECTL_TENANT_CLIENT_SECRET.`,
		Example: `  kubectl tenant login --issuer-url https://login.example.com --client-id kubectl
  kubectl tenant login --issuer-url https://login.example.com --client-id kubectl --device --scope offline_access`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if u, err := url.Parse(o.Issuer); err != nil || u.Scheme != "https" || u.Host == "" {
				return fmt.Errorf("--issuer-url %q: must start with https://", o.Issuer)
			}
			if authority != "" {
				var err error
				if o.CAData, err = base64.StdEncoding.DecodeString(authority); err != nil {
					return errors.New("--issuer-ca-data: is not base64")
				}
			}
			o.Secret = os.Getenv("KUBECTL_TENANT_CLIENT_SECRET")
			if secret != "" {
				data, err := os.ReadFile(secret) // #nosec G304 -- the caller names the file
				if err != nil {
					return err
				}
				o.Secret = strings.TrimSpace(string(data))
			}
			var err error
			if o.Interactive, err = login.Interactive(os.Getenv(login.ExecInfo)); err != nil {
				return err
			}
			o.Printf = func(format string, args ...any) {
				_, _ = fmt.Fprintln(cmd.ErrOrStderr(), output.Safe(fmt.Sprintf(format, args...)))
			}
			o.Open = browse
			if noBrowser {
				o.Open = func(context.Context, string) error { return errors.New("--no-browser") }
			}
			return printToken(cmd, cache, o.Key(), o.Token)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.Issuer, "issuer-url", "", "issuer URL of the provider (required)")
	f.StringVar(&o.ClientID, "client-id", "", "client ID registered with the provider (required)")
	f.StringVar(&secret, "client-secret-file", "", "file with the secret of a confidential client")
	f.StringVar(&o.CAFile, "issuer-ca", "", "file with the certificate authority of the provider (default: the system's)")
	f.StringVar(&authority, "issuer-ca-data", "", "certificate authority of the provider: base64 of a PEM file")
	cmd.MarkFlagsMutuallyExclusive("issuer-ca", "issuer-ca-data")
	f.StringSliceVar(&o.Scopes, "scope", nil, "scopes to request in addition to openid, such as offline_access for a "+
		"refresh token")
	f.BoolVar(&o.Device, "device", false, "log in on another device (RFC 8628)")
	f.BoolVar(&noBrowser, "no-browser", false, "print the login address instead of opening a browser")
	f.IntVar(&o.Port, "port", 0,
		"port of the loopback listener, for providers that allow only one redirect address (default: any free port)")
	f.DurationVar(&o.Timeout, "within", loginTimeout, "how long to wait for the login")
	addCache(cmd, cache)
	_ = cmd.MarkFlagRequired("issuer-url")
	_ = cmd.MarkFlagRequired("client-id")
	return cmd
}

func newKeystoneLoginCommand() *cobra.Command {
	k := &login.Keystone{Now: time.Now, Environment: os.Getenv}
	cache := &login.Cache{}
	cmd := &cobra.Command{
		Use:   "keystone-login [--cloud NAME]",
		Short: "Log in at OpenStack Keystone (kubectl credential plugin)",
		Long: `Prints an ExecCredential with a Keystone token. The command authenticates with a
password or an application credential. It reads them from a cloud in clouds.yaml
(--cloud or $OS_CLOUD), or from the variables of an openrc file (OS_AUTH_URL,
OS_USERNAME, OS_PASSWORD, OS_APPLICATION_CREDENTIAL_ID, ...). The token must be
scoped to a project: the server rejects other tokens.`,
		Example: `  kubectl tenant keystone-login --cloud kube`,
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if _, err := login.Interactive(os.Getenv(login.ExecInfo)); err != nil {
				return err
			}
			if err := k.Read(); err != nil {
				return err
			}
			return printToken(cmd, cache, k.Key(), k.Token)
		},
	}
	cmd.Flags().StringVar(&k.Cloud, "cloud", "", "cloud in clouds.yaml (default: $OS_CLOUD)")
	cmd.Flags().StringVar(&k.File, "clouds-file", "", "path of clouds.yaml (default: the usual locations)")
	_ = cmd.MarkFlagFilename("clouds-file", "yaml", "yml")
	addCache(cmd, cache)
	return cmd
}

func addCache(cmd *cobra.Command, cache *login.Cache) {
	cmd.Flags().StringVar(&cache.Dir, "cache-dir", "",
		"directory for cached tokens (default: kubectl-tenant in your cache directory)")
	_ = cmd.MarkFlagDirname("cache-dir")
	storage := ""
	addStorage(cmd, &storage)
	cmd.PreRunE = func(*cobra.Command, []string) error {
		cache.Keyring = storage == storageKeyring
		return checkStorage(storage)
	}
}

// Values of --token-cache-storage.
const (
	storageDisk    = "disk"
	storageKeyring = "keyring"
)

func addStorage(cmd *cobra.Command, storage *string) {
	cmd.Flags().StringVar(storage, "token-cache-storage", storageDisk,
		"token storage: disk, or the system's keyring")
	_ = cmd.RegisterFlagCompletionFunc("token-cache-storage", outputs(storageDisk, storageKeyring))
}

func checkStorage(storage string) error {
	if storage != storageDisk && storage != storageKeyring {
		return fmt.Errorf("--token-cache-storage %s: must be %s or %s", storage, storageDisk, storageKeyring)
	}
	return nil
}

// printToken prints the stored token, or a new one if the stored token is no longer valid.
func printToken(
	cmd *cobra.Command, cache *login.Cache, key []string, get func(context.Context, *login.Token) (*login.Token, error),
) error {
	if cache.Dir == "" {
		base, err := os.UserCacheDir()
		if err != nil {
			return fmt.Errorf("%w: set --cache-dir", err)
		}
		cache.Dir = filepath.Join(base, "kubectl-tenant")
	}
	token, err := cache.With(cmd.Context(), key, func(stored *login.Token) (*login.Token, error) {
		return get(cmd.Context(), stored)
	})
	if err != nil {
		return err
	}
	return login.Print(cmd.OutOrStdout(), token)
}

// browse opens a page in the browser that $BROWSER names, or in the default browser of the
// system.
func browse(ctx context.Context, address string) error {
	name := os.Getenv("BROWSER")
	args := []string{address}
	if name == "" {
		switch runtime.GOOS {
		case "darwin":
			name = "open"
		case "windows":
			name = "rundll32"
			args = []string{"url.dll,FileProtocolHandler", address}
		default:
			name = "xdg-open"
		}
	}
	c := exec.CommandContext(context.WithoutCancel(ctx), name, args...) // #nosec G204 G702 -- the caller's own browser
	if err := c.Start(); err != nil {
		return err
	}
	go func() { _ = c.Wait() }()
	return nil
}
