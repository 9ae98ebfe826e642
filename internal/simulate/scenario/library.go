// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/authenticatorfactory"
	"k8s.io/apiserver/pkg/authentication/request/headerrequest"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/filters"
	"k8s.io/apiserver/pkg/endpoints/filters/impersonation"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/kubetenant/kubetenant/authn/frontproxy"
	"github.com/kubetenant/kubetenant/authz"
	"github.com/kubetenant/kubetenant/cluster/lookup"
	"github.com/kubetenant/kubetenant/cluster/publication"
	"github.com/kubetenant/kubetenant/internal/simulate/simulator"
	"github.com/kubetenant/kubetenant/internal/stack"
)

// Library is a [Mode] that runs scenarios in process, with stack.Open and upstream's filters.
type Library struct{}

// Skip implements [Mode].
func (Library) Skip(*Scenario, *Case) string { return "" }

// Keys implements [Mode].
func (Library) Keys() *Keys { return nil }

// Open implements [Mode].
func (Library) Open(ctx context.Context, w *Fixture) (Session, error) {
	ctx, cancel := context.WithCancel(ctx)
	s := &session{fixture: w, cancel: cancel}
	snapshot, _, err := Snapshot(w.Scenario)
	if err != nil {
		return s, err
	}
	namespaces, err := snapshot.NamespaceLister()
	if err != nil {
		return s, err
	}
	bindings, err := objectsOf(w.Scenario)
	if err != nil {
		return s, err
	}
	w.UID = bindings.uid
	proxies, err := dynamiccertificates.NewDynamicCAContentFromFile("front-proxy",
		filepath.Join(w.Dir, "pki", "front-proxy-ca.crt"))
	if err != nil {
		return s, err
	}
	header := &authenticatorfactory.RequestHeaderConfig{
		CAContentProvider:   proxies,
		UsernameHeaders:     headerrequest.StaticStringSlice{"X-Remote-User"},
		UIDHeaders:          headerrequest.StaticStringSlice{"X-Remote-Uid"},
		GroupHeaders:        headerrequest.StaticStringSlice{"X-Remote-Group"},
		ExtraHeaderPrefixes: headerrequest.StaticStringSlice{"X-Remote-Extra-"},
		AllowedClientNames:  headerrequest.StaticStringSlice{"front-proxy-client"},
	}
	cluster := &library{objects: bindings}
	if cluster.Cluster, err = simulator.NewCluster(ctx, snapshot, w.Now()); err != nil {
		return s, err
	}
	cluster.quotas, err = quotasOf(bindings, namespaces, w.Scenario.Config.Admission.Quota.Default)
	if err != nil {
		return s, err
	}
	server := stack.Server{
		Authentication: stack.Authentication{
			Authenticator: frontproxy.New(header), // the only authenticator that a server has itself
			APIAudiences:  authenticator.Audiences{Audience},
			RequestHeader: header,
			TokenObjects:  bindings,
		},
		Authorization: stack.Authorization{Authorizer: authorizer.AuthorizerFunc(s.delegate)},
		Cluster:       cluster,
		Now:           w.Now(),
	}
	if w.Scenario.Delegate == DelegateRBAC {
		server.Authorization.RBAC = &stack.RBAC{Index: snapshot.Index()}
	}
	s.stack, err = stack.Open(ctx, w.ConfigFile, server)
	return s, err
}

// library is the cluster of a scenario.
type library struct {
	*simulator.Cluster

	objects objects
	quotas  *quotas
}

// Quotas implements [lookup.Cluster].
func (l *library) Quotas() lookup.Quotas { return l.quotas }

// Controllers implements [lookup.Cluster].
func (l *library) Controllers() lookup.Controllers { return l.objects }

// Objects implements [lookup.Cluster].
func (l *library) Objects() lookup.Objects { return &libraryObjects{l.Cluster.Objects(), l.objects} }

// libraryObjects adds the objects of a scenario to the objects of its snapshot.
type libraryObjects struct {
	lookup.Objects

	objects objects
}

// PublicationSource implements [lookup.Objects].
func (l *libraryObjects) PublicationSource(
	ctx context.Context, from *publication.Source, resource schema.GroupVersionResource,
) (*unstructured.Unstructured, error) {
	return l.objects.source(ctx, from, resource)
}

// PublicationRole implements [lookup.Objects].
func (l *libraryObjects) PublicationRole(
	ctx context.Context, u *unstructured.Unstructured,
) (*publication.Role, error) {
	return l.objects.role(ctx, u)
}

// DefaultPriority implements [lookup.Objects].
func (l *libraryObjects) DefaultPriority(name string) bool { return l.objects.isDefaultPriority(name) }

type session struct {
	fixture  *Fixture
	stack    *stack.Stack
	cancel   context.CancelFunc
	allowing bool // in Admit, the delegate allows everything, except impersonation in a scenario with RBAC
}

// Close implements [Session].
func (s *session) Close() { s.cancel() }

func (s *session) delegate(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	allowing := s.allowing && (s.fixture.Scenario.Delegate != DelegateRBAC || a.GetVerb() != "impersonate")
	if allowing || s.fixture.Scenario.Delegate == DelegateAllow {
		return authorizer.DecisionAllow, "", nil
	}
	return authorizer.DecisionNoOpinion, "", nil
}

// Authenticate implements [Session].
func (s *session) Authenticate(ctx context.Context, c *Credential) (Authentication, error) {
	identity, _, err := s.resolve(ctx, c)
	return identity, err
}

// resolve sends a self review through the filters of a server, up to authorization. It returns the
// user that a handler would receive, or why the request does not reach a handler.
func (s *session) resolve(ctx context.Context, c *Credential) (Authentication, string, error) {
	r, err := s.request(ctx, c)
	if err != nil {
		return Authentication{}, "", err
	}
	var got Authentication
	var seen user.Info
	handler := s.stack.WithTenant(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		seen, _ = request.UserFrom(r.Context())
	}))
	if c.Impersonate != nil {
		// Authorization of the self review sets the tenant of the impersonated user.
		handler = filters.WithAuthorization(handler, s.stack.Authorizer, scheme.Codecs)
		handler = impersonation.WithConstrainedImpersonation(handler, s.stack.Authorizer, scheme.Codecs)
	}
	chain := http.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		resp, ok, err := s.authenticate(r, c)
		switch {
		case err != nil:
			got.Refused = err.Error()
		case !ok:
			got.Unclaimed = true
		default:
			handler.ServeHTTP(w, r.WithContext(request.WithUser(r.Context(), resp.User)))
		}
	}))
	chain = filters.WithRequestInfo(chain, &request.RequestInfoFactory{
		APIPrefixes:          sets.NewString("api", "apis"),
		GrouplessAPIPrefixes: sets.NewString("api"),
	})
	answer := httptest.NewRecorder()
	s.stack.WithRequestState(chain).ServeHTTP(answer, r)
	if seen != nil {
		got.User = &User{seen.GetName(), seen.GetUID(), seen.GetGroups(), seen.GetExtra()}
		return got, "", nil
	}
	var status metav1.Status
	if err := json.Unmarshal(answer.Body.Bytes(), &status); err != nil || status.Message == "" {
		return got, answer.Body.String(), nil
	}
	return got, status.Message, nil
}

func (s *session) authenticate(r *http.Request, c *Credential) (*authenticator.Response, bool, error) {
	switch {
	case c.User != nil:
		u := &user.DefaultInfo{
			Name:   c.User.Name,
			UID:    c.User.UID,
			Groups: c.User.Groups,
			Extra:  c.User.Extra,
		}
		return &authenticator.Response{User: authz.RecordCaller(r.Context(), u)}, true, nil
	case c.Anonymous:
		return &authenticator.Response{
			User: &user.DefaultInfo{Name: user.Anonymous, Groups: []string{user.AllUnauthenticated}},
		}, true, nil
	}
	return s.stack.Authenticator.AuthenticateRequest(r)
}

func (s *session) request(ctx context.Context, c *Credential) (*http.Request, error) {
	const path = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
	ctx = authenticator.WithAudiences(ctx, authenticator.Audiences{Audience})
	r := httptest.NewRequestWithContext(ctx, http.MethodPost, path, http.NoBody)
	var err error
	if r.Header, err = s.fixture.Headers(ctx, c); err != nil {
		return nil, err
	}
	certificate, err := s.fixture.Certificate(c)
	if err != nil {
		return nil, err
	}
	r.TLS = &tls.ConnectionState{}
	if certificate != nil {
		r.TLS.PeerCertificates = []*x509.Certificate{certificate.Leaf}
	}
	return r, nil
}

// Authorize implements [Session]. It authorizes the request as in a SubjectAccessReview about the
// user.
func (s *session) Authorize(ctx context.Context, c *Credential, r *Request) (Decision, error) {
	u, denied, err := s.userInfo(ctx, c)
	if err != nil || denied != "" {
		return Decision{"deny", denied}, err
	}
	a := Attributes(u, r)
	decision, reason, err := s.stack.Authorizer.Authorize(ctx, a)
	return Decision{decisionName(decision), reason}, err
}

// userInfo returns the user of a credential, or why there is none.
func (s *session) userInfo(ctx context.Context, c *Credential) (*user.DefaultInfo, string, error) {
	identity, denied, err := s.resolve(ctx, c)
	switch {
	case err != nil:
		return nil, "", err
	case identity.User != nil:
		u := identity.User
		return &user.DefaultInfo{
			Name:   u.Name,
			UID:    u.UID,
			Groups: u.Groups,
			Extra:  u.Extra,
		}, "", nil
	case denied != "":
		return nil, denied, nil
	}
	return nil, "", fmt.Errorf("authentication rejects the credential: %s", identity)
}

// Attributes returns the attributes of a request for the authorizer.
func Attributes(u user.Info, r *Request) authorizer.AttributesRecord {
	a := authorizer.AttributesRecord{
		User:            u,
		Verb:            r.Verb,
		Namespace:       r.Namespace,
		APIGroup:        r.APIGroup,
		APIVersion:      "*",
		Resource:        r.Resource,
		Subresource:     r.Subresource,
		Name:            r.Name,
		ResourceRequest: r.Path == "",
		Path:            r.Path,
	}
	if r.LabelSelector != "" {
		a.LabelSelectorRequirements, a.LabelSelectorParsingErr = labels.ParseToRequirements(r.LabelSelector)
	}
	a.FieldSelectorRequirements, a.FieldSelectorParsingErr = simulator.Fields(r.FieldSelector)
	return a
}

func decisionName(d authorizer.Decision) string {
	switch d {
	case authorizer.DecisionAllow:
		return "allow"
	case authorizer.DecisionNoOpinion:
		return "no-opinion"
	}
	return "deny"
}

// Decode returns the typed object of a built-in kind, or an unstructured object of any other kind.
// If raw is nil, it returns nil.
func Decode(raw *runtime.RawExtension) (runtime.Object, error) {
	if raw == nil {
		return nil, nil
	}
	obj, _, err := scheme.Codecs.UniversalDeserializer().Decode(raw.Raw, nil, nil)
	if runtime.IsNotRegisteredError(err) {
		obj, _, err = unstructuredDecoder.Decode(raw.Raw, nil, nil)
	}
	if err != nil {
		return nil, errors.Join(errors.New("decode an object"), err)
	}
	return obj, nil
}
