// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authentication/user"
	"sigs.k8s.io/yaml"

	configv1alpha1 "github.com/kubetenant/kubetenant/config/v1alpha1"
	webhookmanifests "github.com/kubetenant/kubetenant/internal/manifests/webhook"
	"github.com/kubetenant/kubetenant/internal/simulate/scenario"
	"github.com/kubetenant/kubetenant/tenant"
)

// webhookMode runs scenarios on unmodified kube-apiservers with the webhook service.
type webhookMode struct{ compiledIn }

// key returns the same value for scenarios with the same delegate and the same generated manifests.
// A server installs these manifests only when it starts.
func (s *webhookMode) key(sc *scenario.Scenario) (string, error) {
	w, err := scenario.NewFixture(sc, s.keys)
	if err != nil {
		return "", err
	}
	defer w.Close()
	if err := prepareService(w); err != nil {
		return "", err
	}
	ca := filepath.Join(w.Dir, "pki", "front-proxy-ca.crt") // the content does not matter, but must be a certificate
	files, err := webhookmanifests.Generate(webhookmanifests.Options{
		Config:      w.ConfigFile,
		Namespace:   serviceNamespace,
		External:    true,
		URL:         "https://127.0.0.1:1",
		ClientCA:    ca,
		ServingCA:   ca,
		Authorizers: authorizersBehind(sc.Delegate),
	})
	if err != nil {
		return "", err
	}
	sum := sha256.New()
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if !strings.HasSuffix(name, "values.yaml") {
			sum.Write(files[name])
		}
	}
	return string(sc.Delegate) + "-" + hex.EncodeToString(sum.Sum(nil)), nil
}

// authorizersBehind returns kube-apiserver's authorizers after the webhook service.
func authorizersBehind(d scenario.Delegate) []string {
	switch d {
	case scenario.DelegateAllow:
		return []string{"AlwaysAllow"}
	case scenario.DelegateNoOpinion:
		return []string{"ABAC"}
	}
	return []string{"Node", "RBAC"}
}

// The reasons to skip cases in this deployment mode. Each is a heading in docs/webhook.md.
// kube-apiserver handles these cases without the service, or differently.
const (
	exceptCertificates    = "Certificates"
	exceptPasswords       = "Passwords"
	exceptServiceAccounts = "Service accounts"
	exceptFrontProxies    = "Front proxies"
	exceptImpersonation   = "Impersonation"
	exceptRules           = "Reviews of rules"
	exceptReviews         = "Delegated reviews"
	exceptPrivileged      = "The group system:masters"
	exceptDerived         = "Rights that follow from a Tenant"
)

// needsDerivedRights reports whether a case is allowed only by a right that is derived from a
// Tenant object. kube-apiserver's RBAC evaluator does not derive such rights.
func needsDerivedRights(sc *scenario.Scenario, c *scenario.Case) bool {
	return c.Expect.Decision == "allow" && strings.HasPrefix(sc.Metadata.Name, "rights that follow from a Tenant")
}

// servicePolicy is the only ABAC policy of a server whose authorizer otherwise has no opinion. It
// allows the requests of the service itself.
const servicePolicy = `{"apiVersion":"abac.authorization.kubernetes.io/v1beta1","kind":"Policy",` +
	`"spec":{"group":"system:serviceaccounts:kubetenant-system","apiGroup":"*","resource":"*","namespace":"*",` +
	`"nonResourcePath":"*"}}` + "\n"

// Skip implements [scenario.Mode].
func (s *webhookMode) Skip(sc *scenario.Scenario, c *scenario.Case) string {
	if reason := s.compiledIn.Skip(sc, c); reason != "" || c == nil {
		return reason
	}
	if c.Credential.Impersonate != nil {
		return exceptImpersonation
	}
	if needsDerivedRights(sc, c) {
		return exceptDerived
	}
	if r := c.Request; r != nil && r.Resource == "selfsubjectrulesreviews" && r.Verb == "create" {
		return exceptRules
	}
	if r := c.Request; r != nil && sc.Config.Authorization.DelegatedReviews &&
		slices.Contains([]string{"tokenreviews", "subjectaccessreviews", "localsubjectaccessreviews"}, r.Resource) {
		return exceptReviews
	}
	if c.Request != nil || c.Admit != nil { // the request is sent as a user, without a credential
		if u := c.Credential.User; u != nil && slices.Contains(u.Groups, user.SystemPrivilegedGroup) {
			return exceptPrivileged
		} else if u != nil && sc.Delegate == scenario.DelegateRBAC && tenant.IsServiceAccountName(u.Name) &&
			slices.ContainsFunc(sc.Config.Authentication.Sources, func(s configv1alpha1.Source) bool {
				return s.ServiceAccount != nil
			}) {
			return exceptServiceAccounts // kube-apiserver determines the groups of service accounts
		}
		return ""
	}
	switch cred := c.Credential; {
	case len(cred.Headers) > 0:
		return exceptFrontProxies
	case cred.X509 != nil:
		return exceptCertificates
	case cred.Basic != nil:
		return exceptPasswords
	case cred.ServiceAccount != nil:
		return exceptServiceAccounts
	}
	return ""
}

// flags returns the flags of kubetenant-local with a webhook service that reads the given
// configuration file.
func (*webhookMode) flags(config, dir string, d scenario.Delegate) ([]string, error) {
	return flagsOf("--webhook", config, dir, d, servicePolicy)
}

// flagsOf returns the flags of kubetenant-local in a mode with an unmodified kube-apiserver. A
// kube-apiserver without a delegate has the given ABAC policy.
func flagsOf(mode, config, dir string, d scenario.Delegate, policy string) ([]string, error) {
	args := []string{
		withoutWorkloads, "--unsafe-no-fsync", "--tenancy-config", config, mode, "--behind",
		strings.Join(authorizersBehind(d), ","), "--",
	}
	args = append(args, groupsOfPods()...)
	if d != scenario.DelegateNoOpinion {
		return args, nil
	}
	path := filepath.Join(dir, "abac.jsonl")
	return append(args, "--authorization-policy-file="+path), os.WriteFile(path, []byte(policy), 0o600)
}

// prepareService changes the configuration so that the kube-apiserver behind the service supports
// it.
func prepareService(w *scenario.Fixture) error {
	if w.Scenario.Delegate == scenario.DelegateRBAC {
		return nil
	}
	return editSection(w.ConfigFile, "authorization", func(_, authorization map[string]any) {
		authorization["rbac"] = map[string]any{"evaluator": configv1alpha1.EvaluatorUpstream}
	})
}

// Open implements [scenario.Mode].
func (s *webhookMode) Open(ctx context.Context, w *scenario.Fixture) (scenario.Session, error) {
	if err := prepareService(w); err != nil {
		return nil, err
	}
	base, err := s.session(ctx, w, s.flags)
	if err != nil {
		return asSession(base, err)
	}
	out := &webhookSession{session: base}
	uid := w.UID
	defer func() { out.libraryUID, w.UID = w.UID, uid }()
	if out.library, err = (scenario.Library{}).Open(ctx, w); err != nil {
		return out, fmt.Errorf("the library: %w", err)
	}
	return out, nil
}

// session returns a session on the scenario's server, which it starts with the given flags. If a
// shared server already runs, session replaces the configuration and restarts the service.
func (s *webhookMode) session(
	ctx context.Context, w *scenario.Fixture, flags func(config, dir string, d scenario.Delegate) ([]string, error),
) (*session, error) {
	if !shared(w.Scenario) {
		args, err := flags(w.ConfigFile, w.Dir, w.Scenario.Delegate)
		if err != nil {
			return nil, err
		}
		return s.start(ctx, w, args)
	}
	args, err := flags(currentConfig(s.dir), s.dir, w.Scenario.Delegate)
	if err != nil {
		return nil, err
	}
	return s.runOnShared(ctx, w, args, func(session *session, objects []runtime.RawExtension, first bool) error {
		if !first {
			if err := setCurrent(s.dir, w); err != nil {
				return err
			}
		}
		if err := s.controlPlane.seed(ctx, objects, session.caller); err != nil {
			return err
		}
		// The service and the gateway read some settings, and the state of the cluster, only when
		// they start.
		return s.controlPlane.server.SignalAndAwait(ctx, syscall.SIGUSR1)
	})
}

// editSection changes a configuration file. It calls edit with all settings and with one section of
// them.
func editSection(config, name string, edit func(settings, section map[string]any)) error {
	data, err := os.ReadFile(config)
	if err != nil {
		return err
	}
	var settings map[string]any
	if err := yaml.Unmarshal(data, &settings); err != nil {
		return err
	}
	section, _ := settings[name].(map[string]any)
	if section == nil {
		section = map[string]any{}
		settings[name] = section
	}
	edit(settings, section)
	if data, err = yaml.Marshal(settings); err != nil {
		return err
	}
	return os.WriteFile(config, data, 0o600)
}

// webhookSession is a session that sends requests to the server. The requests are sent for the
// identity that the library returns, because the server cannot authenticate all credentials.
type webhookSession struct {
	*session
	library scenario.Session
	// libraryUID returns the UID that a service account has in the library's session.
	libraryUID func(ctx context.Context, namespace, name string) (string, error)
}

// Close implements [scenario.Session].
func (s *webhookSession) Close() {
	if s.library != nil {
		s.library.Close()
	}
	s.session.Close()
}

// Authenticate implements [scenario.Session] with a TokenReview. For a credential that is not a
// bearer token, it calls the embedded session.
func (s *webhookSession) Authenticate(ctx context.Context, c *scenario.Credential) (scenario.Authentication, error) {
	headers, err := s.fixture.Headers(ctx, c)
	if err != nil {
		return scenario.Authentication{}, err
	}
	token, bearer := strings.CutPrefix(headers.Get("Authorization"), "Bearer ")
	if !bearer {
		return s.session.Authenticate(ctx, c)
	}
	review := authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}
	review.APIVersion, review.Kind = "authentication.k8s.io/v1", "TokenReview"
	if err := s.asAdmin(ctx, http.MethodPost, "/apis/authentication.k8s.io/v1/tokenreviews", review, &review); err != nil {
		return scenario.Authentication{}, err
	}
	if !review.Status.Authenticated {
		return scenario.Authentication{Unclaimed: true, Opaque: true}, nil
	}
	return scenario.Authentication{User: userOf(review.Status.User)}, nil
}

// verbatim returns a credential that specifies the identity of c directly.
func (s *webhookSession) verbatim(ctx context.Context, c *scenario.Credential) (*scenario.Credential, error) {
	if c.User != nil || c.Anonymous {
		return c, nil
	}
	uid := s.fixture.UID
	s.fixture.UID = s.libraryUID
	defer func() { s.fixture.UID = uid }()
	identity, err := s.library.Authenticate(ctx, c)
	switch {
	case err != nil:
		return nil, err
	case identity.User == nil:
		return nil, fmt.Errorf("the credential is not authenticated: %s", identity)
	}
	u := identity.User
	return &scenario.Credential{User: &scenario.UserCredential{
		Name:   u.Name,
		UID:    u.UID,
		Groups: u.Groups,
		Extra:  u.Extra,
	}}, nil
}

// Authorize implements [scenario.Session].
func (s *webhookSession) Authorize(
	ctx context.Context, c *scenario.Credential, r *scenario.Request,
) (scenario.Decision, error) {
	c, err := s.verbatim(ctx, c)
	if err != nil {
		return scenario.Decision{}, err
	}
	return s.session.Authorize(ctx, c, r)
}

// Admit implements [scenario.Session].
func (s *webhookSession) Admit(
	ctx context.Context, c *scenario.Credential, a *scenario.Admit,
) (scenario.Admission, error) {
	c, err := s.verbatim(ctx, c)
	if err != nil {
		return scenario.Admission{}, err
	}
	return s.session.Admit(ctx, c, a)
}
