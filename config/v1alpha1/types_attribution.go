// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// Attribution configures TenantAttribution, which records the callers that created objects.
type Attribution struct {
	// creator specifies the settings of the annotations kubetenant.dev/creator and
	// kubetenant.dev/on-behalf-of.
	// +optional
	Creator CreatorAttribution `json:"creator,omitempty"`
	// workloadUser specifies the settings of the annotation yunikorn.apache.org/user.info.
	// +optional
	WorkloadUser WorkloadUser `json:"workloadUser,omitempty"`
}

// CreatorAttribution configures the record of creators.
type CreatorAttribution struct {
	// enabled specifies whether the creator of every new object is recorded in annotations. Defaults
	// to true.
	// +optional
	Enabled *bool `json:"enabled,omitempty"`
}

// WorkloadUser configures the annotation yunikorn.apache.org/user.info, which contains the user of
// a pod. The settings are those of YuniKorn's admission controller. Patterns are RE2 patterns and
// must match the whole name, with all prefixes that the server adds. Without
// authentication.qualifyNames, a pattern matches names of every tenant.
type WorkloadUser struct {
	// enabled specifies whether the server adds the annotation to pods and templates of pods, and
	// protects it. Defaults to true.
	// +optional
	Enabled *bool `json:"enabled,omitempty"`
	// bypassAuth specifies whether every caller may set a valid annotation. Defaults to false.
	// +optional
	BypassAuth bool `json:"bypassAuth,omitempty"`
	// trustControllers specifies whether the users in systemUsers may set the annotation. Defaults to
	// true.
	// +optional
	TrustControllers *bool `json:"trustControllers,omitempty"`
	// systemUsers specifies patterns of the names of controllers that create pods. An object that such
	// a controller creates gets the annotation of its owner. The controllers must be users of the
	// system tenant. A configured list extends the default. Defaults to system:kube-controller-manager
	// and the controllers in kube-system that create pods: cronjob, daemon-set, deployment, job,
	// replicaset, replication and statefulset.
	// +optional
	SystemUsers []string `json:"systemUsers"`
	// externalUsers specifies patterns of the names of users that may set the annotation. Must not
	// match reserved names. The annotation must not contain reserved names. Defaults to none.
	// +optional
	ExternalUsers []string `json:"externalUsers,omitempty"`
	// externalGroups specifies patterns of groups whose members may set the annotation. Must not match
	// reserved names. The annotation must not contain reserved names. Defaults to none.
	// +optional
	ExternalGroups []string `json:"externalGroups,omitempty"`
	// foreign specifies how a new object with the annotation of another user is handled if the caller
	// may not impersonate that user: Refuse or Restamp. For example, the object comes from an exported
	// manifest or from a Job of another user's CronJob. Defaults to Restamp.
	// +optional
	Foreign ForeignUser `json:"foreign,omitempty"`
	// scheduling specifies settings that assign the pods of tenants to a scheduler that reads the
	// annotation. If unset, the scheduler of pods is not changed.
	// +optional
	Scheduling *WorkloadScheduling `json:"scheduling,omitempty"`
}

// ForeignUser specifies how a new object with the annotation of another user is handled.
//
// +kubebuilder:validation:Enum=Refuse;Restamp
type ForeignUser string

const (
	// ForeignRefuse denies the object.
	ForeignRefuse ForeignUser = "Refuse"
	// ForeignRestamp replaces the user in the annotation with the caller and returns a warning.
	ForeignRestamp ForeignUser = "Restamp"
)

// WorkloadScheduling specifies the scheduler and the queue of the pods of tenants.
type WorkloadScheduling struct {
	// schedulerName specifies the scheduler of pods that do not name a scheduler. Defaults to
	// yunikorn.
	// +optional
	SchedulerName string `json:"schedulerName,omitempty"`
	// queue specifies the queue of pods that do not name a queue. {tenant} and {namespace} are
	// replaced with the names of the tenant and the namespace. Defaults to no queue.
	// +optional
	Queue string `json:"queue,omitempty"`
}
