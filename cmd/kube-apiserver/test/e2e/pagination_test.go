// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"encoding/base64"
	"fmt"
	"math/rand/v2"
	"regexp"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/kubetenant/kubetenant/test/waittest"
)

// searches returns the paths of requests whose responses could reveal whether another tenant has an
// object with a certain name.
func searches() []string {
	token := base64.RawURLEncoding.EncodeToString([]byte(`{"v":"meta.k8s.io/v1","rv":1,"start":"globex--shop/a"}`))
	var all []string
	for _, path := range []string{"/api/v1/configmaps", "/api/v1/namespaces"} {
		for _, query := range []string{
			"limit=1", "limit=2", "limit=3", "limit=1&labelSelector=kubetenant.dev/tenant%3Dacme", "limit=1&resourceVersion=0",
			"limit=1&fieldSelector=metadata.namespace!%3Dacme--web", "limit=1&fieldSelector=metadata.name%3Dzz", "Limit=1",
			"limit=1&limit=1",
			"continue=" + token, "limit=1&continue=" + token,
		} {
			all = append(all, path+"?"+query)
		}
	}
	return append(all, "/api/v1/namespaces/globex--shop/configmaps/zz",
		"/api/v1/namespaces/globex--shop/configmaps?limit=1", "/api/v1/namespaces/nowhere/configmaps?limit=1")
}

// changing matches the part of a response that changes with every write, even of an unrelated
// object.
var changing = regexp.MustCompile(`"resourceVersion":"[0-9]+"`)

// TestContinueRevealsNothing checks that a tenant cannot infer from responses whether another
// tenant's object exists. The guesses that the test derives from the responses must be no better
// than chance. The system tenant's guesses must be better, which shows that the test detects a
// difference.
func TestContinueRevealsNothing(t *testing.T) {
	t.Parallel()
	s := startServer(t, nil)
	s.prepare(t)
	acme, globex, root := s.client(t, "acme"), s.client(t, "globex"),
		s.client(t, "admin")
	waittest.Until(t, func() error {
		_, err := acme.CoreV1().ConfigMaps("").List(t.Context(), metav1.ListOptions{})
		return err
	})
	for caller, c := range map[string]struct {
		client *kubernetes.Clientset
		found  bool
	}{"tenant": {acme, false}, "system tenant": {root, true}} {
		t.Run(caller, func(t *testing.T) {
			const rounds = 64
			for _, search := range searches() {
				if caller == "system tenant" && search != "/api/v1/configmaps?limit=1&fieldSelector=metadata.name%3Dzz" {
					continue
				}
				hits, seen := 0, map[string][2]int{} // counts per response: without and with the object
				for range rounds {
					coin := rand.IntN(2)
					if err := setForeign(t.Context(), globex, coin == 1); err != nil {
						t.Fatal(err)
					}
					body, err := c.client.RESTClient().Get().RequestURI(search).DoRaw(t.Context())
					answer := fmt.Sprint(changing.ReplaceAllString(string(body), ""), err)
					guess := rand.IntN(2)
					if counts := seen[answer]; counts[0] != counts[1] {
						guess = 0
						if counts[1] > counts[0] {
							guess = 1
						}
					}
					if guess == coin {
						hits++
					}
					counts := seen[answer]
					counts[coin]++
					seen[answer] = counts
				}
				// With 64 random guesses, the probability of at least 49 hits is 1 in 80,000
				// (binomial distribution).
				if found := hits >= 49; found != c.found {
					t.Errorf("%s, %s: %d of %d guessed, %d different answers", caller, search, hits, rounds, len(seen))
				}
			}
		})
	}
}

// setForeign creates or deletes the object of the other tenant.
func setForeign(ctx context.Context, k *kubernetes.Clientset, exists bool) error {
	maps := k.CoreV1().ConfigMaps("globex--shop")
	if exists {
		_, err := maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "zz"}}, metav1.CreateOptions{})
		if apierrors.IsAlreadyExists(err) {
			return nil
		}
		return err
	}
	err := maps.Delete(ctx, "zz", metav1.DeleteOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
