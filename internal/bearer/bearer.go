// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

// Package bearer reads the bearer tokens of requests. It rejects a token that another parser could
// read as a different token.
package bearer

import (
	"context"
	"errors"
	"net/http"
	"strings"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/request/bearertoken"
	"k8s.io/apiserver/pkg/authentication/request/websocket"
)

// New returns an authenticator for the bearer token in the Authorization header or in the
// websocket subprotocol of a request. It abstains if there is no token, or if next returns the
// error abstains. If the token is malformed, it returns the error malformed. If malformed is the
// same error as abstains, it abstains from malformed tokens.
func New(next authenticator.Token, abstains, malformed error) authenticator.Request {
	wellFormed := authenticator.TokenFunc(func(ctx context.Context, token string) (*authenticator.Response, bool, error) {
		if !IsWellFormed(token) {
			return nil, false, malformed
		}
		return next.AuthenticateToken(ctx, token)
	})
	adapters := []authenticator.Request{bearertoken.New(wellFormed), websocket.NewProtocolAuthenticator(wellFormed)}
	return authenticator.RequestFunc(func(r *http.Request) (*authenticator.Response, bool, error) {
		if !hasSingleToken(r) {
			if errors.Is(malformed, abstains) {
				return nil, false, nil
			}
			return nil, false, malformed
		}
		for _, a := range adapters {
			resp, ok, err := a.AuthenticateRequest(r)
			if errors.Is(err, abstains) {
				continue
			}
			if ok || err != nil {
				return resp, ok, err
			}
		}
		return nil, false, nil
	})
}

// IsWellFormed reports whether a token consists of visible ASCII characters. Parsers of JSON Web
// Tokens ignore white space, so one token could have several encodings. The grammar in RFC 6750
// (b64token) allows fewer characters, but the tokens of some products contain others.
func IsWellFormed(token string) bool {
	for i := range len(token) {
		if token[i] <= ' ' || token[i] > '~' {
			return false
		}
	}
	return token != ""
}

// hasSingleToken reports whether the Authorization header of a request contains at most one
// bearer token, which must be well-formed. It returns false if the header begins or ends with
// white space other than spaces and tabs. Without this check, upstream's adapter would ignore
// everything after the token (k8s.io/apiserver pkg/authentication/request/bearertoken, v0.37.1).
func hasSingleToken(r *http.Request) bool {
	header := strings.Trim(r.Header.Get("Authorization"), " \t") // RFC 9110, section 5.5
	if header != strings.TrimSpace(header) {
		return false
	}
	scheme, token, _ := strings.Cut(header, " ")
	if !strings.EqualFold(scheme, "Bearer") || token == "" || token[0] == ' ' { // upstream's adapter finds no token
		return true
	}
	return IsWellFormed(token)
}
