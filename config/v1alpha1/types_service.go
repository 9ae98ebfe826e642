// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	tracingv1 "k8s.io/component-base/tracing/api/v1"
)

// Service configures kubetenant-webhook. The field tenantMetrics also applies to a kube-apiserver
// with tenants compiled in.
type Service struct {
	// apiAudiences specifies the audiences of kube-apiserver: the value of --api-audiences, or else of
	// --service-account-issuer. The webhook service uses them for tokens from sources that do not know
	// the audiences. Must not contain an empty audience. Defaults to https://kubernetes.default.svc
	// and https://kubernetes.default.svc.cluster.local.
	// +optional
	APIAudiences []string `json:"apiAudiences"`
	// limits specifies the limits of requests. They apply separately to authentication, authorization,
	// mutation and validation.
	// +optional
	Limits Limits `json:"limits,omitempty"`
	// staleAfter specifies how old the service's data about the cluster may be. The service checks
	// every two seconds whether kube-apiserver answers. If kube-apiserver does not answer or a watch
	// is not established for this duration, tenants' callers are denied. After half of this duration,
	// the service is not ready. Must be at least 10s. Defaults to 10s.
	// +optional
	StaleAfter *metav1.Duration `json:"staleAfter,omitempty"`
	// drain specifies how long the service continues to answer after SIGTERM, while it is not ready.
	// During this time, callers find another replica. Must not be negative. Defaults to 10s.
	// +optional
	Drain *metav1.Duration `json:"drain,omitempty"`
	// tenantMetrics specifies the maximum number of tenants that have their own metrics. Further
	// tenants share the label value "(others)". Must not be negative. Defaults to 500.
	// +optional
	TenantMetrics *int `json:"tenantMetrics,omitempty"`
	// tracing specifies how the service sends spans to an OpenTelemetry collector, as in
	// kube-apiserver's --tracing-config-file. The service continues the traces of kube-apiserver. If
	// unset, no spans are sent.
	// +optional
	Tracing *tracingv1.TracingConfiguration `json:"tracing,omitempty"`
}

// Limits specifies the limits of requests to kubetenant-webhook.
type Limits struct {
	// concurrent specifies the maximum number of concurrent requests of each kind: authentication,
	// authorization, mutation and validation. Must be at least 1. Defaults to 256.
	// +optional
	Concurrent *int `json:"concurrent,omitempty"`
	// queued specifies the maximum number of waiting requests of each kind. The tenants with waiting
	// requests are served in turn. Further requests get status 429. Must not be negative. Defaults to
	// 1024.
	// +optional
	Queued *int `json:"queued,omitempty"`
	// timeout specifies the maximum duration of a request, including the time that it waits.
	// kube-apiserver waits 30s for reviews, and for admission as long as the webhook configuration
	// specifies. Must be a positive duration. Defaults to 10s.
	// +optional
	Timeout *metav1.Duration `json:"timeout,omitempty"`
	// bodyBytes specifies the maximum length, in bytes, of the body of a request. An AdmissionReview
	// can contain an object twice. Must be at least 1024. Defaults to 8388608.
	// +optional
	BodyBytes *int64 `json:"bodyBytes,omitempty"`
}
