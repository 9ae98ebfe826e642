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
	flags      *client.Flags
	config, of string
	tenant     string
	format     *output.Format
	as         string
	groups     []string
	files      []string
	// everywhere explains the request over all namespaces.
	everywhere bool
	// scenario and object are what the files are; empty and nil for none.
	scenario string
	object   *unstructured.Unstructured
}

func newExplainCommand(flags *client.Flags) *cobra.Command {
	o := &explainOptions{flags: flags, format: output.NewFormat()}
	cmd := &cobra.Command{
		Use: "explain VERB (RESOURCE[/SUBRESOURCE] [NAME] | PATH | -f OBJECT) [--as U --tenant T] " +
			"[--config FILE | -f SCENARIO]",
		Short: "Say why somebody may do something, or may not",
		Long: `Goes the whole way of a request through the parts, with the code that the server
decides with: source, user, tenant, owner, boundary, grants, policy file, RBAC,
admission, and the decision. If the request is denied, explain prints the
smallest change that would allow it: a command, a grant, a binding, a setting or
a line of the policy file. Each change was tried.

What admission says of a write depends on the object. With -f, explain asks
PodSecurity and every plugin of kubetenant, except for limits of quotas. Without
it, explain says only what holds for every object, and the rest is "undecided".
The server accepts a workload whose Pods PodSecurity refuses: explain says both.
What explain did not check follows the decision.

It explains the decision of a live cluster under the server's configuration
(--config; by default the published one), for the identity of --as, --as-group
and --tenant, or for yourself; or, offline, of a scenario file: for one of its
cases (--case), or for a request of your own. Nobody is impersonated. Who may
not read roles and bindings is told about himself what the server says, and of a
write by a dry run.

Exit status: 0 allowed by everything that was checked, 1 denied or refused by
admission, 2 it could not be told.`,
		Example: `  kubectl tenant explain delete pods web-1 -n globex--shop --as alice --tenant acme --config tenancy.yaml
  kubectl tenant explain create -f deployment.yaml --as alice --tenant acme --config tenancy.yaml
  kubectl tenant explain list pods -A --as alice --tenant acme
  kubectl tenant explain -f policy-tests/shop.yaml --case "cross-tenant read"
  kubectl tenant explain list pods --as robot --tenant acme -f policy-tests/shop.yaml`,
		Args: cobra.MaximumNArgs(3),
		RunE: func(cmd *cobra.Command, args []string) error { return o.run(cmd, args) },
	}
	f := cmd.Flags()
	f.StringVar(&o.as, "as", "", "user to explain; system:serviceaccount:NAMESPACE:NAME for a service account")
	f.StringSliceVar(&o.groups, "as-group", nil, "groups of the user (may be repeated)")
	f.StringVar(&o.tenant, "tenant", "", "tenant of the user, as a source would give it")
	addConfig(cmd, &o.config)
	f.StringArrayVarP(&o.files, "filename", "f", nil,
		"the object that is written, or a scenario, to explain offline; or both (may be repeated)")
	f.BoolVarP(&o.everywhere, "all-namespaces", "A", false, "explain the request over all namespaces")
	f.StringVar(&o.of, "case", "", "with a scenario: the case to explain")
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
		problems = append(problems, errors.New("a scenario has its own configuration: leave --config out"))
	case o.of != "" && o.object != nil:
		problems = append(problems, errors.New("the case says what is written: leave the object out"))
	case o.of != "" && o.scenario == "":
		problems = append(problems, errors.New("--case is one of a scenario: name the file with -f"))
	case o.of != "" && len(args) > 0:
		problems = append(problems, errors.New("the case says what is asked: leave VERB and RESOURCE out"))
	case o.of != "" && o.everywhere:
		problems = append(problems, errors.New("the case says what is asked: leave -A out"))
	case o.everywhere && client.Changed(cmd.Flags(), "namespace"):
		problems = append(problems, errors.New("-A and -n say different things: leave one out"))
	case o.everywhere && o.object != nil:
		problems = append(problems, errors.New("-A: the object says its namespace: leave -A out"))
	case o.everywhere && len(args) == 3:
		problems = append(problems, errors.New("-A: an object is in one namespace: name it with -n"))
	case o.of == "" && len(args) < 2 && (o.object == nil || len(args) == 0):
		problems = append(problems, errors.New("say what to explain: VERB and RESOURCE, or --case of a scenario"))
	}
	switch {
	case o.as != "":
		problems = append(problems, client.CheckUser("--as", o.as))
	case cmd.Flags().Changed("as"):
		problems = append(problems, errors.New("--as is empty: name a user, or leave it out"))
	case o.of == "" && (o.tenant != "" || len(o.groups) > 0):
		problems = append(problems, errors.New("--tenant and --as-group are of the user that --as names: name one"))
	}
	if o.tenant != "" {
		_, err := client.ParseTenant("--tenant", o.tenant)
		problems = append(problems, err)
	}
	if err := errors.Join(problems...); err != nil {
		return err
	}
	ctx := quiet(cmd.Context())
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

// live explains a decision of a cluster.
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
	if err := o.request(ctx, cmd, c, q, args); err != nil {
		return nil, c.Explain(err)
	}
	var self *client.Caller
	if o.as == "" {
		i, err := c.WhoAmI(ctx)
		if err != nil {
			return nil, c.Explain(err)
		}
		q.User, q.Said = i.Info(), "your credential; the server says the source "+orNone(i.Source)
		self = i
	}
	progress := output.NewProgress(cmd.ErrOrStderr())
	snapshot, err := readSnapshot(ctx, c, privileges.Selection{Grants: true, Scopes: true}, func(n int64) {
		progress.Say("%d objects read", n)
	})
	progress.Done()
	if err != nil {
		return nil, c.Explain(err)
	}
	if len(snapshot.Unread) > 0 && self != nil {
		_, _ = fmt.Fprintf(cmd.ErrOrStderr(), "you may not list %s: the server is asked for its answer only\n",
			strings.Join(snapshot.Unread, ", "))
		return answered(ctx, c, q, self)
	}
	if len(snapshot.Unread) > 0 {
		return nil, fmt.Errorf("you may not list %s, on which the decision hangs: ask the cluster's admin",
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
		q.Said = "none: --as says who asks"
	}
	return explain.Explain(ctx, q)
}

func orNone(source string) string {
	if source == "" {
		return "(not told)"
	}
	return source
}

// identity returns who --as, --as-group and --tenant name, with the groups
// that authentication adds.
func (o *explainOptions) identity(snapshot *simulator.Snapshot) (user.Info, error) {
	id := tenant.ID{}
	for _, group := range o.groups {
		if of, is := strings.CutPrefix(group, tenant.GroupPrefix); is && o.tenant == "" {
			o.tenant = of
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
			id, _ = tenant.Parse(ns.Labels[tenant.Label]) // the boundary says what is wrong with it
		}
		i = privileges.OfServiceAccount(namespace, name, id)
	}
	return i.Info(), nil
}

// accountExists refuses a service account of --as that does not exist. It returns nil if the caller
// may not see whether it does.
func (o *explainOptions) accountExists(ctx context.Context, c *client.Cluster, q *explain.Query) error {
	namespace, name, err := serviceaccount.SplitUsername(o.as)
	if err != nil {
		return nil // a user
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
		if _, err := fmt.Fprintf(screen, "%-12s %s\n", s.Name, output.Safe(s.Said)); err != nil {
			return err
		}
	}
	colour, reason := output.Green, ""
	if !e.Allowed() {
		colour = output.Red
	}
	switch {
	case e.Allowed() && len(e.NotChecked) > 0: // the steps show what allows it
		reason = ", by what was checked; not checked: " + strings.Join(e.NotChecked, ", ")
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
			if _, err := fmt.Fprintln(screen, "\n# This is needed too."); err != nil {
				return err
			}
		}
	}
	return nil
}

// commentWidth is the maximum width of the comment lines of a remedy.
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
