// Package credfile reads the records that the token file and the password file have in common:
//
//	secret,user,uid[,"group1,group2"[,other...]][,,tenant]
package credfile

import (
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/kubetenant/kubetenant/tenant"
)

// The fields that have a meaning, counted from 0. The tenant is the last one.
const (
	fieldSecret = 0
	fieldUser   = 1
	fieldUID    = 2
	fieldGroups = 3
)

// Record is one line. Name and UID share memory with Secret: whoever keeps them beyond the call
// MUST clone them, or the secret stays in memory too.
type Record struct {
	Secret, Name, UID string
	Kin               *Kin
}

// Kin is what many records have alike. It is shared and must not be changed.
type Kin struct {
	Groups []string
	Tenant tenant.ID
}

// Rules are what a file is held to besides its form.
type Rules struct {
	// Default is the tenant of records that name none; zero refuses such records.
	Default tenant.ID
	// Check refuses a tenant that the source may not mint and names that are reserved.
	Check func(name string, groups []string, id tenant.ID) error
	// EmptySecret decides about a record without a secret: an error refuses the file, nil skips it.
	EmptySecret func(line int) error
}

// Error says where a file breaks the rules. It never holds what stands there.
type Error struct {
	Line  int // counted from 1
	Field int // counted from 0, as the file formats do; -1 for the whole record
	Err   error
}

func (e *Error) Error() string {
	if e.Field < 0 {
		return fmt.Sprintf("line %d: %v", e.Line, e.Err)
	}
	return fmt.Sprintf("line %d, field %d: %v", e.Line, e.Field, e.Err)
}

// Position returns the line, and the field, -1 for the whole record: for tools that show the place.
func (e *Error) Position() (line, field int) { return e.Line, e.Field }

// Unwrap returns the reason.
func (e *Error) Unwrap() error { return e.Err }

// AboutUser returns err as one about a record's user.
func AboutUser(err error) error { return aboutUser{err} }

type aboutUser struct{ error }

// byteOrderMark begins what some editors write; it is no part of the first secret.
const byteOrderMark = "\ufeff"

// Read calls each with the records of data in their order. The first record that breaks a rule
// ends it with an [*Error], as does an error of each: one made by [AboutUser] is about the user, any
// other about the secret.
func Read(data []byte, rules Rules, each func(Record) error) error {
	r := csv.NewReader(bytes.NewReader(bytes.TrimPrefix(data, []byte(byteOrderMark))))
	r.FieldsPerRecord = -1
	r.ReuseRecord = true
	kins := kinship{}
	for {
		fields, err := r.Read()
		if err != nil {
			return ended(err)
		}
		line, _ := r.FieldPos(0)
		if len(fields) < fieldGroups {
			return &Error{line, -1, fmt.Errorf("%d fields, want at least secret, user and uid", len(fields))}
		}
		if fields[fieldSecret] == "" {
			if err := rules.EmptySecret(line); err != nil {
				return &Error{line, fieldSecret, err}
			}
			continue
		}
		rec, at, err := kins.record(fields, rules)
		if err != nil {
			return &Error{line, at, err}
		}
		if err := each(rec); err != nil {
			at = fieldSecret
			if about := (aboutUser{}); errors.As(err, &about) {
				at = fieldUser
			}
			return &Error{line, at, err}
		}
	}
}

// ended returns what a reader's error says of its file: nothing at the end.
func ended(err error) error {
	var malformed *csv.ParseError
	switch {
	case errors.Is(err, io.EOF):
		return nil
	case errors.As(err, &malformed):
		return &Error{malformed.Line, -1, malformed.Err}
	}
	return err
}

// kinship holds the distinct combinations of groups and tenant, by their text.
type kinship map[[2]string]*Kin

// record returns the record of fields, or the index of the offending field and why it offends.
func (k kinship) record(fields []string, rules Rules) (Record, int, error) {
	n := len(fields)
	for i := fieldUser; i <= fieldUID; i++ {
		if fields[i] == "" {
			return Record{}, i, errors.New("empty")
		}
		if !tenant.IsWellFormed(fields[i]) {
			return Record{}, i, tenant.ErrForm
		}
	}
	tenantText := ""
	if n >= 5 && fields[n-2] == "" {
		if tenantText = fields[n-1]; tenantText == "" {
			return Record{}, n - 1, errors.New("two empty fields at the end: a tenant is missing")
		}
	}
	for i := fieldGroups + 1; i < n; i++ {
		if beforeTenant := tenantText != "" && i == n-2; fields[i] == "" && !beforeTenant {
			return Record{}, i, errors.New("empty, and not before a tenant in the last field")
		}
	}
	groupsText := ""
	if n > fieldGroups {
		groupsText = fields[fieldGroups]
	}
	kin, known := k[[2]string{groupsText, tenantText}]
	if !known {
		id, err := parseTenant(tenantText, rules.Default)
		if err != nil {
			return Record{}, n - 1, err
		}
		groupsText, tenantText = strings.Clone(groupsText), strings.Clone(tenantText)
		kin = &Kin{Groups: splitGroups(groupsText), Tenant: id}
		if slices.ContainsFunc(kin.Groups, func(group string) bool { return !tenant.IsWellFormed(group) }) {
			return Record{}, fieldGroups, tenant.ErrForm
		}
		k[[2]string{groupsText, tenantText}] = kin
	}
	if err := rules.Check(fields[fieldUser], kin.Groups, kin.Tenant); err != nil {
		return Record{}, -1, err
	}
	return Record{Secret: fields[fieldSecret], Name: fields[fieldUser], UID: fields[fieldUID], Kin: kin}, 0, nil
}

func parseTenant(text string, byDefault tenant.ID) (tenant.ID, error) {
	if text != "" {
		// A record's own string must not outlive it: it holds the secret.
		return tenant.Parse(strings.Clone(text))
	}
	if byDefault.IsZero() {
		return tenant.ID{}, errors.New("no tenant, and the file has no default tenant")
	}
	return byDefault, nil
}

func splitGroups(text string) []string {
	var groups []string
	for g := range strings.SplitSeq(text, ",") {
		if g != "" {
			groups = append(groups, g)
		}
	}
	return groups
}
