// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

// Package tokenfile authenticates static bearer tokens from a CSV file whose records may end in a
// tenant:
//
//	token,user,uid[,"group1,group2"[,other...]][,,tenant]
//
// The form without a tenant is kube-apiserver's own (k8s.io/apiserver
// pkg/authentication/token/tokenfile, v0.37.1). The file is held to stricter rules than upstream's
// and refused as a whole, naming line and field, where it breaks one.
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

// Options say what a token file may hold.
type Options struct {
	// DefaultTenant is the tenant of a record that names none. If zero, such a record is refused.
	DefaultTenant tenant.ID
	// Check refuses, at load, a tenant that the source may not assert and names that are reserved.
	// Required.
	Check func(name string, groups []string, id tenant.ID) error
	// Report is told about each new version of the file. Optional.
	Report reload.Report
}

// Authenticator knows the tokens of one file. It implements [authenticator.Token], abstains on
// tokens that it does not know, and sets the extra tenant.ExtraKey.
//
// Tokens are held as SHA-256 sums, not as text. It is audience-agnostic, as upstream's.
type Authenticator struct {
	file *reload.File[table]
}

// Open reads the file at path; the error names the file, the line and the field, and never a token.
// Changes take effect while [Authenticator.Run] runs. Each time it loads the file, it logs how many
// records belong to the system tenant.
func Open(ctx context.Context, path string, o Options) (*Authenticator, error) {
	file, err := reload.Open(path, func(data []byte) (table, error) { return parse(ctx, path, data, o) }, o.Report)
	if err != nil {
		return nil, err
	}
	return &Authenticator{file: file}, nil
}

// CheckToken returns an error if a token file must not contain the text as a token, such as a hash.
// The error contains no part of the text.
func CheckToken(text string) error { return credfile.CheckSecret(text, credfile.Text) }

// Run follows the file until ctx ends.
func (a *Authenticator) Run(ctx context.Context) { a.file.Run(ctx) }

// AuthenticateToken implements [authenticator.Token]. It never returns an error.
func (a *Authenticator) AuthenticateToken(_ context.Context, token string) (*authenticator.Response, bool, error) {
	t := a.file.Load()
	e, ok := t.entries[sum(token)]
	if !ok {
		return nil, false, nil
	}
	kin := &t.kins[e.kin]
	return &authenticator.Response{User: &user.DefaultInfo{
		Name:   t.text[e.name:e.uid],
		UID:    t.text[e.uid:e.end],
		Groups: slices.Clip(kin.groups),
		Extra:  kin.extra,
	}}, true, nil
}

// table is one version of the file. It is laid out for files with a million tokens: the entries
// hold no pointers, so that the garbage collector need not look at them.
type table struct {
	entries map[[sha256.Size]byte]entry // by the token's sum
	text    string                      // all names and uids
	kins    []kin
}

// entry says where name and uid stand in the table's text, and which kin they are of.
type entry struct{ name, uid, end, kin uint32 }

// kin is what many users share: their groups, and the extra that binds them. Like upstream's
// authenticator, which hands out one user.Info again and again, it relies on nobody changing it.
type kin struct {
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
	known := map[*credfile.Kin]uint32{}
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
		index, shared := known[r.Kin]
		if !shared {
			index = uint32(len(t.kins)) // #nosec G115 -- no more than records, of which the text has room for fewer
			known[r.Kin] = index
			if extras[r.Kin.Tenant] == nil {
				extras[r.Kin.Tenant] = map[string][]string{tenant.ExtraKey: {r.Kin.Tenant.String()}}
			}
			t.kins = append(t.kins, kin{r.Kin.Groups, extras[r.Kin.Tenant]})
		}
		var e entry
		// #nosec G115 -- bounded just above
		e.name, e.kin = uint32(text.Len()), index
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
