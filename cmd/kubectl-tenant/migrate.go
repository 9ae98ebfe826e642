package main

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kubetenant/kubetenant/cmd/internal/cli/migrate"
)

func newMigrateCommand() *cobra.Command {
	o := migrate.Options{}
	from, dir, mode := "", "", ""
	cmd := &cobra.Command{
		Use:   "migrate --from KIND FILE --out DIR",
		Short: "Turn files of other projects into this project's",
		Long: `Reads a policy, token or password file of Arktos, policies of k8s-keystone-auth
(version 1 and 2, the JSON list or the ConfigMap that holds it) or Tenants of
Capsule (as kubectl get tenants.capsule.clastix.io -o yaml prints each), and
writes this project's files for it into a directory that has none of them.

What cannot be said here, or would give more than it did there, is left out and
listed on standard error: nobody gets a right by a migration. Exit status 1 if
there is any.`,
		Example: `  kubectl tenant migrate --from k8s-keystone-auth policies.json --out kubetenant/
  kubectl tenant migrate --from arktos-tokens known_tokens.csv --out kubetenant/`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			read, known := migrate.From()[from]
			if !known {
				return fmt.Errorf("--from %s: want %s", from, strings.Join(migrate.Kinds(), ", "))
			}
			if err := checkDryRun(mode); err != nil {
				return err
			}
			data, err := os.ReadFile(args[0])
			if err != nil {
				return err
			}
			result, err := read(data, o)
			if err != nil {
				return fmt.Errorf("%s: %w", args[0], err)
			}
			if mode == "" {
				if err := writeAll(dir, result.Files); err != nil {
					return err
				}
			}
			return reportMigration(cmd, args[0], dir, mode, result)
		},
	}
	f := cmd.Flags()
	f.StringVar(&from, "from", "", "what the file is: "+strings.Join(migrate.Kinds(), ", ")+" (required)")
	f.StringVar(&dir, "out", "", "directory to write into (required)")
	f.StringVar(&o.GroupsPrefix, "groups-prefix", "keystone:", "groupsPrefix of the keystone source, for k8s-keystone-auth")
	addDryRun(cmd, &mode)
	_ = cmd.MarkFlagRequired("from")
	_ = cmd.MarkFlagRequired("out")
	_ = cmd.MarkFlagDirname("out")
	_ = cmd.RegisterFlagCompletionFunc("from", outputs(migrate.Kinds()...))
	return cmd
}

// writeAll writes new files; if one of them is there, none.
func writeAll(dir string, files map[string]string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	for name := range files {
		if _, err := os.Lstat(filepath.Join(dir, name)); err == nil {
			return fmt.Errorf("%s exists: name another directory", filepath.Join(dir, name))
		}
	}
	var written []string
	for _, name := range slices.Sorted(maps.Keys(files)) {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(files[name]), 0o600); err != nil {
			for _, w := range append(written, path) {
				err = errors.Join(err, os.Remove(w))
			}
			return err
		}
		written = append(written, path)
	}
	return nil
}

func reportMigration(cmd *cobra.Command, file, dir, mode string, r *migrate.Result) error {
	verb := "wrote"
	if mode != "" {
		verb = "would write"
	}
	for _, name := range slices.Sorted(maps.Keys(r.Files)) {
		if _, err := fmt.Fprintf(cmd.OutOrStdout(), "%s %s\n", verb, filepath.Join(dir, name)); err != nil {
			return err
		}
	}
	for _, next := range r.Next {
		if _, err := fmt.Fprintln(cmd.OutOrStdout(), "next: "+next); err != nil {
			return err
		}
	}
	for _, left := range r.Left {
		_, _ = fmt.Fprintf(cmd.ErrOrStderr(), "%s: not carried over: %s\n", file, left)
	}
	if len(r.Left) > 0 {
		return errFailed
	}
	return nil
}
