// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package placement_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubetenant/kubetenant/plugins"
	"github.com/kubetenant/kubetenant/plugins/placement"
)

// TestTolerationsOfTheCluster checks that a tenant may send the toleration that the cluster adds,
// also with a shorter duration. A toleration for more taints or with a longer duration is denied.
func TestTolerationsOfTheCluster(t *testing.T) {
	p := newPlugin(&placement.TenantRules{Rules: plugins.Rules{}, Cluster: placement.Cluster{Defaults: placement.Defaults{
		Tolerations: []corev1.Toleration{tolerates(corev1.TolerationOpExists, corev1.TaintEffectNoExecute, new(int64(60)))},
	}}})
	for name, c := range map[string]struct {
		is     corev1.Toleration
		passes bool
	}{
		"the same":         {tolerates(corev1.TolerationOpExists, corev1.TaintEffectNoExecute, new(int64(60))), true},
		"shorter":          {tolerates(corev1.TolerationOpExists, corev1.TaintEffectNoExecute, new(int64(0))), true},
		"longer":           {tolerates(corev1.TolerationOpExists, corev1.TaintEffectNoExecute, new(int64(61))), false},
		"forever":          {tolerates(corev1.TolerationOpExists, corev1.TaintEffectNoExecute, nil), false},
		"another operator": {tolerates("Lt", corev1.TaintEffectNoExecute, new(int64(60))), false},
		"all effects":      {tolerates(corev1.TolerationOpExists, "", nil), false},
	} {
		t.Run(name, func(t *testing.T) {
			pod := podOf(func(s *corev1.PodSpec) { s.Tolerations = []corev1.Toleration{c.is} })
			if err := p.Validate(t.Context(), write{kind: "Pod", obj: pod}.attributes(), nil); (err == nil) != c.passes {
				t.Errorf("%v", err)
			}
		})
	}
}

func tolerates(operator corev1.TolerationOperator, effect corev1.TaintEffect, seconds *int64) corev1.Toleration {
	return corev1.Toleration{
		Key:               "maintenance",
		Operator:          operator,
		Effect:            effect,
		TolerationSeconds: seconds,
	}
}
