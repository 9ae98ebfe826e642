// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package keystone_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"time"

	"github.com/kubetenant/kubetenant/authn/keystone"
	"github.com/kubetenant/kubetenant/tenant"
)

// A token without the form of a Keystone token belongs to another source. It is not sent to
// Keystone.
func ExampleLooksLike() {
	fmt.Println(keystone.LooksLike("0123456789abcdef0123456789abcdef"))
	fmt.Println(keystone.LooksLike("abcdef.0123456789abcdef"))
	// Output:
	// true
	// false
}

// Open calls Keystone with the credential from a clouds.yaml. The user's domain is the tenant.
func ExampleOpen() {
	const token = "0123456789abcdef0123456789abcdef"
	// This is a minimal Keystone.
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Method == http.MethodPost:
			w.Header().Set("X-Subject-Token", "own")
			w.WriteHeader(http.StatusCreated)
			_, _ = fmt.Fprint(w, `{"token":{"expires_at":"2100-01-01T00:00:00Z"}}`)
		case r.Header.Get("X-Subject-Token") == token:
			_, _ = fmt.Fprint(w,
				`{"token":{"expires_at":"2100-01-01T00:00:00.000000Z","audit_ids":["x"],
				"user":{"id":"u","name":"alice","domain":{"id":"d","name":"acme"}},
				"project":{"id":"p","name":"web","domain":{"id":"d","name":"acme"}},"roles":[{"id":"r","name":"member"}]}}`)
		default:
			w.WriteHeader(http.StatusNotFound)
		}
	}))
	defer server.Close()
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = os.RemoveAll(dir) }()
	path := filepath.Join(dir, "clouds.yaml")
	clouds := "clouds: { kube: { auth: { username: kubetenant, password: a-password, user_domain_name: Default, " +
		"system_scope: all } } }\n"
	if err := os.WriteFile(path, []byte(clouds), 0o600); err != nil {
		fmt.Println(err)
		return
	}
	options := keystone.Options{AuthURL: server.URL, Scopes: keystone.ScopeProject, TTL: time.Minute}
	users, _, err := keystone.Open(path, "kube", options, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	response, ok, err := users.AuthenticateToken(context.Background(), token)
	if !ok || err != nil {
		fmt.Println(ok, err)
		return
	}
	fmt.Println(response.User.GetName(), response.User.GetGroups(), response.User.GetExtra()[tenant.ExtraKey])
	// Output:
	// alice [project:web role-id:p:r role:web:member] [acme]
}
