// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

// Package tenantaudit writes one audit stream for each tenant, and one for the system tenant. A
// stream contains no data of other tenants.
//
// [Project] turns an audit event into records. [Streams] stores the records of each stream in files
// of a directory. [Read] reads a stream, and [Handler] serves it over HTTP. [Sink] joins them.
//
// A record is not an event. It has no annotations, reasons, messages, bodies, groups, addresses,
// user agents or queries.
package tenantaudit
