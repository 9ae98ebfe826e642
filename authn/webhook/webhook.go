// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

// Package webhook authenticates tokens by an external TokenReview service
// (authentication.k8s.io/v1), through upstream's client (k8s.io/apiserver
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
	// timeout bounds one review, retries included.
	timeout = 5 * time.Second
	// atOnce bounds the reviews under way; a service that hangs holds no more than these.
	atOnce = 256
	// logEvery is the least time between two lines of the log about unreadable responses.
	logEvery = 5 * time.Second
)

// Why a token is refused, in addition to the errors of [tenant.Limits.Check]. Test them with
// [errors.Is]. The error of a refused token may contain the service's own reason, shortened, if the
// reason contains no part of the token. ErrUnavailable and ErrUnreadable are outages: the service
// neither accepted nor refused the token.
var (
	ErrNotAuthenticated = errors.New("the service did not authenticate the token")
	ErrUnavailable      = error(outbound.Unavailable("the service is unavailable"))
	ErrUnreadable       = error(outbound.Unavailable("the service's response cannot be read"))
	ErrTenant           = errors.New("the service's response does not name exactly one tenant")
	ErrReservedExtra    = errors.New("the service's response has an extra key that only the server may set")
)

// Options say how answers become identities.
type Options struct {
	// Source is the name of the source in the log.
	Source string
	// Audiences of the server, for answers that name none.
	Audiences authenticator.Audiences
	// Limits of an identity; zero for tenant.DefaultLimits.
	Limits tenant.Limits
	// Tenant says whose the identity is; made by [Extra], [Value] or [Compile]. Required.
	Tenant Tenant
}

// Authenticator asks one service. It implements [authenticator.Token], honours audiences, and sets
// the extra tenant.ExtraKey.
type Authenticator struct {
	o       Options
	file    *reload.File[*webhook.WebhookTokenAuthenticator]
	flights singleflight.Group
	gate    outbound.Gate
	logged  atomic.Int64 // when an unreadable response was last logged, in Unix nanoseconds
}

// Open returns the authenticator that asks the service of a kubeconfig file. The error names the
// file. Changes of it take effect while [Authenticator.Run] runs.
func Open(path string, o Options, report reload.Report) (*Authenticator, error) {
	file, err := reload.Open(path, func([]byte) (*webhook.WebhookTokenAuthenticator, error) {
		// Upstream's loader reads the file itself, for the paths in it.
		config, err := webhookutil.LoadKubeconfig(path, nil)
		if err != nil {
			return nil, err
		}
		if err := checkSafe(config); err != nil {
			return nil, err
		}
		config.Timeout = timeout
		config.QPS = -1 // the gate bounds
		config.WarningHandler = rest.NoWarnings{}
		config.Wrap(func(next http.RoundTripper) http.RoundTripper { return reading(outbound.Discreet(next), o.Limits) })
		return webhook.New(config, "v1", o.Audiences, wait.Backoff{Duration: 200 * time.Millisecond, Factor: 2, Steps: 2})
	}, report)
	if err != nil {
		return nil, err
	}
	return &Authenticator{o: o, file: file, gate: make(outbound.Gate, atOnce)}, nil
}

// checkSafe refuses a service to which tokens would go in clear, or to whoever answers.
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

// Run follows the file until ctx ends.
func (a *Authenticator) Run(ctx context.Context) { a.file.Run(ctx) }

// AuthenticateToken implements [authenticator.Token]. It does not abstain: callers hand it the
// tokens that are meant for its service.
func (a *Authenticator) AuthenticateToken(ctx context.Context, token string) (*authenticator.Response, bool, error) {
	audiences, limited := authenticator.AudiencesFrom(ctx)
	logger := klog.FromContext(ctx)
	// Quoted, so that no token and audience together read as another token.
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
	note := &answer{token: token}
	resp, ok, err := (*a.file.Load()).AuthenticateToken(context.WithValue(ctx, answerKey{}, note), token)
	switch {
	case err != nil && !note.came:
		return nil, ErrUnavailable
	case errors.Is(note.err, ErrUnreadable):
		a.logUnreadable(ctx, note.err)
		return nil, note.err
	case note.err != nil:
		return nil, note.err
	case err != nil || !ok:
		return nil, ErrNotAuthenticated
	}
	bound, err := a.bind(ctx, resp.User)
	if err != nil {
		return nil, err
	}
	return &authenticator.Response{User: bound, Audiences: resp.Audiences}, nil
}

// bind binds the identity to its tenant. The service may not use the key that does so.
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

// logUnreadable logs a response that cannot be read, at most once in logEvery.
func (a *Authenticator) logUnreadable(ctx context.Context, err error) {
	now, last := time.Now().UnixNano(), a.logged.Load()
	if now-last < int64(logEvery) || !a.logged.CompareAndSwap(last, now) {
		return
	}
	klog.FromContext(ctx).Error(err, "Rejected the tokens of a webhook source", "source", a.o.Source)
}

// answerKey is the key of a context's *answer.
type answerKey struct{}

// answer is what is known of a service's answer beside what upstream's client makes of it.
type answer struct {
	token string
	came  bool  // the service answered
	err   error // why the token is refused, or why the answer cannot be read
}

// reading reads a response, and passes only its status to upstream's client. That client logs a
// response that it cannot decode, which may contain the token, and reads names in any case. The
// errors of that client do not distinguish a refusal from an outage, so reading records why the
// token is refused or why the response cannot be read. It drops an identity that exceeds the limits
// before the identity is copied.
func reading(next http.RoundTripper, limits tenant.Limits) http.RoundTripper {
	gate := make(outbound.Gate, outbound.AtOnce)
	return roundTripper(func(req *http.Request) (*http.Response, error) {
		resp, err := next.RoundTrip(req)
		if err != nil || resp.StatusCode >= 300 {
			return resp, err
		}
		defer func() { _ = resp.Body.Close() }()
		note, is := req.Context().Value(answerKey{}).(*answer)
		if !is {
			note = &answer{}
		}
		note.came = true
		said := response{}
		err = outbound.Decode(req.Context(), gate, resp.Body, &said)
		status := authenticationv1.TokenReviewStatus{} // not authenticated
		if note.err = said.unreadable(resp.Header.Get("Content-Type"), note.token, err); note.err == nil {
			status = *said.Status
		}
		switch {
		case note.err != nil:
		case !status.Authenticated:
			note.err = refused(status.Error, note.token)
		default:
			note.err = checkUser(&status.User, limits)
		}
		if note.err != nil {
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
		resp.Body, resp.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
		return resp, nil
	})
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
