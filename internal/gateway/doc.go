// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

// Package gateway is a reverse proxy in front of kube-apiservers whose flags cannot be changed.
// It authenticates callers with the sources in the TenancyConfiguration, and enforces the tenant
// boundary with the library's authorizer. To forward a request, it impersonates the caller. If
// the caller is a service account of the cluster and impersonates no other user, it forwards the
// caller's own token instead.
//
// The main steps of a request are in these files, in order: gateway.go, raw.go, paths.go,
// chain.go, caller.go, reviews.go, proxy.go, answer.go. A [Gateway] has no database. Between
// requests, it holds caches, limits and counters in memory.
package gateway
