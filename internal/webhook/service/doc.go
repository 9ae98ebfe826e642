// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

// Package service handles the webhook requests of an unmodified kube-apiserver. These are
// TokenReviews, SubjectAccessReviews, AdmissionReviews and batches of audit events. One kind of
// AdmissionReview checks the Secret with the configuration of the service.
//
// [New] returns the handler, which uses a stack. Between requests, the handler remembers only which
// audit events it has stored recently.
package service
