// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package bearer_test

import (
	"context"
	"encoding/base64"
	"errors"
	"net/http"
	"testing"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/kubetenant/kubetenant/internal/bearer"
)

var (
	errOther     = errors.New("token of another issuer")
	errMalformed = errors.New("malformed")
)

// TestTokens checks which headers and websocket subprotocols the authenticator accepts, rejects as
// malformed, or abstains from.
func TestTokens(t *testing.T) {
	t.Parallel()
	const known = "a-Z.0_9~+/:!=="
	a := bearer.New(authenticator.TokenFunc(func(_ context.Context, token string) (*authenticator.Response, bool, error) {
		switch token {
		case known:
			return &authenticator.Response{User: &user.DefaultInfo{Name: "alice"}}, true, nil
		case "other":
			return nil, false, errOther
		}
		return nil, false, errors.New("called with " + token)
	}), errOther, errMalformed)
	authenticate := func(header, protocol string) (bool, error) {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "/", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		if header != "" {
			r.Header["Authorization"] = []string{header}
		}
		if protocol != "" {
			r.Header["Connection"], r.Header["Upgrade"] = []string{"Upgrade"}, []string{"websocket"}
			r.Header["Sec-Websocket-Protocol"] = []string{
				"base64url.bearer.authorization.k8s.io." + base64.RawURLEncoding.EncodeToString([]byte(protocol)), "x",
			}
		}
		resp, ok, err := a.AuthenticateRequest(r)
		if ok != (resp != nil) {
			t.Errorf("%q: %v with %v", header, ok, resp)
		}
		return ok, err
	}
	for _, header := range []string{"Bearer " + known, "bearer " + known, "BEARER " + known, " Bearer " + known + "\t "} {
		if ok, err := authenticate(header, ""); !ok || err != nil {
			t.Errorf("%q: %v, %v", header, ok, err)
		}
	}
	if ok, err := authenticate("", known); !ok || err != nil {
		t.Errorf("a subprotocol: %v, %v", ok, err)
	}
	// These are white space in ASCII and Unicode, control characters, and invisible characters.
	strange := []string{
		" ", "\t", "\n", "\r", "\v", "\f", "\x00", "\x1f", "\x7f", "\u0085", "\u00a0", "\u2028", "\u200b", "\ufeff", "é",
		"\xff",
	}
	for _, s := range strange {
		for _, token := range []string{s + known, known + s + "x", known + s + known, known[:3] + s + known[3:], s} {
			if ok, err := authenticate("Bearer "+token, ""); ok || err != nil && !errors.Is(err, errMalformed) {
				t.Errorf("header %q: %v, %v", token, ok, err)
			}
			if ok, err := authenticate("", token); ok || err == nil {
				t.Errorf("subprotocol %q: %v, %v", token, ok, err)
			}
			if bearer.IsWellFormed(token) {
				t.Errorf("%q is well-formed", token)
			}
		}
		if s == " " || s == "\t" {
			continue // white space that is valid around the value of a header
		}
		for _, header := range []string{"Bearer " + known + s, s + "Bearer " + known, "Bearer" + s + known} {
			if ok, err := authenticate(header, ""); ok || err != nil && !errors.Is(err, errMalformed) {
				t.Errorf("header %q: %v, %v", header, ok, err)
			}
		}
	}
	if _, err := authenticate("Bearer "+known+" x", ""); !errors.Is(err, errMalformed) {
		t.Errorf("text after a token: %v", err)
	}
	for _, header := range []string{"", "Bearer", "Bearer ", "Basic " + known, known, "Bearer\t" + known, "Bearer other"} {
		if ok, err := authenticate(header, ""); ok || err != nil {
			t.Errorf("%q: %v, %v", header, ok, err)
		}
	}
	if bearer.IsWellFormed("") {
		t.Error("an empty token is well-formed")
	}
	if _, err := authenticate("Bearer unknown", ""); err == nil {
		t.Error("the error from the next authenticator is lost")
	}
}
