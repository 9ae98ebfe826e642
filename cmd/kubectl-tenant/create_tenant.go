// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"

	configv1alpha1 "github.com/kubetenant/kubetenant/config/v1alpha1"
	"github.com/kubetenant/kubetenant/internal/cli/client"
	"github.com/kubetenant/kubetenant/internal/cli/output"
	"github.com/kubetenant/kubetenant/internal/cli/tenancy"
	"github.com/kubetenant/kubetenant/tenant"
)

func newCreateTenantCommand(flags *client.Flags) *cobra.Command {
	t := &tenancy.New{}
	mode := ""
	format := output.NewObjectFormat()
	cmd := &cobra.Command{
		Use:   "create-tenant TENANT (--admin USER... | --members-admin) [--namespaces NS,...]",
		Short: "Create a tenant with its namespaces and admins",
		Long: `Creates the Tenant object of a tenant, its namespaces and its admins. Without
--namespaces, a new tenant gets the namespace TENANT--default. If the tenant has
a Tenant or a namespace, the command adds only what you name. It waits until the
admins have their role.

Admins have the role admin in each namespace of the tenant, existing and new. If
the server uses kubetenant's RBAC evaluator, they can also create and delete
namespaces of the tenant, and write its TenantMembers. These rights follow from
the Tenant object and need no ClusterRoleBinding.

With --members-admin, every caller of the tenant has the role admin in each
namespace of the tenant. This includes its service accounts.

With the webhook service and the gateway, callers need a ClusterRoleBinding to
list the tenant's namespaces. It binds kubetenant:tenant-member to the group
tenant:TENANT. In these deployment modes the command creates it by default. To
skip it, set --bind-members=false. To include it in a client dry run, set
--bind-members.

With -o, the command prints the objects. Add --dry-run=client to write them to a
file for version control.`,
		Example: `  kubectl tenant create-tenant acme --admin alice --namespaces acme--web,acme--db
  kubectl tenant create-tenant acme --members-admin --dry-run=client -o yaml`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := errors.Join(checkNewTenant(t, args[0]), checkDryRun(mode), format.Check()); err != nil {
				return err
			}
			if err := createTenant(cmd, flags, t, mode, writing(cmd, mode, format)); err != nil {
				return err
			}
			return printObjects(cmd, format, t.Objects()...)
		},
	}
	cmd.Flags().StringSliceVar(&t.Admins, "admin", nil, "users to make admins of the tenant (may be repeated)")
	cmd.Flags().BoolVar(&t.MembersAdmin, "members-admin", false,
		"make every caller of the tenant an admin of all its namespaces")
	cmd.Flags().BoolVar(&t.BindMembers, bindMembers, false,
		"bind kubetenant:tenant-member to the tenant's callers in the whole cluster (default: only if the server does not "+
			"derive that role)")
	cmd.Flags().StringVar(&t.Replaces, "replaces", "",
		"UID of the deleted tenant that had this name before (see kubectl tenant retired)")
	cmd.Flags().BoolVar(&t.NetworkPolicy, "network-policy", false,
		"let only pods of the tenant's own namespaces connect to pods in its namespaces; needs a network that enforces "+
			"NetworkPolicies")
	cmd.Flags().StringSliceVar(&t.Namespaces, "namespaces", nil, "namespaces to create for the tenant")
	cmd.MarkFlagsOneRequired("admin", "members-admin")
	cmd.ValidArgsFunction = flags.CompleteTenants
	_ = cmd.RegisterFlagCompletionFunc("admin", flags.CompleteUsers)
	addDryRun(cmd, &mode)
	format.AddFlags(cmd)
	return cmd
}

const bindMembers = "bind-members"

// createTenant creates a tenant, and waits until the role of its admins is bound.
func createTenant(
	cmd *cobra.Command, flags *client.Flags, t *tenancy.New, mode string, w tenancy.Writing,
) error {
	if mode == dryRunClient { // sends no request
		if len(t.Namespaces) == 0 {
			w.Printf("--dry-run=client sends no request, so it cannot check whether the tenant exists: assuming a new tenant")
			if err := setDefaultNamespace(t); err != nil {
				return err
			}
		}
		for _, o := range t.Objects() {
			accessor, err := meta.Accessor(o)
			if err != nil {
				return err
			}
			w.Changes.Print(o.GetObjectKind().GroupVersionKind().GroupKind(), accessor.GetName(), output.Created)
		}
		return nil
	}
	c, k, d, err := flags.Clients()
	if err != nil {
		return err
	}
	if len(t.Namespaces) == 0 {
		exists, err := tenancy.HasAny(cmd.Context(), k, d, t.ID)
		if err != nil {
			return c.Explain(err)
		}
		if !exists {
			if err := setDefaultNamespace(t); err != nil {
				return err
			}
		}
	}
	if !cmd.Flags().Changed(bindMembers) {
		derives, err := derivesRights(cmd.Context(), c)
		if err != nil {
			return err
		}
		t.BindMembers = !derives
	}
	if t.BindMembers {
		t.Shared = sharedResources(cmd.Context(), c)
	}
	if err := tenancy.Create(cmd.Context(), k, d, t, w); err != nil {
		return c.Explain(err)
	}
	if mode == "" {
		return c.Explain(tenancy.AwaitPrepared(cmd.Context(), k, d, t.ID, t.Namespaces))
	}
	return nil
}

// derivesRights reports whether a server derives the rights of a tenant's callers from its Tenant
// object.
func derivesRights(ctx context.Context, c *client.Cluster) (bool, error) {
	found, err := c.Installation(ctx)
	if err != nil {
		return false, err
	}
	derives, err := found.DerivesRights(ctx)
	if apierrors.IsForbidden(err) {
		return false, fmt.Errorf("%w: %s (or set --%s)", tenancy.ErrRefused, err.Error(), bindMembers)
	}
	return derives, err
}

// sharedResources returns the resources that the published configuration shares with all tenants.
// If the configuration cannot be read, it returns the resources that the default configuration
// shares.
func sharedResources(ctx context.Context, c *client.Cluster) []schema.GroupResource {
	settings := &configv1alpha1.Settings{}
	if found, err := c.Installation(ctx); err == nil {
		if p, err := found.Published(ctx); err == nil {
			settings = &p.Settings
		}
	}
	configv1alpha1.Default(settings)
	var out []schema.GroupResource
	for _, r := range settings.Authorization.SharedClusterResources {
		out = append(out, schema.GroupResource{Group: r.Group, Resource: r.Resource})
	}
	return out
}

// setDefaultNamespace sets the default namespace of a new tenant.
func setDefaultNamespace(t *tenancy.New) error {
	if t.ID.NamespacePrefix() == "" {
		return fmt.Errorf("tenant %q cannot be a namespace prefix: set --namespaces", t.ID)
	}
	name := t.ID.NamespacePrefix() + "default"
	if len(name) <= validation.DNS1123LabelMaxLength {
		t.Namespaces = []string{name}
		return nil
	}
	if len(t.ID.NamespacePrefix()) < validation.DNS1123LabelMaxLength {
		return fmt.Errorf("tenant %q: with %s and a name it is longer than %d characters: "+
			"set --namespaces to a shorter name than %s",
			t.ID, tenant.NamespaceSeparator, validation.DNS1123LabelMaxLength, name)
	}
	return fmt.Errorf("tenant %q: with %s and a name it is longer than %d characters: "+
		"choose a tenant name of at most %d characters", t.ID, tenant.NamespaceSeparator,
		validation.DNS1123LabelMaxLength, validation.DNS1123LabelMaxLength-len(tenant.NamespaceSeparator)-1)
}

// printObjects prints the created objects if -o requests this. In a dry run, it prints the objects
// that would be created.
func printObjects(cmd *cobra.Command, format *output.Format, all ...runtime.Object) error {
	if _, err := format.Objects(cmd.OutOrStdout(), all...); err != nil {
		return err
	}
	return nil
}

// checkNewTenant parses the ID of the new tenant. It returns all problems that it finds in the
// arguments.
func checkNewTenant(t *tenancy.New, text string) error {
	id, err := client.ParseTenant("tenant", text)
	t.ID = id
	problems := []error{err}
	if id.IsSystem() {
		problems = append(problems, errors.New("the system tenant always exists and cannot be created"))
	}
	for _, admin := range t.Admins {
		problems = append(problems, client.CheckUser("--admin", admin))
		if strings.HasPrefix(admin, "system:") {
			problems = append(problems, fmt.Errorf("--admin %q: user names that start with \"system:\" are reserved for the "+
				"system tenant", admin))
		}
	}
	for _, ns := range t.Namespaces {
		problems = append(problems, client.CheckNamespace("--namespaces", ns))
	}
	return errors.Join(problems...)
}

// writing returns the Writing of a command. Changes are printed to standard output, and
// explanations to standard error. Neither is printed if the format prints objects.
func writing(cmd *cobra.Command, mode string, format *output.Format) tenancy.Writing {
	w := tenancy.Writing{DryRun: dryRunOption(mode), Printf: func(string, ...any) {}}
	if format.IsText() {
		w.Changes, w.Printf = output.NewChanges(cmd.OutOrStdout(), mode, ""), warnTo(cmd)
	}
	return w
}
