// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kubetenant/kubetenant/authz"
)

const (
	syncedProject   = "0123456789abcdef0123456789abcdef"
	syncedNamespace = "acme--web-01234567"
	syncedDomain    = `{"domain":"d1"}`
	syncedRoles     = `{"domain":"d1","project":"` + syncedProject + `","roles":[{"id":"r1","group":"k:role-id:` +
		syncedProject + `:r1","clusterRole":"edit"}]}`
)

// syncFixture is a Keystone and a cluster for keystone-sync. Tests change the responses.
type syncFixture struct {
	*server
	keystone *httptest.Server
	config   string
	// lists contains the responses of Keystone for each list. objects contains the responses of the
	// cluster for each resource.
	lists, objects map[string]string
	tenant         string // the caller's tenant
	password       string // the password that Keystone accepts
	forbidden      string // the resource that the caller may not list
}

func newSyncFixture(t *testing.T) *syncFixture {
	t.Helper()
	f := &syncFixture{
		tenant:   "system",
		password: "CANARY-password",
		lists: map[string]string{
			"domains":         `[{"id":"d1","name":"acme","enabled":true}]`,
			"roles":           `[{"id":"r1","name":"member","domain_id":null}]`,
			"role_inferences": `[]`,
			"role_assignments": `[{"role":{"id":"r1"},"user":{"id":"u1"},"scope":{"system":{"all":true}}},
				{"role":{"id":"r1"},"user":{"id":"u1"},"scope":{"project":{"id":"` + syncedProject + `"}}}]`,
			"projects": `[{"id":"` + syncedProject + `","name":"web","domain_id":"d1","parent_id":"d1","enabled":true}]`,
		},
		objects: map[string]string{"tenants": syncedTenant(""), "namespaces": ""},
	}
	f.keystone = httptest.NewServer(http.HandlerFunc(f.serveKeystone))
	t.Cleanup(f.keystone.Close)
	f.server = newServer(t, func(next http.Handler) http.Handler {
		return authz.WithRequestState(f.serveCluster(next), nil)
	})
	f.config = syncConfig(t, f.keystone.URL)
	return f
}

// syncConfig returns a TenancyConfiguration with a keystone source that is synchronized.
func syncConfig(t *testing.T, authURL string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"clouds.yaml": `{clouds: {c: {auth: {username: u, password: CANARY-password, user_domain_name: Default, ` +
			`system_scope: all}}}}`,
		"tenancy.yaml": `{apiVersion: kubetenant.dev/v1alpha1, kind: TenancyConfiguration, authentication: ` +
			`{sources: [{name: cloud, tenants: ["*"], groupsPrefix: "k:", keystone: {authURL: "` + authURL +
			`", cloud: c, cloudsFile: clouds.yaml, sync: {roles: {member: edit}}}}]}}`,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return filepath.Join(dir, "tenancy.yaml")
}

func syncedTenant(annotation string) string {
	return fmt.Sprintf(`{"apiVersion":"kubetenant.dev/v1alpha1","kind":"Tenant","metadata":{"name":"acme",`+
		`"annotations":{"kubetenant.dev/keystone":%q}},"spec":{"id":"acme"}}`, annotation)
}

func syncedObject(annotation string) string {
	return fmt.Sprintf(`{"metadata":{"name":%q,"labels":{"kubetenant.dev/tenant":"acme"},`+
		`"annotations":{"kubetenant.dev/keystone":%q}}}`, syncedNamespace, annotation)
}

func (f *syncFixture) serveKeystone(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodPost {
		var login struct {
			Auth struct {
				Identity struct {
					Password struct{ User struct{ Password string } }
				}
			}
		}
		if json.NewDecoder(r.Body).Decode(&login) != nil || login.Auth.Identity.Password.User.Password != f.password {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		w.Header().Set("X-Subject-Token", "CANARY-token")
		w.WriteHeader(http.StatusCreated)
		_, _ = fmt.Fprintf(w, `{"token":{"expires_at":%q}}`, time.Now().Add(time.Hour).UTC().Format(time.RFC3339))
		return
	}
	name := strings.TrimPrefix(r.URL.Path, "/v3/")
	_, _ = fmt.Fprintf(w, `{%q:%s,"links":{"next":null}}`, name, f.lists[name])
}

func (f *syncFixture) serveCluster(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		last := r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:]
		items, known := f.objects[last]
		w.Header().Set("Content-Type", "application/json")
		switch {
		case r.Method == http.MethodGet && last == f.forbidden:
			refuse(w, http.StatusForbidden, "Forbidden")
		case r.Method == http.MethodPost && last == "selfsubjectreviews":
			w.WriteHeader(http.StatusCreated)
			_, _ = fmt.Fprintf(w, `{"kind":"SelfSubjectReview","apiVersion":"authentication.k8s.io/v1","status":{"userInfo":`+
				`{"username":"a","extra":{"kubetenant.dev/tenant":[%q]}}}}`, f.tenant)
		case r.Method == http.MethodGet && known && r.URL.Query().Has("limit"):
			kind, version := "NamespaceList", "v1"
			if last == "tenants" {
				kind, version = "TenantList", "kubetenant.dev/v1alpha1"
			}
			_, _ = fmt.Fprintf(w, `{"kind":%q,"apiVersion":%q,"items":[%s]}`, kind, version, items)
		default:
			w.Header().Del("Content-Type")
			next.ServeHTTP(w, r)
		}
	})
}

// sync runs the command. It checks that the command writes nothing and prints no secret.
func (f *syncFixture) sync(t *testing.T, args ...string) (out string, err error) {
	t.Helper()
	out, err = f.run(t, append([]string{"keystone-sync", "--dry-run", "--config", f.config}, args...)...)
	for request := range f.requests {
		review := strings.HasSuffix(request, "/selfsubjectreviews")
		if !strings.HasPrefix(request, http.MethodGet) && !review {
			t.Errorf("the command sent %s", request)
		}
	}
	if text := fmt.Sprint(out, err); strings.Contains(text, "CANARY") || strings.ContainsRune(text, '\x1b') {
		t.Errorf("a secret or a control character: %q", text)
	}
	return out, err
}

// TestKeystoneSyncPrintsChanges checks that each change is one row, in each format.
func TestKeystoneSyncPrintsChanges(t *testing.T) {
	f := newSyncFixture(t)
	out, err := f.sync(t)
	if err != nil {
		t.Fatal(err)
	}
	var rows []string
	for line := range strings.Lines(out) {
		rows = append(rows, strings.Join(strings.Fields(line), " "))
	}
	if want := []string{
		"TENANT ACTION NAME REASON",
		"acme update Tenant acme the domain d1 maps to the tenant",
		"acme create namespace " + syncedNamespace + " Keystone has project " + syncedProject,
	}; !slices.Equal(rows, want) {
		t.Errorf("%q; want %q", rows, want)
	}
	for format, want := range map[string]string{
		"name": "tenant.kubetenant.dev/acme\nnamespace/" + syncedNamespace + "\n",
		"jsonpath={range .items[*]}{.kind} {.tenant} {.action} {.name} {.keystone.roles[*].clusterRole};{end}": "" +
			"Tenant acme update Tenant acme ;Namespace acme create namespace " + syncedNamespace + " edit;",
		"custom-columns=N:.name": "N\nacme\n" + syncedNamespace + "\n",
	} {
		t.Run(format, func(t *testing.T) {
			if out, err := f.sync(t, "-o", format); err != nil || out != want {
				t.Errorf("-o %s: %q, %v; want %q", format, out, err, want)
			}
		})
	}
	if out, err := f.sync(t, "-o", "wide", "--no-headers"); err != nil || !strings.Contains(out, "   edit\n") {
		t.Errorf("-o wide: %q, %v", out, err)
	}
}

// TestKeystoneSyncWithoutChanges checks that a message is printed for people, and an empty list in
// the formats for programs.
func TestKeystoneSyncWithoutChanges(t *testing.T) {
	f := newSyncFixture(t)
	f.objects = map[string]string{"tenants": syncedTenant(syncedDomain), "namespaces": syncedObject(syncedRoles)}
	if out, err := f.sync(t); err != nil || out != "The leader would change nothing.\n" {
		t.Errorf("%q, %v", out, err)
	}
	if out, err := f.sync(t, "-o", "jsonpath={.kind}{.items}"); err != nil || out != "List[]" {
		t.Errorf("-o jsonpath: %q, %v", out, err)
	}
}

// TestKeystoneSyncConditions checks the reason for each tenant that the leader cannot synchronize.
func TestKeystoneSyncConditions(t *testing.T) {
	f := newSyncFixture(t)
	f.objects["tenants"] = syncedTenant(`{"domain":"other"}`)
	f.lists["domains"] = `[{"id":"d1","name":"acme","enabled":true},{"id":"d2","name":"globex","enabled":true}]`
	out, err := f.sync(t)
	if err != nil || !strings.HasPrefix(out, "The leader would change nothing.\ntenant acme: DomainChanged: ") ||
		!strings.Contains(out, "\nKeystone domains map to tenants without a Tenant: globex. ") {
		t.Errorf("%q, %v", out, err)
	}
}

// TestKeystoneSyncOfHostileNames checks that names and IDs from Keystone reach the terminal
// only without control characters and capitals.
func TestKeystoneSyncOfHostileNames(t *testing.T) {
	const hostile = `\u001b[2J\u202eCANARY`
	f := newSyncFixture(t)
	f.lists["projects"] = `[{"id":"` + syncedProject + `","name":"` + hostile + `","domain_id":"d1","enabled":true},
		{"id":"` + hostile + `","name":"x","domain_id":"d1","enabled":true}]`
	f.lists["domains"] = `[{"id":"d1","name":"acme","enabled":true},{"id":"d2","name":"` + hostile + `","enabled":true}]`
	f.lists["roles"] = `[{"id":"r1","name":"member"},{"id":"r2","name":"` + hostile + `"}]`
	for _, format := range []string{"", "json", "name"} {
		out, err := f.run(t, "keystone-sync", "--dry-run", "--config", f.config, "-o", format)
		if err != nil || strings.ContainsAny(out, "\x1b\u202e") || strings.Contains(out, "CANARY") ||
			!strings.Contains(out, "acme--2j-canary-01234567") {
			t.Errorf("-o %s: %q, %v", format, out, err)
		}
		if !strings.Contains(out, "tenant acme: ProjectsSkipped: the ID of a project has unexpected characters") {
			t.Errorf("-o %s: the condition is missing: %q", format, out)
		}
	}
	f.lists["domains"] = `[{"id":"d1","name":"acme","enabled":true},{"id":"` + hostile + `","name":"x"}]`
	out, err := f.run(t, "keystone-sync", "--dry-run", "--config", f.config)
	if err == nil || strings.ContainsAny(out+err.Error(), "\x1b\u202e") {
		t.Errorf("an error with an ID: %q, %v", out, err)
	}
}

// TestKeystoneSyncFails checks that the command fails with a remedy and without changes if
// something cannot be read.
func TestKeystoneSyncFails(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*testing.T, *syncFixture)
		want   string
		code   int
		cause  string
	}{
		"Keystone is down": {
			change: func(_ *testing.T, f *syncFixture) { f.keystone.Close() },
			want:   "the leader would change nothing: check authURL, cloudsFile and the network",
			code:   exitUnusual,
			cause:  "Post \"http://127.0.0.1:",
		},
		"Keystone rejects the password": {
			change: func(_ *testing.T, f *syncFixture) { f.password = "another" },
			want:   "the leader would change nothing: check authURL, cloudsFile and the network",
			code:   exitUnusual,
			cause:  "Expected HTTP response code [201 202]",
		},
		"an incomplete list": {
			change: func(_ *testing.T, f *syncFixture) { f.lists["domains"] = "[]" },
			want: "incomplete lists from Keystone: domains: the list is empty: the leader would change nothing: check that " +
				"the service user has the role reader with system scope",
			code: exitUnusual,
		},
		"no cloudsFile": {
			change: func(t *testing.T, f *syncFixture) {
				if err := os.Remove(filepath.Join(filepath.Dir(f.config), "clouds.yaml")); err != nil {
					t.Fatal(err)
				}
			},
			want: "source cloud: keystone.cloudsFile: ",
			code: exitUnusual,
		},
		"Tenants are forbidden": {
			change: func(_ *testing.T, f *syncFixture) { f.forbidden = "tenants" },
			want:   "you need the verb list on tenants.kubetenant.dev in the whole cluster",
			code:   exitFailed,
		},
		"a caller of a tenant": {
			change: func(_ *testing.T, f *syncFixture) { f.tenant = "acme" },
			want:   "only a caller of the system tenant can list the objects of all tenants, and you belong to tenant acme",
			code:   exitFailed,
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newSyncFixture(t)
			c.change(t, f)
			out, err := f.sync(t)
			if err == nil || !strings.Contains(err.Error(), c.want) || exitCode(err) != c.code {
				t.Errorf("exit %d: %v; want %d: %q", exitCode(err), err, c.code, c.want)
			}
			if c.cause != "" && !strings.HasPrefix(out, "warning: Request to Keystone failed: "+c.cause) {
				t.Errorf("the cause is missing: %q", out)
			}
			if strings.Contains(out, syncedNamespace) {
				t.Errorf("the output contains changes: %q", out)
			}
		})
	}
}

// TestKeystoneSyncRefusesItsArguments checks that an invalid command line or configuration causes
// no request.
func TestKeystoneSyncRefusesItsArguments(t *testing.T) {
	f := newSyncFixture(t)
	plain := filepath.Join(t.TempDir(), "plain.yaml")
	text := "{apiVersion: kubetenant.dev/v1alpha1, kind: TenancyConfiguration}"
	if err := os.WriteFile(plain, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for want, line := range map[string]string{
		"the leader of the control plane follows Keystone by itself: use --dry-run": "--config " + f.config,
		"--dry-run=server: must be client":                                          "--dry-run=server --config " + f.config,
		`required flag(s) "config" not set`:                                         "--dry-run",
		"--config must not be empty":                                                "--dry-run --config=",
		"no source follows Keystone: add the section sync":                          "--dry-run --config " + plain,
		"no such file or directory":                                                 "--dry-run --config x" + plain,
		"takes no arguments":                                                        "--dry-run acme --config " + f.config,
		"-o x: must be one of":                                                      "--dry-run -o x --config " + f.config,
	} {
		t.Run(want, func(t *testing.T) {
			args := strings.Fields(line)
			out, err := f.run(t, append([]string{"keystone-sync"}, args...)...)
			if err == nil || !strings.Contains(err.Error(), want) || exitCode(err) != exitUnusual || out != "" {
				t.Errorf("%v: %q, %v; want %q", args, out, err, want)
			}
		})
	}
	if len(f.requests) != 0 {
		t.Errorf("the command sent %v", f.requests)
	}
}
