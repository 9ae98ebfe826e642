// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/klog/v2"

	"github.com/kubetenant/kubetenant/authn/keystone"
	"github.com/kubetenant/kubetenant/cluster/projects"
	"github.com/kubetenant/kubetenant/cluster/tenants"
	configv1alpha1 "github.com/kubetenant/kubetenant/config/v1alpha1"
	"github.com/kubetenant/kubetenant/internal/cli/client"
	"github.com/kubetenant/kubetenant/internal/cli/keystonesync"
	"github.com/kubetenant/kubetenant/internal/cli/output"
	"github.com/kubetenant/kubetenant/internal/cli/tenancy"
	"github.com/kubetenant/kubetenant/tenant"
)

// keystoneSyncOptions are the flags of keystone-sync.
type keystoneSyncOptions struct {
	config, mode string
	format       *output.Format
}

func newKeystoneSyncCommand(flags *client.Flags) *cobra.Command {
	o := &keystoneSyncOptions{format: output.NewListFormat()}
	cmd := &cobra.Command{
		Use:   "keystone-sync --dry-run --config FILE",
		Short: "Show what the server would change because of Keystone",
		Long: `Reads the domains, projects and roles of Keystone, and compares them with the
Tenants and the namespaces of the cluster. It prints each change that the leader
of the control plane would make, with the reason. The command writes nothing to
the cluster or to Keystone. It has no other mode than --dry-run, because the
leader follows Keystone by itself.

FILE is the server's TenancyConfiguration. One of its sources must have
keystone.sync. The command uses the credentials in cloudsFile of that source.
You need the right to list all Tenants and all namespaces.

For each tenant that the leader could not follow completely, the command prints
the reason to the standard error. It is the condition KeystoneSynced that the
Tenant would get. The server can still reject a change, for example because of
a quota.

Before the leader deletes the rights or the namespace of a missing project, it
reads Keystone ten times. The command reads Keystone once, and shows these
changes when the project has been missing for 24 hours.

Exit status:
  0  Keystone and the cluster could be compared, with or without changes.
  1  You may not list the Tenants or the namespaces.
  2  Keystone or the cluster could not be read completely.`,
		Example: `  kubectl tenant keystone-sync --dry-run --config tenancy.yaml
  kubectl tenant keystone-sync --dry-run --config tenancy.yaml -o wide`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			source, system, err := o.check()
			if err != nil {
				return err
			}
			c, err := flags.Cluster()
			if err != nil {
				return err
			}
			return o.run(cmd, c, source, system)
		},
	}
	cmd.Flags().StringVar(&o.config, "config", "", "TenancyConfiguration file of the server (required)")
	_ = cmd.MarkFlagRequired("config")
	_ = cmd.MarkFlagFilename("config", "yaml", "yml", "json")
	cmd.Flags().StringVar(&o.mode, "dry-run", "", "\"client\": print the changes without making them (required)")
	cmd.Flags().Lookup("dry-run").NoOptDefVal = dryRunClient
	_ = cmd.RegisterFlagCompletionFunc("dry-run", outputs(dryRunClient))
	o.format.AddFlags(cmd)
	return cmd
}

// check validates the flags. It returns the keystone source and the system namespaces of the
// configuration. It reads no other file, and sends no request.
func (o *keystoneSyncOptions) check() (source *configv1alpha1.Source, system []string, err error) {
	if o.mode == "" {
		return nil, nil, errors.New("the leader of the control plane follows Keystone by itself: use --dry-run to see what " +
			"it would change")
	}
	if o.mode != dryRunClient {
		return nil, nil, fmt.Errorf("--dry-run=%s: must be client", o.mode)
	}
	if err := o.format.Check(); err != nil {
		return nil, nil, err
	}
	if o.config == "" {
		return nil, nil, errors.New("--config must not be empty")
	}
	known, err := settings(o.config)
	if err != nil {
		return nil, nil, err
	}
	source = known.SyncedKeystone()
	if source == nil {
		return nil, nil, fmt.Errorf("%s: no source follows Keystone: add the section sync with its field roles to "+
			"authentication.sources[].keystone", o.config)
	}
	return source, known.Authorization.SystemNamespaces, nil
}

func (o *keystoneSyncOptions) run(
	cmd *cobra.Command, c *client.Cluster, source *configv1alpha1.Source, system []string,
) error {
	// If a tenant's caller lists objects, the response contains only its tenant's objects, without
	// an error.
	caller, err := c.WhoAmI(cmd.Context())
	if err != nil {
		return c.Explain(err)
	}
	if id, err := tenant.Parse(caller.Tenant); err == nil && !id.IsSystem() {
		return fmt.Errorf("%w: only a caller of the system tenant can list the objects of all tenants, and you belong to "+
			"tenant %s", tenancy.ErrRefused, id)
	}
	settings, err := projects.SettingsOf(source)
	if err != nil {
		return err
	}
	contents, err := readKeystone(cmd, source)
	if err != nil {
		return err
	}
	cluster := &keystonesync.Cluster{SystemNamespaces: system}
	if cluster.Kube, err = c.Kube(); err != nil {
		return err
	}
	if cluster.Dynamic, err = dynamic.NewForConfig(c.Config); err != nil {
		return err
	}
	report, err := keystonesync.Preview(cmd.Context(), cluster, &settings, contents, time.Now())
	if err != nil {
		return c.Explain(err)
	}
	return printKeystoneSync(cmd, report, o.format)
}

// readKeystone reads the Keystone server of a source.
func readKeystone(cmd *cobra.Command, source *configv1alpha1.Source) (*keystone.Contents, error) {
	ctx := klog.NewContext(withoutLog(cmd.Context()), logr.New(warningSink{warnTo(cmd)}))
	// The command reads cloudsFile once, so a later version is ignored.
	reader, _, err := projects.Open(source, func(string, error) {})
	if err != nil {
		return nil, fmt.Errorf("source %s: keystone.cloudsFile: %w", source.Name, err)
	}
	progress := output.NewProgress(cmd.ErrOrStderr())
	progress.Update("reading Keystone")
	defer progress.Done()
	return keystonesync.Read(ctx, reader)
}

// warningSink prints logged errors as warnings. They contain the cause of a failed request.
type warningSink struct{ warn func(string, ...any) }

func (warningSink) Init(logr.RuntimeInfo)                 {}
func (warningSink) Enabled(int) bool                      { return false }
func (warningSink) Info(int, string, ...any)              {}
func (s warningSink) WithValues(...any) logr.LogSink      { return s }
func (s warningSink) WithName(string) logr.LogSink        { return s }
func (s warningSink) Error(err error, m string, _ ...any) { s.warn("warning: %s: %v", m, err) }

// keystoneChange is one change in the formats for programs.
type keystoneChange struct {
	Tenant string `json:"tenant"`
	Action string `json:"action"`
	Name   string `json:"name"`
	Reason string `json:"reason"`
	// Keystone is the new value of the annotation [tenant.KeystoneAnnotation]. It is nil if the
	// change does not write it.
	Keystone *tenants.Keystone `json:"keystone,omitempty"`
}

// printKeystoneSync prints the changes to standard output, and all other information to standard
// error.
func printKeystoneSync(cmd *cobra.Command, r *keystonesync.Report, format *output.Format) error {
	list := &output.List{
		Columns: append(output.Columns("Tenant", "Action", "Name", "Reason"), output.Column{Name: "Roles", Wide: true}),
	}
	for i := range r.Plans {
		for j := range r.Plans[i].Changes {
			list.Rows = append(list.Rows, keystoneRow(r.Plans[i].Tenant, &r.Plans[i].Changes[j]))
		}
	}
	var err error
	if len(list.Rows) == 0 && format.IsText() {
		_, err = fmt.Fprintln(cmd.ErrOrStderr(), "The leader would change nothing.")
	} else {
		err = format.List(cmd.OutOrStdout(), list)
	}
	if err != nil {
		return err
	}
	warn := warnTo(cmd)
	for i := range r.Plans {
		plan := &r.Plans[i]
		if plan.Condition.Status == metav1.ConditionFalse {
			warn("tenant %s: %s: %s", plan.Tenant, plan.Condition.Reason, plan.Condition.Message)
		}
		if plan.More {
			warn("tenant %s: the leader makes more changes after these", plan.Tenant)
		}
	}
	for _, name := range r.Skipped {
		warn("Tenant %s cannot be decoded, so the leader skips it: see kubectl tenant status", name)
	}
	if len(r.WithoutTenant) > 0 {
		warn("Keystone domains map to tenants without a Tenant: %s. Run kubectl tenant create-tenant. The leader creates a "+
			"Tenant only if createTenants of keystone.sync is set and one domain maps to the tenant.",
			keystonesync.Names(r.WithoutTenant))
	}
	return nil
}

// keystoneRow returns the row for a change.
func keystoneRow(id tenant.ID, c *projects.Change) output.Row {
	kind := schema.GroupKind{Kind: "Namespace"}
	if c.Action == projects.CreateTenant || c.Action == projects.UpdateTenant {
		kind = schema.GroupKind{Group: tenant.Domain, Kind: "Tenant"}
	}
	var roles []string
	if c.To != nil {
		for _, role := range c.To.Roles {
			roles = append(roles, role.ClusterRole)
		}
	}
	return output.Row{
		Kind: kind,
		Name: c.Name,
		Item: keystoneChange{
			Tenant:   id.String(),
			Action:   string(c.Action),
			Name:     c.Name,
			Reason:   c.Why,
			Keystone: c.To,
		},
		Cells: []string{id.String(), string(c.Action), c.Name, c.Why, strings.Join(roles, ",")},
	}
}
