// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package authz

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"golang.org/x/net/http/httpguts"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/kubetenant/kubetenant/tenant"
)

// requestState is what the boundary notes about one request, from the outermost filter to the API
// handler. It is in the context only on that way: handlers and admission, which ask the same
// authorizer again for reviews and escalation checks, find none. One goroutine uses it at a time.
type requestState struct {
	path  tenantPath
	query string // as it came
	// real is who was authenticated, by the name that the server knows it by; nil before, and for the
	// server's own loopback client.
	real user.Info
	// source is who was authenticated, where the server knows it by another name
	// ([NoteMapped]); else nil.
	source user.Info

	bound    user.Info           // the user to go on with: an impersonated one with its tenant
	selector labels.Requirements // the selector that the answer must be limited to, to go on with
	name     string              // the one object that a list must be limited to
	fields   fields.Selector     // the field selector that a list must be limited to

	session session
	began   time.Time // before the request was authorized
}

type requestStateKey struct{}

// errMethod is the 400 answer to a method that is no token: it repeats nothing of it.
var errMethod = errors.New("malformed method")

func requestStateFrom(ctx context.Context) *requestState {
	state, _ := ctx.Value(requestStateKey{}).(*requestState)
	return state
}

// WithRequestState is the outermost filter. It takes the tenant part off a path /tenants/<id>/...,
// and off one in the older form where that is read, refuses a malformed one with 400, as it does a
// method that is no token (RFC 9110, section 9.1), which HTTP/2 lets through and might read as a
// verb of impersonation, and puts into the context what the boundary notes.
func WithRequestState(next http.Handler, older OlderPaths) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !httpguts.ValidHeaderFieldName(r.Method) { // which is a token too
			answerStatus(w, apierrors.NewBadRequest(errMethod.Error()))
			return
		}
		path, stripped, err := cutTenantPath(r.URL, older)
		if err != nil {
			answerStatus(w, apierrors.NewBadRequest(err.Error()))
			return
		}
		state := &requestState{path: path, query: r.URL.RawQuery, began: time.Now()}
		r = r.WithContext(context.WithValue(r.Context(), requestStateKey{}, state))
		if stripped != nil {
			r.URL, r.RequestURI = stripped, stripped.RequestURI()
		}
		next.ServeHTTP(w, r)
	})
}

// answerStatus answers in the form that Kubernetes clients read.
func answerStatus(w http.ResponseWriter, err error) {
	known := apierrors.APIStatus(nil)
	if !errors.As(err, &known) {
		known = apierrors.NewInternalError(errors.New("internal error"))
	}
	status := known.Status()
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(int(status.Code))
	status.APIVersion, status.Kind = "v1", "Status"
	_ = json.NewEncoder(w).Encode(status) // the client is gone otherwise
}

// NoteCaller notes in the context that u was authenticated and returns the user to go on with: a
// copy, so that any other user found in the request later is known to be impersonated. Without a
// note of [WithRequestState] (TokenReview authenticates outside any request) u itself is returned.
func NoteCaller(ctx context.Context, u user.Info) user.Info {
	state := requestStateFrom(ctx)
	if state == nil {
		return u
	}
	state.real = &user.DefaultInfo{
		Name:   u.GetName(),
		UID:    u.GetUID(),
		Groups: u.GetGroups(),
		Extra:  u.GetExtra(),
	}
	return state.real
}

// NoteMapped notes that who was authenticated, and noted, goes on as u: by this name the server
// knows it that the request is for. It returns the user to go on with as [NoteCaller] does. The
// tenant of u MUST be named as there; names says the same of the tenant in the request's path. It
// returns false where that has no name there: the request MUST be refused.
func NoteMapped(ctx context.Context, u user.Info, names func(tenant.ID) (tenant.ID, bool)) (user.Info, bool) {
	state := requestStateFrom(ctx)
	if state == nil {
		return nil, false
	}
	if id := state.path.id; !id.IsZero() {
		there, has := names(id)
		if !has {
			return nil, false
		}
		state.path.id = there
	}
	source := state.real
	mapped := NoteCaller(ctx, u)
	state.source = source
	return mapped, true
}

// WithTenant is the innermost filter, around the API handler. It applies the decisions that the
// boundary recorded. An impersonated user is bound to its tenant, and a list is limited to the
// tenant, both in the query and in RequestInfo. Every request is a session, whatever its caller
// and its path. The session ends with the rights of the caller and with the owner of the namespace.
func WithTenant(next http.Handler, sessions *Sessions) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		state := requestStateFrom(r.Context())
		if state == nil {
			next.ServeHTTP(w, r)
			return
		}
		ctx := context.WithValue(r.Context(), requestStateKey{}, (*requestState)(nil))
		if state.bound != nil {
			ctx = request.WithUser(ctx, state.bound)
		}
		if state.selector != nil {
			var err error
			if ctx, r, err = limited(ctx, r, state.selector); err != nil {
				answerStatus(w, err)
				return
			}
		}
		if state.fields != nil {
			var err error
			if ctx, r, err = limitedToObjects(ctx, r, state.fields, state.name); err != nil {
				answerStatus(w, err)
				return
			}
		}
		namespace := ""
		if info, known := request.RequestInfoFrom(ctx); known {
			namespace = info.Namespace
		}
		if r.TLS != nil {
			state.session.Certificates = r.TLS.PeerCertificates
		}
		ctx, done := sessions.begin(ctx, namespace, state.session, state.began)
		defer done()
		r = r.WithContext(ctx)
		if r.Body != nil && r.Body != http.NoBody {
			r.Body = &sessionBody{r.Body, ctx}
		}
		next.ServeHTTP(endWith(ctx, w), r)
	})
}

// errEnded is the answer to a request whose session ended while its body was being read.
var errEnded = apierrors.NewServiceUnavailable(
	"the caller's rights or the namespace's owner changed during the request: try again")

// sessionBody is the body of a request. Nothing of it can be read after the session of the request
// has ended, so that a body that a caller completes later has no effect.
type sessionBody struct {
	io.ReadCloser
	ctx context.Context //nolint:containedctx // of the one request
}

// Read implements [io.Reader].
func (b *sessionBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if errors.Is(b.ctx.Err(), context.Canceled) {
		return 0, errEnded
	}
	return n, err
}

// isReal reports whether u is who was authenticated. A request without a note of who that is, the
// loopback client's, counts as not impersonated: it is the system tenant's either way.
func (s *requestState) isReal(u user.Info) bool {
	return s == nil || s.real == nil || u == s.real
}

// realOr returns who was authenticated, or u where that is not noted.
func (s *requestState) realOr(u user.Info) user.Info {
	if s == nil || s.real == nil {
		return u
	}
	return s.real
}

// bind returns u bound to id, u itself where it is so already.
func bind(u user.Info, id tenant.ID) user.Info {
	if bound, err := tenant.Of(u); err == nil && bound == id {
		return u
	}
	return tenant.Bind(u, id)
}

// inGroup returns u in the group of tenant id, u itself where it is so already, and where the
// server would not put it there when it authenticates it. The system tenant's callers that nobody
// bound, kubelets and controllers, are in none.
func (b *Boundary) inGroup(u user.Info, id tenant.ID) user.Info {
	if id.IsZero() || id.IsSystem() || tenant.IsServiceAccountName(u.GetName()) && !b.AccountsInGroup {
		return u
	}
	if isInGroup(u, id) {
		return u
	}
	return &user.DefaultInfo{
		Name:   u.GetName(),
		UID:    u.GetUID(),
		Groups: append(slices.Clone(u.GetGroups()), id.Group()),
		Extra:  u.GetExtra(),
	}
}

// isInGroup reports whether u is in the group of tenant id.
func isInGroup(u user.Info, id tenant.ID) bool {
	return slices.ContainsFunc(u.GetGroups(), func(group string) bool {
		name, found := strings.CutPrefix(group, tenant.GroupPrefix)
		return found && name == id.String()
	})
}
