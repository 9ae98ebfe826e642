package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	tracingv1 "k8s.io/component-base/tracing/api/v1"
)

// Service configures kubetenant-webhook; of tenantMetrics, kube-apiserver with
// tenants compiled in too.
type Service struct {
	// apiAudiences are kube-apiserver's (--api-audiences, or else its --service-account-issuer):
	// tokens of sources that know no audience are for these. Default: https://kubernetes.default.svc
	// and https://kubernetes.default.svc.cluster.local.
	// +optional
	APIAudiences []string `json:"apiAudiences"`
	// limits bound the requests of each kind: authentication, authorization, mutation and validation
	// do not take each other's room.
	// +optional
	Limits Limits `json:"limits,omitempty"`
	// staleAfter is how old what is known of the cluster may be: kube-apiserver is asked every two
	// seconds whether it still answers, and where it does not for so long, or a watch is not
	// established again, tenants' callers are denied. After half of it the service is not ready any
	// more. At least 10s. Default: 10s.
	// +optional
	StaleAfter *metav1.Duration `json:"staleAfter,omitempty"`
	// drain is how long the service goes on answering after it was told to stop, not ready any more,
	// so that callers find another replica. Default: 10s.
	// +optional
	Drain *metav1.Duration `json:"drain,omitempty"`
	// tenantMetrics is how many tenants have metrics of their own; further ones are counted together
	// as "(others)". Default: 500.
	// +optional
	TenantMetrics *int `json:"tenantMetrics,omitempty"`
	// tracing sends spans to an OpenTelemetry collector, as kube-apiserver's --tracing-config-file
	// does. Traces that kube-apiserver began go on. Default: none are sent.
	// +optional
	Tracing *tracingv1.TracingConfiguration `json:"tracing,omitempty"`
}

// Limits bound requests.
type Limits struct {
	// concurrent requests of one kind. Default: 256.
	// +optional
	Concurrent *int `json:"concurrent,omitempty"`
	// queued requests of one kind, which wait for turns, one of each tenant; more are answered 429.
	// Default: 1024.
	// +optional
	Queued *int `json:"queued,omitempty"`
	// timeout of one request, in the queue and out of it. kube-apiserver waits for 30s on reviews,
	// and on admission as long as the webhook configuration says. Default: 10s.
	// +optional
	Timeout *metav1.Duration `json:"timeout,omitempty"`
	// bodyBytes bounds a request's body. An AdmissionReview holds an object twice. Default: 8388608.
	// +optional
	BodyBytes *int64 `json:"bodyBytes,omitempty"`
}
