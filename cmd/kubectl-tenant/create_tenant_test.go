// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/kubetenant/kubetenant/internal/cli/tenancy"
	"github.com/kubetenant/kubetenant/tenant/tenanttest"
)

// TestDefaultNamespaceOfLongTenants checks the error for a tenant whose default namespace would
// have a name that is too long. The error must contain a remedy.
func TestDefaultNamespaceOfLongTenants(t *testing.T) {
	for length, want := range map[int]string{
		1:  "",
		54: "",
		55: "set --namespaces to a shorter name than %s--default",
		58: "set --namespaces to a shorter name than %s--default",
		60: "set --namespaces to a shorter name than %s--default",
		61: "choose a tenant name of at most 60 characters",
		63: "choose a tenant name of at most 60 characters",
	} {
		t.Run(fmt.Sprintf("length %d", length), func(t *testing.T) {
			id := strings.Repeat("x", length)
			made := &tenancy.New{ID: tenanttest.ID(t, id)}
			err := setDefaultNamespace(made)
			if want == "" {
				if err != nil || !slices.Equal(made.Namespaces, []string{id + "--default"}) {
					t.Errorf("%v, %v", made.Namespaces, err)
				}
				return
			}
			want = fmt.Sprintf("tenant %q: with -- and a name it is longer than 63 characters: ", id) +
				strings.ReplaceAll(want, "%s", id)
			if err == nil || err.Error() != want || len(made.Namespaces) > 0 {
				t.Errorf("%v, %v, want %s", made.Namespaces, err, want)
			}
			root := newCommand()
			root.SetOut(io.Discard)
			root.SetArgs([]string{"create-tenant", id, "--admin", "alice", "--namespaces", "web", "--dry-run=client"})
			if err := root.ExecuteContext(t.Context()); err != nil {
				t.Errorf("with --namespaces: %v", err)
			}
		})
	}
}
