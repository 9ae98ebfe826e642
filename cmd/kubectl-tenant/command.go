// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"runtime"

	"github.com/spf13/cobra"

	"github.com/kubetenant/kubetenant/internal/cli/client"
	"github.com/kubetenant/kubetenant/internal/cli/output"
	"github.com/kubetenant/kubetenant/internal/version"
)

func newCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "kubectl-tenant",
		Short: "Manage the tenants of a Kubernetes cluster",
		Long: `Manages the identities, privileges and tenants of a Kubernetes cluster. It shows
which tenant a caller has, what the caller may do and why, which other callers
may do the same, and which decisions a new configuration would change.

--kubeconfig and --context select a cluster, as in kubectl. --user names the
identity that a command is about. Progress and warnings go to standard error.
For scripts, use -o json or another output format of kubectl.

Exit status:
  0  Success.
  1  A problem was found, the request was refused, or some clusters failed.
  2  The command could not run. For example, a file is missing or malformed, the
     server cannot be reached, or the command line is invalid.`,
		SilenceUsage:  true,
		SilenceErrors: true,
		Annotations:   map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl tenant"},
	}
	flags := client.NewFlags()
	cmd.PersistentPreRun = func(cmd *cobra.Command, args []string) { requireInstalled(cmd, flags, args) }
	flags.AddFlags(cmd)
	cmd.AddCommand(
		newValidateCommand(flags), newTestCommand(), newVerifyIsolationCommand(flags),
		newWhoAmICommand(flags), newGenKubeconfigCommand(flags),
		newListPrivilegesCommand(flags), newWhoCanCommand(flags), newWhoCanBecomeCommand(flags),
		newGrantPrivilegesCommand(flags), newRevokePrivilegesCommand(flags), newSharedWithMeCommand(flags),
		newTenantsCommand(flags), newClustersCommand(flags),
		newCreateTenantCommand(flags), newDeleteTenantCommand(flags), newRetiredCommand(flags),
		newSuspendCommand(flags), newResumeCommand(flags),
		newAdoptCommand(flags), newReleaseCommand(flags), newAdoptTenantsCommand(flags),
		newPublishCommand(flags),
		newUninstallCommand(flags), newExplainCommand(flags),
		newLoginCommand(), newKeystoneLoginCommand(), newKeystoneSyncCommand(flags),
		newMigrateCommand(), newReplayCommand(), newAccessMapCommand(flags),
		newUsageCommand(flags), newAuditCommand(flags), newStatusCommand(flags), newVersionCommand(), newOptionsCommand(),
	)
	cmd.SetUsageTemplate(usageTemplate)
	cmd.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		return fmt.Errorf("%w (see %s --help)", err, c.CommandPath())
	})
	return cmd
}

// noArgs returns an error for arguments. cobra would report them as unknown commands.
func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return fmt.Errorf("%s takes no arguments, but got %q: use flags instead (see %[1]s --help)",
			cmd.CommandPath(), args[0])
	}
	return nil
}

// usageTemplate is cobra's template (cobra 1.10.2, UsageTemplate) in kubectl's form, at most 80
// columns wide. Only "kubectl tenant options" lists the flags that all commands have.
const usageTemplate = `Usage:{{if .Runnable}}
  {{.UseLine}}{{end}}{{if .HasAvailableSubCommands}}
  {{.CommandPath}} [command]{{end}}{{if .HasExample}}

Examples:
{{.Example}}{{end}}{{if .HasAvailableSubCommands}}

Commands:{{range .Commands}}{{if (or .IsAvailableCommand (eq .Name "help"))}}
  {{rpad .Name .NamePadding }} {{.Short}}{{end}}{{end}}{{end}}{{if .LocalNonPersistentFlags.HasAvailableFlags}}

Flags:
{{.LocalNonPersistentFlags.FlagUsagesWrapped 80 | trimTrailingWhitespaces}}{{end}}{{if .HasAvailableSubCommands}}

Use "{{.CommandPath}} [command] --help" for more about a command.{{end}}

Use "kubectl tenant options" for the flags of all commands.
`

func newOptionsCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "options",
		Short: "List the flags that all commands accept",
		Long:  "Lists the flags that all commands accept, such as the cluster and the user.",
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprint(cmd.OutOrStdout(), cmd.InheritedFlags().FlagUsagesWrapped(pageWidth))
			return err
		},
	}
}

// pageWidth is the maximum width of help texts in columns.
const pageWidth = 80

func newVersionCommand() *cobra.Command {
	format := output.NewFormat()
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Long: `Prints the version of this program. With -o json or yaml, it also prints the Go
version and the commit.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := format.Check(); err != nil {
				return err
			}
			v := struct {
				Version string `json:"version"`
				Go      string `json:"goVersion"`
				Commit  string `json:"gitCommit,omitempty"`
			}{version.Version(), runtime.Version(), version.Commit()}
			if done, err := format.Value(cmd.OutOrStdout(), "Version", v); done {
				return err
			}
			_, err := fmt.Fprintln(cmd.OutOrStdout(), v.Version)
			return err
		},
	}
	format.AddFlags(cmd)
	cmd.Flags().Bool("client", false, "print the version of this program only, which the command does in any case")
	return cmd
}

// outputs returns a completion for the values of -o.
func outputs(values ...string) cobra.CompletionFunc {
	return cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp)
}

// printList prints a list. If the list is empty and the output is for people, it prints a message
// to standard error, as kubectl does.
func printList(cmd *cobra.Command, format *output.Format, list *output.List) error {
	if len(list.Rows) == 0 && format.IsText() {
		_, err := fmt.Fprintln(cmd.ErrOrStderr(), "No resources found")
		return err
	}
	return format.List(cmd.OutOrStdout(), list)
}
