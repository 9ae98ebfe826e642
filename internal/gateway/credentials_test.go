// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"errors"
	"testing"

	"k8s.io/client-go/rest"

	configv1alpha1 "github.com/kubetenant/kubetenant/config/v1alpha1"
)

// TestFileChangeKeepsNewerConfiguration checks that a changed file does not restore a
// configuration that was replaced in the meantime.
func TestFileChangeKeepsNewerConfiguration(t *testing.T) {
	g := &Gateway{}
	before, now := &snapshot{settings: &configv1alpha1.Settings{}}, &snapshot{settings: &configv1alpha1.Settings{}}
	g.current.Store(now)
	if renewed, err := g.renew(t.Context(), before); renewed || err != nil || g.current.Load() != now {
		t.Errorf("a replaced snapshot: %v, %v", renewed, err)
	}
	if renewed, err := g.renew(t.Context(), now); renewed || !errors.Is(err, errNoSection) { // empty settings
		t.Errorf("the current snapshot was not built again: %v, %v", renewed, err)
	}
}

// TestCheckCredential checks that a kubeconfig is rejected if it would reveal the gateway's
// credentials, or let another server act as the cluster.
func TestCheckCredential(t *testing.T) {
	for what, c := range map[string]struct {
		config rest.Config
		want   error
	}{
		"https":      {rest.Config{Host: "https://a"}, nil},
		"http":       {rest.Config{Host: "http://a"}, errNoTLS},
		"no scheme":  {rest.Config{Host: "a:443"}, errServer},
		"nothing":    {rest.Config{}, errServer},
		"any server": {rest.Config{Host: "https://a", TLSClientConfig: rest.TLSClientConfig{Insecure: true}}, errInsecure},
		"impersonated": {
			rest.Config{Host: "https://a", Impersonate: rest.ImpersonationConfig{UserName: "root"}}, errImpersonates,
		},
	} {
		t.Run(what, func(t *testing.T) {
			if _, err := checkCredential(&c.config); !errors.Is(err, c.want) || (err == nil) != (c.want == nil) {
				t.Errorf("%v, want %v", err, c.want)
			}
		})
	}
}
