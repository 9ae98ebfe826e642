// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// FairUse specifies the limits and the priority level for the requests from one tenant's
// callers. Each server applies the limits separately. Requests above a limit get status 429 with
// the header Retry-After. The limits do not apply to callers of the system tenant. With the
// webhook service behind an unmodified kube-apiserver, only the level applies.
type FairUse struct {
	// level specifies the priority level of the tenant's requests. In a kube-apiserver with
	// kubetenant, API Priority and Fairness treats the tenant's callers as members of the group
	// kubetenant:level:<level>. A FlowSchema for this group assigns the requests to a
	// PriorityLevelConfiguration. On an unmodified kube-apiserver, the level selects the
	// PriorityLevelConfiguration kubetenant-<level> if the controller maintains FlowSchemas.
	// kubetenant-gateway ignores the level. Defaults to no level.
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	// +optional
	Level string `json:"level,omitempty"`
	// requestsPerSecond specifies the average number of requests in each second that a server accepts
	// for the tenant. Must be between 1 and 100000. If unset, the rate has no limit.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100000
	// +optional
	RequestsPerSecond *int32 `json:"requestsPerSecond,omitempty"`
	// burst specifies the number of requests that a server accepts for the tenant in a burst.
	// Afterwards, requestsPerSecond limits the rate. It has no effect without requestsPerSecond.
	// Must be between 1 and 1000000. Defaults to four times requestsPerSecond.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000000
	// +optional
	Burst *int32 `json:"burst,omitempty"`
	// inFlight specifies the maximum number of concurrent requests from the tenant at each
	// server. It includes requests that wait for API Priority and Fairness, but no watches or
	// other streams. Must be between 1 and 100000. If unset, the number has no limit. In the
	// configuration of kubetenant-gateway, it defaults to 64.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100000
	// +optional
	InFlight *int32 `json:"inFlight,omitempty"`
	// watches specifies the maximum number of concurrent watches and other streams from the
	// tenant at each server. Other streams are logs, exec, attach, port-forward and proxies.
	// Must be between 1 and 1000000. If unset, the number has no limit. In the configuration of
	// kubetenant-gateway, it defaults to 200.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000000
	// +optional
	Watches *int32 `json:"watches,omitempty"`
}
