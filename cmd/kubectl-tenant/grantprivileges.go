package main

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"

	configv1alpha1 "github.com/kubetenant/kubetenant/config/v1alpha1"
	"github.com/kubetenant/kubetenant/internal/cli/client"
	"github.com/kubetenant/kubetenant/internal/cli/output"
	"github.com/kubetenant/kubetenant/internal/cli/tenancy"
	"github.com/kubetenant/kubetenant/tenant"
)

// roles that are given where none is named.
const (
	defaultRole  = "edit"
	readonlyRole = "view"
)

// grantFlags are those of grant-privileges and revoke-privileges.
type grantFlags struct {
	who             identityFlags
	flags           *client.Flags
	namespace, role string
	readonly        bool
	createNamespace bool
	wellKnown       bool // the role is one of every cluster's
	tenant          string
	mode            string
	format          *output.Format
	expires         string
	until           time.Time
}

func (f *grantFlags) add(cmd *cobra.Command) {
	f.who.add(cmd, f.flags)
	cmd.Flags().Lookup("group").Usage = "group"
	cmd.MarkFlagsMutuallyExclusive("user", "group", "serviceaccount")
	cmd.MarkFlagsOneRequired("user", "group", "serviceaccount")
	cmd.Flags().StringVar(&f.namespace, "for-namespace", "", "namespace of the binding (required)")
	_ = cmd.MarkFlagRequired("for-namespace")
	_ = cmd.RegisterFlagCompletionFunc("for-namespace", f.flags.CompleteNamespaces)
	f.flags.AddClusters(cmd)
	addDryRun(cmd, &f.mode)
}

func (f *grantFlags) check(cmd *cobra.Command) (tenant.ID, error) {
	problems := []error{f.who.check(cmd), client.CheckNamespace("--for-namespace", f.namespace), checkDryRun(f.mode)}
	if cmd.Flags().Changed("expires") {
		var err error
		f.until, err = endOf(f.expires, time.Now())
		problems = append(problems, err)
	}
	if f.role == "" && cmd.Flags().Changed("role") {
		problems = append(problems, errors.New("--role must not be empty"))
	}
	if f.role != "" && strings.ContainsAny(f.role, "/%") {
		problems = append(problems, fmt.Errorf("--role %q is not a valid role name", f.role))
	}
	var id tenant.ID
	if f.tenant != "" {
		var err error
		id, err = client.ParseTenant("--tenant", f.tenant)
		problems = append(problems, err)
		if !f.createNamespace {
			problems = append(problems, errors.New("--tenant needs --create-namespace: it sets the tenant of the new namespace"))
		}
	}
	return id, errors.Join(problems...)
}

// endOf reads when something ends: a time, or how long it is until then. It is whole seconds.
func endOf(text string, now time.Time) (time.Time, error) {
	at, err := time.Parse(time.RFC3339, text)
	if after, notLong := time.ParseDuration(text); notLong == nil {
		at, err = now.Add(after), nil
	}
	at = at.UTC().Truncate(time.Second)
	switch {
	case err != nil || at.Year() > 9999: // which RFC 3339 cannot write
		return at, fmt.Errorf("--expires %q: must be a duration, such as 8h, or a time, such as 2030-01-31T18:00:00Z", text)
	case !at.After(now):
		return at, fmt.Errorf("--expires %s is in the past", text)
	}
	return at, nil
}

// checkEnds refuses an end that the server does not know of.
func (f *grantFlags) checkEnds(cmd *cobra.Command, c *client.Cluster) error {
	if f.until.IsZero() {
		return nil
	}
	p, err := published(cmd.Context(), c)
	if err != nil {
		_, _ = fmt.Fprintf(cmd.ErrOrStderr(),
			"warning: %s: you may not read the server's configuration: --expires has no effect if the server uses its own "+
				"RBAC evaluator\n",
			c.Name)
		return nil
	}
	if rbac := p.Settings.Authorization.RBAC; rbac.Evaluator != configv1alpha1.EvaluatorIndexed {
		return fmt.Errorf("%s: --expires has no effect on this server, because it uses its own RBAC evaluator "+
			"(authorization.rbac.evaluator: %s)", c.Name, rbac.Evaluator)
	}
	return nil
}

// grant returns what is asked for.
func (f *grantFlags) grant() *tenancy.Grant {
	g := &tenancy.Grant{
		Namespace:   f.namespace,
		Role:        f.role,
		ClusterRole: f.wellKnown,
		Expires:     f.until,
		DryRun:      dryRunOption(f.mode),
	}
	switch {
	case tenant.IsServiceAccountName(f.who.user): // one identity has one name in bindings
		namespace, name, _ := serviceaccount.SplitUsername(f.who.user) // checked
		g.Subject = rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: name}
	case f.who.user != "":
		g.Subject = rbacv1.Subject{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: f.who.user}
	case len(f.who.groups) > 0:
		g.Subject = rbacv1.Subject{Kind: rbacv1.GroupKind, APIGroup: rbacv1.GroupName, Name: f.who.groups[0]}
	default:
		g.Subject.Kind = rbacv1.ServiceAccountKind
		g.Subject.Namespace, g.Subject.Name = f.namespace, f.who.serviceAccount
		if namespace, name, found := strings.Cut(f.who.serviceAccount, "/"); found {
			g.Subject.Namespace, g.Subject.Name = namespace, name
		}
	}
	return g
}

// named returns the subject as messages name it.
func named(s rbacv1.Subject) string {
	if s.Kind == rbacv1.ServiceAccountKind {
		return "service account " + s.Namespace + "/" + s.Name
	}
	return strings.ToLower(s.Kind) + " " + s.Name
}

func newGrantPrivilegesCommand(flags *client.Flags) *cobra.Command {
	f := &grantFlags{flags: flags, format: output.NewObjectFormat()}
	cmd := &cobra.Command{
		Use:   "grant-privileges (--user U | --group G | --serviceaccount SA) --for-namespace NS [--readonly | --role R]",
		Short: "Grant an identity a role in a namespace",
		Long: `Binds a role to an identity in a namespace: edit by default, view with
--readonly, or the role of --role. For --role, a Role of the namespace takes
precedence over a ClusterRole. The command creates one RoleBinding for each
identity and role, with labels that revoke-privileges uses to find it. You can
run the command again without harm. You can only grant rights that you have
yourself: otherwise the server lists the missing rights.

User names are not unique across tenants. The binding only takes effect for
callers of the namespace's tenant and of the system tenant. If --serviceaccount
has no namespace, it is a service account in NS.

With --expires, the binding is valid until that time (kubetenant.dev/expires),
and remains visible in list-privileges afterwards. Without --expires, the
binding does not expire. If it has expired before, it becomes valid again.

With several clusters, the command reports the result for each. After a failure,
run it again.`,
		Example: `  kubectl tenant grant-privileges --user bob --for-namespace acme--web --readonly --expires 8h
  kubectl tenant grant-privileges --serviceaccount acme--ci/robot --for-namespace acme--web --role deployer
  kubectl tenant grant-privileges --group dev --for-namespace acme--web --create-namespace --context prod,staging`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if f.role == "" && !cmd.Flags().Changed("role") {
				f.role, f.wellKnown = defaultRole, true
				if f.readonly {
					f.role = readonlyRole
				}
			}
			owner, err := f.check(cmd)
			if err := errors.Join(err, f.format.Check()); err != nil {
				return err
			}
			if f.mode == dryRunClient { // which asks no cluster
				f.flags.Require(nil)
			}
			clusters, err := f.flags.Clusters()
			if err != nil {
				return err
			}
			return eachCluster(cmd, clusters, func(c *client.Cluster) error { return f.apply(cmd, c, owner) })
		},
	}
	f.add(cmd)
	f.format.AddFlags(cmd)
	cmd.Flags().BoolVar(&f.readonly, "readonly", false, "grant read access only: the role view")
	cmd.Flags().StringVar(&f.expires, "expires", "",
		"how long the binding is valid, such as 8h, or its end time, such as 2030-01-31T18:00:00Z (default: no expiry)")
	cmd.Flags().StringVar(&f.role, "role", "", "role to bind")
	_ = cmd.RegisterFlagCompletionFunc("role", f.flags.CompleteRoles)
	cmd.MarkFlagsMutuallyExclusive("readonly", "role")
	cmd.Flags().BoolVar(&f.createNamespace, "create-namespace", false, "create the namespace if it does not exist")
	cmd.Flags().StringVar(&f.tenant, "tenant", "", "with --create-namespace: tenant of the new namespace (default: your "+
		"own tenant)")
	_ = cmd.RegisterFlagCompletionFunc("tenant", f.flags.CompleteTenants)
	return cmd
}

func (f *grantFlags) apply(cmd *cobra.Command, c *client.Cluster, owner tenant.ID) error {
	ctx, out := cmd.Context(), cmd.OutOrStdout()
	g := f.grant()
	if f.mode != dryRunClient {
		if err := f.checkEnds(cmd, c); err != nil {
			return err
		}
	}
	if f.mode == dryRunClient {
		b := g.Binding(rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: g.Role})
		if done, err := f.format.Objects(out, b); done {
			return err
		}
		_, err := fmt.Fprintf(out, "%s: %s would get ClusterRole %s in namespace %s (RoleBinding %s)%s%s\n",
			c.Name, named(g.Subject), g.Role, g.Namespace, b.Name, f.end(), f.note())
		return err
	}
	k, err := c.Kube()
	if err != nil {
		return err
	}
	if f.createNamespace {
		made, err := tenancy.CreateNamespace(ctx, k, g.Namespace, owner, g.DryRun)
		if err != nil {
			return err
		}
		if made {
			if f.format.IsForPeople() {
				_, _ = fmt.Fprintf(out, "%s: namespace %s created%s\n", c.Name, g.Namespace, f.note())
			}
			if f.mode != "" {
				return nil // in which nothing can be tried
			}
		}
	}
	b, made, err := g.Apply(ctx, k)
	if err != nil {
		return err
	}
	if done, err := f.format.Objects(out, b); done {
		return err
	}
	verb := "already has"
	if made {
		verb = "now has"
	}
	_, err = fmt.Fprintf(out, "%s: %s %s %s %s in namespace %s (RoleBinding %s)%s%s\n",
		c.Name, named(g.Subject), verb, b.RoleRef.Kind, b.RoleRef.Name, g.Namespace, b.Name, f.end(), f.note())
	return err
}

func (f *grantFlags) end() string {
	if f.until.IsZero() {
		return ""
	}
	return " until " + f.until.Format(time.RFC3339)
}

func (f *grantFlags) note() string {
	if f.mode != "" {
		return " (dry run)"
	}
	return ""
}

func newRevokePrivilegesCommand(flags *client.Flags) *cobra.Command {
	f := &grantFlags{flags: flags}
	cmd := &cobra.Command{
		Use:   "revoke-privileges (--user U | --group G | --serviceaccount SA) --for-namespace NS [--readonly | --role R]",
		Short: "Revoke what grant-privileges granted",
		Long: `Revokes the bindings that grant-privileges created for an identity in a
namespace. With --readonly or --role, it revokes only the binding of that role.
Bindings that were created in another way remain, and are listed. You can run
the command again without harm.`,
		Example: `  kubectl tenant revoke-privileges --user bob --for-namespace acme--web`,
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if f.readonly {
				f.role = readonlyRole
			}
			if _, err := f.check(cmd); err != nil {
				return err
			}
			if f.mode == dryRunClient { // which asks no cluster
				f.flags.Require(nil)
			}
			clusters, err := f.flags.Clusters()
			if err != nil {
				return err
			}
			return eachCluster(cmd, clusters, func(c *client.Cluster) error { return f.revoke(cmd, c) })
		},
	}
	f.add(cmd)
	cmd.Flags().BoolVar(&f.readonly, "readonly", false, "revoke only the role view")
	cmd.Flags().StringVar(&f.role, "role", "", "revoke only this role")
	cmd.MarkFlagsMutuallyExclusive("readonly", "role")
	return cmd
}

func (f *grantFlags) revoke(cmd *cobra.Command, c *client.Cluster) error {
	g := f.grant()
	k, err := c.Kube()
	if err != nil {
		return err
	}
	if f.mode == dryRunClient {
		_, err := fmt.Fprintf(cmd.OutOrStdout(), "%s: would revoke the privileges of %s in namespace %s (dry run)\n",
			c.Name, named(g.Subject), g.Namespace)
		return err
	}
	removed, left, err := g.Revoke(cmd.Context(), k)
	for _, name := range removed {
		_, _ = fmt.Fprintf(cmd.OutOrStdout(), "%s: RoleBinding %s in namespace %s revoked%s\n",
			c.Name, name, g.Namespace, f.note())
	}
	if err != nil {
		return err
	}
	if len(removed) == 0 {
		_, _ = fmt.Fprintf(cmd.OutOrStdout(), "%s: %s has no bindings from grant-privileges in namespace %s\n",
			c.Name, named(g.Subject), g.Namespace)
	}
	for _, name := range left {
		_, _ = fmt.Fprintf(cmd.ErrOrStderr(), "%s: RoleBinding %s/%s, which was not created by grant-privileges, still "+
			"applies\n",
			c.Name, g.Namespace, name)
	}
	if len(left) > 0 {
		return errFailed
	}
	return nil
}
