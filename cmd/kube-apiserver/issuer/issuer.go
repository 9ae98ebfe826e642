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

// New returns a generator that adds the tenant of a namespace's service accounts to every token of
// next. A token is therefore invalid after its namespace has another owner.
//
// A token of an unowned namespace (an error that wraps [tenant.ErrInvalid]) contains no tenant. It
// authenticates no caller here, but it may be meant for another audience. If the owner cannot be
// determined, no token is issued.
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

// membersOf returns the JSON members of private claims, which are a struct that upstream does not
// export. The values stay encoded, because upstream's encoder is a copy of encoding/json that would
// encode their numbers as strings.
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
