package main

import (
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
		Short: "List the tenants that were deleted, whose names are nobody's",
		Long: `Lists what the Tenants that were deleted have left: whose names are nobody's,
since when, and what in the system tenant's space named them then. Such a name
is given to another by create-tenant --replaces with the UID that stands here,
once nothing names the one before.`,
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
			if err != nil && !apierrors.IsNotFound(err) { // a server of an older release has none
				return c.Explain(err)
			}
			rows := &output.List{
				Columns: append(output.Columns("Tenant", "UID", "Retired", "Named by"),
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

// retiredRow shows one.
func retiredRow(u *unstructured.Unstructured) output.Row {
	id, was, _ := tenants.ReadRetired(typed.Decode[v1alpha1.RetiredTenant](u)) // an error leaves the cells empty
	at := "is being deleted"
	if !was.At.IsZero() {
		at = was.At.UTC().Format(time.RFC3339)
	}
	references, _, _ := unstructured.NestedStringSlice(u.Object, "spec", "references")
	return output.Row{
		Kind:  schema.GroupKind{Group: tenant.Domain, Kind: v1alpha1.KindRetiredTenant},
		Name:  u.GetName(),
		Item:  u,
		Cells: []string{id.String(), was.UID, at, strconv.Itoa(len(references)), strings.Join(references, ", ")},
	}
}
