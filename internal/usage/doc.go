// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

// Package usage records the use of each tenant at one server. A [Recorder] holds the totals in
// memory. A [Writer] writes them to the TenantUsages of a cluster. [Records] are for billing. They
// are sent to a file or an HTTP endpoint.
//
// A recorder holds totals per hour. Only tenants that exist have totals of their own, so callers
// cannot fill the memory with invented names. The totals of all entries add up to the totals of the
// server.
package usage
