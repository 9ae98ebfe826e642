// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package installation_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/kubetenant/kubetenant/authz"
	"github.com/kubetenant/kubetenant/internal/cli/installation"
	"github.com/kubetenant/kubetenant/internal/gateway/views"
	"github.com/kubetenant/kubetenant/plugins/namespace"
)

// fake is a fake server. Each response is a string with the status code, a space and the body.
// An empty string is a 404 response.
type fake struct {
	review, self, dryRun, published string
	// namespace is the only namespace with a published configuration. If empty, every namespace
	// has a published configuration.
	namespace string
	// owner is the response to a read of a Namespace.
	owner string
	// other is the response to every other path.
	other string
	// wrapHandler adds handlers around the server, such as the filters of kubetenant.
	wrapHandler func(http.Handler) http.Handler
}

func status(code int, reason, message string) string {
	return fmt.Sprintf(`%d {"kind":"Status","apiVersion":"v1","status":"Failure","code":%d,"reason":%q,"message":%q}`,
		code, code, reason, message)
}

func reviewed(status string) string {
	return `201 {"kind":"SubjectAccessReview","apiVersion":"authorization.k8s.io/v1","status":` + status + `}`
}

func published(settings string) string {
	return fmt.Sprintf(`200 {"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"kubetenant-configuration"},`+
		`"data":{"hash":"abc","tenancy.yaml":%q}}`,
		`{"apiVersion":"kubetenant.dev/v1alpha1","kind":"TenancyConfiguration",`+settings+`}`)
}

// start starts the fake server and returns its client configuration.
func (f fake) start(t *testing.T) *rest.Config {
	t.Helper()
	var handler http.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer := f.other
		switch {
		case strings.HasSuffix(r.URL.Path, "/subjectaccessreviews"):
			answer = f.review
		case strings.HasSuffix(r.URL.Path, "/selfsubjectreviews"):
			answer = f.self
		case r.URL.Path == "/api/v1/namespaces":
			if r.URL.Query().Get("dryRun") != "All" {
				t.Errorf("%s %s is not a dry run", r.Method, r.URL)
			}
			answer = f.dryRun
		case f.owner != "" && strings.HasPrefix(r.URL.Path, "/api/v1/namespaces/") && strings.Count(r.URL.Path, "/") == 4:
			answer = f.owner
		case strings.HasSuffix(r.URL.Path, "/configmaps/kubetenant-configuration"):
			if f.namespace == "" || strings.Contains(r.URL.Path, "/"+f.namespace+"/") {
				answer = f.published
			}
		}
		if answer == "" {
			answer = status(http.StatusNotFound, "NotFound", "the server could not find the requested resource")
		}
		code, body, _ := strings.Cut(answer, " ")
		n := 0
		_, _ = fmt.Sscan(code, &n)
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(n)
		_, _ = w.Write([]byte(body))
	})
	if f.wrapHandler != nil {
		handler = f.wrapHandler(handler)
	}
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	return &rest.Config{Host: server.URL, Proxy: func(*http.Request) (*url.URL, error) { return nil, nil }}
}

// tenantPaths is the filter of a server that serves tenant paths.
func tenantPaths(next http.Handler) http.Handler { return authz.WithRequestState(next, nil) }

// gateway returns the handler of a gateway that rejects malformed cluster names. The gateway has
// the cluster eu1. If root is true, the gateway also serves this cluster at its root.
func gateway(root bool) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			after, named := strings.CutPrefix(r.URL.Path, "/clusters/")
			switch {
			case named && strings.HasPrefix(after, "_/"):
				_, body, _ := strings.Cut(status(http.StatusBadRequest, "BadRequest", views.MalformedClusterPath), " ")
				w.Header().Set("Content-Type", "application/json")
				w.WriteHeader(http.StatusBadRequest)
				_, _ = w.Write([]byte(body))
			case strings.HasPrefix(after, "eu1/"):
				http.StripPrefix("/clusters/eu1", tenantPaths(next)).ServeHTTP(w, r)
			case root && !named:
				tenantPaths(next).ServeHTTP(w, r)
			default:
				w.WriteHeader(http.StatusForbidden)
			}
		})
	}
}

var (
	denied = reviewed(`{"allowed":false,"denied":true,"reason":"tenant subject: the caller's tenant is unknown or ` +
		`ambiguous"}`)
	undecided = reviewed(`{"allowed":false}`)
	forbidden = status(http.StatusForbidden, "Forbidden",
		`subjectaccessreviews.authorization.k8s.io is forbidden: User "bob" cannot create resource "subjectaccessreviews" `+
			`in API group "authorization.k8s.io" at the cluster scope`)
	refused = status(http.StatusForbidden, "Forbidden",
		`admission webhook "namespaces.validating.kubetenant.dev" denied the request: namespaces "kubetenant-probe" is `+
			`forbidden: `+namespace.BadLabel+" (TenantNamespace, admission.namespace)")
	created = `201 {"kind":"Namespace","apiVersion":"v1"}`
)

// TestDetect checks the installation that is detected from the responses of each deployment
// mode. It also checks the errors for servers without kubetenant, and for responses that do not
// show the mode.
func TestDetect(t *testing.T) {
	const unknown, none = "cannot determine whether kubetenant is installed on HOST: ", "kubetenant is not installed on "
	for name, c := range map[string]struct {
		fake
		path   string
		mode   installation.Mode
		direct bool
		err    string
	}{
		"compiled in": {fake: fake{wrapHandler: tenantPaths}, mode: installation.CompiledIn},
		"compiled in, at a tenant's path": {
			fake: fake{wrapHandler: tenantPaths},
			path: "/tenants/acme",
			mode: installation.CompiledIn,
		},
		"compiled in, expired credential": {
			fake: fake{
				wrapHandler: tenantPaths,
				other:       status(401, "Unauthorized", "Unauthorized"),
				review:      status(401, "Unauthorized", "Unauthorized"),
			},
			mode: installation.CompiledIn,
		},
		"gateway with a root cluster":    {fake: fake{wrapHandler: gateway(true)}, mode: installation.Gateway},
		"gateway without a root cluster": {fake: fake{wrapHandler: gateway(false)}, mode: installation.Gateway},
		"gateway, at a cluster": {
			fake: fake{wrapHandler: gateway(false)},
			path: "/clusters/eu1",
			mode: installation.Gateway,
		},
		"gateway, at a tenant's path": {
			fake: fake{wrapHandler: gateway(false)},
			path: "/clusters/eu1/tenants/acme",
			mode: installation.Gateway,
		},
		"gateway, at its views": {fake: fake{wrapHandler: gateway(false)}, path: "/gateway", mode: installation.Gateway},
		"webhook, as the admin": {fake: fake{review: denied}, mode: installation.Webhook},
		"webhook, as a tenant's caller": {
			fake: fake{review: strings.Replace(forbidden, "cluster scope", "cluster scope: "+authz.ReasonReview.String(), 1)},
			mode: installation.Webhook,
		},
		"webhook, as a system reader's token": {
			fake: fake{
				review: forbidden,
				self: `201 {"kind":"SelfSubjectReview","apiVersion":"authentication.k8s.io/v1",` +
					`"status":{"userInfo":{"username":"bob","extra":{"kubetenant.dev/source":["tokens"]}}}}`,
			},
			mode: installation.Webhook,
		},
		"webhook of another release": {
			fake: fake{review: reviewed(`{"denied":true,"reason":"tenant subject: in other words"}`)},
			mode: installation.Webhook,
		},
		"webhook of another release, as a tenant's caller": {
			fake: fake{review: strings.Replace(forbidden, "cluster scope", "cluster scope: tenant boundary: in other words", 1)},
			mode: installation.Webhook,
		},
		"reason without denial": {
			fake: fake{review: reviewed(`{"reason":"tenant subject: the caller has no tenant"}`), dryRun: created},
			err:  none,
		},
		"webhook, as a caller without the review": {
			fake: fake{
				review: forbidden,
				self: `201 {"kind":"SelfSubjectReview","apiVersion":"authentication.k8s.io/v1",` +
					`"status":{"userInfo":{"username":"bob"}}}`,
			},
			err: unknown + "you may not create subjectaccessreviews",
		},
		"webhook in mode Shadow": {
			fake: fake{review: undecided, dryRun: refused, published: published(`"authorization":{"mode":"Shadow"}`)},
			mode: installation.Webhook,
		},
		"webhook without its authorizer": {
			fake: fake{review: undecided, dryRun: refused, published: published(`"authorization":{"mode":"Enforce"}`)},
			err:  unknown + "the admission webhooks of kubetenant respond, but its authorizer",
		},
		"webhooks without a published configuration": {
			fake: fake{review: undecided, dryRun: refused},
			err:  unknown + "the admission webhooks of kubetenant respond, but the configuration",
		},
		"cluster behind a gateway": {
			fake: fake{
				review: undecided,
				dryRun: refused,
				published: published(`"gateway":{"clusters":[{"name":"eu1","tenants":["*"],"reader":{"kubeConfigFile":"/r"},` +
					`"impersonator":{"kubeConfigFile":"/i"}}]}`),
			},
			mode:   installation.Gateway,
			direct: true,
		},
		"webhook service is down": {
			fake: fake{review: reviewed(`{"allowed":false,"denied":true,"evaluationError":"connection refused"}`)},
			err:  unknown + "an authorizer of the server failed: connection refused",
		},
		"admission webhooks are down": {
			fake: fake{review: undecided, dryRun: status(500, "InternalError", "failed calling webhook")},
			err:  unknown + "dry run of a Namespace",
		},
		"upstream": {fake: fake{review: undecided, dryRun: created}, err: none},
		"upstream with a published configuration": {
			fake: fake{review: undecided, dryRun: created, published: published(`"authorization":{"mode":"Enforce"}`)},
			err:  none,
		},
		"upstream with a ValidatingAdmissionPolicy of kubetenant": {
			fake: fake{
				review: undecided,
				dryRun: status(403, "Forbidden",
					`namespaces "kubetenant-probe" is forbidden: ValidatingAdmissionPolicy 'namespace.kubetenant.dev' denied `+
						`request: `+namespace.BadLabel),
				published: published(`"authorization":{"mode":"Shadow"}`),
			},
			err: unknown + "dry run of a Namespace",
		},
		"another project's webhook": {
			fake: fake{
				review:    undecided,
				dryRun:    strings.Replace(refused, "namespaces.validating.kubetenant.dev", "policy.example.com", 1),
				published: published(`"authorization":{"mode":"Shadow"}`),
			},
			err: unknown + "dry run of a Namespace",
		},
		"server that allows every request": {
			fake: fake{
				review: reviewed(`{"allowed":true,"reason":"tenant subject: the caller has no tenant"}`),
				dryRun: created,
			},
			err: none,
		},
		"another project's reasons": {
			fake: fake{review: reviewed(`{"allowed":false,"denied":true,"reason":"tenant acme may not"}`), dryRun: created},
			err:  none,
		},
		"another project's tenant paths": {
			fake: fake{review: undecided, dryRun: created, other: status(400, "BadRequest", "bad tenant")},
			err:  none,
		},
		"HTML page for every path": {fake: fake{review: "200 <html>", other: "200 <html>"}, err: unknown},
		"message not in a Status": {
			fake: fake{review: undecided, dryRun: created, other: "400 " + authz.MalformedTenantPath},
			err:  none,
		},
		"message with another status code": {
			fake: fake{review: undecided, dryRun: created, other: status(404, "NotFound", authz.MalformedTenantPath)},
			err:  none,
		},
		"SubjectAccessReview not served": {fake: fake{}, err: unknown + "the server does not serve subjectaccessreviews"},
		"expired credential": {
			fake: fake{review: status(401, "Unauthorized", "Unauthorized"), other: status(401, "Unauthorized", "Unauthorized")},
			err:  unknown + "Unauthorized",
		},
		"user name that contains a reason": {
			fake: fake{
				review: strings.Replace(forbidden, "bob", "tenant boundary: tenants may not review the access of other callers", 1),
			},
			err: unknown + "you may not create",
		},
	} {
		t.Run(name, func(t *testing.T) {
			config := c.start(t)
			config.Host += c.path
			got, err := installation.Detect(t.Context(), config)
			if c.err == "" {
				if err != nil || got.Mode != c.mode || got.Direct != c.direct || got.Server != config.Host {
					t.Errorf("got %+v, %v; want %s, direct %t", got, err, c.mode, c.direct)
				}
				return
			}
			undetermined, want := &installation.UndeterminedError{}, strings.ReplaceAll(c.err, "HOST", config.Host)
			if got != nil || err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
				t.Fatalf("got %+v, %v; want %q", got, err, want)
			}
			if errors.Is(err, installation.ErrNotInstalled) != strings.HasPrefix(c.err, none) ||
				errors.As(err, &undetermined) == strings.HasPrefix(c.err, none) {
				t.Errorf("unexpected error type: %v", err)
			}
		})
	}
}

// TestDetectUnreachable checks that the error for a server that does not respond is not
// [ErrNotInstalled].
func TestDetectUnreachable(t *testing.T) {
	hanging := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }))
	defer hanging.Close()
	gone := httptest.NewServer(nil)
	gone.Close()
	for name, host := range map[string]string{
		"no response":        hanging.URL,
		"connection refused": gone.URL,
		"unknown host name":  "https://nowhere.invalid:6443",
	} {
		t.Run(name, func(t *testing.T) {
			config := &rest.Config{
				Host:    host,
				Timeout: 50 * time.Millisecond,
				Proxy:   func(*http.Request) (*url.URL, error) { return nil, nil },
			}
			got, err := installation.Detect(t.Context(), config)
			undetermined := &installation.UndeterminedError{}
			if got != nil || !errors.As(err, &undetermined) || errors.Is(err, installation.ErrNotInstalled) {
				t.Errorf("%+v, %v", got, err)
			}
		})
	}
}

// TestDetectFollowsNoRedirect checks that the credential is not sent to another server.
func TestDetectFollowsNoRedirect(t *testing.T) {
	other := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		t.Errorf("followed a redirect to %s", r.URL)
	}))
	defer other.Close()
	config := fake{
		wrapHandler: func(http.Handler) http.Handler { return http.RedirectHandler(other.URL, http.StatusTemporaryRedirect) },
	}.start(t)
	config.BearerToken = "secret"
	if got, err := installation.Detect(t.Context(), config); got != nil || err == nil ||
		strings.Contains(err.Error(), "secret") {
		t.Errorf("%+v, %v", got, err)
	}
}

// TestDetectIgnoresImpersonation checks that the detection ignores impersonation, because the mode
// does not depend on the caller.
func TestDetectIgnoresImpersonation(t *testing.T) {
	config := fake{wrapHandler: func(http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Impersonate-User") != "" {
				t.Errorf("%s is sent with impersonation", r.URL)
			}
			w.WriteHeader(http.StatusNotFound)
		})
	}}.start(t)
	config.Impersonate.UserName = "alice"
	_, _ = installation.Detect(t.Context(), config)
	if config.Impersonate.UserName != "alice" {
		t.Error("Detect changed the caller's configuration")
	}
}

// TestPublished checks that the configuration is read only from the namespace of the detected
// mode, not from the namespace of another deployment mode.
func TestPublished(t *testing.T) {
	for name, c := range map[string]struct {
		fake
		reads string
	}{
		"compiled in": {fake{wrapHandler: tenantPaths}, "kube-system"},
		"webhook":     {fake{review: denied}, installation.WebhookNamespace},
		"gateway":     {fake{wrapHandler: gateway(true)}, installation.WebhookNamespace},
	} {
		t.Run(name, func(t *testing.T) {
			for _, namespace := range []string{"kube-system", installation.WebhookNamespace} {
				c.published, c.namespace = published(`"authorization":{"mode":"Enforce"}`), namespace
				found, err := installation.Detect(t.Context(), c.start(t))
				if err != nil {
					t.Fatalf("%v", err)
				}
				if p, err := found.Published(t.Context()); (err == nil) != (namespace == c.reads) {
					t.Errorf("%s, with a configuration in %s: %+v, %v", name, namespace, p, err)
				}
			}
		})
	}
}

// TestPublishedByATenant checks that the configuration is not read from a namespace that has a
// tenant's label.
func TestPublishedByATenant(t *testing.T) {
	labeled := func(id string) string {
		return `200 {"kind":"Namespace","apiVersion":"v1","metadata":{"name":"x","labels":{"kubetenant.dev/tenant":"` + id +
			`"}}}`
	}
	for name, c := range map[string]struct {
		owner   string
		refuses bool
	}{
		"label of a tenant":               {labeled("acme"), true},
		"invalid tenant label":            {labeled(""), true},
		"label of the system tenant":      {labeled("system"), false},
		"no label":                        {`200 {"kind":"Namespace","apiVersion":"v1","metadata":{"name":"x"}}`, false},
		"server error":                    {status(500, "InternalError", "no"), true},
		"read of the Namespace forbidden": {forbidden, false},
	} {
		t.Run(name, func(t *testing.T) {
			found, err := installation.Detect(t.Context(),
				fake{wrapHandler: tenantPaths, owner: c.owner, published: published(`"authorization":{"mode":"Enforce"}`)}.start(t))
			if err != nil {
				t.Fatalf("%v", err)
			}
			if p, err := found.Published(t.Context()); (err != nil) != c.refuses {
				t.Errorf("%+v, %v", p, err)
			}
		})
	}
}

// TestDerivesRights checks that only a compiled-in server that enforces the boundary with the
// indexed evaluator derives rights. An unreadable configuration is an error.
func TestDerivesRights(t *testing.T) {
	indexed := published(`"authorization":{"mode":"Enforce","rbac":{"evaluator":"Indexed"}}`)
	for name, c := range map[string]struct {
		fake
		want, fails bool
	}{
		"compiled in": {fake: fake{wrapHandler: tenantPaths, published: indexed}, want: true},
		"another evaluator": {
			fake: fake{
				wrapHandler: tenantPaths,
				published:   published(`"authorization":{"mode":"Enforce","rbac":{"evaluator":"Upstream"}}`),
			},
		},
		"shadow": {
			fake: fake{
				wrapHandler: tenantPaths,
				published:   published(`"authorization":{"mode":"Shadow","rbac":{"evaluator":"Indexed"}}`),
			},
		},
		"no published configuration": {fake: fake{wrapHandler: tenantPaths}, fails: true},
		"invalid configuration":      {fake: fake{wrapHandler: tenantPaths, published: published(`"x":1`)}, fails: true},
		"webhook":                    {fake: fake{review: denied, published: indexed}},
		"gateway":                    {fake: fake{wrapHandler: gateway(true), published: indexed}},
	} {
		t.Run(name, func(t *testing.T) {
			found, err := installation.Detect(t.Context(), c.start(t))
			if err != nil {
				t.Fatalf("%v", err)
			}
			if got, err := found.DerivesRights(t.Context()); got != c.want || (err != nil) != c.fails {
				t.Errorf("%t, %v; want %t", got, err, c.want)
			}
		})
	}
}
