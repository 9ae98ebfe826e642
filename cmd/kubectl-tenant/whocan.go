// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"

	"github.com/kubetenant/kubetenant/internal/cli/client"
	"github.com/kubetenant/kubetenant/internal/cli/output"
	"github.com/kubetenant/kubetenant/internal/cli/privileges"
	"github.com/kubetenant/kubetenant/internal/cli/tenancy"
	"github.com/kubetenant/kubetenant/internal/simulate/explain"
	"github.com/kubetenant/kubetenant/internal/simulate/simulator"
	"github.com/kubetenant/kubetenant/tenant"
)

func newWhoCanCommand(flags *client.Flags) *cobra.Command {
	format := newAnswersFlags()
	config := ""
	request := &requestFlags{eachNamespace: true}
	cmd := &cobra.Command{
		Use:   "who-can VERB (TYPE [NAME] | TYPE/NAME | PATH) [--subresource SUBRESOURCE] [-n NAMESPACE | -A]",
		Short: "Show which identities may do something",
		Long: `Shows the users, groups and service accounts that may do something, with the
binding or access grant that allows it, and their tenants. The name alice in two
tenants is one subject of RBAC, but each alice can only access the namespaces of
its tenant.

TYPE, NAME, --subresource and -A have the same meaning as in kubectl auth can-i.
With -A, the command checks a request across all namespaces, which a RoleBinding
does not allow. Without -n, -A and NAME, it checks each namespace by itself.
With a NAME, it checks the namespace of the kubeconfig.

Only the server may change an object that it maintains, such as a copy of a
Publication. For such an object, the answer is the server's own identity.

It evaluates RBAC and access grants of the cluster, the tenant boundary, and the
policy file. The configuration is the file of --config, or the one that the
server publishes, or else the default. With several clusters, the command lists
the answers of each.`,
		Example: `  kubectl tenant who-can delete pods -n acme--web
  kubectl tenant who-can get configmaps/prices -n acme--web
  kubectl tenant who-can create pods --subresource exec
  kubectl tenant who-can list pods -A
  kubectl tenant who-can get pods -n acme--web --cluster eu1,us1
  kubectl tenant who-can get /metrics`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) < 2 || len(args) > 3 {
				return fmt.Errorf("two or three arguments required: VERB and TYPE or TYPE/NAME, optionally NAME, or VERB and PATH "+
					"(see %s --help)", cmd.CommandPath())
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := format.Check(); err != nil {
				return err
			}
			clusters, err := flags.Clusters()
			if err != nil {
				return err
			}
			var all []privileges.Answer
			asks := 0
			failed := eachCluster(cmd, clusters, func(c *client.Cluster) error {
				answers, err := whoCan(cmd, c, config, request, args)
				if err == nil {
					asks++
				}
				for i := range answers {
					answers[i].Cluster = c.Name
				}
				all = append(all, answers...)
				return err
			})
			if asks == 0 {
				return failed
			}
			format.severalClusters = len(clusters) > 1
			return errors.Join(
				format.print(cmd, all, "no identity may do this: to see what is missing, run kubectl tenant explain"), failed)
		},
	}
	cmd.ValidArgsFunction = completeVerbs
	request.add(cmd)
	flags.AddClusters(cmd)
	format.addFlags(cmd)
	addConfig(cmd, &config)
	return cmd
}

// whoCan returns the subjects of a cluster that may perform the request that the arguments and
// flags describe.
func whoCan(
	cmd *cobra.Command, c *client.Cluster, config string, asked *requestFlags, args []string,
) ([]privileges.Answer, error) {
	q, err := asked.question(cmd, c, args)
	if err != nil {
		return nil, err
	}
	var firstErr error
	answers, err := answerQuery(cmd, c, config, privileges.ForActions(q.Namespace, []privileges.Action{*q}),
		func(p *simulator.Snapshot, b *privileges.Boundary) []privileges.Answer {
			if firstErr = checkAsked(p, q); firstErr != nil {
				return nil
			}
			return b.WhoCan(cmd.Context(), q)
		})
	if err := errors.Join(err, firstErr); err != nil {
		return nil, err
	}
	stored, err := storedObject(cmd.Context(), c, &q.AttributesRecord)
	if err != nil {
		return nil, c.Explain(err)
	}
	if stored != nil {
		if source := explain.ManagedBy(schema.GroupResource{Group: q.APIGroup, Resource: q.Resource}, stored); source != "" {
			return []privileges.Answer{privileges.ServerOnly(q.Namespace, source)}, nil
		}
	}
	return answers, nil
}

// checkAsked returns an error if the namespace does not exist, or if the verb is neither a known
// verb nor in a rule of a role.
func checkAsked(p *simulator.Snapshot, q *privileges.Action) error {
	if _, exists := p.Namespaces[q.Namespace]; !exists && q.Namespace != "" {
		return fmt.Errorf("namespace %s: %w", q.Namespace, tenancy.ErrMissing)
	}
	if slices.Contains(verbs(), q.Verb) || strings.HasPrefix(q.Verb, "impersonate") {
		return nil
	}
	for _, role := range p.Roles {
		for i := range role.Rules {
			if slices.Contains(role.Rules[i].Verbs, q.Verb) {
				return nil
			}
		}
	}
	return fmt.Errorf("unknown verb %q, which neither the server nor a role uses: did you mean one of %s?",
		q.Verb, strings.Join(requestVerbs(), ", "))
}

// completeVerbs completes the verb, which is the first argument.
func completeVerbs(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return requestVerbs(), cobra.ShellCompDirectiveNoFileComp
}

func newWhoCanBecomeCommand(flags *client.Flags) *cobra.Command {
	identity := &identityFlags{}
	format := newAnswersFlags()
	config := ""
	cmd := &cobra.Command{
		Use:   "who-can-become (USER | --serviceaccount SA)",
		Short: "Show how callers can act as an identity or gain its rights",
		Long: `Shows which identities can act as a user or service account, or gain its rights.
They can impersonate it, approve or sign a certificate for it, or bind or
escalate roles. For a service account, they can also request a token, run a pod
as it, or open a shell in its pods. The list then shows which of these ways lead
into its tenant from another tenant.`,
		Example: `  kubectl tenant who-can-become alice
  kubectl tenant who-can-become --serviceaccount acme--web/robot`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := errors.Join(format.Check(), identity.takeUser(cmd, args)); err != nil {
				return err
			}
			account, robot, found := strings.Cut(identity.user, "/")
			if found && client.CheckNamespace("", account) == nil && client.CheckObject("", robot) == nil {
				_, _ = fmt.Fprintf(cmd.ErrOrStderr(),
					"warning: treating %s as a user; for the service account, use --serviceaccount %s\n", identity.user, identity.user)
			}
			c, err := flags.Cluster()
			if err != nil {
				return err
			}
			name := identity.user
			if name == "" {
				name = serviceaccount.MakeUsername(identity.account(c))
			}
			paths := privileges.PathsTo(name)
			namespace, _ := tenant.ServiceAccountNamespace(name)
			answers, err := answerQuery(cmd, c, config, privileges.ForActions(namespace, privileges.Actions(paths)),
				func(p *simulator.Snapshot, b *privileges.Boundary) []privileges.Answer {
					owner := tenant.ID{}
					if namespace != "" {
						owner = p.Owner(namespace)
					}
					return b.WhoCanBecome(cmd.Context(), paths, owner)
				})
			if err != nil {
				return c.Explain(err)
			}
			return format.print(cmd, answers, "no identity found")
		},
	}
	cmd.ValidArgsFunction = flags.CompleteUsers
	cmd.Flags().StringVar(&identity.serviceAccount, "serviceaccount", "",
		"service account: NAME in the namespace of -n, or NAMESPACE/NAME")
	format.addFlags(cmd)
	addConfig(cmd, &config)
	return cmd
}

// takeUser sets the user from the arguments, unless a service account is specified. It returns the
// problems of the specified identity.
func (f *identityFlags) takeUser(cmd *cobra.Command, args []string) error {
	switch {
	case len(args) == 1 && args[0] == "":
		return errors.New("USER must not be empty")
	case (len(args) == 1) == (f.serviceAccount != ""):
		return errors.New("set either USER or --serviceaccount")
	case len(args) == 1:
		f.user = args[0]
	}
	return f.check(cmd)
}

// answerQuery reads a snapshot of a cluster and returns the answers that from finds in it.
func answerQuery(cmd *cobra.Command, c *client.Cluster, config string, s privileges.Selection,
	from func(*simulator.Snapshot, *privileges.Boundary) []privileges.Answer,
) ([]privileges.Answer, error) {
	known, done, err := serverSettings(cmd, c, config)
	if err != nil {
		return nil, err
	}
	defer done()
	lines, err := readPolicy(known)
	if err != nil {
		return nil, err
	}
	progress := output.NewProgress(cmd.ErrOrStderr())
	defer progress.Done()
	p, err := readSnapshot(cmd.Context(), c, s, func(n int64) { progress.Update("%d objects read", n) })
	if err != nil {
		return nil, err
	}
	progress.Done()
	if len(p.Unread) > 0 {
		return nil, fmt.Errorf("you may not list %s: use the kubeconfig of a user who can read all roles and bindings",
			strings.Join(p.Unread, ", "))
	}
	b, err := privileges.NewBoundary(withoutLog(cmd.Context()), p, known, lines)
	if err != nil {
		return nil, err
	}
	return from(p, b), nil
}

// requestVerbs returns the verbs of requests for resources.
func requestVerbs() []string {
	return []string{"get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"}
}

// verbs returns the verbs that servers authorize, except the verbs for impersonation.
func verbs() []string {
	return append(requestVerbs(), "bind", "escalate", "approve", "sign", "attest", "use", "post", "put", "head", "*")
}

// answersFlags specify how answers are printed. All but severalClusters are command-line flags.
type answersFlags struct {
	*output.Format
	hideSystem bool
	// severalClusters adds a column with the cluster of each answer.
	severalClusters bool
}

func newAnswersFlags() *answersFlags { return &answersFlags{Format: output.NewListFormat()} }

// addFlags adds the flags to a command.
func (f *answersFlags) addFlags(cmd *cobra.Command) {
	f.AddFlags(cmd)
	cmd.Flags().BoolVar(&f.hideSystem, "hide-system", true,
		"hide the default bindings of Kubernetes")
}

// across returns a text about whether a path leads from one tenant to another.
func across(a *privileges.Answer) string {
	switch {
	case a.Across:
		return "yes"
	case a.SystemOnly:
		return "system only"
	}
	return "no"
}

// print prints answers. If there are no rows and the format is text, it prints the text none to
// standard error.
func (f *answersFlags) print(cmd *cobra.Command, answers []privileges.Answer, none string) error {
	hidden := 0
	list := &output.List{
		Columns: append(output.Columns("Kind", "Name", "Tenants", "Scope"), output.Column{Name: "By"},
			output.Column{Name: "Role", Wide: true}),
	}
	paths := len(answers) > 0 && answers[0].Path != ""
	if paths {
		list.Columns = append(output.Columns("How", "Across tenants"), list.Columns...)
	}
	if f.severalClusters {
		list.Columns = append(output.Columns("Cluster"), list.Columns...)
	}
	for i := range answers {
		a := &answers[i]
		if f.hideSystem && a.System {
			hidden++
			continue
		}
		scope := a.Scope
		if a.Only != "" {
			scope += ", only " + a.Only
		}
		cells := []string{a.Kind, a.Name, strings.Join(a.Tenants, ", "), scope, a.By, a.Role}
		if paths {
			cells = append([]string{a.Path, across(a)}, cells...)
		}
		if f.severalClusters {
			cells = append([]string{a.Cluster}, cells...)
		}
		list.Rows = append(list.Rows, output.Row{
			Kind:  schema.GroupKind{Kind: a.Kind},
			Name:  a.Name,
			Cells: cells,
			Item:  a,
		})
	}
	if len(list.Rows) == 0 && f.IsText() {
		_, _ = fmt.Fprintln(cmd.ErrOrStderr(), none)
	} else if err := f.List(cmd.OutOrStdout(), list); err != nil {
		return err
	}
	if hidden > 0 {
		_, _ = fmt.Fprintf(cmd.ErrOrStderr(),
			"%d default bindings of Kubernetes hidden (use --hide-system=false to show them)\n", hidden)
	}
	return nil
}
