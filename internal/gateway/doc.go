// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

// Package gateway is a reverse proxy in front of kube-apiservers whose flags cannot be changed. It
// authenticates callers with this project's sources and enforces the tenant boundary with the
// library's authorizer. It forwards a request by impersonating its caller. If the caller is a
// service account of the cluster, it forwards the caller's own token.
//
// A request passes through these files in order: raw.go, paths.go, chain.go, caller.go, reviews.go,
// proxy.go, answer.go. Between requests, a [Gateway] stores only its caches of the clusters and the
// active connections.
package gateway
