// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

// Package installation detects whether and how kubetenant runs on a server.
//
// It relies only on the server's behavior: how it answers malformed tenant and cluster paths, how
// it authorizes a caller whose tenant is ambiguous, and whether its admission refuses a malformed
// tenant. Definitions, labels, bindings and the published configuration remain after a return to
// upstream's kube-apiserver, so they are no evidence.
package installation

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/kubetenant/kubetenant/cluster"
	configv1alpha1 "github.com/kubetenant/kubetenant/config/v1alpha1"
	"github.com/kubetenant/kubetenant/internal/kube"
	"github.com/kubetenant/kubetenant/tenant"
)

// Mode is a deployment mode. The zero value means that kubetenant was not found.
type Mode string

// The deployment modes.
const (
	CompiledIn Mode = "compiled in"
	Webhook    Mode = "webhook service"
	// Gateway is the mode of a gateway, and of a cluster behind a gateway that is reached directly.
	Gateway Mode = "gateway"
)

// WebhookNamespace is the default namespace of the webhook service.
const WebhookNamespace = "kubetenant-system"

// ErrNotInstalled means that a server answered and that kubetenant does not run on it.
var ErrNotInstalled = errors.New("kubetenant is not installed")

// ErrUntrusted says that callers of a tenant may have written the published configuration.
var ErrUntrusted = errors.New("the published configuration is not trusted")

// UndeterminedError says that a server's answers do not tell whether kubetenant runs on it.
type UndeterminedError struct {
	Server string
	// Cause says which answer is missing. It is not wrapped, since a 403 to a probe does not
	// refuse the caller's command.
	Cause error
}

func (e *UndeterminedError) Error() string {
	return fmt.Sprintf("cannot determine whether kubetenant is installed on %s: %v", e.Server, e.Cause)
}

// Is reports whether the cause is target, which is [ErrReviewForbidden].
func (e *UndeterminedError) Is(target error) bool {
	return target == ErrReviewForbidden && errors.Is(e.Cause, ErrReviewForbidden)
}

// Installation is a running kubetenant. The zero value is no installation. It is
// safe for concurrent use.
type Installation struct {
	Mode Mode
	// Server is the address of the kubeconfig.
	Server string
	// Direct reports whether the server is a cluster behind a gateway, reached directly. The boundary
	// does not decide the requests that it gets there.
	Direct bool

	client kube.Interface
}

// detectTimeout limits the time of a detection if the configuration sets no timeout.
const detectTimeout = 20 * time.Second

// Detect returns the installation on a server. The error wraps [ErrNotInstalled], or is
// an [UndeterminedError] if the server cannot be reached, refuses the credential or
// does not say enough to this caller. Impersonation is ignored: the mode of a server
// does not depend on the caller.
func Detect(ctx context.Context, config *rest.Config) (*Installation, error) {
	own := rest.CopyConfig(config)
	own.Impersonate = rest.ImpersonationConfig{}
	if own.Timeout == 0 {
		own.Timeout = detectTimeout
	}
	p, err := newProbe(own)
	if err != nil {
		return nil, &UndeterminedError{config.Host, err}
	}
	found, err := p.detect(ctx)
	if err == nil && found.Mode == "" {
		return nil, fmt.Errorf("%w on %s: see docs/install.md", ErrNotInstalled, config.Host)
	}
	if err != nil {
		return nil, &UndeterminedError{config.Host, err}
	}
	found.Server, found.client = config.Host, p.kube
	return found, nil
}

// Published returns the configuration that the installation publishes. One that another deployment
// mode left behind is not read. The error wraps [ErrUntrusted] if its namespace has the label of a
// tenant. Nothing about access may depend on it: a caller who may write ConfigMaps in the namespace
// of the server can change it.
func (i *Installation) Published(ctx context.Context) (*configv1alpha1.Published, error) {
	namespace := WebhookNamespace
	if i.Mode == CompiledIn {
		namespace = metav1.NamespaceSystem
	}
	ns, err := i.client.CoreV1().Namespaces().Get(ctx, namespace, metav1.GetOptions{})
	// The caller may be allowed to read the configuration, but not its namespace.
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsForbidden(err) {
		return nil, err
	}
	if err == nil {
		if owner, labeled := ns.Labels[tenant.Label]; labeled && owner != tenant.System().String() {
			return nil, fmt.Errorf("%w: namespace %s has the label of tenant %q", ErrUntrusted, namespace, owner)
		}
	}
	return cluster.PublishedConfiguration(ctx, i.client.CoreV1(), namespace)
}

// ErrNoLimits means that the RBAC evaluator of a server does not know the limits of bindings
// ([tenant.ScopeAnnotation], [tenant.ExpiresAnnotation]), so that a limited binding always applies.
var ErrNoLimits = errors.New("its RBAC evaluator does not know the limits of bindings")

// CheckLimits returns nil if the server enforces the limits of bindings. The error wraps [ErrNoLimits]
// if the server ignores them. Otherwise, the published configuration cannot be read.
func (i *Installation) CheckLimits(ctx context.Context) error {
	if i.Mode != CompiledIn {
		return fmt.Errorf("%w (deployment mode: %s)", ErrNoLimits, i.Mode)
	}
	p, err := i.Published(ctx)
	if err != nil {
		return err
	}
	if rbac := p.Settings.Authorization.RBAC; rbac.Evaluator != configv1alpha1.EvaluatorIndexed {
		return fmt.Errorf("%w (authorization.rbac.evaluator: %s)", ErrNoLimits, rbac.Evaluator)
	}
	return nil
}

// DerivesRights reports whether the server's own evaluator derives the rights of admins and members
// from Tenants, so that no ClusterRoleBinding represents them. It fails if the published
// configuration cannot be read.
func (i *Installation) DerivesRights(ctx context.Context) (bool, error) {
	if i.Mode != CompiledIn {
		return false, nil
	}
	p, err := i.Published(ctx)
	if err != nil {
		return false, fmt.Errorf("cannot determine whether %s derives rights from Tenant objects: %w", i.Server, err)
	}
	a := p.Settings.Authorization
	return a.Mode == configv1alpha1.ModeEnforce && a.RBAC.Evaluator == configv1alpha1.EvaluatorIndexed, nil
}
