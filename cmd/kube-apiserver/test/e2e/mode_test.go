// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/authentication/user"
	"sigs.k8s.io/yaml"

	"github.com/kubetenant/kubetenant/authz"
	"github.com/kubetenant/kubetenant/cluster/tenants"
	"github.com/kubetenant/kubetenant/deploy"
	"github.com/kubetenant/kubetenant/internal/simulate/scenario"
	"github.com/kubetenant/kubetenant/internal/typed"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
	"github.com/kubetenant/kubetenant/test/localserver"
)

// compiledIn runs scenarios on real kube-apiservers with kubetenant compiled in.
type compiledIn struct {
	bin  string // folder of the built commands
	keys *scenario.Keys
	// dir is the folder of the control plane that scenarios share. The first of these scenarios
	// starts it.
	dir          string
	controlPlane *controlPlane
}

// ownServer contains the names of scenarios that start their own server with their configuration.
// For the other scenarios, a running server reloads its configuration. Together, the scenarios of
// ownServer use every kind of source.
var ownServer = []string{"revocation", "front proxy", "keystone", "webhook"}

// shared reports whether a scenario can run on the control plane that scenarios share.
func shared(s *scenario.Scenario) bool {
	return s.Invalid == "" && !slices.Contains(ownServer, s.Metadata.Name)
}

// Keys implements [scenario.Mode].
func (s *compiledIn) Keys() *scenario.Keys { return s.keys }

// key returns the same value for scenarios that can run on the same server.
func (*compiledIn) key(s *scenario.Scenario) (string, error) { return string(s.Delegate), nil }

// close stops the control plane.
func (s *compiledIn) close() error {
	if s.controlPlane == nil {
		return nil
	}
	return s.controlPlane.close()
}

// Skip implements [scenario.Mode].
func (*compiledIn) Skip(s *scenario.Scenario, c *scenario.Case) string {
	switch {
	case s.Now != nil:
		return "a server has the machine's clock"
	case c != nil && c.Credential.User != nil && c.Credential.Impersonate != nil:
		return "a user that the case specifies directly cannot impersonate over HTTP"
	case c != nil && c.Admit != nil && s.Delegate == scenario.DelegateNoOpinion:
		return "admission needs a delegate that allows"
	}
	return ""
}

// selfReviewPolicy is the only ABAC policy of a server whose authorizer otherwise has no opinion.
const selfReviewPolicy = `{"apiVersion":"abac.authorization.kubernetes.io/v1beta1","kind":"Policy",` +
	`"spec":{"group":"system:authenticated","apiGroup":"authentication.k8s.io","resource":"selfsubjectreviews"}}` + "\n"

// groupsOfPods returns the kube-apiserver flags that enable groups of Pods (scheduling.k8s.io).
func groupsOfPods() []string {
	return []string{
		"--feature-gates=GenericWorkload=true,TopologyAwareWorkloadScheduling=true,CompositePodGroup=true," +
			"WorkloadWithJob=true",
		"--runtime-config=scheduling.k8s.io/v1beta1=true,scheduling.k8s.io/v1alpha3=true",
	}
}

// flags returns the flags of kubetenant-local for a server that reads the given configuration file.
func (s *compiledIn) flags(config, dir string, d scenario.Delegate) ([]string, error) {
	args := []string{withoutWorkloads, "--unsafe-no-fsync", "--tenancy-config", config, "--"}
	args = append(args, groupsOfPods()...)
	switch d {
	case scenario.DelegateAllow:
		args = append(args, "--authorization-mode=AlwaysAllow")
	case scenario.DelegateNoOpinion:
		policy := filepath.Join(dir, "abac.jsonl")
		args = append(args, "--authorization-mode=ABAC", "--authorization-policy-file="+policy)
		return args, os.WriteFile(policy, []byte(selfReviewPolicy), 0o600)
	}
	return args, nil
}

// Open implements [scenario.Mode].
func (s *compiledIn) Open(ctx context.Context, w *scenario.Fixture) (scenario.Session, error) {
	if !shared(w.Scenario) {
		args, err := s.flags(w.ConfigFile, w.Dir, w.Scenario.Delegate)
		if err != nil {
			return nil, err
		}
		return asSession(s.start(ctx, w, args))
	}
	args, err := s.flags(currentConfig(s.dir), s.dir, w.Scenario.Delegate)
	if err != nil {
		return nil, err
	}
	return asSession(s.runOnShared(ctx, w, args, func(session *session, objects []runtime.RawExtension, first bool) error {
		if !first { // load the configuration before the objects exist
			// Wait until the server has observed that the last scenario's objects are deleted. They
			// could cause the server to reject the configuration.
			if err := errors.Join(
				s.controlPlane.seed(ctx, nil, session.caller),
				awaitTenants(ctx, session.caller, nil),
			); err != nil {
				return err
			}
			if err := s.controlPlane.reload(ctx, func() error { return setCurrent(s.dir, w) }); err != nil {
				return err
			}
		}
		return s.controlPlane.seed(ctx, objects, session.caller)
	}))
}

// asSession converts s to the interface. If s is nil, it returns a nil interface.
func asSession(s *session, err error) (scenario.Session, error) {
	if s == nil {
		return nil, err
	}
	return s, err
}

// start creates the scenario's objects, and starts a server only for this scenario, in the
// scenario's folder.
func (s *compiledIn) start(ctx context.Context, w *scenario.Fixture, args []string) (*session, error) {
	objects, err := s.seed(ctx, w)
	if err != nil {
		return nil, err
	}
	server, err := localserver.Start(ctx, filepath.Join(s.bin, "kubetenant-local"), w.Dir, args...)
	if err != nil {
		return nil, err
	}
	session, err := newSession(w, server, func() { _ = server.Stop() })
	if err == nil {
		err = session.awaitKinds(ctx, objects)
	}
	return session, err
}

// runOnShared returns a session on the control plane that scenarios share. It first deletes the
// objects of the last scenario. setUp replaces the configuration unless this is the first scenario,
// and creates the scenario's objects.
func (s *compiledIn) runOnShared(
	ctx context.Context,
	w *scenario.Fixture,
	args []string,
	setUp func(_ *session, objects []runtime.RawExtension, first bool) error,
) (*session, error) {
	objects, err := scenario.ClusterObjects(w.Scenario)
	if err != nil {
		return nil, err
	}
	first := s.controlPlane == nil
	if first {
		err = s.open(ctx, w, args)
	} else {
		err = s.controlPlane.clear(ctx)
	}
	var entered *session
	if err == nil {
		entered, err = newSession(w, s.controlPlane.server, func() {})
	}
	if err == nil {
		err = setUp(entered, objects, first)
	}
	if err == nil {
		err = entered.awaitKinds(ctx, objects)
	}
	if err != nil && s.controlPlane != nil { // the next scenario starts a new control plane
		err = fmt.Errorf("%w\n%s", err, s.controlPlane.logs())
		err = errors.Join(err, s.controlPlane.close())
		s.controlPlane, s.dir = nil, s.dir+"-again"
	}
	return entered, err
}

// open starts the shared control plane with the configuration of the scenario w.
func (s *compiledIn) open(ctx context.Context, w *scenario.Fixture, args []string) (err error) {
	if err := s.keys.Write(s.dir); err != nil {
		return err
	}
	if err := setCurrent(s.dir, w); err != nil {
		return err
	}
	s.controlPlane, err = startControlPlane(ctx, s.bin, s.dir, args)
	return err
}

// seed creates the objects of a scenario on a server without tenancy, and returns them.
func (s *compiledIn) seed(ctx context.Context, w *scenario.Fixture) ([]runtime.RawExtension, error) {
	objects, err := scenario.ClusterObjects(w.Scenario)
	if err != nil || len(objects) == 0 {
		return nil, err
	}
	server, err := localserver.Start(ctx, filepath.Join(s.bin, "kubetenant-local"), w.Dir, withoutWorkloads,
		"--unsafe-no-fsync", "--tenancy=false")
	if err != nil {
		return nil, err
	}
	session, err := newSession(w, server, func() {})
	if err == nil {
		err = session.defineKinds(ctx, objects)
	}
	for i := 0; err == nil && i < len(objects); i++ {
		err = session.seed(ctx, objects[i].Raw)
	}
	if stopErr := server.Stop(); err == nil {
		err = stopErr
	}
	if err != nil {
		return nil, fmt.Errorf("seed: %w", err)
	}
	return objects, nil
}

// session sends the requests of one scenario over HTTP.
type session struct {
	*caller
	fixture  *scenario.Fixture
	stop     func()
	allowing bool
}

func newSession(w *scenario.Fixture, server *localserver.Server, end func()) (*session, error) {
	c, err := newCaller(server.URL, server.Kubeconfig("admin"))
	s := &session{caller: c, fixture: w, stop: end}
	w.UID = s.uid
	return s, err
}

// uid returns the UID of a ServiceAccount, or "" if it does not exist.
func (s *session) uid(ctx context.Context, namespace, name string) (string, error) {
	a, err := s.send(ctx, http.MethodGet, "/api/v1/namespaces/"+namespace+"/serviceaccounts/"+name, nil, nil, s.admin)
	if err != nil || a.code == http.StatusNotFound {
		return "", err
	}
	var account metav1.PartialObjectMetadata
	err = json.Unmarshal(a.body, &account)
	return string(account.UID), err
}

// Close implements [scenario.Session].
func (s *session) Close() {
	s.close()
	s.stop()
}

// as sends a request with the given credential of the scenario.
func (s *session) as(
	ctx context.Context, c *scenario.Credential, method, path string, body []byte, h http.Header,
) (answer, error) {
	headers, err := s.fixture.Headers(ctx, c)
	if err != nil {
		return answer{}, err
	}
	for k, v := range h {
		headers[k] = v
	}
	if c.User != nil { // the admin impersonates the user that the case specifies directly
		scenario.SetImpersonation(headers, c.User)
		return s.send(ctx, method, path, body, headers, s.admin)
	}
	certificate, err := s.fixture.Certificate(c)
	if err != nil {
		return answer{}, err
	}
	return s.send(ctx, method, path, body, headers, certificate)
}

// countKind returns how many of the objects contain the name of the given kind.
func countKind(objects []runtime.RawExtension, kind string) int {
	n := 0
	for _, o := range objects {
		if strings.Contains(string(o.Raw), `"`+kind+`"`) {
			n++
		}
	}
	return n
}

// defineKinds creates the project's CustomResourceDefinitions if an object requires them, because a
// server without tenancy does not create them.
func (s *session) defineKinds(ctx context.Context, objects []runtime.RawExtension) error {
	if countKind(objects, v1alpha1.KindAccessGrant) == 0 && countKind(objects, v1alpha1.KindTenantQuota) == 0 &&
		len(tenantsIn(objects)) == 0 {
		return nil
	}
	for name, text := range deploy.Definitions() {
		definition, err := yaml.YAMLToJSON([]byte(text))
		if err != nil {
			return err
		}
		if err := s.asAdmin(ctx, http.MethodPost, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
			json.RawMessage(definition), nil); err != nil {
			return err
		}
		if err := wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, waitLimit, true,
			func(ctx context.Context) (bool, error) {
				return s.asAdmin(ctx, http.MethodGet, "/apis/kubetenant.dev/v1alpha1/"+strings.TrimSuffix(name, ".yaml"),
					nil, nil) == nil, nil
			}); err != nil {
			return err
		}
	}
	return nil
}

// quotaDelay is longer than the delay before the server adds a change to the status of a quota
// (cluster/tenantquota, countAfter).
const quotaDelay = 600 * time.Millisecond

// awaitKinds waits until the server has observed the Tenants, has written the status of each
// AccessGrant and TenantQuota, and no longer changes the quotas.
func (s *session) awaitKinds(ctx context.Context, objects []runtime.RawExtension) error {
	if err := awaitTenants(ctx, s.caller, objects); err != nil {
		return err
	}
	wantGrants, wantQuotas := countKind(objects, v1alpha1.KindAccessGrant), countKind(objects, v1alpha1.KindTenantQuota)
	if wantGrants == 0 && wantQuotas == 0 {
		return nil
	}
	var before []v1alpha1.TenantQuota
	var since time.Time
	return wait.PollUntilContextTimeout(
		ctx,
		50*time.Millisecond,
		waitLimit,
		true,
		func(ctx context.Context) (bool, error) {
			var grants struct{ Items []v1alpha1.AccessGrant }
			var quotas struct{ Items []v1alpha1.TenantQuota }
			err := errors.Join(s.asAdmin(ctx, http.MethodGet, "/apis/kubetenant.dev/v1alpha1/accessgrants", nil, &grants),
				s.asAdmin(ctx, http.MethodGet, "/apis/kubetenant.dev/v1alpha1/tenantquotas", nil, &quotas))
			if !equality.Semantic.DeepEqual(before, quotas.Items) {
				before, since = quotas.Items, time.Now()
			}
			return err == nil && len(grants.Items) >= wantGrants && len(quotas.Items) >= wantQuotas &&
				(wantQuotas == 0 || time.Since(since) > quotaDelay) &&
				!slices.ContainsFunc(grants.Items, func(g v1alpha1.AccessGrant) bool { return len(g.Status.Conditions) == 0 }) &&
				!slices.ContainsFunc(quotas.Items, func(q v1alpha1.TenantQuota) bool {
					return len(q.Status.Used) < len(q.Spec.Hard)
				}), nil
		},
	)
}

// tenantsIn returns the number of Tenant objects, keyed by their effective access. An invalid
// Tenant is closed.
func tenantsIn(objects []runtime.RawExtension) map[authz.Access]int {
	count := map[authz.Access]int{}
	for _, o := range objects {
		u := &unstructured.Unstructured{}
		if err := json.Unmarshal(o.Raw, &u.Object); err != nil || u.GetKind() != v1alpha1.KindTenant {
			continue
		}
		t, err := typed.Decode[v1alpha1.Tenant](u)
		if err != nil {
			count[authz.AccessClosed]++
			continue
		}
		if id, access := tenants.AccessOf(t); !id.IsZero() {
			count[access]++
		}
	}
	return count
}

// awaitTenants waits until a server's metrics report the number of the given Tenants for each
// access. A server without kubetenant's metrics is not checked. In the deployment mode webhook,
// the webhook service restarts for each scenario instead.
func awaitTenants(ctx context.Context, server *caller, objects []runtime.RawExtension) error {
	want := tenantsIn(objects)
	return poll(ctx, "the Tenants", func(ctx context.Context) error {
		body, err := server.metrics(ctx)
		if err != nil {
			return err
		}
		text := string(body)
		for access, name := range map[authz.Access]v1alpha1.TenantAccess{
			authz.AccessOpen:     v1alpha1.TenantAccessOpen,
			authz.AccessReadOnly: v1alpha1.TenantAccessReadOnly,
			authz.AccessClosed:   v1alpha1.TenantAccessClosed,
		} {
			_, rest, ok := strings.Cut(text, fmt.Sprintf("\nkubetenant_tenants{access=%q} ", name))
			value, _, _ := strings.Cut(rest, "\n")
			if !ok && strings.Contains(text, "\nkubetenant_") {
				return errors.New("the metric kubetenant_tenants is missing")
			}
			if ok && value != strconv.Itoa(want[access]) {
				return fmt.Errorf("%s Tenants have the access %s, want %d", value, name, want[access])
			}
		}
		return nil
	})
}

// seed creates an object as the admin.
func (s *session) seed(ctx context.Context, raw []byte) error {
	w, err := scenario.WriteOf(&scenario.Admit{Object: &runtime.RawExtension{Raw: raw}})
	if err != nil {
		return err
	}
	return s.asAdmin(ctx, http.MethodPost, collection(w), json.RawMessage(raw), nil)
}

func collection(w scenario.Write) string {
	path := "/api/" + w.GVR.Version
	if w.GVR.Group != "" {
		path = "/apis/" + w.GVR.Group + "/" + w.GVR.Version
	}
	if w.Namespace != "" && w.GVR.Resource != "namespaces" {
		path += "/namespaces/" + url.PathEscape(w.Namespace)
	}
	return path + "/" + w.GVR.Resource
}

// Authenticate implements [scenario.Session] with a SelfSubjectReview.
func (s *session) Authenticate(ctx context.Context, c *scenario.Credential) (scenario.Authentication, error) {
	if c.Anonymous { // send no credential, but retain the headers
		c = &scenario.Credential{Headers: c.Headers}
	}
	identity, denied, err := s.resolve(ctx, c)
	if err == nil && denied != "" && !identity.Unclaimed {
		err = fmt.Errorf("the self review is forbidden: %s", denied)
	}
	return identity, err
}

func (s *session) resolve(ctx context.Context, c *scenario.Credential) (scenario.Authentication, string, error) {
	switch {
	case c.User != nil:
		u := c.User
		return scenario.Authentication{User: &scenario.User{
			Name:   u.Name,
			UID:    u.UID,
			Groups: u.Groups,
			Extra:  u.Extra,
		}}, "", nil
	case c.Anonymous:
		return scenario.Authentication{User: &scenario.User{Name: user.Anonymous, Groups: []string{user.AllUnauthenticated}}},
			"", nil
	}
	const body = `{"apiVersion":"authentication.k8s.io/v1","kind":"SelfSubjectReview"}`
	a, err := s.as(ctx, c, http.MethodPost, "/apis/authentication.k8s.io/v1/selfsubjectreviews", []byte(body), nil)
	switch {
	case err != nil:
		return scenario.Authentication{}, "", err
	case a.code == http.StatusUnauthorized:
		return scenario.Authentication{Unclaimed: true, Opaque: true}, "", nil
	case a.code == http.StatusForbidden && c.Impersonate == nil:
		// Only an anonymous caller may not create a SelfSubjectReview.
		return scenario.Authentication{Unclaimed: true}, a.message(), nil
	case a.code == http.StatusForbidden:
		return scenario.Authentication{}, a.message(), nil
	case a.code != http.StatusCreated:
		return scenario.Authentication{}, "", fmt.Errorf("self review: %d: %s", a.code, a.message())
	}
	var review authenticationv1.SelfSubjectReview
	if err := json.Unmarshal(a.body, &review); err != nil {
		return scenario.Authentication{}, "", err
	}
	return scenario.Authentication{User: userOf(review.Status.UserInfo)}, "", nil
}

func userOf(u authenticationv1.UserInfo) *scenario.User {
	out := &scenario.User{
		Name:   u.Username,
		UID:    u.UID,
		Groups: u.Groups,
		Extra:  map[string][]string{},
	}
	for k, v := range u.Extra {
		out.Extra[k] = v
	}
	return out
}

// Authorize implements [scenario.Session] with a SubjectAccessReview of the authenticated user.
func (s *session) Authorize(
	ctx context.Context, c *scenario.Credential, r *scenario.Request,
) (scenario.Decision, error) {
	identity, denied, err := s.resolve(ctx, c)
	switch {
	case err != nil:
		return scenario.Decision{}, err
	case identity.User == nil && denied != "":
		return scenario.Decision{Decision: "deny", Reason: denied}, nil
	case identity.User == nil:
		return scenario.Decision{}, fmt.Errorf("the credential is not authenticated")
	}
	u := identity.User
	review := authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User:   u.Name,
		UID:    u.UID,
		Groups: u.Groups,
		Extra:  map[string]authorizationv1.ExtraValue{},
	}}
	review.APIVersion, review.Kind = "authorization.k8s.io/v1", "SubjectAccessReview"
	for k, v := range u.Extra {
		review.Spec.Extra[k] = v
	}
	review.Spec.NonResourceAttributes, review.Spec.ResourceAttributes = attributesOf(r)
	if r.Path == "" {
		if r.LabelSelector != "" {
			review.Spec.ResourceAttributes.LabelSelector = &authorizationv1.LabelSelectorAttributes{RawSelector: r.LabelSelector}
		}
		if r.FieldSelector != "" {
			review.Spec.ResourceAttributes.FieldSelector = &authorizationv1.FieldSelectorAttributes{RawSelector: r.FieldSelector}
		}
	}
	// A server labels existing objects after it starts, so wait for the labels. If the reason does
	// not change before the timeout, it is the result.
	err = poll(ctx, "the tenant label", func(ctx context.Context) error {
		if err := s.asAdmin(ctx, http.MethodPost, "/apis/authorization.k8s.io/v1/subjectaccessreviews",
			review, &review); err != nil {
			return permanentError{err}
		}
		if review.Status.Reason == authz.ReasonNotLabeled.String() {
			return errors.New(review.Status.Reason)
		}
		return nil
	})
	if err != nil && review.Status.Reason != authz.ReasonNotLabeled.String() {
		return scenario.Decision{}, err
	}
	return decisionOf(&review.Status), nil
}

// decisionOf returns the decision of a review.
// attributesOf returns the attributes of a review of a request, without selectors.
func attributesOf(r *scenario.Request) (*authorizationv1.NonResourceAttributes, *authorizationv1.ResourceAttributes) {
	if r.Path != "" {
		return &authorizationv1.NonResourceAttributes{Path: r.Path, Verb: r.Verb}, nil
	}
	return nil, &authorizationv1.ResourceAttributes{
		Namespace:   r.Namespace,
		Verb:        r.Verb,
		Group:       r.APIGroup,
		Resource:    r.Resource,
		Subresource: r.Subresource,
		Name:        r.Name,
	}
}

func decisionOf(s *authorizationv1.SubjectAccessReviewStatus) scenario.Decision {
	out := scenario.Decision{Decision: "no-opinion", Reason: s.Reason}
	switch {
	case s.Allowed:
		out.Decision = "allow"
	case s.Denied:
		out.Decision = "deny"
	}
	return out
}
