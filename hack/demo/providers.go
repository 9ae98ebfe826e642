// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/kubetenant/kubetenant/authn/authntest"
	"github.com/kubetenant/kubetenant/test/idp"
)

// issuerSource is added to the configuration file of the running server, which then reloads the
// file.
const issuerSource = `  # The demo's OpenID provider: the claim org is the tenant.
  - name: corp
    tenants: [acme, globex]
    oidc:
      jwt:
        issuer: { url: %q, audiences: [kubernetes], certificateAuthority: %q }
        claimMappings: { username: { claim: sub, prefix: "" }, groups: { claim: groups, prefix: "" } }
      tenant: { claim: org }
`

// addIssuer starts an OpenID provider and configures the server to trust it. Both tenants have a
// user carol at this provider.
func (d *demo) addIssuer(ctx context.Context) error {
	key, err := authntest.NewKey("ES256")
	if err != nil {
		return err
	}
	issuer := authntest.NewIssuer(key)
	d.ends = append(d.ends, issuer.Close)
	if err := d.addSource(fmt.Sprintf(issuerSource, issuer.URL(), issuer.CA())); err != nil {
		return err
	}
	for name, more := range map[string]map[string]any{
		"acme-oidc":    {"org": "acme"},
		"globex-oidc":  {"org": "globex"},
		"masters-oidc": {"org": "globex", "groups": []string{"system:masters"}},
	} {
		claims := map[string]any{
			"iss": issuer.URL(),
			"aud": "kubernetes",
			"sub": "carol",
			"exp": time.Now().Add(24 * time.Hour).Unix(),
		}
		for claim, value := range more {
			claims[claim] = value
		}
		if err := d.writeKubeconfig(name, clientcmdapi.AuthInfo{Token: key.MustSign(claims)}); err != nil {
			return err
		}
	}
	return d.retry(ctx, "acme-oidc", "", words("auth whoami"))
}

func (d *demo) addSource(text string) error {
	path := filepath.Join(d.server.Dir, "tenancy.yaml")
	before, err := os.ReadFile(path) // #nosec G304 -- in the demo's own directory
	if err != nil {
		return err
	}
	// #nosec G703 -- in the demo's own directory
	if err := os.WriteFile(path+".new", append(before, text...), 0o600); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

const keystoneSource = `  # OpenStack: the domain of the user is the tenant.
  - { name: openstack, tenants: [acme, globex, hooli], groupsPrefix: "keystone:",
      keystone: { authURL: %q, cloud: kube, cloudsFile: %q,
        sync: { interval: 10s, roles: { member: edit, reader: view }, createTenants: true } } }
`

// addKeystone starts a real Keystone with the domains acme, globex, initech and hooli. Each domain
// has a user alice. The server trusts this Keystone. addKeystone returns requests to send, and a
// demonstration of a project's lifecycle.
func (d *demo) addKeystone(ctx context.Context) ([]request, *projectWalk, error) {
	_, _ = fmt.Fprintln(d.out, "starting Keystone with the domains acme, globex, initech and hooli ...")
	dir := filepath.Join(d.server.Dir, "keystone")
	k, err := idp.StartKeystone(ctx, dir)
	if err != nil {
		return nil, nil, err
	}
	d.ends = append(d.ends, k.Stop)
	clouds, err := k.MakeValidator(ctx)
	if err != nil {
		return nil, nil, err
	}
	file := filepath.Join(dir, "clouds.yaml")
	if err := os.WriteFile(file, clouds, 0o600); err != nil {
		return nil, nil, err
	}
	walk := &projectWalk{demo: d, keystone: k}
	for _, domain := range []string{"acme", "globex", "initech", "hooli"} {
		created, err := k.MakeDomain(ctx, domain)
		if err != nil {
			return nil, nil, err
		}
		if domain == projectDomain {
			walk.domain = created
		}
		for name, scope := range map[string]any{"-keystone": idp.Project("web", domain), "-unscoped": nil} {
			token, err := k.Token(ctx, domain, "alice", scope)
			if err != nil {
				return nil, nil, err
			}
			if err := d.writeKubeconfig(domain+name, clientcmdapi.AuthInfo{Token: token}); err != nil {
				return nil, nil, err
			}
		}
	}
	if err := d.addSource(fmt.Sprintf(keystoneSource, k.URL, file)); err != nil {
		return nil, nil, err
	}
	return keystoneRequests, walk, d.retry(ctx, "acme-keystone", "", words("auth whoami"))
}

var keystoneRequests = []request{
	{
		"acme's alice",
		"Keystone, project web",
		"acme-keystone",
		// Skip groups[1] and groups[2]: they contain IDs that differ in each run of the demo.
		words("auth whoami -o jsonpath={.status.userInfo.username},{.status.userInfo.groups[0]}," +
			"{.status.userInfo.groups[3:]}"),
		"",
		"answered",
		"alice,keystone:project:web,keystone:role:web:member keystone:role:web:reader tenant:acme " +
			"system:authenticated",
	},
	{
		"acme's alice",
		"Keystone, project web",
		"acme-keystone",
		words("get configmap hello -n acme--web -o jsonpath={.data.of}"),
		"",
		"answered",
		"acme",
	},
	{
		"globex's alice",
		"Keystone, project web",
		"globex-keystone",
		words("get configmap hello -n acme--web"),
		"",
		"403",
		"",
	},
	{
		"globex's alice",
		"Keystone, project web",
		"globex-keystone",
		words("get ns -o name"),
		"",
		"answered",
		"namespace/globex--shop",
	},
	{"acme's alice", "Keystone, unscoped", "acme-unscoped", words("get ns"), "", "401", ""},
	{"initech's alice", "Keystone, project web", "initech-keystone", words("get ns"), "", "401", ""},
}
