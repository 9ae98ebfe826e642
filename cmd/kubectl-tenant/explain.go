package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/kubetenant/kubetenant/cmd/internal/cli/client"
	"github.com/kubetenant/kubetenant/cmd/internal/cli/output"
	"github.com/kubetenant/kubetenant/cmd/internal/cli/privileges"
	"github.com/kubetenant/kubetenant/cmd/internal/simulate/explain"
	"github.com/kubetenant/kubetenant/cmd/internal/simulate/scenario"
	"github.com/kubetenant/kubetenant/cmd/internal/simulate/simulator"
	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

// explainOptions are the flags of explain.
type explainOptions struct {
	flags                *client.Flags
	config, scenario, of string
	tenant, format       string
	as                   string
	groups               []string
}

func newExplainCommand() *cobra.Command {
	o := &explainOptions{flags: client.NewFlags()}
	// Here they say whom to explain, not whom to act as.
	o.flags.Impersonate, o.flags.ImpersonateGroup, o.flags.ImpersonateUID, o.flags.ImpersonateUserExtra = nil, nil, nil, nil
	cmd := &cobra.Command{
		Use:   "explain VERB (RESOURCE[/SUBRESOURCE] [NAME] | PATH) [--as U --tenant T] (--config FILE | -f SCENARIO)",
		Short: "Say why somebody may do something, or may not",
		Long: `Goes the whole way of a request through the parts, with the code that the server
decides with: source, user, tenant, owner, boundary, grants, policy file, RBAC, the
admission plugins that would look at it, and the decision. Where it is denied, the
smallest grant, binding or line of the policy file that would allow it is printed, after
it was tried.

It explains the decision of a live cluster under the server's configuration (--config;
the default one if not given), for the identity of --as, --as-group and --tenant, or for
yourself; or, offline, of a scenario file: for one of its cases (--case), or for a request
of your own. Nobody is impersonated.

Exit status: 0 allowed, 1 denied, 2 it could not be told.`,
		Example: `  kubectl tenant explain delete pods web-1 -n globex--shop --as alice --tenant acme --config tenancy.yaml
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
	f.StringVarP(&o.scenario, "filename", "f", "", "scenario file, to explain offline")
	f.StringVar(&o.of, "case", "", "with -f: the case to explain")
	cmd.MarkFlagsMutuallyExclusive("config", "filename")
	cmd.ValidArgsFunction = completeVerbs
	_ = cmd.RegisterFlagCompletionFunc("case", o.completeCases)
	_ = cmd.RegisterFlagCompletionFunc("as", o.flags.CompleteUsers)
	_ = cmd.RegisterFlagCompletionFunc("as-group", o.flags.CompleteGroups)
	_ = cmd.RegisterFlagCompletionFunc("tenant", o.flags.CompleteTenants)
	o.flags.AddFlags(cmd)
	addFormat(cmd, &o.format, output.JSON, output.YAML)
	return cmd
}

func (o *explainOptions) run(cmd *cobra.Command, args []string) error {
	problems := []error{checkFormat(o.format, output.JSON, output.YAML)}
	switch {
	case o.of != "" && o.scenario == "":
		problems = append(problems, errors.New("--case is one of a scenario: name the file with -f"))
	case o.of != "" && len(args) > 0:
		problems = append(problems, errors.New("the case says what is asked: leave VERB and RESOURCE out"))
	case o.of == "" && len(args) < 2:
		problems = append(problems, errors.New("say what to explain: VERB and RESOURCE, or --case of a scenario"))
	}
	if o.as != "" {
		problems = append(problems, client.CheckUser("--as", o.as))
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
	config, err := settings(o.config)
	if err != nil {
		return nil, err
	}
	c, err := o.flags.Cluster()
	if err != nil {
		return nil, err
	}
	assumed(cmd, o.config)
	asked, err := question(cmd, c, args)
	if err != nil {
		return nil, c.Explain(err)
	}
	q := &explain.Question{Request: asked.AttributesRecord, Config: config}
	if o.as == "" {
		i, err := c.WhoAmI(ctx)
		if err != nil {
			return nil, c.Explain(err)
		}
		q.User, q.Said = i.Info(), "your credential; the server says the source "+orNone(i.Source)
	}
	progress := output.NewProgress(cmd.ErrOrStderr())
	snapshot, err := privileges.Read(ctx, c.Config, privileges.Selection{Grants: true, Scopes: true}, func(n int64) { progress.Say("%d objects read", n) })
	progress.Done()
	if err != nil {
		return nil, c.Explain(err)
	}
	if len(snapshot.Unread) > 0 && o.as == "" {
		_, _ = fmt.Fprintf(cmd.ErrOrStderr(), "you may not list %s: the server is asked for its answer only\n", strings.Join(snapshot.Unread, ", "))
		return answered(ctx, c, q)
	}
	if len(snapshot.Unread) > 0 {
		return nil, fmt.Errorf("you may not list %s, on which the decision hangs: ask the cluster's admin", strings.Join(snapshot.Unread, ", "))
	}
	q.Snapshot = snapshot
	if o.as != "" {
		if q.User, err = o.identity(q.Snapshot); err != nil {
			return nil, err
		}
		q.Said = "none: --as says who asks"
	}
	return explain.Explain(ctx, q)
}

// answered explains a decision about oneself as far as the server tells it.
func answered(ctx context.Context, c *client.Cluster, q *explain.Question) (*explain.Explanation, error) {
	k, err := c.Kube()
	if err != nil {
		return nil, c.Explain(err)
	}
	review := &authorizationv1.SelfSubjectAccessReview{}
	if r := &q.Request; r.ResourceRequest {
		review.Spec.ResourceAttributes = &authorizationv1.ResourceAttributes{Verb: r.Verb, Group: r.APIGroup, Resource: r.Resource, Subresource: r.Subresource, Namespace: r.Namespace, Name: r.Name}
	} else {
		review.Spec.NonResourceAttributes = &authorizationv1.NonResourceAttributes{Verb: r.Verb, Path: r.Path}
	}
	review, err = k.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, review, metav1.CreateOptions{})
	if err != nil {
		return nil, c.Explain(err)
	}
	e := &explain.Explanation{Decision: "deny", Reason: review.Status.Reason, Steps: []explain.Step{{Name: "source", Said: q.Said},
		{Name: "user", Said: q.User.GetName() + "; groups " + strings.Join(q.User.GetGroups(), ", ")}, {Name: "request", Said: explain.RequestText(&q.Request)}}}
	if review.Status.Allowed {
		e.Decision = "allow"
	} else if e.Reason == "" {
		e.Reason = "nothing allows it"
	}
	return e, nil
}

func orNone(source string) string {
	if source == "" {
		return "(not told)"
	}
	return source
}

// identity returns who --as, --as-group and --tenant name, with the groups that authentication adds.
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

// offline explains a decision of a scenario.
func (o *explainOptions) offline(ctx context.Context, args []string) (*explain.Explanation, error) {
	all, err := v1alpha1.LoadScenarios(o.scenario)
	if err != nil {
		return nil, err
	}
	s, c, err := o.pick(all)
	if err != nil {
		return nil, err
	}
	w, err := scenario.NewWorld(s, nil)
	if err != nil {
		return nil, err
	}
	defer w.Close()
	q := &explain.Question{Said: "none: --as says who asks"}
	if q.Config, err = settings(w.ConfigFile); err != nil {
		return nil, err
	}
	if q.Snapshot, q.Delegate, err = scenario.Snapshot(s); err != nil {
		return nil, err
	}
	if c == nil {
		if o.as == "" {
			return nil, errors.New("say who asks, with --as and --tenant, or name a case with --case")
		}
		if q.User, err = o.identity(q.Snapshot); err != nil {
			return nil, err
		}
		q.Request = o.offlineRequest(args)
		return explain.Explain(ctx, q)
	}
	if c.Request == nil {
		return nil, fmt.Errorf("case %q asks for no decision: only those with a request can be explained", c.Name)
	}
	session, err := scenario.Library{}.Open(ctx, w)
	if session != nil {
		defer session.Close()
	}
	if err != nil {
		return nil, err
	}
	identity, err := session.Authenticate(ctx, &c.Credential)
	if err != nil {
		return nil, err
	}
	if identity.User == nil {
		return &explain.Explanation{Decision: "deny", Reason: "the credential is not authenticated", Steps: []explain.Step{{Name: "source", Said: identity.String()}}}, nil
	}
	u := &user.DefaultInfo{Name: identity.User.Name, UID: identity.User.UID, Groups: identity.User.Groups, Extra: identity.User.Extra}
	q.User, q.Said = u, "the case's credential; source "+orNone(strings.Join(u.Extra[tenant.SourceKey], ", "))
	q.Request = scenario.Attributes(nil, c.Request)
	return explain.Explain(ctx, q)
}

func (o *explainOptions) completeCases(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	all, err := v1alpha1.LoadScenarios(o.scenario)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var names []string
	for _, s := range all {
		for i := range s.Cases {
			names = append(names, s.Cases[i].Name)
		}
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

// pick returns the scenario and the case that are meant.
func (o *explainOptions) pick(all []*v1alpha1.Scenario) (*v1alpha1.Scenario, *v1alpha1.Case, error) {
	if o.of == "" {
		if len(all) != 1 {
			return nil, nil, fmt.Errorf("%s holds %d scenarios: name a case with --case", o.scenario, len(all))
		}
		return all[0], nil, nil
	}
	for _, s := range all {
		if i := slices.IndexFunc(s.Cases, func(c v1alpha1.Case) bool { return c.Name == o.of }); i >= 0 {
			return s, &s.Cases[i], nil
		}
	}
	return nil, nil, fmt.Errorf("%s has no case %q", o.scenario, o.of)
}

// offlineRequest returns the request of the arguments, whose resource is in its full plural form.
func (o *explainOptions) offlineRequest(args []string) authorizer.AttributesRecord {
	r := authorizer.AttributesRecord{Verb: args[0], APIVersion: "*"}
	if strings.HasPrefix(args[1], "/") {
		r.Path = args[1]
		return r
	}
	r.ResourceRequest = true
	name, subresource, _ := strings.Cut(args[1], "/")
	gr := schema.ParseGroupResource(name)
	r.APIGroup, r.Resource, r.Subresource = gr.Group, gr.Resource, subresource
	r.Namespace = *o.flags.Namespace
	if len(args) == 3 {
		r.Name = args[2]
	}
	return r
}

func printExplanation(cmd *cobra.Command, e *explain.Explanation, format string) error {
	out := cmd.OutOrStdout()
	if done, err := output.Value(out, format, e); done {
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
	if e.Reason != "" {
		reason = ": " + output.Safe(e.Reason)
	}
	if _, err := fmt.Fprintf(screen, "%-12s %s%s\n", "decision", screen.Paint(colour, e.Decision), reason); err != nil {
		return err
	}
	if e.Remedy == nil {
		return nil
	}
	if e.Remedy.YAML == "" {
		_, err := fmt.Fprintf(screen, "\n# %s\n", e.Remedy.Text)
		return err
	}
	_, err := fmt.Fprintf(screen, "\n# this would allow it: %s\n%s", e.Remedy.Text, e.Remedy.YAML)
	return err
}
