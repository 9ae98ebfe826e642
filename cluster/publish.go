// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"maps"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	applycorev1 "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/kubernetes"
	coreclient "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/klog/v2"

	configv1alpha1 "github.com/kubetenant/kubetenant/config/v1alpha1"
	"github.com/kubetenant/kubetenant/internal/version"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

// publishEvery is the interval at which [PublishConfiguration] checks for a new configuration, and
// retries a failed write.
const publishEvery = 5 * time.Second

// PublishConfiguration writes the result of effective to the ConfigMap
// [configv1alpha1.PublishedName] of a namespace until ctx ends. If several servers publish, the
// ConfigMap has the configuration that was written last. Each server also writes its own entry,
// which shows whether the servers have different configurations. The client must be allowed to get
// and patch the ConfigMap, and to create it if no other program creates it.
func PublishConfiguration(
	ctx context.Context,
	client kubernetes.Interface,
	namespace, replica string,
	effective func() (*configv1alpha1.Published, error),
) {
	name := strings.Map(func(r rune) rune {
		if strings.ContainsRune("-._", r) || r < utf8.RuneSelf && (unicode.IsLetter(r) || unicode.IsDigit(r)) {
			return r
		}
		return '-' // r is not allowed in a key of a ConfigMap
	}, replica)
	self := configv1alpha1.Replica{Name: name, Version: version.Version()}
	p := &publisher{client: client, namespace: namespace, replica: self}
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		now, err := effective()
		if err != nil { // for example, a file is being written
			klog.FromContext(ctx).V(2).Info("Failed to read the configuration to publish, will retry", "err", err)
			return
		}
		if err := p.publish(ctx, now); err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).Info("Failed to publish the configuration, will retry. Until then, kubectl tenant needs "+
				"--config",
				"err", err)
		}
	}, publishEvery)
}

// publisher publishes the configuration of one server.
type publisher struct {
	client    kubernetes.Interface
	namespace string
	replica   configv1alpha1.Replica
	written   *corev1.ConfigMap
}

// publish writes a configuration if it differs from the configuration that it wrote last.
func (p *publisher) publish(ctx context.Context, now *configv1alpha1.Published) error {
	object, err := now.ConfigMap(p.namespace)
	if err != nil || p.written != nil && maps.Equal(p.written.Data, object.Data) {
		return err
	}
	if _, err := p.apply(ctx, v1alpha1.FieldManager, object.Data); err != nil {
		return err
	}
	p.replica.Hash, p.replica.Since = now.Hash, metav1.Now()
	own, err := p.replica.Data()
	if err != nil {
		return err
	}
	// Each server has its own field manager, so that it does not remove the entries of other servers.
	stored, err := p.apply(ctx, v1alpha1.FieldManager+"-replica-"+p.replica.Name, own)
	if err != nil {
		return err
	}
	p.written = object
	if surplus := configv1alpha1.SurplusReplicas(stored); surplus != nil {
		_, err = p.client.CoreV1().ConfigMaps(p.namespace).Patch(ctx, configv1alpha1.PublishedName, types.MergePatchType,
			surplus, metav1.PatchOptions{FieldManager: v1alpha1.FieldManager})
	}
	return err
}

func (p *publisher) apply(ctx context.Context, manager string, data map[string]string) (*corev1.ConfigMap, error) {
	if len(manager) > maxManager {
		manager = manager[:maxManager]
	}
	return p.client.CoreV1().ConfigMaps(p.namespace).Apply(ctx,
		applycorev1.ConfigMap(configv1alpha1.PublishedName, p.namespace).WithData(data),
		metav1.ApplyOptions{FieldManager: manager, Force: true})
}

// maxManager is the maximum length of a field manager (k8s.io/apimachinery
// pkg/apis/meta/v1/validation, v0.37.1).
const maxManager = 128

// PublishedConfiguration returns the published configuration from the first of the given namespaces
// in which the ConfigMap can be read. If the ConfigMap cannot be read in any namespace, it returns
// the last error from the client. If the ConfigMap is invalid, the error wraps
// [configv1alpha1.ErrNotPublished].
func PublishedConfiguration(
	ctx context.Context, client coreclient.ConfigMapsGetter, namespaces ...string,
) (p *configv1alpha1.Published, err error) {
	for _, namespace := range namespaces {
		var object *corev1.ConfigMap
		object, err = client.ConfigMaps(namespace).Get(ctx, configv1alpha1.PublishedName, metav1.GetOptions{})
		if err == nil {
			return configv1alpha1.PublishedIn(object)
		}
	}
	return nil, err
}
