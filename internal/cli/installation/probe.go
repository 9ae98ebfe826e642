// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package installation

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/kubetenant/kubetenant/authz"
	"github.com/kubetenant/kubetenant/cluster"
	configv1alpha1 "github.com/kubetenant/kubetenant/config/v1alpha1"
	"github.com/kubetenant/kubetenant/internal/gateway/views"
	"github.com/kubetenant/kubetenant/internal/kube"
	"github.com/kubetenant/kubetenant/plugins/namespace"
	"github.com/kubetenant/kubetenant/tenant"
)

const (
	// probeName is the name of the user, the Pod and the Namespace in probe requests. None of
	// them exists.
	probeName = "kubetenant-probe"
	// malformed is not a valid name of a tenant or a cluster. Valid names begin with a letter or a
	// digit.
	malformed = "_"
	// maxAnswer is the maximum number of bytes that are read from a response body.
	maxAnswer = 64 << 10
)

// probe runs one detection.
type probe struct {
	config *rest.Config
	http   *http.Client
	kube   kube.Interface
}

func newProbe(config *rest.Config) (*probe, error) {
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, err
	}
	connection := *client // a copy, because client may be http.DefaultClient
	connection.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	k, err := kube.NewForConfigAndClient(config, &connection)
	return &probe{config: config, http: &connection, kube: k}, err
}

// detect detects the installation. If it does not find kubetenant, the result has no mode.
func (p *probe) detect(ctx context.Context) (*Installation, error) {
	server, gateway, err := addresses(p.config)
	if err != nil {
		return nil, err
	}
	// A server rejects a malformed tenant in a path before it authenticates the caller.
	tenants, err := p.rejects(ctx, server+"/tenants/"+malformed+"/version", authz.MalformedTenantPath)
	if err != nil {
		return nil, err
	}
	if !tenants {
		decides, err := p.boundaryDecides(ctx)
		if errors.Is(err, ErrReviewForbidden) {
			decides = p.serviceAuthenticates(ctx)
		}
		if decides {
			return &Installation{Mode: Webhook}, nil
		}
		if err != nil && !errors.Is(err, errNoSuchAPI) && !errors.Is(err, ErrReviewForbidden) {
			return nil, err
		}
		return p.withoutBoundary(ctx, gateway, err)
	}
	isGateway, err := p.isGateway(ctx, gateway)
	if err != nil || isGateway {
		return &Installation{Mode: Gateway}, err
	}
	return &Installation{Mode: CompiledIn}, nil
}

// withoutBoundary looks for a gateway without a root cluster, and then for admission webhooks of
// kubetenant. reviewed is the error from the review that detects the boundary. If it is not nil,
// withoutBoundary does not look for webhooks but returns it.
func (p *probe) withoutBoundary(ctx context.Context, gateway string, reviewed error) (*Installation, error) {
	isGateway, err := p.isGateway(ctx, gateway)
	if err != nil || isGateway {
		return &Installation{Mode: Gateway}, err
	}
	if reviewed != nil {
		return nil, reviewed
	}
	admits, err := p.admissionRefuses(ctx)
	if err != nil || !admits {
		return &Installation{}, err
	}
	published, err := cluster.PublishedConfiguration(ctx, p.kube.CoreV1(), WebhookNamespace)
	switch {
	case err != nil:
		return nil, fmt.Errorf("the admission webhooks of kubetenant respond, but the configuration that shows their "+
			"deployment mode cannot be read: %w", err)
	case published.Settings.Gateway != nil:
		return &Installation{Mode: Gateway, Direct: true}, nil
	case published.Settings.Authorization.Mode == configv1alpha1.ModeShadow:
		return &Installation{Mode: Webhook}, nil
	}
	return nil, errors.New("the admission webhooks of kubetenant respond, but its authorizer does not decide requests, " +
		"and its configuration has no gateway: see --authorization-config in docs/webhook.md")
}

// addresses returns the server's URL without a tenant path, and the URL that a gateway in front
// of the server would have.
func addresses(config *rest.Config) (server, gateway string, err error) {
	base, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return "", "", err
	}
	at := func(parts ...string) string {
		u := &url.URL{Scheme: base.Scheme, Host: base.Host, Path: base.Path}
		for _, part := range parts {
			if before, _, found := strings.Cut(u.Path+"/", part); found {
				u.Path = before
			}
		}
		return strings.TrimSuffix(u.String(), "/")
	}
	return at("/tenants/", views.Path+"/"), at(views.ClustersPath, "/tenants/", views.Path+"/"), nil
}

// isGateway reports whether the server at an address is a gateway.
func (p *probe) isGateway(ctx context.Context, address string) (bool, error) {
	return p.rejects(ctx, address+views.ClustersPath+malformed+"/version", views.MalformedClusterPath)
}

// rejects reports whether the response to a GET request is a 400 with the given message.
func (p *probe) rejects(ctx context.Context, address, message string) (bool, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return false, err
	}
	request.Header.Set("Accept", "application/json")
	response, err := p.http.Do(request)
	if err != nil {
		return false, err
	}
	defer func() { _ = response.Body.Close() }()
	var status metav1.Status
	body, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	if err != nil {
		return false, err
	}
	isStatus := response.StatusCode == http.StatusBadRequest && json.Unmarshal(body, &status) == nil
	return isStatus && status.Message == message, nil
}

var (
	errNoSuchAPI = errors.New("the server does not serve subjectaccessreviews of authorization.k8s.io/v1")
	// ErrReviewForbidden reports that the caller may not create the review that shows whether the
	// boundary authorizes requests.
	ErrReviewForbidden = errors.New(
		"you may not create subjectaccessreviews, which are required here: use the kubeconfig " +
			"of a cluster admin",
	)
)

// reasonForm matches a boundary's reason at the end of an error message. Only the text before
// the colon is the same in all releases. Error messages quote user names, so text without quotes
// cannot be a user name.
var reasonForm = regexp.MustCompile(`: tenant (?:subject|boundary|path|owner|state|access): [^:"]+$`)

// boundaryDecides reports whether the boundary denies a caller whose tenant is ambiguous. The
// boundary denies this caller in every configuration, except in mode Shadow. If the client
// itself belongs to a tenant, the boundary denies the review, and its reason is in the 403
// response.
func (p *probe) boundaryDecides(ctx context.Context) (bool, error) {
	review, err := p.kube.AuthorizationV1().SubjectAccessReviews().Create(ctx,
		&authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User:  probeName,
			Extra: map[string]authorizationv1.ExtraValue{tenant.ExtraKey: {probeName + "-a", probeName + "-b"}},
			ResourceAttributes: &authorizationv1.ResourceAttributes{
				Verb:      "get",
				Resource:  "pods",
				Namespace: metav1.NamespaceDefault,
				Name:      probeName,
			},
		}}, metav1.CreateOptions{})
	switch {
	case apierrors.IsForbidden(err) && reasonForm.MatchString(err.Error()):
		return true, nil
	case apierrors.IsForbidden(err):
		return false, ErrReviewForbidden
	case apierrors.IsNotFound(err):
		return false, errNoSuchAPI
	case err != nil:
		return false, err
	case review.Status.Allowed:
		return false, nil
	case review.Status.Denied && strings.HasPrefix(review.Status.Reason, "tenant subject: "):
		return true, nil
	case review.Status.EvaluationError != "":
		return false, fmt.Errorf("an authorizer of the server failed: %s", review.Status.EvaluationError)
	}
	return false, nil
}

// serviceAuthenticates reports whether the webhook service authenticated the caller's token.
// Only kubetenant's credential sources set the extra [tenant.SourceKey].
func (p *probe) serviceAuthenticates(ctx context.Context) bool {
	review, err := p.kube.AuthenticationV1().SelfSubjectReviews().Create(ctx,
		&authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	return err == nil && len(review.Status.UserInfo.Extra[tenant.SourceKey]) == 1
}

// webhookForm matches the beginning of the error from an admission webhook of kubetenant. The
// expression contains the webhook names in the Helm chart.
var webhookForm = regexp.MustCompile(`^admission webhook "[a-z]+\.(?:mutating|validating)\.kubetenant\.dev" ` +
	`denied the request: `)

// admissionRefuses reports whether an admission webhook of kubetenant rejects a dry run that
// creates a Namespace with a reserved tenant name.
func (p *probe) admissionRefuses(ctx context.Context) (bool, error) {
	object := &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{Name: probeName, Labels: map[string]string{tenant.Label: "all"}},
	}
	_, err := p.kube.CoreV1().Namespaces().Create(ctx, object, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	switch {
	case err == nil:
		return false, nil
	case webhookForm.MatchString(err.Error()) && strings.Contains(err.Error(), namespace.BadLabel):
		return true, nil
	}
	return false, fmt.Errorf("dry run of a Namespace with a malformed tenant: %w", err)
}
