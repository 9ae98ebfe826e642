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
		Short: "Convert files of other projects",
		Long: `Reads a policy, token or password file of Arktos, policies of k8s-keystone-auth
(version 1 and 2, the JSON list or the ConfigMap that holds it) or Tenants of
Capsule (as kubectl get tenants.capsule.clastix.io -o yaml prints them, with or
without the Namespaces that belong to them). It writes files of this project to
a folder that has none of them, and then lists the next steps.

From Capsule it writes objects of the cluster to cluster/ and after-adoption/,
and settings of the server to configuration/.

A field that cannot be converted, or that would allow more than it did, is left
out and listed on standard error. So is each field that the command does not
know. Exit status 1 if there is any. A migration gives a caller no new rights.`,
		Example: `  kubectl tenant migrate --from capsule tenants.yaml --out kubetenant/
  kubectl tenant migrate --from k8s-keystone-auth policies.json --out kubetenant/
  kubectl tenant migrate --from arktos-tokens known_tokens.csv --out kubetenant/`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			read, known := migrate.From()[from]
			if !known {
				return fmt.Errorf("--from %s: want %s", from, strings.Join(migrate.Kinds(), ", "))
			}
			if mode != "" && mode != dryRunClient {
				return fmt.Errorf("--dry-run=%s: migrate only writes files; want client", mode)
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
	f.StringVar(&from, "from", "", "what the file is: "+strings.Join(migrate.Kinds(), ", ")+" (required)")
	f.StringVar(&dir, "out", "", "directory to write into (required)")
	f.StringVar(&o.GroupsPrefix, "groups-prefix", "keystone:",
		"groupsPrefix of the keystone source, for k8s-keystone-auth")
	f.StringVar(&mode, "dry-run", "", "client: only list what would be written")
	f.Lookup("dry-run").NoOptDefVal = dryRunClient
	_ = cmd.MarkFlagRequired("from")
	_ = cmd.MarkFlagRequired("out")
	_ = cmd.MarkFlagDirname("out")
	_ = cmd.RegisterFlagCompletionFunc("from", outputs(migrate.Kinds()...))
	_ = cmd.RegisterFlagCompletionFunc("dry-run", outputs(dryRunClient))
	return cmd
}

// writeAll writes new files, or none of them if one exists or cannot be written.
func writeAll(dir string, files map[string]string) (err error) {
	for name := range files {
		if _, err := os.Lstat(filepath.Join(dir, name)); err == nil {
			return fmt.Errorf("%s exists: name another directory", filepath.Join(dir, name))
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

// reportMigration prints the files, then what was not carried over, then the
// steps that depend on it.
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
	for _, left := range r.Left {
		_, _ = fmt.Fprintln(cmd.ErrOrStderr(), output.Safe(file+": not carried over: "+left))
	}
	lines = nil
	for _, next := range r.Next {
		lines = append(lines, "next: "+next)
	}
	if err := printLines(cmd.OutOrStdout(), lines); err != nil {
		return err
	}
	if len(r.Left) > 0 {
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
