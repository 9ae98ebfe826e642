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

// Objects reads the objects to which tokens are bound, like upstream's ServiceAccountTokenGetter
// (k8s.io/kubernetes pkg/serviceaccount/jwt.go, v1.37.1). If an object does not exist, the error
// MUST be an apierrors.IsNotFound error.
type Objects interface {
	GetServiceAccount(ctx context.Context, namespace, name string) (*corev1.ServiceAccount, error)
	GetPod(ctx context.Context, namespace, name string) (*corev1.Pod, error)
	GetSecret(ctx context.Context, namespace, name string) (*corev1.Secret, error)
	GetNode(ctx context.Context, name string) (*corev1.Node, error)
}

// The labels of Secrets with legacy tokens (k8s.io/kubernetes pkg/serviceaccount/legacy.go,
// v1.37.1).
const (
	// invalidSince is the label of a Secret whose token is no longer valid.
	invalidSince = "kubernetes.io/legacy-token-invalid-since"
	// LastUsed is the label with the day of the last use of the token. Kube-controller-manager
	// invalidates tokens that were not used for a long time.
	LastUsed = "kubernetes.io/legacy-token-last-used"
)

// Today returns the value of the label LastUsed for the given time.
func Today(now time.Time) string { return now.UTC().Format(time.DateOnly) }

// checkBoundObjects checks the service account and the objects to which the token is bound.
func (i *identity) checkBoundObjects(ctx context.Context) error {
	namespace := i.claims.namespace()
	objects := i.a.o.Objects
	name, uid := i.claims.LegacyName, i.claims.LegacyUID
	if k := i.claims.Kubernetes; !i.claims.isLegacy() {
		name, uid = k.Account.Name, k.Account.UID
	}
	account, err := objects.GetServiceAccount(ctx, namespace, name)
	if err := i.checkObject("ServiceAccount", account, uid, err); err != nil {
		return err
	}
	if i.claims.isLegacy() {
		return i.checkLegacy(ctx)
	}
	k := i.claims.Kubernetes
	if k.Secret != nil {
		secret, err := objects.GetSecret(ctx, namespace, k.Secret.Name)
		if err := i.checkObject("Secret", secret, k.Secret.UID, err); err != nil {
			return err
		}
	}
	switch {
	case k.Pod != nil: // the node of the pod is not checked, as in upstream
		pod, err := objects.GetPod(ctx, namespace, k.Pod.Name)
		return i.checkObject("Pod", pod, k.Pod.UID, err)
	case k.Node != nil:
		node, err := objects.GetNode(ctx, k.Node.Name)
		return i.checkObject("Node", node, k.Node.UID, err)
	}
	return nil
}

// checkLegacy rejects a legacy token if its Secret contains another token, is marked as invalid,
// or is being deleted.
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
	if i.a.o.OnLegacyTokenUsed != nil && secret.Labels[LastUsed] != Today(i.a.o.Now()) {
		i.a.o.OnLegacyTokenUsed(ctx, secret)
	}
	return nil
}

// checkObject rejects an object that does not exist, has another UID, or is past its deletion time.
func (i *identity) checkObject(kind string, object metav1.Object, uid string, err error) error {
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
