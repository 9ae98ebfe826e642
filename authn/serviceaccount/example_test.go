// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package serviceaccount_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/kubetenant/kubetenant/authn/authntest"
	"github.com/kubetenant/kubetenant/authn/serviceaccount"
	"github.com/kubetenant/kubetenant/tenant"
)

// The tenant of a service account is the owner of its namespace.
func ExampleNew() {
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = os.RemoveAll(dir) }()
	key, path := authntest.MustKey("ES256"), filepath.Join(dir, "sa.pub")
	if err := key.WriteFile(path); err != nil {
		fmt.Println(err)
		return
	}
	keys, err := serviceaccount.OpenKeys([]string{path}, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	accounts := serviceaccount.New(keys, serviceaccount.Options{
		Issuer: "https://kubernetes.default.svc",
		// In a server, this is the owner lookup of authz.Subjects.
		Owner: func(context.Context, string) (tenant.ID, error) { return tenant.Parse("acme") },
	})
	token := key.MustSign(map[string]any{
		"iss": "https://kubernetes.default.svc",
		"aud": []string{"https://kubernetes.default.svc"},
		"sub": "system:serviceaccount:acme--web:robot",
		"exp": time.Now().Add(time.Hour).Unix(),
		"iat": time.Now().Unix(),
		"nbf": time.Now().Unix(),
		"kubernetes.io": map[string]any{
			"namespace":      "acme--web",
			"serviceaccount": map[string]any{"name": "robot", "uid": "1"},
		},
	})
	response, ok, err := accounts.AuthenticateToken(context.Background(), token)
	if !ok || err != nil {
		fmt.Println(ok, err)
		return
	}
	fmt.Println(response.User.GetName(), response.User.GetExtra()[tenant.ExtraKey])
	// Output:
	// system:serviceaccount:acme--web:robot [acme]
}
