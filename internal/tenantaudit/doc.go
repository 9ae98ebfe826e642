// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

// Package tenantaudit writes one audit stream for each tenant, and two streams for the system
// tenant. The stream of a tenant contains no data of other tenants, except that a record of a
// cross-tenant write names the tenant of the caller.
//
// [Project] converts an audit event to records. [Streams] stores the records of each stream in
// files of a directory. [Read] reads a stream, and [Streams.Serve] serves it over HTTP. [Sink]
// combines them.
//
// A record does not contain everything that its event contains. It has no annotations, reasons,
// messages, bodies, groups, addresses, user agents or queries.
package tenantaudit
