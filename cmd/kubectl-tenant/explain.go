// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/kubetenant/kubetenant/internal/cli/client"
	"github.com/kubetenant/kubetenant/internal/cli/output"
	"github.com/kubetenant/kubetenant/internal/cli/privileges"
	"github.com/kubetenant/kubetenant/internal/cli/tenancy"
	"github.com/kubetenant/kubetenant/internal/simulate/explain"
	"github.com/kubetenant/kubetenant/internal/simulate/simulator"
	"github.com/kubetenant/kubetenant/tenant"
)

// explainOptions are the flags of explain.
type explainOptions struct {
	flags        *client.Flags
	config, of   string
	tenant       string
	format       *output.Format
	as           string
	groups       []string
	files        []string
	requestFlags requestFlags
	// scenario is the path of the scenario file, or empty. object is the object in the files, or
	// nil.
	scenario string
	object   *unstructured.Unstructured
}

func newExplainCommand(flags *client.Flags) *cobra.Command {
	o := &explainOptions{flags: flags, format: output.NewFormat()}
	cmd := &cobra.Command{
		Use: "explain VERB (TYPE [NAME] | TYPE/NAME | PATH | -f OBJECT) [--as U --tenant T] " +
			"[--config FILE | -f SCENARIO]",
		Short: "Explain why a request is allowed or denied",
		Long: `Evaluates a request step by step, with the code of the server: source, user,
tenant, owner, boundary, grants, policy file, RBAC, admission, and decision. If
the request is denied, explain prints the smallest change that would allow it: a
command, a grant, a binding, a setting or a line of the policy file. Each
proposed change was tested.

TYPE, NAME, --subresource, -n and -A have the same meaning as in kubectl auth
can-i. Without -n and -A, explain uses the namespace of the kubeconfig. A
scenario has no such namespace: set -n or -A for a resource in namespaces.

For a write, the result of admission depends on the object. With -f, explain
runs PodSecurity and all kubetenant plugins, except quota limits. Without -f, it
reports only results that hold for every object, and "undecided" otherwise. If
the server would accept a workload but PodSecurity would refuse its Pods,
explain shows both. The checks that explain did not run are listed after the
decision.

For a live cluster, explain uses the configuration that the server publishes, or
the file of --config. The identity is the one of --as, --as-group and --tenant,
or your own. To explain a request offline, use -f with a scenario file: either
name one of its cases with --case, or give a request of your own.

explain does not impersonate the user. If you cannot read roles and bindings,
you can only explain your own requests. The server then evaluates them, with a
dry run for writes.

Exit status:
  0  Every check that ran allows the request.
  1  The request is denied, or refused by admission.
  2  The decision could not be determined.`,
		Example: `  kubectl tenant explain delete pods/web-1 -n globex--shop --as alice --tenant acme --config tenancy.yaml
  kubectl tenant explain create -f deployment.yaml --as alice --tenant acme --config tenancy.yaml
  kubectl tenant explain list pods -A --as alice --tenant acme
  kubectl tenant explain -f policy-tests/shop.yaml --case "cross-tenant read"
  kubectl tenant explain list pods -n acme--web --as robot --tenant acme -f policy-tests/shop.yaml`,
		Args: cobra.MaximumNArgs(3),
		RunE: func(cmd *cobra.Command, args []string) error { return o.run(cmd, args) },
	}
	f := cmd.Flags()
	f.StringVar(&o.as, "as", "", "user to explain; for a service account, system:serviceaccount:NAMESPACE:NAME")
	f.StringSliceVar(&o.groups, "as-group", nil, "groups of the user (may be repeated)")
	f.StringVar(&o.tenant, "tenant", "", "tenant of the user, as an authentication source would set it")
	addConfig(cmd, &o.config)
	f.StringArrayVarP(&o.files, "filename", "f", nil,
		"file with the object to write, or with a scenario to explain offline, or both (may be repeated)")
	o.requestFlags.add(cmd)
	f.StringVar(&o.of, "case", "", "name of the case to explain, if -f is a scenario")
	cmd.ValidArgsFunction = completeVerbs
	_ = cmd.RegisterFlagCompletionFunc("case", o.completeCases)
	_ = cmd.RegisterFlagCompletionFunc("as", o.flags.CompleteUsers)
	_ = cmd.RegisterFlagCompletionFunc("as-group", o.flags.CompleteGroups)
	_ = cmd.RegisterFlagCompletionFunc("tenant", o.flags.CompleteTenants)
	o.format.AddFlags(cmd)
	return cmd
}

func (o *explainOptions) run(cmd *cobra.Command, args []string) error {
	problems := []error{o.format.Check(), o.readFiles()}
	switch {
	case o.scenario != "" && o.config != "":
		problems = append(problems, errors.New("--config cannot be used with a scenario: the scenario has its own "+
			"configuration"))
	case o.of != "" && o.object != nil:
		problems = append(problems, errors.New("-f with an object cannot be used with --case: the case has its own object"))
	case o.of != "" && o.scenario == "":
		problems = append(problems, errors.New("--case needs a scenario file: set -f"))
	case o.of != "" && len(args) > 0:
		problems = append(problems, errors.New("VERB and TYPE cannot be used with --case: the case has its own request"))
	case o.of != "" && (o.requestFlags.everywhere || o.requestFlags.subresource != ""):
		problems = append(problems, errors.New("-A and --subresource cannot be used with --case: the case has its own "+
			"request"))
	case o.requestFlags.everywhere && client.Changed(cmd.Flags(), "namespace"):
		problems = append(problems, errors.New("-A and -n cannot be used together"))
	case o.requestFlags.everywhere && o.object != nil:
		problems = append(problems, errors.New("-A cannot be used with an object: the object has its own namespace"))
	case o.of == "" && len(args) < 2 && (o.object == nil || len(args) == 0):
		problems = append(problems, errors.New("no request given: set VERB and TYPE, or --case with a scenario file"))
	}
	switch {
	case o.as != "":
		problems = append(problems, client.CheckUser("--as", o.as))
	case cmd.Flags().Changed("as"):
		problems = append(problems, errors.New("--as must not be empty"))
	case o.of == "" && (o.tenant != "" || len(o.groups) > 0):
		problems = append(problems, errors.New("--tenant and --as-group need --as"))
	}
	if o.tenant != "" {
		_, err := client.ParseTenant("--tenant", o.tenant)
		problems = append(problems, err)
	}
	if err := errors.Join(problems...); err != nil {
		return err
	}
	ctx := withoutLog(cmd.Context())
	var e *explain.Explanation
	var err error
	if o.scenario != "" {
		e, err = o.offline(ctx, args)
	} else {
		e, err = o.live(ctx, cmd, args)
	}
	if err != nil {
		return err
	}
	if err := printExplanation(cmd, e, o.format); err != nil {
		return err
	}
	if !e.Allowed() {
		return errFailed
	}
	return nil
}

// live explains the decision of a live cluster.
func (o *explainOptions) live(ctx context.Context, cmd *cobra.Command, args []string) (*explain.Explanation, error) {
	c, err := o.flags.Cluster()
	if err != nil {
		return nil, err
	}
	config, done, err := serverSettings(cmd, c, o.config)
	if err != nil {
		return nil, err
	}
	defer done()
	q := &explain.Query{Config: config}
	err = o.request(ctx, cmd, c, q, args)
	if err == nil {
		q.Stored, err = storedObject(ctx, c, &q.Request)
	}
	if err != nil {
		return nil, c.Explain(err)
	}
	var self *client.Caller
	if o.as == "" {
		i, err := c.WhoAmI(ctx)
		if err != nil {
			return nil, c.Explain(err)
		}
		q.User, q.Said = i.Info(), "your credential; source reported by the server: "+orNone(i.Source)
		self = i
	}
	progress := output.NewProgress(cmd.ErrOrStderr())
	snapshot, err := readSnapshot(ctx, c, privileges.Selection{Grants: true, Scopes: true}, func(n int64) {
		progress.Update("%d objects read", n)
	})
	progress.Done()
	if err != nil {
		return nil, c.Explain(err)
	}
	if len(snapshot.Unread) > 0 && self != nil {
		_, _ = fmt.Fprintf(cmd.ErrOrStderr(), "you may not list %s: showing only the server's own answer\n",
			strings.Join(snapshot.Unread, ", "))
		return explainByServer(ctx, c, q, self)
	}
	if len(snapshot.Unread) > 0 {
		return nil, fmt.Errorf("you may not list %s, which the decision depends on: run the command as a cluster admin",
			strings.Join(snapshot.Unread, ", "))
	}
	q.Snapshot = snapshot
	q.Limited = snapshot.Namespaces[metav1.NamespaceSystem] == nil // a tenant's caller sees only its own namespaces
	if o.as != "" {
		if q.User, err = o.identity(q.Snapshot); err != nil {
			return nil, err
		}
		if err := o.accountExists(ctx, c, q); err != nil {
			return nil, c.Explain(err)
		}
		q.Said = "none: --as names the caller"
	}
	return explain.Explain(ctx, q)
}

func orNone(source string) string {
	if source == "" {
		return "(not reported)"
	}
	return source
}

// identity returns the identity that --as, --as-group and --tenant specify. It includes the groups
// that the server adds to every authenticated user.
func (o *explainOptions) identity(snapshot *simulator.Snapshot) (user.Info, error) {
	id := tenant.ID{}
	for _, group := range o.groups {
		if groupTenant, ok := strings.CutPrefix(group, tenant.GroupPrefix); ok && o.tenant == "" {
			o.tenant = groupTenant
		}
	}
	if o.tenant != "" {
		var err error
		if id, err = client.ParseTenant("--tenant", o.tenant); err != nil {
			return nil, err
		}
	}
	i := privileges.OfUser(o.as, o.groups, id)
	if namespace, isAccount := tenant.ServiceAccountNamespace(o.as); isAccount {
		_, name, _ := strings.Cut(strings.TrimPrefix(o.as, "system:serviceaccount:"), ":")
		if ns := snapshot.Namespaces[namespace]; ns != nil && id.IsZero() {
			id, _ = tenant.Parse(ns.Labels[tenant.Label]) // the boundary reports an invalid label
		}
		i = privileges.OfServiceAccount(namespace, name, id)
	}
	return i.Info(), nil
}

// accountExists returns an error if --as specifies a service account that does not exist. It
// returns nil if the caller may not read the service account.
func (o *explainOptions) accountExists(ctx context.Context, c *client.Cluster, q *explain.Query) error {
	namespace, name, err := serviceaccount.SplitUsername(o.as)
	if err != nil {
		return nil // not a service account
	}
	if !q.Limited && !q.Snapshot.HasNamespace(namespace) {
		return fmt.Errorf("--as: namespace %s: %w", namespace, tenancy.ErrMissing)
	}
	k, err := c.Kube()
	if err != nil {
		return err
	}
	_, err = k.CoreV1().ServiceAccounts(namespace).Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsForbidden(err):
		return nil
	case err != nil:
		return fmt.Errorf("--as: namespace %s: %w", namespace, err)
	}
	return nil
}

func printExplanation(cmd *cobra.Command, e *explain.Explanation, format *output.Format) error {
	out := cmd.OutOrStdout()
	if done, err := format.Value(out, "Explanation", e); done {
		return err
	}
	screen := output.NewScreen(out)
	for _, s := range e.Steps {
		if _, err := fmt.Fprintf(screen, "%-12s %s\n", s.Name, output.Safe(s.Result)); err != nil {
			return err
		}
	}
	colour := output.Green
	reason := ""
	if !e.Allowed() {
		colour = output.Red
	}
	switch {
	case e.Allowed() && len(e.NotChecked) > 0: // the steps show the reason
		reason = ", by the checks that ran; not checked: " + strings.Join(e.NotChecked, ", ")
	case e.Reason != "":
		reason = ": " + output.Safe(e.Reason)
	}
	if _, err := fmt.Fprintf(screen, "%-12s %s%s\n", "decision", screen.Paint(colour, e.Decision), reason); err != nil {
		return err
	}
	for r := e.Remedy; r != nil; r = r.Then {
		if err := printRemedy(screen, r); err != nil {
			return err
		}
		if r.Then != nil && r.Then.Command+r.Then.YAML != "" {
			if _, err := fmt.Fprintln(screen, "\n# This is also required."); err != nil {
				return err
			}
		}
	}
	return nil
}

// commentWidth is the maximum width of the comment lines that explain a remedy, in columns.
const commentWidth = 80

func printRemedy(out io.Writer, r *explain.Remedy) error {
	var b strings.Builder
	b.WriteByte('\n')
	for line := range strings.SplitSeq(r.Text, "\n") {
		text := "#"
		for word := range strings.FieldsSeq(output.Safe(line)) {
			if len(text) > 1 && len(text)+1+len(word) > commentWidth {
				b.WriteString(text + "\n")
				text = "#"
			}
			text += " " + word
		}
		b.WriteString(text + "\n")
	}
	if r.Command != "" {
		b.WriteString(output.Safe(r.Command) + "\n")
	}
	b.WriteString(r.YAML)
	_, err := io.WriteString(out, b.String())
	return err
}
