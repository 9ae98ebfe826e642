// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

// Package kube provides a client for the API groups that kubectl-tenant uses. It keeps the binary
// small. With client-go's clientset, the linker would include the methods of every API group,
// because it cannot remove methods from a program that executes templates.
package kube

import (
	"errors"
	"net/http"

	"k8s.io/client-go/discovery"
	appsv1 "k8s.io/client-go/kubernetes/typed/apps/v1"
	authenticationv1 "k8s.io/client-go/kubernetes/typed/authentication/v1"
	authorizationv1 "k8s.io/client-go/kubernetes/typed/authorization/v1"
	certificatesv1 "k8s.io/client-go/kubernetes/typed/certificates/v1"
	coordinationv1 "k8s.io/client-go/kubernetes/typed/coordination/v1"
	corev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	discoveryv1 "k8s.io/client-go/kubernetes/typed/discovery/v1"
	networkingv1 "k8s.io/client-go/kubernetes/typed/networking/v1"
	rbacv1 "k8s.io/client-go/kubernetes/typed/rbac/v1"
	"k8s.io/client-go/rest"
)

// Interface is the subset of client-go's kubernetes.Interface that kubectl-tenant uses. The clients
// of client-go implement it.
type Interface interface {
	Discovery() discovery.DiscoveryInterfaces
	AppsV1() appsv1.AppsV1Interface
	AuthenticationV1() authenticationv1.AuthenticationV1Interface
	AuthorizationV1() authorizationv1.AuthorizationV1Interface
	CertificatesV1() certificatesv1.CertificatesV1Interface
	CoordinationV1() coordinationv1.CoordinationV1Interface
	CoreV1() corev1.CoreV1Interface
	DiscoveryV1() discoveryv1.DiscoveryV1Interface
	NetworkingV1() networkingv1.NetworkingV1Interface
	RbacV1() rbacv1.RbacV1Interface
}

type client struct {
	discovery      *discovery.DiscoveryClient
	apps           *appsv1.AppsV1Client
	authentication *authenticationv1.AuthenticationV1Client
	authorization  *authorizationv1.AuthorizationV1Client
	certificates   *certificatesv1.CertificatesV1Client
	coordination   *coordinationv1.CoordinationV1Client
	core           *corev1.CoreV1Client
	discoverySlice *discoveryv1.DiscoveryV1Client
	networking     *networkingv1.NetworkingV1Client
	rbac           *rbacv1.RbacV1Client
}

// NewForConfig returns a client that uses its own HTTP client.
func NewForConfig(config *rest.Config) (Interface, error) {
	connection, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, err
	}
	return NewForConfigAndClient(config, connection)
}

// NewForConfigAndClient returns a client that uses the given HTTP client. If the configuration
// has no rate limiter, each API group has its own rate limit.
func NewForConfigAndClient(config *rest.Config, connection *http.Client) (Interface, error) {
	var c client
	var errs [10]error
	c.discovery, errs[0] = discovery.NewDiscoveryClientForConfigAndClient(config, connection)
	c.apps, errs[1] = appsv1.NewForConfigAndClient(config, connection)
	c.authentication, errs[2] = authenticationv1.NewForConfigAndClient(config, connection)
	c.authorization, errs[3] = authorizationv1.NewForConfigAndClient(config, connection)
	c.certificates, errs[4] = certificatesv1.NewForConfigAndClient(config, connection)
	c.coordination, errs[5] = coordinationv1.NewForConfigAndClient(config, connection)
	c.core, errs[6] = corev1.NewForConfigAndClient(config, connection)
	c.discoverySlice, errs[7] = discoveryv1.NewForConfigAndClient(config, connection)
	c.networking, errs[8] = networkingv1.NewForConfigAndClient(config, connection)
	c.rbac, errs[9] = rbacv1.NewForConfigAndClient(config, connection)
	if err := errors.Join(errs[:]...); err != nil {
		return nil, err
	}
	return &c, nil
}

func (c *client) Discovery() discovery.DiscoveryInterfaces { return c.discovery }

func (c *client) AppsV1() appsv1.AppsV1Interface { return c.apps }

func (c *client) AuthenticationV1() authenticationv1.AuthenticationV1Interface {
	return c.authentication
}

func (c *client) AuthorizationV1() authorizationv1.AuthorizationV1Interface { return c.authorization }

func (c *client) CertificatesV1() certificatesv1.CertificatesV1Interface { return c.certificates }

func (c *client) CoordinationV1() coordinationv1.CoordinationV1Interface { return c.coordination }

func (c *client) CoreV1() corev1.CoreV1Interface { return c.core }

func (c *client) DiscoveryV1() discoveryv1.DiscoveryV1Interface { return c.discoverySlice }

func (c *client) NetworkingV1() networkingv1.NetworkingV1Interface { return c.networking }

func (c *client) RbacV1() rbacv1.RbacV1Interface { return c.rbac }
