// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"encoding/json"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"

	"github.com/kubetenant/kubetenant/authn/serviceaccount"
)

// LegacyTokenUsed returns a function for [serviceaccount.Options].OnLegacyTokenUsed. The function
// sets the label [serviceaccount.LastUsed] on the Secret of a legacy token to the current date, as
// kube-apiserver does.
func LegacyTokenUsed(client kubernetes.Interface) func(context.Context, *corev1.Secret) {
	return func(ctx context.Context, secret *corev1.Secret) {
		patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
			"uid":    secret.UID,
			"labels": map[string]string{serviceaccount.LastUsed: serviceaccount.Today(time.Now())},
		}})
		if err == nil {
			_, err = client.CoreV1().Secrets(secret.Namespace).
				Patch(ctx, secret.Name, types.MergePatchType, patch, metav1.PatchOptions{})
		}
		if err != nil {
			klog.FromContext(ctx).Error(err, "Failed to label the Secret of a legacy token",
				"namespace", secret.Namespace, "name", secret.Name)
		}
	}
}
