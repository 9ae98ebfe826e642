// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

// Package tenanttest provides tenants for tests.
package tenanttest

import (
	"testing"

	"github.com/kubetenant/kubetenant/tenant"
)

// ID returns the tenant with the given name, as [tenant.Parse] does. It fails the test if the name
// is not valid.
func ID(tb testing.TB, name string) tenant.ID {
	tb.Helper()
	id, err := tenant.Parse(name)
	if err != nil {
		tb.Fatal(err)
	}
	return id
}
