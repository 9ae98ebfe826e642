// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package idp_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/kubetenant/kubetenant/authn/keystone"
	"github.com/kubetenant/kubetenant/test/idp"
)

// listLimit is the maximum number of entries in a list from the Keystone in TestDirectory.
const listLimit = 5

// tree contains the IDs of the objects that TestDirectory creates in a real Keystone.
type tree struct{ domain, parent, child, disabled, user, group, member, reader string }

func makeTree(t *testing.T, k *idp.Keystone) (m tree) {
	t.Helper()
	make := func(path, kind string, what map[string]any) string {
		t.Helper()
		id, err := k.Make(t.Context(), path, kind, what)
		if err != nil {
			t.Fatal(err)
		}
		return id
	}
	put := func(format string, args ...any) {
		t.Helper()
		if err := k.Do(t.Context(), "", http.MethodPut, fmt.Sprintf(format, args...), nil, nil); err != nil {
			t.Fatal(err)
		}
	}
	m.domain = make("/domains", "domain", map[string]any{"name": "acme"})
	m.parent = make("/projects", "project", map[string]any{"name": "parent", "domain_id": m.domain})
	m.child = make("/projects", "project", map[string]any{
		"name":      "child",
		"parent_id": m.parent,
		"domain_id": m.domain,
		"ID":        "x",
		"Domain_ID": "default",
		"Enabled":   false,
		"truncated": true,
	})
	m.disabled = make("/projects", "project", map[string]any{"name": "d\u00e9sactiv\u00e9", "domain_id": m.domain})
	m.user = make("/users", "user", map[string]any{"name": "alice", "domain_id": m.domain, "password": idp.AdminPassword})
	m.group = make("/groups", "group", map[string]any{"name": "developers", "domain_id": m.domain})
	var roles struct{ Roles []struct{ ID, Name string } }
	if err := k.Do(t.Context(), "", http.MethodGet, "/roles", nil, &roles); err != nil {
		t.Fatal(err)
	}
	for _, r := range roles.Roles {
		switch r.Name {
		case "member":
			m.member = r.ID
		case "reader":
			m.reader = r.ID
		}
	}
	put("/projects/%s/users/%s/roles/%s", m.child, m.user, m.member)
	put("/projects/%s/groups/%s/roles/%s", m.child, m.group, m.reader)
	put("/projects/%s/users/%s/roles/%s", m.parent, m.user, m.reader)
	put("/OS-INHERIT/domains/%s/groups/%s/roles/%s/inherited_to_projects", m.domain, m.group, m.reader)
	put("/OS-INHERIT/projects/%s/users/%s/roles/%s/inherited_to_projects", m.parent, m.user, m.member)
	put("/domains/%s/users/%s/roles/%s", m.domain, m.user, m.member)
	if err := k.Do(t.Context(), "", http.MethodPatch, "/projects/"+m.disabled,
		map[string]any{"project": map[string]any{"enabled": false}}, nil); err != nil {
		t.Fatal(err)
	}
	return m
}

// TestDirectory checks that a Directory reads all projects and roles of a real Keystone, or
// returns an error if it cannot read all of them.
func TestDirectory(t *testing.T) {
	tools(t)
	dir := t.TempDir()
	k, err := idp.StartKeystone(t.Context(), dir, fmt.Sprintf("[resource]\nlist_limit = %d\n", listLimit))
	if err != nil {
		t.Fatal(err)
	}
	defer k.Stop()
	clouds, err := k.MakeValidator(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	d := openDirectory(t, dir, clouds, k.URL)
	m := makeTree(t, k)
	c, err := d.Read(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	checkContents(t, c, m)

	t.Run("NaN", func(t *testing.T) {
		patchRaw(t, k, "/projects/"+m.parent,
			`{"project":{"nan":NaN,"more":[Infinity,-Infinity,{"a":"\"NaN"}],"deep":`+
				strings.Repeat("[", 500)+strings.Repeat("]", 500)+`}}`)
		c, err := d.Read(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		checkContents(t, c, m)
	})
	t.Run("limit", func(t *testing.T) { // Keystone 2025.1 and later support the parameter limit
		for _, list := range []string{"domains", "roles", "role_assignments"} {
			var page map[string]any
			if err := k.Do(t.Context(), "", http.MethodGet, "/"+list+"?limit=1", nil, &page); err != nil {
				t.Fatal(err)
			}
			entries, _ := page[list].([]any)
			links, _ := page["links"].(map[string]any)
			t.Logf("%s?limit=1: %d entries, truncated %v, next %v", list, len(entries), page["truncated"], links["next"])
		}
	})
	t.Run("scope", func(t *testing.T) {
		for name, c := range map[string]struct{ scope, problem string }{
			"a project": {"user_domain_name: acme, project_id: " + m.child, "role reader with system scope"},
			"a domain":  {"domain_id: " + m.domain, "the token is scoped to a domain"},
		} {
			t.Run(name, func(t *testing.T) {
				clouds := fmt.Appendf(nil, "clouds:\n  kube:\n    auth: { username: alice, password: %s, %s }\n",
					idp.AdminPassword, c.scope)
				got, err := openDirectory(t, t.TempDir(), clouds, k.URL).Read(t.Context())
				if got != nil || !errors.Is(err, keystone.ErrIncomplete) || !strings.Contains(err.Error(), c.problem) {
					t.Errorf("%v, %v", got, err)
				}
			})
		}
	})
	t.Run("list_limit", func(t *testing.T) {
		for n := len(c.Projects); n <= listLimit; n++ {
			got, err := d.Read(t.Context())
			if err != nil || len(got.Projects) != n {
				t.Errorf("%d projects: %v, %v", n, got, err)
			}
			if _, err := k.Make(t.Context(), "/projects", "project",
				map[string]any{"name": fmt.Sprint("more-", n), "domain_id": m.domain}); err != nil {
				t.Fatal(err)
			}
		}
		if got, err := d.Read(t.Context()); got != nil || !errors.Is(err, keystone.ErrIncomplete) ||
			!strings.Contains(err.Error(), "projects: the list is truncated") {
			t.Errorf("more than list_limit: %v, %v", got, err)
		}
	})
}

func openDirectory(t *testing.T, dir string, clouds []byte, authURL string) *keystone.Directory {
	t.Helper()
	path := filepath.Join(dir, "clouds.yaml")
	if err := os.WriteFile(path, clouds, 0o600); err != nil {
		t.Fatal(err)
	}
	d, _, err := keystone.OpenDirectory(path, "kube", authURL, nil)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func checkContents(t *testing.T, c *keystone.Contents, m tree) {
	t.Helper()
	if !slices.Contains(c.Domains, keystone.Domain{ID: m.domain, Name: "acme", Enabled: true}) || len(c.Domains) != 2 {
		t.Errorf("domains %+v", c.Domains)
	}
	for _, want := range []keystone.Project{
		{
			ID:       m.parent,
			Name:     "parent",
			DomainID: m.domain,
			ParentID: m.domain,
			Enabled:  true,
		},
		{
			ID:       m.child,
			Name:     "child",
			DomainID: m.domain,
			ParentID: m.parent,
			Enabled:  true,
		},
		{
			ID:       m.disabled,
			Name:     "d\u00e9sactiv\u00e9",
			DomainID: m.domain,
			ParentID: m.domain,
		},
	} {
		if !slices.Contains(c.Projects, want) {
			t.Errorf("no %+v in %+v", want, c.Projects)
		}
	}
	if len(c.Projects) != 4 { // including the admin's project
		t.Errorf("%d projects", len(c.Projects))
	}
	for _, want := range []keystone.Assignment{
		{RoleID: m.member, ProjectID: m.child},
		{RoleID: m.reader, ProjectID: m.child},
		{RoleID: m.reader, ProjectID: m.parent},
		{RoleID: m.member, ProjectID: m.parent, Inherited: true},
		{RoleID: m.reader, DomainID: m.domain, Inherited: true},
		{RoleID: m.member, DomainID: m.domain},
	} {
		if !slices.Contains(c.Assignments, want) {
			t.Errorf("no %+v in %+v", want, c.Assignments)
		}
	}
	if len(c.Assignments) != 7 { // including the admin's assignment
		t.Errorf("assignments %+v", c.Assignments)
	}
	if !slices.Contains(c.Implied, keystone.Implication{RoleID: m.member, ImpliedID: m.reader}) {
		t.Errorf("implications %+v", c.Implied)
	}
	if !slices.Contains(c.Roles, keystone.Role{ID: m.member, Name: "member"}) {
		t.Errorf("roles %+v", c.Roles)
	}
}

// patchRaw sends a PATCH request with a body that Go's JSON encoder cannot produce.
func patchRaw(t *testing.T, k *idp.Keystone, path, body string) {
	t.Helper()
	token, err := k.Token(t.Context(), "Default", "admin", map[string]any{"system": map[string]any{"all": true}})
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPatch, k.URL+path, bytes.NewBufferString(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("X-Auth-Token", token)
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	answer, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK || !bytes.Contains(answer, []byte("-Infinity")) {
		t.Fatalf("%s, %v: %s", resp.Status, err, answer)
	}
}
