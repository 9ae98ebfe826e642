// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

// Package credfile reads the records of token files and password files:
//
//	secret,user,uid[,"group1,group2"[,other...]][,,tenant]
package credfile

import (
	"bytes"
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"strings"

	"k8s.io/klog/v2"

	"github.com/kubetenant/kubetenant/tenant"
)

// The indexes of the fields. The tenant, if any, is the last field.
const (
	fieldSecret = 0
	fieldUser   = 1
	fieldUID    = 2
	fieldGroups = 3
)

// Record is one record of a file. Name and UID share memory with Secret. A caller that retains them
// MUST clone them. Otherwise, the secret stays in memory.
type Record struct {
	Secret, Name, UID string
	Membership        *Membership
}

// Membership has the groups and the tenant of a record. All records with the same groups and tenant
// share one Membership, which MUST NOT be changed.
type Membership struct {
	Groups []string
	Tenant tenant.ID
}

// Rules specify additional rules for a file.
type Rules struct {
	// Default is the tenant of records without a tenant. If zero, these records are rejected.
	Default tenant.ID
	// Secrets specifies the allowed forms of secrets. Any other form is rejected.
	Secrets Secrets
	// Check returns an error if the source may not assert the tenant, or if the user name or a
	// group is reserved.
	Check func(name string, groups []string, id tenant.ID) error
	// EmptySecret is called for a record without a secret. If it returns an error, the file is
	// rejected. Otherwise, the record is skipped.
	EmptySecret func(line int) error
}

// Error reports where a file violates the rules. It contains no secret from the file.
type Error struct {
	Line  int // starts at 1
	Field int // starts at 0; -1 means the whole record
	Err   error
}

func (e *Error) Error() string {
	if e.Field < 0 {
		return fmt.Sprintf("line %d: %v", e.Line, e.Err)
	}
	return fmt.Sprintf("line %d, field %d: %v", e.Line, e.Field, e.Err)
}

// Position returns the line and the field, so that tools can show them. Field -1 means the whole
// record.
func (e *Error) Position() (line, field int) { return e.Line, e.Field }

// Unwrap returns the reason.
func (e *Error) Unwrap() error { return e.Err }

// UserError marks err as an error about the user field of a record, see [Read].
func UserError(err error) error { return userError{err} }

type userError struct{ error }

var (
	errNoDefault = errors.New("no tenant: name the tenant in the record, or set defaultTenant in the configuration")
	errUTF16     = errors.New("the file is UTF-16: save it as UTF-8")
)

// byteOrderMark is a prefix that some editors write. It does not belong to the first secret.
const byteOrderMark = "\ufeff"

// Count has the number of records in a file.
type Count struct {
	Records int
	System  int // records of the system tenant
}

// Log logs the numbers of records in the file at path.
func (c Count) Log(ctx context.Context, path string) {
	klog.FromContext(ctx).Info("Loaded a credential file", "path", path, "records", c.Records,
		"systemTenantRecords", c.System)
}

// Read calls each for every record in data that has a secret, and returns the number of these
// records. It stops with an [*Error] at the first record that violates a rule or for which each
// fails. If each returns an error from [UserError], the error is reported for the user field.
// Any other error from each is reported for the secret field.
func Read(data []byte, rules Rules, each func(Record) error) (Count, error) {
	if isUTF16(data) {
		return Count{}, &Error{1, -1, errUTF16}
	}
	data = bytes.TrimPrefix(data, []byte(byteOrderMark))
	r := csv.NewReader(bytes.NewReader(data))
	r.FieldsPerRecord = -1
	r.ReuseRecord = true
	known, count := memberships{}, Count{}
	for {
		quoted := isQuoted(data[r.InputOffset():])
		fields, err := r.Read()
		if err != nil {
			return count, readError(err)
		}
		line, _ := r.FieldPos(0)
		if len(fields) < fieldGroups {
			return count, &Error{
				line, -1,
				fmt.Errorf("a record must have at least secret, user and uid, but has only %d of them", len(fields)),
			}
		}
		if fields[fieldSecret] == "" {
			if err := rules.EmptySecret(line); err != nil {
				return count, &Error{line, fieldSecret, err}
			}
			continue
		}
		if err := checkSecret(fields[fieldSecret], quoted, rules.Secrets); err != nil {
			return count, &Error{line, fieldSecret, err}
		}
		rec, at, err := known.record(fields, rules)
		if err != nil {
			return count, &Error{line, at, err}
		}
		if err := each(rec); err != nil {
			at = fieldSecret
			if userErr := (userError{}); errors.As(err, &userErr) {
				at = fieldUser
			}
			return count, &Error{line, at, err}
		}
		count.add(rec)
	}
}

func (c *Count) add(r Record) {
	c.Records++
	if r.Membership.Tenant.IsSystem() {
		c.System++
	}
}

// isUTF16 reports whether a file begins with a byte order mark or an ASCII character in UTF-16.
func isUTF16(data []byte) bool {
	if len(data) < 2 {
		return false
	}
	mark := [2]byte(data)
	return mark == [2]byte{0xff, 0xfe} || mark == [2]byte{0xfe, 0xff} || mark[0] == 0 || mark[1] == 0
}

// isQuoted reports whether the first field of the next record is in quotes.
func isQuoted(rest []byte) bool {
	return bytes.HasPrefix(bytes.TrimLeft(rest, "\r\n"), []byte(`"`))
}

// hasTenantForm reports whether the last field of a record is the tenant. The record then has at
// least five fields, and the field before the last is empty.
func hasTenantForm(fields []string) bool {
	n := len(fields)
	return n >= 5 && fields[n-2] == ""
}

// readError converts an error from the CSV reader. It returns nil at the end of the file.
func readError(err error) error {
	var malformed *csv.ParseError
	switch {
	case errors.Is(err, io.EOF):
		return nil
	case errors.As(err, &malformed):
		return &Error{malformed.Line, -1, malformed.Err}
	}
	return err
}

// memberships maps the text of the groups field and of the tenant field to the shared Membership.
type memberships map[[2]string]*Membership

// record returns the record with the given fields. If a field violates a rule, it returns the index
// of the field and the error. The index is -1 if the error is about the whole record.
func (k memberships) record(fields []string, rules Rules) (Record, int, error) {
	n := len(fields)
	for i := fieldUser; i <= fieldUID; i++ {
		if fields[i] == "" {
			return Record{}, i, errors.New("must not be empty")
		}
		if err := tenant.CheckForm([]string{fieldUser: "the user name", fieldUID: "the UID"}[i], fields[i]); err != nil {
			return Record{}, i, err
		}
	}
	tenantText := ""
	if hasTenantForm(fields) {
		if tenantText = fields[n-1]; tenantText == "" {
			return Record{}, n - 1, errors.New("the record ends with two empty fields: the tenant is missing")
		}
	}
	for i := fieldGroups + 1; i < n; i++ {
		if beforeTenant := tenantText != "" && i == n-2; fields[i] == "" && !beforeTenant {
			return Record{}, i, errors.New("must not be empty, except directly before a tenant in the last field")
		}
	}
	groupsText := ""
	if n > fieldGroups {
		groupsText = fields[fieldGroups]
	}
	membership, known := k[[2]string{groupsText, tenantText}]
	if !known {
		id, err := parseTenant(tenantText, rules.Default)
		if err != nil {
			return Record{}, n - 1, err
		}
		groupsText, tenantText = strings.Clone(groupsText), strings.Clone(tenantText)
		membership = &Membership{Groups: splitGroups(groupsText), Tenant: id}
		for _, group := range membership.Groups {
			if err := tenant.CheckForm("a group", group); err != nil {
				return Record{}, fieldGroups, err
			}
		}
		k[[2]string{groupsText, tenantText}] = membership
	}
	if err := rules.Check(fields[fieldUser], membership.Groups, membership.Tenant); err != nil {
		return Record{}, -1, err
	}
	return Record{
		Secret:     fields[fieldSecret],
		Name:       fields[fieldUser],
		UID:        fields[fieldUID],
		Membership: membership,
	}, 0, nil
}

func parseTenant(text string, byDefault tenant.ID) (tenant.ID, error) {
	if text != "" {
		// The text shares memory with the secret, so the tenant ID must not retain it.
		return tenant.Parse(strings.Clone(text))
	}
	if byDefault.IsZero() {
		return tenant.ID{}, errNoDefault
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
