// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package client_test

import (
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/cli-runtime/pkg/genericclioptions"

	"github.com/kubetenant/kubetenant/internal/cli/client"
)

// TestFlagsMatchKubectl checks that each flag has the same name, short name, type and default as
// kubectl's flag. The exceptions are --user and --context.
func TestFlagsMatchKubectl(t *testing.T) {
	cmd := &cobra.Command{Use: "x"}
	client.NewFlags().AddFlags(cmd)
	kubectl := pflag.NewFlagSet("", pflag.ContinueOnError)
	genericclioptions.NewConfigFlags(false).AddFlags(kubectl)
	kubectl.VisitAll(func(want *pflag.Flag) {
		t.Run(want.Name, func(t *testing.T) {
			got := cmd.PersistentFlags().Lookup(want.Name)
			switch {
			case want.Name == "user":
				if got != nil {
					t.Error("--user names an identity in these commands")
				}
			case got == nil:
				t.Error("missing")
			case want.Name == "context":
				if got.Value.Type() != "stringSlice" {
					t.Errorf("a %s, not a list", got.Value.Type())
				}
			case got.Shorthand != want.Shorthand || got.Value.Type() != want.Value.Type() || got.DefValue != want.DefValue ||
				got.NoOptDefVal != want.NoOptDefVal:
				t.Errorf("%+v, want %+v", got, want)
			}
		})
	})
}

// TestFlagsReachTheConfig checks that the values of the flags override those of the kubeconfig.
func TestFlagsReachTheConfig(t *testing.T) {
	f, _ := clusters(t, twoClusters("https://east.example.com"), "--context", "east", "-s", "https://west.example.com",
		"--as", "alice", "--as-uid", "u", "--as-group", "a,b", "--as-group", "c", "--as-user-extra", "k=v=w",
		"--as-user-extra", "k=x", "--as-user-extra", "ignored", "--token", "t", "--insecure-skip-tls-verify",
		"--tls-server-name", "n", "--request-timeout", "3s", "--proxy-url", "http://proxy.example.com",
		"--disable-compression", "-n", "namespaces/web")
	c, err := f.Cluster()
	if err != nil {
		t.Fatal(err)
	}
	as := c.Config.Impersonate
	for name, ok := range map[string]bool{
		"server":      c.Config.Host == "https://west.example.com",
		"user":        as.UserName == "alice" && as.UID == "u",
		"groups":      len(as.Groups) == 2 && as.Groups[0] == "a,b" && as.Groups[1] == "c",
		"extra":       len(as.Extra) == 1 && len(as.Extra["k"]) == 2 && as.Extra["k"][0] == "v=w",
		"token":       c.Config.BearerToken == "t",
		"TLS":         c.Config.Insecure && c.Config.ServerName == "n",
		"timeout":     c.Config.Timeout.String() == "3s",
		"proxy":       c.Config.Proxy != nil,
		"compression": c.Config.DisableCompression,
		"namespace":   c.Namespace == "web" && f.Namespace() == "web",
	} {
		t.Run(name, func(t *testing.T) {
			if !ok {
				t.Errorf("%+v", c.Config)
			}
		})
	}
}

// TestKubeconfigFlag checks that the file of --kubeconfig replaces $KUBECONFIG, and that a missing
// file is an error.
func TestKubeconfigFlag(t *testing.T) {
	f, _ := clusters(t, twoClusters("https://east.example.com"), "--kubeconfig", "missing")
	if _, err := f.Cluster(); err == nil {
		t.Error("no error")
	}
}
