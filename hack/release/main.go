// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

// Command release creates the files of a release, verifies them, and pushes them to a registry.
// hack/release.sh builds the programs first. docs/releases.md describes the files.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/spf13/cobra"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := newCommand().ExecuteContext(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

func newCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "release", SilenceUsage: true, SilenceErrors: true}
	cmd.AddCommand(newBuildCommand(), newVerifyCommand(), newPushCommand())
	return cmd
}

func newBuildCommand() *cobra.Command {
	r := &release{started: time.Now().Truncate(time.Second)}
	var platforms string
	var unix int64
	cmd := &cobra.Command{
		Use:   "build",
		Short: "Make the files of a release from programs that were built before",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var err error
			if r.platforms, err = parsePlatforms(platforms); err != nil {
				return err
			}
			r.time = time.Unix(unix, 0).UTC()
			if err := r.check(); err != nil {
				return err
			}
			if r.scratch, err = os.MkdirTemp(r.binaries, "scratch-*"); err != nil {
				return err
			}
			return errors.Join(r.build(cmd.Context()), os.RemoveAll(r.scratch))
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&r.version, "version", "", "version of the release, with v")
	flags.StringVar(&r.commit, "commit", "", "commit that the programs were built from")
	flags.Int64Var(&unix, "time", 0, "time of the commit, in seconds since 1970")
	flags.StringVar(&platforms, "platforms", "", "platforms of a snapshot, with commas; all by default")
	flags.StringVar(&r.source, "source", ".", "folder of the repository")
	flags.StringVar(&r.binaries, "binaries", "", "folder with one folder of programs for each platform")
	flags.StringVar(&r.tools, "tools", "", "folder of cosign and syft")
	flags.StringVar(&r.dist, "dist", "dist", "folder to write, which must be empty")
	flags.StringVar(&r.key, "key", "", "private key of cosign. COSIGN_PASSWORD contains its password")
	flags.BoolVar(&r.keyless, "keyless", false, "sign with the identity of a workflow")
	flags.BoolVar(&r.unsigned, "unsigned", false, "allow a release without signatures")
	flags.StringVar(&r.builder, "builder", defaultMaker, "URI of the builder in the provenance")
	flags.StringVar(&r.invocation, "invocation", "", "URI of the run in the provenance")
	return cmd
}

func newVerifyCommand() *cobra.Command {
	v := &verifier{}
	cmd := &cobra.Command{
		Use:   "verify",
		Short: "Verify the files of a release",
		Args:  cobra.NoArgs,
	}
	check := v.addFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := check(cmd.Context()); err != nil {
			return err
		}
		_, err := fmt.Fprintf(cmd.OutOrStdout(), "%s: all %d files of %s are as released\n",
			v.dist, len(v.files), v.version)
		return err
	}
	return cmd
}

func newPushCommand() *cobra.Command {
	v := &verifier{}
	var to string
	cmd := &cobra.Command{
		Use:   "push",
		Short: "Verify the files of a release, and push its images and charts to a registry",
		Args:  cobra.NoArgs,
	}
	check := v.addFlags(cmd)
	cmd.Flags().StringVar(&to, "registry", "", "registry and path, for example registry.example.com/kubetenant")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if to == "" {
			return errors.New("--registry is required")
		}
		if err := check(cmd.Context()); err != nil {
			return err
		}
		return v.push(cmd.Context(), to, cmd.OutOrStdout())
	}
	return cmd
}

// addFlags adds the flags of a verification to a command. It returns the function that runs the
// verification.
func (v *verifier) addFlags(cmd *cobra.Command) func(context.Context) error {
	var key, version string
	var unix int64
	flags := cmd.Flags()
	flags.StringVar(&v.dist, "dist", "dist", "folder of the release")
	flags.StringVar(&v.source, "source", ".", "folder of the repository, at the commit of the release")
	flags.StringVar(&v.commit, "commit", "", "commit of the repository")
	flags.Int64Var(&unix, "time", 0, "time of the commit, in seconds since 1970")
	flags.StringVar(&key, "public-key", "", "public key of the signatures, in PEM")
	flags.StringVar(&v.keyless.subject, "certificate-identity", "", "identity of keyless signatures")
	flags.StringVar(&v.keyless.issuer, "certificate-oidc-issuer", "", "issuer of the identity")
	flags.BoolVar(&v.unsigned, "unsigned", false, "accept a snapshot without signatures")
	flags.StringVar(&version, "version", "", "version that the release must have")
	flags.StringVar(&v.tools, "tools", "", "folder of cosign, for keyless signatures")
	return func(ctx context.Context) error {
		v.time = time.Unix(unix, 0).UTC()
		ways := 0
		for _, set := range []bool{key != "", v.keyless != identity{}, v.unsigned} {
			if set {
				ways++
			}
		}
		if ways != 1 {
			return errors.New("specify how to verify: --public-key, --certificate-identity with " +
				"--certificate-oidc-issuer, or --unsigned for a snapshot")
		}
		if key != "" {
			var err error
			if v.publicKey, err = readKey(key); err != nil {
				return err
			}
		}
		if err := v.verify(ctx, version); err != nil {
			return fmt.Errorf("%w\n%s is not as released: do not use it, and download it again", err, filepath.Clean(v.dist))
		}
		return nil
	}
}
