// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

// Package issuer adds the tenant to the tokens that a server issues for service accounts.
package issuer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"gopkg.in/go-jose/go-jose.v2/jwt"
	apiserverserviceaccount "k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/kubernetes/pkg/serviceaccount"

	"github.com/kubetenant/kubetenant/tenant"
)

// New returns a generator that adds the tenant of the service account to the tokens of next.
// tenantOf returns the tenant of the service accounts in a namespace. After the owner of the
// namespace has changed, the tenant in the token is wrong and the token is invalid.
//
// If the error from tenantOf wraps [tenant.ErrInvalid], the namespace is unowned, and the token
// contains no tenant. This server rejects the token, but another audience may accept it. After
// any other error, no token is issued.
func New(
	next serviceaccount.TokenGenerator, tenantOf func(ctx context.Context, namespace string) (tenant.ID, error),
) serviceaccount.TokenGenerator {
	return &issuer{next, tenantOf}
}

type issuer struct {
	next   serviceaccount.TokenGenerator
	tenant func(ctx context.Context, namespace string) (tenant.ID, error)
}

// GenerateToken implements [serviceaccount.TokenGenerator].
func (i *issuer) GenerateToken(ctx context.Context, public *jwt.Claims, private any) (string, error) {
	namespace, _, err := apiserverserviceaccount.SplitUsername(public.Subject)
	if err != nil {
		return "", fmt.Errorf("issue a token: %w", err)
	}
	id, err := i.tenant(ctx, namespace)
	switch {
	case errors.Is(err, tenant.ErrInvalid):
		return i.next.GenerateToken(ctx, public, private)
	case err != nil:
		return "", fmt.Errorf("issue a token: %w", err)
	}
	claims, err := membersOf(private)
	if err != nil {
		return "", fmt.Errorf("issue a token: %w", err)
	}
	claims[tenant.ExtraKey] = id.String()
	return i.next.GenerateToken(ctx, public, claims)
}

// membersOf returns the JSON members of private claims. Upstream does not export their struct type.
// The values are [json.RawMessage], because upstream's encoder is a copy of encoding/json that
// would encode a json.Number as a string.
func membersOf(private any) (map[string]any, error) {
	data, err := json.Marshal(private)
	if err != nil {
		return nil, err
	}
	members := map[string]json.RawMessage{}
	if err := json.Unmarshal(data, &members); err != nil {
		return nil, err
	}
	claims := make(map[string]any, len(members)+1)
	for name, value := range members {
		claims[name] = value
	}
	return claims, nil
}
