// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package login

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/subtle"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"
)

// Errors of [OpenID.Token].
var (
	// ErrInteraction reports that a login is required, but no user can interact with the program.
	ErrInteraction = errors.New("a login is required, and this terminal is not interactive: run kubectl tenant login " +
		"yourself first")
	// ErrNoDevice reports that the provider does not support the device flow.
	ErrNoDevice = errors.New("the provider does not support the device flow: remove --device")
	// ErrNoToken reports that the provider returned no ID token.
	ErrNoToken = errors.New("the provider returned no ID token: check that the client may request the scope openid")
)

// httpTimeout is the maximum duration of each HTTP request.
const httpTimeout = 30 * time.Second

// OpenID is a client for one OpenID provider.
type OpenID struct {
	// Issuer is the URL of the provider. ClientID is the ID of this client at the provider.
	Issuer, ClientID string
	// Secret is the secret of a confidential client. It is empty for a public client.
	Secret string
	// CAFile is a file with the provider's certificate authority in PEM. CAData contains the
	// authority in PEM, and is used if CAFile is empty. If both are empty, the system's
	// authorities are used.
	CAFile string
	CAData []byte
	// Scopes contains the scopes that are requested in addition to openid.
	Scopes []string
	// Device specifies the device flow (RFC 8628) instead of a browser on this machine.
	Device bool
	// Interactive reports whether a user can log in.
	Interactive bool
	// Port is the port of the loopback listener. If zero, any free port is used.
	Port int
	// Open opens a page in a browser. The address is also printed, so that the user can open it if
	// Open fails.
	Open func(ctx context.Context, address string) error
	// Printf prints instructions for the user.
	Printf func(format string, args ...any)
	// Timeout is the maximum duration of an interactive login.
	Timeout time.Duration
	// Now returns the current time.
	Now func() time.Time
}

// Key returns the values that distinguish this client's tokens from other tokens.
func (o *OpenID) Key() []string {
	return append([]string{"openid", o.Issuer, o.ClientID}, slices.Sorted(slices.Values(o.Scopes))...)
}

// Token returns the stored token if it is still usable. Otherwise, it refreshes the token, or
// starts a login. The error may wrap [ErrInteraction], [ErrNoDevice] or [ErrNoToken]. It
// contains no token.
func (o *OpenID) Token(ctx context.Context, stored *Token) (*Token, error) {
	if stored.usable(o.Now()) {
		return stored, nil
	}
	client, err := o.httpClient()
	if err != nil {
		return nil, err
	}
	ctx = oidc.ClientContext(ctx, client)
	provider, err := oidc.NewProvider(ctx, o.Issuer)
	if err != nil {
		return nil, fmt.Errorf("query the provider %s: %s", o.Issuer, oneLine(err))
	}
	config := &oauth2.Config{
		ClientID:     o.ClientID,
		ClientSecret: o.Secret,
		Endpoint:     provider.Endpoint(),
		Scopes: append([]string{oidc.ScopeOpenID},
			slices.DeleteFunc(slices.Clone(o.Scopes), func(s string) bool { return s == oidc.ScopeOpenID })...),
	}
	verifier := provider.Verifier(&oidc.Config{ClientID: o.ClientID, Now: o.Now})
	if stored != nil && stored.Refresh != "" {
		got, err := o.refresh(ctx, config, verifier, stored.Refresh)
		if got != nil || err != nil {
			return got, err
		}
	}
	if !o.Interactive {
		return nil, ErrInteraction
	}
	ctx, cancel := context.WithTimeout(ctx, o.Timeout)
	defer cancel()
	if o.Device {
		return o.device(ctx, config, verifier)
	}
	return o.browse(ctx, config, verifier)
}

func (o *OpenID) httpClient() (*http.Client, error) {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS12}
	data := o.CAData
	from := "--issuer-ca-data"
	if o.CAFile != "" {
		var err error
		if data, err = os.ReadFile(o.CAFile); err != nil {
			return nil, err
		}
		from = o.CAFile
	}
	if o.CAFile != "" || len(data) > 0 {
		pool := x509.NewCertPool()
		if !pool.AppendCertsFromPEM(data) {
			return nil, fmt.Errorf("%s contains no certificate", from)
		}
		transport.TLSClientConfig.RootCAs = pool
	}
	return &http.Client{Transport: transport, Timeout: httpTimeout}, nil
}

// maxDeviceBytes is the maximum size of the response to the start of a device flow.
const maxDeviceBytes = 1 << 20

// deviceTransport is the transport for starting a device flow. Some providers return the numbers in
// the response as JSON strings, which the oauth2 library rejects. deviceTransport converts them to
// numbers.
type deviceTransport struct {
	next http.RoundTripper
	url  string // the device authorization endpoint
}

// RoundTrip implements [http.RoundTripper].
func (n *deviceTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := n.next.RoundTrip(req)
	if err != nil || req.URL.String() != n.url || resp.StatusCode != http.StatusOK {
		return resp, err
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxDeviceBytes))
	_ = resp.Body.Close()
	if err != nil {
		return nil, err
	}
	var fields map[string]json.RawMessage
	if json.Unmarshal(body, &fields) == nil {
		for _, name := range []string{"expires_in", "interval"} {
			var text string
			if json.Unmarshal(fields[name], &text) != nil {
				continue
			}
			if number, err := strconv.ParseInt(text, 10, 64); err == nil {
				fields[name] = json.RawMessage(strconv.FormatInt(number, 10))
			}
		}
		if body, err = json.Marshal(fields); err != nil {
			return nil, err
		}
	}
	resp.Body = io.NopCloser(bytes.NewReader(body))
	resp.ContentLength = int64(len(body))
	return resp, nil
}

// refresh returns a new token. It returns nil if the provider rejects the refresh token or
// returns no ID token, because a login is then required.
func (o *OpenID) refresh(
	ctx context.Context, config *oauth2.Config, verifier *oidc.IDTokenVerifier, token string,
) (*Token, error) {
	answer, err := config.TokenSource(ctx, &oauth2.Token{RefreshToken: token}).Token()
	var refused *oauth2.RetrieveError
	if errors.As(err, &refused) && refused.Response != nil &&
		refused.Response.StatusCode < http.StatusInternalServerError {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("refresh the token: %s", safe(err, token, o.Secret))
	}
	got, err := o.verified(ctx, verifier, answer, "")
	if errors.Is(err, ErrNoToken) {
		return nil, nil // the response need not contain an ID token (OpenID Connect Core 1.0, section 12.2)
	}
	return got, err
}

// verified verifies and returns the ID token in a response. If nonce is not empty, the ID token
// must contain it.
func (o *OpenID) verified(
	ctx context.Context, verifier *oidc.IDTokenVerifier, answer *oauth2.Token, nonce string,
) (*Token, error) {
	raw, _ := answer.Extra("id_token").(string)
	if raw == "" {
		return nil, ErrNoToken
	}
	token, err := verifier.Verify(ctx, raw)
	if err != nil {
		return nil, fmt.Errorf("verify the provider's ID token: %s", oneLine(err))
	}
	if nonce != "" && subtle.ConstantTimeCompare([]byte(token.Nonce), []byte(nonce)) != 1 {
		return nil, errors.New("the ID token does not belong to this login")
	}
	return &Token{Token: raw, Expires: token.Expiry.UTC(), Refresh: answer.RefreshToken}, nil
}

// browse runs the authorization code flow with PKCE (RFC 6749, RFC 7636) and a loopback listener
// (RFC 8252, section 7.3).
func (o *OpenID) browse(ctx context.Context, config *oauth2.Config, verifier *oidc.IDTokenVerifier) (*Token, error) {
	state := rand.Text()
	nonce := rand.Text()
	proof := oauth2.GenerateVerifier()
	callback, err := listen(ctx, o.Port, state)
	if err != nil {
		return nil, err
	}
	defer callback.close()
	config.RedirectURL = callback.url
	address := config.AuthCodeURL(state, oidc.Nonce(nonce), oauth2.S256ChallengeOption(proof))
	o.Printf("log in at %s", address)
	if err := o.Open(ctx, address); err != nil {
		o.Printf("the browser could not be started (%v): open the address yourself, on this machine", err)
	}
	code, err := callback.code(ctx)
	if err != nil {
		return nil, err
	}
	answer, err := config.Exchange(ctx, code, oauth2.VerifierOption(proof))
	if err != nil {
		return nil, fmt.Errorf("exchange the authorization code: %s", safe(err, code, proof, o.Secret))
	}
	return o.verified(ctx, verifier, answer, nonce)
}

// device runs the device flow (RFC 8628).
func (o *OpenID) device(ctx context.Context, config *oauth2.Config, verifier *oidc.IDTokenVerifier) (*Token, error) {
	if config.Endpoint.DeviceAuthURL == "" {
		return nil, ErrNoDevice
	}
	client, err := o.httpClient()
	if err != nil {
		return nil, err
	}
	client.Transport = &deviceTransport{client.Transport, config.Endpoint.DeviceAuthURL}
	ctx = oidc.ClientContext(ctx, client)
	response, err := config.DeviceAuth(ctx)
	if err != nil {
		return nil, fmt.Errorf("start the device flow: %s", safe(err, o.Secret))
	}
	o.Printf("open %s on any device and enter the code %s", response.VerificationURI, response.UserCode)
	answer, err := config.DeviceAccessToken(ctx, response)
	if err != nil {
		return nil, fmt.Errorf("wait for the device login: %s", safe(err, response.DeviceCode, o.Secret))
	}
	return o.verified(ctx, verifier, answer, "")
}

// safe returns the code and the description in a provider's error response. It returns no other
// part of the response, because the response may contain a token. It omits a description that
// contains one of the secrets in sent. For any other error, it returns the error's text.
func safe(err error, sent ...string) string {
	var refused *oauth2.RetrieveError
	if !errors.As(err, &refused) {
		return oneLine(err)
	}
	status := 0
	if refused.Response != nil {
		status = refused.Response.StatusCode
	}
	text := fmt.Sprintf("the provider returned %d %s", status, printable(refused.ErrorCode, 64))
	decoded, _ := url.QueryUnescape(refused.ErrorDescription)
	echoes := slices.ContainsFunc(sent, func(secret string) bool {
		return secret != "" && (strings.Contains(refused.ErrorDescription, secret) || strings.Contains(decoded, secret))
	})
	if refused.ErrorDescription != "" && !echoes {
		text += ": " + printable(refused.ErrorDescription, descriptionBytes)
	}
	return text
}

// descriptionBytes is the maximum length of a provider's error description in the output, in bytes.
const descriptionBytes = 500

// printable returns a provider's text on one line, with at most maxBytes bytes and without
// invisible characters.
func printable(text string, maxBytes int) string {
	cut := len(text) > maxBytes
	text = strings.Join(strings.FieldsFunc(strings.ToValidUTF8(text[:min(len(text), maxBytes)], ""), func(r rune) bool {
		return unicode.IsSpace(r) || !unicode.IsPrint(r)
	}), " ")
	if cut {
		text += "..."
	}
	return text
}

// oneLine returns the text of a library's error on one line. Callers do not wrap the error,
// because its type is not part of our API.
func oneLine(err error) string { return strings.Join(strings.Fields(err.Error()), " ") }
