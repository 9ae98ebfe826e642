// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubetenant/kubetenant/authz/abac"
	configv1alpha1 "github.com/kubetenant/kubetenant/config/v1alpha1"
	"github.com/kubetenant/kubetenant/internal/cli/client"
	"github.com/kubetenant/kubetenant/internal/cli/output"
	"github.com/kubetenant/kubetenant/internal/cli/privileges"
	"github.com/kubetenant/kubetenant/internal/simulate/simulator"
)

const (
	name = "name"
	wide = "wide"
	html = "html"
)

func newListPrivilegesCommand(flags *client.Flags) *cobra.Command {
	identity := &identityFlags{}
	format := output.NewListFormat(html)
	config := ""
	cmd := &cobra.Command{
		Use:   "list-privileges [--user U | --group G | --serviceaccount SA | --tenant T | --of-kubeconfig FILE]",
		Short: "Show all privileges of an identity",
		Long: `Shows the privileges of an identity as a tree of cluster, role, scope and rules.
They come from bindings to the identity, to its tenant, and to the groups that
every such caller has. The tree also shows aggregated roles, access grants of
other tenants, and lines of the policy file. Without an identity, the command
shows your own privileges.

A role that does not exist is shown as missing. A binding in a namespace of
another tenant is shown as blocked, because the boundary denies its use. Kinds
that you may not read are listed on standard error. For your own privileges, the
command then uses the server's answer.`,
		Example: `  kubectl tenant list-privileges
  kubectl tenant list-privileges --user alice --tenant acme --context prod,staging
  kubectl tenant list-privileges --user alice --tenant acme --cluster eu1,us1
  kubectl tenant list-privileges --serviceaccount acme--web/robot -o json`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := errors.Join(format.Check(), identity.check(cmd)); err != nil {
				return err
			}
			var known *configv1alpha1.Settings
			if config != "" {
				var err error
				if known, err = settings(config); err != nil {
					return err
				}
			}
			clusters, err := flags.Clusters()
			if err != nil {
				return err
			}
			var all []*privileges.Listing
			failed := eachCluster(cmd, clusters, func(c *client.Cluster) error {
				l, err := listPrivileges(cmd, c, identity, known)
				if err == nil {
					all = append(all, l)
				}
				return err
			})
			return errors.Join(printListings(cmd, all, format), failed)
		},
	}
	identity.add(cmd, flags)
	identity.addTenant(cmd, flags)
	flags.AddClusters(cmd)
	addConfig(cmd, &config)
	format.AddFlags(cmd)
	return cmd
}

// eachCluster calls do for each cluster. If there are several clusters and one fails, it prints the
// error and continues with the next cluster. The returned error contains the number of failed
// clusters.
func eachCluster(cmd *cobra.Command, clusters []*client.Cluster, do func(*client.Cluster) error) error {
	failed := 0
	refused := false
	for _, c := range clusters {
		err := c.Check()
		if err == nil {
			err = do(c)
		}
		if err == nil {
			continue
		}
		if errors.Is(err, errFailed) { // the error was printed
			refused = true
			continue
		}
		err = c.Explain(err)
		if len(clusters) == 1 {
			return err
		}
		failed++
		_, _ = fmt.Fprintf(cmd.ErrOrStderr(), "%s: %v\n", c.Name, err)
	}
	if failed > 0 {
		return fmt.Errorf("%d of %d clusters failed: %w", failed, len(clusters), errSome)
	}
	if refused {
		return errFailed
	}
	return nil
}

// policyLines returns the settings and the policy file of known. If known is nil, it uses the
// configuration that the cluster publishes. If this configuration cannot be read, it returns the
// default settings. The policy is nil if there is no policy file.
func policyLines(
	ctx context.Context, c *client.Cluster, known *configv1alpha1.Settings,
) (*configv1alpha1.Settings, *abac.Policy, error) {
	if known != nil {
		policy, err := readPolicy(known)
		return known, policy, err
	}
	p, err := published(ctx, c)
	if err != nil {
		known, err = settings("")
		return known, nil, err
	}
	if p.Policy == "" {
		return &p.Settings, nil, nil
	}
	policy, err := abac.Parse([]byte(p.Policy))
	return &p.Settings, policy, err
}

func listPrivileges(
	cmd *cobra.Command, c *client.Cluster, who *identityFlags, known *configv1alpha1.Settings,
) (*privileges.Listing, error) {
	ctx := cmd.Context()
	i, err := who.identity(ctx, c)
	if err != nil {
		return nil, err
	}
	progress := output.NewProgress(cmd.ErrOrStderr())
	defer progress.Done()
	selection := privileges.ForIdentity(i)
	if selection.Tenant, err = limitedTo(ctx, c); err != nil {
		return nil, err
	}
	p, err := readSnapshot(ctx, c, selection, func(n int64) { progress.Update("%s: %d objects read", c.Name, n) })
	if err != nil {
		return nil, err
	}
	progress.Done()
	config, policy, err := policyLines(ctx, c, known)
	if err != nil {
		return nil, err
	}
	l := privileges.List(p.ForConfig(config), i, time.Now())
	l.Cluster, l.Server = c.Name, c.Config.Host
	if policy != nil && !i.ID().IsZero() {
		l.Lines = policy.LinesFor(i.ID(), i.Info())
	}
	if len(l.Unread) == 0 {
		return l, nil
	}
	if !who.isEmpty() {
		_, _ = fmt.Fprintf(cmd.ErrOrStderr(), "%s: you may not list %s: privileges that depend on them are missing\n",
			c.Name, strings.Join(l.Unread, ", "))
		return l, nil
	}
	for _, ns := range ownNamespaces(c, p, i) {
		review, err := ownRules(ctx, c, ns)
		if apierrors.IsForbidden(err) { // such as behind the webhook service
			_, _ = fmt.Fprintf(cmd.ErrOrStderr(),
				"%s: the server does not list your rules, and you may not list %s: privileges that depend on them are missing\n",
				c.Name, strings.Join(l.Unread, ", "))
			return l, nil
		}
		if err != nil {
			return nil, err
		}
		l.Reviews = append(l.Reviews, *review)
	}
	return l, nil
}

// maxReviews is the maximum number of namespaces for which the command creates a rules review.
const maxReviews = 10

// ownNamespaces returns the namespaces for which the command creates rules reviews. It returns
// the current namespace if this namespace belongs to the caller's tenant, or if the caller can
// see no namespace of its tenant. Otherwise, it returns the first maxReviews namespaces of the
// caller's tenant that the caller can see.
func ownNamespaces(c *client.Cluster, p *simulator.Snapshot, i *privileges.Identity) []string {
	var own []string
	for name := range p.Namespaces {
		owner := p.Owner(name)
		if owner == i.ID() && !owner.IsZero() && !owner.IsSystem() {
			own = append(own, name)
		}
	}
	if len(own) == 0 || slices.Contains(own, c.Namespace) {
		return []string{c.Namespace}
	}
	slices.Sort(own)
	return own[:min(len(own), maxReviews)]
}

// ownRules requests the caller's rules in a namespace from the server.
func ownRules(ctx context.Context, c *client.Cluster, namespace string) (*privileges.Review, error) {
	k, err := c.Kube()
	if err != nil {
		return nil, err
	}
	answer, err := k.AuthorizationV1().SelfSubjectRulesReviews().Create(ctx,
		&authorizationv1.SelfSubjectRulesReview{Spec: authorizationv1.SelfSubjectRulesReviewSpec{Namespace: namespace}},
		metav1.CreateOptions{})
	if err != nil {
		return nil, err
	}
	r := &privileges.Review{Namespace: namespace, Incomplete: answer.Status.Incomplete}
	for _, rule := range answer.Status.ResourceRules {
		r.Rules = append(r.Rules, rbacv1.PolicyRule{
			Verbs:         rule.Verbs,
			APIGroups:     rule.APIGroups,
			Resources:     rule.Resources,
			ResourceNames: rule.ResourceNames,
		})
	}
	for _, rule := range answer.Status.NonResourceRules {
		r.Rules = append(r.Rules, rbacv1.PolicyRule{Verbs: rule.Verbs, NonResourceURLs: rule.NonResourceURLs})
	}
	return r, nil
}

func printListings(cmd *cobra.Command, all []*privileges.Listing, format *output.Format) error {
	out := cmd.OutOrStdout()
	if format.Is(html) {
		return privileges.WriteHTML(out, all)
	}
	if !format.IsText() {
		list := &output.List{}
		for _, l := range all {
			for i := range l.Roles {
				if format.Is(name) {
					role := &l.Roles[i]
					list.Rows = append(list.Rows,
						output.Row{Kind: schema.GroupKind{Group: rbacv1.GroupName, Kind: role.Kind}, Name: role.Name})
				}
			}
			if !format.Is(name) {
				list.Rows = append(list.Rows, output.Row{Kind: schema.GroupKind{Kind: "Privileges"}, Name: l.Cluster, Item: l})
			}
		}
		return format.List(out, list)
	}
	screen := output.NewScreen(out)
	for _, l := range all {
		if !format.Is(wide) {
			l.Brief()
		}
		if err := l.WriteTree(screen); err != nil {
			return err
		}
	}
	return nil
}
