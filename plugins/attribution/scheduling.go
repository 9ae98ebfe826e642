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

// What YuniKorn reads of a Pod (yunikorn-k8shim pkg/common/constants, 1.7).
const (
	applicationLabel      = "yunikorn.apache.org/app-id"
	olderApplicationLabel = "applicationId"
	queueLabel            = "queue"
	queueAnnotation       = "yunikorn.apache.org/queue"
)

// Scheduling hands the pods of tenants to a scheduler of YuniKorn's kind.
type Scheduling struct {
	SchedulerName string
	// Queue of pods that name none; "{tenant}" and "{namespace}" are replaced. Empty names none.
	Queue string
}

// schedule puts into a new Pod of a tenant what the scheduler expects.
func (p *plugin) schedule(
	ctx context.Context, a admission.Attributes, is metav1.Object, o admission.ObjectInterfaces,
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
	labels := maps.Clone(is.GetLabels())
	if labels == nil {
		labels = map[string]string{}
	}
	if labels[applicationLabel] == "" {
		labels[applicationLabel] = labels[olderApplicationLabel]
	}
	if labels[applicationLabel] == "" {
		labels[applicationLabel] = generated(a.GetNamespace())
	}
	if labels[olderApplicationLabel] == "" {
		labels[olderApplicationLabel] = labels[applicationLabel]
	}
	if s.Queue != "" && labels[queueLabel] == "" && is.GetAnnotations()[queueAnnotation] == "" {
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

// queueOf is the queue of a tenant's pods in a namespace, empty where none is configured.
func (s *Scheduling) queueOf(owner tenant.ID, namespace string) string {
	return strings.NewReplacer("{tenant}", owner.String(), "{namespace}", namespace).Replace(s.Queue)
}

// checkQueue holds the queues that a Pod of a tenant names, where an update changes them: the
// configured one, or one below it; and its application, whose first pod fixes the queue: not that
// of another namespace's pods.
func (p *plugin) checkQueue(ctx context.Context, a admission.Attributes, was, is metav1.Object) error {
	s := p.WorkloadUser.Scheduling
	if s == nil {
		return nil
	}
	for _, named := range []struct {
		where       string
		before, now map[string]string
		key         string
	}{
		{"label", metaLabels(was), is.GetLabels(), queueLabel},
		{"label", metaLabels(was), is.GetLabels(), queueAnnotation},
		{"annotation", metaAnnotations(was), is.GetAnnotations(), queueAnnotation},
		{"label", metaLabels(was), is.GetLabels(), applicationLabel},
		{"label", metaLabels(was), is.GetLabels(), olderApplicationLabel},
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
			if isGenerated(name) && name != generated(a.GetNamespace()) && !owner.IsSystem() {
				return fmt.Errorf("the label %s names the application of pods in another namespace", named.key)
			}
			continue
		}
		own := s.queueOf(owner, a.GetNamespace())
		if own != "" && !owner.IsSystem() && name != own && !strings.HasPrefix(name, own+".") {
			return fmt.Errorf("the %s %s must name the tenant's scheduler queue, %s, or a queue below it",
				named.where, named.key, own)
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

// generatedPrefix and generatedSuffix are those of the applications of pods that name none.
const generatedPrefix, generatedSuffix = "yunikorn-", "-autogen"

func isGenerated(application string) bool {
	return strings.HasPrefix(application, generatedPrefix) && strings.HasSuffix(application, generatedSuffix)
}

// generated is the application of pods that name none, cut to a label's 63 characters.
func generated(namespace string) string {
	const prefix, suffix = generatedPrefix, generatedSuffix
	return prefix + namespace[:min(len(namespace), 63-len(prefix)-len(suffix))] + suffix
}
