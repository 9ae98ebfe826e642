// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package placement_test

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/kubetenant/kubetenant/plugins/workload"
)

// clusterScoped are the cluster-scoped kinds. No tenant's caller may write them.
var clusterScoped = []string{
	"CSIDriver.storage.k8s.io", "CSINode.storage.k8s.io", "ClusterRole.rbac.authorization.k8s.io",
	"DeviceClass.resource.k8s.io", "DeviceTaintRule.resource.k8s.io", "FlowSchema.flowcontrol.apiserver.k8s.io",
	"MutatingAdmissionPolicy.admissionregistration.k8s.io",
	"MutatingAdmissionPolicyBinding.admissionregistration.k8s.io",
	"MutatingWebhookConfiguration.admissionregistration.k8s.io", "Node",
	"PersistentVolume", "PriorityClass.scheduling.k8s.io", "ResourcePoolStatusRequest.resource.k8s.io",
	"ResourceSlice.resource.k8s.io", "RuntimeClass.node.k8s.io", "SelfSubjectAccessReview.authorization.k8s.io",
	"StorageClass.storage.k8s.io", "SubjectAccessReview.authorization.k8s.io",
	"ValidatingAdmissionPolicy.admissionregistration.k8s.io",
	"ValidatingAdmissionPolicyBinding.admissionregistration.k8s.io",
	"ValidatingWebhookConfiguration.admissionregistration.k8s.io", "VolumeAttachment.storage.k8s.io",
}

// kindLeaves contains the leaves of the built-in namespaced kinds whose names [schedules] matches.
// A path that ends with a dot includes all leaves below it. lookUp defines the name TEMPLATE.
var kindLeaves = map[string]map[string]fieldRule{
	"CSIStorageCapacity.storage.k8s.io": {
		"nodeTopology":     because("TestStorageCapacity shows that no tenant writes it"),
		"storageClassName": because("TestStorageCapacity shows that no tenant writes it"),
	},
	"CompositePodGroup.scheduling.k8s.io": {
		"spec.priorityClassName":                    rule("priorityClassName"),
		"spec.schedulingConstraints.topology[].key": rule("topologySpread"),
		"spec.priority":                             because("the server's Priority plugin computes it"),
		"spec.preemptionPolicy":                     because("the server's Priority plugin computes it"),
		"spec.schedulingPolicy.":                    because("counts groups of the group"),
	},
	"CronJob.batch": {
		"spec.jobTemplate.spec.scheduling.schedulingConstraints.topology[].key": rule("topologySpread"),
		"spec.jobTemplate.spec.scheduling.schedulingPolicy.":                    because("counts Pods of the group"),
		"spec.jobTemplate.spec.scheduling.resourceClaims[].":                    because("names claims of the namespace"),
		"spec.schedule":                        because("a time"),
		"spec.timeZone":                        because("a time"),
		"spec.jobTemplate.spec.selector":       because("selects Pods of the same namespace"),
		"spec.jobTemplate.spec.manualSelector": because("selects Pods of the same namespace"),
	},
	"DaemonSet.apps": {
		"spec.selector": because("selects Pods of the same namespace"),
	},
	"Deployment.apps": {
		"spec.selector": because("selects Pods of the same namespace"),
	},
	"EndpointSlice.discovery.k8s.io": {
		"endpoints[].": because("routes the clients of a Service"),
	},
	"Endpoints": {
		"subsets[].addresses[].nodeName":         because("routes the clients of a Service"),
		"subsets[].notReadyAddresses[].nodeName": because("routes the clients of a Service"),
	},
	"HorizontalPodAutoscaler.autoscaling": {
		"spec.metrics[].": because("selects metrics"),
	},
	"Ingress.networking.k8s.io": {
		"spec.ingressClassName": because("TenantPolicy checks it"),
	},
	"Job.batch": {
		"spec.scheduling.schedulingConstraints.topology[].key": rule("topologySpread"),
		"spec.scheduling.schedulingPolicy.":                    because("counts Pods of the group"),
		"spec.scheduling.resourceClaims[].":                    because("names claims of the namespace"),
		"spec.selector":                                        because("selects Pods of the same namespace"),
		"spec.manualSelector":                                  because("selects Pods of the same namespace"),
	},
	"LocalSubjectAccessReview.authorization.k8s.io": {
		"spec.": because("is not stored"),
	},
	"NetworkPolicy.networking.k8s.io": {
		"spec.podSelector": because("selects Pods of the same namespace"),
		"spec.egress[].":   because("restricts traffic of Pods of the same namespace"),
		"spec.ingress[].":  because("restricts traffic of Pods of the same namespace"),
	},
	"PersistentVolumeClaim": {
		"spec.storageClassName":          because("TenantPolicy checks it"),
		"spec.selector":                  because("volumeName: Forbid restricts it"),
		"spec.volumeAttributesClassName": because("changes the volume alone"),
	},
	"PodCertificateRequest.certificates.k8s.io": {
		"spec.nodeName": because("NodeRestriction allows only kubelets"),
		"spec.nodeUID":  because("NodeRestriction allows only kubelets"),
	},
	"PodDisruptionBudget.policy": {
		"spec.selector": because("selects Pods of the same namespace"),
	},
	"PodGroup.scheduling.k8s.io": {
		"spec.priorityClassName":                    rule("priorityClassName"),
		"spec.schedulingConstraints.topology[].key": rule("topologySpread"),
		"spec.priority":                             because("the server's Priority plugin computes it"),
		"spec.preemptionPolicy":                     because("the server's Priority plugin computes it"),
		"spec.schedulingPolicy.":                    because("counts Pods of the group"),
	},
	"ReplicaSet.apps": {
		"spec.selector": because("selects Pods of the same namespace"),
	},
	"ReplicationController": {
		"spec.selector{}": because("selects Pods of the same namespace"),
	},
	"ResourceClaim.resource.k8s.io": {
		"spec.devices.requests[].": because("chooses devices, which TenantQuota limits"),
	},
	"ResourceClaimTemplate.resource.k8s.io": {
		"spec.spec.devices.requests[].": because("chooses devices, which TenantQuota limits"),
	},
	"ResourceQuota": {
		"spec.scopeSelector.": because("limits the same namespace"),
	},
	"Service": {
		"spec.loadBalancerClass":             because("TenantPolicy checks the type of the Service"),
		"spec.allocateLoadBalancerNodePorts": because("TenantPolicy checks the type of the Service"),
		"spec.healthCheckNodePort":           because("TenantPolicy checks the type of the Service"),
		"spec.ports[].nodePort":              because("TenantPolicy checks the type of the Service"),
		"spec.sessionAffinity":               because("concerns the clients of the Service"),
		"spec.sessionAffinityConfig.":        because("concerns the clients of the Service"),
		"spec.selector{}":                    because("selects Pods of the same namespace"),
	},
	"StatefulSet.apps": {
		"spec.volumeClaimTemplates[].spec.storageClassName":          because("TenantPolicy checks it"),
		"spec.volumeClaimTemplates[].spec.selector":                  because("volumeName: Forbid restricts it"),
		"spec.volumeClaimTemplates[].spec.volumeAttributesClassName": because("changes the volume alone"),
		"spec.selector":                       because("selects Pods of the same namespace"),
		"spec.volumeClaimTemplates[].status.": because("the server does not read it"),
	},
	"Workload.scheduling.k8s.io": {
		"TEMPLATE.priorityClassName":                    rule("priorityClassName"),
		"TEMPLATE.priority":                             rule("priorityClassName"),
		"TEMPLATE.schedulingConstraints.topology[].key": rule("topologySpread"),
		"TEMPLATE.preemptionPolicy":                     because("the Priority plugin computes the one of the group"),
		"TEMPLATE.schedulingPolicy.":                    because("counts Pods of the group"),
	},
}

// unserved are versions that have types in client-go but that no server of v1.37 serves.
var unserved = []string{"apps/v1beta1", "apps/v1beta2", "batch/v1beta1", "extensions/v1beta1"}

// lookUp returns the entry of kindLeaves for a leaf, and the path of that entry.
func lookUp(kind, path string) (fieldRule, string) {
	for _, templates := range []string{
		"spec.compositePodGroupTemplates[].podGroupTemplates[]", "spec.compositePodGroupTemplates[]",
		"spec.podGroupTemplates[]",
	} {
		path = strings.Replace(path, templates, "TEMPLATE", 1)
	}
	if k, ok := kindLeaves[kind][path]; ok {
		return k, kind + " " + path
	}
	for entry, k := range kindLeaves[kind] {
		if strings.HasSuffix(entry, ".") && strings.HasPrefix(path, entry) {
			return k, kind + " " + entry
		}
	}
	return fieldRule{}, ""
}

// TestEveryKindIsCovered checks that TenantPlacement reads every built-in kind that contains Pods.
// Each field that selects where Pods run must have a rule, or a reason for having no rule. The test
// fails if a later version of Kubernetes adds a kind or a field.
func TestEveryKindIsCovered(t *testing.T) {
	kinds, unseen := workload.New(nil), map[string]bool{}
	for kind, leaves := range kindLeaves {
		for path := range leaves {
			unseen[kind+" "+path] = true
		}
	}
	of := append(ends(), reflect.TypeFor[corev1.PodSpec](), reflect.TypeFor[corev1.PodTemplateSpec]())
	for kind, typ := range scheme.Scheme.AllKnownTypes() {
		_, ok := typ.FieldByName("ObjectMeta")
		if !ok || slices.Contains(unserved, kind.GroupVersion().String()) ||
			slices.Contains(clusterScoped, kind.GroupKind().String()) {
			continue
		}
		for _, l := range walk(typ, of...) {
			if strings.HasPrefix(l.path, "status") {
				continue
			}
			switch {
			case l.of == reflect.TypeFor[corev1.PodSpec](), l.of == reflect.TypeFor[corev1.PodTemplateSpec]():
				at := strings.Split(l.path, ".")
				if workload.IsPod(kind.GroupKind()) {
					at = nil
				}
				if !slices.ContainsFunc(kinds[kind.GroupKind()], func(path []string) bool { return slices.Equal(path, at) }) {
					t.Errorf("%s: %s contains Pods", kind, l.path)
				}
			case schedules.MatchString(l.path):
				k, entry := lookUp(kind.GroupKind().String(), l.path)
				delete(unseen, entry)
				if entry == "" {
					t.Errorf("%s: %s is not in kindLeaves", kind.GroupKind(), l.path)
				}
				if k.rule != "" {
					checkLeaf(t, kind, typ, l, k.rule)
				}
			}
		}
	}
	if len(unseen) > 0 {
		t.Errorf("no such fields: %q", slices.Sorted(maps.Keys(unseen)))
	}
}

// checkLeaf checks typed and unstructured objects. A write that sets or changes the leaf must be
// denied. An update without a change must be allowed.
func checkLeaf(t *testing.T, kind schema.GroupVersionKind, typ reflect.Type, l leaf, rule string) {
	t.Helper()
	made := reflect.New(typ)
	if spec := made.Elem().FieldByName("Spec"); spec.Kind() == reflect.Struct {
		l.set(made.Elem())
	}
	obj := made.Interface().(runtime.Object)
	obj.GetObjectKind().SetGroupVersionKind(kind)
	empty := reflect.New(typ).Interface().(runtime.Object)
	empty.GetObjectKind().SetGroupVersionKind(kind)
	u, was := &unstructured.Unstructured{}, &unstructured.Unstructured{}
	for to, from := range map[*unstructured.Unstructured]runtime.Object{u: obj, was: empty} {
		content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(from)
		if err != nil {
			t.Fatal(err)
		}
		to.Object = content
	}
	for _, c := range []struct {
		is, was runtime.Object
		passes  bool
	}{{obj, nil, false}, {u, nil, false}, {obj, empty, false}, {u, was, false}, {obj, obj, true}, {u, u, true}} {
		op := admission.Create
		if c.was != nil {
			op = admission.Update
		}
		a := admission.NewAttributesRecord(c.is, c.was, kind, "a--web", "x", schema.GroupVersionResource{}, "", op, nil,
			false, caller("a"))
		if err := plugin(ignoreAllBut("")).Validate(t.Context(), a, nil); err != nil {
			t.Errorf("%s: %s as %T, with every value allowed: %v", kind, l.path, c.is, err)
		}
		got := fmt.Sprint(plugin(ignoreAllBut(rule)).Validate(t.Context(), a, nil))
		path := strings.ReplaceAll(l.path, "[]", "[0]") + ": tenants may not choose"
		if c.passes != (got == "<nil>") || !c.passes && !strings.Contains(got, path) {
			t.Errorf("%s: %s as %T by %s: %s", kind, l.path, c.is, rule, got)
		}
	}
}
