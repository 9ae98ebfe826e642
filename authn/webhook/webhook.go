// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

// Package webhook authenticates tokens with an external TokenReview service
// (authentication.k8s.io/v1). It uses upstream's client (k8s.io/apiserver
// plugin/pkg/authenticator/token/webhook, v0.37.1).
package webhook

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/singleflight"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	webhookutil "k8s.io/apiserver/pkg/util/webhook"
	"k8s.io/apiserver/plugin/pkg/authenticator/token/webhook"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/kubetenant/kubetenant/authn/internal/outbound"
	"github.com/kubetenant/kubetenant/internal/reload"
	"github.com/kubetenant/kubetenant/tenant"
)

const (
	// timeout is the maximum duration of one review, including retries.
	timeout = 5 * time.Second
	// maxConcurrent is the maximum number of concurrent reviews, in case the service hangs.
	maxConcurrent = 256
	// logEvery is the minimum time between two log entries about unreadable responses.
	logEvery = 5 * time.Second
)

// The errors for a rejected token, in addition to the errors of [tenant.Limits.Check]. Test for
// them with [errors.Is]. The error may contain the service's own reason in truncated form, if
// the reason contains no part of the token. ErrUnavailable and ErrUnreadable report outages, in
// which the service neither accepted nor rejected the token.
var (
	ErrNotAuthenticated = errors.New("the service did not authenticate the token")
	ErrUnavailable      = error(outbound.Unavailable("the service is unavailable"))
	ErrUnreadable       = error(outbound.Unavailable("the service's response cannot be read"))
	ErrTenant           = errors.New("the service's response does not name exactly one tenant")
	ErrReservedExtra    = errors.New("the service's response has an extra key that only the server may set")
)

// Options configure an [Authenticator].
type Options struct {
	// Source is the name of the source in the log.
	Source string
	// Audiences are the audiences of the server. They apply to responses that name no audience.
	Audiences authenticator.Audiences
	// Limits are the limits for an identity. The zero value means tenant.DefaultLimits.
	Limits tenant.Limits
	// Tenant returns the tenant of an identity. Use [Extra], [Value] or [Compile]. Required.
	Tenant Tenant
}

// Authenticator calls one service. It implements [authenticator.Token], checks audiences, and sets
// the extra tenant.ExtraKey.
type Authenticator struct {
	o       Options
	file    *reload.File[*webhook.WebhookTokenAuthenticator]
	flights singleflight.Group
	gate    outbound.Gate
	logged  atomic.Int64 // the time of the last log entry about an unreadable response, in Unix nanoseconds
}

// Open returns an authenticator that calls the service in a kubeconfig file. The error names the
// file. Changes take effect while [Authenticator.Run] runs.
func Open(path string, o Options, report reload.Report) (*Authenticator, error) {
	file, err := reload.Open(path, func([]byte) (*webhook.WebhookTokenAuthenticator, error) {
		// Upstream's loader reads the file itself, because paths in the file are relative to it.
		config, err := webhookutil.LoadKubeconfig(path, nil)
		if err != nil {
			return nil, err
		}
		if err := checkSafe(config); err != nil {
			return nil, err
		}
		config.Timeout = timeout
		config.QPS = -1 // the gate limits requests
		config.WarningHandler = rest.NoWarnings{}
		config.Wrap(func(next http.RoundTripper) http.RoundTripper {
			return readResponses(outbound.StripErrorBodies(next), o.Limits)
		})
		return webhook.New(config, "v1", o.Audiences, wait.Backoff{Duration: 200 * time.Millisecond, Factor: 2, Steps: 2})
	}, report)
	if err != nil {
		return nil, err
	}
	return &Authenticator{o: o, file: file, gate: make(outbound.Gate, maxConcurrent)}, nil
}

// checkSafe rejects a service to which tokens would be sent without verification of the server.
// It also rejects a service to which tokens would be sent in clear text, except on the loopback
// address.
func checkSafe(config *rest.Config) error {
	u, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return err
	}
	if config.Insecure || u.Scheme != "https" && !net.ParseIP(u.Hostname()).IsLoopback() {
		return errors.New("the server must use https with a verified certificate, except on the loopback address, " +
			"because tokens are sent to it")
	}
	return nil
}

// Run loads new versions of the file until ctx ends.
func (a *Authenticator) Run(ctx context.Context) { a.file.Run(ctx) }

// AuthenticateToken implements [authenticator.Token]. It does not abstain. Callers MUST pass only
// tokens for its service.
func (a *Authenticator) AuthenticateToken(ctx context.Context, token string) (*authenticator.Response, bool, error) {
	audiences, limited := authenticator.AudiencesFrom(ctx)
	logger := klog.FromContext(ctx)
	// The values are quoted, so that different tokens and audiences never have the same key.
	flight := a.flights.DoChan(fmt.Sprintf("%q %q", token, audiences),
		outbound.Recover(ErrNotAuthenticated, func() (any, error) {
			ctx, cancel := context.WithTimeout(klog.NewContext(context.Background(), logger), timeout)
			defer cancel()
			if limited {
				ctx = authenticator.WithAudiences(ctx, audiences)
			}
			if err := a.gate.Enter(ctx); err != nil {
				return nil, ErrUnavailable
			}
			defer a.gate.Leave()
			return a.review(ctx, token)
		}))
	select {
	case result := <-flight:
		if result.Err != nil {
			return nil, false, result.Err
		}
		return result.Val.(*authenticator.Response), true, nil
	case <-ctx.Done():
		return nil, false, ctx.Err()
	}
}

func (a *Authenticator) review(ctx context.Context, token string) (*authenticator.Response, error) {
	result := &reviewResult{token: token}
	resp, ok, err := (*a.file.Load()).AuthenticateToken(context.WithValue(ctx, reviewResultKey{}, result), token)
	switch {
	case err != nil && !result.responded:
		return nil, ErrUnavailable
	case errors.Is(result.err, ErrUnreadable):
		a.logUnreadable(ctx, result.err)
		return nil, result.err
	case result.err != nil:
		return nil, result.err
	case err != nil || !ok:
		return nil, ErrNotAuthenticated
	}
	bound, err := a.bind(ctx, resp.User)
	if err != nil {
		return nil, err
	}
	return &authenticator.Response{User: bound, Audiences: resp.Audiences}, nil
}

// bind binds the identity to its tenant. The service may not set the tenant key itself.
func (a *Authenticator) bind(ctx context.Context, u user.Info) (user.Info, error) {
	for key := range u.GetExtra() {
		if strings.EqualFold(key, tenant.ExtraKey) {
			return nil, ErrReservedExtra
		}
	}
	id, err := a.o.Tenant(ctx, u)
	if err != nil {
		return nil, ErrTenant
	}
	return tenant.Bind(u, id), nil
}

// logUnreadable logs an unreadable response, at most once in logEvery.
func (a *Authenticator) logUnreadable(ctx context.Context, err error) {
	now := time.Now().UnixNano()
	last := a.logged.Load()
	if now-last < int64(logEvery) || !a.logged.CompareAndSwap(last, now) {
		return
	}
	klog.FromContext(ctx).Error(err, "Rejected the tokens of a webhook source", "source", a.o.Source)
}

// reviewResultKey is the context key of a *[reviewResult].
type reviewResultKey struct{}

// reviewResult has data about a response that upstream's client does not return.
type reviewResult struct {
	token     string
	responded bool  // the service responded
	err       error // the reason why the token is rejected or the response is unreadable
}

// readResponses parses a response, and passes only its status to upstream's client. That client
// logs a response that it cannot decode, which may contain the token, and accepts names in any
// case. Its errors do not distinguish a rejection from an outage. Therefore, readResponses records
// in the [reviewResult] of the context why the token is rejected or why the response is unreadable.
// It drops an identity that exceeds the limits before upstream copies it.
func readResponses(next http.RoundTripper, limits tenant.Limits) http.RoundTripper {
	gate := make(outbound.Gate, outbound.MaxConcurrent)
	return roundTripper(func(req *http.Request) (*http.Response, error) {
		resp, err := next.RoundTrip(req)
		if err != nil || resp.StatusCode >= 300 {
			return resp, err
		}
		defer func() { _ = resp.Body.Close() }()
		result, ok := req.Context().Value(reviewResultKey{}).(*reviewResult)
		if !ok {
			result = &reviewResult{}
		}
		result.responded = true
		review := response{}
		err = outbound.Decode(req.Context(), gate, resp.Body, &review)
		status := authenticationv1.TokenReviewStatus{} // not authenticated
		if result.err = review.validate(resp.Header.Get("Content-Type"), result.token, err); result.err == nil {
			status = *review.Status
			result.err = checkStatus(&status, result.token, limits)
		}
		if result.err != nil {
			status = authenticationv1.TokenReviewStatus{}
		}
		body, err := json.Marshal(authenticationv1.TokenReview{
			TypeMeta: metav1.TypeMeta{APIVersion: "authentication.k8s.io/v1", Kind: "TokenReview"},
			Status:   status,
		})
		if err != nil {
			return nil, err
		}
		resp.Header = http.Header{"Content-Type": {"application/json"}}
		resp.Body = io.NopCloser(bytes.NewReader(body))
		resp.ContentLength = int64(len(body))
		return resp, nil
	})
}

// checkStatus returns an error if the token is not authenticated, or if its user exceeds the
// limits.
func checkStatus(status *authenticationv1.TokenReviewStatus, token string, limits tenant.Limits) error {
	if !status.Authenticated {
		return rejectedError(status.Error, token)
	}
	return checkUser(&status.User, limits)
}

func checkUser(u *authenticationv1.UserInfo, limits tenant.Limits) error {
	extra := make(map[string][]string, len(u.Extra))
	for key, values := range u.Extra {
		extra[key] = values
	}
	return limits.OrDefault().Check(&user.DefaultInfo{
		Name:   u.Username,
		UID:    u.UID,
		Groups: u.Groups,
		Extra:  extra,
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (r roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return r(req) }
