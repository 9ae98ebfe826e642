// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package issuer_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kubernetes/pkg/apis/core"
	"k8s.io/kubernetes/pkg/serviceaccount"

	"github.com/kubetenant/kubetenant/cmd/kube-apiserver/issuer"
	"github.com/kubetenant/kubetenant/tenant"
)

// allObjects is a fake getter. Every requested object exists.
type allObjects struct{}

func (allObjects) GetServiceAccount(context.Context, string, string) (*corev1.ServiceAccount, error) {
	return &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{UID: "u"}}, nil
}

func (allObjects) GetPod(context.Context, string, string) (*corev1.Pod, error) {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "p"}}, nil
}

func (allObjects) GetSecret(context.Context, string, string) (*corev1.Secret, error) {
	return &corev1.Secret{}, nil
}

func (allObjects) GetNode(context.Context, string) (*corev1.Node, error) { return &corev1.Node{}, nil }

func (allObjects) GetValidatingWebhookConfiguration(
	context.Context, string,
) (*admissionregistrationv1.ValidatingWebhookConfiguration, error) {
	return nil, errors.New("none")
}

func (allObjects) GetMutatingWebhookConfiguration(
	context.Context, string,
) (*admissionregistrationv1.MutatingWebhookConfiguration, error) {
	return nil, errors.New("none")
}

// TestIssuer checks that an issued token has the claims of upstream's token and the tenant.
// Upstream's own authenticator must accept the token, because other servers of the cluster use it.
func TestIssuer(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	const iss = "https://kubernetes.default.svc"
	next, err := serviceaccount.JWTTokenGenerator(iss, key)
	if err != nil {
		t.Fatal(err)
	}
	getter, err := serviceaccount.StaticPublicKeysGetter([]any{key})
	if err != nil {
		t.Fatal(err)
	}
	theirs := serviceaccount.JWTTokenAuthenticator([]string{iss}, getter, []string{iss},
		serviceaccount.NewValidator(allObjects{}))
	down := errors.New("down")
	owners := map[string]error{"a--web": nil, "unowned": fmt.Errorf("%w: no owner", tenant.ErrInvalid), "unknown": down}
	i := issuer.New(next, func(_ context.Context, namespace string) (tenant.ID, error) {
		if err := owners[namespace]; err != nil {
			return tenant.ID{}, err
		}
		return tenant.Parse("a")
	})
	for namespace, ownerErr := range owners {
		t.Run(namespace, func(t *testing.T) {
			// The claim warnafter is a number. Upstream adds it to Pods' tokens whose lifetime
			// upstream extends.
			public, private, err := serviceaccount.Claims(core.ServiceAccount{
				ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "robot", UID: "u"},
			},
				&core.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", UID: "p"}}, nil, nil, nil, nil, 31536000, 3607,
				[]string{iss}, nil)
			if err != nil {
				t.Fatal(err)
			}
			token, err := i.GenerateToken(t.Context(), public, private)
			if errors.Is(ownerErr, down) {
				if err == nil {
					t.Error("token issued although the owner is unknown")
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if _, ok, err := theirs.AuthenticateToken(t.Context(), token); !ok {
				t.Errorf("upstream's authenticator rejects the token: %v", err)
			}
			plain, err := next.GenerateToken(t.Context(), public, private)
			if err != nil {
				t.Fatal(err)
			}
			got, want := members(t, token), members(t, plain)
			if ownerErr == nil {
				want[tenant.ExtraKey] = "a"
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s", diff)
			}
		})
	}
}

func members(t *testing.T, token string) map[string]any {
	t.Helper()
	data, err := base64.RawURLEncoding.DecodeString(strings.Split(token, ".")[1])
	if err != nil {
		t.Fatal(err)
	}
	m := map[string]any{}
	if err := json.Unmarshal(data, &m); err != nil {
		t.Fatal(err)
	}
	return m
}
