// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package tenantaudit

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"time"

	"github.com/kubetenant/kubetenant/tenant"
)

// ContentType is the media type of a served stream, which contains one JSON object in each line.
const ContentType = "application/x-ndjson"

// Query contains the parameters of a request for a stream.
type Query struct {
	Filter Filter
	// Tenant is the name of the stream's tenant. It is empty for the stream of the caller's own
	// tenant.
	Tenant string
}

// The errors of [ParseQuery]. They contain no part of the query.
var (
	errSince  = errors.New("since must be a time in the form of RFC 3339")
	errDenied = errors.New("denied must be true or false")
	errFollow = errors.New("follow must be true or false")
	errQuery  = errors.New("the query cannot be read")
	errTwice  = errors.New("a parameter of the query occurs more than once")
)

// ParseQuery parses the parameters since, user, denied, follow and tenant of a query. It ignores
// other parameters.
func ParseQuery(raw string) (q Query, err error) {
	values, err := url.ParseQuery(raw)
	if err != nil {
		return q, errQuery
	}
	for _, name := range []string{"since", "user", "denied", "follow", "tenant"} {
		if len(values[name]) > 1 {
			return q, errTwice
		}
	}
	if since := values.Get("since"); since != "" {
		if q.Filter.Since, err = time.Parse(time.RFC3339Nano, since); err != nil {
			return q, errSince
		}
	}
	if q.Filter.Denied, err = parseFlag(values.Get("denied")); err != nil {
		return q, errDenied
	}
	if q.Filter.Follow, err = parseFlag(values.Get("follow")); err != nil {
		return q, errFollow
	}
	q.Filter.User, q.Tenant = values.Get("user"), values.Get("tenant")
	return q, nil
}

func parseFlag(text string) (bool, error) {
	if text == "" {
		return false, nil
	}
	return strconv.ParseBool(text)
}

// The maximum numbers of concurrent reads. The system tenant has its own limit, so that its callers
// can read while tenants use all of their reads.
const (
	maxReadsPerTenant = 4
	maxTenantReads    = 64
	maxSystemReads    = 16
)

// readers limits concurrent reads of streams. Safe for concurrent use.
type readers struct {
	mu      sync.Mutex
	active  map[readerKey]int
	tenants int
}

// readerKey identifies the tenant of callers that read.
type readerKey struct {
	cluster string
	id      tenant.ID
}

// BeginRead reports whether a caller of the given tenant may begin to read a stream now. cluster is
// empty for a server of one cluster. If ok is true, the caller MUST call end once.
func (s *Streams) BeginRead(cluster string, id tenant.ID) (end func(), ok bool) {
	key := readerKey{cluster, id}
	all := &s.readers
	all.mu.Lock()
	defer all.mu.Unlock()
	if id.IsSystem() {
		if all.active[key] >= maxSystemReads {
			return nil, false
		}
	} else {
		if all.active[key] >= maxReadsPerTenant || all.tenants >= maxTenantReads {
			return nil, false
		}
		all.tenants++
	}
	all.active[key]++
	return func() { all.end(key) }, true
}

func (r *readers) end(key readerKey) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.active[key]--; r.active[key] == 0 {
		delete(r.active, key)
	}
	if !key.id.IsSystem() {
		r.tenants--
	}
}

// maxFollow is the maximum time for which a stream is followed. Afterwards, the client must send
// another request, for which the server checks the rights of the caller again.
const maxFollow = time.Hour

// Serve responds with the selected records of a stream. It returns after the last record. If the
// filter follows the stream, Serve returns when the context of the request ends, or after 30 to 60
// minutes. The server MUST have checked that the caller may read the stream, and MUST have called
// [Streams.BeginRead].
func (s *Streams) Serve(w http.ResponseWriter, r *http.Request, stream Stream, f Filter) {
	header := w.Header()
	header.Set("Content-Type", ContentType)
	header.Set("Cache-Control", "no-store")
	header.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(http.StatusOK)
	control := http.NewResponseController(w)
	f.Idle = func() error {
		if err := control.Flush(); err != nil && !errors.Is(err, http.ErrNotSupported) {
			return err
		}
		return nil
	}
	ctx := r.Context()
	if f.Follow {
		limit := s.options.maxFollow
		limited, cancel := context.WithTimeout(ctx, limit/2+rand.N(limit/2)) // #nosec G404 -- not a secret
		defer cancel()
		ctx = limited
	}
	err := Read(ctx, s.options.Directory, stream, f, func(_ *Record, line []byte) error {
		if _, err := w.Write(line); err != nil {
			return err
		}
		_, err := w.Write([]byte{'\n'})
		return err
	})
	if err != nil && ctx.Err() == nil {
		panic(http.ErrAbortHandler) // the client must not mistake a part for the whole stream
	}
}
