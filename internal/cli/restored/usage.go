// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package restored

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/kubetenant/kubetenant/internal/cli/usage"
	"github.com/kubetenant/kubetenant/tenant"
)

// maxAge is the maximum age of the usage records that are read.
const maxAge = 10 * 365 * 24 * time.Hour

// usage finds Tenants that are in the usage records but not in the cluster.
func (c *check) usage() {
	report, err := usage.FromRecords(c.UsageRecords, tenant.ID{}, c.Now, maxAge)
	if err != nil {
		c.recordUnread("usage records: %w", err)
		return
	}
	if report.ProblemsTotal > 0 {
		c.recordUnread("usage records: %d lines or files could not be read, so findings may be missing: %s",
			report.ProblemsTotal, report.Problems[0])
	}
	// The records of a gateway, and the records of a tenant without a Tenant object, have no UID.
	used := slices.DeleteFunc(report.Tenants, func(t *usage.Tenant) bool { return t.UID == "" || len(t.Hours) == 0 })
	known := slices.ContainsFunc(used, func(t *usage.Tenant) bool { return c.tenants.knows(t.Tenant, t.UID) })
	switch {
	case len(used) == 0 && report.ProblemsTotal == 0:
		c.recordUnread("usage records: %s: no record contains the UID of a Tenant: name records of a server of the cluster, "+
			"not of a gateway", c.UsageRecords)
		return
	case len(used) > 0 && !known && len(c.tenants.existing)+len(c.tenants.retired) > 0:
		c.recordUnread("usage records: %s: no record names a Tenant of the cluster: they %w", c.UsageRecords, errOtherCluster)
		return
	}
	slices.SortFunc(used, func(a, b *usage.Tenant) int {
		return strings.Compare(a.Tenant+" "+a.UID, b.Tenant+" "+b.UID)
	})
	for _, t := range used {
		c.checkUsed(t.Tenant, t.UID, t.Hours[len(t.Hours)-1].Hour)
	}
}

// checkUsed adds a finding if a Tenant with usage records is missing, or was replaced after the
// backup. last is the last hour with a record.
func (c *check) checkUsed(id, uid string, last time.Time) {
	existing, ok := c.tenants.existing[id]
	if c.tenants.knows(id, uid) || existing.replaces == uid { // see [check.successors]
		return
	}
	seen := fmt.Sprintf("the usage records contain the UID %s until %s, ", uid, last.Format(time.RFC3339))
	switch {
	case !ok:
		c.find("tenant "+id, seen+"but the cluster has neither a Tenant nor a RetiredTenant with this UID: its name is "+
			"not reserved", "if the tenant was not deleted, apply its Tenant; otherwise "+reserve(id, uid))
	case last.Add(time.Hour).After(existing.created):
		// An earlier Tenant may have been deleted before RetiredTenants existed.
		c.find("tenant "+id, seen+fmt.Sprintf("but the Tenant in the cluster has the UID %s: it was replaced after the "+
			"backup, so credentials of its former users are valid again", existing.uid),
			"kubectl tenant delete-tenant "+argument(id)+", then create the tenant again with --replaces "+existing.uid)
	}
}
