package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kubetenant/kubetenant/cmd/internal/cli/client"
	"github.com/kubetenant/kubetenant/cmd/internal/cli/output"
)

func newWhoAmICommand() *cobra.Command {
	flags := client.NewFlags()
	format := ""
	cmd := &cobra.Command{
		Use:   "whoami",
		Short: "Say who the server takes you for, and whose",
		Long: `Asks the server (SelfSubjectReview) who you are: user, tenant, the source that knew
your credential, groups, and when the credential expires. With --as it says who you
would be.

A server with kubetenant compiled in says the tenant itself. Behind the webhook
service it is told from the same things that the service looks at: the group
tenant:<id> of a certificate, or the owner of a service account's namespace.`,
		Example: `  kubectl tenant whoami
  kubectl tenant whoami --as alice --as-group tenant:acme -o json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkFormat(format, output.JSON, output.YAML, "name"); err != nil {
				return err
			}
			c, err := flags.Cluster()
			if err != nil {
				return err
			}
			i, err := c.WhoAmI(cmd.Context())
			if err != nil {
				return c.Explain(err)
			}
			return printIdentity(cmd, i, format)
		},
	}
	flags.AddFlags(cmd)
	addFormat(cmd, &format, output.JSON, output.YAML, "name")
	return cmd
}

func printIdentity(cmd *cobra.Command, i *client.Identity, format string) error {
	out := cmd.OutOrStdout()
	if done, err := output.Value(out, format, i); done {
		return err
	}
	if format == "name" {
		_, err := fmt.Fprintln(out, i.User)
		return err
	}
	tenant := i.Tenant
	if tenant == "" {
		tenant = "<unknown>"
	}
	source, expires := i.Source, i.Endless
	if source == "" {
		source = "<the server does not say>"
	}
	if i.Expires != nil {
		expires = i.Expires.Format(time.RFC3339)
	}
	rows := [][]string{{"Tenant", tenant + " (" + i.Because + ")"}, {"Source", source}, {"Groups", strings.Join(i.Groups, ", ")}, {"Expires", expires}}
	return output.NewScreen(out).Table([]string{"User", i.User}, rows)
}

// addFormat adds -o.
func addFormat(cmd *cobra.Command, format *string, values ...string) {
	cmd.Flags().StringVarP(format, "output", "o", "", "output format: "+strings.Join(values, ", "))
	_ = cmd.RegisterFlagCompletionFunc("output", outputs(values...))
}

// checkFormat refuses a value of -o that is none of those.
func checkFormat(format string, values ...string) error {
	for _, v := range append(values, "") {
		if format == v {
			return nil
		}
	}
	return fmt.Errorf("-o %s: want %s", format, strings.Join(values, ", "))
}
