// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

// Package service answers the webhook requests of an unmodified kube-apiserver: TokenReview,
// SubjectAccessReview and AdmissionReview. It serves TLS to clients with a certificate.
//
// [New] returns the handler, which uses a stack. The handler keeps no state between requests.
package service
