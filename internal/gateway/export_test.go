// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package gateway

// Strangers returns the number of requests whose caller is not authenticated.
func (g *Gateway) Strangers() int {
	g.strangers.mu.Lock()
	defer g.strangers.mu.Unlock()
	return g.strangers.all
}

// Waiting returns the number of requests that wait for a cluster.
func (g *Gateway) Waiting(name string) int {
	return g.current.Load().routes[name].cluster.turns.Waiting()
}
