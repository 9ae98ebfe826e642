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
	"slices"
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
	// DefaultTenant of records that name none; zero refuses such records.
	DefaultTenant tenant.ID
	// Check refuses, at load, a tenant that the source may not mint and names that are reserved.
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

// Open reads the file at path; the error names the file, the line and the field, and never a
// token. Changes take effect while [Authenticator.Run] runs.
func Open(ctx context.Context, path string, o Options) (*Authenticator, error) {
	file, err := reload.Open(path, func(data []byte) (table, error) { return parse(ctx, data, o) }, o.Report)
	if err != nil {
		return nil, err
	}
	return &Authenticator{file: file}, nil
}

// Run follows the file until ctx ends.
func (a *Authenticator) Run(ctx context.Context) { a.file.Run(ctx) }

// AuthenticateToken implements [authenticator.Token]. It never returns an error.
func (a *Authenticator) AuthenticateToken(_ context.Context, token string) (*authenticator.Response, bool, error) {
	e, ok := (*a.file.Load())[sum(token)]
	if !ok {
		return nil, false, nil
	}
	return &authenticator.Response{User: &user.DefaultInfo{
		Name:   e.text[:e.nameLength],
		UID:    e.text[e.nameLength:],
		Groups: slices.Clip(e.kin.Groups),
		Extra:  map[string][]string{tenant.ExtraKey: {e.kin.Tenant.String()}},
	}}, true, nil
}

// table maps a token's sum to its entry.
type table map[[sha256.Size]byte]entry

// entry is small, for files with a million tokens: name and uid are one string, groups and tenant
// are shared.
type entry struct {
	text       string
	kin        *credfile.Kin
	nameLength int
}

// sum hashes the token without copying it.
func sum(token string) [sha256.Size]byte {
	// #nosec G103 -- read only, and no longer than the call
	return sha256.Sum256(unsafe.Slice(unsafe.StringData(token), len(token)))
}

func parse(ctx context.Context, data []byte, o Options) (table, error) {
	t := table{}
	rules := credfile.Rules{Default: o.DefaultTenant, Check: o.Check, EmptySecret: func(line int) error {
		klog.FromContext(ctx).Info("Skipped a record without a token", "line", line)
		return nil
	}}
	err := credfile.Read(data, rules, func(r credfile.Record) error {
		key := sum(r.Secret)
		if _, known := t[key]; known {
			return errors.New("the token stands in an earlier line too")
		}
		t[key] = entry{text: r.Name + r.UID, kin: r.Kin, nameLength: len(r.Name)}
		return nil
	})
	return t, err
}
