// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kubetenant/kubetenant/tenant"
)

// inFlight contains the number of concurrent requests of each tenant. The zero value contains no
// requests. It is safe for concurrent use.
type inFlight struct {
	mu   sync.Mutex
	open map[tenant.ID]int
}

// acquire adds a request to the number of a tenant's requests until release is called. It returns
// false if the tenant already has the maximum number of requests.
func (p *inFlight) acquire(id tenant.ID, limit int) (release func(), ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.open[id] >= limit {
		return nil, false
	}
	if p.open == nil {
		p.open = map[tenant.ID]int{}
	}
	p.open[id]++
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.open[id]--; p.open[id] <= 0 {
			delete(p.open, id)
		}
	}, true
}

func errTooManyRequests() *apierrors.StatusError {
	return apierrors.NewTooManyRequests("the tenant has too many concurrent requests or streams", 1)
}
