// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

// Package usage records the usage of each tenant at one server. A [Recorder] holds the totals in
// memory. A [Writer] writes the totals to the TenantUsages of a cluster. [Records] sends the totals
// to a file or an HTTP endpoint, for billing.
//
// A recorder holds totals for each hour. Only existing tenants have their own totals, so callers
// cannot fill the memory with invented names. The totals of all entries add up to the totals of the
// server.
package usage
