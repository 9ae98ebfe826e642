// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

// Package gateway is a reverse proxy before kube-apiservers whose flags nobody may change. It
// authenticates with this project's sources, holds the tenant boundary by the library's own
// authorizer, and sends a request on in the name of its caller, by impersonation, or with the
// caller's own token where that is a service account's of the cluster.
//
// The way of a request is that of the files: raw.go, paths.go, chain.go, caller.go, reviews.go,
// proxy.go, answer.go. A [Gateway] keeps nothing between two requests but what it follows of the
// clusters, and what is open.
package gateway
