// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

// Package installation detects whether and how kubetenant runs on a server.
//
// The behavior of the server shows whether kubetenant runs. The package sends malformed tenant and
// cluster paths, reviews the access of a caller with two tenants, and tries to create a Namespace
// with a reserved tenant name. CustomResourceDefinitions, labels, bindings and the published
// configuration are not evidence, because they remain after a return to upstream's kube-apiserver.
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
	// Gateway is the mode of a gateway. It is also the mode of a cluster behind a gateway, if
	// the client connects to the cluster directly.
	Gateway Mode = "gateway"
)

// WebhookNamespace is the default namespace of the webhook service.
const WebhookNamespace = "kubetenant-system"

// ErrNotInstalled reports that a server responded but does not run kubetenant.
var ErrNotInstalled = errors.New("kubetenant is not installed")

// ErrUntrusted reports that callers of a tenant may have written the published configuration.
var ErrUntrusted = errors.New("the published configuration is not trusted")

// UndeterminedError reports that a server's responses do not show whether the server runs
// kubetenant.
type UndeterminedError struct {
	Server string
	// Cause is the error of the detection. It is not wrapped, because a 403 response to a probe
	// does not mean that the caller's own request is forbidden.
	Cause error
}

func (e *UndeterminedError) Error() string {
	return fmt.Sprintf("cannot determine whether kubetenant is installed on %s: %v", e.Server, e.Cause)
}

// Is reports whether target is [ErrReviewForbidden] and the cause wraps it.
func (e *UndeterminedError) Is(target error) bool {
	return target == ErrReviewForbidden && errors.Is(e.Cause, ErrReviewForbidden)
}

// Installation describes how kubetenant runs on a server. The zero value means that kubetenant
// was not found. Installation is safe for concurrent use.
type Installation struct {
	Mode Mode
	// Server is the URL of the server in the kubeconfig.
	Server string
	// Direct reports whether the server is a cluster behind a gateway, and the client connects
	// to the cluster directly. The boundary does not authorize the requests of this client.
	Direct bool

	client kube.Interface
}

// detectTimeout is the timeout of each request if the configuration sets no timeout.
const detectTimeout = 20 * time.Second

// Detect returns the installation on a server. The error wraps [ErrNotInstalled], or is an
// [UndeterminedError]. An UndeterminedError means that the server is unreachable, rejects the
// credential, or does not show enough to this caller. Detect ignores impersonation, because the
// mode does not depend on the caller.
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

// Published returns the configuration that the installation publishes. It does not read a
// configuration that remains from another deployment mode. The error wraps [ErrUntrusted] if the
// namespace of the configuration has the label of a tenant other than the system tenant. Access
// decisions MUST NOT depend on the result, because a caller that may write ConfigMaps in this
// namespace can change it.
func (i *Installation) Published(ctx context.Context) (*configv1alpha1.Published, error) {
	namespace := WebhookNamespace
	if i.Mode == CompiledIn {
		namespace = metav1.NamespaceSystem
	}
	ns, err := i.client.CoreV1().Namespaces().Get(ctx, namespace, metav1.GetOptions{})
	// The caller may have the right to read the configuration, but not the namespace.
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

// ErrNoLimits reports that the RBAC evaluator of a server ignores the annotations that limit a
// binding ([tenant.ScopeAnnotation], [tenant.ExpiresAnnotation]), so that the binding always
// applies.
var ErrNoLimits = errors.New("its RBAC evaluator does not know the limits of bindings")

// CheckLimits returns nil if the server enforces the limits of bindings. The error wraps
// [ErrNoLimits] if the server ignores the limits. Any other error means that the published
// configuration cannot be read.
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

// DerivesRights reports whether the RBAC evaluator of the server derives the rights of admins
// and members from Tenant objects, without ClusterRoleBindings. It returns an error if the
// published configuration cannot be read.
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
