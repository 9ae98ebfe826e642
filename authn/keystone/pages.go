// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package keystone

import (
	"context"
	stdjson "encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/gophercloud/gophercloud/v2"
	"github.com/gophercloud/gophercloud/v2/openstack/identity/v3/tokens"
	"k8s.io/client-go/util/flowcontrol"
	"sigs.k8s.io/json"

	"github.com/kubetenant/kubetenant/authn/internal/outbound"
)

// The limits of one [pass] over the lists of Keystone.
const (
	maxPageBytes      = 64 << 20
	maxPassBytes      = 128 << 20
	maxPages          = 2_000
	maxEntries        = 500_000
	passTimeout       = 2 * time.Minute
	pageTimeout       = time.Minute
	requestsPerSecond = 10
)

// pageQuery is the query of the first page. Without a limit, Keystone 2025.1 and later truncate
// domains and projects at their own limit without reporting it. Other lists and releases ignore the
// query.
const pageQuery = "limit=1000"

const noToken = "Keystone issues no token to the service user"

// pass reads each list of Keystone once.
type pass struct {
	service *service
	limiter flowcontrol.RateLimiter
	pages   int
	entries int
	bytes   int
}

// incomplete returns an [ErrIncomplete] about a list. The problem MUST NOT contain content from
// Keystone, except IDs.
func incomplete(list, problem string, args ...any) error {
	return fmt.Errorf("%w: %s: %s", ErrIncomplete, list, fmt.Sprintf(problem, args...))
}

// unavailable returns an [ErrUnavailable] about a list. It logs the cause at a limited rate.
func (p *pass) unavailable(ctx context.Context, list, problem string, err error) error {
	return fmt.Errorf("%w: %s: %s", p.service.unavailable(ctx, "list "+list, err), list, problem)
}

// logIn gets a token for the service user. It fails if the token is scoped to a domain, because
// Keystone would then list only this domain.
func (p *pass) logIn(ctx context.Context) error {
	const step = "log in"
	if err := p.service.renewToken(ctx); err != nil {
		return p.unavailable(ctx, step, noToken, err)
	}
	result, ok := p.service.client.GetAuthResult().(tokens.CreateResult)
	if !ok {
		return incomplete(step, "the scope of the token is unknown")
	}
	domain, err := result.ExtractDomain()
	switch {
	case err != nil:
		return incomplete(step, "the scope of the token is invalid")
	case domain != nil:
		return incomplete(step, "the token is scoped to a domain, so that Keystone lists only that domain: use system scope")
	}
	return nil
}

// readList calls add for each entry of a list, page by page.
func readList[T any](ctx context.Context, p *pass, list, query string, add func(*T) error) error {
	for seen := map[string]bool{}; ; {
		if seen[query] {
			return incomplete(list, "the link to the next page repeats")
		}
		seen[query] = true
		if p.pages++; p.pages > maxPages {
			return incomplete(list, "Keystone has more than %d pages", maxPages)
		}
		data, err := p.get(ctx, list, query)
		if err != nil {
			return err
		}
		entries, next, err := decodePage[T](data, list)
		if err != nil {
			return incomplete(list, "%v", err)
		}
		if p.entries += len(entries); p.entries > maxEntries {
			return incomplete(list, "Keystone has more than %d entries", maxEntries)
		}
		for i := range entries {
			if err := add(&entries[i]); err != nil {
				return incomplete(list, "%v", err)
			}
		}
		if next == nil {
			return nil
		}
		if query, err = p.nextQuery(list, *next); err != nil {
			return incomplete(list, "%v", err)
		}
	}
}

// get returns the body of one page.
func (p *pass) get(ctx context.Context, list, query string) ([]byte, error) {
	if err := p.limiter.Wait(ctx); err != nil {
		return nil, p.unavailable(ctx, list, "the time limit is reached", err)
	}
	address := p.service.client.ServiceURL(list)
	if query != "" {
		address += "?" + query
	}
	resp, err := p.service.client.Get(ctx, address, nil, &gophercloud.RequestOpts{
		OkCodes:          []int{http.StatusOK, http.StatusNonAuthoritativeInfo},
		KeepResponseBody: true,
	})
	if err != nil {
		return nil, p.responseError(ctx, list, err)
	}
	defer func() { _ = resp.Body.Close() }()
	left := maxPassBytes - p.bytes
	data, err := io.ReadAll(newFiniteReader(io.LimitReader(resp.Body, int64(left)+1)))
	p.bytes += len(data)
	var timeout net.Error
	switch {
	case len(data) > left:
		return nil, incomplete(list, "the lists have more than %d bytes", maxPassBytes)
	case err == nil:
		return data, nil
	case errors.Is(err, outbound.ErrTooLarge):
		return nil, incomplete(list, "a page has more than %d bytes", p.service.bounds.bytes)
	case ctx.Err() != nil, errors.As(err, &timeout) && timeout.Timeout():
		return nil, p.unavailable(ctx, list, "the time limit is reached", err)
	}
	return nil, incomplete(list, "the response ends early")
}

// responseError returns the error for a request that failed or that returned an error status.
func (p *pass) responseError(ctx context.Context, list string, err error) error {
	var login *gophercloud.ErrUnableToReauthenticate
	var status gophercloud.ErrUnexpectedResponseCode
	switch {
	case errors.As(err, &login):
		return p.unavailable(ctx, list, noToken, err)
	case errors.Is(err, outbound.ErrRedirect):
		return incomplete(list, "the response is a redirect: set the URL to which Keystone redirects")
	case errors.Is(err, outbound.ErrTooLarge):
		return incomplete(list, "a page has more than %d bytes", p.service.bounds.bytes)
	case !errors.As(err, &status):
		return p.unavailable(ctx, list, "no response", err)
	case status.Actual == http.StatusTooManyRequests, status.Actual >= http.StatusInternalServerError:
		return p.unavailable(ctx, list, fmt.Sprintf("HTTP status %d", status.Actual), err)
	case status.Actual == http.StatusForbidden:
		return incomplete(list, "HTTP status 403: the service user needs the role reader with system scope")
	}
	return incomplete(list, "HTTP status %d", status.Actual)
}

// nextQuery returns the query of a link to the next page. Only the query of the link is used, so
// that a link can never send the token to another address.
func (p *pass) nextQuery(list, link string) (query string, err error) {
	own, err := url.Parse(p.service.client.ServiceURL(list))
	if err != nil {
		return "", errors.New("the URL of Keystone is invalid")
	}
	next, err := own.Parse(link)
	if err != nil || next.User != nil || origin(next) != origin(own) || next.Path != own.Path || next.RawQuery == "" {
		return "", errors.New("the link to the next page has another address than the list: " +
			"check public_endpoint of Keystone and the URL")
	}
	return next.RawQuery, nil
}

// origin returns the scheme, host and port of a URL.
func origin(u *url.URL) string {
	port := u.Port()
	switch {
	case port == "" && u.Scheme == "https":
		port = "443"
	case port == "" && u.Scheme == "http":
		port = "80"
	}
	return u.Scheme + "://" + net.JoinHostPort(strings.ToLower(u.Hostname()), port)
}

// decodePage decodes one page of a list. Names of members are case-sensitive, because a project may
// have an extra attribute "ID". The next link is nil on the last page.
func decodePage[T any](data []byte, list string) (entries []T, next *string, err error) {
	var members map[string]stdjson.RawMessage
	if json.UnmarshalCaseSensitivePreserveInts(data, &members) != nil {
		return nil, nil, errors.New("the response is not a complete JSON object")
	}
	var links struct {
		Next *string `json:"next"`
	}
	var truncated bool
	for name, into := range map[string]any{"links": &links, "truncated": &truncated, list: &entries} {
		if value, ok := members[name]; ok && json.UnmarshalCaseSensitivePreserveInts(value, into) != nil {
			return nil, nil, fmt.Errorf("a field of %s has the wrong type", name)
		}
	}
	switch {
	case entries == nil:
		return nil, nil, errors.New("the response has no list")
	case truncated && links.Next == nil: // Keystone 2025.1 reports a full page as truncated and adds a link
		return nil, nil, errors.New("the list is truncated: raise list_limit of Keystone")
	}
	return entries, links.Next, nil
}
