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

	"github.com/kubetenant/kubetenant/authn/internal/outbound"
	"github.com/kubetenant/kubetenant/internal/reload"
	"github.com/kubetenant/kubetenant/tenant"
)

const (
	// timeout bounds one review, retries included.
	timeout = 5 * time.Second
	// atOnce bounds the reviews under way; a service that hangs holds no more than these.
	atOnce = 256
)

// Why a token is refused, beside the errors of [tenant.Limits.Check]; to be tested with
// [errors.Is]. None holds anything that the service said.
var (
	ErrNotAuthenticated = errors.New("the service did not authenticate the token")
	ErrUnavailable      = error(outbound.Unavailable("the service is unavailable"))
	ErrTenant           = errors.New("the service's response does not name exactly one tenant")
	ErrReservedExtra    = errors.New("the service's response has an extra key that only the server may set")
)

// Options say how answers become identities.
type Options struct {
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
	// Quoted, so that no token and audience together read as another token.
	flight := a.flights.DoChan(fmt.Sprintf("%q %q", token, audiences),
		outbound.Recover(ErrNotAuthenticated, func() (any, error) {
			ctx, cancel := context.WithTimeout(context.Background(), timeout)
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
	note := &answer{}
	resp, ok, err := (*a.file.Load()).AuthenticateToken(context.WithValue(ctx, answerKey{}, note), token)
	switch {
	case err != nil && !note.came:
		return nil, ErrUnavailable
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

// answerKey is the key of a context's *answer.
type answerKey struct{}

// answer is what is known of a service's answer beside what upstream's client makes of it.
type answer struct {
	came bool  // the service answered
	err  error // why what it said counts for nothing
}

// reading reads an answer and hands on no more than its status: upstream's client logs what it
// cannot decode, which may be the token, and reads names in any case. It also tells a service that
// says no from one that cannot be asked, which upstream's errors do not, and drops an identity
// beyond the limits before it is copied.
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
		said := authenticationv1.TokenReview{}
		err = outbound.Decode(req.Context(), gate, resp.Body, &said)
		if err != nil || said.APIVersion != "authentication.k8s.io/v1" || said.Kind != "TokenReview" {
			said.Status = authenticationv1.TokenReviewStatus{} // not authenticated
		}
		if note.err = checkUser(&said.Status.User, limits); note.err != nil {
			said.Status = authenticationv1.TokenReviewStatus{}
		}
		body, err := json.Marshal(authenticationv1.TokenReview{
			TypeMeta: metav1.TypeMeta{APIVersion: "authentication.k8s.io/v1", Kind: "TokenReview"},
			Status:   said.Status,
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
