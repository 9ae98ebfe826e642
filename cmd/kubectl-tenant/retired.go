// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubetenant/kubetenant/cluster/tenants"
	"github.com/kubetenant/kubetenant/internal/cli/client"
	"github.com/kubetenant/kubetenant/internal/cli/output"
	"github.com/kubetenant/kubetenant/internal/typed"
	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

func newRetiredCommand(flags *client.Flags) *cobra.Command {
	format := output.NewListFormat()
	cmd := &cobra.Command{
		Use:   "retired [TENANT...]",
		Short: "List deleted tenants whose names are reserved",
		Long: `Lists deleted tenants. Their names stay reserved: for each, the list shows the
UID, the time of deletion, and the system objects that still name the tenant.
After those references are removed, give the name to a new tenant with
create-tenant --replaces UID.`,
		Example: `  kubectl tenant retired
  kubectl tenant retired acme -o wide`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := format.Check(); err != nil {
				return err
			}
			c, _, d, err := flags.Clients()
			if err != nil {
				return err
			}
			list, err := d.Resource(v1alpha1.SchemeGroupVersion.WithResource(v1alpha1.ResourceRetiredTenants)).
				List(cmd.Context(), metav1.ListOptions{})
			if err != nil && !apierrors.IsNotFound(err) { // an older release has no RetiredTenants
				return c.Explain(err)
			}
			rows := &output.List{
				Columns: append(output.Columns("Tenant", "UID", "Retired", "Referenced by"),
					output.Column{Name: "References", Wide: true}),
			}
			for i := 0; list != nil && i < len(list.Items); i++ {
				if row := retiredRow(&list.Items[i]); len(args) == 0 || slices.Contains(args, row.Cells[0]) {
					rows.Rows = append(rows.Rows, row)
				}
			}
			for _, name := range args {
				if !slices.ContainsFunc(rows.Rows, func(r output.Row) bool { return r.Cells[0] == name }) {
					return apierrors.NewNotFound(v1alpha1.Resource(v1alpha1.ResourceRetiredTenants), name)
				}
			}
			return printList(cmd, format, rows)
		},
	}
	format.AddFlags(cmd)
	return cmd
}

// retiredRow returns the row for a RetiredTenant.
func retiredRow(u *unstructured.Unstructured) output.Row {
	r, err := typed.Decode[v1alpha1.RetiredTenant](u)
	id, was, _ := tenants.ReadRetired(r, err) // the cells are empty after an error
	at := "deleting"
	switch {
	case !was.DeletionEnded.IsZero():
		at = was.DeletionEnded.UTC().Format(time.RFC3339)
	case err == nil && r.Spec.TakenBack != "":
		at = fmt.Sprintf("deletion canceled (%s)", r.Spec.TakenBack)
	}
	references, _, _ := unstructured.NestedStringSlice(u.Object, "spec", "references")
	return output.Row{
		Kind:  schema.GroupKind{Group: tenant.Domain, Kind: v1alpha1.KindRetiredTenant},
		Name:  u.GetName(),
		Item:  u,
		Cells: []string{id.String(), was.UID, at, strconv.Itoa(len(references)), strings.Join(references, ", ")},
	}
}
