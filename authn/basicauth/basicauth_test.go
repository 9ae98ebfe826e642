// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package basicauth_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/crypto/bcrypt"

	"github.com/kubetenant/kubetenant/authn/basicauth"
	"github.com/kubetenant/kubetenant/tenant"
)

func open(t testing.TB, text string, report func(string, error)) (*basicauth.Authenticator, string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "passwords.csv")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	a, err := basicauth.Open(t.Context(), path, basicauth.Options{
		DefaultTenant: tenant.System(),
		Report:        report,
		Check:         func(string, []string, tenant.ID) error { return nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	return a, path
}

func request(ctx context.Context, login, password string) *http.Request {
	r := (&http.Request{Header: http.Header{}}).WithContext(ctx)
	r.SetBasicAuth(login, password)
	return r
}

func hash(t testing.TB, password string) string {
	t.Helper()
	h, err := bcrypt.GenerateFromPassword([]byte(password), bcrypt.MinCost)
	if err != nil {
		t.Fatal(err)
	}
	return string(h)
}

func TestBcryptVersions(t *testing.T) {
	h := hash(t, "secret")
	for _, version := range []string{"$2a$", "$2b$", "$2y$"} {
		a, _ := open(t, version+h[4:]+",alice,1,,a\n", nil)
		if _, ok, err := a.AuthenticateRequest(request(t.Context(), "alice", "secret")); !ok || err != nil {
			t.Errorf("%s: %v, %v", version, ok, err)
		}
		if _, ok, err := a.AuthenticateRequest(request(t.Context(), "alice", "secre")); ok ||
			!errors.Is(err, basicauth.ErrRefused) {
			t.Errorf("%s with a wrong password: %v, %v", version, ok, err)
		}
	}
}

// TestPasswordsOver72BytesAreRejected checks that a password with additional bytes after the 72
// bytes that bcrypt uses is rejected.
func TestPasswordsOver72BytesAreRejected(t *testing.T) {
	long := strings.Repeat("x", 72)
	a, _ := open(t, hash(t, long)+",alice,1,,a\n", nil)
	if _, ok, _ := a.AuthenticateRequest(request(t.Context(), "alice", long)); !ok {
		t.Error("a password of 72 bytes is refused")
	}
	if _, ok, _ := a.AuthenticateRequest(request(t.Context(), "alice", long+"y")); ok {
		t.Error("a password with a wrong 73rd byte is accepted")
	}
}

// TestReloadClearsCache checks that a cached password is not accepted after the file has changed.
func TestReloadClearsCache(t *testing.T) {
	reported := make(chan error, 10)
	a, path := open(t, hash(t, "old")+",alice,1,,a\n", func(_ string, err error) { reported <- err })
	go a.Run(t.Context())
	login := func(password string) bool {
		_, ok, _ := a.AuthenticateRequest(request(t.Context(), "alice", password))
		return ok
	}
	for range 2 { // verified, then cached
		if !login("old") {
			t.Fatal("the right password is refused")
		}
	}
	replace := func(text string) error {
		if err := os.WriteFile(path+".new", []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(path+".new", path); err != nil {
			t.Fatal(err)
		}
		return <-reported
	}
	if err := replace("broken\n"); err == nil || !login("old") {
		t.Errorf("after a bad version: %v, old password %v", err, login("old"))
	}
	if err := replace(hash(t, "new") + ",alice,1,,a\n"); err != nil || login("old") || !login("new") {
		t.Errorf("after a good version: %v, old %v, new %v", err, login("old"), login("new"))
	}
}

func TestConcurrentLogins(t *testing.T) {
	a, _ := open(t, hash(t, "right")+",alice,1,,a\nplain,bob,2,,b\n", nil)
	var all sync.WaitGroup
	for i := range 64 {
		all.Go(func() {
			login, password, want := "alice", "right", "a"
			if i%2 == 0 {
				login, password, want = "bob", "plain", "b"
			}
			req := request(t.Context(), login, password)
			req.RemoteAddr = fmt.Sprintf("192.0.2.%d:1000", i) // a single address may not have this many concurrent logins
			resp, ok, err := a.AuthenticateRequest(req)
			if !ok || err != nil {
				t.Errorf("login of %s = %v, %v", login, ok, err)
				return
			}
			if id, _ := tenant.Of(resp.User); id.String() != want || resp.User.GetName() != login {
				t.Errorf("login of %s is %s of %s", login, resp.User.GetName(), id)
			}
			if _, ok, _ := a.AuthenticateRequest(request(t.Context(), login, "wrong")); ok {
				t.Errorf("a wrong password of %s is accepted", login)
			}
		})
	}
	all.Wait()
}

// TestWaitingEndsWithTheRequest checks that a login fails if the context of its request has ended.
func TestWaitingEndsWithTheRequest(t *testing.T) {
	a, _ := open(t, hash(t, "right")+",alice,1,,a\n", nil)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for range 100 { // the login either gets a slot or observes the end of the context
		if _, ok, err := a.AuthenticateRequest(request(ctx, "alice", "wrong")); ok || err == nil {
			t.Fatalf("login of an ended request = %v, %v", ok, err)
		}
	}
}

// FuzzOpen checks that no file causes a panic, and that no accepted file allows an empty password.
func FuzzOpen(f *testing.F) {
	for _, s := range []string{
		"p,u,1\n", "p,u,1,g,,a\n", "p,u,1,,a\nq,u,2,,b\n",
		"$2a$04$t3ujSowHBmau8Z5Yp0KZSevGHWQVCVgqqLfH2YMcaeOn5DMZvGFTy,u,1\n", ",u,1\n", "p,u@a,1,,b\np,u,1,,a\n",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		path := filepath.Join(t.TempDir(), "passwords.csv")
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		a, err := basicauth.Open(t.Context(), path,
			basicauth.Options{DefaultTenant: tenant.System(), Check: func(string, []string, tenant.ID) error { return nil }})
		if (a == nil) == (err == nil) {
			t.Fatalf("Open() = %v, %v", a, err)
		}
		if err != nil {
			return
		}
		for login := range bytes.SplitSeq(data, []byte{','}) {
			if _, ok, _ := a.AuthenticateRequest(request(t.Context(), string(login), "")); ok {
				t.Fatalf("an empty password is accepted")
			}
		}
	})
}

// FuzzHeader checks that only a Basic header with the correct login and password is accepted.
// Other Basic headers are rejected. Other schemes are left to other sources.
func FuzzHeader(f *testing.F) {
	for _, s := range []string{
		"Basic YWxpY2U6c2VjcmV0", "basic YWxpY2U6c2VjcmV0", "Basic", "Basic ", "Bearer x", "Basic %%%",
		"Basic " + strings.Repeat("A", 9000),
		"Basic " + base64.StdEncoding.EncodeToString([]byte(":")), "\tBasic YWxpY2U6c2VjcmV0 ",
	} {
		f.Add(s)
	}
	a, _ := open(f, "secret,alice,1,,a\n", nil)
	f.Fuzz(func(t *testing.T, header string) {
		resp, ok, err := a.AuthenticateRequest(&http.Request{Header: http.Header{"Authorization": {header}}})
		switch {
		case ok:
			login, password, _ := (&http.Request{Header: http.Header{"Authorization": {strings.TrimSpace(header)}}}).BasicAuth()
			if (login != "alice" && login != "alice@a") || password != "secret" || resp.User.GetName() != "alice" {
				t.Fatalf("%q is accepted as %v", header, resp.User)
			}
		case err == nil:
			scheme, _, _ := strings.Cut(strings.TrimSpace(header), " ")
			if strings.EqualFold(scheme, "Basic") {
				t.Fatalf("the authenticator abstains from a Basic header: %q", header)
			}
		case !errors.Is(err, basicauth.ErrRefused):
			t.Fatalf("%q: %v", header, err)
		}
	})
}
