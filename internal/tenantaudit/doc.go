// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

// Package tenantaudit writes one audit stream for each tenant, and one for the system tenant. A
// stream contains no data of other tenants.
//
// [Project] converts an audit event to records. [Streams] stores the records of each stream in
// files of a directory. [Read] reads a stream, and [Streams.Serve] serves it over HTTP. [Sink]
// combines them.
//
// A record is not an event. It contains no annotations, reasons, messages, bodies, groups,
// addresses, user agents or queries.
package tenantaudit
