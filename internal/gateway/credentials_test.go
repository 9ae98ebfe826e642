// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"errors"
	"testing"

	"k8s.io/client-go/rest"

	configv1alpha1 "github.com/kubetenant/kubetenant/config/v1alpha1"
)

// TestRenewLosesToAReload: a kubeconfig that has changed brings no configuration back that
// another has replaced meanwhile.
func TestRenewLosesToAReload(t *testing.T) {
	g := &Gateway{}
	before, now := &generation{settings: &configv1alpha1.Settings{}}, &generation{settings: &configv1alpha1.Settings{}}
	g.current.Store(now)
	if renewed, err := g.renew(t.Context(), before); renewed || err != nil || g.current.Load() != now {
		t.Errorf("one that is replaced: %v, %v", renewed, err)
	}
	if renewed, err := g.renew(t.Context(), now); renewed || !errors.Is(err, errNoSection) { // which it was made of
		t.Errorf("the one in force is not made anew: %v, %v", renewed, err)
	}
}

// TestCheckCredential: what would tell the gateway's credentials to others, or let others be
// the cluster, is refused.
func TestCheckCredential(t *testing.T) {
	for what, c := range map[string]struct {
		config rest.Config
		want   error
	}{
		"https":      {rest.Config{Host: "https://a"}, nil},
		"http":       {rest.Config{Host: "http://a"}, errPlain},
		"no scheme":  {rest.Config{Host: "a:443"}, errServer},
		"nothing":    {rest.Config{}, errServer},
		"any server": {rest.Config{Host: "https://a", TLSClientConfig: rest.TLSClientConfig{Insecure: true}}, errInsecure},
		"impersonated": {
			rest.Config{Host: "https://a", Impersonate: rest.ImpersonationConfig{UserName: "root"}}, errImpersonates,
		},
	} {
		if _, err := checkCredential(&c.config); !errors.Is(err, c.want) || (err == nil) != (c.want == nil) {
			t.Errorf("%s: %v, want %v", what, err, c.want)
		}
	}
}
