// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package uninstall

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/kubetenant/kubetenant/internal/cli/installation"
	"github.com/kubetenant/kubetenant/internal/kube"
)

// Servers is the result of a check of the servers of a cluster.
type Servers struct {
	// Mode is the deployment mode, or "" if no server runs kubetenant. It is
	// [installation.Gateway] if the checked address is that of a gateway.
	Mode installation.Mode
	// With contains the addresses of the servers that run kubetenant. Without contains the
	// addresses of the other servers that responded.
	With, Without []string
	// Unreachable contains the servers that could not be checked, with the reason.
	Unreachable []string
	// Leader is the holder of the leader election Lease in kube-system. It is "" if no server
	// renews the Lease.
	Leader string
}

// Running reports whether any server runs kubetenant.
func (s *Servers) Running() bool { return len(s.With) > 0 || s.Leader != "" }

// leaseRenewed is how long a leader may fail to renew its Lease before it stops leading
// (internal/serving/leader, renewDeadline).
const leaseRenewed = 10 * time.Second

// ServerChecker checks which servers of a cluster run kubetenant. It evaluates their responses.
type ServerChecker struct {
	config   *rest.Config
	renew    time.Time // the last renewal of the Lease; observed is the time at which it was observed
	observed time.Time
}

// NewServerChecker returns a ServerChecker. config is the admin's client configuration.
func NewServerChecker(config *rest.Config) *ServerChecker { return &ServerChecker{config: config} }

// Check checks the server at the address in the configuration, and each server in the
// EndpointSlices of the Service kubernetes. Each check opens new connections, which a load
// balancer may route to another server. Check returns an error if the address in the configuration
// does not respond.
func (l *ServerChecker) Check(ctx context.Context) (*Servers, error) {
	s := &Servers{}
	if err := s.check(ctx, l.config); err != nil || s.Mode == installation.Gateway {
		return s, err
	}
	k, err := kube.NewForConfig(l.config)
	if err != nil {
		return nil, err
	}
	slices, err := k.DiscoveryV1().EndpointSlices(metav1.NamespaceDefault).List(ctx,
		metav1.ListOptions{LabelSelector: discoveryv1.LabelServiceName + "=kubernetes"})
	if err != nil {
		return nil, fmt.Errorf("list the servers of the cluster: %w", err)
	}
	for _, address := range addresses(slices.Items) {
		if address == hostOf(l.config) {
			continue
		}
		if err := s.check(ctx, at(l.config, address)); err != nil {
			s.Unreachable = append(s.Unreachable, fmt.Sprintf("%s did not respond: %v", address, err))
		}
	}
	lease, err := k.CoordinationV1().Leases(metav1.NamespaceSystem).Get(ctx, leaseName, metav1.GetOptions{})
	switch {
	case err == nil:
		s.Leader = l.leader(&lease.Spec, time.Now())
	case !apierrors.IsNotFound(err):
		return nil, fmt.Errorf("read the Lease %s: %w", leaseName, err)
	}
	if s.Leader != "" && s.Mode == "" {
		s.Mode = installation.CompiledIn
	}
	return s, nil
}

// leader returns the holder of a Lease that was renewed recently, or "". A Lease was renewed
// recently if its timestamp is recent, or has changed since the last check.
func (l *ServerChecker) leader(lease *coordinationv1.LeaseSpec, now time.Time) string {
	if lease.HolderIdentity == nil || *lease.HolderIdentity == "" || lease.RenewTime == nil {
		return ""
	}
	changed := !l.renew.IsZero() && !l.renew.Equal(lease.RenewTime.Time)
	if !l.renew.Equal(lease.RenewTime.Time) {
		l.renew, l.observed = lease.RenewTime.Time, now
	}
	if changed || now.Sub(l.renew) < leaseRenewed && now.Sub(l.observed) < leaseRenewed {
		return *lease.HolderIdentity
	}
	return ""
}

// check checks whether the server at the address in config runs kubetenant, and records the
// result.
func (s *Servers) check(ctx context.Context, config *rest.Config) error {
	config = rest.CopyConfig(config)
	config.Timeout = 10 * time.Second
	config.Dial = (&net.Dialer{Timeout: 5 * time.Second}).DialContext // a new function prevents the reuse of connections
	mode, err := installation.Boundary(ctx, config)
	switch {
	case err != nil:
		return err
	case mode == "":
		s.Without = append(s.Without, config.Host)
	default:
		s.Mode = mode
		s.With = append(s.With, config.Host)
	}
	return nil
}

// addresses returns the addresses of the servers in the EndpointSlices.
func addresses(slices []discoveryv1.EndpointSlice) (all []string) {
	for i := range slices {
		port := "443"
		for _, p := range slices[i].Ports {
			if p.Port != nil {
				port = strconv.Itoa(int(*p.Port))
			}
		}
		for _, e := range slices[i].Endpoints {
			for _, address := range e.Addresses {
				all = append(all, net.JoinHostPort(address, port))
			}
		}
	}
	return all
}

// hostOf returns the host and port in a client configuration, or "".
func hostOf(config *rest.Config) string {
	u, err := url.Parse(config.Host)
	if err != nil {
		return ""
	}
	return u.Host
}

// at returns the client configuration for another server of the cluster. The certificate of that
// server must be valid for the host name in config.
func at(config *rest.Config, address string) *rest.Config {
	config = rest.CopyConfig(config)
	if config.ServerName == "" && !config.Insecure {
		if u, err := url.Parse(config.Host); err == nil {
			config.ServerName = u.Hostname()
		}
	}
	config.Host = "https://" + address
	return config
}
