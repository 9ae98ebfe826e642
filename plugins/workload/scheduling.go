// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"fmt"

	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// scheduled are the kinds for which the Job controller creates groups of Pods, with the field that
// configures the groups.
var scheduled = map[schema.GroupKind]string{
	{Group: batchv1.GroupName, Kind: "CronJob"}: "spec.jobTemplate.spec.scheduling",
	{Group: batchv1.GroupName, Kind: "Job"}:     "spec.scheduling",
}

// Scheduling returns the configuration of the groups of Pods that a controller creates for a Job or
// a CronJob, and its path. The content is nil if there is none, and MUST NOT be changed. If
// Scheduling returns an error, the object MUST be denied.
func (o *Object) Scheduling() (path string, content map[string]any, err error) {
	switch is := o.typed.(type) {
	case *batchv1.CronJob:
		return jobScheduling("CronJob", is.Spec.JobTemplate.Spec.Scheduling)
	case *batchv1.Job:
		return jobScheduling("Job", is.Spec.Scheduling)
	}
	u, is := o.stored.(runtime.Unstructured)
	if !is {
		return "", nil, nil
	}
	path, ok := scheduled[u.GetObjectKind().GroupVersionKind().GroupKind()]
	if !ok {
		return "", nil, nil
	}
	content, _, err = unstructured.NestedMap(u.UnstructuredContent(), split(path)...)
	if err != nil {
		return "", nil, fmt.Errorf("%w: %w", errTemplate, err)
	}
	return path, content, nil
}

func jobScheduling(kind string, config *batchv1.JobSchedulingConfiguration) (string, map[string]any, error) {
	path := scheduled[schema.GroupKind{Group: batchv1.GroupName, Kind: kind}]
	if config == nil {
		return path, nil, nil
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(config)
	return path, content, err
}
