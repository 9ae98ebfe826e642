// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"

	"github.com/kubetenant/kubetenant/internal/cli/client"
	"github.com/kubetenant/kubetenant/internal/cli/installation"
	"github.com/kubetenant/kubetenant/internal/cli/output"
	"github.com/kubetenant/kubetenant/internal/cli/tenancy"
	"github.com/kubetenant/kubetenant/tenant"
)

// Default roles.
const (
	defaultRole  = "edit"
	readonlyRole = "view"
)

// grantFlags are the flags of grant-privileges and revoke-privileges.
type grantFlags struct {
	who             identityFlags
	flags           *client.Flags
	namespace, role string
	clusterWide     bool
	readonly        bool
	createNamespace bool
	wellKnown       bool // the role is a default role, which every cluster has
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
	cmd.Flags().StringVar(&f.namespace, "for-namespace", "", "namespace of the binding (default: all namespaces of the "+
		"tenant)")
	cmd.Flags().BoolVar(&f.clusterWide, "cluster-wide", false, "use a ClusterRoleBinding for identities of the system "+
		"tenant, which applies to cluster-scoped objects and to the system tenant's namespaces")
	cmd.MarkFlagsMutuallyExclusive("cluster-wide", "for-namespace")
	cmd.MarkFlagsMutuallyExclusive("cluster-wide", "tenant")
	_ = cmd.RegisterFlagCompletionFunc("tenant", f.flags.CompleteTenants)
	_ = cmd.RegisterFlagCompletionFunc("for-namespace", f.flags.CompleteNamespaces)
	f.flags.AddClusters(cmd)
	addDryRun(cmd, &f.mode)
}

// check validates the flags. It returns the tenant in --tenant, or the zero ID if the flag is not
// set.
func (f *grantFlags) check(cmd *cobra.Command) (tenant.ID, error) {
	problems := []error{f.who.check(cmd), checkDryRun(f.mode)}
	for _, name := range []string{"role", "tenant"} {
		if flag := cmd.Flags().Lookup(name); flag.Changed && flag.Value.String() == "" {
			problems = append(problems, fmt.Errorf("--%s must not be empty", name))
		}
	}
	if cmd.Flags().Changed("expires") {
		var err error
		f.until, err = endOf(f.expires, time.Now())
		problems = append(problems, err)
	}
	if f.role != "" && strings.ContainsAny(f.role, "/%") {
		problems = append(problems, fmt.Errorf("--role %q is not a valid role name", f.role))
	}
	var id tenant.ID
	if f.tenant != "" {
		var err error
		id, err = client.ParseTenant("--tenant", f.tenant)
		problems = append(problems, err)
	}
	if cmd.Flags().Changed("for-namespace") {
		problems = append(problems, client.CheckNamespace("--for-namespace", f.namespace), f.checkNamespaced(cmd))
	} else {
		problems = append(problems, f.checkEverywhere(cmd, id))
	}
	return id, errors.Join(problems...)
}

// checkNamespaced returns an error if a flag is set that cannot be used with --for-namespace.
func (f *grantFlags) checkNamespaced(cmd *cobra.Command) error {
	switch {
	case f.tenant == "" || f.createNamespace:
		return nil
	case cmd.Flags().Lookup("create-namespace") == nil:
		return errors.New("--tenant and --for-namespace cannot be used together")
	}
	return errors.New("--tenant and --for-namespace need --create-namespace: --tenant sets the tenant of the new " +
		"namespace")
}

// checkEverywhere validates the flags if --for-namespace is not set.
func (f *grantFlags) checkEverywhere(cmd *cobra.Command, id tenant.ID) error {
	var problems []error
	for _, name := range []string{"expires", "create-namespace"} {
		if client.Changed(cmd.Flags(), name) {
			problems = append(problems, fmt.Errorf("--%s needs --for-namespace", name))
		}
	}
	if f.who.serviceAccount != "" && !strings.Contains(f.who.serviceAccount, "/") {
		problems = append(problems, fmt.Errorf("--serviceaccount %s needs --for-namespace: without it, use NAMESPACE/NAME",
			f.who.serviceAccount))
	}
	switch {
	case f.clusterWide:
		problems = append(problems, tenancy.CheckClusterWide(f.grant().Subject))
	case id.IsSystem():
		problems = append(problems, errors.New("--tenant: the system tenant has no members: use --cluster-wide or "+
			"--for-namespace"))
	case f.mode == dryRunClient && id.IsZero():
		problems = append(problems, errors.New("--dry-run=client sends no request, so your tenant is unknown: set --tenant, "+
			"--for-namespace or --cluster-wide"))
	}
	return errors.Join(problems...)
}

// endOf parses an expiration, which is a time or a duration from now. The result is rounded down to
// seconds.
func endOf(text string, now time.Time) (time.Time, error) {
	at, err := time.Parse(time.RFC3339, text)
	if after, notLong := client.ParseDuration(text); notLong == nil {
		at = now.Add(after)
		err = nil
	}
	at = at.UTC().Truncate(time.Second)
	switch {
	case err != nil || at.Year() > 9999: // RFC 3339 cannot represent the year
		return at, fmt.Errorf("--expires %q: must be a duration, such as 8h or 30d, or a time, such as 2030-01-31T18:00:00Z",
			text)
	case !at.After(now):
		return at, fmt.Errorf("--expires %s is in the past", text)
	}
	return at, nil
}

// checkEnds returns an error if the server does not enforce the expiration of bindings.
func (f *grantFlags) checkEnds(cmd *cobra.Command, c *client.Cluster) error {
	if f.until.IsZero() {
		return nil
	}
	found, err := c.Installation(cmd.Context())
	if err == nil {
		err = found.CheckLimits(cmd.Context())
	}
	switch {
	case errors.Is(err, installation.ErrNoLimits):
		return fmt.Errorf("%s: --expires has no effect on this server: %w", c.Name, err)
	case err != nil:
		_, _ = fmt.Fprintf(cmd.ErrOrStderr(),
			"warning: %s: you may not read the server's configuration: --expires has no effect if the server uses its own "+
				"RBAC evaluator\n",
			c.Name)
	}
	return nil
}

// grant returns the grant that the flags specify.
func (f *grantFlags) grant() *tenancy.Grant {
	g := &tenancy.Grant{
		Namespace:   f.namespace,
		Role:        f.role,
		ClusterRole: f.wellKnown,
		Expires:     f.until,
		DryRun:      dryRunOption(f.mode),
	}
	switch {
	case tenant.IsServiceAccountName(f.who.user): // an identity has only one name in bindings
		namespace, name, _ := serviceaccount.SplitUsername(f.who.user) // validated before
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

func newGrantPrivilegesCommand(flags *client.Flags) *cobra.Command {
	f := &grantFlags{flags: flags, format: output.NewObjectFormat()}
	cmd := &cobra.Command{
		Use: "grant-privileges (--user U | --group G | --serviceaccount SA) [--for-namespace NS | --tenant T | " +
			"--cluster-wide] [--readonly | --role R]",
		Short: "Grant an identity a role",
		Long: `Grants a role to an identity: edit by default, view with --readonly, or the role
of --role. You can run the command again without harm.

By default, the role applies in all namespaces of your tenant, existing and new.
The command adds the identity to the tenant's TenantMembers. The Tenant must
list the ClusterRole in spec.memberRoles. A caller of the system tenant names
the tenant with --tenant.

With --for-namespace, the role applies in one namespace. For --role, a Role of
the namespace takes precedence over a ClusterRole. The command creates one
RoleBinding for each identity and role, with labels that revoke-privileges uses
to find it. You can only grant rights that you have yourself: otherwise the
server lists the missing rights. If --serviceaccount has no namespace, it is a
service account in NS. User names are not unique across tenants: the binding
takes effect for callers of the namespace's tenant and of the system tenant.

With --cluster-wide, a caller of the system tenant creates a ClusterRoleBinding
for an identity of the system tenant. It applies to cluster-scoped objects and
to the namespaces of the system tenant (kubetenant.dev/scope: system), and never
to tenants' callers of the same name. A server without kubetenant ignores this
limit: run kubectl tenant uninstall before you change the servers.

With --expires, a binding in a namespace is valid until that time
(kubetenant.dev/expires), and remains visible in list-privileges afterwards.
Without --expires, the binding does not expire. If it has expired before, it
becomes valid again.

With several clusters, the command reports the result for each. After a failure,
run it again.`,
		Example: `  kubectl tenant grant-privileges --user bob --readonly
  kubectl tenant grant-privileges --group dev --tenant acme
  kubectl tenant grant-privileges --user carol --cluster-wide --readonly
  kubectl tenant grant-privileges --user bob --for-namespace acme--web --readonly --expires 8h
  kubectl tenant grant-privileges --serviceaccount acme--ci/robot --for-namespace acme--web --role deployer
  kubectl tenant grant-privileges --group dev --for-namespace acme--web --create-namespace --context prod,staging`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if f.role == "" && !cmd.Flags().Changed("role") {
				f.role = defaultRole
				f.wellKnown = true
				if f.readonly {
					f.role = readonlyRole
				}
			}
			owner, err := f.check(cmd)
			if err := errors.Join(err, f.format.Check()); err != nil {
				return err
			}
			if f.mode == dryRunClient { // sends no request
				f.flags.Require(nil)
			}
			clusters, err := f.flags.Clusters()
			if err != nil {
				return err
			}
			return eachCluster(cmd, clusters, func(c *client.Cluster) error {
				return f.apply(cmd, c, owner, f.changes(cmd, c, len(clusters)))
			})
		},
	}
	cmd.Flags().StringVar(&f.tenant, "tenant", "", "tenant in whose namespaces the role applies, or with "+
		"--create-namespace the tenant of the new namespace (default: your own tenant)")
	f.add(cmd)
	f.format.AddFlags(cmd)
	cmd.Flags().BoolVar(&f.readonly, "readonly", false, "grant read access only: the role view")
	cmd.Flags().StringVar(&f.expires, "expires", "",
		"how long the binding is valid, such as 8h, or its end time, such as 2030-01-31T18:00:00Z (default: no expiry)")
	cmd.Flags().StringVar(&f.role, "role", "", "role to bind")
	_ = cmd.RegisterFlagCompletionFunc("role", f.flags.CompleteRoles)
	cmd.MarkFlagsMutuallyExclusive("readonly", "role")
	cmd.Flags().BoolVar(&f.createNamespace, "create-namespace", false, "create the namespace if it does not exist")
	return cmd
}

func newRevokePrivilegesCommand(flags *client.Flags) *cobra.Command {
	f := &grantFlags{flags: flags}
	cmd := &cobra.Command{
		Use: "revoke-privileges (--user U | --group G | --serviceaccount SA) [--for-namespace NS | --tenant T | " +
			"--cluster-wide] [--readonly | --role R]",
		Short: "Revoke what grant-privileges granted",
		Long: `Revokes what grant-privileges granted to an identity with the same flags: its
entries in the TenantMembers of your tenant or of --tenant, its bindings in a
namespace, or its ClusterRoleBindings. With --readonly or --role, the command
revokes only that role. Bindings that were created in another way remain, and
are listed. You can run the command again without harm.`,
		Example: `  kubectl tenant revoke-privileges --user bob
  kubectl tenant revoke-privileges --user bob --for-namespace acme--web`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if f.readonly {
				f.role = readonlyRole
			}
			owner, err := f.check(cmd)
			if err != nil {
				return err
			}
			if f.mode == dryRunClient { // sends no request
				f.flags.Require(nil)
			}
			clusters, err := f.flags.Clusters()
			if err != nil {
				return err
			}
			return eachCluster(cmd, clusters, func(c *client.Cluster) error {
				return f.revoke(cmd, c, owner, f.changes(cmd, c, len(clusters)))
			})
		},
	}
	cmd.Flags().StringVar(&f.tenant, "tenant", "", "tenant whose TenantMembers to change (default: your own tenant)")
	f.add(cmd)
	cmd.Flags().BoolVar(&f.readonly, "readonly", false, "revoke only the role view")
	cmd.Flags().StringVar(&f.role, "role", "", "revoke only this role")
	cmd.MarkFlagsMutuallyExclusive("readonly", "role")
	return cmd
}
