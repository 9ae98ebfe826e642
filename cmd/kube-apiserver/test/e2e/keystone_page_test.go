// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/kubetenant/kubetenant/test/idp"
	"github.com/kubetenant/kubetenant/test/waittest"
)

// syncedSource is the configuration of a source that synchronizes projects and roles from Keystone.
const syncedSource = `
  - name: openstack
    tenants: [acme, globex]
    groupsPrefix: "keystone:"
    keystone:
      authURL: %s
      cloud: kube
      cloudsFile: %s
      sync: { interval: 10s, roles: { member: edit, reader: view } }
`

// keystoneSteps returns the changes to make before each session of docs/tasks/keystone.md. turnOn
// enables the source.
func keystoneSteps(t *testing.T, k *idp.Keystone, domain idp.Domain, turnOn func() error) []keystoneStep {
	t.Helper()
	const namespaces = "get namespaces -l kubetenant.dev/tenant=acme -o name"
	annotations := "get namespaces -l kubetenant.dev/tenant=acme -o jsonpath={.items[*].metadata.annotations}"
	web := "acme--web-" + domain.Project[:8]
	return []keystoneStep{
		{},
		{turnOn, "get rolebindings -o name -n " + web, "keystone:project:", ""},
		{
			func() error {
				_, err := k.Make(t.Context(), "/projects", "project", map[string]any{"name": "shop", "domain_id": domain.ID})
				return err
			},
			namespaces, "acme--shop-", "",
		},
		{
			func() error {
				role, err := k.RoleID(t.Context(), "member")
				if err == nil {
					err = k.Assign(t.Context(), "/projects/"+domain.Project, domain.User, "reader")
				}
				if err != nil {
					return err
				}
				return k.Do(t.Context(), "", http.MethodDelete,
					"/projects/"+domain.Project+"/users/"+domain.User+"/roles/"+role, nil, nil)
			},
			"get rolebindings -o jsonpath={.items[*].roleRef.name} -n " + web, "view", "edit",
		},
		{
			func() error {
				return k.Do(t.Context(), "", http.MethodDelete, "/projects/"+domain.Project, nil, nil)
			},
			annotations, "missingSince", "",
		},
	}
}

// keystoneStep is a change in Keystone or in the configuration. The server has observed the change
// if the output of kubectl contains want and does not contain absent. If absent is empty, it is not
// checked.
type keystoneStep struct {
	change             func() error
	args, want, absent string
}

// startKeystone starts a real Keystone with the domain acme. It also returns the configuration of a
// source that synchronizes with this Keystone.
func startKeystone(t *testing.T, dir string) (k *idp.Keystone, domain idp.Domain, source string) {
	t.Helper()
	if os.Getenv("KUBETENANT_IDP") == "" {
		t.Skip("make test-idp runs it")
	}
	k, err := idp.StartKeystone(t.Context(), filepath.Join(dir, "keystone"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(k.Stop)
	if domain, err = k.MakeDomain(t.Context(), "acme"); err != nil {
		t.Fatal(err)
	}
	clouds, err := k.MakeValidator(t.Context())
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "clouds.yaml"), clouds, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	return k, domain, fmt.Sprintf(syncedSource, k.URL, filepath.Join(dir, "clouds.yaml"))
}

// TestKeystonePage checks that the console sessions of docs/tasks/keystone.md show the output of a
// server that synchronizes with a real Keystone. If UPDATE_GOLDEN is set, it updates the page.
func TestKeystonePage(t *testing.T) {
	dir := t.TempDir()
	k, domain, source := startKeystone(t, dir)
	root, err := filepath.Abs("../../../..")
	if err != nil {
		t.Fatal(err)
	}
	s := startServer(t, nil)
	sh := commandsIn(t, s, root, dir)
	config := filepath.Join(dir, "tenancy.yaml")
	writeFile(t, config, readFile(t, config)+source)
	steps := keystoneSteps(t, k, domain, func() error {
		s.write(t, "tenancy.yaml", s.read(t, "tenancy.yaml")+source)
		return nil
	})
	checkSessions(t, filepath.Join(root, "docs/tasks/keystone.md"), sh, func() {
		if len(steps) == 0 {
			t.Fatal("the page has more sessions than steps")
		}
		steps[0].do(t, s)
		steps = steps[1:]
	}, normalizeIDs)
	if len(steps) > 0 {
		t.Errorf("%d steps have no session", len(steps))
	}
}

// TestKeystoneWebhook checks that the controller synchronizes with a real Keystone if
// kube-apiserver is unmodified, and that it creates the Tenant. It checks the deployment modes
// webhook and gateway.
func TestKeystoneWebhook(t *testing.T) {
	for name, text := range map[string]string{
		"webhook": "authorization: { subject: { fromGroups: true } }\nauthentication:\n  sources:",
		"gateway": "authentication:\n  sources:\n  - { name: certs, x509: { clientCAFile: pki/ca.crt } }",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k, domain, source := startKeystone(t, t.TempDir())
			text = "apiVersion: kubetenant.dev/v1alpha1\nkind: TenancyConfiguration\n" + text +
				strings.Replace(source, "roles:", "createTenants: true, roles:", 1)
			if name == "gateway" {
				_, clusters, _ := strings.Cut(gatewayTenancy, "  clusters:\n")
				text += "gateway:\n  clusters:\n" + clusters
			}
			s := startServer(t, map[string]string{"tenancy.yaml": text}, "--"+name)
			steps := keystoneSteps(t, k, domain, func() error { return nil })
			for i := range steps {
				steps[i].do(t, s)
			}
		})
	}
}

// do makes the change, and waits until the server has observed it.
func (step *keystoneStep) do(t *testing.T, s *server) {
	t.Helper()
	if step.change == nil {
		return
	}
	if err := step.change(); err != nil {
		t.Fatal(err)
	}
	// The server reads Keystone every 10 seconds. The controller must first become the leader.
	waittest.Within(t, time.Minute, func() error {
		out, _ := s.kubectl(t, "admin", strings.Fields(step.args)...)
		if !strings.Contains(out, step.want) || step.absent != "" && strings.Contains(out, step.absent) {
			return fmt.Errorf("kubectl %s prints %s, want %s without %q", step.args, out, step.want, step.absent)
		}
		return nil
	})
}

var (
	keystoneID = regexp.MustCompile(`\b[0-9a-f]{32}\b`)
	nameEnd    = regexp.MustCompile(`(acme--[a-z]+)-[0-9a-f]{8}\b`)
)

// normalizeIDs is like [normalize], but also replaces each Keystone ID and the end of each
// project's namespace name. The first ID in the output becomes 111..., the second becomes
// 222..., and so on.
func normalizeIDs(text string) string {
	ids := map[string]string{}
	text = keystoneID.ReplaceAllStringFunc(text, func(id string) string {
		if ids[id] == "" {
			ids[id] = strings.Repeat(fmt.Sprint(len(ids)+1), len(id))
		}
		return ids[id]
	})
	return normalize(nameEnd.ReplaceAllString(text, "${1}-1a2b3c4d"))
}
