// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package login

import (
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"time"
)

// callback is an HTTP server on the loopback address. It receives the authorization code from
// the browser.
type callback struct {
	url    string
	server *http.Server
	answer chan result
}

type result struct {
	code string
	err  error
}

// listen starts the callback server. The server rejects a request that has another state, and
// continues to wait.
func listen(ctx context.Context, port int, state string) (*callback, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		return nil, fmt.Errorf("listen for the browser: %w", err)
	}
	c := &callback{url: "http://" + listener.Addr().String() + "/callback", answer: make(chan result, 1)}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /callback", func(w http.ResponseWriter, r *http.Request) {
		query := r.URL.Query()
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		w.Header().Set("Content-Security-Policy", "default-src 'none'")
		if subtle.ConstantTimeCompare([]byte(query.Get("state")), []byte(state)) != 1 {
			http.Error(w, "This response does not belong to a current login.", http.StatusBadRequest)
			return
		}
		got := result{code: query.Get("code")}
		text := "You are logged in. You can return to the terminal."
		if got.code == "" {
			got.err = errors.New("the provider rejected the login: " +
				reason(query.Get("error"), query.Get("error_description")))
			text = "You are not logged in. For details, see the terminal."
		}
		_, _ = fmt.Fprintf(w, "<!doctype html><html lang=en><title>kubectl tenant</title><p>%s</p></html>\n", text)
		select {
		case c.answer <- got:
		default: // only the first response with the state applies
		}
	})
	c.server = &http.Server{Handler: mux, ReadHeaderTimeout: httpTimeout}
	go func() { _ = c.server.Serve(listener) }()
	return c, nil
}

// reason returns the OAuth error code (RFC 6749, section 4.1.2.1, or OpenID Connect) and the
// provider's description. It replaces an unknown code with a fixed text.
func reason(code, description string) string {
	switch code {
	case "access_denied", "invalid_request", "unauthorized_client", "unsupported_response_type",
		"invalid_scope", "server_error", "temporarily_unavailable",
		"interaction_required", "login_required", "consent_required":
	default:
		code = "an unknown error"
	}
	if description = printable(description, descriptionBytes); description != "" {
		return code + ": " + description
	}
	return code
}

// code waits for the browser's request, and returns the authorization code.
func (c *callback) code(ctx context.Context) (string, error) {
	select {
	case got := <-c.answer:
		return got.code, got.err
	case <-ctx.Done():
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			return "", errors.New("the login timed out: run the command again")
		}
		return "", ctx.Err()
	}
}

// close shuts down the server. It waits for at most one second until the browser has the
// response.
func (c *callback) close() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = c.server.Shutdown(ctx)
}
