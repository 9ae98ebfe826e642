// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package upgrade

import (
	"testing"
	"time"

	"k8s.io/client-go/rest"
)

// settle is how long requests are sent after each step, before the test continues.
const settle = 3 * time.Second

// gracefulFlags returns the kube-apiserver flags that docs/tasks/upgrade.md requires.
func gracefulFlags() []string {
	return []string{"--shutdown-delay-duration=2s", "--shutdown-send-retry-after=true"}
}

// TestUpgradeCompiledIn upgrades two servers one after the other, rolls them back, and upgrades
// them again. It checks that no request of a caller that retries as documented fails, and that no
// stored object changes.
func TestUpgradeCompiledIn(t *testing.T) {
	earlier, current := releases(t)
	p := startControlPlane(t, current, "tenancy.yaml", "--tenancy=false")
	var servers []*replica
	var backends []*backend
	for range 2 {
		s := p.startServer(t, earlier, freeAddress(t), gracefulFlags()...)
		s.awaitReady(t, "https://"+s.address)
		servers = append(servers, s)
		backends = append(backends, &backend{address: s.address, health: "https://" + s.address})
	}
	address := newBalancer(t, backends...)
	c, requests := admin(t, p.Server, address), tenantRequests()
	p.prepare(t, address, requests)
	stored := snapshot(t, dynamicClient(t, c))
	traffic := startTraffic(t, c, requests, retryWithin)
	time.Sleep(settle)
	traffic.check(t, "before")
	for _, step := range []struct{ phase, bin string }{
		{"upgrade", current}, {"rollback", earlier}, {"upgrade again", current},
	} {
		for i, s := range servers {
			s.stop(t)
			servers[i] = p.startServer(t, step.bin, s.address, gracefulFlags()...)
			servers[i].awaitReady(t, "https://"+s.address)
			time.Sleep(settle)
		}
		traffic.check(t, step.phase)
		compare(t, step.phase, stored, snapshot(t, dynamicClient(t, c)))
	}
}

// TestReplacedServer sends requests to a server while it is restarted. A load balancer may also do
// this, because it detects only after an interval that a server is not ready. The test checks that
// each response is correct or can be retried.
func TestReplacedServer(t *testing.T) {
	_, current := releases(t)
	p := startControlPlane(t, current, "tenancy.yaml", "--tenancy=false")
	s := p.startServer(t, current, freeAddress(t))
	s.awaitReady(t, "https://"+s.address)
	requests := tenantRequests()
	p.prepare(t, s.address, requests)
	c := rest.CopyConfig(admin(t, p.Server, s.address))
	traffic := startTraffic(t, c, requests, waitLimit) // no other server responds during a restart
	for range 3 {
		s.stop(t)
		s = p.startServer(t, current, s.address)
		s.awaitReady(t, "https://"+s.address)
		time.Sleep(settle)
	}
	traffic.check(t, "restarts")
}
