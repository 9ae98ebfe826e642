// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

// Package basicauth authenticates the Basic authorization header (RFC 7617) against a CSV file:
//
//	password,user,uid[,"group1,group2"[,other...]][,,tenant]
//
// A password is plain text or a bcrypt hash ($2a$, $2b$, $2y$). The text of any other hash, such as
// $6$ or {SHA}, is refused. Two tenants may both have a user
// of one name: then the login name is user@tenant. A user name that is unique in the file works
// alone too. The file is refused as a whole, naming line and field, where it breaks a rule.
package basicauth

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/kubetenant/kubetenant/internal/reload"
	"github.com/kubetenant/kubetenant/tenant"
)

// ErrRefused is the one answer to a wrong password, an unknown user and a header that cannot be
// read, so that the answer tells nothing about which user names exist.
var ErrRefused = errors.New("wrong user name or password")

// ErrBusy refuses a login because too many others are being checked.
var ErrBusy = errors.New("too many concurrent logins")

// maxHeaderBytes bounds the header value that is decoded: far above any login, far below
// net/http's own limit.
const maxHeaderBytes = 8 << 10

// Options say what a password file may hold.
type Options struct {
	// DefaultTenant is the tenant of a record that names none. If zero, such a record is refused.
	DefaultTenant tenant.ID
	// Check refuses, at load, a tenant that the source may not assert and names that are reserved.
	// Required.
	Check func(name string, groups []string, id tenant.ID) error
	// Report is told about each new version of the file. Optional.
	Report reload.Report
}

// Authenticator knows the passwords of one file. It implements [authenticator.Request], claims
// every Basic header, and sets the extra tenant.ExtraKey.
//
// A failed login takes the same work whether or not the user exists. Logins that need bcrypt
// wait for each other beyond a small number, of each client's address a smaller one, so that
// guessing cannot take the whole machine nor all places; they give up when the request does.
// It is audience-agnostic.
type Authenticator struct {
	file *reload.File[*table]
	slow *turns
}

// Open reads the file at path; the error names the file, the line and the field, and never a
// password. Changes take effect while [Authenticator.Run] runs. Each time it loads the file, it
// logs how many records belong to the system tenant.
func Open(ctx context.Context, path string, o Options) (*Authenticator, error) {
	file, err := reload.Open(path, func(data []byte) (*table, error) { return load(ctx, path, data, o) }, o.Report)
	if err != nil {
		return nil, err
	}
	return &Authenticator{file: file, slow: newTurns()}, nil
}

// Run follows the file until ctx ends.
func (a *Authenticator) Run(ctx context.Context) { a.file.Run(ctx) }

// AuthenticateRequest implements [authenticator.Request]: it abstains without a Basic header and
// otherwise accepts or returns [ErrRefused], [ErrBusy] or the context's error.
func (a *Authenticator) AuthenticateRequest(req *http.Request) (*authenticator.Response, bool, error) {
	header := req.Header.Get("Authorization")
	scheme, _, _ := strings.Cut(strings.TrimSpace(header), " ")
	if !strings.EqualFold(scheme, "Basic") {
		return nil, false, nil
	}
	login, password, ok := parseHeader(header)
	if !ok {
		return nil, false, ErrRefused
	}
	e, err := (*a.file.Load()).verify(req.Context(), clientOf(req.RemoteAddr), login, password, a.slow)
	if err != nil {
		return nil, false, err
	}
	return &authenticator.Response{User: &user.DefaultInfo{
		Name:   e.name,
		UID:    e.uid,
		Groups: slices.Clip(e.kin.Groups),
		Extra:  map[string][]string{tenant.ExtraKey: {e.kin.Tenant.String()}},
	}}, true, nil
}

// parseHeader reads the value of an Authorization header by net/http's own reading of RFC 7617.
func parseHeader(header string) (login, password string, ok bool) {
	if len(header) > maxHeaderBytes {
		return "", "", false
	}
	r := http.Request{Header: http.Header{"Authorization": {strings.TrimSpace(header)}}}
	login, password, ok = r.BasicAuth()
	return login, password, ok && login != "" && password != ""
}
