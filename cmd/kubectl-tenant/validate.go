// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/metadata"

	"github.com/kubetenant/kubetenant/internal/cli/client"
	"github.com/kubetenant/kubetenant/internal/cli/installation"
	"github.com/kubetenant/kubetenant/internal/cli/output"
	"github.com/kubetenant/kubetenant/internal/cli/restored"
	"github.com/kubetenant/kubetenant/internal/cli/validate"
)

func newValidateCommand(flags *client.Flags) *cobra.Command {
	o := validateOptions{flags: flags, format: output.NewFormat()}
	cmd := &cobra.Command{
		Use:   "validate {FILE|DIR... | --cluster | --restored}",
		Short: "Find what is wrong with files or a cluster, with a fix",
		Long: `Reads files with the server's own code, and prints each problem
with its position, the reason and a fix. It checks:

- a TenancyConfiguration and every file that it names, and a Revocation
- Tenant, TenantMembers, NamespaceTemplate, Publication, RetiredTenant,
  TenantQuota, AccessGrant and TenantUsage, by the schemas and the rules that
  the API server applies
- token files, password files and policy files (ABAC)
- certificate requests
- scenarios of "kubectl tenant test"
- the files that "generate" writes for kube-apiserver, and the directory that it
  writes. They are compared with the TenancyConfiguration among the files.
- ClusterRoleBindings, RoleBindings and Namespaces of "kubectl get -o yaml"

It detects the kind from the content, or from the name if the file has
comma-separated values: the name of a password file contains "pass". --kind
specifies it instead. "-" is standard input. No output contains a token or a
password. The API server also checks what depends on other objects: quotas,
immutable fields, and the subjects and roles that a Tenant names.

With --cluster, and in exported files, it reports the objects that allow more on
a server without kubetenant:

- a ClusterRoleBinding to a group "tenant:..."
- a ClusterRoleBinding "kubetenant:admins:..." that an earlier release created
- a RoleBinding or ClusterRoleBinding with the annotation kubetenant.dev/scope
  or kubetenant.dev/expires
- a Namespace of authorization.systemNamespaces that has the label of a tenant

RoleBindings in a namespace of a tenant are one finding for each namespace and
annotation, with one example and the number of the others. --cluster reads
ClusterRoleBindings, RoleBindings and Namespaces page by page, and writes
nothing. The system namespaces are those of the TenancyConfiguration among the
files, or that the server publishes, or else the default ones. Here --cluster
takes no name. Choose the cluster with --context.

With --restored, it lists what a cluster lost when it was restored from a backup
(docs/tasks/backup.md). It compares the cluster with records that a restore does
not change:

- --usage-records names a directory with usage records. It finds tenants that
  the cluster does not have, or that were replaced.
- --audit-log names an audit log of kube-apiserver, of level Metadata or above.
  It finds deleted objects that exist again, and missing or older objects: of
  kubetenant's kinds, Namespaces, RBAC, deleted ServiceAccounts, and Secrets in
  the namespace of the service. The log must begin before the backup.

Without records, it finds a Tenant that replaces an unknown one, and namespaces
of a tenant without a Tenant. --restored reads no content of a Secret and writes
nothing. It cannot find changes that the records do not contain.

Exit status: 0 nothing is wrong, 1 something is, 2 something could not be read.`,
		Example: `  kubectl tenant validate tenancy.yaml
  kubectl tenant validate tenancy.yaml tenants/*.yaml -o json
  kubectl tenant validate --kind password users.csv
  kubectl tenant validate tenancy.yaml installed/
  kubectl tenant validate --cluster
  kubectl tenant validate --restored --audit-log audit.log --usage-records usage/
  kubectl get clusterrolebindings,rolebindings,namespaces -A -o yaml > objects.yaml
  kubectl tenant validate tenancy.yaml objects.yaml`,
		RunE: o.run,
	}
	cmd.Flags().BoolVar(&o.cluster, "cluster", false, "check the cluster that the kubeconfig names")
	cmd.Flags().BoolVar(&o.restored, "restored", false,
		"list what the cluster lost when it was restored from a backup")
	cmd.Flags().StringSliceVar(&o.auditLogs, "audit-log", nil,
		"with --restored: audit log of kube-apiserver, may end with .gz (may be repeated)")
	cmd.Flags().StringVar(&o.usageRecords, "usage-records", "", "with --restored: directory with usage records")
	_ = cmd.MarkFlagDirname("usage-records")
	cmd.Flags().StringVar(&o.kind, "kind", "", "kind of the files: "+strings.Join(validate.Kinds(), ", "))
	_ = cmd.RegisterFlagCompletionFunc("kind", outputs(validate.Kinds()...))
	o.format.AddFlags(cmd)
	return cmd
}

var errNotRestored = errors.New("--audit-log and --usage-records require --restored")

// validateOptions are the flags of validate.
type validateOptions struct {
	flags    *client.Flags
	kind     string
	cluster  bool
	restored bool
	// auditLogs and usageRecords are the records that --restored compares the cluster with.
	auditLogs    []string
	usageRecords string
	format       *output.Format
}

func (o *validateOptions) run(cmd *cobra.Command, args []string) error {
	if err := o.format.Check(); err != nil {
		return err
	}
	if len(args) == 0 && !o.cluster && !o.restored {
		return fmt.Errorf("name a file or give --cluster (see %s --help)", cmd.CommandPath())
	}
	if !o.restored && (len(o.auditLogs) > 0 || o.usageRecords != "") {
		return errNotRestored
	}
	namespace, _ := cmd.Flags().GetString("namespace")
	if namespace == "" {
		namespace = installation.WebhookNamespace
	}
	ctx := withoutLog(cmd.Context())
	report, config := validate.Files(ctx, args, validate.Options{
		Kind:      o.kind,
		Namespace: namespace,
		Stdin:     cmd.InOrStdin(),
	})
	if o.cluster {
		var namespaces []string
		if config != nil {
			namespaces = config.Authorization.SystemNamespaces
		}
		if err := o.checkCluster(cmd, report, namespaces); err != nil {
			report.Unread = append(report.Unread, err)
		}
	}
	if o.restored {
		if err := o.checkRestored(cmd, report, namespace); err != nil {
			// The error is not wrapped. Otherwise, a denied read would have the exit code of a
			// finding.
			report.Unread = append(report.Unread, errors.New(err.Error()))
		}
	}
	if err := o.print(cmd, report); err != nil {
		return err
	}
	switch {
	case len(report.Unread) > 0:
		return errors.Join(report.Unread...)
	case report.Failed():
		return errFailed
	}
	return nil
}

func (o *validateOptions) checkCluster(cmd *cobra.Command, report *validate.Report, namespaces []string) error {
	c, err := o.flags.Cluster()
	if err != nil {
		return err
	}
	k, err := c.Kube()
	if err != nil {
		return err
	}
	return c.Explain(report.Cluster(cmd.Context(), c.Name, k, namespaces))
}

// checkRestored adds findings about the changes that a restored cluster lost.
func (o *validateOptions) checkRestored(cmd *cobra.Command, report *validate.Report, namespace string) error {
	c, _, d, err := o.flags.Clients()
	if err != nil {
		return err
	}
	m, err := metadata.NewForConfig(c.Config)
	if err != nil {
		return err
	}
	return c.Explain(restored.Check(cmd.Context(), restored.Clients{Dynamic: d, Metadata: m}, restored.Options{
		Cluster:      c.Name,
		UsageRecords: o.usageRecords,
		AuditLogs:    o.auditLogs,
		Namespace:    namespace,
		Now:          time.Now(),
	}, report))
}

// print prints the report in the format of the command.
func (o *validateOptions) print(cmd *cobra.Command, report *validate.Report) error {
	unread := []string{}
	for _, err := range report.Unread {
		unread = append(unread, err.Error())
	}
	out := cmd.OutOrStdout()
	value := map[string]any{
		"findings": append([]validate.Finding{}, report.Findings...),
		"valid":    append([]string{}, report.Valid...),
		"unread":   unread,
	}
	if done, err := o.format.Value(out, "Validation", value); done {
		return err
	}
	var text strings.Builder
	for i := range report.Findings {
		f := &report.Findings[i]
		text.WriteString(output.Safe(f.String()) + "\n")
		if f.Fix != "" {
			text.WriteString("  fix: " + output.Safe(f.Fix) + "\n")
		}
	}
	for _, name := range report.Valid {
		text.WriteString(output.Safe(name) + ": valid\n")
	}
	_, err := fmt.Fprint(out, text.String())
	return err
}
