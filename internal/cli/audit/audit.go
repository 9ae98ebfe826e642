// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

// Package audit reads the audit streams of tenants, from a server or from files in a directory, and
// prints them.
package audit

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode/utf16"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"

	"github.com/kubetenant/kubetenant/authz"
	"github.com/kubetenant/kubetenant/internal/cli/jsonlines"
	"github.com/kubetenant/kubetenant/internal/cli/output"
	"github.com/kubetenant/kubetenant/internal/tenantaudit"
	"github.com/kubetenant/kubetenant/tenant"
)

var (
	// errNotServed reports that the server does not serve audit streams.
	errNotServed = errors.New("the server does not serve audit streams: set audit.directory in its configuration, or " +
		"read files with --from")
	// errEnded reports that the server ended a stream that the caller was following.
	errEnded = errors.New("the server ended the stream: run the command again with a --since that covers the gap")
	// errNotRecord reports that a line is not a record. The error does not contain the line.
	errNotRecord = errors.New("the line is not an audit record in JSON: it may be incomplete")
)

// Query selects a stream and records in the stream.
type Query struct {
	// Since excludes earlier records.
	Since time.Time
	// User selects the records of one user. If empty, all users are selected.
	User string
	// Denied selects the requests that received status 401 or 403.
	Denied bool
	// Tenant selects the stream of a tenant on a server. The zero ID selects the stream of the
	// caller's own tenant.
	Tenant tenant.ID
	// Follow waits for further records. It requires a server.
	Follow bool
}

func (q *Query) selects(r *tenantaudit.Record) bool {
	if r.Time.Before(q.Since) || q.User != "" && r.User != q.User {
		return false
	}
	return !q.Denied || r.Code == http.StatusUnauthorized || r.Code == http.StatusForbidden
}

// Visitor receives the records of a stream.
type Visitor struct {
	// Record is called for each record. line is the JSON text of the record. It is valid only until
	// Record returns. If Record returns an error, reading stops.
	Record func(r *tenantaudit.Record, line []byte) error
	// Invalid is called for each line from a server that is not a record. where describes the
	// position of the line.
	Invalid func(where string, err error)
}

func (v *Visitor) visit(where string, line []byte, err error, selects func(*tenantaudit.Record) bool) error {
	r := tenantaudit.Record{}
	if err == nil && (json.Unmarshal(line, &r) != nil || r.Time.IsZero()) {
		err = errNotRecord
	}
	if err != nil {
		v.Invalid(where, err)
		return nil
	}
	if !selects(&r) {
		return nil
	}
	return v.Record(&r, line)
}

// FromServer reads an audit stream from a server, oldest record first. It returns nil at the end
// of the stream. With [Query.Follow], it returns nil if ctx is canceled, and an error if the
// server ends the stream.
func FromServer(ctx context.Context, server rest.Interface, q *Query, v *Visitor) (err error) {
	get := server.Get().AbsPath(authz.AuditPath).Param("since", q.Since.UTC().Format(time.RFC3339Nano))
	if q.User != "" {
		get = get.Param("user", q.User)
	}
	if q.Denied {
		get = get.Param("denied", strconv.FormatBool(true))
	}
	if !q.Tenant.IsZero() {
		get = get.Param("tenant", q.Tenant.String())
	}
	if q.Follow {
		get = get.Param("follow", strconv.FormatBool(true))
	}
	stream, err := get.Stream(ctx)
	if err != nil {
		return explain(q.Tenant, err)
	}
	defer func() { _ = stream.Close() }()
	err = jsonlines.Lines(stream, func(number int, line []byte, err error) error {
		return v.visit(fmt.Sprintf("line %d of the stream", number), line, err, q.selects)
	}, func(err error) error { return fmt.Errorf("the stream was interrupted: %w", err) })
	switch {
	case q.Follow && ctx.Err() != nil:
		return nil
	case q.Follow && err == nil:
		return errEnded
	}
	return err
}

// explain adds advice to an error that the server returned.
func explain(id tenant.ID, err error) error {
	status := apierrors.APIStatus(nil)
	switch {
	case apierrors.IsNotFound(err) && errors.As(err, &status) && status.Status().Details != nil &&
		status.Status().Details.Name != "":
		return fmt.Errorf("the server has no audit stream of the tenant: it needs a Tenant or a namespace: %w", err)
	case apierrors.IsNotFound(err):
		return errNotServed
	case apierrors.IsForbidden(err) && !id.IsZero():
		return fmt.Errorf("you may not read the audit stream of tenant %s: callers of a tenant read the stream of their "+
			"own tenant only: %w", id, err)
	case apierrors.IsForbidden(err):
		return fmt.Errorf("you may not read your audit stream: your admin must allow get on the path %s: %w",
			authz.AuditPath, err)
	}
	return err
}

// FromFiles reads the files of a stream in a directory, oldest record first. A server may write
// the files at the same time. If the stream has no files, FromFiles reads no records. It skips
// invalid lines, because a server that was killed can leave an incomplete line that it never
// acknowledged.
func FromFiles(ctx context.Context, dir string, stream tenantaudit.Stream, q *Query, v *Visitor) error {
	return tenantaudit.Read(ctx, dir, stream, tenantaudit.Filter{Since: q.Since, User: q.User, Denied: q.Denied}, v.Record)
}

// Header is the header line for the records that [WriteText] prints.
const Header = "TIME                   CODE   VERB         OBJECT                                         CALLER\n"

// WriteText prints a record on one line. Control characters are escaped.
func WriteText(w io.Writer, r *tenantaudit.Record) error {
	code := "-"
	if r.Code != 0 {
		code = strconv.Itoa(int(r.Code))
	}
	_, err := fmt.Fprintf(w, "%-20s   %-4s   %-10s   %-44s   %s\n", r.Time.UTC().Format(time.RFC3339), code,
		output.Safe(r.Verb), output.Safe(objectOf(r)), output.Safe(callerOf(r)))
	return err
}

// callerOf returns the user that sent a request, or the tenant if the record has no user. A
// prefix distinguishes users from tenants. If the record has neither, callerOf returns "-".
func callerOf(r *tenantaudit.Record) string {
	switch {
	case r.User != "" && r.ImpersonatedBy != "":
		return "user " + r.User + ", impersonated by " + r.ImpersonatedBy
	case r.User != "":
		return "user " + r.User
	case r.Tenant != "":
		return "tenant " + r.Tenant
	}
	return "-"
}

// objectOf returns the object or the path that was requested.
func objectOf(r *tenantaudit.Record) string {
	if r.Resource == "" {
		return r.Path
	}
	text := r.Resource
	if r.Group != "" {
		text += "." + r.Group
	}
	if r.Subresource != "" {
		text += "/" + r.Subresource
	}
	if r.Name != "" {
		text += " " + r.Name
	}
	if r.Namespace != "" {
		text += " -n " + r.Namespace
	}
	return text
}

// WriteJSON prints the JSON of a record on one line. It preserves fields that are unknown to this
// version. It escapes characters that could control a terminal.
func WriteJSON(w io.Writer, line []byte) error {
	var compact bytes.Buffer
	if err := json.Compact(&compact, line); err != nil {
		return err
	}
	text := strings.ToValidUTF8(compact.String(), "\ufffd")
	if output.Safe(text) != text { // in valid JSON, these characters occur only in strings
		var b strings.Builder
		for _, c := range text {
			if s := string(c); output.Safe(s) == s {
				b.WriteRune(c)
				continue
			}
			for _, unit := range utf16.Encode([]rune{c}) {
				_, _ = fmt.Fprintf(&b, `\u%04x`, unit)
			}
		}
		text = b.String()
	}
	_, err := io.WriteString(w, text+"\n")
	return err
}
