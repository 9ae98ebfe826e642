// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

// Package service answers the webhooks of an unmodified kube-apiserver: TokenReview,
// SubjectAccessReview and AdmissionReview, over TLS to clients with a certificate.
//
// [New] returns the handler, which uses a stack. The handler keeps no state between two requests.
package service
