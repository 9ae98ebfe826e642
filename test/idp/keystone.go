// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package idp

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Keystone is a running Keystone with its own database.
type Keystone struct {
	*process
	// URL is the URL of the Identity API v3.
	URL   string
	admin string // the admin's token
	roles map[string]string
}

// AdminPassword is the password of every user that this package creates.
const AdminPassword = "test-password" // #nosec G101 -- for a temporary Keystone

const keystoneConfig = `[DEFAULT]
log_file =
use_stderr = true
[database]
connection = sqlite:///%[1]s/keystone.db
[fernet_tokens]
key_repository = %[1]s/fernet
[fernet_receipts]
key_repository = %[1]s/receipts
[credential]
key_repository = %[1]s/credential
[token]
provider = fernet
[identity]
password_hash_rounds = 4
[cache]
enabled = true
backend = dogpile.cache.memory
`

// StartKeystone creates a Keystone in dir and starts it. It requires the Debian packages
// python3-keystone, uwsgi-core and uwsgi-plugin-python3. sections are added to keystone.conf.
func StartKeystone(ctx context.Context, dir string, sections ...string) (*Keystone, error) {
	etc := filepath.Join(dir, "etc")
	for _, sub := range []string{"etc", "fernet", "receipts", "credential"} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o700); err != nil {
			return nil, err
		}
	}
	config := filepath.Join(etc, "keystone.conf")
	if err := os.WriteFile(config, fmt.Appendf(nil, keystoneConfig+strings.Join(sections, ""), dir), 0o600); err != nil {
		return nil, err
	}
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	k := &Keystone{URL: "http://127.0.0.1:" + port + "/v3"}
	env := []string{"HOME=" + dir, "OS_KEYSTONE_CONFIG_DIR=" + etc, "OS_KEYSTONE_CONFIG_FILES=keystone.conf"}
	me, err := user.Current()
	if err != nil {
		return nil, err
	}
	group, err := user.LookupGroupId(me.Gid)
	if err != nil {
		return nil, err
	}
	for _, args := range [][]string{
		{"db_sync"},
		{"fernet_setup", "--keystone-user", me.Username, "--keystone-group", group.Name},
		{"credential_setup", "--keystone-user", me.Username, "--keystone-group", group.Name},
		{
			"bootstrap", "--bootstrap-password", AdminPassword, "--bootstrap-region-id", "test",
			"--bootstrap-public-url", k.URL, "--bootstrap-internal-url", k.URL, "--bootstrap-admin-url", k.URL,
		},
	} {
		if err := run(ctx, env, "/usr/bin/keystone-manage",
			append([]string{"--config-file", config}, args...)...); err != nil {
			return nil, err
		}
	}
	// With write-ahead logging, readers do not wait for the writer.
	if err := run(ctx, env, "/usr/bin/python3", "-c",
		"import sqlite3,sys; sqlite3.connect(sys.argv[1]).execute('pragma journal_mode=WAL')",
		filepath.Join(dir, "keystone.db")); err != nil {
		return nil, err
	}
	// #nosec G204 -- of the distribution
	cmd := exec.Command("/usr/bin/uwsgi_python3", "--http-socket", "127.0.0.1:"+port, "--master", "--die-on-term",
		"--need-app",
		"--processes", "1", "--wsgi-file", "/usr/bin/keystone-wsgi-public", "--buffer-size", "65535")
	cmd.Env = append(os.Environ(), env...)
	if k.process, err = start(cmd, filepath.Join(dir, "keystone.log"), func(string) {}); err != nil {
		return nil, err
	}
	err = k.awaitReady(ctx, func() error {
		var err error
		k.admin, err = k.Token(ctx, "Default", "admin", SystemScope())
		return err
	})
	if err != nil {
		k.Stop()
		return nil, err
	}
	return k, nil
}

// Project returns the token scope of a project in a domain.
func Project(name, domain string) map[string]any {
	return map[string]any{"project": map[string]any{"name": name, "domain": map[string]any{"name": domain}}}
}

// DomainScope returns the token scope of a domain.
func DomainScope(name string) map[string]any {
	return map[string]any{"domain": map[string]any{"name": name}}
}

// SystemScope returns the token scope of the whole system.
func SystemScope() map[string]any {
	return map[string]any{"system": map[string]any{"all": true}}
}

// ProjectGroups returns the groups that the keystone source adds for a project and roles. prefix is
// the groups prefix of the source.
func (k *Keystone) ProjectGroups(ctx context.Context, prefix, id, name string, roles ...string) ([]string, error) {
	groups := []string{prefix + "project:" + name}
	for _, role := range roles {
		roleID, err := k.RoleID(ctx, role)
		if err != nil {
			return nil, err
		}
		groups = append(groups, prefix+"role:"+name+":"+role, prefix+"role-id:"+id+":"+roleID)
	}
	slices.Sort(groups)
	return groups, nil
}

// Token returns a token for a user in a domain, with the given scope. If scope is nil, the token is
// unscoped.
func (k *Keystone) Token(ctx context.Context, domain, name string, scope any) (string, error) {
	return k.tokenFor(ctx, map[string]any{
		"methods": []string{"password"},
		"password": map[string]any{
			"user": map[string]any{"name": name, "domain": map[string]any{"name": domain}, "password": AdminPassword},
		},
	}, scope)
}

func (k *Keystone) tokenFor(ctx context.Context, identity, scope any) (string, error) {
	auth := map[string]any{"identity": identity}
	if scope != nil {
		auth["scope"] = scope
	} else {
		auth["scope"] = "unscoped"
	}
	header, err := k.do(ctx, "", http.MethodPost, "/auth/tokens", map[string]any{"auth": auth}, nil)
	return header.Get("X-Subject-Token"), err
}

// CredentialToken returns a token for an application credential.
func (k *Keystone) CredentialToken(ctx context.Context, id, secret string) (string, error) {
	header, err := k.do(ctx, "", http.MethodPost, "/auth/tokens",
		map[string]any{"auth": map[string]any{"identity": map[string]any{
			"methods":                []string{"application_credential"},
			"application_credential": map[string]any{"id": id, "secret": secret},
		}}}, nil)
	return header.Get("X-Subject-Token"), err
}

// Do sends a request with a token. If token is empty, it uses the admin's token.
func (k *Keystone) Do(ctx context.Context, token, method, path string, in, out any) error {
	if token == "" {
		token = k.admin
	}
	_, err := k.do(ctx, token, method, path, in, out)
	return err
}

func (k *Keystone) do(ctx context.Context, token, method, path string, in, out any) (http.Header, error) {
	var body []byte
	if in != nil {
		var err error
		if body, err = json.Marshal(in); err != nil {
			return nil, err
		}
	}
	req, err := http.NewRequestWithContext(ctx, method, k.URL+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	if token != "" {
		req.Header.Set("X-Auth-Token", token)
	}
	// uwsgi closes idle connections without notice, so no connection is reused.
	resp, err := (&http.Client{Timeout: time.Minute, Transport: &http.Transport{DisableKeepAlives: true}}).Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode >= 300 {
		return nil, fmt.Errorf("%s %s: %s: %s", method, path, resp.Status, strings.TrimSpace(string(data)))
	}
	if out != nil {
		err = json.Unmarshal(data, out)
	}
	return resp.Header, err
}

// createdObject is Keystone's response to the creation of an object, keyed by the kind of object.
type createdObject map[string]struct {
	ID     string `json:"id"`
	Secret string `json:"secret"`
}

// Make creates an object and returns its ID. path is the path of the collection, and kind is the
// singular name in the request.
func (k *Keystone) Make(ctx context.Context, path, kind string, what map[string]any) (string, error) {
	var out createdObject
	err := k.Do(ctx, "", http.MethodPost, path, map[string]any{kind: what}, &out)
	return out[kind].ID, err
}

// RoleID returns the ID of a role.
func (k *Keystone) RoleID(ctx context.Context, name string) (string, error) {
	if id := k.roles[name]; id != "" {
		return id, nil
	}
	var list struct {
		Roles []struct{ ID, Name string }
	}
	if err := k.Do(ctx, "", http.MethodGet, "/roles", nil, &list); err != nil {
		return "", err
	}
	k.roles = map[string]string{}
	for _, r := range list.Roles {
		k.roles[r.Name] = r.ID
	}
	id := k.roles[name]
	if id == "" {
		return "", fmt.Errorf("no role %q", name)
	}
	return id, nil
}

// Domain contains the IDs of a domain, its only project, and its only user, which is a member of
// the project.
type Domain struct{ ID, Project, User string }

// MakeDomain creates a domain with a project web and a member alice.
func (k *Keystone) MakeDomain(ctx context.Context, name string) (Domain, error) {
	var d Domain
	var errs [4]error
	d.ID, errs[0] = k.Make(ctx, "/domains", "domain", map[string]any{"name": name})
	d.Project, errs[1] = k.Make(ctx, "/projects", "project", map[string]any{"name": "web", "domain_id": d.ID})
	d.User, errs[2] = k.Make(ctx, "/users", "user",
		map[string]any{"name": "alice", "domain_id": d.ID, "password": AdminPassword})
	errs[3] = k.Assign(ctx, "/projects/"+d.Project, d.User, "member")
	return d, errors.Join(errs[:]...)
}

// Assign assigns a role to a user in a project, in a domain or in the system, which has the path
// on.
func (k *Keystone) Assign(ctx context.Context, on, userID, role string) error {
	id, err := k.RoleID(ctx, role)
	if err != nil {
		return err
	}
	return k.Do(ctx, "", http.MethodPut, on+"/users/"+userID+"/roles/"+id, nil, nil)
}

// MakeValidator creates the user that a server needs to validate tokens, with the minimum
// permissions. It returns a clouds.yaml with the cloud "kube" for this user.
func (k *Keystone) MakeValidator(ctx context.Context) ([]byte, error) {
	id, err := k.Make(ctx, "/users", "user",
		map[string]any{"name": "kube-apiserver", "domain_id": "default", "password": AdminPassword})
	if err == nil {
		err = k.Assign(ctx, "/system", id, "reader")
	}
	return fmt.Appendf(nil,
		"clouds:\n  kube:\n    auth: { username: kube-apiserver, user_domain_name: Default, password: %s, "+
			"system_scope: all }\n",
		AdminPassword), err
}

// MakeCredential creates an application credential for the user of a project-scoped token.
func (k *Keystone) MakeCredential(
	ctx context.Context, token, userID string, what map[string]any,
) (id, secret string, err error) {
	var out createdObject
	err = k.Do(ctx, token, http.MethodPost, "/users/"+userID+"/application_credentials",
		map[string]any{"application_credential": what}, &out)
	return out["application_credential"].ID, out["application_credential"].Secret, err
}

// MakeServiceCredential is like [Keystone.MakeValidator], but creates an application credential
// instead of a password. An application credential belongs to a project. Therefore, the user has
// the role service instead of the system role reader.
func (k *Keystone) MakeServiceCredential(ctx context.Context) ([]byte, error) {
	project, err := k.Make(ctx, "/projects", "project", map[string]any{"name": "service", "domain_id": "default"})
	if err != nil {
		return nil, err
	}
	id, err := k.Make(ctx, "/users", "user",
		map[string]any{"name": "kube-service", "domain_id": "default", "password": AdminPassword})
	if err != nil {
		return nil, err
	}
	if _, err := k.RoleID(ctx, "service"); err != nil { // older releases lack the role
		if _, err := k.Make(ctx, "/roles", "role", map[string]any{"name": "service"}); err != nil {
			return nil, err
		}
	}
	if err := k.Assign(ctx, "/projects/"+project, id, "service"); err != nil {
		return nil, err
	}
	token, err := k.Token(ctx, "Default", "kube-service", Project("service", "Default"))
	if err != nil {
		return nil, err
	}
	credential, secret, err := k.MakeCredential(ctx, token, id, map[string]any{"name": "kube"})
	return fmt.Appendf(nil,
		"clouds:\n  kube:\n    auth_type: v3applicationcredential\n"+
			"    auth: { application_credential_id: %s, application_credential_secret: %s }\n",
		credential, secret), err
}
