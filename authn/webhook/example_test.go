// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package webhook_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"

	authenticationv1 "k8s.io/api/authentication/v1"

	"github.com/kubetenant/kubetenant/authn/webhook"
	"github.com/kubetenant/kubetenant/tenant"
)

// Open uses a custom TokenReview service. In this example, an extra in its responses names the
// tenant.
func ExampleOpen() {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var review authenticationv1.TokenReview
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		review.Status = authenticationv1.TokenReviewStatus{
			Authenticated: review.Spec.Token == "a-secret-of-alice",
			Audiences:     review.Spec.Audiences,
			User: authenticationv1.UserInfo{
				Username: "alice",
				Extra:    map[string]authenticationv1.ExtraValue{"example.com/org": {"acme"}},
			},
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(review)
	}))
	defer server.Close()
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = os.RemoveAll(dir) }()
	path := filepath.Join(dir, "kubeconfig")
	kubeconfig := "apiVersion: v1\nkind: Config\nclusters: [ { name: c, cluster: { server: " + server.URL + " } } ]\n" +
		"users: [ { name: u } ]\ncontexts: [ { name: x, context: { cluster: c, user: u } } ]\ncurrent-context: x\n"
	if err := os.WriteFile(path, []byte(kubeconfig), 0o600); err != nil {
		fmt.Println(err)
		return
	}
	service, err := webhook.Open(path,
		webhook.Options{Audiences: []string{"kubernetes"}, Tenant: webhook.Extra("example.com/org")}, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, token := range []string{"a-secret-of-alice", "a-guess"} {
		response, ok, err := service.AuthenticateToken(context.Background(), token)
		if ok {
			fmt.Println(response.User.GetName(), response.User.GetExtra()[tenant.ExtraKey])
			continue
		}
		fmt.Println(ok, err != nil)
	}
	// Output:
	// alice [acme]
	// false true
}
