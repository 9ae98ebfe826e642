// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package attribution

import (
	"context"
	"fmt"
	"maps"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apiserver/pkg/admission"

	"github.com/kubetenant/kubetenant/plugins"
	"github.com/kubetenant/kubetenant/tenant"
)

// The labels and the annotation that YuniKorn reads from a Pod (yunikorn-k8shim
// pkg/common/constants, 1.7).
const (
	applicationLabel      = "yunikorn.apache.org/app-id"
	olderApplicationLabel = "applicationId"
	queueLabel            = "queue"
	queueAnnotation       = "yunikorn.apache.org/queue"
)

// Scheduling assigns the Pods of tenants to a scheduler such as YuniKorn.
type Scheduling struct {
	SchedulerName string
	// Queue is the queue of Pods that do not name a queue. "{tenant}" and "{namespace}" are
	// replaced with the tenant and the namespace of the Pod. If empty, the Pods get no queue.
	Queue string
}

// setScheduling sets the scheduler name, the application and the queue of a tenant's new Pod.
func (p *plugin) setScheduling(
	ctx context.Context, a admission.Attributes, obj metav1.Object, o admission.ObjectInterfaces,
) error {
	s := p.WorkloadUser.Scheduling
	if s == nil {
		return nil
	}
	owner, err := p.Owner(ctx, a.GetNamespace())
	if err != nil || owner.IsSystem() {
		return err
	}
	pod, err := p.Kinds.Read(a.GetObject(), a.GetKind(), o)
	if err != nil || pod == nil {
		return err
	}
	spec := pod.Templates[0].Spec
	if spec.SchedulerName == "" || spec.SchedulerName == corev1.DefaultSchedulerName {
		spec.SchedulerName = s.SchedulerName
	}
	labels := maps.Clone(obj.GetLabels())
	if labels == nil {
		labels = map[string]string{}
	}
	if labels[applicationLabel] == "" {
		labels[applicationLabel] = labels[olderApplicationLabel]
	}
	if labels[applicationLabel] == "" {
		labels[applicationLabel] = generatedApplication(a.GetNamespace())
	}
	if labels[olderApplicationLabel] == "" {
		labels[olderApplicationLabel] = labels[applicationLabel]
	}
	if s.Queue != "" && labels[queueLabel] == "" && obj.GetAnnotations()[queueAnnotation] == "" {
		queue := s.queueOf(owner, a.GetNamespace())
		if len(queue) <= validation.LabelValueMaxLength {
			labels[queueLabel] = queue
		} else {
			plugins.SetAnnotation(pod.Templates[0].Meta, queueAnnotation, &queue)
		}
	}
	pod.Templates[0].Meta.Labels = labels
	return pod.Write()
}

// queueOf returns the queue of a tenant's Pods in a namespace, or "" if none is configured.
func (s *Scheduling) queueOf(owner tenant.ID, namespace string) string {
	return strings.NewReplacer("{tenant}", owner.String(), "{namespace}", namespace).Replace(s.Queue)
}

// checkQueue checks the queue and the application of a tenant's Pod if a write sets or changes
// them. The queue must be the configured queue or a queue below it. The application must not be
// the generated application of another namespace, because an application has the queue of its
// first Pod.
func (p *plugin) checkQueue(ctx context.Context, a admission.Attributes, old, obj metav1.Object) error {
	s := p.WorkloadUser.Scheduling
	if s == nil {
		return nil
	}
	for _, named := range []struct {
		where       string
		before, now map[string]string
		key         string
	}{
		{"label", metaLabels(old), obj.GetLabels(), queueLabel},
		{"label", metaLabels(old), obj.GetLabels(), queueAnnotation},
		{"annotation", metaAnnotations(old), obj.GetAnnotations(), queueAnnotation},
		{"label", metaLabels(old), obj.GetLabels(), applicationLabel},
		{"label", metaLabels(old), obj.GetLabels(), olderApplicationLabel},
	} {
		name := named.now[named.key]
		if name == "" || name == named.before[named.key] {
			continue
		}
		owner, err := p.Owner(ctx, a.GetNamespace())
		if err != nil {
			return err
		}
		if named.key == applicationLabel || named.key == olderApplicationLabel {
			if isGeneratedApplication(name) && name != generatedApplication(a.GetNamespace()) && !owner.IsSystem() {
				return fmt.Errorf("the label %s names the application of pods in another namespace", named.key)
			}
			continue
		}
		tenantQueue := s.queueOf(owner, a.GetNamespace())
		if tenantQueue != "" && !owner.IsSystem() && name != tenantQueue && !strings.HasPrefix(name, tenantQueue+".") {
			return fmt.Errorf("the %s %s must name the tenant's scheduler queue, %s, or a queue below it",
				named.where, named.key, tenantQueue)
		}
	}
	return nil
}

func metaLabels(m metav1.Object) map[string]string {
	if m == nil {
		return nil
	}
	return m.GetLabels()
}

func metaAnnotations(m metav1.Object) map[string]string {
	if m == nil {
		return nil
	}
	return m.GetAnnotations()
}

// generatedPrefix and generatedSuffix enclose the namespace in the name of a generated application.
const generatedPrefix, generatedSuffix = "yunikorn-", "-autogen"

func isGeneratedApplication(application string) bool {
	return strings.HasPrefix(application, generatedPrefix) && strings.HasSuffix(application, generatedSuffix)
}

// generatedApplication returns the application of Pods that do not name one. The namespace is cut
// so that the result fits into the 63 characters of a label value.
func generatedApplication(namespace string) string {
	const prefix, suffix = generatedPrefix, generatedSuffix
	return prefix + namespace[:min(len(namespace), 63-len(prefix)-len(suffix))] + suffix
}
