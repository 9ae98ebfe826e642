// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

// Package basicauth authenticates the Basic authorization header (RFC 7617) against a CSV file:
//
//	password,user,uid[,"group1,group2"[,other...]][,,tenant]
//
// A password is plain text or a bcrypt hash ($2a$, $2b$, $2y$). Any other hash, such as $6$ or
// {SHA}, is rejected. Two tenants may both have a user with the same name. The login name
// user@tenant is always valid. The user name alone is valid too if it is unique in the file. If a
// record violates a rule, the whole file is rejected, and the error names the line and the field.
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

// ErrRefused reports a wrong password, an unknown user or an invalid header. The error is the same
// in all cases, so that it does not reveal which user names exist.
var ErrRefused = errors.New("wrong user name or password")

// ErrBusy reports that too many other logins are in progress.
var ErrBusy = errors.New("too many concurrent logins")

// maxHeaderBytes is the maximum size of an Authorization header that is decoded. It is much larger
// than any login, and much smaller than the header limit of net/http.
const maxHeaderBytes = 8 << 10

// Options specify the rules for a password file.
type Options struct {
	// DefaultTenant is the tenant of records without a tenant. If zero, these records are
	// rejected.
	DefaultTenant tenant.ID
	// Check returns an error if the source may not assert the tenant, or if the user name or a
	// group is reserved. It is called for each record when the file is loaded. Required.
	Check func(name string, groups []string, id tenant.ID) error
	// Report is called for each new version of the file, and once if the file disappears.
	// Optional.
	Report reload.Report
}

// Authenticator authenticates the users of one file. It implements [authenticator.Request], claims
// every Basic header, and sets the extra tenant.ExtraKey.
//
// A failed login takes the same work whether or not the user exists. The number of concurrent
// bcrypt comparisons is limited. If half of the slots for running and waiting logins are in use,
// the number of logins from each client address is limited too. Password guessing from one
// address therefore cannot use up the CPU or lock out clients at other addresses. A login stops
// waiting when its request ends. The authenticator is audience-agnostic.
type Authenticator struct {
	file   *reload.File[*table]
	logins *loginLimiter
}

// Open reads a password file. The error names the file, the line and the field, but never a
// password. Changes take effect while [Authenticator.Run] runs. Each time the file is loaded, the
// number of its records and the number of records of the system tenant are logged.
func Open(ctx context.Context, path string, o Options) (*Authenticator, error) {
	file, err := reload.Open(path, func(data []byte) (*table, error) { return load(ctx, path, data, o) }, o.Report)
	if err != nil {
		return nil, err
	}
	return &Authenticator{file: file, logins: newLoginLimiter()}, nil
}

// Run loads new versions of the file until ctx ends.
func (a *Authenticator) Run(ctx context.Context) { a.file.Run(ctx) }

// AuthenticateRequest implements [authenticator.Request]. It abstains if the request has no
// Basic header. It fails with [ErrRefused], [ErrBusy] or the context's error.
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
	e, err := (*a.file.Load()).verify(req.Context(), clientOf(req.RemoteAddr), login, password, a.logins)
	if err != nil {
		return nil, false, err
	}
	return &authenticator.Response{User: &user.DefaultInfo{
		Name:   e.name,
		UID:    e.uid,
		Groups: slices.Clip(e.membership.Groups),
		Extra:  map[string][]string{tenant.ExtraKey: {e.membership.Tenant.String()}},
	}}, true, nil
}

// parseHeader parses a Basic Authorization header with net/http (RFC 7617). It returns false if
// the header is too large or invalid, or if the user name or the password is empty.
func parseHeader(header string) (login, password string, ok bool) {
	if len(header) > maxHeaderBytes {
		return "", "", false
	}
	r := http.Request{Header: http.Header{"Authorization": {strings.TrimSpace(header)}}}
	login, password, ok = r.BasicAuth()
	return login, password, ok && login != "" && password != ""
}
