// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package gateway

// Unauthenticated returns the number of requests whose caller is not authenticated yet.
func (g *Gateway) Unauthenticated() int {
	g.unauthenticated.mu.Lock()
	defer g.unauthenticated.mu.Unlock()
	return g.unauthenticated.total
}

// Waiting returns the number of requests that wait in the queue of a cluster.
func (g *Gateway) Waiting(name string) int {
	return g.current.Load().routes[name].cluster.queue.Waiting()
}
