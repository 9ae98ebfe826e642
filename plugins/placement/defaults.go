// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubetenant/kubetenant/plugins"
)

func (d *Defaults) isEmpty() bool {
	return len(d.NodeSelector)+len(d.Tolerations) == 0 && d.SchedulerName == ""
}

// apply adds the defaults to a Pod. Values of the Pod take precedence, except that the default
// scheduler of Kubernetes is replaced.
func (d *Defaults) apply(s *corev1.PodSpec) {
	if len(d.NodeSelector) > 0 {
		selector := make(map[string]string, len(d.NodeSelector)+len(s.NodeSelector))
		for _, from := range []map[string]string{d.NodeSelector, s.NodeSelector} {
			for key, value := range from {
				selector[key] = value
			}
		}
		s.NodeSelector = selector
	}
	for _, t := range d.Tolerations {
		if !slices.ContainsFunc(
			s.Tolerations,
			func(existing corev1.Toleration) bool { return existing.MatchToleration(&t) },
		) {
			s.Tolerations = append(slices.Clone(s.Tolerations), t)
		}
	}
	if d.SchedulerName != "" && (s.SchedulerName == "" || s.SchedulerName == corev1.DefaultSchedulerName) {
		s.SchedulerName = d.SchedulerName
	}
}

// Cluster contains the values that the plugins, policies and webhooks of the cluster add to Pods.
type Cluster struct {
	Defaults
	RuntimeClassName, PriorityClassName string
}

// clusterFields are the fields that a Cluster can have.
var clusterFields = []string{"nodeSelector", "tolerations", "schedulerName", "runtimeClassName", "priorityClassName"}

// contains reports whether the cluster adds this item. A toleration may have a shorter duration.
func (c *Cluster) contains(name string, i item) bool {
	switch name {
	case "tolerations":
		toleration, _ := i.element.(corev1.Toleration)
		return slices.ContainsFunc(c.Tolerations, func(t corev1.Toleration) bool {
			one := Defaults{Tolerations: []corev1.Toleration{t}}
			return one.contains(name, i) && (t.Effect == "" || t.Effect == toleration.Effect) &&
				cmp.Or(t.Operator, corev1.TolerationOpEqual) == cmp.Or(toleration.Operator, corev1.TolerationOpEqual) &&
				(t.TolerationSeconds == nil ||
					toleration.TolerationSeconds != nil && *toleration.TolerationSeconds <= *t.TolerationSeconds)
		})
	case "runtimeClassName":
		return c.RuntimeClassName != "" && i.key == c.RuntimeClassName
	case "priorityClassName":
		return c.PriorityClassName != "" && i.key == c.PriorityClassName
	}
	return c.Defaults.contains(name, i)
}

// contains reports whether the item equals a default. It compares only the key and the value of a
// toleration.
func (d *Defaults) contains(name string, i item) bool {
	switch name {
	case "nodeSelector":
		value, ok := d.NodeSelector[i.key]
		return ok && value == *i.value
	case "tolerations":
		return slices.ContainsFunc(d.Tolerations, func(t corev1.Toleration) bool {
			items := tolerations(&corev1.PodSpec{Tolerations: []corev1.Toleration{t}})
			return len(items) == 1 && items[0].key == i.key && valueOrEmpty(items[0].value) == valueOrEmpty(i.value) &&
				(items[0].value == nil) == (i.value == nil)
		})
	case "schedulerName":
		return d.SchedulerName != "" && i.key == d.SchedulerName
	}
	return false
}

var errDefaultRequired = errors.New("must have the tenant's default value, because its pods run only on its own nodes")

// check denies a new Pod that does not have the tenant's node selector.
func (d *Defaults) check(s *corev1.PodSpec) error {
	if len(d.NodeSelector) == 0 {
		return nil // most tenants have none, and sorting allocates
	}
	var errs plugins.Errors
	for _, key := range slices.Sorted(maps.Keys(d.NodeSelector)) {
		if s.NodeSelector[key] != d.NodeSelector[key] {
			errs.Add(fmt.Errorf("spec.nodeSelector[%s]: %w", key, errDefaultRequired))
		}
	}
	return errs.Err()
}
