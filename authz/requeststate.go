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

// requestState is the boundary's state of one request, from the outermost filter to the API
// handler. The context contains the state only between these two. Handlers and admission call the
// same authorizer again for reviews and escalation checks. The authorizer then finds no state.
// Only one goroutine uses the state at any time.
type requestState struct {
	path  tenantPath
	query string // the query that the client sent
	// authenticated is the authenticated user, with the name that the server uses. It is nil
	// before authentication, and for the server's own loopback client.
	authenticated user.Info
	// mappedFrom is the authenticated user if [RecordMappedCaller] replaced it, otherwise nil.
	mappedFrom user.Info

	handlerUser user.Info           // the user for the handlers; an impersonated user is bound to its tenant
	selector    labels.Requirements // the label selector that limits a list
	name        string              // name of the only object that a list may return
	fields      fields.Selector     // the field selector that limits a list

	session session
	began   time.Time // a time before the request was authorized
}

type requestStateKey struct{}

// errMethod is the 400 response to a method that is not a token. It does not repeat the method.
var errMethod = errors.New("malformed method")

func requestStateFrom(ctx context.Context) *requestState {
	state, _ := ctx.Value(requestStateKey{}).(*requestState)
	return state
}

// WithRequestState is the outermost filter. It removes the tenant part of a path /tenants/<id>/...,
// and of a path in the older form if older allows it. It answers with 400 if the tenant part is
// malformed. It also answers with 400 if the method is not a token (RFC 9110, section 9.1). HTTP/2
// accepts such a method, and the boundary might read the method as an impersonation verb. The
// filter adds the state of the request to the context.
func WithRequestState(next http.Handler, older OlderPaths) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !httpguts.ValidHeaderFieldName(r.Method) { // a field name is a token too
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

// answerStatus writes err as a Status, which Kubernetes clients read.
func answerStatus(w http.ResponseWriter, err error) {
	known := apierrors.APIStatus(nil)
	if !errors.As(err, &known) {
		known = apierrors.NewInternalError(errors.New("internal error"))
	}
	status := known.Status()
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(int(status.Code))
	status.APIVersion, status.Kind = "v1", "Status"
	_ = json.NewEncoder(w).Encode(status) // it fails only if the client has disconnected
}

// RecordCaller records that u was authenticated and returns a copy of u. The request MUST continue
// with the copy, because the boundary treats any other user in the request as impersonated. If the
// context has no state of [WithRequestState], as in the handler of a TokenReview, RecordCaller
// returns u itself.
func RecordCaller(ctx context.Context, u user.Info) user.Info {
	state := requestStateFrom(ctx)
	if state == nil {
		return u
	}
	state.authenticated = &user.DefaultInfo{
		Name:   u.GetName(),
		UID:    u.GetUID(),
		Groups: u.GetGroups(),
		Extra:  u.GetExtra(),
	}
	return state.authenticated
}

// RecordMappedCaller replaces the recorded authenticated user by u, the identity of that user on
// the server that receives the request. [RecordCaller] MUST have recorded the authenticated user
// before. RecordMappedCaller returns a copy of u, and the request MUST continue with the copy.
// The tenant of u MUST have the name that it has on that server. translate converts the tenant in
// the request's path to its name on that server. If translate or RecordMappedCaller returns
// false, the caller MUST reject the request.
func RecordMappedCaller(
	ctx context.Context,
	u user.Info,
	translate func(tenant.ID) (tenant.ID, bool),
) (user.Info, bool) {
	state := requestStateFrom(ctx)
	if state == nil {
		return nil, false
	}
	if id := state.path.id; !id.IsZero() {
		mappedID, ok := translate(id)
		if !ok {
			return nil, false
		}
		state.path.id = mappedID
	}
	source := state.authenticated
	mapped := RecordCaller(ctx, u)
	state.mappedFrom = source
	return mapped, true
}

// WithTenant is the innermost filter, around the API handler. It applies the decisions that the
// boundary recorded. It adds the tenant to an impersonated user, and limits a list to the tenant,
// both in the query and in RequestInfo. It adds every request to sessions, regardless of the
// caller and the path. The session ends when the caller loses its permissions or the namespace
// gets another owner.
func WithTenant(next http.Handler, sessions *Sessions) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		state := requestStateFrom(r.Context())
		if state == nil {
			next.ServeHTTP(w, r)
			return
		}
		ctx := context.WithValue(r.Context(), requestStateKey{}, (*requestState)(nil))
		if state.handlerUser != nil {
			ctx = request.WithUser(ctx, state.handlerUser)
		}
		if state.selector != nil {
			var err error
			if ctx, r, err = withLabelSelector(ctx, r, state.selector); err != nil {
				answerStatus(w, err)
				return
			}
		}
		if state.fields != nil {
			var err error
			if ctx, r, err = withFieldSelector(ctx, r, state.fields, state.name); err != nil {
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
		next.ServeHTTP(closeHijackedOnDone(ctx, w), r)
	})
}

// errEnded is the response to a request whose session ended while its body was being read.
var errEnded = apierrors.NewServiceUnavailable(
	"the caller's rights or the namespace's owner changed during the request: try again")

// sessionBody is the body of a request. It cannot be read after the session of the request has
// ended because of a change or an expired exception. A body that a client completes later
// therefore has no effect.
type sessionBody struct {
	io.ReadCloser
	ctx context.Context //nolint:containedctx // of the one request
}

// Read implements [io.Reader].
func (b *sessionBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if errors.Is(b.ctx.Err(), context.Canceled) || errors.Is(context.Cause(b.ctx), errEnded) {
		return 0, errEnded
	}
	return n, err
}

// isAuthenticatedUser reports whether u is the authenticated user. A request from the loopback
// client has no recorded user and is treated as not impersonated. Its user belongs to the system
// tenant in any case.
func (s *requestState) isAuthenticatedUser(u user.Info) bool {
	return s == nil || s.authenticated == nil || u == s.authenticated
}

// authenticatedOr returns the authenticated user, or u if none is recorded.
func (s *requestState) authenticatedOr(u user.Info) user.Info {
	if s == nil || s.authenticated == nil {
		return u
	}
	return s.authenticated
}

// bind returns u with the extra that names tenant id. If u already has it, bind returns u itself.
func bind(u user.Info, id tenant.ID) user.Info {
	if bound, err := tenant.Of(u); err == nil && bound == id {
		return u
	}
	return tenant.Bind(u, id)
}

// withTenantGroup returns u in the group of tenant id. It returns u itself if u is already in the
// group, or if the server would not add the group when it authenticates u. It also returns u
// itself for the system tenant. Its kubelets and controllers are not in a tenant's group, because
// no credential source assigned a tenant to them.
func (b *Boundary) withTenantGroup(u user.Info, id tenant.ID) user.Info {
	if id.IsZero() || id.IsSystem() ||
		tenant.IsServiceAccountName(u.GetName()) && !b.options.ServiceAccountsInTenantGroup {
		return u
	}
	if isInTenantGroup(u, id) {
		return u
	}
	return &user.DefaultInfo{
		Name:   u.GetName(),
		UID:    u.GetUID(),
		Groups: append(slices.Clone(u.GetGroups()), id.Group()),
		Extra:  u.GetExtra(),
	}
}

// isInTenantGroup reports whether u is in the group of tenant id.
func isInTenantGroup(u user.Info, id tenant.ID) bool {
	return slices.ContainsFunc(u.GetGroups(), func(group string) bool {
		name, found := strings.CutPrefix(group, tenant.GroupPrefix)
		return found && name == id.String()
	})
}
