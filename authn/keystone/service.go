// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package keystone

import (
	"bytes"
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gophercloud/gophercloud/v2"
	"github.com/gophercloud/gophercloud/v2/openstack"
	"github.com/gophercloud/gophercloud/v2/openstack/config/clouds"
	"github.com/gophercloud/gophercloud/v2/openstack/identity/v3/tokens"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/klog/v2"

	"github.com/kubetenant/kubetenant/authn/internal/outbound"
	"github.com/kubetenant/kubetenant/internal/reload"
)

// backoff is the minimum time between a failed login and the next login. Otherwise, each token that
// a client sends could cause a failed login, and Keystone could lock out the service user. backoff
// is also the minimum time between two log entries about an outage.
const backoff = 5 * time.Second

// loginBurst is the maximum number of logins without a pause.
const loginBurst = 3

var errRecent = errors.New("the service user tried to log in a moment ago")

// subjectToken is the header with the validated token, in the request and in the response (Identity
// API v3).
const subjectToken = "X-Subject-Token"

// renewBefore is how long before its expiry the service user's token is replaced.
const renewBefore = time.Minute

// Open returns an authenticator that calls the Keystone at o.AuthURL. It logs in as the service
// user, which is the user of a cloud in a clouds.yaml. The service user has a password or an
// application credential, and needs at least the role reader with system scope. Open sends no
// request. Changes of the file take effect while run runs, which returns when ctx ends. The
// error names the file, but contains no credential.
func Open(
	path, cloud string, o Options, report reload.Report,
) (a *Authenticator, run func(ctx context.Context), err error) {
	parse := func(data []byte) (*service, error) { return newService(data, cloud, o.AuthURL) }
	file, err := reload.Open(path, parse, report)
	if err != nil {
		return nil, nil, err
	}
	return newAuthenticator(o, func() *service { return *file.Load() }), file.Run, nil
}

// service calls Keystone as the service user.
type service struct {
	client *gophercloud.ServiceClient
	bounds bounds // the limits of requests that client sends
	// loginClient uses a new connection for each request. A login is a POST, which is not retried if
	// the server closes an idle connection at that moment.
	loginClient http.Client
	credentials gophercloud.AuthOptions

	reads outbound.Gate
	// logins limits the rate of all logins, including successful ones. Otherwise, a Keystone that
	// responds 401 to each request would cause a login for each token.
	logins flowcontrol.RateLimiter

	mu          sync.Mutex
	lastFailure time.Time // the time of the last failed login
	lastLogged  time.Time // the time of the last log entry about an outage
}

// bounds are the limits of one request.
type bounds struct {
	bytes   int64 // the maximum size of the body of the response
	timeout time.Duration
}

func httpClient(t *http.Transport, b bounds) http.Client {
	t.MaxResponseHeaderBytes = outbound.MaxHeaderBytes
	return http.Client{
		Timeout:   b.timeout,
		Transport: outbound.StripErrorBodiesAt(b.bytes, utilnet.SetTransportDefaults(t)),
	}
}

func newService(data []byte, cloud, authURL string) (*service, error) {
	return newBoundedService(data, cloud, authURL, bounds{outbound.MaxBytes, timeout})
}

// newBoundedService returns a service with the given bounds for all requests except logins.
func newBoundedService(data []byte, cloud, authURL string, b bounds) (*service, error) {
	options, _, tlsConfig, err := clouds.Parse(clouds.WithCloudName(cloud), clouds.WithCloudsYAML(bytes.NewReader(data)),
		clouds.WithIdentityEndpoint(endpoint(authURL)))
	if problem := checkCloud(data, cloud); problem != nil {
		return nil, problem
	}
	if err != nil {
		return nil, fmt.Errorf("cloud %q is invalid", cloud) // the library's error may quote the file
	}
	if options.Password == "" && options.ApplicationCredentialSecret == "" {
		return nil, fmt.Errorf("cloud %q must have a password or an application credential", cloud)
	}
	if tlsConfig != nil && tlsConfig.InsecureSkipVerify {
		return nil, fmt.Errorf("cloud %q: verify may not be false, because passwords and tokens are sent to it", cloud)
	}
	provider, err := openstack.NewClient(endpoint(authURL))
	if err != nil {
		return nil, err
	}
	provider.UseTokenLock()
	provider.HTTPClient = httpClient(&http.Transport{TLSClientConfig: tlsConfig, MaxIdleConnsPerHost: maxConcurrent}, b)
	s := &service{
		client: &gophercloud.ServiceClient{ProviderClient: provider, Endpoint: endpoint(authURL)},
		bounds: b,
		loginClient: httpClient(&http.Transport{TLSClientConfig: tlsConfig, DisableKeepAlives: true},
			bounds{outbound.MaxBytes, timeout}),
		credentials: options,
		reads:       make(outbound.Gate, outbound.MaxConcurrent),
		logins:      flowcontrol.NewTokenBucketRateLimiter(float32(time.Second)/float32(backoff), loginBurst),
	}
	provider.ReauthFunc = s.logIn
	return s, nil
}

// endpoint returns the URL of the Identity API v3 with a trailing slash.
func endpoint(authURL string) string {
	url := strings.TrimSuffix(authURL, "/")
	if !strings.HasSuffix(url, "/v3") {
		url += "/v3"
	}
	return url + "/"
}

// renewKey is the context key of the token that a login replaces. The token is empty before the
// first login.
type renewKey struct{}

// logIn gets a token for the service user. The library calls it for one goroutine at a time, while
// other goroutines wait for the result. It does nothing if the token to renew has already been
// replaced.
func (s *service) logIn(ctx context.Context) error {
	if before, ok := ctx.Value(renewKey{}).(string); ok && s.client.Token() != before {
		return nil
	}
	s.mu.Lock()
	recent := time.Since(s.lastFailure) < backoff
	s.mu.Unlock()
	if recent || !s.logins.TryAccept() {
		return errRecent
	}
	// The login has its own time limit. The context of its caller may end soon, and other callers wait
	// for the login too.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), timeout)
	defer cancel()
	_, err := outbound.Recover(ErrResponse, func() (struct{}, error) { return struct{}{}, s.createToken(ctx) })()
	if err != nil && ctx.Err() == nil {
		s.mu.Lock()
		s.lastFailure = time.Now()
		s.mu.Unlock()
	}
	return err
}

func (s *service) createToken(ctx context.Context) error {
	throwaway := &gophercloud.ServiceClient{
		Endpoint:       s.client.Endpoint,
		ProviderClient: &gophercloud.ProviderClient{HTTPClient: s.loginClient},
	}
	result := tokens.Create(ctx, throwaway, &s.credentials)
	if result.Err != nil {
		return result.Err
	}
	return s.client.SetTokenAndAuthResult(result)
}

// renewToken replaces the service user's token if it expires within renewBefore. It ignores the
// error from the login if the old token has not expired.
func (s *service) renewToken(ctx context.Context) error {
	before := s.client.Token() // read first, because the expiry below may belong to a newer token
	var left time.Duration
	if result, ok := s.client.GetAuthResult().(tokens.CreateResult); ok {
		if token, err := result.ExtractToken(); err == nil {
			left = time.Until(token.ExpiresAt)
		}
	}
	if left > renewBefore {
		return nil
	}
	if err := s.client.Reauthenticate(context.WithValue(ctx, renewKey{}, before), before); err != nil && left <= 0 {
		return err
	}
	return nil
}

// validate validates a token with Keystone. It fails with ErrUnknown, ErrUnavailable or ErrBusy.
func (s *service) validate(ctx context.Context, token string) (*tokenBody, error) {
	if err := s.renewToken(ctx); err != nil {
		return nil, s.unavailable(ctx, "log in", err)
	}
	var body struct {
		Token *tokenBody `json:"token"`
	}
	// With this header, Keystone returns the access rules of an application credential, so that
	// we can reject the token with a specific reason (Identity API v3.13).
	resp, err := s.client.Get(ctx, s.client.ServiceURL("auth", "tokens")+"?nocatalog", nil, &gophercloud.RequestOpts{
		MoreHeaders:      map[string]string{subjectToken: token, "OpenStack-Identity-Access-Rules": "1.0"},
		OkCodes:          []int{http.StatusOK, http.StatusNonAuthoritativeInfo},
		KeepResponseBody: true,
	})
	if err == nil {
		err = s.read(ctx, resp, token, &body)
	}
	switch {
	case errors.Is(err, outbound.ErrBusy):
		return nil, ErrBusy
	case slices.ContainsFunc(rejectedStatuses(), func(code int) bool { return gophercloud.ResponseCodeIs(err, code) }):
		return nil, ErrUnknown
	case err == nil && (body.Token == nil || body.Token.isEmpty()):
		err = fmt.Errorf("%w: it has no token, or the token has no user.id or no expires_at", ErrResponse)
		fallthrough
	case err != nil:
		return nil, s.unavailable(ctx, "validate a token", err)
	}
	return body.Token, nil
}

// rejectedStatuses returns the status codes that mean that the validated token is invalid. Keystone
// returns 404. A web server in front of Keystone may return the other codes in the list. Any code
// that is not in the list, including 401 and 403, concerns Keystone or the service user.
func rejectedStatuses() []int {
	return []int{
		http.StatusNotFound, http.StatusBadRequest, http.StatusRequestEntityTooLarge,
		http.StatusRequestURITooLong, http.StatusRequestHeaderFieldsTooLarge,
	}
}

// read decodes a response. It fails if the response names another token, because a cache in front
// of Keystone might ignore the request header with the token.
func (s *service) read(ctx context.Context, resp *http.Response, token string, into any) error {
	defer func() { _ = resp.Body.Close() }()
	named := resp.Header.Get(subjectToken)
	if named != "" && subtle.ConstantTimeCompare([]byte(named), []byte(token)) != 1 {
		return ErrResponse
	}
	return outbound.Decode(ctx, s.reads, resp.Body, into)
}

// unavailable returns [ErrUnavailable], and logs the failed request at a limited rate. The logged
// error contains no response body, because the transport drops bodies.
func (s *service) unavailable(ctx context.Context, doing string, err error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if time.Since(s.lastLogged) < backoff {
		return ErrUnavailable
	}
	s.lastLogged = time.Now()
	klog.FromContext(ctx).Error(err, "Request to Keystone failed", "operation", doing)
	return ErrUnavailable
}
