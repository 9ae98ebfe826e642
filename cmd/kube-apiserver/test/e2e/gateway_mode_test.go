// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"cmp"
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/kubetenant/kubetenant/authz"
	configv1alpha1 "github.com/kubetenant/kubetenant/config/v1alpha1"
	"github.com/kubetenant/kubetenant/internal/simulate/scenario"
	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

// gatewayMode runs scenarios through the gateway, in front of unmodified kube-apiservers that have
// no tenancy configuration.
type gatewayMode struct{ webhookMode }

// TestGatewayScenarios checks that scenarios have the expected results through the gateway.
func TestGatewayScenarios(t *testing.T) {
	bin := binaries(t)
	testScenarios(t, func(keys *scenario.Keys, dir string) sharedMode {
		return &gatewayMode{webhookMode{compiledIn{bin: bin, keys: keys, dir: dir}}}
	})
}

// The reasons to skip cases in this deployment mode. Each is a heading in docs/gateway.md.
const (
	exceptGatewayAdmission  = "Admission"
	exceptGatewayConfigured = "Wrong configurations"
	exceptGatewayAccounts   = "Service accounts"
	exceptGatewayProxies    = "Front proxies"
	exceptGatewayNoSource   = "Callers without a source"
	exceptGatewayLists      = "Lists in reviews"
	exceptGatewayCluster    = "Decisions of the cluster"
	exceptGatewayRules      = "Reviews of others"
)

// Skip implements [scenario.Mode].
func (s *gatewayMode) Skip(sc *scenario.Scenario, c *scenario.Case) string {
	if reason := s.compiledIn.Skip(sc, c); reason != "" {
		return reason
	}
	switch {
	case sc.Invalid != "":
		return exceptGatewayConfigured
	case slices.ContainsFunc(sc.Config.Authentication.Sources, func(s configv1alpha1.Source) bool {
		return s.FrontProxy != nil
	}):
		return exceptGatewayProxies
	case c == nil && !slices.ContainsFunc(sc.Cases, func(c scenario.Case) bool { return c.Admit == nil }):
		return exceptGatewayAdmission
	case c == nil:
		return ""
	case c.Admit != nil:
		return exceptGatewayAdmission
	case c.Credential.ServiceAccount != nil:
		return exceptGatewayAccounts
	case len(c.Credential.Headers) > 0:
		return exceptGatewayProxies
	case c.Credential.User != nil && hasRetired(sc), // a token from a token file has no issue date
		// A caller without a tenant may not create reviews.
		c.Request != nil && c.Request.Path != "" &&
			sc.Config.Authorization.RequireTenant == configv1alpha1.RequireTenantAlways && c.Expect.Decision == "allow":
		return exceptGatewayNoSource
	case c.Credential.Anonymous, c.Credential.User != nil && recordOf(c.Credential.User) == nil,
		c.Credential.Impersonate != nil:
		return exceptGatewayNoSource
	case c.Request != nil &&
		(c.Request.LabelSelector != "" || c.Request.FieldSelector != "" ||
			c.Request.Namespace == "" && c.Request.Path == "" && c.Expect.Decision == "deny" && isAcrossNamespaces(c.Request)):
		return exceptGatewayLists
	case strings.Contains(c.Expect.Reason, "tenant grant"), strings.Contains(c.Expect.Reason, "tenant policy"),
		sc.Delegate == scenario.DelegateRBAC && limitsBindings(sc),
		sc.Config.Authorization.ABAC != nil && c.Expect.Decision == "allow", needsDerivedRights(sc, c):
		return exceptGatewayCluster
	case c.Request != nil && sc.Config.Authorization.DelegatedReviews:
		return exceptGatewayRules
	}
	return ""
}

// isAcrossNamespaces reports whether a request with this verb and without a namespace can be
// for all namespaces. The gateway limits a SelfSubjectAccessReview for all namespaces to the
// caller's tenant, and allows it.
func isAcrossNamespaces(r *scenario.Request) bool {
	return slices.Contains([]string{"list", "watch", "deletecollection", "create"}, r.Verb)
}

// limitsBindings reports whether a scenario has role bindings with annotations that limit them. The
// cluster's RBAC evaluator ignores these annotations.
func limitsBindings(sc *scenario.Scenario) bool {
	return slices.ContainsFunc(sc.Objects, func(o runtime.RawExtension) bool {
		return strings.Contains(string(o.Raw), tenant.ExpiresAnnotation) ||
			strings.Contains(string(o.Raw), tenant.ScopeAnnotation)
	})
}

// hasRetired reports whether a scenario has a RetiredTenant object.
func hasRetired(sc *scenario.Scenario) bool {
	return slices.ContainsFunc(sc.Objects, func(o runtime.RawExtension) bool {
		return strings.Contains(string(o.Raw), `"`+v1alpha1.KindRetiredTenant+`"`)
	})
}

// recordOf returns the record of a token file for a user that a case specifies directly,
// without a credential. The fields are user name, UID, groups, an empty field and the tenant.
// recordOf returns nil if a token file cannot describe the user.
func recordOf(u *scenario.UserCredential) []string {
	id, err := tenant.Of(&user.DefaultInfo{Name: u.Name, Extra: u.Extra})
	groups := slices.DeleteFunc(slices.Clone(u.Groups), func(g string) bool {
		return g == user.AllAuthenticated || !id.IsZero() && g == id.Group()
	})
	reserved := func(name string) bool {
		return name == "" || strings.HasPrefix(name, "system:") || strings.HasPrefix(name, tenant.GroupPrefix) ||
			strings.ContainsAny(name, ",\"\n") || !tenant.IsWellFormed(name)
	}
	if err != nil || len(u.Extra) != 1 || reserved(u.Name) || slices.ContainsFunc(groups, reserved) {
		return nil
	}
	return []string{u.Name, cmp.Or(u.UID, "none"), strings.Join(groups, ","), "", id.String()}
}

// flags returns the flags of kubetenant-local with a gateway that reads the given configuration
// file.
func (*gatewayMode) flags(config, dir string, d scenario.Delegate) ([]string, error) {
	const ownReviews = `{"apiVersion":"abac.authorization.kubernetes.io/v1beta1","kind":"Policy",` +
		`"spec":{"group":"system:authenticated","apiGroup":"authorization.k8s.io","resource":"selfsubjectaccessreviews"}}` +
		"\n"
	return flagsOf("--gateway", config, dir, d, servicePolicy+selfReviewPolicy+ownReviews)
}

// tokenOf returns the token of the user that a case specifies directly.
func tokenOf(c *scenario.Case) string { return fmt.Sprintf("verbatim-%x", c.Name) }

// prepareGateway adds a gateway in front of the server of dir to the configuration. It also
// adds a token file with the users that the scenario's cases specify directly.
func prepareGateway(w *scenario.Fixture, dir string) error {
	if err := prepareService(w); err != nil {
		return err
	}
	var records bytes.Buffer
	lines := csv.NewWriter(&records)
	for i := range w.Scenario.Cases {
		if c := &w.Scenario.Cases[i]; c.Credential.User != nil {
			if record := recordOf(c.Credential.User); record != nil {
				_ = lines.Write(append([]string{tokenOf(c)}, record...)) // a write to a buffer cannot fail
			}
		}
	}
	lines.Flush()
	if err := os.WriteFile(filepath.Join(w.Dir, "verbatim.csv"), records.Bytes(), 0o600); err != nil {
		return err
	}
	kubeconfig := func(name string) map[string]any {
		return map[string]any{"kubeConfigFile": filepath.Join(dir, "kubetenant-gateway-"+name+".kubeconfig")}
	}
	return editSection(w.ConfigFile, "authentication", func(settings, authentication map[string]any) {
		sources, _ := authentication["sources"].([]any)
		authentication["sources"] = append(sources, map[string]any{
			"name":      "verbatim",
			"tenants":   []any{"*", "system"},
			"tokenFile": map[string]any{"path": "verbatim.csv", "defaultTenant": ""},
		})
		settings["gateway"] = map[string]any{"clusters": []any{map[string]any{
			"name":         "local",
			"root":         true,
			"tenants":      []any{"*", "system"},
			"admission":    "Unchecked",
			"reader":       kubeconfig("reader"),
			"impersonator": kubeconfig("impersonator"),
		}}}
	})
}

// Open implements [scenario.Mode].
func (s *gatewayMode) Open(ctx context.Context, w *scenario.Fixture) (scenario.Session, error) {
	dir := s.dir
	if !shared(w.Scenario) {
		dir = w.Dir
	}
	out := &gatewaySession{}
	library := *w // a copy, which is opened before the gateway is added
	var err error
	if out.library, err = (scenario.Library{}).Open(ctx, &library); err != nil {
		return nil, fmt.Errorf("the library: %w", err)
	}
	if err := prepareGateway(w, dir); err != nil {
		return out, err
	}
	if out.session, err = s.session(ctx, w, s.flags); err != nil {
		return out, err
	}
	port, err := os.ReadFile(filepath.Join(dir, "gateway-port"))
	if err != nil {
		return out, err
	}
	through, err := newCaller("https://127.0.0.1:"+strings.TrimSpace(string(port)), filepath.Join(dir, "admin.kubeconfig"))
	out.gateway = &session{caller: through, fixture: w}
	return out, err
}

// gatewaySession is a session that sends the requests of callers through the gateway.
type gatewaySession struct {
	*session          // session with the server itself
	gateway  *session // session with the gateway
	library  scenario.Session
}

// Close implements [scenario.Session].
func (s *gatewaySession) Close() {
	s.library.Close()
	if s.gateway != nil {
		s.gateway.close()
	}
	if s.session != nil {
		s.session.Close()
	}
}

// sentCredential returns the credential to send. For a user that a case specifies directly, it
// is the token from tokenOf.
func (s *gatewaySession) sentCredential(c *scenario.Credential) *scenario.Credential {
	for i := range s.fixture.Scenario.Cases {
		if of := &s.fixture.Scenario.Cases[i]; &of.Credential == c && c.User != nil {
			return &scenario.Credential{BearerToken: tokenOf(of)}
		}
	}
	return c
}

// Authenticate implements [scenario.Session]. It returns the identity that the library returns. It
// first checks with a SelfSubjectReview that the gateway forwards the same identity to the cluster.
func (s *gatewaySession) Authenticate(ctx context.Context, c *scenario.Credential) (scenario.Authentication, error) {
	identity, err := s.library.Authenticate(ctx, c)
	if err != nil {
		return identity, err
	}
	const body = `{"apiVersion":"authentication.k8s.io/v1","kind":"SelfSubjectReview"}`
	a, err := s.gateway.as(ctx, s.sentCredential(c), http.MethodPost, "/apis/authentication.k8s.io/v1/selfsubjectreviews",
		[]byte(body), nil)
	if err != nil {
		return scenario.Authentication{}, err
	}
	switch {
	case identity.User == nil && a.code == http.StatusUnauthorized:
		return identity, nil
	case identity.User == nil:
		return scenario.Authentication{},
			fmt.Errorf("the gateway returns %d, but the library rejects the credential: %s", a.code, a.message())
	case a.code == http.StatusForbidden && !isForwarded(identity.User):
		return identity, nil // the gateway forwards neither reserved names nor callers without a tenant
	case a.code != http.StatusCreated:
		return scenario.Authentication{}, fmt.Errorf("the gateway answers %d: %s", a.code, a.message())
	}
	var review authenticationv1.SelfSubjectReview
	if err := json.Unmarshal(a.body, &review); err != nil {
		return scenario.Authentication{}, err
	}
	u := review.Status.UserInfo
	slices.Sort(u.Groups)
	want := forwardedGroups(identity.User)
	if u.Username != identity.User.Name || !slices.Equal(u.Groups, want) ||
		strings.Join(u.Extra[tenant.ExtraKey], " ") != strings.Join(identity.User.Extra[tenant.ExtraKey], " ") ||
		len(u.Extra) != 1 {
		return scenario.Authentication{}, fmt.Errorf("the cluster received %+v, want %+v", u, identity.User)
	}
	return identity, nil
}

// isForwarded reports whether the gateway forwards requests with this identity to a cluster.
func isForwarded(u *scenario.User) bool {
	return len(u.Extra[tenant.ExtraKey]) == 1 && !strings.HasPrefix(u.Name, "system:")
}

// forwardedGroups returns the sorted groups that the cluster sees for a user of the gateway.
func forwardedGroups(u *scenario.User) []string {
	out := []string{user.AllAuthenticated, tenant.GroupPrefix + u.Extra[tenant.ExtraKey][0]}
	for _, group := range u.Groups {
		if !strings.HasPrefix(group, "system:") && !strings.HasPrefix(group, tenant.GroupPrefix) {
			out = append(out, group)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// Authorize implements [scenario.Session] with a SelfSubjectAccessReview.
func (s *gatewaySession) Authorize(
	ctx context.Context, c *scenario.Credential, r *scenario.Request,
) (scenario.Decision, error) {
	review := authorizationv1.SelfSubjectAccessReview{}
	review.APIVersion, review.Kind = "authorization.k8s.io/v1", "SelfSubjectAccessReview"
	review.Spec.NonResourceAttributes, review.Spec.ResourceAttributes = attributesOf(r)
	body, err := json.Marshal(review)
	if err != nil {
		return scenario.Decision{}, err
	}
	refused := ""
	err = poll(ctx, "the tenant label", func(ctx context.Context) error {
		a, err := s.gateway.as(
			ctx,
			s.sentCredential(c),
			http.MethodPost,
			"/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
			body,
			nil,
		)
		switch {
		case err != nil:
			return err
		case a.code == http.StatusForbidden:
			refused = a.message()
			return nil
		case a.code != http.StatusCreated:
			return permanentError{fmt.Errorf("%d: %s", a.code, a.message())}
		}
		if err := json.Unmarshal(a.body, &review); err != nil {
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
	if refused != "" {
		return scenario.Decision{Decision: "deny", Reason: refused}, nil
	}
	return decisionOf(&review.Status), nil
}
