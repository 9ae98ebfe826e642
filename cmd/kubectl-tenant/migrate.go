// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kubetenant/kubetenant/internal/cli/migrate"
	"github.com/kubetenant/kubetenant/internal/cli/output"
)

func newMigrateCommand() *cobra.Command {
	o := migrate.Options{}
	from, dir, mode := "", "", ""
	cmd := &cobra.Command{
		Use:   "migrate --from KIND FILE --out DIR",
		Short: "Convert tenant configuration of other projects",
		Long: `Converts files of another project to kubetenant's formats:

  arktos-*           A policy, token or password file of Arktos.
  k8s-keystone-auth  Policies, version 1 or 2, as a JSON list or in a ConfigMap.
  capsule            Tenants, as kubectl get tenants.capsule.clastix.io -o yaml
                     prints them, optionally with their Namespaces.

The output folder must not contain any of the files that the command writes. For
Capsule, cluster objects go to cluster/ and after-adoption/, and settings of the
server go to configuration/. Finally, the command lists the next steps.

A migration gives a caller no new rights. The command omits a field if it cannot
convert the field, does not know it, or would allow more than before. It lists
each omitted field on standard error, and then exits with status 1.`,
		Example: `  kubectl tenant migrate --from capsule tenants.yaml --out kubetenant/
  kubectl tenant migrate --from k8s-keystone-auth policies.json --out kubetenant/
  kubectl tenant migrate --from arktos-tokens known_tokens.csv --out kubetenant/`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			read, known := migrate.From()[from]
			if !known {
				return fmt.Errorf("--from %s: must be one of %s", from, strings.Join(migrate.Kinds(), ", "))
			}
			if mode != "" && mode != dryRunClient {
				return fmt.Errorf("--dry-run=%s: must be client, because migrate only writes files", mode)
			}
			o.Dir = dir
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
	f.StringVar(&from, "from", "", "format of the file: "+strings.Join(migrate.Kinds(), ", ")+" (required)")
	f.StringVar(&dir, "out", "", "directory for the new files (required)")
	f.StringVar(&o.GroupsPrefix, "groups-prefix", "keystone:",
		"groupsPrefix of the keystone source, for k8s-keystone-auth")
	f.StringVar(&mode, "dry-run", "", "\"client\": only list the files to write")
	f.Lookup("dry-run").NoOptDefVal = dryRunClient
	_ = cmd.MarkFlagRequired("from")
	_ = cmd.MarkFlagRequired("out")
	_ = cmd.MarkFlagDirname("out")
	_ = cmd.RegisterFlagCompletionFunc("from", outputs(migrate.Kinds()...))
	_ = cmd.RegisterFlagCompletionFunc("dry-run", outputs(dryRunClient))
	return cmd
}

// writeAll writes new files. If a file already exists or cannot be written, no file remains.
func writeAll(dir string, files map[string]string) (err error) {
	for name := range files {
		if _, err := os.Lstat(filepath.Join(dir, name)); err == nil {
			return fmt.Errorf("%s already exists: use another directory", filepath.Join(dir, name))
		}
	}
	var written []string
	defer func() {
		for _, path := range written {
			if err != nil {
				err = errors.Join(err, os.Remove(path))
			}
		}
	}()
	for _, name := range slices.Sorted(maps.Keys(files)) {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			return err
		}
		// #nosec G304 -- the caller names the folder
		file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if err != nil {
			return err
		}
		written = append(written, path)
		_, err = file.WriteString(files[name])
		if err := errors.Join(err, file.Close()); err != nil {
			return err
		}
	}
	return nil
}

// reportMigration prints the files, the input that was not converted, and the next steps.
func reportMigration(cmd *cobra.Command, file, dir, mode string, r *migrate.Result) error {
	verb := "wrote"
	if mode != "" {
		verb = "would write"
	}
	var lines []string
	for _, name := range slices.Sorted(maps.Keys(r.Files)) {
		lines = append(lines, verb+" "+filepath.Join(dir, name))
	}
	if err := printLines(cmd.OutOrStdout(), lines); err != nil {
		return err
	}
	for _, left := range r.Unconverted {
		_, _ = fmt.Fprintln(cmd.ErrOrStderr(), output.Safe(file+": not converted: "+left))
	}
	lines = nil
	for _, next := range r.Next {
		lines = append(lines, "next: "+next)
	}
	if err := printLines(cmd.OutOrStdout(), lines); err != nil {
		return err
	}
	if len(r.Unconverted) > 0 {
		return errFailed
	}
	return nil
}

func printLines(w io.Writer, lines []string) error {
	for _, line := range lines {
		if _, err := fmt.Fprintln(w, output.Safe(line)); err != nil {
			return err
		}
	}
	return nil
}
