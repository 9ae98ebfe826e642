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
	"github.com/kubetenant/kubetenant/cluster/accessgrant"
	"github.com/kubetenant/kubetenant/internal/simulate/simulator"
	"github.com/kubetenant/kubetenant/internal/stack"
	"github.com/kubetenant/kubetenant/tenant"
)

// Library runs scenarios in process, through stack.Open and upstream's own filters.
type Library struct{}

// Skip implements [Shape].
func (Library) Skip(*Scenario, *Case) string { return "" }

// Keys implements [Shape].
func (Library) Keys() *Keys { return nil }

// Open implements [Shape].
func (Library) Open(ctx context.Context, w *World) (Session, error) {
	ctx, cancel := context.WithCancel(ctx)
	s := &session{world: w, cancel: cancel}
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
	grants, err := accessgrant.New(snapshot.AccessGrants(), snapshot.TenantObjects().Lineage, w.Now())
	if err != nil {
		return s, err
	}
	if err := grants.Sync(ctx); err != nil {
		return s, err
	}
	server := stack.Server{
		Authentication: stack.Authentication{
			Authenticator: frontproxy.New(header), // all that a server's own chain has for a scenario
			APIAudiences:  authenticator.Audiences{Audience},
			RequestHeader: header,
			TokenObjects:  bindings,
		},
		Authorization: stack.Authorization{Authorizer: authorizer.AuthorizerFunc(s.delegate)},
		Cluster: stack.Cluster{
			Owners:             authz.NewOwners(namespaces.Get, nil),
			CustomScope:        snapshot.CustomScope,
			SelectedLabels:     snapshot.SelectedLabels,
			Labelled:           func(schema.GroupResource, tenant.ID) bool { return true },
			Grants:             grants.Grants(),
			Tenants:            snapshot.TenantObjects(),
			OwnedNamespaces:    snapshot.OwnedNamespaces,
			References:         snapshot.References,
			ControllerMetadata: bindings.find,
			ControllerObjects:  bindings.find,
			DefaultPriority:    bindings.isDefaultPriority,
			PublicationSource:  bindings.source,
			PublicationRole:    bindings.role,
		},
		Now: w.Now(),
	}
	if w.Scenario.Delegate == DelegateRBAC {
		server.Authorization.RBAC = &stack.RBAC{Index: snapshot.Index()}
	}
	if server.Cluster.Quotas, err = quotasOf(bindings, namespaces, w.Scenario.Config.Admission.Quota.Default); err != nil {
		return s, err
	}
	s.stack, err = stack.Open(ctx, w.ConfigFile, server)
	return s, err
}

type session struct {
	world    *World
	stack    *stack.Stack
	cancel   context.CancelFunc
	allowing bool // the delegate of an RBAC scenario allows all but impersonation
}

// Close implements [Session].
func (s *session) Close() { s.cancel() }

func (s *session) delegate(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	allowing := s.allowing && (s.world.Scenario.Delegate != DelegateRBAC || a.GetVerb() != "impersonate")
	if allowing || s.world.Scenario.Delegate == DelegateAllow {
		return authorizer.DecisionAllow, "", nil
	}
	return authorizer.DecisionNoOpinion, "", nil
}

// Authenticate implements [Session].
func (s *session) Authenticate(ctx context.Context, c *Credential) (Authentication, error) {
	identity, _, err := s.resolve(ctx, c)
	return identity, err
}

// resolve sends a self review through a server's filters up to authorization. It returns the user
// that a handler would see, or the reason why none would.
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
		// The self review itself is decided too, which binds the impersonated user.
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
		return &authenticator.Response{User: authz.NoteCaller(r.Context(), u)}, true, nil
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
	if r.Header, err = s.world.Headers(ctx, c); err != nil {
		return nil, err
	}
	certificate, err := s.world.Certificate(c)
	if err != nil {
		return nil, err
	}
	r.TLS = &tls.ConnectionState{}
	if certificate != nil {
		r.TLS.PeerCertificates = []*x509.Certificate{certificate.Leaf}
	}
	return r, nil
}

// Authorize implements [Session]: as a SubjectAccessReview of the resolved user would.
func (s *session) Authorize(ctx context.Context, c *Credential, r *Request) (Decision, error) {
	u, denied, err := s.userInfo(ctx, c)
	if err != nil || denied != "" {
		return Decision{"deny", denied}, err
	}
	a := Attributes(u, r)
	decision, reason, err := s.stack.Authorizer.Authorize(ctx, a)
	return Decision{decisionName(decision), reason}, err
}

// userInfo returns the resolved user, or why it was not reached.
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

// Attributes returns a request as the authorizer sees it.
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

// Decode returns the typed object of a built-in kind, else an unstructured one; nil of nil.
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
