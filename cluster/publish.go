package cluster

import (
	"context"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	applycorev1 "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"

	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

// publishEvery is how soon a new configuration is published, and how often one that could not be is tried again.
const publishEvery = 5 * time.Second

// PublishConfiguration keeps the ConfigMap [v1alpha1.PublishedName] of a namespace as effective says, until ctx ends. Of
// several servers the last one whose configuration changed has written it. The client needs get and patch of it, and
// create where nobody else makes it.
func PublishConfiguration(ctx context.Context, client kubernetes.Interface, namespace string, effective func() (*v1alpha1.Published, error)) {
	var written *corev1.ConfigMap
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		p, err := effective()
		if err != nil { // a file that is just being written
			klog.FromContext(ctx).V(2).Info("The configuration is not published yet", "err", err)
			return
		}
		object, err := p.ConfigMap(namespace)
		if err == nil && written != nil && maps.Equal(written.Data, object.Data) {
			return
		}
		if err == nil {
			_, err = client.CoreV1().ConfigMaps(namespace).Apply(ctx, applycorev1.ConfigMap(object.Name, namespace).WithData(object.Data),
				metav1.ApplyOptions{FieldManager: v1alpha1.FieldManager, Force: true})
		}
		if err != nil {
			if ctx.Err() == nil {
				klog.FromContext(ctx).Info("The configuration is not published: kubectl tenant needs --config until it is", "err", err)
			}
			return
		}
		written = object
	}, publishEvery)
}

// PublishedConfiguration returns what a server published in one of some namespaces. The error is the client's, or wraps
// [v1alpha1.ErrNotPublished].
func PublishedConfiguration(ctx context.Context, client kubernetes.Interface, namespaces ...string) (p *v1alpha1.Published, err error) {
	for _, namespace := range namespaces {
		var object *corev1.ConfigMap
		if object, err = client.CoreV1().ConfigMaps(namespace).Get(ctx, v1alpha1.PublishedName, metav1.GetOptions{}); err == nil {
			return v1alpha1.PublishedIn(object)
		}
	}
	return nil, err
}
