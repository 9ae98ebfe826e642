// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package idp

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// OpenID is a running OpenID provider.
type OpenID struct {
	*process
	// Issuer is the URL of the provider. CA is its certificate in PEM.
	Issuer string
	CA     []byte
	client *http.Client
}

// redirectURI is the address that receives the code. No server listens there.
const redirectURI = "https://127.0.0.1:1/callback"

// StartOpenID starts the OpenID provider in script, with the Node.js packages that are installed in
// tools. It stores its files in dir.
func StartOpenID(ctx context.Context, tools, script, dir string) (*OpenID, error) {
	o := &OpenID{}
	certificate, key := filepath.Join(dir, "openid.crt"), filepath.Join(dir, "openid.key")
	var err error
	if o.CA, err = writeCertificate(certificate, key); err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(o.CA)
	o.client = &http.Client{
		Timeout:   time.Minute,
		Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}},
	}
	// Node resolves packages relative to the script.
	installed := filepath.Join(tools, "provider.mjs")
	if err := run(ctx, nil, "cp", script, installed); err != nil {
		return nil, err
	}
	issuers := make(chan string, 1)
	// #nosec G204 -- an installed test tool
	cmd := exec.Command(filepath.Join(tools, "node_modules", ".bin", "node"), installed, certificate, key)
	if o.process, err = start(cmd, filepath.Join(dir, "openid.log"), func(line string) {
		if issuer, ok := strings.CutPrefix(line, "issuer "); ok {
			issuers <- issuer
		}
	}); err != nil {
		return nil, err
	}
	err = o.awaitReady(ctx, func() error {
		select {
		case o.Issuer = <-issuers:
			return nil
		default:
			return errors.New("it does not listen")
		}
	})
	if err != nil {
		o.Stop()
		return nil, err
	}
	return o, nil
}

// Rotate makes the provider replace its keys.
func (o *OpenID) Rotate(ctx context.Context) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, o.Issuer+"/rotate", http.NoBody)
	if err != nil {
		return err
	}
	resp, err := o.client.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusNoContent {
		return fmt.Errorf("rotate keys: %s", resp.Status)
	}
	return nil
}

// prompt matches the kind of prompt on a page of the provider.
var prompt = regexp.MustCompile(`name="prompt" value="(login|consent)"`)

// Login returns an ID token for a client (rs256 or es256) and an account (user@org). Like a
// browser, it runs the authorization code flow (OpenID Connect Core 1.0, section 3.1) through the
// provider's pages.
func (o *OpenID) Login(ctx context.Context, client, account string) (string, error) {
	query := url.Values{
		"client_id":     {client},
		"response_type": {"code"},
		"scope":         {"openid"},
		"redirect_uri":  {redirectURI},
		"nonce":         {"n"},
	}
	resp, err := o.followPages(ctx, o.Issuer+"/auth?"+query.Encode(), account)
	if err != nil {
		return "", err
	}
	location := resp.Header.Get("Location")
	if location == "" {
		return "", fmt.Errorf("log in: %s without a code", resp.Status)
	}
	return o.redeem(ctx, client, location)
}

// Visit opens an address of the provider and logs in as an account, as a browser does. It
// continues until the provider redirects to another site.
func (o *OpenID) Visit(ctx context.Context, address, account string) error {
	resp, err := o.followPages(ctx, address, account)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("log in: %s", resp.Status)
	}
	return err
}

// followPages submits the forms of the provider until the provider redirects to another site or
// to redirectURI.
func (o *OpenID) followPages(ctx context.Context, address, account string) (*http.Response, error) {
	jar, err := cookiejar.New(nil)
	if err != nil {
		return nil, err
	}
	browser := &http.Client{
		Transport: o.client.Transport,
		Jar:       jar,
		Timeout:   time.Minute,
		CheckRedirect: func(req *http.Request, _ []*http.Request) error {
			if strings.HasPrefix(req.URL.String(), redirectURI) {
				return http.ErrUseLastResponse
			}
			return nil
		},
	}
	resp, err := o.send(ctx, browser, http.MethodGet, address, nil)
	for step := 0; err == nil && step < 4; step++ {
		page, readErr := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if readErr != nil {
			return nil, readErr
		}
		if resp.Header.Get("Location") != "" || !strings.HasPrefix(resp.Request.URL.String(), o.Issuer) {
			return resp, nil
		}
		match := prompt.FindSubmatch(page)
		if match == nil {
			return nil, fmt.Errorf("log in: %s with a page that asks for nothing", resp.Status)
		}
		form := url.Values{"prompt": {string(match[1])}, "login": {account}, "password": {"any"}}
		resp, err = o.send(ctx, browser, http.MethodPost, resp.Request.URL.String(), form)
	}
	return nil, errors.Join(errors.New("log in: no code"), err)
}

func (o *OpenID) send(
	ctx context.Context, browser *http.Client, method, address string, form url.Values,
) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, address, strings.NewReader(form.Encode()))
	if err != nil {
		return nil, err
	}
	if form != nil {
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	return browser.Do(req)
}

// redeem exchanges the authorization code for an ID token.
func (o *OpenID) redeem(ctx context.Context, client, location string) (string, error) {
	callback, err := url.Parse(location)
	if err != nil {
		return "", err
	}
	form := url.Values{
		"grant_type":   {"authorization_code"},
		"code":         {callback.Query().Get("code")},
		"redirect_uri": {redirectURI},
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, o.Issuer+"/token", strings.NewReader(form.Encode()))
	if err != nil {
		return "", err
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	req.SetBasicAuth(client, "secret")
	resp, err := o.client.Do(req)
	if err != nil {
		return "", err
	}
	defer func() { _ = resp.Body.Close() }()
	var answer struct {
		IDToken string `json:"id_token"`
		Error   string `json:"error"`
	}
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil {
		return "", err
	}
	if answer.IDToken == "" {
		return "", fmt.Errorf("redeem the code: %s %s", resp.Status, answer.Error)
	}
	return answer.IDToken, nil
}
