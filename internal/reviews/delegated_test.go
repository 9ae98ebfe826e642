// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package reviews_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/kubetenant/kubetenant/internal/reviews"
	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/tenanttest"
)

// fakeServer authenticates tokens of two tenants, of the system tenant and of a user without a
// tenant. Its boundary denies the impersonation of some names.
type fakeServer struct {
	reviews.Delegated
	decided []authorizer.Attributes
}

func userOf(t *testing.T, name, id string, more ...string) *user.DefaultInfo {
	t.Helper()
	return tenant.Bind(&user.DefaultInfo{
		Name:   name,
		Groups: append(more, user.AllAuthenticated),
		Extra:  map[string][]string{tenant.SourceKey: {"tokens"}},
	}, tenanttest.ID(t, id))
}

func newFakeServer(t *testing.T) *fakeServer {
	t.Helper()
	w := &fakeServer{}
	tokens := map[string]user.Info{
		"alice": userOf(t, "alice", "a", "dev"),
		"bob":   userOf(t, "bob", "b"),
		"root":  tenant.Bind(&user.DefaultInfo{Name: "root"}, tenant.System()),
		"stray": &user.DefaultInfo{Name: "stray"},
	}
	w.Subject = func(_ context.Context, u user.Info) (tenant.ID, error) { return tenant.Of(u) }
	w.Authenticate = func(r *http.Request) (*authenticator.Response, bool, error) {
		if len(r.Header) != 1 || r.URL.Path != "/" {
			t.Errorf("the token is authenticated with the headers %v", r.Header)
		}
		token := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
		token, _, _ = strings.Cut(strings.TrimSpace(token), " ") // upstream's authenticators also ignore the rest
		if token == "broken" {
			return nil, false, errors.New("CANARY")
		}
		u, known := tokens[token]
		return &authenticator.Response{User: u, Audiences: authenticator.Audiences{"api"}}, known, nil
	}
	w.DenyReason = func(_ context.Context, a authorizer.Attributes) string {
		if a.GetUser().GetName() != "caller" || a.GetVerb() != "impersonate" || !a.IsResourceRequest() {
			t.Errorf("unexpected request to the boundary: %+v", a)
		}
		name := a.GetName()
		if strings.HasPrefix(name, "system:") || name == "" || name == "tenant:b" || name == "b" ||
			a.GetNamespace() == "b--web" || strings.HasSuffix(a.GetSubresource(), "kubernetes.io/x") {
			return "another tenant"
		}
		return ""
	}
	w.Authorize = func(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
		w.decided = append(w.decided, a)
		switch a.GetVerb() {
		case "get":
			return authorizer.DecisionAllow, "by a role", nil
		case "fail":
			return authorizer.DecisionAllow, "", errors.New("CANARY")
		}
		return authorizer.DecisionNoOpinion, "", nil
	}
	return w
}

// post sends a review as a caller. If caller is nil, the request has no user. The API server
// behind the handler responds with status 418.
func (w *fakeServer) post(caller user.Info, group, resource, namespace string, review any) (int, string) {
	body, ok := review.(string)
	if !ok {
		text, err := json.Marshal(review)
		if err != nil {
			panic(err)
		}
		body = string(text)
	}
	handler := reviews.With(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusTeapot)
		_, _ = io.Copy(w, r.Body)
	}), w.ReviewerFor)
	r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	ctx := request.WithRequestInfo(r.Context(), &request.RequestInfo{
		IsResourceRequest: true,
		Verb:              "create",
		APIGroup:          group,
		APIVersion:        "v1",
		Resource:          resource,
		Namespace:         namespace,
	})
	if caller != nil {
		ctx = request.WithUser(ctx, caller)
	}
	out := httptest.NewRecorder()
	handler.ServeHTTP(out, r.WithContext(ctx))
	return out.Code, out.Body.String()
}

func tokenReview(token string, audiences ...string) *authenticationv1.TokenReview {
	out := &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token, Audiences: audiences}}
	out.APIVersion, out.Kind = "authentication.k8s.io/v1", "TokenReview"
	out.Status.Authenticated = true // a forged result
	return out
}

// TestTokenReviews checks that a tenant's caller can review the tokens of its own tenant. The
// response for a token of another tenant equals the response for an unknown token.
func TestTokenReviews(t *testing.T) {
	w := newFakeServer(t)
	caller := userOf(t, "caller", "a")
	ask := func(token string, audiences ...string) (int, string) {
		return w.post(caller, "authentication.k8s.io", "tokenreviews", "", tokenReview(token, audiences...))
	}
	code, own := ask("alice")
	var review authenticationv1.TokenReview
	if err := json.Unmarshal([]byte(own), &review); err != nil || code != http.StatusCreated ||
		!review.Status.Authenticated || review.Status.User.Username != "alice" ||
		!slices.Equal(review.Status.User.Groups, []string{"dev", "system:authenticated"}) ||
		review.Status.User.Extra[tenant.ExtraKey][0] != "a" || review.Spec.Token != "" {
		t.Errorf("a token of the caller's tenant: %d: %s", code, own)
	}
	_, none := ask("nobody's")
	for _, token := range []string{
		"bob", "root", "stray", "broken", "alice anything", "alice ", " alice", "alice\t", "alice\n", "alice\u00a0", "al ice",
	} {
		if code, text := ask(token); code != http.StatusCreated || text != none {
			t.Errorf("%s: %d: %s, want the response for an unknown token: %s", token, code, text, none)
		}
	}
	if strings.Contains(none, `"authenticated":true`) || strings.Contains(none, "CANARY") ||
		strings.Contains(none, "nobody") {
		t.Errorf("an unknown token: %s", none)
	}
	if _, text := ask("alice", "other"); !strings.Contains(text, `"status":{"user":{}}`) {
		t.Errorf("a token for another audience: %s", text)
	}
	if _, text := ask("alice", "api", "other"); !strings.Contains(text, `"audiences":["api"]`) ||
		!strings.Contains(text, `"authenticated":true`) {
		t.Errorf("a token for one of the audiences: %s", text)
	}
}

// TestReviewedCallers checks that the API server handles reviews by callers of the system tenant.
// Reviews by callers without a tenant, and invalid reviews, are rejected.
func TestReviewedCallers(t *testing.T) {
	w := newFakeServer(t)
	for resource, kind := range map[string]schema.GroupVersionKind{
		"tokenreviews":              authenticationv1.SchemeGroupVersion.WithKind("TokenReview"),
		"subjectaccessreviews":      authorizationv1.SchemeGroupVersion.WithKind("SubjectAccessReview"),
		"localsubjectaccessreviews": authorizationv1.SchemeGroupVersion.WithKind("LocalSubjectAccessReview"),
	} {
		t.Run(resource, func(t *testing.T) {
			for who, c := range map[string]struct {
				caller user.Info
				want   int
			}{
				"the system tenant": {
					tenant.Bind(&user.DefaultInfo{Name: "root"}, tenant.System()), http.StatusTeapot,
				},
				"an unbound caller": {&user.DefaultInfo{Name: "stray"}, http.StatusForbidden},
				"a tenant's caller": {userOf(t, "caller", "a"), http.StatusBadRequest},
				"no caller":         {nil, http.StatusForbidden},
			} {
				t.Run(who, func(t *testing.T) {
					if code, text := w.post(c.caller, kind.Group, resource, "a--web",
						fmt.Sprintf(`{"apiVersion":%q,"kind":%q}`, kind.GroupVersion(), kind.Kind)); code != c.want {
						t.Errorf("%d, want %d: %s", code, c.want, text)
					}
				})
			}
		})
	}
	for what, c := range map[string]struct {
		body string
		want int
	}{
		"an empty body": {"", 400},
		"not JSON":      {"{", 400},
		"another kind":  {`{"apiVersion":"authorization.k8s.io/v1","kind":"SubjectAccessReview","spec":{}}`, 400},
		"another version": {
			`{"apiVersion":"authentication.k8s.io/v1beta1","kind":"TokenReview","spec":{"token":"alice"}}`, 400,
		},
		"without a token": {`{"apiVersion":"authentication.k8s.io/v1","kind":"TokenReview","spec":{}}`, 400},
		"a review that is too large": {
			`{"apiVersion":"authentication.k8s.io/v1","kind":"TokenReview","spec":{"token":"` + strings.Repeat("x", 64<<10) +
				`"}}`,
			413,
		},
	} {
		t.Run(what, func(t *testing.T) {
			if code, text := w.post(userOf(t, "caller", "a"), "authentication.k8s.io", "tokenreviews", "",
				c.body); code != c.want {
				t.Errorf("%d, want %d: %s", code, c.want, text)
			}
		})
	}
}

// TestSubjectAccessReviews checks that a subject is bound to the caller's tenant. If the boundary
// denies the caller to impersonate the subject, the access is denied without a decision.
func TestSubjectAccessReviews(t *testing.T) {
	caller := userOf(t, "caller", "a")
	type spec = authorizationv1.SubjectAccessReviewSpec
	get := &authorizationv1.ResourceAttributes{Verb: "get", Resource: "pods", Namespace: "a--web"}
	extra := func(key string, values ...string) map[string]authorizationv1.ExtraValue {
		return map[string]authorizationv1.ExtraValue{key: values}
	}
	for what, c := range map[string]struct {
		spec    spec
		allowed bool
		groups  string // groups of the subject, empty if there was no decision
	}{
		"a user": {spec{User: "carol", ResourceAttributes: get}, true, "system:authenticated"},
		"with groups": {
			spec{User: "carol", Groups: []string{"dev", "tenant:a", "system:authenticated"}, ResourceAttributes: get},
			true,
			"dev tenant:a system:authenticated",
		},
		"with the extra keys from a TokenReview": {
			spec{
				User: "carol",
				Extra: map[string]authorizationv1.ExtraValue{
					tenant.ExtraKey:      {"a"},
					tenant.SourceKey:     {"tokens"},
					user.CredentialIDKey: {"JTI=1"},
				},
				ResourceAttributes: get,
			},
			true,
			"system:authenticated",
		},
		"an own service account": {
			spec{
				User:               "system:serviceaccount:a--web:r",
				Groups:             []string{"system:serviceaccounts", "system:serviceaccounts:a--web", "system:authenticated"},
				ResourceAttributes: get,
			},
			true,
			"system:authenticated system:serviceaccounts system:serviceaccounts:a--web",
		},
		"a user without permission": {
			spec{User: "carol", ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: "list", Resource: "pods"}},
			false,
			"system:authenticated",
		},
		"a path": {
			spec{User: "carol", NonResourceAttributes: &authorizationv1.NonResourceAttributes{Verb: "get", Path: "/api"}},
			true,
			"system:authenticated",
		},
		"a decision that fails": {
			spec{User: "carol", ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: "fail", Resource: "pods"}},
			false,
			"system:authenticated",
		},
		"a reserved user": {spec{User: "system:admin", ResourceAttributes: get}, false, ""},
		"the group system:masters": {
			spec{User: "carol", Groups: []string{"system:masters"}, ResourceAttributes: get}, false, "",
		},
		"groups without a user":  {spec{Groups: []string{"dev"}, ResourceAttributes: get}, false, ""},
		"another tenant's group": {spec{User: "carol", Groups: []string{"tenant:b"}, ResourceAttributes: get}, false, ""},
		"another tenant's extra": {
			spec{User: "carol", Extra: extra(tenant.ExtraKey, "b"), ResourceAttributes: get}, false, "",
		},
		"another tenant's extra in upper case": {
			spec{User: "carol", Extra: extra("KubeTenant.dev/Tenant", "b"), ResourceAttributes: get}, false, "",
		},
		"a reserved extra": {
			spec{User: "carol", Extra: extra("kubernetes.io/x", "y"), ResourceAttributes: get}, false, "",
		},
		"another tenant's account": {spec{User: "system:serviceaccount:b--web:r", ResourceAttributes: get}, false, ""},
		"a service account in the groups of another namespace": {
			spec{
				User:               "system:serviceaccount:a--web:r",
				Groups:             []string{"system:serviceaccounts:b--web"},
				ResourceAttributes: get,
			},
			false,
			"",
		},
	} {
		t.Run(what, func(t *testing.T) {
			w := newFakeServer(t)
			review := &authorizationv1.SubjectAccessReview{Spec: c.spec}
			review.APIVersion, review.Kind, review.Status.Allowed = "authorization.k8s.io/v1", "SubjectAccessReview", true
			code, text := w.post(caller, "authorization.k8s.io", "subjectaccessreviews", "", review)
			if err := json.Unmarshal([]byte(text), review); err != nil || code != http.StatusCreated ||
				review.Status.Allowed != c.allowed || strings.Contains(text, "CANARY") {
				t.Errorf("%d: %s", code, text)
			}
			got := ""
			for _, a := range w.decided {
				u := a.GetUser()
				got = strings.Join(u.GetGroups(), " ")
				if id, err := tenant.Of(u); err != nil || id.String() != "a" || u.GetName() != c.spec.User {
					t.Errorf("the decision is about %+v", u)
				}
			}
			if got != c.groups || len(w.decided) > 1 {
				t.Errorf("the subject of the decision is in the groups %q", got)
			}
		})
	}
}

// TestLocalReviews checks that a LocalSubjectAccessReview about access in another namespace is
// rejected. Reviews of the wrong kind or with invalid fields are rejected too.
func TestLocalReviews(t *testing.T) {
	w := newFakeServer(t)
	for namespace, want := range map[string]int{
		"a--web":   http.StatusCreated,
		"a--other": http.StatusBadRequest,
		"":         http.StatusBadRequest,
	} {
		t.Run(namespace, func(t *testing.T) {
			body := fmt.Sprintf(`{"apiVersion":"authorization.k8s.io/v1","kind":"LocalSubjectAccessReview",`+
				`"metadata":{"namespace":"a--web"},"spec":{"user":"carol","resourceAttributes":{"verb":"get","resource":"pods",`+
				`"namespace":%q}}}`,
				namespace)
			if code, text := w.post(userOf(t, "caller", "a"), "authorization.k8s.io", "localsubjectaccessreviews",
				"a--web", body); code != want {
				t.Errorf("access in %q: %d: %s", namespace, code, text)
			}
		})
	}
	// A caller that may create only one kind of review cannot use its resource for the other
	// kind.
	for resource, kind := range map[string]string{
		"localsubjectaccessreviews": "SubjectAccessReview",
		"subjectaccessreviews":      "LocalSubjectAccessReview",
	} {
		t.Run(resource, func(t *testing.T) {
			body := fmt.Sprintf(`{"apiVersion":"authorization.k8s.io/v1","kind":%q,"spec":{"user":"carol",`+
				`"resourceAttributes":{"verb":"get","resource":"pods","namespace":"a--web"}}}`,
				kind)
			if code, text := w.post(userOf(t, "caller", "a"), "authorization.k8s.io", resource,
				"a--web", body); code != http.StatusBadRequest {
				t.Errorf("a %s to %s: %d: %s", kind, resource, code, text)
			}
		})
	}
	for what, spec := range map[string]string{
		"without attributes":            `{"user":"x"}`,
		"with both kinds of attributes": `{"user":"x","resourceAttributes":{},"nonResourceAttributes":{}}`,
		"without a subject":             `{"resourceAttributes":{"verb":"get"}}`,
	} {
		t.Run(what, func(t *testing.T) {
			body := `{"apiVersion":"authorization.k8s.io/v1","kind":"SubjectAccessReview","spec":` + spec + `}`
			if code, text := w.post(userOf(t, "caller", "a"), "authorization.k8s.io", "subjectaccessreviews",
				"", body); code != http.StatusBadRequest {
				t.Errorf("%d: %s", code, text)
			}
		})
	}
}

// TestOtherRequestsAreForwarded checks that requests for other resources of authorization.k8s.io
// reach the API server unchanged.
func TestOtherRequestsAreForwarded(t *testing.T) {
	w := newFakeServer(t)
	for _, resource := range []string{"selfsubjectreviews", "selfsubjectaccessreviews", "things"} {
		if code, text := w.post(userOf(t, "caller", "a"), "authorization.k8s.io", resource,
			"", "as it came"); code != http.StatusTeapot || text != "as it came" {
			t.Errorf("%s: %d: %s", resource, code, text)
		}
	}
}
