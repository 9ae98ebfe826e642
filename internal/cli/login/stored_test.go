// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package login_test

import (
	"bytes"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kubetenant/kubetenant/internal/cli/login"
	"github.com/kubetenant/kubetenant/test/logintest"
)

// TestExpiryMargin checks that a stored token is used only if it is valid for more than one
// minute. An empty or missing token is never used.
func TestExpiryMargin(t *testing.T) {
	now := time.Date(2026, time.January, 2, 3, 4, 5, 0, time.UTC)
	o := &login.OpenID{Issuer: "https://127.0.0.1:0", Now: func() time.Time { return now }} // no server listens here
	for name, c := range map[string]struct {
		kept *login.Token
		sent bool
	}{
		"more than a minute": {&login.Token{Token: "t", Expires: now.Add(time.Minute + time.Second)}, true},
		"a minute":           {&login.Token{Token: "t", Expires: now.Add(time.Minute)}, false},
		"expired":            {&login.Token{Token: "t", Expires: now.Add(-time.Hour)}, false},
		"empty token":        {&login.Token{Expires: now.Add(time.Hour), Refresh: "r"}, false},
		"no stored token":    {nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			if got, err := o.Token(t.Context(), c.kept); (err == nil) != c.sent || c.sent && got != c.kept {
				t.Errorf("%v, %v", got, err)
			}
		})
	}
}

// TestStoredToken checks that an invalid entry is ignored, that the stored token does not change
// if get returns an error, and that an unchanged token is not written again.
func TestStoredToken(t *testing.T) {
	c := &login.Cache{Dir: t.TempDir()}
	want := login.Token{Token: "t", Expires: time.Now().UTC(), Refresh: "r"}
	with := func(answer *login.Token, fails error) (stored *login.Token) {
		t.Helper()
		_, err := c.With(t.Context(), []string{"k"}, func(k *login.Token) (*login.Token, error) {
			stored = k
			return answer, fails
		})
		if !errors.Is(err, fails) {
			t.Fatal(err)
		}
		return stored
	}
	with(&want, nil)
	if stored := with(nil, errors.ErrUnsupported); stored == nil || *stored != want {
		t.Errorf("stored %v, want %v", stored, want)
	}
	files, err := filepath.Glob(filepath.Join(c.Dir, "*[0-9a-f]")) // without the lock file
	if err != nil || len(files) != 1 {
		t.Fatalf("%v, %v", files, err)
	}
	before, err := os.Stat(files[0])
	if err != nil {
		t.Fatal(err)
	}
	with(&want, nil)
	if after, err := os.Stat(files[0]); err != nil || !os.SameFile(before, after) {
		t.Errorf("the same token was written again: %v", err)
	}
	if err := os.WriteFile(files[0], []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if stored := with(&want, nil); stored != nil {
		t.Errorf("invalid entry: got %v, want nil", stored)
	}
}

// TestPrint checks that the output contains the API version, the token and its expiration, but
// not the refresh token.
func TestPrint(t *testing.T) {
	var out bytes.Buffer
	if err := login.Print(&out, &login.Token{
		Token:   "t",
		Refresh: "SECRET",
		Expires: time.Date(2026, time.January, 2, 3, 4, 5, 0, time.UTC),
	}); err != nil {
		t.Fatal(err)
	}
	want := `{"kind":"ExecCredential","apiVersion":"client.authentication.k8s.io/v1","spec":{"interactive":false},` +
		`"status":{"expirationTimestamp":"2026-01-02T03:04:05Z","token":"t"}}` + "\n"
	if out.String() != want {
		t.Errorf("Print() = %s, want %s", out.String(), want)
	}
}

// TestAuthority checks that an unusable certificate authority file is an error before the login.
func TestAuthority(t *testing.T) {
	p := newProvider(t)
	empty := filepath.Join(t.TempDir(), "empty")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for file, want := range map[string]string{
		empty:       "contains no certificate",
		empty + "x": "no such file",
		"":          "certificate",
	} {
		t.Run(file, func(t *testing.T) {
			o := p.client()
			o.CAFile = file
			if _, err := o.Token(t.Context(), nil); err == nil || !strings.Contains(err.Error(), want) || p.Logins != 0 {
				t.Errorf("%v, %d logins", err, p.Logins)
			}
		})
	}
}

// TestKeys checks that the key differs between clients and does not depend on the order of scopes.
func TestKeys(t *testing.T) {
	key := func(issuer, client string, scopes ...string) []string {
		return (&login.OpenID{
			Issuer:   issuer,
			ClientID: client,
			Secret:   "SECRET",
			Scopes:   scopes,
		}).Key()
	}
	one := key("https://a", "c", "email", "groups")
	if other := key("https://a", "c", "groups", "email"); !slices.Equal(one, other) {
		t.Errorf("Key() = %q and %q", one, other)
	}
	for _, other := range [][]string{
		key("https://b", "c", "email", "groups"), key("https://a", "d", "email", "groups"), key("https://a", "c", "email"),
	} {
		if slices.Equal(one, other) || slices.Contains(other, "SECRET") {
			t.Errorf("Key() = %q and %q", one, other)
		}
	}
}

// environment returns the variables of an openrc file. pairs alternates between the names and
// the values of variables to change.
func environment(pairs ...string) func(string) string {
	variables := map[string]string{
		"OS_AUTH_URL":            "https://keystone.example.com/v3",
		"OS_USERNAME":            "alice",
		"OS_PASSWORD":            "SECRET",
		"OS_USER_DOMAIN_NAME":    "acme",
		"OS_PROJECT_NAME":        "web",
		"OS_PROJECT_DOMAIN_NAME": "acme",
	}
	for i := 0; i < len(pairs); i += 2 {
		variables[pairs[i]] = pairs[i+1]
	}
	return func(name string) string { return variables[name] }
}

// TestKeystoneAddress checks that a password is sent only over TLS, or to this machine.
func TestKeystoneAddress(t *testing.T) {
	for address, want := range map[string]error{
		"https://keystone.example.com/v3": nil,
		"http://127.0.0.1:5000/v3":        nil,
		"http://[::1]:5000/v3":            nil,
		"http://localhost/v3":             nil,
		"http://keystone.example.com/v3":  login.ErrUnencrypted,
		"http://10.0.0.1/v3":              login.ErrUnencrypted,
		"http://localhost.example.com/v3": login.ErrUnencrypted,
		"ftp://127.0.0.1/v3":              login.ErrUnencrypted,
		"127.0.0.1:5000":                  login.ErrUnencrypted,
		"https://%zz":                     login.ErrUnencrypted,
		"":                                login.ErrNoCloud,
	} {
		t.Run(address, func(t *testing.T) {
			if err := (&login.Keystone{Environment: environment("OS_AUTH_URL", address)}).Read(); !errors.Is(err, want) {
				t.Errorf("%v, want %v", err, want)
			}
		})
	}
}

// TestKeystoneKeys checks that the key differs between users and projects, and contains no
// secret. With an application credential, the key does not depend on the user and the project.
func TestKeystoneKeys(t *testing.T) {
	key := func(pairs ...string) string {
		k := &login.Keystone{Environment: environment(pairs...)}
		if err := k.Read(); err != nil {
			t.Fatal(err)
		}
		return strings.Join(k.Key(), "|")
	}
	seen := map[string]string{}
	for name, pairs := range map[string][]string{
		"unchanged":                   nil,
		"another user":                {"OS_USERNAME", "bob"},
		"another user's ID":           {"OS_USER_ID", "1"},
		"another domain":              {"OS_USER_DOMAIN_NAME", "globex"},
		"another project":             {"OS_PROJECT_NAME", "db"},
		"another project's ID":        {"OS_PROJECT_ID", "1"},
		"a project of another domain": {"OS_PROJECT_DOMAIN_NAME", "globex"},
		"another Keystone":            {"OS_AUTH_URL", "https://other.example.com"},
		"application credential":      {"OS_APPLICATION_CREDENTIAL_ID", "c", "OS_APPLICATION_CREDENTIAL_SECRET", "SECRET"},
	} {
		t.Run(name, func(t *testing.T) {
			got := key(pairs...)
			if seen[got] != "" || strings.Contains(got, "SECRET") {
				t.Errorf("%s, same as %s", got, seen[got])
			}
			seen[got] = name
		})
	}
	credential := []string{"OS_APPLICATION_CREDENTIAL_ID", "c", "OS_APPLICATION_CREDENTIAL_SECRET", "SECRET"}
	if one, other := key(credential...),
		key(append(credential, "OS_USERNAME", "bob", "OS_PROJECT_NAME", "db")...); one != other {
		t.Errorf("same application credential: %s and %s", one, other)
	}
}

// TestKeystoneAnswers checks that the error for an error response contains only the status code.
func TestKeystoneAnswers(t *testing.T) {
	server := logintest.NewKeystone(func() int { return http.StatusForbidden })
	defer server.Close()
	k := &login.Keystone{Environment: environment("OS_AUTH_URL", server.URL+"/v3"), Now: time.Now}
	if err := k.Read(); err != nil {
		t.Fatal(err)
	}
	if got, err := k.Token(t.Context(), nil); err == nil || got != nil ||
		!strings.HasSuffix(err.Error(), "/v3: status 403") || strings.Contains(err.Error(), "CANARY") {
		t.Errorf("Token() = %v, %v", got, err)
	}
}
