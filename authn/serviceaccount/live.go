// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package serviceaccount

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Objects reads the objects that tokens are bound to, as upstream's ServiceAccountTokenGetter does
// (k8s.io/kubernetes pkg/serviceaccount/jwt.go, v1.37.1). It answers an apierrors.IsNotFound error
// for what does not exist.
type Objects interface {
	GetServiceAccount(ctx context.Context, namespace, name string) (*corev1.ServiceAccount, error)
	GetPod(ctx context.Context, namespace, name string) (*corev1.Pod, error)
	GetSecret(ctx context.Context, namespace, name string) (*corev1.Secret, error)
	GetNode(ctx context.Context, name string) (*corev1.Node, error)
}

// Labels of the Secrets of legacy tokens (k8s.io/kubernetes pkg/serviceaccount/legacy.go, v1.37.1).
const (
	// invalidSince says that the token counts no longer.
	invalidSince = "kubernetes.io/legacy-token-invalid-since"
	// LastUsed is the day on which the token was last used: kube-controller-manager invalidates those
	// that are not.
	LastUsed = "kubernetes.io/legacy-token-last-used"
)

// Today is the value of LastUsed at a time.
func Today(now time.Time) string { return now.UTC().Format(time.DateOnly) }

// check looks at every object that the token is bound to.
func (i *identity) check(ctx context.Context) error {
	namespace, objects := i.claims.namespace(), i.a.o.Objects
	name, uid := i.claims.LegacyName, i.claims.LegacyUID
	if k := i.claims.Kubernetes; !i.claims.legacy() {
		name, uid = k.Account.Name, k.Account.UID
	}
	account, err := objects.GetServiceAccount(ctx, namespace, name)
	if err := i.same("ServiceAccount", account, uid, err); err != nil {
		return err
	}
	if i.claims.legacy() {
		return i.checkLegacy(ctx)
	}
	k := i.claims.Kubernetes
	if k.Secret != nil {
		secret, err := objects.GetSecret(ctx, namespace, k.Secret.Name)
		if err := i.same("Secret", secret, k.Secret.UID, err); err != nil {
			return err
		}
	}
	switch {
	case k.Pod != nil: // its node is told, and not looked at, as upstream has it
		pod, err := objects.GetPod(ctx, namespace, k.Pod.Name)
		return i.same("Pod", pod, k.Pod.UID, err)
	case k.Node != nil:
		node, err := objects.GetNode(ctx, k.Node.Name)
		return i.same("Node", node, k.Node.UID, err)
	}
	return nil
}

// checkLegacy holds a legacy token against the Secret that it stands in.
func (i *identity) checkLegacy(ctx context.Context) error {
	secret, err := i.a.o.Objects.GetSecret(ctx, i.claims.LegacyNamespace, i.claims.LegacySecret)
	if err != nil {
		return lookupError("Secret", err)
	}
	sum := sha256.Sum256(secret.Data[corev1.ServiceAccountTokenKey])
	switch _, marked := secret.Labels[invalidSince]; {
	case secret.DeletionTimestamp != nil:
		return fmt.Errorf("%w: Secret", ErrGone)
	case subtle.ConstantTimeCompare(sum[:], i.sum[:]) == 0, marked:
		return ErrInvalidated
	}
	if i.a.o.Used != nil && secret.Labels[LastUsed] != Today(i.a.o.Now()) {
		i.a.o.Used(ctx, secret)
	}
	return nil
}

// same refuses an object that is not there, is another of the same name, or is past its deletion.
func (i *identity) same(kind string, object metav1.Object, uid string, err error) error {
	switch {
	case err != nil:
		return lookupError(kind, err)
	case string(object.GetUID()) != uid || uid == "":
		return fmt.Errorf("%w: another %s has this name now", ErrGone, kind)
	case object.GetDeletionTimestamp() != nil && object.GetDeletionTimestamp().Time.Before(i.a.o.Now()):
		return fmt.Errorf("%w: %s", ErrGone, kind)
	}
	return nil
}

func lookupError(kind string, err error) error {
	if apierrors.IsNotFound(err) {
		return fmt.Errorf("%w: %s", ErrGone, kind)
	}
	return fmt.Errorf("%w: %s", ErrLookup, kind) // the client's error may name objects
}
