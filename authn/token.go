package authn

import (
	"context"
	"errors"
	"net/http"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/request/bearertoken"
	"k8s.io/apiserver/pkg/authentication/request/websocket"
)

// errUnclaimed passes "no source knows this token" through upstream's adapters, which turn an
// abstention into an error and would so keep the server's own token sources from being asked.
var errUnclaimed = errors.New("token of no source")

// token wraps a token source in audiences and hygiene.
func (c *Chain) token(s Source) authenticator.Token {
	wrapped := authenticator.WrapAudienceAgnosticToken(c.Audiences, s.Token)
	return authenticator.TokenFunc(func(ctx context.Context, token string) (*authenticator.Response, bool, error) {
		return s.Hygiene.apply(wrapped.AuthenticateToken(ctx, token))
	})
}

// newTokenAdapter reads tokens from the bearer header and the websocket subprotocol by upstream's
// own adapters and asks the sources in their order. It abstains if none claims the token.
func newTokenAdapter(sources []authenticator.Token) authenticator.Request {
	first := authenticator.TokenFunc(func(ctx context.Context, token string) (*authenticator.Response, bool, error) {
		for _, s := range sources {
			if resp, ok, err := s.AuthenticateToken(ctx, token); ok || err != nil {
				return resp, ok, err
			}
		}
		return nil, false, errUnclaimed
	})
	adapters := []authenticator.Request{bearertoken.New(first), websocket.NewProtocolAuthenticator(first)}
	return authenticator.RequestFunc(func(req *http.Request) (*authenticator.Response, bool, error) {
		for _, a := range adapters {
			resp, ok, err := a.AuthenticateRequest(req)
			if errors.Is(err, errUnclaimed) {
				continue
			}
			if ok || err != nil {
				return resp, ok, err
			}
		}
		return nil, false, nil
	})
}
