// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

// Package tokenfile authenticates static bearer tokens from a CSV file. A record may end with a
// tenant:
//
//	token,user,uid[,"group1,group2"[,other...]][,,tenant]
//
// The form without a tenant is kube-apiserver's own (k8s.io/apiserver
// pkg/authentication/token/tokenfile, v0.37.1). The rules for the file are stricter than
// upstream's. If a record violates a rule, the whole file is rejected, and the error names the line
// and the field.
package tokenfile

import (
	"context"
	"crypto/sha256"
	"errors"
	"math"
	"slices"
	"strings"
	"unsafe"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/klog/v2"

	"github.com/kubetenant/kubetenant/authn/internal/credfile"
	"github.com/kubetenant/kubetenant/internal/reload"
	"github.com/kubetenant/kubetenant/tenant"
)

// Options specify the rules for a token file.
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

// Authenticator authenticates the tokens of one file. It implements [authenticator.Token],
// abstains from unknown tokens, and sets the extra tenant.ExtraKey.
//
// It stores the SHA-256 of each token, not its text. It is audience-agnostic, like upstream's
// authenticator.
type Authenticator struct {
	file *reload.File[table]
}

// Open reads a token file. The error names the file, the line and the field, but never a token.
// Changes take effect while [Authenticator.Run] runs. Each time the file is loaded, the number of
// its records and the number of records of the system tenant are logged.
func Open(ctx context.Context, path string, o Options) (*Authenticator, error) {
	file, err := reload.Open(path, func(data []byte) (table, error) { return parse(ctx, path, data, o) }, o.Report)
	if err != nil {
		return nil, err
	}
	return &Authenticator{file: file}, nil
}

// CheckToken returns an error if a token file must not contain the text as a token, for example a
// hash. The error contains no part of the text.
func CheckToken(text string) error { return credfile.CheckSecret(text, credfile.Text) }

// Run loads new versions of the file until ctx ends.
func (a *Authenticator) Run(ctx context.Context) { a.file.Run(ctx) }

// AuthenticateToken implements [authenticator.Token]. It never returns an error.
func (a *Authenticator) AuthenticateToken(_ context.Context, token string) (*authenticator.Response, bool, error) {
	t := a.file.Load()
	e, ok := t.entries[sum(token)]
	if !ok {
		return nil, false, nil
	}
	m := &t.memberships[e.membership]
	return &authenticator.Response{User: &user.DefaultInfo{
		Name:   t.text[e.name:e.uid],
		UID:    t.text[e.uid:e.end],
		Groups: slices.Clip(m.groups),
		Extra:  m.extra,
	}}, true, nil
}

// table is one version of the file. It is designed for a million tokens. Its entries contain no
// pointers, so that the garbage collector does not scan them.
type table struct {
	entries     map[[sha256.Size]byte]entry // keyed by the SHA-256 of the token
	text        string                      // all names and uids
	memberships []membership
}

// entry has the positions of name and UID in the table's text, and the index of the membership.
type entry struct{ name, uid, end, membership uint32 }

// membership has the groups and the extra that many users share. No caller may change them.
// Upstream's authenticator has the same rule, because it returns one user.Info for several
// requests.
type membership struct {
	groups []string
	extra  map[string][]string
}

// sum hashes the token without copying it.
func sum(token string) [sha256.Size]byte {
	// #nosec G103 -- read only, and no longer than the call
	return sha256.Sum256(unsafe.Slice(unsafe.StringData(token), len(token)))
}

func parse(ctx context.Context, path string, data []byte, o Options) (table, error) {
	t := table{entries: map[[sha256.Size]byte]entry{}}
	var text strings.Builder
	known := map[*credfile.Membership]uint32{}
	extras := map[tenant.ID]map[string][]string{}
	rules := credfile.Rules{
		Default: o.DefaultTenant,
		Check:   o.Check,
		EmptySecret: func(line int) error {
			klog.FromContext(ctx).Info("Skipped a record without a token", "line", line)
			return nil
		},
	}
	count, err := credfile.Read(data, rules, func(r credfile.Record) error {
		key := sum(r.Secret)
		if _, twice := t.entries[key]; twice {
			return errors.New("an earlier line has the same token")
		}
		if text.Len()+len(r.Name)+len(r.UID) > math.MaxUint32 {
			return errors.New("the file contains too many user names")
		}
		index, shared := known[r.Membership]
		if !shared {
			index = uint32(len(t.memberships)) // #nosec G115 -- no more than records, of which the text has room for fewer
			known[r.Membership] = index
			if extras[r.Membership.Tenant] == nil {
				extras[r.Membership.Tenant] = map[string][]string{tenant.ExtraKey: {r.Membership.Tenant.String()}}
			}
			t.memberships = append(t.memberships, membership{r.Membership.Groups, extras[r.Membership.Tenant]})
		}
		var e entry
		// #nosec G115 -- bounded just above
		e.name = uint32(text.Len())
		e.membership = index
		text.WriteString(r.Name)
		e.uid = uint32(text.Len()) // #nosec G115 -- bounded just above
		text.WriteString(r.UID)
		e.end = uint32(text.Len()) // #nosec G115 -- bounded just above
		t.entries[key] = e
		return nil
	})
	if err != nil {
		return table{}, err
	}
	count.Log(ctx, path)
	t.text = text.String()
	return t, nil
}
