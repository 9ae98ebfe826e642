// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	authzgrant "github.com/kubetenant/kubetenant/authz/accessgrant"
	"github.com/kubetenant/kubetenant/cluster/accessgrant"
	"github.com/kubetenant/kubetenant/internal/cli/client"
	"github.com/kubetenant/kubetenant/internal/cli/output"
	"github.com/kubetenant/kubetenant/internal/cli/privileges"
	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

var errNoReceivingTenant = errors.New("you belong to no tenant that can receive grants: set --tenant")

func newSharedWithMeCommand(flags *client.Flags) *cobra.Command {
	format := output.NewListFormat()
	tenantName := ""
	cmd := &cobra.Command{
		Use:   "shared-with-me",
		Short: "List the grants that other tenants gave to yours",
		Long: `Lists the AccessGrants for callers of your tenant whose owners announce them
(spec.announce: true). It shows who can use each grant, what the grant allows,
and whether it is valid now. Grants that are not announced also work, but do not
appear here.

Grants apply at the server's own address only. If your kubeconfig has a server
URL that ends in /tenants/<id>, the list is empty.`,
		Example: `  kubectl tenant shared-with-me
  kubectl tenant shared-with-me --tenant acme -o wide    # as the cluster's admin`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := format.Check(); err != nil {
				return err
			}
			var id tenant.ID
			var err error
			if cmd.Flags().Changed("tenant") {
				if id, err = client.ParseTenant("--tenant", tenantName); err != nil {
					return err
				}
				if id.IsSystem() {
					return errNoReceivingTenant
				}
			}
			c, err := flags.Cluster()
			if err != nil {
				return err
			}
			list, err := announced(cmd, c, id)
			if err != nil {
				return c.Explain(err)
			}
			path, _ := url.Parse(c.Config.Host + c.Config.APIPath)
			if len(list.Rows) == 0 && path != nil && strings.Contains(path.Path, "/tenants/") {
				_, _ = fmt.Fprintln(cmd.ErrOrStderr(),
					"the server URL limits you to one tenant: grants of other tenants apply only at the server's own address")
			}
			return printList(cmd, format, list)
		},
	}
	cmd.Flags().StringVar(&tenantName, "tenant", "", "tenant that receives the grants (default: your own)")
	_ = cmd.RegisterFlagCompletionFunc("tenant", flags.CompleteTenants)
	format.AddFlags(cmd)
	return cmd
}

// announced lists the AccessGrants that are announced to a tenant. If id is zero, it uses the
// caller's tenant.
func announced(cmd *cobra.Command, c *client.Cluster, id tenant.ID) (*output.List, error) {
	if id.IsZero() {
		me, err := c.WhoAmI(cmd.Context())
		if err != nil {
			return nil, err
		}
		if id, err = tenant.Parse(me.Tenant); err != nil || id.IsSystem() {
			return nil, errNoReceivingTenant
		}
	}
	d, err := dynamic.NewForConfig(c.Config)
	if err != nil {
		return nil, err
	}
	grants, err := d.Resource(v1alpha1.SchemeGroupVersion.WithResource(v1alpha1.ResourceAccessGrants)).List(cmd.Context(),
		metav1.ListOptions{FieldSelector: authzgrant.AnnouncedSelector(id).String()})
	if apierrors.IsBadRequest(err) { // the definition lacks the selectable field
		return nil,
			fmt.Errorf("the server does not support announced AccessGrants: its kubetenant or its CustomResourceDefinition is "+
				"too old: %w", err)
	}
	if err != nil {
		return nil, err
	}
	list := &output.List{
		Columns: append(output.Columns("Namespace", "Name", "For", "Allows", "Valid"),
			output.Column{Name: "Granted by", Wide: true}),
	}
	for i := range grants.Items {
		list.Rows = append(list.Rows, announcedRow(&grants.Items[i], time.Now()))
	}
	return list, nil
}

// announcedRow returns the row for an AccessGrant. For an object that this version cannot decode,
// it shows only the name, because a later release may have created the object.
func announcedRow(u *unstructured.Unstructured, now time.Time) output.Row {
	row := output.Row{
		Kind:  schema.GroupKind{Group: tenant.Domain, Kind: v1alpha1.KindAccessGrant},
		Name:  u.GetName(),
		Item:  u,
		Cells: []string{u.GetNamespace(), u.GetName(), "", "", "no: this version cannot read it", ""},
	}
	g, err := accessgrant.Parse(u)
	if err != nil {
		return row
	}
	var subjects, what []string
	for _, s := range privileges.SubjectsOf(g) {
		subjects = append(subjects, strings.ToLower(s.Kind)+" "+s.Title())
	}
	for i := range g.Spec.To {
		what = append(what, privileges.GrantRuleText(&g.Spec.To[i]))
	}
	counts := "yes"
	switch expires := g.Spec.Expires; {
	case !accessgrant.Accepted(g):
		counts = "no: its grantor no longer has these rights"
	case expires != nil && !now.Before(expires.Time):
		counts = "no: it has expired"
	case expires != nil:
		counts = "until " + expires.UTC().Format(time.RFC3339)
	}
	by := ""
	if g.Spec.Grantor != nil {
		by = g.Spec.Grantor.User
	}
	row.Cells = []string{g.Namespace, g.Name, strings.Join(subjects, ", "), strings.Join(what, "; "), counts, by}
	return row
}
